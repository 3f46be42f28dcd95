//! When edits come: at random, and now and then several at once.

use std::time::Duration;

/// One arrival in so many is a burst.
const BURST_EVERY: u32 = 10;

/// The gaps between the edits of one subject. Their mean is the rate's, bursts included.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    mean: Option<Duration>,
    burst_max: u32,
    /// Edits of the present burst that are to come.
    left: u32,
    random: fastrand::Rng,
}

impl Schedule {
    /// `per_second` edits, 0: none; bursts of up to `burst_max` edits without a gap.
    pub(crate) fn new(per_second: f64, burst_max: u32, random: fastrand::Rng) -> Self {
        let mean = (per_second > 0.0).then(|| Duration::from_secs_f64(1.0 / per_second.max(1e-6)));
        Self { mean, burst_max: burst_max.max(1), left: 0, random }
    }

    /// Time until the next edit; `None`: there is none.
    pub(crate) fn next_gap(&mut self) -> Option<Duration> {
        let mean = self.mean?;
        if self.left > 0 {
            self.left -= 1;
            return Some(Duration::ZERO);
        }
        let is_burst = self.burst_max > 1 && self.random.u32(..BURST_EVERY) == 0;
        let length = if is_burst { self.random.u32(2..=self.burst_max) } else { 1 };
        self.left = length - 1;
        // Exponential gaps: no time is safer than another.
        let stretched = -(1.0 - self.random.f64()).ln();
        Some(mean.mul_f64(stretched * f64::from(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_kept_bursts_come_and_a_seed_repeats() {
        let gaps = |burst_max, seed| -> Vec<Duration> {
            let mut schedule = Schedule::new(100.0, burst_max, fastrand::Rng::with_seed(seed));
            (0..20_000).filter_map(|_| schedule.next_gap()).collect()
        };
        for burst_max in [1, 8] {
            let all = gaps(burst_max, 7);
            let mean_ms = all.iter().sum::<Duration>().as_secs_f64() * 1e3 / all.len() as f64;
            assert!((9.0..11.0).contains(&mean_ms), "{mean_ms}");
            let at_once = all.iter().filter(|gap| gap.is_zero()).count();
            assert_eq!(at_once > 1000, burst_max > 1, "{at_once}");
        }
        assert_eq!(gaps(8, 7), gaps(8, 7));
        assert_ne!(gaps(8, 7), gaps(8, 8));
    }

    #[test]
    fn no_rate_no_edits() {
        assert_eq!(Schedule::new(0.0, 5, fastrand::Rng::with_seed(1)).next_gap(), None);
    }
}
