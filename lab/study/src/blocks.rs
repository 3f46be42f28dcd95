//! Objects as blocks of 4 KB, as a host manages a card's memory (Kim et al. 2002, section 4).

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::access::{Access, TooManyObjects};

/// Bytes of a block.
pub const BLOCK_BYTES: u64 = 4096;

/// Numbers for blocks, in the order of their first accesses.
#[derive(Debug, Default)]
pub(crate) struct BlockNumbers {
    numbers: HashMap<(u32, u64), Block, FixedState>,
    /// How often each object has changed.
    changes: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    number: u32,
    /// Changes of its object when it was last accessed.
    changes: u32,
}

impl BlockNumbers {
    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.numbers.len() as u32
    }

    /// The accesses of an object's bytes from `offset` on. One without bytes is of the first block.
    /// If the object has changed, each block has, at its next access.
    ///
    /// # Errors
    /// [`TooManyObjects`]
    pub(crate) fn push(
        &mut self,
        access: Access,
        offset: u64,
        accesses: &mut Vec<Access>,
    ) -> Result<(), TooManyObjects> {
        let object = access.object() as usize;
        if object >= self.changes.len() {
            self.changes.resize(object + 1, 0);
        }
        self.changes[object] += u32::from(access.is_changed());
        let changes = self.changes[object];
        let end = offset.saturating_add(access.bytes());
        let (first, last) = (offset / BLOCK_BYTES, end.saturating_sub(1).max(offset) / BLOCK_BYTES);
        for index in first..=last {
            let next = self.numbers.len() as u32;
            if next >= Access::OBJECTS_MAX {
                return Err(TooManyObjects);
            }
            let new = Block { number: next, changes };
            let block = self.numbers.entry((access.object(), index)).or_insert(new);
            let changed = std::mem::replace(&mut block.changes, changes) != changes;
            let from = offset.max(index * BLOCK_BYTES);
            let bytes = end.min((index + 1).saturating_mul(BLOCK_BYTES)).saturating_sub(from);
            accesses.push(
                Access::new(block.number, bytes)
                    .changed(changed)
                    .without_fill(!access.fills())
                    .ending(index == last),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(requests: &[(u32, u64, u64, bool)]) -> Vec<(u32, u64, bool, bool)> {
        let (mut blocks, mut accesses) = (BlockNumbers::default(), Vec::new());
        for &(object, offset, bytes, changed) in requests {
            blocks
                .push(
                    Access::new(object, bytes).changed(changed).ending(true),
                    offset,
                    &mut accesses,
                )
                .unwrap();
        }
        accesses.iter().map(|a| (a.object(), a.bytes(), a.is_changed(), a.ends_request())).collect()
    }

    #[test]
    fn requests_are_cut_at_block_bounds() {
        let expected = [
            (0, 4096, false, false),
            (1, 904, false, true),
            (1, 96, false, false),
            (2, 4, false, true),
            (3, 0, false, true),
        ];
        assert_eq!(of(&[(0, 0, 5000, false), (0, 8096, 100, false), (1, 0, 0, false)]), expected);
        assert_eq!(of(&[(0, 4096, 4096, false)]), [(0, 4096, false, true)]);
    }

    #[test]
    fn a_change_reaches_each_block_when_it_is_next_accessed() {
        let whole = (0, 0, 8192, false);
        let got = of(&[whole, (0, 0, 10, true), whole, whole]);
        let changed: Vec<bool> = got.iter().map(|access| access.2).collect();
        assert_eq!(changed, [false, false, true, false, true, false, false]);
    }
}
