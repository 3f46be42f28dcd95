//! How much of the memory an object takes.

use serde::Serialize;

/// What an entry is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Room {
    /// Its bytes, at least one.
    Bytes,
    /// Whole slots of so many bytes, at least one: a card's memory. Bos et al. 2009 have slots of
    /// 1600 bytes.
    Slots(u32),
    /// Every entry is charged one, so the budget is a number of objects.
    One,
}

impl Room {
    /// What an object of so many bytes takes.
    #[inline]
    pub fn of(self, bytes: u64) -> u64 {
        match self {
            Self::Bytes => bytes.max(1),
            Self::Slots(slot) => {
                bytes.div_ceil(u64::from(slot.max(1))).max(1) * u64::from(slot.max(1))
            }
            Self::One => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!([0, 1, 1600].map(|bytes| Room::Bytes.of(bytes)), [1, 1, 1600]);
        assert_eq!(
            [0, 1, 1600, 1601].map(|bytes| Room::Slots(1600).of(bytes)),
            [1600, 1600, 1600, 3200]
        );
        assert_eq!([0, 9999].map(|bytes| Room::One.of(bytes)), [1, 1]);
        assert_eq!(Room::Slots(0).of(3), 3);
    }
}
