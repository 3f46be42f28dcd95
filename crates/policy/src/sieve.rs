//! SIEVE: a FIFO in which a hand goes from the oldest to the newest object and removes those not used since its last
//! visit; those that were used keep their place.
//!
//! Read first: Zhang, Yang, Yue, Vigfusson and Rashmi 2024, "SIEVE is simpler than LRU" (NSDI 2024; section 3).
//! Against [`Clock`](crate::Clock), a new object is reached soon after the hand has passed the old ones: what is used
//! once goes early, without ghosts and without a second queue. A hit costs a bit, and that only if it is not set yet.
//!
//! # The hand
//!
//! A poll moves it. It rests at the victim, so that another poll names the same object unless it has been used
//! meanwhile. When what it rests at goes, it moves on to the next newer object, behind the newest to the oldest. The
//! incoming object, if it is there already, is passed over.
//!
//! Every operation is O(1); the hand's way is amortised over the uses whose bits it clears.

use crate::queue::{Object, Queue};
use crate::{Admission, Incoming, Key, List, Occupancy, Place, Policy, Removal, Table, TableFull};

/// The sieve. 40 to 48 bytes per object.
#[derive(Debug)]
pub struct Sieve {
    table: Table<Object>,
    /// Newest in front.
    order: Queue,
    /// None: at the oldest.
    hand: Option<Place>,
    bytes_max: u64,
}

impl Sieve {
    /// For a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Sieve {
        Sieve { table: Table::new(objects_max as usize), order: Queue::default(), hand: None, bytes_max }
    }

    #[inline]
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 { Admission::Admit } else { Admission::Reject }
    }

    /// Moves the hand to the victim.
    #[inline]
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        let mut place = self.hand.or(self.order.back())?;
        loop {
            let is_incoming = incoming.is_some_and(|incoming| incoming.key == self.table.key(place));
            if is_incoming && self.order.len() == 1 {
                return None;
            }
            let object = self.table.get_mut(place);
            if object.uses > 0 {
                object.uses = 0;
            } else if !is_incoming {
                self.hand = Some(place);
                return Some(place);
            }
            place = List::before(&self.table, place).or(self.order.back())?;
        }
    }

    #[inline]
    fn use_object(&mut self, place: Place) {
        let object = self.table.get_mut(place);
        // A popular object's cache line stays clean.
        if object.uses == 0 {
            object.uses = 1;
        }
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        if self.hand == Some(place) {
            self.hand = List::before(&self.table, place);
        }
        self.order.remove(&mut self.table, place);
        self.table.remove(place);
    }
}

impl Policy for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
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
