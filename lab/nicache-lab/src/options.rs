//! Settings of the commands.

pub(crate) mod study;

pub(crate) use nicache::Milliseconds;

/// A number of something per second, or the like.
///
/// # Errors
/// It is not a number from 0.001 to 10000000.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.001..=10_000_000.0).contains(rate));
    rate.ok_or_else(|| "a number from 0.001 to 10000000".to_owned())
}
