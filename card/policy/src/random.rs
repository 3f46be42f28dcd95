//! Random replacement: everything that fits is admitted, and any object may go next, all with the
//! same probability.
//!
//! It needs no uses and no order, and is what a policy must beat to be worth its work. The random
//! numbers are those of SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom
//! number generators") from a seed: one seed, one course. A poll draws none, so it names the
//! same object again while no other comes or goes; a removal draws. Every operation is O(1).

use nicache_random::{SplitMix64, below};

use crate::{Admission, Incoming, Key, Occupancy, Place, Policy, Removal, Table, TableFull};

/// Random replacement. 44 to 52 bytes per object.
#[derive(Debug)]
pub struct Random {
    table: Table<Object>,
    /// All objects in memory, in no order.
    places: Vec<Place>,
    source: SplitMix64,
    /// Drawn, and not used up by a removal yet.
    drawn: u64,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Object {
    bytes: u64,
    /// Where in `places`.
    position: u32,
}

impl Random {
    /// Random replacement for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32, seed: u64) -> Self {
        let table = Table::new(objects_max as usize);
        let places = Vec::with_capacity(table.capacity());
        let mut random =
            Self { table, places, source: SplitMix64::new(seed), drawn: 0, bytes: 0, bytes_max };
        random.draw();
        random
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
    fn draw(&mut self) {
        self.drawn = self.source.next_u64();
    }

    #[inline]
    fn victim(&self, incoming: Option<Incoming>) -> Option<Place> {
        // The high half of the product: 0..len in equal shares, but for one part in 2^64 / len.
        let at = below(self.drawn, self.places.len() as u64) as usize;
        let place = *self.places.get(at)?;
        let is_incoming = incoming.is_some_and(|incoming| incoming.key == self.table.key(place));
        if !is_incoming {
            return Some(place);
        }
        let next = if at + 1 < self.places.len() { at + 1 } else { 0 };
        Some(self.places[next]).filter(|&next| next != place)
    }

    #[inline]
    fn remove(&mut self, place: Place) {
        let Object { bytes, position } = self.table.remove(place);
        self.places.swap_remove(position as usize);
        if let Some(&moved) = self.places.get(position as usize) {
            self.table.get_mut(moved).position = position;
        }
        self.bytes = self.bytes.wrapping_sub(bytes);
        self.draw();
    }
}

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, _key: Key) {}

    #[inline]
    fn handle_miss(&mut self, _key: Key, bytes: Option<u64>) -> Admission {
        self.admits(bytes.unwrap_or(0))
    }

    #[inline]
    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let object = self.table.get_mut(place);
                self.bytes = self.bytes.wrapping_sub(object.bytes);
                object.bytes = bytes;
            }
            None => {
                let object = Object { bytes, position: self.places.len() as u32 };
                self.places.push(self.table.insert(key, object).ok_or(TableFull)?);
            }
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused
            && let Some(place) = self.table.find(key)
        {
            self.remove(place);
        }
    }

    /// If chance has it that the incoming object would go, its neighbour goes.
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.bytes, ghosts: 0 }
    }
}
