//! Several lists of the same numbers, where each number is in one list or none, and goes from one
//! to another in constant time.

/// No number, no list.
const NONE: u32 = u32::MAX;
const NO_LIST: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    list: u8,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
    len: u32,
}

/// `LISTS` lists of numbers below a bound. All memory is allocated at creation: 12 bytes for each
/// number.
#[derive(Debug)]
pub(crate) struct Lists<const LISTS: usize> {
    links: Box<[Link]>,
    ends: [Ends; LISTS],
}

impl<const LISTS: usize> Lists<LISTS> {
    /// Empty lists of numbers below `bound`.
    pub(crate) fn new(bound: u32) -> Self {
        const { assert!(LISTS < NO_LIST as usize) };
        let link = Link { before: NONE, after: NONE, list: NO_LIST };
        let ends = Ends { first: NONE, last: NONE, len: 0 };
        Self { links: vec![link; bound as usize].into_boxed_slice(), ends: [ends; LISTS] }
    }

    /// The list that a number is in.
    pub(crate) fn list_of(&self, number: u32) -> Option<usize> {
        let list = self.links[number as usize].list;
        (list != NO_LIST).then_some(usize::from(list))
    }

    /// Numbers in a list.
    pub(crate) fn len(&self, list: usize) -> u32 {
        self.ends[list].len
    }

    /// The number that has been in a list longest.
    pub(crate) fn first(&self, list: usize) -> Option<u32> {
        let first = self.ends[list].first;
        (first != NONE).then_some(first)
    }

    /// The number that came to a list last.
    pub(crate) fn last(&self, list: usize) -> Option<u32> {
        let last = self.ends[list].last;
        (last != NONE).then_some(last)
    }

    /// The numbers of a list, the one that came last first.
    pub(crate) fn iter_from_last(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.last(list), |number| {
            let before = self.links[*number as usize].before;
            (before != NONE).then_some(before)
        })
    }

    /// Puts a number at the end of a list, out of whichever list it was in.
    pub(crate) fn push(&mut self, list: usize, number: u32) {
        self.remove(number);
        let last = self.ends[list].last;
        self.links[number as usize] = Link { before: last, after: NONE, list: list as u8 };
        match last {
            NONE => self.ends[list].first = number,
            last => self.links[last as usize].after = number,
        }
        self.ends[list].last = number;
        self.ends[list].len += 1;
    }

    /// Takes a number out of its list, if it is in one.
    pub(crate) fn remove(&mut self, number: u32) {
        let Link { before, after, list } = self.links[number as usize];
        if list == NO_LIST {
            return;
        }
        let ends = &mut self.ends[usize::from(list)];
        match before {
            NONE => ends.first = after,
            before => self.links[before as usize].after = after,
        }
        match after {
            NONE => ends.last = before,
            after => self.links[after as usize].before = before,
        }
        ends.len -= 1;
        self.links[number as usize] = Link { before: NONE, after: NONE, list: NO_LIST };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against lists that cannot be wrong.
        #[test]
        fn as_vectors(steps in proptest::collection::vec((0usize..4, 0u32..12), 0..200)) {
            let mut lists = Lists::<3>::new(12);
            let mut model = vec![Vec::new(); 3];
            for (list, number) in steps {
                model
                    .iter_mut()
                    .for_each(|numbers: &mut Vec<u32>| numbers.retain(|other| *other != number));
                if list < 3 {
                    lists.push(list, number);
                    model[list].push(number);
                } else {
                    lists.remove(number);
                }
                for (list, numbers) in model.iter().enumerate() {
                    prop_assert_eq!(lists.len(list) as usize, numbers.len());
                    prop_assert_eq!(
                        (lists.first(list), lists.last(list)),
                        (numbers.first().copied(), numbers.last().copied())
                    );
                    let backwards: Vec<u32> = numbers.iter().rev().copied().collect();
                    prop_assert_eq!(lists.iter_from_last(list).collect::<Vec<_>>(), backwards);
                }
                prop_assert_eq!(lists.list_of(number), (list < 3).then_some(list));
            }
        }
    }
}
