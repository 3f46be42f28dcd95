//! Times as they are written in settings.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time of up to an hour, written `0`, `500ms`, `1s` or `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Milliseconds(pub u64);

impl From<Milliseconds> for Duration {
    fn from(time: Milliseconds) -> Self {
        Self::from_millis(time.0)
    }
}

impl FromStr for Milliseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let value = match text {
            "0" => Some(0),
            // An hour is the longest, and is written in minutes.
            _ if text.ends_with('h') => None,
            _ => nicache_span::milliseconds(text),
        };
        value.filter(|&value| value <= 3_600_000).map(Milliseconds).ok_or_else(|| {
            format!("`{text}` is not a time of up to an hour; write 0, 500ms, 1s or 2m")
        })
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            3_600_000 => f.write_str("60m"),
            ms => f.write_str(&nicache_span::text(ms)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for text in ["0", "500ms", "1s", "2m", "60m"] {
            assert_eq!(text.parse::<Milliseconds>().unwrap().to_string(), text);
        }
        for text in ["", "1", "1h", "61m", "3600001ms", "-1s"] {
            assert!(text.parse::<Milliseconds>().is_err(), "{text}");
        }
    }
}
