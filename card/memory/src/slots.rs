//! Which slots are free: a bitmap with summaries above it.
//!
//! Level 0 has one bit per slot (1 = free); a bit of a higher level says that the word below it is
//! not zero. The next free slot after any place is found in one step per level: four levels reach
//! 16 M slots (32 GiB).

/// Free runs looked at before a body is scattered. Bounds the search in a fragmented memory; each
/// run costs one look-up and one bit count per 64 slots.
const RUN_PROBES: usize = 64;

#[derive(Debug)]
pub(crate) struct SlotMap {
    levels: Box<[Box<[u64]>]>,
    slots: u32,
    free: u32,
    /// Where the search for a run begins: behind the last one given (next fit), so large
    /// bodies do not probe the small holes at the start again and again.
    cursor: u32,
}

impl SlotMap {
    /// All `slots` free.
    pub(crate) fn new(slots: u32) -> Self {
        let mut levels = Vec::new();
        let mut bits = slots as usize;
        loop {
            let words = bits.div_ceil(64);
            let mut level = vec![u64::MAX; words];
            if !bits.is_multiple_of(64) {
                level[words - 1] = (1 << (bits % 64)) - 1;
            }
            levels.push(level.into_boxed_slice());
            if words <= 1 {
                break;
            }
            bits = words;
        }
        Self { levels: levels.into_boxed_slice(), slots, free: slots, cursor: 0 }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    /// Takes `count` (at least 1) adjacent slots and gives the first, if such a run is found soon.
    pub(crate) fn take_run(&mut self, count: u32) -> Option<u32> {
        let first = if count == 1 { self.next_free(0) } else { self.find_run(count) }?;
        self.take(first, count);
        if count > 1 {
            self.cursor = first + count;
        }
        Some(first)
    }

    /// Takes the first free run, at most `count` (at least 1) slots of it.
    pub(crate) fn take_some(&mut self, count: u32) -> Option<(u32, u32)> {
        let first = self.next_free(0)?;
        let count = self.run_length(first, count);
        self.take(first, count);
        Some((first, count))
    }

    /// Gives back `count` slots that were taken.
    pub(crate) fn give(&mut self, first: u32, count: u32) {
        for (word, mask) in masks(first, count) {
            debug_assert_eq!(self.levels[0][word] & mask, 0, "slot given back twice");
            let before = self.levels[0][word];
            self.levels[0][word] |= mask;
            if before == 0 {
                self.summarise_free(word);
            }
        }
        self.free += count;
    }

    fn take(&mut self, first: u32, count: u32) {
        for (word, mask) in masks(first, count) {
            debug_assert_eq!(self.levels[0][word] & mask, mask, "slot taken twice");
            self.levels[0][word] &= !mask;
            if self.levels[0][word] == 0 {
                self.summarise_taken(word);
            }
        }
        self.free -= count;
    }

    fn summarise_free(&mut self, mut word: usize) {
        for level in &mut self.levels[1..] {
            let before = level[word / 64];
            level[word / 64] |= 1 << (word % 64);
            if before != 0 {
                return;
            }
            word /= 64;
        }
    }

    fn summarise_taken(&mut self, mut word: usize) {
        for level in &mut self.levels[1..] {
            level[word / 64] &= !(1 << (word % 64));
            if level[word / 64] != 0 {
                return;
            }
            word /= 64;
        }
    }

    fn find_run(&self, count: u32) -> Option<u32> {
        if count > self.free {
            return None;
        }
        let mut from = self.cursor;
        let mut wrapped = false;
        for _ in 0..RUN_PROBES {
            let Some(first) = self.next_free(from) else {
                if wrapped {
                    return None;
                }
                wrapped = true;
                from = 0;
                continue;
            };
            let length = self.run_length(first, count);
            if length == count {
                return Some(first);
            }
            from = first + length;
        }
        None
    }

    fn next_free(&self, from: u32) -> Option<u32> {
        let mut from = from as usize;
        for (height, level) in self.levels.iter().enumerate() {
            let word = *level.get(from / 64)? & (u64::MAX << (from % 64));
            if word != 0 {
                let mut at = from / 64 * 64 + word.trailing_zeros() as usize;
                for lower in self.levels[..height].iter().rev() {
                    at = at * 64 + lower[at].trailing_zeros() as usize;
                }
                return Some(at as u32);
            }
            from = from / 64 + 1;
        }
        None
    }

    /// Length of the free run that begins at `first`, at most `limit`.
    fn run_length(&self, first: u32, limit: u32) -> u32 {
        let mut length = 0;
        while length < limit {
            let at = (first + length) as usize;
            let Some(word) = self.levels[0].get(at / 64) else {
                break;
            };
            let ones = (word >> (at % 64)).trailing_ones();
            length += ones;
            if ones == 0 || ones < 64 - (at as u32 % 64) {
                break;
            }
        }
        length.min(limit)
    }
}

/// The words, and the bits in them, that slots `first .. first + count` touch.
fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (first as usize, first as usize + count as usize);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let bits = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - bits)) << (at % 64);
        let word = at / 64;
        at += bits;
        Some((word, mask))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Run(u32),
        Some(u32),
        Give(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u32..200).prop_map(Step::Run),
            (1u32..200).prop_map(Step::Some),
            (0usize..1000).prop_map(Step::Give),
            (0usize..1000).prop_map(Step::Give),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_an_array_of_flags(
            slots in 1u32..10_000,
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut map = SlotMap::new(slots);
            let mut taken = vec![false; slots as usize];
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for step in steps {
                match step {
                    Step::Run(count) => {
                        let longest = taken
                            .chunk_by(|a, b| a == b)
                            .filter(|run| !run[0])
                            .map(<[bool]>::len)
                            .max();
                        match map.take_run(count) {
                            Some(first) => {
                                mark(&mut taken, first, count, false);
                                runs.push((first, count));
                            }
                            // With this few runs every one of the free ones was looked at.
                            None if runs.len() < 32 => {
                                prop_assert!(longest.unwrap_or(0) < count as usize);
                            }
                            None => {}
                        }
                    }
                    Step::Some(count) => match map.take_some(count) {
                        Some((first, got)) => {
                            prop_assert!((1..=count).contains(&got));
                            prop_assert_eq!(
                                first as usize,
                                taken.iter().position(|&slot| !slot).unwrap()
                            );
                            mark(&mut taken, first, got, false);
                            runs.push((first, got));
                        }
                        None => prop_assert_eq!(free(&taken), 0),
                    },
                    Step::Give(at) if !runs.is_empty() => {
                        let (first, count) = runs.swap_remove(at % runs.len());
                        map.give(first, count);
                        mark(&mut taken, first, count, true);
                    }
                    Step::Give(_) => {}
                }
                prop_assert_eq!(map.free() as usize, free(&taken));
                prop_assert_eq!(
                    map.next_free(0).map(|slot| slot as usize),
                    taken.iter().position(|&slot| !slot)
                );
            }
        }
    }

    fn free(taken: &[bool]) -> usize {
        taken.iter().filter(|&&slot| !slot).count()
    }

    fn mark(taken: &mut [bool], first: u32, count: u32, was: bool) {
        for slot in &mut taken[first as usize..(first + count) as usize] {
            assert_eq!(*slot, was);
            *slot = !was;
        }
    }

    #[test]
    fn the_whole_memory_is_one_run() {
        for slots in [1, 63, 64, 65, 4096, 4097, 300_000] {
            let mut map = SlotMap::new(slots);
            assert_eq!(map.take_run(slots), Some(0));
            assert_eq!(map.take_run(1), None);
            assert_eq!(map.take_some(1), None);
            map.give(0, slots);
            assert_eq!(map.free(), slots);
            assert_eq!(map.take_run(slots), Some(0), "the cursor wraps");
        }
    }
}
