//! How payload gets from a receive to a send.

use std::fmt;
use std::str::FromStr;

/// How payload gets from a receive to a send: by way of main memory, of the card's cache, or of
/// both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// To main memory and back: payload crosses the bus twice, and the card keeps nothing.
    #[default]
    Copy,
    /// To main memory, and it stays on the card: it crosses once, and twice if the card has lost it
    /// (section 3 of the paper).
    Pcache,
    /// It stays on the card alone: it does not cross, and what the card loses is dropped (section
    /// 4.2).
    Direct,
    /// It stays on the card; what the card is about to lose, the host fetches, so nothing is
    /// dropped.
    Spill,
    /// Direct, and by way of main memory while the card is under pressure; nothing is dropped.
    Adaptive,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Copy, Self::Pcache, Self::Direct, Self::Spill, Self::Adaptive];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copy",
            Self::Pcache => "pcache",
            Self::Direct => "direct",
            Self::Spill => "spill",
            Self::Adaptive => "adaptive",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let odd = || format!("`{text}` is not a mode: copy, pcache, direct, spill or adaptive");
        Self::ALL.into_iter().find(|mode| mode.to_string() == text).ok_or_else(odd)
    }
}

/// When an adaptive forwarder copies: from three quarters of the entries that only the card has the
/// bytes of, until there is only a quarter of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pressure {
    is_high: bool,
}

impl Pressure {
    /// So many of so many entries cannot be spared. True: copy.
    pub fn look(&mut self, precious: u32, entries: u32) -> bool {
        let (precious, entries) = (u64::from(precious), u64::from(entries));
        if 4 * precious >= 3 * entries {
            self.is_high = true;
        } else if 4 * precious <= entries {
            self.is_high = false;
        }
        self.is_high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_and_falls_at_different_places() {
        let mut pressure = Pressure::default();
        let seen: Vec<bool> =
            [0, 74, 75, 50, 26, 25, 74, 80, 0].map(|precious| pressure.look(precious, 100)).into();
        assert_eq!(seen, [false, false, true, true, true, false, false, true, false]);
    }
}
