//! Whether a process that says nothing stands still, or only is not given what it needs to go on: a
//! CPU, or its own memory.
//!
//! Time counts against a process only while it could have worked. What counts for it, by thread,
//! from the kernel's own books (`/proc/PID/task/TID`): time in which the thread was ready to run
//! and did not, and time in which pages of it were brought in. On an idle machine neither happens,
//! and all of the time counts. A thread that sleeps, is stopped, waits in the kernel, or runs round
//! in a circle has no excuse.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Between two looks of somebody who waits.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(70);
/// A look that comes later than this no longer counts: then the whole machine stood still.
const STEP_MAX: Duration = Duration::from_millis(140);
/// Less than this on a CPU is what a process does that only waits.
const WORK: Duration = Duration::from_millis(20);

/// One thread at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Thread {
    /// On a CPU, or waiting for one.
    is_ready: bool,
    /// Time on a CPU so far, and time waited for one, as far as the wait is over.
    ran: Duration,
    waited: Duration,
    /// Pages that were brought in from a disk.
    faults: u64,
}

/// All threads of a process at one moment; none if it is gone, or the kernel does not keep these
/// books.
#[derive(Debug, Clone, Default)]
pub(crate) struct Vitals(HashMap<u32, Thread>);

impl Vitals {
    /// Of all processes with these numbers, as they are now.
    pub(crate) fn read(processes: &[u32]) -> Self {
        // Whoever looks runs, and waits for nothing but what it looks for.
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let tasks = processes
            .iter()
            .filter_map(|process| std::fs::read_dir(format!("/proc/{process}/task")).ok());
        let look = |entry: std::fs::DirEntry| {
            let number =
                entry.file_name().to_str()?.parse().ok().filter(|number| *number != own)?;
            let read = |name| std::fs::read_to_string(entry.path().join(name)).ok();
            Some((number, parse(&read("stat")?, &read("schedstat")?)?))
        };
        Self(tasks.flatten().flatten().filter_map(look).collect())
    }

    /// How much of `elapsed` since `before` counts against a process whose threads were so then,
    /// and are so now. One thread without what it needs may be what all others wait for.
    fn counted(&self, before: &Self, elapsed: Duration) -> Duration {
        let counted = |(number, now): (&u32, &Thread)| {
            let before = before.0.get(number)?;
            if now.faults > before.faults {
                return Some(Duration::ZERO);
            }
            let waited = now.waited.saturating_sub(before.waited);
            let denied = match before.is_ready && now.is_ready {
                true => waited.max(elapsed.saturating_sub(now.ran.saturating_sub(before.ran))),
                false => waited,
            };
            Some(elapsed.saturating_sub(denied))
        };
        self.0.iter().filter_map(counted).min().unwrap_or(elapsed)
    }
}

/// Time on a CPU of all threads of a process so far.
fn ran(process: u32) -> Duration {
    Vitals::read(&[process]).0.values().map(|thread| thread.ran).sum()
}

/// `stat` and `schedstat` of a thread.
fn parse(stat: &str, schedstat: &str) -> Option<Thread> {
    // The name, in parentheses, may hold anything. Then come the state, eight numbers, and the
    // major faults.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let is_ready = fields.next()? == "R";
    let faults = fields.nth(8)?.parse().ok()?;
    let mut times =
        schedstat.split_ascii_whitespace().map(|ns| ns.parse().ok().map(Duration::from_nanos));
    Some(Thread { is_ready, ran: times.next()??, waited: times.next()??, faults })
}

/// For how long a process has stood still: what counts, in steps.
#[derive(Debug)]
pub(crate) struct Stillness {
    still: Duration,
    since: Instant,
    last: Vitals,
}

impl Stillness {
    /// From `now` on, when the process was so.
    pub(crate) fn new(now: Instant, vitals: Vitals) -> Self {
        Self { still: Duration::ZERO, since: now, last: vitals }
    }

    /// It has done something: what counted until now no longer does.
    pub(crate) fn forgive(&mut self) {
        self.still = Duration::ZERO;
    }

    /// It still says nothing, and is so. All that counts.
    pub(crate) fn step(&mut self, now: Instant, vitals: Vitals) -> Duration {
        let elapsed = now.saturating_duration_since(self.since);
        // What is on the books of a longer step is for all of it.
        let counted = vitals.counted(&self.last, elapsed);
        self.still += counted.min(STEP_MAX);
        (self.since, self.last) = (now, vitals);
        self.still
    }
}

