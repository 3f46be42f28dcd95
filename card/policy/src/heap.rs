//! A binary heap of values of a [`Table`], each of which knows where it is in the heap, so it
//! can move and go.
//!
//! The ranks lie in the heap, not in the values: a comparison costs no look into the table. Every
//! operation is O(log n), the least value O(1).

use crate::table::NONE;
use crate::{Incoming, Place, Table};

/// A value that can be in a heap.
pub trait Heaped: Default + Clone {
    /// Where it is.
    fn position(&self) -> &Position;
    /// Where it is, to change.
    fn position_mut(&mut self) -> &mut Position;
}

/// Where a value is in a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(u32);

impl Default for Position {
    fn default() -> Self {
        Self(NONE)
    }
}

/// A binary heap of values of a [`Table`]: the least rank is in front.
#[derive(Debug)]
pub struct Heap<R> {
    nodes: Vec<(R, Place)>,
}

impl<R: Ord + Copy> Heap<R> {
    /// Room for `capacity` values: the size of `R` and 4 bytes per value, aligned.
    pub fn new(capacity: usize) -> Self {
        Self { nodes: Vec::with_capacity(capacity) }
    }

    /// Values in it.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The value of the least rank.
    #[inline]
    pub fn least(&self) -> Option<Place> {
        self.nodes.first().map(|node| node.1)
    }

    /// The value of the least rank but one that is not wanted.
    #[inline]
    pub fn least_but(&self, unwanted: Place) -> Option<Place> {
        // Whatever is less than all but the root is a child of it.
        let least =
            self.nodes.iter().take(3).filter(|node| node.1 != unwanted).min_by_key(|node| node.0);
        least.map(|node| node.1)
    }

    /// The value of the least rank, for the sake of `incoming`, which it is not itself.
    #[inline]
    pub(crate) fn victim<T: Default + Clone>(
        &self,
        table: &Table<T>,
        incoming: Option<Incoming>,
    ) -> Option<Place> {
        let least = self.least()?;
        let is_incoming = incoming.is_some_and(|incoming| incoming.key == table.key(least));
        if is_incoming { self.least_but(least) } else { Some(least) }
    }

    /// The rank of a value in it.
    #[inline]
    pub fn rank<T: Heaped>(&self, table: &Table<T>, place: Place) -> R {
        self.nodes[table.get(place).position().0 as usize].0
    }

    /// Puts a value in that is in no heap.
    #[inline]
    pub fn push<T: Heaped>(&mut self, table: &mut Table<T>, place: Place, rank: R) {
        let at = self.nodes.len();
        self.nodes.push((rank, place));
        self.rise(table, at);
    }

    /// Gives a value in it another rank.
    #[inline]
    pub fn set_rank<T: Heaped>(&mut self, table: &mut Table<T>, place: Place, rank: R) {
        let at = table.get(place).position().0 as usize;
        self.nodes[at].0 = rank;
        let at = self.rise(table, at);
        self.sink(table, at);
    }

    /// Takes a value out that is in it.
    pub fn remove<T: Heaped>(&mut self, table: &mut Table<T>, place: Place) {
        let at = std::mem::take(table.get_mut(place).position_mut()).0 as usize;
        self.nodes.swap_remove(at);
        if at < self.nodes.len() {
            let at = self.rise(table, at);
            self.sink(table, at);
        }
    }

    /// Moves a node up to where its rank belongs; where that is.
    fn rise<T: Heaped>(&mut self, table: &mut Table<T>, mut at: usize) -> usize {
        let node = self.nodes[at];
        while at > 0 && node.0 < self.nodes[(at - 1) / 2].0 {
            self.settle(table, at, self.nodes[(at - 1) / 2]);
            at = (at - 1) / 2;
        }
        self.settle(table, at, node);
        at
    }

    /// Moves a node down to where its rank belongs.
    fn sink<T: Heaped>(&mut self, table: &mut Table<T>, mut at: usize) {
        let node = self.nodes[at];
        while let Some(child) = self.lesser_child(at)
            && self.nodes[child].0 < node.0
        {
            self.settle(table, at, self.nodes[child]);
            at = child;
        }
        self.settle(table, at, node);
    }

    #[inline]
    fn lesser_child(&self, at: usize) -> Option<usize> {
        let (left, right) = (2 * at + 1, 2 * at + 2);
        match (self.nodes.get(left), self.nodes.get(right)) {
            (Some(one), Some(other)) if other.0 < one.0 => Some(right),
            (Some(_), _) => Some(left),
            (None, _) => None,
        }
    }

    #[inline]
    fn settle<T: Heaped>(&mut self, table: &mut Table<T>, at: usize, node: (R, Place)) {
        self.nodes[at] = node;
        *table.get_mut(node.1).position_mut() = Position(at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Default)]
    struct Value(Position);

    impl Heaped for Value {
        fn position(&self) -> &Position {
            &self.0
        }
        fn position_mut(&mut self) -> &mut Position {
            &mut self.0
        }
    }

    proptest! {
        #[test]
        fn behaves_like_a_sorted_map(
            steps in prop::collection::vec((0u64..24, 0u64..100, 0u8..3), 0..300),
        ) {
            let mut table: Table<Value> = Table::new(24);
            let mut heap = Heap::new(24);
            let mut model: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            let places: Vec<Place> =
                (0..24).map(|key| table.insert(Key(key), Value::default()).unwrap()).collect();
            for (key, rank, step) in steps {
                // No two are equal.
                let rank = (rank, key);
                let place = places[key as usize];
                match (step, model.contains_key(&key)) {
                    (0, false) => {
                        heap.push(&mut table, place, rank);
                        model.insert(key, rank);
                    }
                    (1, true) => {
                        heap.set_rank(&mut table, place, rank);
                        model.insert(key, rank);
                    }
                    (2, true) => {
                        heap.remove(&mut table, place);
                        model.remove(&key);
                    }
                    _ => {}
                }
                let least = |but: Option<u64>| {
                    let nodes = model.iter().filter(|node| Some(*node.0) != but);
                    nodes.min_by_key(|node| node.1).map(|node| *node.0)
                };
                prop_assert_eq!(heap.least().map(|place| table.key(place).0), least(None));
                prop_assert_eq!(
                    heap.least_but(place).map(|place| table.key(place).0),
                    least(Some(key))
                );
                for (key, rank) in &model {
                    prop_assert_eq!(heap.rank(&table, places[*key as usize]), *rank);
                }
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}
