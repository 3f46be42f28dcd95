//! Least recently used: everything that fits is admitted, and the object whose last use is longest ago goes first.
//!
//! The policy against which Bos et al. 2009 (section 2.2, figure 5) set their own. Every operation is O(1).

use crate::{Admission, Incoming, Key, Linked, Links, List, Occupancy, Place, Policy, Removal, Table, TableFull};

/// Least recently used. 40 to 48 bytes per object.
#[derive(Debug)]
pub struct Lru {
    table: Table<Object>,
    /// Most recently used in front.
    order: List,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Clone, Debug, Default)]
struct Object {
    links: Links,
    bytes: u64,
}

impl Linked for Object {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Lru {
    /// For a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Lru {
        Lru { table: Table::new(objects_max as usize), order: List::default(), bytes: 0, bytes_max }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 { Admission::Admit } else { Admission::Reject }
    }

    fn oldest_but(&self, key: Key) -> Option<Place> {
        let oldest = self.order.back()?;
        if self.table.key(oldest) == key { List::before(&self.table, oldest) } else { Some(oldest) }
    }
}

impl Policy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        if let Some(place) = self.table.find(key) {
            self.order.move_to_front(&mut self.table, place);
        }
    }

    #[inline]
    fn handle_miss(&mut self, _key: Key, bytes: Option<u64>) -> Admission {
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let object = self.table.get_mut(place);
                self.bytes = self.bytes.wrapping_sub(object.bytes).wrapping_add(bytes);
                object.bytes = bytes;
                self.order.move_to_front(&mut self.table, place);
            }
            None => {
                let place = self.table.insert(key, Object { links: Links::default(), bytes }).ok_or(TableFull)?;
                self.order.push_front(&mut self.table, place);
                self.bytes = self.bytes.wrapping_add(bytes);
            }
        }
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused
            && let Some(place) = self.table.find(key)
        {
            self.order.remove(&mut self.table, place);
            self.bytes = self.bytes.wrapping_sub(self.table.remove(place).bytes);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = match incoming {
            Some(incoming) => self.oldest_but(incoming.key),
            None => self.order.back(),
        };
        place.map(|place| self.table.key(place))
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.bytes, ghosts: 0 }
    }
}