/// Waits for a process as long as it does not stand still.
#[derive(Debug)]
pub(crate) struct Patience {
    processes: [u32; 2],
    limit: Duration,
    stillness: Stillness,
    /// Its time on a CPU up to the last look, if it is excused by work.
    worked: Option<Duration>,
}

impl Patience {
    /// For at most `limit` of standing still. This process counts, too: it may be the one that is
    /// late.
    pub(crate) fn with(process: u32, limit: Duration) -> Self {
        let processes = [process, std::process::id()];
        let stillness = Stillness::new(Instant::now(), Vitals::read(&processes));
        Self { processes, limit, stillness, worked: None }
    }

    /// A process that uses its CPU is not standing still, either: for one whose work the caller
    /// knows to have an end, or limits in another way.
    pub(crate) fn while_it_works(self) -> Self {
        Self { worked: Some(Duration::ZERO), ..self }
    }

    /// To be called every [`LOOK_EVERY`] or so. Is it over?
    pub(crate) fn is_over(&mut self) -> bool {
        if let Some(worked) = &mut self.worked {
            let ran = ran(self.processes[0]);
            if ran > *worked + WORK {
                *worked = ran;
                self.stillness.forgive();
            }
        }
        self.stillness.step(Instant::now(), Vitals::read(&self.processes)) >= self.limit
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const STEP: Duration = Duration::from_millis(70);

    fn thread(is_ready: bool, ran_ms: u64, waited_ms: u64, faults: u64) -> Thread {
        Thread {
            is_ready,
            ran: Duration::from_millis(ran_ms),
            waited: Duration::from_millis(waited_ms),
            faults,
        }
    }

    /// How long one that goes on like that for ten steps has stood still.
    fn still(threads: impl Fn(u64) -> Vec<Thread>) -> Duration {
        let look = |step| Vitals((0..).zip(threads(step)).collect());
        let start = Instant::now();
        let mut stillness = Stillness::new(start, look(0));
        (1..=10).map(|step| stillness.step(start + STEP * step as u32, look(step))).last().unwrap()
    }

    #[test]
    fn who_could_work_and_does_not_has_no_excuse() {
        assert_eq!(
            still(|_| vec![thread(false, 5, 5, 5)]),
            STEP * 10,
            "sleeps, is stopped, or waits in the kernel"
        );
        assert_eq!(
            still(|step| vec![thread(true, 70 * step, 0, 0)]),
            STEP * 10,
            "runs round in a circle"
        );
        assert_eq!(still(|_| Vec::new()), STEP * 10, "nothing is known");
    }

    #[test]
    fn who_is_not_given_a_processor_does_not_stand_still() {
        let sleeps = thread(false, 0, 0, 0);
        assert_eq!(
            still(|_| vec![sleeps, thread(true, 9, 0, 0)]),
            Duration::ZERO,
            "is in the queue all the time"
        );
        assert_eq!(
            still(|step| vec![sleeps, thread(step % 2 == 0, step, 69 * step, 0)]),
            Duration::from_millis(10)
        );
        assert_eq!(
            still(|step| vec![thread(true, 7 * step, 0, 0)]),
            STEP,
            "a tenth of a processor, in a circle"
        );
        assert_eq!(
            still(|step| vec![sleeps, thread(false, 0, 0, step)]),
            Duration::ZERO,
            "its memory is brought in"
        );
    }

    #[test]
    fn a_machine_that_stood_still_counts_little() {
        let start = Instant::now();
        let sleeps = || Vitals([(1, thread(false, 0, 0, 0))].into());
        let mut stillness = Stillness::new(start, sleeps());
        assert_eq!(stillness.step(start + Duration::from_secs(60), sleeps()), STEP_MAX);
    }

    #[test]
    fn the_kernel_s_books_are_read() {
        let stat = "12 (a) R (b) S 1 12 12 0 -1 4194560 132 0 7 0 0 0 0 0 20 0 1 0";
        assert_eq!(parse(stat, "3000000 2000000 9\n"), Some(thread(false, 3, 2, 7)));
        assert_eq!(parse(stat, ""), None);
        let is_over = AtomicBool::new(false);
        let vitals = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let is_seen = |vitals: &Vitals| vitals.0.values().any(|thread| thread.is_ready);
            let vitals = (0..1000).map(|_| Vitals::read(&[std::process::id()])).find(is_seen);
            is_over.store(true, Ordering::Relaxed);
            vitals
        });
        assert!(vitals.is_some(), "a thread of this process runs");
        assert!(Vitals::read(&[u32::MAX]).0.is_empty());
    }
}
