//! Where a file's blocks are on the device: runs, as the file system or a remapping told them.
//!
//! Only blocks with true bytes are here. ext4 does not move a block that is overwritten, so a place
//! stays right until the file is cut.

use std::collections::BTreeMap;

/// A block of the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Lbn(pub(crate) u64);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Run {
    lbn: u64,
    blocks: u64,
}

/// The known places of one file's blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    runs: BTreeMap<u64, Run>,
}

impl Places {
    /// Where a block is, and how many after it are right behind it, itself included.
    pub(crate) fn find(&self, block: u64) -> Option<(Lbn, u64)> {
        let (start, run) = self.runs.range(..=block).next_back()?;
        let at = block - start;
        (at < run.blocks).then(|| (Lbn(run.lbn + at), run.blocks - at))
    }

    /// `blocks` blocks from `block` on are at `lbn` and behind it, whatever was known of them
    /// before.
    pub(crate) fn insert(&mut self, block: u64, lbn: Lbn, blocks: u64) {
        if blocks == 0
            || self.find(block).is_some_and(|(known, behind)| known == lbn && behind >= blocks)
        {
            return;
        }
        self.remove(block, blocks);
        let (mut start, mut run) = (block, Run { lbn: lbn.0, blocks });
        if let Some((before, left)) =
            self.runs.range(..block).next_back().map(|(at, run)| (*at, *run))
            && before + left.blocks == block
            && left.lbn + left.blocks == run.lbn
        {
            (start, run) = (before, Run { lbn: left.lbn, blocks: left.blocks + blocks });
        }
        if let Some(right) = self.runs.get(&(block + blocks)).copied()
            && right.lbn == lbn.0 + blocks
        {
            self.runs.remove(&(block + blocks));
            run.blocks += right.blocks;
        }
        self.runs.insert(start, run);
    }

    /// Nothing is known of `blocks` blocks from `block` on.
    pub(crate) fn remove(&mut self, block: u64, blocks: u64) {
        let end = block.saturating_add(blocks);
        // From the last run that begins before the end, back to the one that reaches into the
        // range.
        while let Some((start, run)) =
            self.runs.range(..end).next_back().map(|(at, run)| (*at, *run))
        {
            let run_end = start + run.blocks;
            if run_end <= block {
                break;
            }
            self.runs.remove(&start);
            if run_end > end {
                self.runs.insert(end, Run { lbn: run.lbn + (end - start), blocks: run_end - end });
            }
            if start < block {
                self.runs.insert(start, Run { lbn: run.lbn, blocks: block - start });
                break;
            }
        }
    }

    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Against a list of blocks.
        #[test]
        fn runs_are_what_their_blocks_are(steps: Vec<(bool, u8, u8, u8)>) {
            let mut places = Places::default();
            let mut model = [None; 256];
            for (is_insert, block, lbn, blocks) in steps {
                let blocks = u64::from(blocks % 20);
                let covered = (0..blocks).filter(|i| u64::from(block) + i < 256);
                if is_insert {
                    let blocks = covered.clone().count() as u64;
                    places.insert(u64::from(block), Lbn(u64::from(lbn)), blocks);
                } else {
                    places.remove(u64::from(block), blocks);
                }
                for i in covered {
                    model[usize::from(block) + i as usize] =
                        is_insert.then_some(u64::from(lbn) + i);
                }
                for (block, lbn) in model.iter().enumerate() {
                    let found = places.find(block as u64);
                    proptest::prop_assert_eq!(found.map(|(lbn, _)| lbn.0), *lbn);
                    if let Some((lbn, behind)) = found {
                        for i in 0..behind {
                            proptest::prop_assert_eq!(model[block + i as usize], Some(lbn.0 + i));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn neighbours_are_one_run() {
        let mut places = Places::default();
        for block in [0, 2, 1, 4, 3] {
            places.insert(block, Lbn(100 + block), 1);
        }
        assert_eq!((places.runs(), places.find(0)), (1, Some((Lbn(100), 5))));
    }
}
