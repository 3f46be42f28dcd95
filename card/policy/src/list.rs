//! A doubly linked list whose links lie in the values of a [`Table`].
//!
//! A value may be in one list at a time per pair of links; the caller knows in which. Every
//! operation is O(1).

use crate::table::NONE;
use crate::{Place, Table};

/// A value that can be in a list.
pub trait Linked: Default + Clone {
    /// Its links.
    fn links(&self) -> &Links;
    /// Its links, to change.
    fn links_mut(&mut self) -> &mut Links;
}

/// Neighbours in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    before: u32,
    after: u32,
}

impl Default for Links {
    fn default() -> Self {
        Self { before: NONE, after: NONE }
    }
}

/// The ends of a list.
#[derive(Clone, Copy, Debug)]
pub struct List {
    front: u32,
    back: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { front: NONE, back: NONE, len: 0 }
    }
}

impl List {
    /// Values in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first value.
    #[inline]
    pub fn front(&self) -> Option<Place> {
        place(self.front)
    }

    /// The last value.
    #[inline]
    pub fn back(&self) -> Option<Place> {
        place(self.back)
    }

    /// The value in front of one in a list.
    #[inline]
    pub fn before<T: Linked>(table: &Table<T>, at: Place) -> Option<Place> {
        place(table.get(at).links().before)
    }

    /// The value behind one in a list.
    #[inline]
    pub fn after<T: Linked>(table: &Table<T>, at: Place) -> Option<Place> {
        place(table.get(at).links().after)
    }

    /// Puts a value that is in no list in front.
    #[inline]
    pub fn push_front<T: Linked>(&mut self, table: &mut Table<T>, at: Place) {
        *table.get_mut(at).links_mut() = Links { before: NONE, after: self.front };
        match place(self.front) {
            Some(first) => table.get_mut(first).links_mut().before = at.0,
            None => self.back = at.0,
        }
        self.front = at.0;
        self.len += 1;
    }

    /// Puts a value that is in no list behind.
    #[inline]
    pub fn push_back<T: Linked>(&mut self, table: &mut Table<T>, at: Place) {
        *table.get_mut(at).links_mut() = Links { before: self.back, after: NONE };
        match place(self.back) {
            Some(last) => table.get_mut(last).links_mut().after = at.0,
            None => self.front = at.0,
        }
        self.back = at.0;
        self.len += 1;
    }

    /// Takes a value out that is in this list.
    #[inline]
    pub fn remove<T: Linked>(&mut self, table: &mut Table<T>, at: Place) {
        let Links { before, after } = std::mem::take(table.get_mut(at).links_mut());
        match place(before) {
            Some(before) => table.get_mut(before).links_mut().after = after,
            None => self.front = after,
        }
        match place(after) {
            Some(after) => table.get_mut(after).links_mut().before = before,
            None => self.back = before,
        }
        self.len -= 1;
    }

    /// Puts a value that is in this list in front.
    #[inline]
    pub fn move_to_front<T: Linked>(&mut self, table: &mut Table<T>, at: Place) {
        if self.front != at.0 {
            self.remove(table, at);
            self.push_front(table, at);
        }
    }
}

#[inline]
fn place(at: u32) -> Option<Place> {
    (at != NONE).then_some(Place(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    #[derive(Clone, Default)]
    struct Value(Links);

    impl Linked for Value {
        fn links(&self) -> &Links {
            &self.0
        }
        fn links_mut(&mut self) -> &mut Links {
            &mut self.0
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in prop::collection::vec((0u64..12, 0u8..4), 0..300)) {
            let mut table: Table<Value> = Table::new(12);
            let mut list = List::default();
            let mut model: VecDeque<u64> = VecDeque::new();
            let places: Vec<Place> =
                (0..12).map(|key| table.insert(Key(key), Value::default()).unwrap()).collect();
            for (key, step) in steps {
                let at = places[key as usize];
                match (step, model.iter().position(|&other| other == key)) {
                    (0, None) => {
                        list.push_front(&mut table, at);
                        model.push_front(key);
                    }
                    (1, None) => {
                        list.push_back(&mut table, at);
                        model.push_back(key);
                    }
                    (2, Some(position)) => {
                        list.move_to_front(&mut table, at);
                        model.remove(position);
                        model.push_front(key);
                    }
                    (3, Some(position)) => {
                        list.remove(&mut table, at);
                        model.remove(position);
                    }
                    _ => {}
                }
                let forward: Vec<u64> =
                    std::iter::successors(list.front(), |&at| List::after(&table, at))
                        .map(|at| table.key(at).0)
                        .collect();
                let mut backward: Vec<u64> =
                    std::iter::successors(list.back(), |&at| List::before(&table, at))
                        .map(|at| table.key(at).0)
                        .collect();
                backward.reverse();
                prop_assert_eq!(&forward, &backward);
                prop_assert_eq!(forward, Vec::from(model.clone()));
                prop_assert_eq!(list.len(), model.len());
            }
        }
    }
}
