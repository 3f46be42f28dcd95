//! What the policies of one queue have in common: everything but what a use does, and who goes.

use std::fmt::Debug;

use crate::queue::{Object, Queue};
use crate::{Admission, Incoming, Key, Occupancy, Place, Policy, Removal, Table, TableFull};

/// What such a policy has of its own.
pub trait Order: Debug + Send {
    /// The policy's name.
    const NAME: &'static str;

    /// An object is used, or has a new size.
    fn use_object(&mut self, table: &mut Table<Object>, queue: &mut Queue, place: Place);

    /// The object to evict next, for the sake of `incoming`, which it is not itself.
    fn victim(
        &mut self,
        table: &mut Table<Object>,
        queue: &mut Queue,
        incoming: Option<Incoming>,
    ) -> Option<Place>;

    /// An object is about to leave the queue.
    #[inline]
    fn handle_leave(&mut self, _table: &Table<Object>, _place: Place) {}
}

/// A policy of one queue: everything that fits is admitted, and new objects come in front. 40 to 48
/// bytes per object.
#[derive(Debug)]
pub struct Ordered<O> {
    table: Table<Object>,
    queue: Queue,
    order: O,
    bytes_max: u64,
}

impl<O: Order> Ordered<O> {
    /// A policy for a memory of `bytes_max` that holds at most `objects_max` objects, which go in
    /// this order.
    pub(crate) fn with_order(bytes_max: u64, objects_max: u32, order: O) -> Self {
        Self { table: Table::new(objects_max as usize), queue: Queue::default(), order, bytes_max }
    }

    #[inline]
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        self.order.handle_leave(&self.table, place);
        self.queue.remove(&mut self.table, place);
        self.table.remove(place);
    }
}

impl<O: Order> Policy for Ordered<O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        self.handle_request(key);
    }

    #[inline]
    fn handle_miss(&mut self, _key: Key, bytes: Option<u64>) -> Admission {
        self.admits(bytes.unwrap_or(0))
    }

    #[inline]
    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// A new size is a use.
    #[inline]
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                self.queue.resize(&mut self.table, place, bytes);
                self.order.use_object(&mut self.table, &mut self.queue, place);
            }
            None => {
                let place = self.table.insert(key, Object::new(bytes)).ok_or(TableFull)?;
                self.queue.push_front(&mut self.table, place);
            }
        }
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused
            && let Some(place) = self.table.find(key)
        {
            self.remove(place);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.order.victim(&mut self.table, &mut self.queue, incoming)?;
        Some(self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let place = self.table.find(key);
        if let Some(place) = place {
            self.order.use_object(&mut self.table, &mut self.queue, place);
        }
        place.is_some()
    }

    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.order.victim(&mut self.table, &mut self.queue, incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.queue.bytes(), ghosts: 0 }
    }
}

/// Whether an object is the one for which room is wanted.
#[inline]
pub(crate) fn is_incoming(table: &Table<Object>, place: Place, incoming: Option<Incoming>) -> bool {
    incoming.is_some_and(|incoming| incoming.key == table.key(place))
}
