//! What several tests share.

use nicache_queueing::Interval;

/// Independent figures agree with what is exact: their mean is within 99.9 % confidence, and that
/// says something.
#[track_caller]
pub(crate) fn assert_agrees(what: &str, figures: &[f64], exact: f64) {
    let interval = Interval::of(figures);
    // One more of so many would be within this; their mean is so much closer.
    let tolerance = interval.prediction(0.999) / (figures.len() as f64 + 1.0).sqrt();
    assert!(tolerance < 0.1 * exact, "{what}: ± {tolerance} says nothing of {exact}");
    let off = (interval.mean - exact).abs();
    assert!(off <= tolerance, "{what}: {} ± {tolerance}, not {exact}", interval.mean);
}
