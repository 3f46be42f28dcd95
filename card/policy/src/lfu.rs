//! Least frequently used: everything that fits is admitted, and the object with the fewest uses
//! goes first; among equals, the one whose last use is longest ago.
//!
//! Uses are counted while an object is in memory and forgotten with it. So an object that was
//! popular once would stay for ever; against that there is *dynamic ageing*.
//!
//! # LFU-DA
//!
//! Read first: Arlitt, Cherkasova, Dilley, Friedrich and Jin 2000, "Evaluating content management
//! techniques for web proxy caches" (Performance Evaluation Review 27(4)). The victim is the object
//! of the least `K = F + L`, where `F` is its number of uses, and `L`, the memory's age, is the `K`
//! of the last victim, 0 at first. `K` is worked out at each use of an object, so one that is
//! not used any longer falls behind as `L` grows. There is nothing to set.
//!
//! Without ageing (`L` stays 0) it is the plain policy that Kim et al. 2002 (section 3) compare:
//! slightly better there than [`Lru`](crate::Lru).
//!
//! Every operation is O(log n), n objects being in memory; the choice of a victim is O(1).

use crate::{
    Admission, Heap, Heaped, Incoming, Key, Occupancy, Policy, Position, Removal, Table, TableFull,
};

/// Least frequently used. 64 to 72 bytes per object.
#[derive(Debug)]
pub struct Lfu {
    table: Table<Object>,
    /// The next victim is the least.
    order: Heap<Rank>,
    /// `L`; None without ageing.
    age: Option<u64>,
    /// Uses of any object so far.
    uses: u64,
    bytes: u64,
    bytes_max: u64,
}

/// No two objects have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// `K`.
    priority: u64,
    /// Number of its last use among all uses.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Object {
    position: Position,
    /// `F`.
    uses: u32,
    bytes: u64,
}

impl Heaped for Object {
    fn position(&self) -> &Position {
        &self.position
    }
    fn position_mut(&mut self) -> &mut Position {
        &mut self.position
    }
}

impl Lfu {
    /// LFU with dynamic ageing, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { age: Some(0), ..Self::without_ageing(bytes_max, objects_max) }
    }

    /// The plain policy: what was popular once stays until others have been used as often.
    pub fn without_ageing(bytes_max: u64, objects_max: u32) -> Self {
        let table = Table::new(objects_max as usize);
        Self { order: Heap::new(table.capacity()), table, age: None, uses: 0, bytes: 0, bytes_max }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    /// The rank of an object that is used now for the `uses`th time.
    fn rank(&mut self, uses: u32) -> Rank {
        self.uses += 1;
        Rank { priority: self.age.unwrap_or(0).saturating_add(u64::from(uses)), used: self.uses }
    }
}

impl Policy for Lfu {
    fn name(&self) -> &'static str {
        if self.age.is_some() { "lfu-da" } else { "lfu" }
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        if let Some(place) = self.table.find(key) {
            let object = self.table.get_mut(place);
            object.uses = object.uses.saturating_add(1);
            let uses = object.uses;
            let rank = self.rank(uses);
            self.order.set_rank(&mut self.table, place, rank);
        }
    }

    #[inline]
    fn handle_miss(&mut self, _key: Key, bytes: Option<u64>) -> Admission {
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// An insertion is a use, also of an object that has a new size.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let object = self.table.get_mut(place);
                self.bytes = self.bytes.wrapping_sub(object.bytes);
                object.bytes = bytes;
                self.handle_hit(key);
            }
            None => {
                let object = Object { uses: 1, bytes, ..Object::default() };
                let place = self.table.insert(key, object).ok_or(TableFull)?;
                let rank = self.rank(1);
                self.order.push(&mut self.table, place, rank);
            }
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused
            && let Some(place) = self.table.find(key)
        {
            if removal == Removal::Evicted
                && let Some(age) = &mut self.age
            {
                // The memory does not grow younger by a victim that had been passed over for being
                // the incoming object.
                *age = self.order.rank(&self.table, place).priority.max(*age);
            }
            self.order.remove(&mut self.table, place);
            self.bytes = self.bytes.wrapping_sub(self.table.remove(place).bytes);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.order.victim(&self.table, incoming);
        place.map(|place| self.table.key(place))
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.bytes, ghosts: 0 }
    }
}
