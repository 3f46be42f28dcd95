//! Most recently used: everything that fits is admitted, and the object that was used last goes first.
//!
//! Read first: Yocum and Chase 2001, "Payload caching: high-speed data forwarding for network intermediaries"
//! (section 5.3). What is sent on in the order in which it came is wanted longest ago first; once the memory is full,
//! a new object does not displace one that is wanted sooner. So of what a forwarder holds, as much is hit as fits.
//!
//! For objects that are wanted again and again in no such order it is the worst choice. Every operation is O(1).

use crate::queue::{Object, Queue};
use crate::{Admission, Incoming, Key, List, Occupancy, Place, Policy, Removal, Table, TableFull};

/// Most recently used. 40 to 48 bytes per object.
#[derive(Debug)]
pub struct Mru {
    table: Table<Object>,
    /// Most recently used in front.
    order: Queue,
    bytes_max: u64,
}

impl Mru {
    /// For a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Mru {
        Mru { table: Table::new(objects_max as usize), order: Queue::default(), bytes_max }
    }

    #[inline]
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 { Admission::Admit } else { Admission::Reject }
    }

    #[inline]
    fn victim(&self, incoming: Option<Incoming>) -> Option<Place> {
        let newest = self.order.front()?;
        let is_incoming = incoming.is_some_and(|incoming| incoming.key == self.table.key(newest));
        if is_incoming { List::after(&self.table, newest) } else { Some(newest) }
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        self.order.remove(&mut self.table, place);
        self.table.remove(place);
    }
}

impl Policy for Mru {
    fn name(&self) -> &'static str {
        "mru"
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
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                self.order.resize(&mut self.table, place, bytes);
                self.order.move_to_front(&mut self.table, place);
            }
            None => {
                let place = self.table.insert(key, Object::new(bytes)).ok_or(TableFull)?;
                self.order.push_front(&mut self.table, place);
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
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let place = self.table.find(key);
        if let Some(place) = place {
            self.order.move_to_front(&mut self.table, place);
        }
        place.is_some()
    }

    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.order.bytes(), ghosts: 0 }
    }
}
