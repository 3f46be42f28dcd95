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
        let value = nicache_span::milliseconds(text).filter(|ms| (100..=SPAN_MAX).contains(ms));
        value.map(|ms| Self(Duration::from_millis(ms))).ok_or_else(|| {
            format!("`{text}` is not a time between 100ms and 24h; write 500ms, 90s, 2m or 2h")
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&nicache_span::text(self.0.as_millis() as u64))
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
