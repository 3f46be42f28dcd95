//! What the cache has of a file, for operators: nothing is read, moved or counted as used.

use std::fs::File;
use std::io;

use nicache_filemap::extents;
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::FileId;

use crate::block_state::{BlockState, Place};
use crate::cache::Cache;
use crate::places::Lbn;

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that are looked at under one lock.
const WINDOW_BLOCKS: u64 = 1 << 16;
/// Blocks with bytes that are looked at: 16 GiB of a file.
const BLOCKS_MAX: u64 = 1 << 22;
/// Windows that are looked at, with bytes or without: 1 TiB of a file.
const WINDOWS_MAX: u64 = 1 << 12;

/// Neighbouring blocks in the same state; on the device they are neighbours, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// The first block of the file.
    pub first: u64,
    /// How many blocks are in the range.
    pub blocks: u64,
    /// Where they are.
    pub state: BlockState,
    /// The first one's block of the device, if the file system has given it one with bytes.
    pub lbn: Option<u64>,
}

/// What the cache has of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FileLook {
    /// In order, without gaps.
    pub ranges: Vec<BlockRange>,
    /// Blocks at the end of a large file that were not looked at.
    pub blocks_left: u64,
    /// A write of the file failed at the logical unit, and no COMMIT has told of it yet.
    pub has_failed: bool,
}

impl FileLook {
    fn push(&mut self, next: BlockRange) {
        if let Some(last) = self.ranges.last_mut()
            && last.state == next.state
            && last.lbn.map(|lbn| lbn + last.blocks) == next.lbn
        {
            last.blocks += next.blocks;
            return;
        }
        self.ranges.push(next);
    }
}

impl Cache {
    /// What is here of a file with `size` bytes, as it is at the moment; a file that changes
    /// meanwhile may be seen in parts.
    pub fn look(&self, file: &File, id: FileId, size: u64) -> io::Result<FileLook> {
        let blocks = size.div_ceil(BLOCK);
        let mut look = FileLook { has_failed: self.index().has_failed(id), ..FileLook::default() };
        let (mut at, mut windows, mut seen) = (0, 0, 0);
        while at < blocks && windows < WINDOWS_MAX && seen < BLOCKS_MAX {
            let count = WINDOW_BLOCKS.min(blocks - at);
            let mut places = vec![Place::Nowhere; count as usize];
            for extent in extents(file, at * BLOCK, count * BLOCK, false)? {
                let first = extent.offset / BLOCK;
                let end = (first + extent.bytes.div_ceil(BLOCK)).min(at + count);
                for block in first.max(at)..end {
                    let place = |start: u64| Place::At(Lbn(start / BLOCK + block - first));
                    places[(block - at) as usize] =
                        extent.device_offset.map_or(Place::Reserved, place);
                }
            }
            let before = look.ranges.len();
            let index = self.index();
            for (block, place) in (at..).zip(places) {
                let state = index.state(id, block, place);
                let lbn = if let Place::At(lbn) = place { Some(lbn.0) } else { None };
                look.push(BlockRange { first: block, blocks: 1, state, lbn });
            }
            drop(index);
            let is_hole = look.ranges.len() <= before.max(1)
                && look.ranges.last().is_some_and(|last| last.state == BlockState::Hole);
            (at, windows, seen) = (at + count, windows + 1, seen + if is_hole { 0 } else { count });
        }
        look.blocks_left = blocks - at;
        Ok(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_in_one_state_are_one_range() {
        let mut look = FileLook::default();
        let mut push = |first, state, lbn| look.push(BlockRange { first, blocks: 1, state, lbn });
        push(0, BlockState::ByBlock, Some(7));
        push(1, BlockState::ByBlock, Some(8));
        push(2, BlockState::ByBlock, Some(20));
        push(3, BlockState::Hole, None);
        push(4, BlockState::Hole, None);
        let found: Vec<_> =
            look.ranges.iter().map(|range| (range.first, range.blocks, range.lbn)).collect();
        assert_eq!(found, [(0, 2, Some(7)), (2, 1, Some(20)), (3, 2, None)]);
    }
}
