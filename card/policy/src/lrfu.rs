//! Least recently/frequently used: everything that fits is admitted, and the object whose uses,
//! weighted by how long ago they were, add up to the least goes first.
//!
//! Read first: Lee, Choi, Kim, Noh, Min, Cho and Kim 2001, "LRFU: a spectrum of policies that
//! subsumes the least recently used and least frequently used policies" (IEEE Transactions on
//! Computers 50(12)), sections 2 and 3.
//!
//! Time is the number of requests, hits and misses alike. A use `x` requests ago weighs `F(x) =
//! (1/2)^(lambda x)`, and an object's value (its *combined recency and frequency*, CRF) is the sum
//! over its uses while it is in memory: `C(t) = 1 + F(t - u) C(u)` at a use at time `t` after one
//! at `u`. lambda = 0 counts uses (LFU), lambda = 1 makes the last use outweigh all others together
//! (LRU).
//!
//! All values fall by the same factor while time passes, so their order changes at uses only. The
//! heap has `log2 C(u) + lambda u`, which is `log2 C(t) + lambda t` at every later time `t`: it
//! needs no renewal, and its precision suffices as long as lambda times the number of requests is
//! far below 2^52. Among equals the one whose last use is longest ago goes first.
//!
//! Every operation is O(log n), n objects being in memory; the choice of a victim is O(1).

use crate::{
    Admission, Heap, Heaped, Incoming, Key, Occupancy, Place, Policy, Position, Removal, Table,
    TableFull,
};

/// Settings of [`Lrfu`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrfuConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most; about 68 bytes each.
    pub objects_max: u32,
    /// Binary orders of magnitude that a use loses of its weight per request; from 0 (LFU) to 1
    /// (LRU).
    ///
    /// Default 0.001: a use weighs half after 1000 requests. The larger the memory, the smaller the
    /// best value (Lee et al. 2001, section 4).
    pub lambda: f64,
}

impl LrfuConfig {
    /// Defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { bytes_max, objects_max, lambda: 0.001 }
    }
}

/// Least recently/frequently used. 64 to 72 bytes per object.
#[derive(Debug)]
pub struct Lrfu {
    table: Table<Object>,
    /// The next victim is the least.
    order: Heap<Rank>,
    lambda: f64,
    /// Requests so far.
    now: u64,
    /// Uses of any object so far.
    uses: u64,
    bytes: u64,
    bytes_max: u64,
}

/// No two objects have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The bits of `log2 C(u) + lambda u`: it is not negative, so they have its order.
    value: u64,
    /// Number of its last use among all uses.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Object {
    position: Position,
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

impl Lrfu {
    /// LRFU with the default lambda, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&LrfuConfig::new(bytes_max, objects_max))
    }

    /// Allocates everything. A lambda out of its bounds is brought into them; what is not a number
    /// counts as the default.
    pub fn with_config(config: &LrfuConfig) -> Self {
        let table = Table::new(config.objects_max as usize);
        let lambda = if config.lambda.is_nan() { 0.001 } else { config.lambda.clamp(0.0, 1.0) };
        Self {
            order: Heap::new(table.capacity()),
            table,
            lambda,
            now: 0,
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

    /// The rank after a use now; `before` is the one of the use before, if there was one.
    fn rank(&mut self, before: Option<Rank>) -> Rank {
        self.uses += 1;
        let age = self.lambda * self.now as f64;
        let value = match before {
            Some(before) => (1.0 + (f64::from_bits(before.value) - age).exp2()).log2() + age,
            None => age,
        };
        Rank { value: value.to_bits(), used: self.uses }
    }

    fn note_use(&mut self, place: Place) {
        let before = self.order.rank(&self.table, place);
        let rank = self.rank(Some(before));
        self.order.set_rank(&mut self.table, place, rank);
    }

    fn remove(&mut self, place: Place) {
        self.order.remove(&mut self.table, place);
        self.bytes = self.bytes.wrapping_sub(self.table.remove(place).bytes);
    }
}

impl Policy for Lrfu {
    fn name(&self) -> &'static str {
        "lrfu"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        self.now += 1;
        if let Some(place) = self.table.find(key) {
            self.note_use(place);
        }
    }

    #[inline]
    fn handle_miss(&mut self, _key: Key, bytes: Option<u64>) -> Admission {
        self.now += 1;
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// An insertion is a use at the time of the last request, also of an object that has a new
    /// size.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let object = self.table.get_mut(place);
                self.bytes = self.bytes.wrapping_sub(object.bytes);
                object.bytes = bytes;
                self.note_use(place);
            }
            None => {
                let place = self
                    .table
                    .insert(key, Object { bytes, ..Object::default() })
                    .ok_or(TableFull)?;
                let rank = self.rank(None);
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
            self.remove(place);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.order.victim(&self.table, incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let Some(place) = self.table.find(key) else { return false };
        self.now += 1;
        self.note_use(place);
        true
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.order.victim(&self.table, incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.table.len(), bytes: self.bytes, ghosts: 0 }
    }
}
