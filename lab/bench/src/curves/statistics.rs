//! What is told of many events: how many in each window of time, and how long they took.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A minute; what takes longer counts as that.
const TIME_NS_MAX: u64 = 60_000_000_000;
/// Decimal digits that are right in every quantile.
const DIGITS: u8 = 3;

/// Mean and standard deviation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample (with n - 1); zero for less than two values.
    pub deviation: f64,
}

impl Spread {
    /// Mean and standard deviation of any number of values; all zero for none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        // Welford's method: no difference of large sums.
        let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
        for value in values {
            count += 1.0;
            let distance = value - mean;
            mean += distance / count;
            squares += distance * (value - mean);
        }
        let deviation = if count > 1.0 { f64::sqrt(squares / (count - 1.0)) } else { 0.0 };
        Self { mean, deviation }
    }
}

/// Events in windows of equal length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Windows {
    begin_ns: u64,
    window_ns: u64,
    counts: Vec<u32>,
}

impl Windows {
    /// Makes as many whole windows of `window_ns` as there are between two times.
    pub(super) fn new(begin_ns: u64, end_ns: u64, window_ns: u64) -> Self {
        let windows = end_ns.saturating_sub(begin_ns) / window_ns.max(1);
        Self { begin_ns, window_ns: window_ns.max(1), counts: vec![0; windows as usize] }
    }

    /// Counts an event; not one before the first or after the last window.
    pub(super) fn count(&mut self, at_ns: u64) {
        let Some(since) = at_ns.checked_sub(self.begin_ns) else { return };
        if let Some(count) = self.counts.get_mut((since / self.window_ns) as usize) {
            *count += 1;
        }
    }

    /// Events in each.
    pub(super) fn into_counts(self) -> Vec<u32> {
        self.counts
    }
}

/// How long things took. Half a megabyte.
#[derive(Debug, Clone)]
pub(super) struct Times(Histogram<u64>);

/// Figures of it, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeSummary {
    /// How many were measured.
    pub count: u64,
    /// Mean of the times.
    pub mean_us: f64,
    /// Half of them took at most so long.
    pub median_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// Standard deviation of the times.
    pub deviation_us: f64,
}

impl Default for Times {
    fn default() -> Self {
        match Histogram::new_with_bounds(1, TIME_NS_MAX, DIGITS) {
            Ok(histogram) => Self(histogram),
            Err(_) => unreachable!("the bounds are constants that it takes"),
        }
    }
}

impl Times {
    /// Takes one.
    pub(super) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// The figures.
    pub(super) fn summary(&self) -> TimeSummary {
        if self.0.is_empty() {
            return TimeSummary::default();
        }
        let at = |share: f64| self.0.value_at_quantile(share) as f64 / 1e3;
        TimeSummary {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            median_us: at(0.5),
            p99_us: at(0.99),
            deviation_us: self.0.stdev() / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mean_and_deviation() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        assert_eq!(spread.mean, 5.0);
        assert!((spread.deviation - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!(Spread::of([3.0]), Spread { mean: 3.0, deviation: 0.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn only_whole_windows_count() {
        let mut windows = Windows::new(100, 355, 50);
        for at in [0, 99, 100, 149, 150, 349, 350, 354, u64::MAX] {
            windows.count(at);
        }
        assert_eq!(windows.into_counts(), [2, 1, 0, 0, 1]);
        assert!(Windows::new(10, 5, 0).into_counts().is_empty());
    }

    #[test]
    fn times() {
        assert_eq!(Times::default().summary(), TimeSummary::default());
        let mut times = Times::default();
        (1..=1_000).for_each(|n| times.record(n * 1_000));
        let got = times.summary();
        let deviation = (0..1_000).map(|n| (f64::from(n) - 499.5).powi(2)).sum::<f64>() / 1_000.0;
        let pairs = [
            (got.mean_us, 500.5),
            (got.median_us, 500.0),
            (got.p99_us, 990.0),
            (got.deviation_us, deviation.sqrt()),
        ];
        for (value, right) in pairs {
            assert!((value / right - 1.0).abs() < 0.002, "{value} instead of {right}");
        }
        times.record(u64::MAX);
        assert_eq!(times.summary().count, 1_001);
    }

    proptest! {
        #[test]
        fn spread_is_that_of_the_textbook(values in prop::collection::vec(-1e6_f64..1e6, 2..60)) {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
                / (count - 1.0))
                .sqrt();
            let got = Spread::of(values);
            prop_assert!(
                (got.mean - mean).abs() < 1e-3 && (got.deviation - deviation).abs() < 1e-3
            );
        }
    }
}
