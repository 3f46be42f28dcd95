//! The distribution of response times.

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::time::Time;

/// The distribution of response times, in ns; percentiles to three figures, the rest exact.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResponseTimes {
    /// Mean.
    pub mean_ns: f64,
    /// The mean in cycles of the host's clock, the paper's simulator ticks.
    pub mean_ticks: f64,
    /// Least.
    pub min_ns: f64,
    /// Half are shorter.
    pub p50_ns: f64,
    /// 90 % are shorter.
    pub p90_ns: f64,
    /// 99 % are shorter.
    pub p99_ns: f64,
    /// 99.9 % are shorter.
    pub p999_ns: f64,
    /// Most.
    pub max_ns: f64,
}

/// Response times as they come.
#[derive(Debug)]
pub(crate) struct Times {
    histogram_ps: Histogram<u64>,
    sum_ps: u128,
    min: Time,
    max: Time,
}

impl Times {
    pub(crate) fn new() -> Self {
        let histogram_ps = Histogram::new(3).expect("three figures are allowed");
        Self { histogram_ps, sum_ps: 0, min: Time::MAX, max: Time::ZERO }
    }

    #[inline]
    pub(crate) fn record(&mut self, time: Time) {
        // The histogram grows as it must; what it cannot hold (more than 106 days) counts as its
        // largest.
        if self.histogram_ps.record(time.0).is_err() {
            self.histogram_ps.saturating_record(time.0);
        }
        self.sum_ps += u128::from(time.0);
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    pub(crate) fn count(&self) -> u64 {
        self.histogram_ps.len()
    }

    /// All 0 if there are none. A tick is so many ps.
    pub(crate) fn summary(&self, tick_ps: f64) -> ResponseTimes {
        let mean_ps = self.sum_ps as f64 / self.count().max(1) as f64;
        let quantile_ns = |quantile| self.histogram_ps.value_at_quantile(quantile) as f64 / 1e3;
        ResponseTimes {
            mean_ns: mean_ps / 1e3,
            mean_ticks: mean_ps / tick_ps,
            min_ns: self.min.min(self.max).nanoseconds(),
            p50_ns: quantile_ns(0.5),
            p90_ns: quantile_ns(0.9),
            p99_ns: quantile_ns(0.99),
            p999_ns: quantile_ns(0.999),
            max_ns: self.max.nanoseconds(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_times(
            mut times in prop::collection::vec(0u64..1 << 45, 1..300),
        ) {
            let mut recorded = Times::new();
            times.iter().for_each(|&time| recorded.record(Time(time)));
            let summary = recorded.summary(1000.0);
            times.sort_unstable();
            let exact_ns = |quantile: f64| {
                times[(quantile * times.len() as f64).ceil() as usize - 1] as f64 / 1e3
            };
            let pairs = [
                (summary.p50_ns, 0.5),
                (summary.p90_ns, 0.9),
                (summary.p99_ns, 0.99),
                (summary.p999_ns, 0.999),
            ];
            for (ours, quantile) in pairs {
                prop_assert!(
                    (ours - exact_ns(quantile)).abs() <= 1e-3 * exact_ns(quantile) + 1e-3,
                    "{quantile}"
                );
            }
            let mean = times.iter().sum::<u64>() as f64 / times.len() as f64 / 1e3;
            prop_assert!((summary.mean_ns - mean).abs() <= 1e-9 * (1.0 + mean));
            prop_assert_eq!(summary.mean_ticks, summary.mean_ns);
            prop_assert_eq!(summary.min_ns, times[0] as f64 / 1e3);
            prop_assert_eq!(summary.max_ns, times[times.len() - 1] as f64 / 1e3);
        }
    }

    #[test]
    fn of_nothing_all_is_0() {
        let summary = Times::new().summary(1.0);
        assert_eq!(
            (summary.mean_ns, summary.min_ns, summary.p50_ns, summary.max_ns),
            (0.0, 0.0, 0.0, 0.0)
        );
    }
}
