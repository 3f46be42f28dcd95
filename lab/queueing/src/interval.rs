//! What some independent runs say of the mean of all, and of one more run.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Mean and spread of independent figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Mean.
    pub mean: f64,
    /// Half of the width of the interval of 95 % confidence for the mean, by Student's t; infinite
    /// for a single figure.
    pub half_width: f64,
    /// Standard deviation of one figure.
    pub deviation: f64,
    /// How many figures.
    pub count: usize,
}

impl Interval {
    /// Mean and interval of these figures.
    pub fn of(figures: &[f64]) -> Self {
        let count = figures.len();
        let mean = figures.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let deviation =
            if count > 1 { (squares / (count - 1) as f64).sqrt() } else { f64::INFINITY };
        let half_width = quantile(0.975, count) * deviation / (count.max(1) as f64).sqrt();
        Self { mean, half_width, deviation, count }
    }

    /// The least mean that the figures allow.
    pub fn low(&self) -> f64 {
        self.mean - self.half_width
    }

    /// The upper end of the interval.
    pub fn high(&self) -> f64 {
        self.mean + self.half_width
    }

    /// How far from the mean one more figure of the same kind is with a probability of `confidence`
    /// at most.
    pub fn prediction(&self, confidence: f64) -> f64 {
        quantile(0.5 + confidence / 2.0, self.count)
            * self.deviation
            * (1.0 + 1.0 / self.count.max(1) as f64).sqrt()
    }
}

/// Student's t for so many figures.
fn quantile(probability: f64, count: usize) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, count.saturating_sub(1) as f64);
    distribution.map_or(f64::INFINITY, |distribution| distribution.inverse_cdf(probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's t for 4 degrees of freedom is 2.776 (97.5 %) and 4.604 (99.5 %) in any table.
    #[test]
    fn intervals_are_students() {
        let interval = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let deviation = 2.5f64.sqrt();
        assert_eq!((interval.mean, interval.count), (3.0, 5));
        assert!((interval.deviation - deviation).abs() < 1e-12);
        assert!((interval.half_width - 2.776 * deviation / 5f64.sqrt()).abs() < 1e-3);
        assert!((interval.prediction(0.99) - 4.604 * deviation * 1.2f64.sqrt()).abs() < 1e-3);
        assert!((interval.low() + interval.half_width - 3.0).abs() < 1e-12);
    }

    #[test]
    fn one_figure_says_nothing_of_the_spread() {
        let interval = Interval::of(&[4.0]);
        assert_eq!((interval.mean, interval.half_width), (4.0, f64::INFINITY));
        assert_eq!(Interval::of(&[2.0, 2.0]).half_width, 0.0);
        assert_eq!(Interval::of(&[]).mean, 0.0);
    }
}
