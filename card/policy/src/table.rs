//! A map from keys to values of fixed capacity.
//!
//! Values stay at their [`Place`] until removed, so lists can link them. Collisions are
//! chained through the nodes: unlike an open table, this has no tombstones, so any number of
//! insertions and removals never leads to a rehash (a pause) or to growth (an allocation). One
//! look-up costs two cache lines: the chain's head and the node.

use crate::Key;

pub(crate) const NONE: u32 = u32::MAX;

/// Where a value is, until it is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place(pub(crate) u32);

/// A map from keys to values of fixed capacity. Values stay at their [`Place`] until removed.
#[derive(Debug)]
pub struct Table<T> {
    heads: Box<[u32]>,
    nodes: Box<[Node<T>]>,
    free: u32,
    len: usize,
}

#[derive(Clone, Debug)]
struct Node<T> {
    key: Key,
    /// Next in the chain, or next free node.
    next: u32,
    value: T,
}

impl<T: Default + Clone> Table<T> {
    /// Room for `capacity` values (at most 2^31); all memory is allocated and touched here: the
    /// size of `T`, 12 bytes, and 8 to 16 bytes for the heads, per value: twice as many heads as
    /// values make most chains one value long.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.min(1 << 31);
        let heads = vec![NONE; (2 * capacity).next_power_of_two().max(2)].into_boxed_slice();
        let mut nodes = vec![Node { key: Key(0), next: NONE, value: T::default() }; capacity]
            .into_boxed_slice();
        for (at, node) in nodes.iter_mut().enumerate() {
            node.next = if at + 1 < capacity { at as u32 + 1 } else { NONE };
        }
        Self { heads, nodes, free: if capacity == 0 { NONE } else { 0 }, len: 0 }
    }

    /// Values in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Values it can hold.
    pub fn capacity(&self) -> usize {
        self.nodes.len()
    }

    /// Where the value of `key` is.
    #[inline]
    pub fn find(&self, key: Key) -> Option<Place> {
        let mut at = self.heads[self.bucket(key)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key == key {
                return Some(Place(at));
            }
            at = node.next;
        }
        None
    }

    /// Puts a value in; `key` must not be there yet. None if the table is full.
    #[inline]
    pub fn insert(&mut self, key: Key, value: T) -> Option<Place> {
        debug_assert!(self.find(key).is_none(), "key inserted twice");
        let at = self.free;
        if at == NONE {
            return None;
        }
        let bucket = self.bucket(key);
        let node = &mut self.nodes[at as usize];
        self.free = node.next;
        *node = Node { key, next: self.heads[bucket], value };
        self.heads[bucket] = at;
        self.len += 1;
        Some(Place(at))
    }

    /// Takes a value out. It must not be in a list any longer.
    pub fn remove(&mut self, place: Place) -> T {
        let bucket = self.bucket(self.nodes[place.0 as usize].key);
        let after = self.nodes[place.0 as usize].next;
        let mut at = self.heads[bucket];
        if at == place.0 {
            self.heads[bucket] = after;
        } else {
            while at != NONE && self.nodes[at as usize].next != place.0 {
                at = self.nodes[at as usize].next;
            }
            debug_assert_ne!(at, NONE, "place removed twice");
            if at == NONE {
                return T::default();
            }
            self.nodes[at as usize].next = after;
        }
        let node = &mut self.nodes[place.0 as usize];
        node.next = self.free;
        self.free = place.0;
        self.len -= 1;
        std::mem::take(&mut node.value)
    }

    /// The key of a value.
    #[inline]
    pub fn key(&self, place: Place) -> Key {
        self.nodes[place.0 as usize].key
    }

    /// The value at a place that is taken.
    #[inline]
    pub fn get(&self, place: Place) -> &T {
        &self.nodes[place.0 as usize].value
    }

    /// A value, to change.
    #[inline]
    pub fn get_mut(&mut self, place: Place) -> &mut T {
        &mut self.nodes[place.0 as usize].value
    }

    #[inline]
    fn bucket(&self, key: Key) -> usize {
        key.scrambled() as usize & (self.heads.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn behaves_like_a_hash_map(
            capacity in 0usize..40,
            steps in prop::collection::vec((0u64..60, any::<bool>()), 0..500),
        ) {
            let mut table: Table<u64> = Table::new(capacity);
            let mut model: HashMap<u64, u64> = HashMap::new();
            for (at, (key, put)) in steps.into_iter().enumerate() {
                match (table.find(Key(key)), put) {
                    (Some(place), true) => {
                        *table.get_mut(place) += 1;
                        *model.get_mut(&key).unwrap() += 1;
                    }
                    (Some(place), false) => {
                        prop_assert_eq!(Some(table.remove(place)), model.remove(&key));
                    }
                    (None, true) => match table.insert(Key(key), at as u64) {
                        Some(place) => {
                            prop_assert_eq!(table.key(place), Key(key));
                            prop_assert_eq!(model.insert(key, at as u64), None);
                        }
                        None => prop_assert_eq!(model.len(), capacity),
                    },
                    (None, false) => prop_assert!(!model.contains_key(&key)),
                }
                prop_assert_eq!(table.len(), model.len());
                for (key, value) in &model {
                    prop_assert_eq!(
                        table.find(Key(*key)).map(|place| *table.get(place)),
                        Some(*value)
                    );
                }
            }
        }
    }
}
