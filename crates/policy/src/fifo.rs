//! First in, first out: everything that fits is admitted, and the object that was inserted first goes first, however
//! often it was served.
//!
//! One of the policies that Kim et al. 2002 (section 3) compare: slightly worse there than [`Lru`](crate::Lru). Every
//! operation is O(1), and a hit costs nothing.

use crate::{Admission, Incoming, Key, Linked, Links, List, Occupancy, Place, Policy, Removal, Table, TableFull};

/// First in, first out. 40 to 48 bytes per object.
#[derive(Debug)]
pub struct Fifo {
    table: Table<Object>,
    /// Inserted last in front.
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

impl Fifo {
    /// For a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Fifo {
        Fifo { table: Table::new(objects_max as usize), order: List::default(), bytes: 0, bytes_max }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 { Admission::Admit } else { Admission::Reject }
    }

    fn oldest_but(&self, key: Key) -> Option<Place> {
        let oldest = self.order.back()?;
        if self.table.key(oldest) == key { List::before(&self.table, oldest) } else { Some(oldest) }
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
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

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// An object with a new size keeps its turn: it is the same object, and a use, too, would not change it.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let object = self.table.get_mut(place);
                self.bytes = self.bytes.wrapping_sub(object.bytes).wrapping_add(bytes);
                object.bytes = bytes;
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
