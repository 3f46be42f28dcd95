//! The thread that attacks: it sends what an [`Attack`] wants, at its pace, and hands back what
//! comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use super::wire::{Segment, Wire};
use crate::wire::cpu::bind_to;

/// How long the thread sleeps at most.
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// What attackers do. Time is in seconds since the attack began.
pub(super) trait Attack: Send {
    /// Sends what is due.
    fn step(&mut self, now_s: f64, wire: &mut Wire);

    /// A segment has come back.
    fn handle(&mut self, now_s: f64, segment: Segment<'_>, wire: &mut Wire);

    /// What was done, for the report.
    fn told(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }
}

/// So many events a second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    per_second: f64,
    done: u64,
}

/// Events that are caught up with at a time.
const CATCH_UP_MAX: u64 = 2_000;

impl Pace {
    /// None yet.
    pub(super) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), done: 0 }
    }

    /// Events that are due; they count as done. Whoever has slept for long does not make up for all
    /// of it.
    pub(super) fn due(&mut self, now_s: f64) -> u64 {
        let wanted = (now_s * self.per_second) as u64;
        let due = wanted.saturating_sub(self.done).min(CATCH_UP_MAX);
        self.done = wanted;
        due
    }
}

/// What was counted of an attack.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Told {
    /// Frames sent.
    pub sent: u64,
    /// Frames that the interface refused.
    pub refused: u64,
    /// Segments that came back.
    pub received: u64,
    /// How long it went on.
    pub seconds: f64,
    /// What the attack itself tells.
    pub more: BTreeMap<String, u64>,
}

/// An attack under way.
#[derive(Debug)]
pub(super) struct Generator {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(Wire, Told)>>>,
}

impl Generator {
    /// Begins, on `cpu`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(wire: Wire, attack: Box<dyn Attack>, cpu: usize) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let body = move || {
            bind_to(cpu)?;
            attack_until(&seen, wire, attack)
        };
        let thread = std::thread::Builder::new().name("attack".into()).spawn(body)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends the attack, and returns what it counted.
    ///
    /// # Errors
    /// The interface was gone before.
    pub(super) fn end(mut self) -> Result<(Wire, Told)> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(|| anyhow!("the attack has ended"))?;
        thread.join().map_err(|_| anyhow!("the attacking thread has panicked"))?
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn attack_until(
    stop: &AtomicBool,
    mut wire: Wire,
    mut attack: Box<dyn Attack>,
) -> Result<(Wire, Told)> {
    let mut burst = Wire::burst();
    (wire.sent, wire.refused, wire.received) = (0, 0, 0);
    // What was still on its way to an earlier attack.
    while wire.receive(&mut burst, |_, _| {})? > 0 {}
    wire.received = 0;
    let begun = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now_s = begun.elapsed().as_secs_f64();
        let received =
            wire.receive(&mut burst, |wire, segment| attack.handle(now_s, segment, wire))?;
        let before = wire.sent;
        attack.step(now_s, &mut wire);
        if received == 0 && wire.sent == before {
            wire.sleep(SLEEP_MAX);
        }
    }
    let told = Told {
        sent: wire.sent,
        refused: wire.refused,
        received: wire.received,
        seconds: begun.elapsed().as_secs_f64(),
        more: attack.told(),
    };
    Ok((wire, told))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_and_a_long_sleep_not_made_up_for() {
        let mut pace = Pace::new(1_000);
        assert_eq!((pace.due(0.0), pace.due(0.5), pace.due(0.5), pace.due(0.501)), (0, 500, 0, 1));
        assert_eq!((pace.due(100.0), pace.due(100.001)), (CATCH_UP_MAX, 1));
    }
}
