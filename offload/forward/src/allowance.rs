//! How much may be said to whoever sends packets that belong to nothing, so a flood of them is
//! not answered by a flood (RFC 1812 section 4.3.2.8, RFC 4443 section 2.4 (f)).
//!
//! A token bucket that keeps only the time at which it will be full: no part of a token is lost
//! between two calls, however often they come.

use std::time::Duration;

use nicache_tcp::Time;

/// A token bucket for what is said to whoever sends packets that belong to nothing, so a flood is
/// not answered by a flood.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    /// How long one token takes to come.
    interval: Duration,
    /// How long all of them take.
    burst: Duration,
    full_at: Time,
}

impl Allowance {
    /// So many per second in the long run, and so many at once; both are at least 1. It is full at
    /// first.
    pub const fn new(per_second: u32, at_once: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000 / per_second as u64);
        let burst = Duration::from_nanos(interval.as_nanos() as u64 * at_once as u64);
        Self { interval, burst, full_at: Time::ZERO }
    }

    /// Takes one. False: there is none.
    pub fn take(&mut self, now: Time) -> bool {
        let full_at = self.full_at.max(now) + self.interval;
        let is_allowed = full_at.since(now) <= self.burst;
        if is_allowed {
            self.full_at = full_at;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut allowance = Allowance::new(1000, 50);
        let begin = Time::from_millis(5_000);
        assert_eq!((0..200).filter(|_| allowance.take(begin)).count(), 50);
        // Ten seconds of 20,000 a second, at times that are not multiples of a token's.
        let taken = (0..200_000)
            .filter(|n| allowance.take(begin + Duration::from_nanos(50_000 * n + 17)))
            .count();
        assert!((9_998..=10_000).contains(&taken), "{taken}");
        // After a longer pause there is only the burst.
        let later = begin + Duration::from_secs(3_600);
        assert_eq!((0..200).filter(|_| allowance.take(later)).count(), 50);
    }

    proptest! {
        /// In no span of time there are more than the burst and what comes within it, and who keeps
        /// to the rate gets all.
        #[test]
        fn it_is_kept(
            rate in 1u32..5000,
            burst in 1u32..100,
            steps in proptest::collection::vec(0u64..3_000_000, 1..300),
        ) {
            let mut allowance = Allowance::new(rate, burst);
            let interval = 1_000_000_000 / u64::from(rate);
            let mut now = Time(1 << 40);
            let mut taken = Vec::new();
            for step in steps {
                now += Duration::from_nanos(step);
                if allowance.take(now) {
                    taken.push(now);
                }
            }
            for (first, begin) in taken.iter().enumerate() {
                for (last, end) in taken.iter().enumerate().skip(first) {
                    let count = (last - first + 1) as u64;
                    prop_assert!(
                        count <= u64::from(burst) + end.since(*begin).as_nanos() as u64 / interval
                    );
                }
            }
            now += Duration::from_secs(1000);
            for _ in 0..50 {
                now += Duration::from_nanos(interval);
                prop_assert!(allowance.take(now));
            }
        }
    }
}
