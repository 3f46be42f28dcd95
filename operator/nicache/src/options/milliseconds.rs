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
        let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
        let parse = |(unit, factor): (&str, u64)| {
            text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor)
        };
        let value = if text == "0" { Some(0) } else { units.into_iter().find_map(parse) };
        value.filter(|&value| value <= 3_600_000).map(Milliseconds).ok_or_else(|| {
            format!("`{text}` is not a time of up to an hour; write 0, 500ms, 1s or 2m")
        })
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0"),
            n if n.is_multiple_of(60_000) => write!(f, "{}m", n / 60_000),
            n if n.is_multiple_of(1000) => write!(f, "{}s", n / 1000),
            n => write!(f, "{n}ms"),
        }
    }
}
