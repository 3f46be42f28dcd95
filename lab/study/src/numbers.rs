//! Numbers for names, in the order in which they come up.
//!
//! An open table with linear probing, which is at most half full, so a look-up is mostly one
//! cache line. That line can be asked for ahead ([`Numbers::touch`]): names come in batches when a
//! trace is loaded, and waiting for memory for many of them at once is what makes loading fast.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;

const SLOTS_MIN: usize = 1 << 10;

/// Names numbered so far; a name is a hash or a number of its own.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// A name and its number plus 1; 0: free. A power of two of them.
    slots: Vec<(u64, u32)>,
    len: u32,
    /// Nobody can make names that collide.
    hasher: RandomState,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { slots: vec![(0, 0); SLOTS_MIN], len: 0, hasher: RandomState::default() }
    }
}

impl Numbers {
    /// The number of a name: the next one, if it is new. None if there are `u32::MAX` already.
    #[inline]
    pub(crate) fn number(&mut self, name: u64) -> Option<u32> {
        let mut at = self.place(name);
        loop {
            let (known, number) = self.slots[at];
            if number == 0 {
                return self.insert(at, name);
            }
            if known == name {
                return Some(number - 1);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The number of a name that has one.
    pub(crate) fn find(&self, name: u64) -> Option<u32> {
        let mut at = self.place(name);
        loop {
            match self.slots[at] {
                (_, 0) => return None,
                (known, number) if known == name => return Some(number - 1),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Reads where a name is looked for. What comes back is only there to be used for something.
    #[inline]
    pub(crate) fn touch(&self, name: u64) -> u32 {
        self.slots[self.place(name)].1
    }

    /// Bytes that are held.
    pub(crate) fn memory(&self) -> usize {
        std::mem::size_of_val(&self.slots[..])
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn place(&self, name: u64) -> usize {
        self.hasher.hash_one(name) as usize & (self.slots.len() - 1)
    }

    fn insert(&mut self, at: usize, name: u64) -> Option<u32> {
        let number = self.len;
        self.len = self.len.checked_add(1)?;
        self.slots[at] = (name, self.len);
        if 2 * self.len as usize > self.slots.len() {
            self.grow();
        }
        Some(number)
    }

    #[cold]
    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        self.slots = vec![(0, 0); 2 * old.len()];
        for slot in old.into_iter().filter(|slot| slot.1 != 0) {
            let mut at = self.place(slot.0);
            while self.slots[at].1 != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    proptest::proptest! {
        #[test]
        fn numbers_as_a_map_does(names in proptest::collection::vec(0u64..3000, 0..9000)) {
            let (mut numbers, mut model) = (Numbers::default(), HashMap::new());
            for name in names {
                numbers.touch(name);
                let next = model.len() as u32;
                proptest::prop_assert_eq!(numbers.find(name), model.get(&name).copied());
                proptest::prop_assert_eq!(
                    numbers.number(name),
                    Some(*model.entry(name).or_insert(next))
                );
                proptest::prop_assert_eq!(numbers.len(), model.len());
            }
        }
    }
}
