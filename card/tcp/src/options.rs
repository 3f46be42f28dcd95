//! TCP options: the kinds the card understands, walked without allocation.
//!
//! RFC 9293 section 3.1 (end, no-operation, maximum segment size), RFC 7323 (window scale,
//! timestamps), RFC 2018 (SACK). Options of other kinds are reported but not interpreted.

use crate::Seq;

/// Largest shift of a window; a larger one that is received counts as this (RFC 7323 section 2.3).
pub const WINDOW_SCALE_MAX: u8 = 14;
/// Most SACK blocks that fit in a header: 40 bytes of options (RFC 2018 section 3).
pub const SACK_BLOCKS_MAX: usize = 4;

pub(crate) const KIND_END: u8 = 0;
pub(crate) const KIND_NOP: u8 = 1;
pub(crate) const KIND_MSS: u8 = 2;
pub(crate) const KIND_WINDOW_SCALE: u8 = 3;
pub(crate) const KIND_SACK_PERMITTED: u8 = 4;
pub(crate) const KIND_SACK: u8 = 5;
pub(crate) const KIND_TIMESTAMPS: u8 = 8;

/// The timestamps option (RFC 7323 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub val: u32,
    /// TSecr: the value echoed from the other side; meaningful only with ACK set.
    pub ecr: u32,
}

/// Up to four SACK blocks, in the order they stand in the header (RFC 2018 section 3: the first
/// one is the most recent, or a D-SACK by RFC 2883).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SackBlocks {
    blocks: [(Seq, Seq); SACK_BLOCKS_MAX],
    len: u8,
}

impl SackBlocks {
    /// No blocks.
    pub const EMPTY: Self = Self { blocks: [(Seq(0), Seq(0)); SACK_BLOCKS_MAX], len: 0 };

    /// Adds a block `[left, right)`; returns false when there is no room.
    pub fn push(&mut self, left: Seq, right: Seq) -> bool {
        let Some(place) = self.blocks.get_mut(usize::from(self.len)) else {
            return false;
        };
        *place = (left, right);
        self.len += 1;
        true
    }

    /// The blocks as `(left, right)` pairs, right exclusive.
    #[must_use]
    pub fn as_slice(&self) -> &[(Seq, Seq)] {
        &self.blocks[..usize::from(self.len).min(SACK_BLOCKS_MAX)]
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// There is no block.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Options that have a meaning only in a segment with SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynOptions {
    /// Largest payload the sender of the option takes, options not deducted (RFC 9293 section
    /// 3.7.1).
    pub mss: Option<u16>,
    /// Shift of the windows its sender will announce, at most [`WINDOW_SCALE_MAX`].
    pub window_scale: Option<u8>,
    /// SACK may be sent to the sender of this option.
    pub sack_permitted: bool,
    /// Timestamps, offered or agreed.
    pub timestamps: Option<Timestamps>,
    /// ECN, offered or agreed: no option, but control bits that have this meaning only here (RFC
    /// 3168 section 6.1.1).
    pub ecn: bool,
}

/// One option and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawOption {
    pub kind: u8,
    /// Offset of the kind byte in the option bytes.
    pub at: usize,
    /// Whole length, kind and length bytes included.
    pub len: usize,
}

/// Walks options that have a length. Ends at the end-of-list option, at the end of the bytes, or
/// with an `Err` at the first option that does not fit.
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Walk { bytes, at: 0 }
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<RawOption, ()>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let kind = *self.bytes.get(self.at)?;
            match kind {
                KIND_END => return None,
                KIND_NOP => self.at += 1,
                _ => {
                    let at = self.at;
                    let len = self.bytes.get(at + 1).map_or(0, |len| usize::from(*len));
                    if len < 2 || at + len > self.bytes.len() {
                        self.at = self.bytes.len();
                        return Some(Err(()));
                    }
                    self.at += len;
                    return Some(Ok(RawOption { kind, at, len }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_skips_padding_and_stops_at_the_end() {
        let bytes = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 99, 1];
        let found: Vec<_> = Walk::new(&bytes).collect();
        assert_eq!(found, [Ok(RawOption { kind: 8, at: 2, len: 10 })]);
    }

    #[test]
    fn walk_reports_an_option_that_does_not_fit() {
        for bytes in [&[2u8, 4, 1][..], &[2, 0, 1, 1], &[2, 1, 1, 1], &[2]] {
            assert_eq!(Walk::new(bytes).collect::<Vec<_>>(), [Err(())]);
        }
    }

    #[test]
    fn five_blocks_do_not_fit() {
        let mut blocks = SackBlocks::EMPTY;
        for i in 0..4 {
            assert!(blocks.push(Seq(i), Seq(i + 1)));
        }
        assert!(!blocks.push(Seq(9), Seq(10)));
        assert_eq!(blocks.len(), 4);
    }
}
