//! Where the bytes of a body lie, and the walk over a range of them.

use std::iter::FusedIterator;
use std::ops::Range;

use crate::SLOT_BYTES;

/// Slot numbers in one slot of an index.
pub(crate) const INDEX_FANOUT: u32 = (SLOT_BYTES / size_of::<u32>()) as u32;
const INDEX_BITS: u32 = INDEX_FANOUT.trailing_zeros();

/// Where the slots of a body are.
///
/// `depth` 0: adjacent slots from `root` on. Otherwise `root` is a slot full of slot numbers
/// (little-endian `u32`): of data slots at depth 1, of index slots one less deep otherwise. Depth 1
/// reaches 1 MiB, 2 reaches 512 MiB, 3 reaches 256 GiB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) root: u32,
    pub(crate) depth: u8,
}

impl Layout {
    /// Depth of an index of `slots` data slots.
    pub(crate) fn depth_for(slots: u32) -> u8 {
        let mut depth = 1;
        while (u64::from(slots) - 1) >> (INDEX_BITS * depth) > 0 {
            depth += 1;
        }
        depth as u8
    }

    /// Slots that an index of `slots` data slots takes itself.
    pub(crate) fn index_slots(slots: u32) -> u32 {
        let mut count = 0;
        let mut below = slots;
        while count == 0 || below > 1 {
            below = below.div_ceil(INDEX_FANOUT);
            count += below;
        }
        count
    }

    /// The data slot that holds the body's bytes from `ordinal * SLOT_BYTES` on.
    #[inline]
    pub(crate) fn slot(self, arena: &[u8], ordinal: u32) -> u32 {
        if self.depth == 0 { self.root + ordinal } else { self.node(arena, ordinal, 0) }
    }

    /// The slot at `height` (0 = data, 1 = lowest index) above data slot `ordinal`.
    pub(crate) fn node(self, arena: &[u8], ordinal: u32, height: u8) -> u32 {
        let mut slot = self.root;
        for level in (height..self.depth).rev() {
            slot = read_index(
                arena,
                slot,
                ordinal >> (INDEX_BITS * u32::from(level)) & (INDEX_FANOUT - 1),
            );
        }
        slot
    }

    /// Writes into the index that data slot `ordinal` is `slot`; the nodes above it must be there.
    pub(crate) fn set_node(self, arena: &mut [u8], ordinal: u32, height: u8, slot: u32) {
        let above = self.node(arena, ordinal, height + 1);
        let place = ordinal >> (INDEX_BITS * u32::from(height)) & (INDEX_FANOUT - 1);
        let at = above as usize * SLOT_BYTES + place as usize * 4;
        arena[at..at + 4].copy_from_slice(&slot.to_le_bytes());
    }

    /// Data slots below one node at `height`.
    pub(crate) fn span(height: u8) -> u64 {
        1 << (INDEX_BITS * u32::from(height))
    }
}

#[inline]
fn read_index(arena: &[u8], slot: u32, place: u32) -> u32 {
    let at = slot as usize * SLOT_BYTES + place as usize * 4;
    let bytes = &arena[at..at + 4];
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The pieces of a range of a body, in order, none of them empty; adjacent slots come as one piece.
#[derive(Clone, Debug)]
pub struct Extents<'a> {
    arena: &'a [u8],
    layout: Layout,
    at: u64,
    end: u64,
}

impl<'a> Extents<'a> {
    pub(crate) fn new(arena: &'a [u8], layout: Layout, range: Range<u64>) -> Self {
        Extents { arena, layout, at: range.start, end: range.end }
    }

    /// Bytes not yet walked over.
    pub fn bytes_left(&self) -> u64 {
        self.end - self.at
    }
}

impl<'a> Iterator for Extents<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.at >= self.end {
            return None;
        }
        let ordinal = (self.at / SLOT_BYTES as u64) as u32;
        let offset = (self.at % SLOT_BYTES as u64) as usize;
        let first = self.layout.slot(self.arena, ordinal);
        let wanted = (self.end - self.at) as usize;
        let mut bytes = SLOT_BYTES - offset;
        if self.layout.depth == 0 {
            bytes = wanted;
        } else {
            let mut next = 1;
            while bytes < wanted && self.layout.slot(self.arena, ordinal + next) == first + next {
                bytes += SLOT_BYTES;
                next += 1;
            }
            bytes = bytes.min(wanted);
        }
        let start = first as usize * SLOT_BYTES + offset;
        self.at += bytes as u64;
        Some(&self.arena[start..start + bytes])
    }
}

impl FusedIterator for Extents<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_indexes() {
        for (slots, depth, index_slots) in [
            (1, 1, 1),
            (512, 1, 1),
            (513, 2, 3),
            (1024, 2, 3),
            (512 * 512, 2, 513),
            (512 * 512 + 1, 3, 516),
            (u32::MAX, 4, 8_388_608 + 16_384 + 32 + 1),
        ] {
            assert_eq!(Layout::depth_for(slots), depth, "{slots}");
            assert_eq!(Layout::index_slots(slots), index_slots, "{slots}");
        }
    }
}
