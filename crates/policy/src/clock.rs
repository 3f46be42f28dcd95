//! CLOCK: a FIFO whose oldest object, if it was used since it was last looked at, gets another turn.
//!
//! Read first: Corbató 1968, "A paging experiment with the Multics system". A hit costs a bit, and that only if the bit
//! is not set yet: no order changes. With `n` bits per object its uses are counted up to `2^n - 1`, and each turn costs
//! one (the generalised clock of Smith 1978, "Sequentiality and prefetching in database systems").
//!
//! # The hand
//!
//! A poll moves the hand: objects that were used get their turn then. It rests at the victim, so that another poll names
//! the same object unless it has been used meanwhile. The incoming object, if it is there already, gets a turn for
//! nothing.
//!
//! Every operation is O(1); the hand's way is amortised over the uses that it takes back.

use crate::queue::{Object, Queue};
use crate::{Admission, Incoming, Key, Occupancy, Place, Policy, Removal, Table, TableFull};

/// The clock. 40 to 48 bytes per object.
#[derive(Debug)]
pub struct Clock {
    table: Table<Object>,
    /// The hand points to the last.
    order: Queue,
    uses_max: u8,
    bytes_max: u64,
}

impl Clock {
    /// With one bit per object, for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Clock {
        Clock::with_bits(bytes_max, objects_max, 1)
    }

    /// With counters of `bits`, clamped to 1..=8.
    pub fn with_bits(bytes_max: u64, objects_max: u32, bits: u8) -> Clock {
        let uses_max = u8::MAX >> (8 - bits.clamp(1, 8));
        Clock { table: Table::new(objects_max as usize), order: Queue::default(), uses_max, bytes_max }
    }

    #[inline]
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 { Admission::Admit } else { Admission::Reject }
    }

    /// Moves the hand to the victim.
    #[inline]
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        loop {
            let place = self.order.back()?;
            let is_incoming = incoming.is_some_and(|incoming| incoming.key == self.table.key(place));
            if is_incoming && self.order.len() == 1 {
                return None;
            }
            let object = self.table.get_mut(place);
            if object.uses > 0 {
                object.uses -= 1;
            } else if !is_incoming {
                return Some(place);
            }
            self.order.move_to_front(&mut self.table, place);
        }
    }

    #[inline]
    fn use_object(&mut self, place: Place) {
        let object = self.table.get_mut(place);
        // A popular object's cache line stays clean.
        if object.uses < self.uses_max {
            object.uses += 1;
        }
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        self.order.remove(&mut self.table, place);
        self.table.remove(place);
    }
}

impl Policy for Clock {
    fn name(&self) -> &'static str {
        "clock"
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
                self.order.resize(&mut self.table, place, bytes);
                self.use_object(place);
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

    /// Moves the hand: see the module's documentation.
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let place = self.table.find(key);
        if let Some(place) = place {
            self.use_object(place);
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
