//! When connections are attempted: a schedule that knows nothing of replies (open loop).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How arrivals follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spacing {
    /// Always after the same time, as httperf sends by default.
    Fixed,
    /// By a Poisson process: independently of each other, like many users.
    Poisson,
}

impl Spacing {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Poisson => "poisson",
        }
    }
}

impl FromStr for Spacing {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Fixed, Self::Poisson]
            .into_iter()
            .find(|spacing| spacing.name() == text)
            .ok_or_else(|| "`fixed` or `poisson`".to_owned())
    }
}

impl fmt::Display for Spacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Times of arrivals in nanoseconds from the beginning, rising, below the end.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    spacing: Spacing,
    mean_gap_ns: f64,
    end_ns: u64,
    /// Arrivals so far.
    count: u64,
    /// The last one by chance. A float, so parts of nanoseconds are not lost at high rates.
    last_ns: f64,
    random: fastrand::Rng,
}

impl Arrivals {
    /// So many a second on average, for `duration_ns`. Equal seeds draw equal times.
    pub(super) fn new(spacing: Spacing, per_second: f64, duration_ns: u64, seed: u64) -> Self {
        Self {
            spacing,
            mean_gap_ns: 1e9 / per_second,
            end_ns: duration_ns,
            count: 0,
            last_ns: 0.0,
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl Iterator for Arrivals {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let at = match self.spacing {
            // Not added up: that would drift.
            Spacing::Fixed => self.count as f64 * self.mean_gap_ns,
            Spacing::Poisson => {
                self.last_ns -= (1.0 - self.random.f64()).ln() * self.mean_gap_ns;
                self.last_ns
            }
        };
        self.count += 1;
        ((at as u64) < self.end_ns).then_some(at as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn fixed_gaps_do_not_drift() {
        let all: Vec<u64> = Arrivals::new(Spacing::Fixed, 3.0, 100 * SECOND, 1).collect();
        assert_eq!(all.len(), 300);
        assert_eq!(all[..4], [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!(all[297], 99 * SECOND);
    }

    #[test]
    fn chance_has_the_rate_and_the_spread_of_a_poisson_process() {
        let all: Vec<u64> = Arrivals::new(Spacing::Poisson, 5_000.0, 20 * SECOND, 7).collect();
        // 100,000 on average, with a standard deviation of 316.
        assert!((98_700..101_300).contains(&all.len()), "{}", all.len());
        // Gaps longer than their mean: e^-1 of all; and those of three times the mean: e^-3.
        let longer = |times: u64| {
            let count = all.windows(2).filter(|pair| pair[1] - pair[0] > times * 200_000).count();
            count as f64 / all.len() as f64
        };
        assert!((longer(1) - 0.3679).abs() < 0.01, "{}", longer(1));
        assert!((longer(3) - 0.0498).abs() < 0.005, "{}", longer(3));
        // Counts in intervals are as variable as they are large.
        let mut counts = vec![0.0_f64; 2_000];
        all.iter().for_each(|at| counts[(at / 10_000_000) as usize] += 1.0);
        let mean = counts.iter().sum::<f64>() / 2_000.0;
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / 1_999.0;
        assert!((0.85..1.15).contains(&(variance / mean)), "{variance} with a mean of {mean}");
    }

    #[test]
    fn seeds_decide() {
        let all = |seed| Arrivals::new(Spacing::Poisson, 1e3, SECOND, seed).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        assert_eq!("poisson".parse(), Ok(Spacing::Poisson));
        assert!("normal".parse::<Spacing>().is_err());
    }

    proptest! {
        #[test]
        fn times_rise_and_end(
            rate in 0.5_f64..1e5,
            duration in 0..SECOND,
            seed: u64,
            by_chance: bool,
        ) {
            let spacing = if by_chance { Spacing::Poisson } else { Spacing::Fixed };
            let all: Vec<u64> = Arrivals::new(spacing, rate, duration, seed).collect();
            prop_assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
            prop_assert!(all.last().is_none_or(|last| *last < duration));
            if !by_chance {
                let expected = (duration as f64 * rate / 1e9).ceil();
                prop_assert!(
                    (all.len() as f64 - expected).abs() <= 1.0,
                    "{} instead of {expected}",
                    all.len()
                );
            }
        }
    }
}
