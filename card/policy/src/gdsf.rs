//! Greedy dual size frequency: everything that fits is admitted, and the object that gives the
//! least for its bytes goes first.
//!
//! Read first: Cherkasova 1998, "Improving WWW proxies performance with greedy-dual-size-frequency
//! caching policy" (HP Laboratories, HPL-98-69R1).
//!
//! The victim is the object of the least `K = L + F * cost / bytes`, where `F` is its number of
//! uses while it is in memory and `L`, the memory's age, is the `K` of the last victim, 0 at first.
//! `K` is worked out at each use. So one large object makes room for many small ones, and what was
//! popular once falls behind as `L` grows. With a cost that is proportional to the bytes it would
//! be [`Lfu`](crate::Lfu) with ageing.
//!
//! Among equals the one whose last use is longest ago goes first; 0 bytes count as 1. Deliberately
//! absent: the report's look ahead, by which an object that would be among the victims for itself
//! is not stored.
//!
//! Every operation is O(log n), n objects being in memory; the choice of a victim is O(1).

use crate::{
    Admission, Heap, Heaped, Incoming, Key, Occupancy, Place, Policy, Position, Removal, Table,
    TableFull,
};

/// What a miss costs: the aim of [`Gdsf`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GdsfCost {
    /// 1, whatever the size: few misses. The default.
    #[default]
    Request,
    /// The packets that bring the object, 2 + bytes / 536 (Cao and Irani 1997, "Cost-aware WWW
    /// proxy caching algorithms"): few bytes missed.
    Packets,
}

impl GdsfCost {
    fn of(self, bytes: f64) -> f64 {
        match self {
            Self::Request => 1.0,
            Self::Packets => 2.0 + bytes / 536.0,
        }
    }
}

/// Settings of [`Gdsf`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdsfConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most; about 68 bytes each.
    pub objects_max: u32,
    /// Default [`GdsfCost::Request`]. The wrong one costs hits, nothing else.
    pub cost: GdsfCost,
}

impl GdsfConfig {
    /// Defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { bytes_max, objects_max, cost: GdsfCost::default() }
    }
}

/// Greedy dual size frequency. 64 to 72 bytes per object.
#[derive(Debug)]
pub struct Gdsf {
    table: Table<Object>,
    /// The next victim is the least.
    order: Heap<Rank>,
    cost: GdsfCost,
    /// `L`.
    age: f64,
    /// Uses of any object so far.
    uses: u64,
    bytes: u64,
    bytes_max: u64,
}

/// No two objects have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The bits of `K`: it is not negative, so they have its order.
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

impl Gdsf {
    /// GDSF with the default cost, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&GdsfConfig::new(bytes_max, objects_max))
    }

    /// GDSF with these settings. Allocates everything.
    pub fn with_config(config: &GdsfConfig) -> Self {
        let table = Table::new(config.objects_max as usize);
        Self {
            order: Heap::new(table.capacity()),
            table,
            cost: config.cost,
            age: 0.0,
            uses: 0,
            bytes: 0,
            bytes_max: config.bytes_max,
        }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.table.capacity() > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    /// The rank of an object that is used now for the `uses`th time.
    fn rank(&mut self, uses: u32, bytes: u64) -> Rank {
        self.uses += 1;
        let bytes = bytes.max(1) as f64;
        let priority = self.age + f64::from(uses) * self.cost.of(bytes) / bytes;
        Rank { priority: priority.to_bits(), used: self.uses }
    }

    fn note_use(&mut self, place: Place) {
        let object = self.table.get_mut(place);
        object.uses = object.uses.saturating_add(1);
        let (uses, bytes) = (object.uses, object.bytes);
        let rank = self.rank(uses, bytes);
        self.order.set_rank(&mut self.table, place, rank);
    }

    fn remove(&mut self, place: Place, removal: Removal) {
        if removal == Removal::Evicted {
            // The memory does not grow younger by a victim that had been passed over for being the
            // incoming object.
            self.age = self.age.max(f64::from_bits(self.order.rank(&self.table, place).priority));
        }
        self.order.remove(&mut self.table, place);
        self.bytes = self.bytes.wrapping_sub(self.table.remove(place).bytes);
    }
}

impl Policy for Gdsf {
    fn name(&self) -> &'static str {
        "gdsf"
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
                self.note_use(place);
            }
            None => {
                let object = Object { uses: 1, bytes, ..Object::default() };
                let place = self.table.insert(key, object).ok_or(TableFull)?;
                let rank = self.rank(1, bytes);
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
            self.remove(place, removal);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.order.victim(&self.table, incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let Some(place) = self.table.find(key) else { return false };
        self.note_use(place);
        true
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.order.victim(&self.table, incoming)?;
        let key = self.table.key(place);
        self.remove(place, Removal::Evicted);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.bytes, ghosts: 0 }
    }
}
