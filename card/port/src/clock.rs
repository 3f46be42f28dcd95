//! Where the wrappers get their time from: a real clock, a simulation's, or a closure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A source of time.
pub trait Clock {
    /// Nanoseconds since an origin of the clock's choosing.
    fn now_ns(&mut self) -> u64;
}

impl<F: FnMut() -> u64> Clock for F {
    fn now_ns(&mut self) -> u64 {
        self()
    }
}

/// `CLOCK_MONOTONIC`: for delays and polling.
#[derive(Debug, Clone, Copy, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now_ns(&mut self) -> u64 {
        nicache_clock::monotonic_ns()
    }
}

/// `CLOCK_REALTIME`, nanoseconds since 1970: for capture files.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealtimeClock;

impl Clock for RealtimeClock {
    fn now_ns(&mut self) -> u64 {
        nicache_clock::unix_ns()
    }
}

/// A clock that stands still until it is set. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that shows `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self(Arc::new(AtomicU64::new(now_ns)))
    }

    /// Sets the time.
    pub fn set_ns(&self, now_ns: u64) {
        self.0.store(now_ns, Ordering::Relaxed);
    }

    /// Moves the time forward.
    pub fn advance_ns(&self, by_ns: u64) {
        self.0.fetch_add(by_ns, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now_ns(&mut self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_of_a_manual_clock_agree() {
        let clock = ManualClock::new(5);
        let mut other = clock.clone();
        clock.advance_ns(2);
        assert_eq!(other.now_ns(), 7);
        clock.set_ns(1);
        assert_eq!(other.now_ns(), 1);
    }

    #[test]
    fn a_closure_is_a_clock_and_real_clocks_run() {
        fn read(mut clock: impl Clock) -> u64 {
            clock.now_ns()
        }
        assert_eq!(read(|| 9), 9);
        let first = read(MonotonicClock);
        assert!(read(MonotonicClock) >= first);
        assert!(read(RealtimeClock) > 1_700_000_000_000_000_000);
    }
}
