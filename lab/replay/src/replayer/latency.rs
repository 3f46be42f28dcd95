//! How long things took.

use hdrhistogram::Histogram;
use serde::Serialize;

/// An hour; what takes longer counts as that.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Decimal digits that are right in every figure.
const DIGITS: u8 = 3;

/// A histogram of 270 KB.
#[derive(Clone, Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// Figures of it in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// How many were counted.
    pub count: u64,
    /// Mean of the latencies.
    pub mean_us: f64,
    /// Half of them took at most so long.
    pub p50_us: f64,
    /// 90 % of them.
    pub p90_us: f64,
    /// 99 % of them.
    pub p99_us: f64,
    /// 99.9 % of them.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        match Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS) {
            Ok(histogram) => Self(histogram),
            Err(_) => unreachable!("the bounds are constants that it takes"),
        }
    }
}

impl Latencies {
    /// Counts one.
    pub(super) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds those of another.
    pub(super) fn merge(&mut self, other: &Self) {
        // It fails only for values above the bounds, which are the same.
        let _ = self.0.add(&other.0);
    }

    /// The figures.
    pub(super) fn summary(&self) -> LatencySummary {
        if self.0.is_empty() {
            return LatencySummary::default();
        }
        let at = |share: f64| self.0.value_at_quantile(share) as f64 / 1e3;
        LatencySummary {
            count: self.0.len(),
            mean_us: self.0.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures() {
        let mut all = Latencies::default();
        assert_eq!(all.summary(), LatencySummary::default());
        for part in 0..2 {
            let mut one = Latencies::default();
            (1..=500u64).for_each(|n| one.record((n * 2 - part) * 1000));
            all.merge(&one);
        }
        all.record(u64::MAX);
        let got = all.summary();
        assert_eq!(got.count, 1001);
        for (value, right) in
            [(got.p50_us, 501.0), (got.p90_us, 901.0), (got.p99_us, 991.0), (got.max_us, 3.6e9)]
        {
            assert!((value / right - 1.0).abs() < 0.002, "{value} instead of {right}");
        }
    }
}
