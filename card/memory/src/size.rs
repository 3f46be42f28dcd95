//! Numbers of bytes as people write them.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A number of bytes, written `4096`, `512K`, `64M` or `2G` (powers of 1024).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A text that is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid size `{0}`: use 512K, 64M or 2G")]
pub struct SizeError(String);

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let trimmed = text.trim_end_matches(['B', 'b']).trim_end_matches('i');
        let (digits, shift) = match trimmed.char_indices().last() {
            Some((at, 'K' | 'k')) => (&trimmed[..at], 10),
            Some((at, 'M' | 'm')) => (&trimmed[..at], 20),
            Some((at, 'G' | 'g')) => (&trimmed[..at], 30),
            _ => (trimmed, 0),
        };
        let value: Option<u64> = digits.trim().parse().ok();
        value
            .and_then(|value| value.checked_mul(1 << shift))
            .map(Size)
            .ok_or_else(|| SizeError(text.to_owned()))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n > 0 && n.trailing_zeros() >= 30 => write!(f, "{}G", n >> 30),
            n if n > 0 && n.trailing_zeros() >= 20 => write!(f, "{}M", n >> 20),
            n if n > 0 && n.trailing_zeros() >= 10 => write!(f, "{}K", n >> 10),
            n => write!(f, "{n}"),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// Reads a size written as text, such as "64M", or as a number of bytes.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;

        impl Visitor<'_> for TextOrNumber {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64M\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("4096", 4096),
            ("512K", 512 << 10),
            ("64M", 64 << 20),
            ("2GiB", 2 << 30),
            ("1MB", 1 << 20),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "-1", "1T", "99999999999G", "64 M B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        assert_eq!(Size(3 << 20).to_string(), "3M");
    }
}
