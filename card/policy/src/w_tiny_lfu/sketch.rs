//! How often each key was asked for lately, in 4 bits per counter: a count-min sketch that forgets.
//!
//! Read first: Cormode and Muthukrishnan 2005, "An improved data stream summary: the count-min
//! sketch and its applications"; Einziger et al. 2017 (see the parent), section 3.
//!
//! A key has one counter in each of 4 rows; its frequency is the least of them. Only those that are
//! least are raised (*minimal increment*), so keys that share a counter disturb each other
//! little. The 4 counters lie in one block of 64 bytes: a look costs one cache line.

use crate::Key;

/// The highest frequency that a counter holds.
pub(super) const FREQUENCY_MAX: u8 = 15;

const ROWS: usize = 4;
const COUNTERS_PER_WORD: u64 = 16;
/// Of one row in one block: 2 of its 8 words.
const COUNTERS_PER_ROW: u64 = 32;
const COUNTERS_PER_BLOCK: u64 = COUNTERS_PER_ROW * ROWS as u64;

#[derive(Debug)]
pub(super) struct Sketch {
    blocks: Box<[Block]>,
    /// Requests counted, halved with the counters.
    requests: u64,
}

#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Block([u64; 8]);

/// A counter: a word of a block, and the lowest bit in it.
#[derive(Clone, Copy)]
struct Counter {
    word: usize,
    shift: u32,
}

impl Sketch {
    /// At least `counters` of them (at most 2^40), in a power of two of blocks: half a byte each.
    pub(super) fn new(counters: u64) -> Self {
        let blocks = counters.min(1 << 40).div_ceil(COUNTERS_PER_BLOCK).next_power_of_two();
        Self { blocks: vec![Block::default(); blocks as usize].into_boxed_slice(), requests: 0 }
    }

    /// Counts a request for `key`; every `sample`th halves all counters (the paper's reset).
    #[inline]
    pub(super) fn count(&mut self, key: Key, sample: u64) {
        let hash = scatter(key);
        let at = self.block(hash);
        let block = &mut self.blocks[at];
        let frequency = block.frequency(hash);
        if frequency < FREQUENCY_MAX {
            for counter in counters(hash) {
                if block.get(counter) == frequency {
                    block.0[counter.word] += 1 << counter.shift;
                }
            }
        }
        self.requests += 1;
        if self.requests >= sample {
            self.halve();
        }
    }

    /// How often `key` was asked for lately; at most [`FREQUENCY_MAX`].
    #[inline]
    pub(super) fn frequency(&self, key: Key) -> u8 {
        let hash = scatter(key);
        self.blocks[self.block(hash)].frequency(hash)
    }

    fn block(&self, hash: u64) -> usize {
        (hash >> 20) as usize & (self.blocks.len() - 1)
    }

    fn halve(&mut self) {
        const LOW_THREE_BITS: u64 = 0x7777_7777_7777_7777;
        for word in self.blocks.iter_mut().flat_map(|block| &mut block.0) {
            *word = (*word >> 1) & LOW_THREE_BITS;
        }
        self.requests /= 2;
    }
}

impl Block {
    #[inline]
    fn get(&self, counter: Counter) -> u8 {
        (self.0[counter.word] >> counter.shift) as u8 & FREQUENCY_MAX
    }

    #[inline]
    fn frequency(&self, hash: u64) -> u8 {
        counters(hash).map(|counter| self.get(counter)).into_iter().min().unwrap_or(0)
    }
}

/// 5 bits of the hash for each row.
#[inline]
fn counters(hash: u64) -> [Counter; ROWS] {
    std::array::from_fn(|row| {
        let at = (hash >> (5 * row)) % COUNTERS_PER_ROW;
        let word = row * 2 + (at / COUNTERS_PER_WORD) as usize;
        Counter { word, shift: (at % COUNTERS_PER_WORD) as u32 * 4 }
    })
}

/// The last step of MurmurHash3's 64 bits: other than the one of [`Table`](crate::Table), so
/// keys that collide there do not here.
#[inline]
fn scatter(key: Key) -> u64 {
    let mut hash = key.0;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Of two blocks, with many keys: collisions only ever raise a frequency.
        #[test]
        fn never_counts_too_little(
            keys in prop::collection::vec(0u64..200, 0..600),
            sample in 1u64..700,
        ) {
            let mut sketch = Sketch::new(200);
            let mut exact: HashMap<u64, u8> = HashMap::new();
            let mut requests = 0;
            for key in keys {
                sketch.count(Key(key), sample);
                let count = exact.entry(key).or_default();
                *count = (*count + 1).min(FREQUENCY_MAX);
                requests += 1;
                if requests >= sample {
                    exact.values_mut().for_each(|count| *count /= 2);
                    requests /= 2;
                }
                for (key, count) in &exact {
                    prop_assert!(sketch.frequency(Key(*key)) >= *count);
                }
            }
        }

        /// With a block for each few keys there are no collisions in all rows.
        #[test]
        fn counts_exactly_with_room(keys in prop::collection::vec(0u64..16, 0..200)) {
            let mut sketch = Sketch::new(1 << 16);
            let mut exact: HashMap<u64, u8> = HashMap::new();
            for key in keys {
                sketch.count(Key(key), 1000);
                let count = exact.entry(key).or_default();
                *count = (*count + 1).min(FREQUENCY_MAX);
            }
            for key in 0..16 {
                prop_assert_eq!(sketch.frequency(Key(key)), exact.get(&key).copied().unwrap_or(0));
            }
        }

        /// Counters share words, but no bits.
        #[test]
        fn halves_each_frequency(keys in prop::collection::vec(0u64..64, 0..600)) {
            let mut sketch = Sketch::new(128);
            keys.iter().for_each(|&key| sketch.count(Key(key), u64::MAX));
            let before: Vec<u8> = (0..64).map(|key| sketch.frequency(Key(key))).collect();
            sketch.halve();
            for (key, frequency) in (0..).zip(before) {
                prop_assert_eq!(sketch.frequency(Key(key)), frequency / 2);
            }
        }
    }

    /// 16 counters per key, as the policy has, and each key asked for 4 times: few of the
    /// frequencies are too high.
    #[test]
    fn errors_are_rare_at_the_default_size() {
        let mut sketch = Sketch::new(16 * 8192);
        for _ in 0..4 {
            (0..8192).for_each(|key| sketch.count(Key(key), u64::MAX));
        }
        let wrong = (0..8192).filter(|&key| sketch.frequency(Key(key)) != 4).count();
        assert!(wrong < 800, "{wrong} of 8192");
        let unknown = (8192..16384).filter(|&key| sketch.frequency(Key(key)) != 0).count();
        assert!(unknown < 1640, "{unknown} of 8192");
    }
}
