//! What is remembered of pages that have no entry: a bounded table, in which the new take the
//! places of the old.

use hashbrown::HashTable;

/// What a remembered page is found by.
pub(super) trait Name: Copy + PartialEq {
    /// Its hash, as good as random.
    fn hash(&self) -> u64;
}

impl Name for nicache_http::Key {
    fn hash(&self) -> u64 {
        self.low_u64()
    }
}

/// At most `max` pages.
pub(super) struct Remembered<N, T> {
    pages: Vec<(N, T)>,
    index: HashTable<u32>,
    /// The next one to be replaced.
    oldest: usize,
    max: usize,
}

impl<N: Name, T> Remembered<N, T> {
    /// None yet; takes the memory for all of them.
    pub(super) fn new(max: usize) -> Self {
        Self {
            pages: Vec::with_capacity(max),
            index: HashTable::with_capacity(max),
            oldest: 0,
            max,
        }
    }

    fn place_of(&self, name: &N) -> Option<usize> {
        self.index
            .find(name.hash(), |&at| self.pages[at as usize].0 == *name)
            .map(|&at| at as usize)
    }

    /// What is known of it.
    pub(super) fn get(&self, name: &N) -> Option<&T> {
        self.place_of(name).map(|at| &self.pages[at].1)
    }

    /// What is known of a page, to change it. `None`: it is not remembered.
    pub(super) fn get_mut(&mut self, name: &N) -> Option<&mut T> {
        self.place_of(name).map(|at| &mut self.pages[at].1)
    }

    /// All that is known, also of pages that were forgotten and whose places are not taken yet.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages.iter_mut().map(|(_, page)| page)
    }

    /// What is known of it, or else `new` in place of what was known of another one.
    pub(super) fn get_or_insert(&mut self, name: N, new: impl FnOnce() -> T) -> &mut T {
        let at = self.place_of(&name).unwrap_or_else(|| self.insert(name, new()));
        &mut self.pages[at].1
    }

    fn insert(&mut self, name: N, page: T) -> usize {
        let at = if self.pages.len() < self.max {
            self.pages.push((name, page));
            self.pages.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % self.max;
            self.unlink(at);
            self.pages[at] = (name, page);
            at
        };
        let pages = &self.pages;
        self.index.insert_unique(name.hash(), at as u32, |&at| pages[at as usize].0.hash());
        at
    }

    /// Nothing is known of it any longer. Its place is taken by another one in turn.
    pub(super) fn forget(&mut self, name: &N) {
        if let Some(at) = self.place_of(name) {
            self.unlink(at);
        }
    }

    fn unlink(&mut self, at: usize) {
        if let Ok(found) =
            self.index.find_entry(self.pages[at].0.hash(), |&index| index as usize == at)
        {
            found.remove();
        }
    }

    /// Places taken, and pages that can be found.
    #[cfg(test)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.pages.len(), self.index.len())
    }
}

#[cfg(test)]
mod tests {
    use nicache_http::Key;
    use proptest::prelude::*;

    use super::*;

    fn key(number: u8) -> Key {
        Key([number; 16])
    }

    proptest! {
        /// What was written last for a page is what is known of it, and the last ones that were new
        /// are all there unless they were forgotten.
        #[test]
        fn the_last_ones_are_known(
            steps in prop::collection::vec((0u8..12, any::<bool>()), 0..200),
            max in 1usize..8,
        ) {
            let mut table = Remembered::new(max);
            // Newest last; one that was forgotten keeps its place.
            let mut model: Vec<Option<(u8, usize)>> = Vec::new();
            for (step, (number, forgets)) in steps.into_iter().enumerate() {
                let at =
                    model.iter().position(|page| page.is_some_and(|(known, _)| known == number));
                if forgets {
                    table.forget(&key(number));
                    if let Some(at) = at {
                        model[at] = None;
                    }
                } else {
                    *table.get_or_insert(key(number), || step) = step;
                    match at {
                        Some(at) => model[at] = Some((number, step)),
                        None => model.push(Some((number, step))),
                    }
                    if model.len() > max {
                        model.remove(0);
                    }
                }
                for number in 0..12 {
                    let known = model
                        .iter()
                        .flatten()
                        .find(|(known, _)| *known == number)
                        .map(|(_, step)| step);
                    prop_assert_eq!(table.get(&key(number)), known);
                }
                prop_assert!(table.len().0 <= max);
            }
        }
    }
}
