//! Belady's bound: a policy that is told all requests beforehand, and lets go the object whose next
//! use is farthest away. For studies: what no policy can do better.
//!
//! Read first: Belady 1966, "A study of replacement algorithms for a virtual-storage computer" (IBM
//! Systems Journal 5(2)), the algorithm MIN.
//!
//! MIN stores every object that is asked for. The fewest misses of a cache that may let a reply
//! pass, as [`Policy::poll_victim`] allows, are fewer: there an object is not stored if its own
//! next use is the farthest. Both are here.
//!
//! Where objects have the same size and memory counts, these are the least possible misses. Where
//! they differ in size it is a heuristic: the farthest ones go until there is room, whatever they
//! weigh. Finding the optimum then is NP-hard, and other policies may have fewer misses or fewer
//! missed bytes than this one.
//!
//! Each `handle_hit` and `handle_miss` is one request of the foretold ones. A request that is
//! another than the foretold one changes no other key's future. Every operation is O(log n), n
//! objects being in memory; the choice of a victim is O(1). A request that differs from the
//! foretold ones may look at those of its key that it skips.

use std::collections::HashMap;

use crate::{
    Admission, Heap, Heaped, Incoming, Key, Occupancy, Place, Policy, Position, Removal, Table,
    TableFull,
};

const NEVER: u32 = u32::MAX;

/// Farthest next use first. 4 bytes per foretold request, 48 to 56 bytes per key among them, and 72
/// to 80 bytes per object.
#[derive(Debug)]
pub struct Belady {
    /// All foretold keys, and objects that were not foretold.
    table: Table<Object>,
    /// The next victim is the least.
    order: Heap<Rank>,
    /// For each foretold request, the number of the next one with its key.
    next_uses: Box<[u32]>,
    /// Requests so far.
    now: u32,
    /// Uses of any object so far.
    uses: u64,
    may_decline: bool,
    objects_max: usize,
    bytes: u64,
    bytes_max: u64,
}

/// No two objects have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// How much less than [`NEVER`] the number of the request is that uses it next.
    nearness: u32,
    /// Number of its last use among all uses.
    used: u64,
}

#[derive(Clone, Debug, Default)]
struct Object {
    position: Position,
    /// The request that uses it next, or one before `now`, from which `next_uses` lead there.
    next_use: u32,
    foretold: bool,
    inserted: bool,
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

impl Belady {
    /// The bound for caches that may let a reply pass: for a memory of `bytes_max` that holds at
    /// most `objects_max` objects, and the keys of all requests in their order. From the 2^32 - 1st
    /// on they are taken for none.
    pub fn new(bytes_max: u64, objects_max: u32, future: impl IntoIterator<Item = Key>) -> Self {
        Self::construct(bytes_max, objects_max, future, true)
    }

    /// MIN, the bound for caches that store every object that fits; the other arguments are those
    /// of [`Belady::new`].
    pub fn storing_all(
        bytes_max: u64,
        objects_max: u32,
        future: impl IntoIterator<Item = Key>,
    ) -> Self {
        Self::construct(bytes_max, objects_max, future, false)
    }

    fn construct(
        bytes_max: u64,
        objects_max: u32,
        future: impl IntoIterator<Item = Key>,
        may_decline: bool,
    ) -> Self {
        let future = future.into_iter().take(NEVER as usize);
        let mut next_uses = Vec::with_capacity(future.size_hint().0);
        let mut firsts = Vec::new();
        let mut last_uses = HashMap::new();
        for (at, key) in (0u32..).zip(future) {
            match last_uses.insert(key, at) {
                Some(last) => next_uses[last as usize] = at,
                None => firsts.push((key, at)),
            }
            next_uses.push(NEVER);
        }
        let mut table = Table::new(firsts.len() + objects_max as usize);
        for (key, next_use) in firsts {
            table.insert(key, Object { next_use, foretold: true, ..Object::default() });
        }
        Self {
            table,
            order: Heap::new(objects_max as usize),
            next_uses: next_uses.into_boxed_slice(),
            now: 0,
            uses: 0,
            may_decline,
            objects_max: objects_max as usize,
            bytes: 0,
            bytes_max,
        }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    fn find_inserted(&self, key: Key) -> Option<Place> {
        self.table.find(key).filter(|&place| self.table.get(place).inserted)
    }

    /// The number of the request that uses an object next, of those still to come.
    fn next_use(&mut self, place: Place) -> u32 {
        let object = self.table.get_mut(place);
        while object.next_use < self.now {
            object.next_use = self.next_uses[object.next_use as usize];
        }
        object.next_use
    }

    fn rank(&mut self, place: Place) -> Rank {
        self.uses += 1;
        Rank { nearness: NEVER - self.next_use(place), used: self.uses }
    }

    /// A request is over, of the key at a place if it is followed.
    fn count(&mut self, place: Option<Place>) {
        self.now = self.now.saturating_add(1).min(NEVER - 1);
        if let Some(place) = place {
            self.next_use(place);
            if self.table.get(place).inserted {
                let rank = self.rank(place);
                self.order.set_rank(&mut self.table, place, rank);
            }
        }
    }

    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        let least = self.order.least()?;
        let Some(incoming) = incoming else { return Some(least) };
        let asked = self.table.find(incoming.key);
        let victim = if asked == Some(least) { self.order.least_but(least)? } else { least };
        if self.may_decline {
            let next_use = asked.map_or(NEVER, |place| self.next_use(place));
            let farther = self.order.rank(&self.table, victim).nearness < NEVER - next_use;
            return farther.then_some(victim);
        }
        Some(victim)
    }

    fn remove(&mut self, place: Place) {
        self.order.remove(&mut self.table, place);
        let object = self.table.get_mut(place);
        object.inserted = false;
        self.bytes = self.bytes.wrapping_sub(object.bytes);
        if !object.foretold {
            self.table.remove(place);
        }
    }
}

impl Policy for Belady {
    fn name(&self) -> &'static str {
        if self.may_decline { "belady" } else { "min" }
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.find_inserted(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        let place = self.table.find(key);
        self.count(place);
    }

    #[inline]
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        let place = self.table.find(key);
        self.count(place);
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        let found = self.table.find(key);
        match found.filter(|&place| self.table.get(place).inserted) {
            Some(place) => {
                self.bytes = self.bytes.wrapping_sub(self.table.get(place).bytes);
                let rank = self.rank(place);
                self.order.set_rank(&mut self.table, place, rank);
                self.table.get_mut(place).bytes = bytes;
            }
            None => {
                if self.order.len() == self.objects_max {
                    return Err(TableFull);
                }
                let unforeseen = || Object { next_use: NEVER, ..Object::default() };
                let place =
                    found.or_else(|| self.table.insert(key, unforeseen())).ok_or(TableFull)?;
                let object = self.table.get_mut(place);
                (object.inserted, object.bytes) = (true, bytes);
                let rank = self.rank(place);
                self.order.push(&mut self.table, place, rank);
            }
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused
            && let Some(place) = self.find_inserted(key)
        {
            self.remove(place);
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let place = self.find_inserted(key);
        if place.is_some() {
            self.count(place);
        }
        place.is_some()
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    /// The future is not counted as ghosts.
    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.order.len(), bytes: self.bytes, ghosts: 0 }
    }
}
