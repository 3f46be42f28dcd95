//! A queue through values of a [`Table`](crate::Table) that are in a [`List`](crate::List), too:
//! its links lie beside the table.
//!
//! A value may be in one queue at a time. Every operation is O(1).

use crate::Place;
use crate::table::NONE;

/// The links of all values: 8 bytes for each that the table can hold.
#[derive(Debug)]
pub(super) struct QueueLinks(Box<[Neighbours]>);

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: u32,
    after: u32,
}

impl QueueLinks {
    pub(super) fn new(capacity: usize) -> Self {
        Self(vec![Neighbours { before: NONE, after: NONE }; capacity].into_boxed_slice())
    }
}

/// The ends of a queue.
#[derive(Debug)]
pub(super) struct Queue {
    front: u32,
    back: u32,
    len: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self { front: NONE, back: NONE, len: 0 }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value that is longest in it.
    pub(super) fn front(&self) -> Option<Place> {
        place(self.front)
    }

    /// The value behind one in it.
    pub(super) fn after(links: &QueueLinks, at: Place) -> Option<Place> {
        place(links.0[at.0 as usize].after)
    }

    /// Puts a value that is in no queue behind.
    pub(super) fn push(&mut self, links: &mut QueueLinks, at: Place) {
        links.0[at.0 as usize] = Neighbours { before: self.back, after: NONE };
        match place(self.back) {
            Some(last) => links.0[last.0 as usize].after = at.0,
            None => self.front = at.0,
        }
        self.back = at.0;
        self.len += 1;
    }

    /// Takes a value out that is in this queue.
    pub(super) fn remove(&mut self, links: &mut QueueLinks, at: Place) {
        let Neighbours { before, after } = links.0[at.0 as usize];
        match place(before) {
            Some(before) => links.0[before.0 as usize].after = after,
            None => self.front = after,
        }
        match place(after) {
            Some(after) => links.0[after.0 as usize].before = before,
            None => self.back = before,
        }
        self.len -= 1;
    }
}

fn place(at: u32) -> Option<Place> {
    (at != NONE).then_some(Place(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_a_deque(steps in prop::collection::vec((0u32..12, any::<bool>()), 0..300)) {
            let mut links = QueueLinks::new(12);
            let mut queue = Queue::default();
            let mut model: VecDeque<u32> = VecDeque::new();
            for (value, push) in steps {
                match (push, model.iter().position(|&other| other == value)) {
                    (true, None) => {
                        queue.push(&mut links, Place(value));
                        model.push_back(value);
                    }
                    (false, Some(at)) => {
                        queue.remove(&mut links, Place(value));
                        model.remove(at);
                    }
                    _ => {}
                }
                let values: Vec<u32> =
                    std::iter::successors(queue.front(), |&at| Queue::after(&links, at))
                        .map(|at| at.0)
                        .collect();
                prop_assert_eq!(queue.len(), values.len());
                prop_assert_eq!(queue.is_empty(), values.is_empty());
                prop_assert_eq!(values, Vec::from(model.clone()));
            }
        }
    }
}
