//! Times that a client may take.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Milliseconds of the longest time.
const SPAN_MAX: u64 = 24 * 3_600_000;

/// A time between a tenth of a second and a day, written `500ms`, `90s`, `2m` or `2h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(pub(super) Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];
        let parse = |(unit, factor): (&str, u64)| {
            text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor)
        };
        let value =
            units.into_iter().find_map(parse).filter(|value| (100..=SPAN_MAX).contains(value));
        value.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| {
            format!("`{text}` is not a time between 100ms and 24h; write 500ms, 90s, 2m or 2h")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        let units = [("h", 3_600_000), ("m", 60_000), ("s", 1_000)];
        let (unit, factor) =
            units.into_iter().find(|(_, factor)| ms.is_multiple_of(*factor)).unwrap_or(("ms", 1));
        write!(f, "{}{unit}", ms / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_written() {
        for text in ["500ms", "90s", "2m", "2h", "24h"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["0", "99ms", "25h", "1", "h", "-1s", "1d"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
