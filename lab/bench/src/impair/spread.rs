//! What is said of many transfers in a few numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Median and quartiles, by the nearest rank but for the median of an even number, which is the
/// mean of the middle two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// A quarter is not more than this.
    pub low: f64,
    /// The middle one.
    pub median: f64,
    /// A quarter is not less than this.
    pub high: f64,
}

impl Spread {
    /// Figures of any number of measurements; all zero for none.
    pub fn of(values: &[f64]) -> Self {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        let Some(last) = values.len().checked_sub(1) else {
            return Self::default();
        };
        let median = (values[last / 2] + values[last.div_ceil(2)]) / 2.0;
        Self { low: values[last / 4], median, high: values[last - last / 4] }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = usize::from(self.median < 100.0) + usize::from(self.median < 10.0);
        write!(f, "{:.places$} ({:.places$}-{:.places$})", self.median, self.low, self.high)
    }
}

/// Geometric mean of the ratios of pairs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ShareMean {
    /// The mean.
    pub share: f64,
    /// Least that the mean may be with 95 %, if pairs are independent.
    pub low: f64,
    /// Most that the mean may be with 95 %, if pairs are independent.
    pub high: f64,
}

impl ShareMean {
    /// The mean ratio of `ours` to `theirs`, pair by pair; `None` without pairs.
    pub fn of_pairs(ours: &[f64], theirs: &[f64]) -> Option<Self> {
        let logs: Vec<f64> =
            ours.iter().zip(theirs).map(|(ours, theirs)| (ours / theirs).ln()).collect();
        if logs.is_empty() {
            return None;
        }
        let count = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let squares = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0).max(1.0) / count).sqrt() * t_95(logs.len() - 1);
        Some(Self { share: mean.exp(), low: (mean - error).exp(), high: (mean + error).exp() })
    }
}

impl fmt::Display for ShareMean {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}-{:.2})", self.share, self.low, self.high)
    }
}

/// Student's t for 95 % on both sides, within 2 % from three degrees of freedom on.
fn t_95(freedom: usize) -> f64 {
    match freedom {
        0 => 0.0,
        1 => 12.71,
        2 => 4.30,
        n => 1.96 + 2.4 / n as f64 + 3.6 / (n as f64).powi(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles() {
        assert_eq!(
            Spread::of(&[5.0, 1.0, 2.0, 4.0, 3.0]),
            Spread { low: 2.0, median: 3.0, high: 4.0 }
        );
        assert_eq!(Spread::of(&[1.0, 3.0]).median, 2.0);
        assert_eq!(Spread::of(&[]), Spread::default());
        assert_eq!(Spread::of(&[12.34]).to_string(), "12.3 (12.3-12.3)");
    }

    #[test]
    fn students_t() {
        // Tables: 3.182, 2.571, 2.228, 2.042 for 3, 5, 10 and 30.
        for (freedom, t) in [(3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042)] {
            assert!((t_95(freedom) / t - 1.0).abs() < 0.02, "{freedom}");
        }
    }

    #[test]
    fn pairs_that_agree_leave_no_doubt() {
        let share = ShareMean::of_pairs(&[2.0, 20.0, 200.0], &[1.0, 10.0, 100.0]).unwrap();
        assert!((share.share - 2.0).abs() < 1e-9 && share.high - share.low < 1e-9);
        let share = ShareMean::of_pairs(&[1.0, 4.0], &[2.0, 2.0]).unwrap();
        assert!((share.share - 1.0).abs() < 1e-9 && share.low < 0.1 && share.high > 10.0);
        assert!(ShareMean::of_pairs(&[], &[]).is_none());
    }
}
