//! The ring of the preloaded library: producers at once, killed ones, stopped ones, and more than
//! it holds.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nicache_coherence::SourceSlot;
use nicache_watch::{CELLS, Drained, GIVEN_UP_NS, LookupEvent, Witness};

use crate::program::Memory;

/// Python looks up `prefix-0`, `prefix-1`, ... `count` of them.
fn producer(memory: &Memory, prefix: &str, count: u32) -> Command {
    let script = format!(
        "import os\nfor n in range({count}):\n  try: os.stat('/nowhere/{prefix}-%d' % n)\n  except OSError: pass"
    );
    let mut command = Command::new("python3");
    command.args(["-S", "-c", &script]).stdin(Stdio::null());
    memory.give_to(&mut command, "server");
    command
}

fn numbers(events: &[LookupEvent], prefix: &str) -> Vec<u32> {
    let start = format!("/nowhere/{prefix}-");
    let number = |event: &LookupEvent| {
        std::str::from_utf8(&event.path).ok()?.strip_prefix(&start)?.parse().ok()
    };
    events.iter().filter_map(number).collect()
}

/// Drains until `done`, and gives what came.
fn drain_until(memory: &mut Memory, mut done: impl FnMut() -> bool) -> Vec<LookupEvent> {
    let mut events = Vec::new();
    loop {
        let finished = done();
        let drained = memory.witness.drain(&mut |event| events.push(event));
        assert_ne!(drained, Drained::Corrupt);
        if finished && drained == Drained::All {
            return events;
        }
    }
}

#[test]
fn nothing_is_lost_or_torn_between_producers() {
    /// All of them fit, so a slow reader is not a reason to lose some.
    const COUNT: u32 = 3_500;
    let mut memory = Memory::new();
    let names = ["a", "b", "c", "d"];
    let mut whole = 0;
    for _ in 0..30 {
        let lost = memory.table.lost();
        let mut all = names.map(|name| producer(&memory, name, COUNT).spawn().unwrap());
        let events = drain_until(&mut memory, || {
            all.iter_mut().all(|one| one.try_wait().unwrap().is_some())
        });
        // One that stands still in the middle of a record is given up.
        if memory.table.lost() > lost {
            continue;
        }
        for name in names {
            assert_eq!(numbers(&events, name), (0..COUNT).collect::<Vec<u32>>());
        }
        whole += 1;
        if whole == 6 {
            return;
        }
    }
    panic!("{whole} of 30 without a loss");
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut memory = Memory::new();
    let count = CELLS as u32 + 5_000;
    assert!(producer(&memory, "flood", count).status().unwrap().success());
    let events = drain_until(&mut memory, || true);
    let seen = numbers(&events, "flood");
    assert!(memory.table.lost() >= 5_000, "{} lost", memory.table.lost());
    assert!(seen.iter().copied().eq(0..seen.len() as u32));
    // And it goes on.
    assert!(producer(&memory, "after", 10).status().unwrap().success());
    assert_eq!(numbers(&drain_until(&mut memory, || true), "after").len(), 10);
}

/// Killed at any moment, also between claim and record; the others are not held up, and what is
/// read is never torn.
#[test]
fn killed_producers_hold_nobody_up() {
    const COUNT: u32 = 150_000;
    let mut memory = Memory::new();
    let mut others = vec![producer(&memory, "other0", COUNT).spawn().unwrap()];
    let (mut killed, mut events) = (0, Vec::new());
    loop {
        if others.last_mut().unwrap().try_wait().unwrap().is_some() {
            if killed >= 5 {
                break;
            }
            let name = format!("other{}", others.len());
            others.push(producer(&memory, &name, COUNT).spawn().unwrap());
        }
        let mut victim = producer(&memory, &format!("victim{killed}"), u32::MAX).spawn().unwrap();
        let end = Instant::now() + Duration::from_millis(120 + killed % 7);
        events.append(&mut drain_until(&mut memory, || Instant::now() > end));
        victim.kill().unwrap();
        assert_eq!(victim.wait().unwrap().signal(), Some(9));
        killed += 1;
    }
    let end = Instant::now() + Duration::from_nanos(2 * GIVEN_UP_NS);
    events.append(&mut drain_until(&mut memory, || Instant::now() > end));
    let seen: Vec<_> =
        (0..others.len()).map(|number| numbers(&events, &format!("other{number}"))).collect();
    let (all, lost) = (seen.iter().map(Vec::len).sum::<usize>() as u64, memory.table.lost());
    assert!(
        all + lost >= u64::from(COUNT) * seen.len() as u64,
        "{killed} killed, {all} of {} seen, {lost} lost",
        seen.len()
    );
    assert!(seen.iter().all(|one| one.is_sorted()));
    for victim in 0..killed {
        assert!(
            numbers(&events, &format!("victim{victim}"))
                .iter()
                .copied()
                .enumerate()
                .all(|(at, n)| at as u32 <= n)
        );
    }
}

/// Nobody says what a killed process was about to change.
#[test]
fn a_killed_process_voids_everything() {
    let mut memory = Memory::new();
    let mut victim = producer(&memory, "victim", u32::MAX).spawn().unwrap();
    let begun = Instant::now();
    while numbers(&drain_until(&mut memory, || true), "victim").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    let stamp = memory.table.advance_clock();
    memory.witness.handle_time(&memory.table, nicache_clock::monotonic_ns());
    assert!(memory.table.stamp_of(SourceSlot::EVERYTHING) < stamp);
    victim.kill().unwrap();
    victim.wait().unwrap();
    memory.witness.handle_time(&memory.table, nicache_clock::monotonic_ns() + 50_000_000);
    assert!(memory.table.stamp_of(SourceSlot::EVERYTHING) >= stamp);
}
