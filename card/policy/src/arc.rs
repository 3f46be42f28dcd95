//! Adaptive replacement: two lists, of what was used once and of what was used again, whose shares
//! of the memory follow the hits among the ghosts of each.
//!
//! Read first: Megiddo and Modha 2003, "ARC: a self-tuning, low overhead replacement cache" (FAST
//! '03), figure 4.
//!
//! `T1` has the objects used once since they came, `T2` the others, both by last use; `B1` and `B2`
//! remember the keys of their victims. `p` is the target for the size of `T1`: a request for a
//! ghost in `B1` raises it, one in `B2` lowers it.
//!
//! # With sizes
//!
//! The paper's pages are of one size, 1. Here all four lists count bytes, `p` is in bytes, and one
//! request for a ghost moves it by the ghost's bytes times the paper's `max(1, |B2| / |B1|)` (or
//! its inverse), so it takes as many requests as with pages to move `p` by one list. The
//! directory keeps the paper's bounds in bytes and in objects: `|T1| + |B1|` at most the memory,
//! all four lists at most twice the memory. With objects of one size the result is exactly the
//! paper's: its case IV deletes a ghost before it replaces and this policy when the new object
//! comes, which is the same ghost, or the object evicted just then, which the paper does not
//! remember either.
//!
//! A ghost that is asked for stays one until its object is inserted, because misses overlap. Every
//! operation is O(1), amortised: one insertion may forget several small ghosts.

use crate::{
    Admission, Incoming, Key, Linked, Links, List, Occupancy, Place, Policy, Removal, Table,
    TableFull,
};

/// Adaptive replacement. 96 to 112 bytes per object, with its ghosts.
#[derive(Debug)]
pub struct Arc {
    table: Table<Object>,
    /// By [`Home`], each with its last use in front.
    parts: [Part; 4],
    /// `p`.
    target: f64,
    objects_max: usize,
    bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Home {
    /// In memory, used once.
    #[default]
    T1,
    /// In memory, used again.
    T2,
    /// Ghosts of victims from T1.
    B1,
    /// Ghosts of victims from T2.
    B2,
}

impl Home {
    fn is_ghost(self) -> bool {
        matches!(self, Self::B1 | Self::B2)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    list: List,
    /// Any number of any sizes fit.
    bytes: u128,
}

#[derive(Clone, Debug, Default)]
struct Object {
    links: Links,
    home: Home,
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

impl Arc {
    /// ARC for a memory of `bytes_max` that holds at most `objects_max` objects (2^30).
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        let objects_max = objects_max.min(1 << 30) as usize;
        let parts = [Part::default(); 4];
        Self { table: Table::new(2 * objects_max), parts, target: 0.0, objects_max, bytes_max }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    fn part(&self, home: Home) -> &Part {
        &self.parts[home as usize]
    }

    fn leave(&mut self, place: Place) {
        let Object { home, bytes, .. } = *self.table.get(place);
        let part = &mut self.parts[home as usize];
        part.list.remove(&mut self.table, place);
        part.bytes -= u128::from(bytes);
    }

    fn enter(&mut self, place: Place, home: Home) {
        let object = self.table.get_mut(place);
        object.home = home;
        let part = &mut self.parts[home as usize];
        part.bytes += u128::from(object.bytes);
        part.list.push_front(&mut self.table, place);
    }

    fn note_use(&mut self, place: Place) {
        if self.table.get(place).home == Home::T2 {
            self.parts[Home::T2 as usize].list.move_to_front(&mut self.table, place);
        } else {
            self.leave(place);
            self.enter(place, Home::T2);
        }
    }

    /// Cases II and III: moves `p` for a request of a ghost.
    fn adapt(&mut self, place: Place) {
        let Object { home, bytes, .. } = *self.table.get(place);
        if bytes == 0 {
            return;
        }
        let (b1, b2) = (self.part(Home::B1).bytes as f64, self.part(Home::B2).bytes as f64);
        let target = match home {
            Home::B1 => self.target + bytes as f64 * (b2 / b1).max(1.0),
            Home::B2 => self.target - bytes as f64 * (b1 / b2).max(1.0),
            Home::T1 | Home::T2 => return,
        };
        self.target = target.clamp(0.0, self.bytes_max as f64);
    }

    fn last_but(&self, home: Home, key: Option<Key>) -> Option<Place> {
        let last = self.part(home).list.back()?;
        if Some(self.table.key(last)) == key { List::before(&self.table, last) } else { Some(last) }
    }

    /// The paper's REPLACE.
    fn victim(&self, incoming: Option<Incoming>) -> Option<Place> {
        let key = incoming.map(|incoming| incoming.key);
        let once = self.part(Home::T1).bytes as f64;
        let at_target = || {
            let asked = key.and_then(|key| self.table.find(key));
            asked.is_some_and(|place| self.table.get(place).home == Home::B2)
        };
        let (first, second) = if once > self.target || once == self.target && at_target() {
            (Home::T1, Home::T2)
        } else {
            (Home::T2, Home::T1)
        };
        self.last_but(first, key).or_else(|| self.last_but(second, key))
    }

    fn make_ghost(&mut self, place: Place) {
        let home = if self.table.get(place).home == Home::T1 { Home::B1 } else { Home::B2 };
        self.leave(place);
        self.enter(place, home);
        self.bound_ghosts(0, 0);
    }

    /// Forgets the oldest ghosts until `objects` more of `bytes` may come into T1.
    fn bound_ghosts(&mut self, objects: usize, bytes: u64) {
        while let Some(ghost) = self.surplus_ghost(objects, bytes) {
            self.leave(ghost);
            self.table.remove(ghost);
        }
    }

    fn surplus_ghost(&self, objects: usize, bytes: u64) -> Option<Place> {
        let [t1, t2, b1, b2] = &self.parts;
        let exceed = |memories: usize, parts: &[&Part]| {
            let objects_sum = objects + parts.iter().map(|part| part.list.len()).sum::<usize>();
            let bytes_sum = u128::from(bytes) + parts.iter().map(|part| part.bytes).sum::<u128>();
            objects_sum > memories * self.objects_max
                || bytes_sum > memories as u128 * u128::from(self.bytes_max)
        };
        if exceed(1, &[t1, b1]) && !b1.list.is_empty() {
            return b1.list.back();
        }
        if exceed(2, &[t1, t2, b1, b2]) { b2.list.back().or_else(|| b1.list.back()) } else { None }
    }
}

impl Policy for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some_and(|place| !self.table.get(place).home.is_ghost())
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        self.handle_request(key);
    }

    #[inline]
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        if let Some(place) = self.table.find(key) {
            self.adapt(place);
        }
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// An insertion of an object that is in memory, with a new size, is a use.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        let found = self.table.find(key);
        let is_new = found.is_none_or(|place| self.table.get(place).home.is_ghost());
        if is_new && self.occupancy().objects == self.objects_max {
            return Err(TableFull);
        }
        match found {
            Some(place) => {
                self.leave(place);
                self.table.get_mut(place).bytes = bytes;
                self.enter(place, Home::T2);
                self.bound_ghosts(0, 0);
            }
            None => {
                self.bound_ghosts(1, bytes);
                let place = self
                    .table
                    .insert(key, Object { bytes, ..Object::default() })
                    .ok_or(TableFull)?;
                self.enter(place, Home::T1);
            }
        }
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        let Some(place) = self.table.find(key) else { return };
        match removal {
            Removal::Refused => {}
            Removal::Purged => {
                self.leave(place);
                self.table.remove(place);
            }
            Removal::Evicted if self.table.get(place).home.is_ghost() => {}
            Removal::Evicted => self.make_ghost(place),
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        match self.table.find(key) {
            Some(place) if !self.table.get(place).home.is_ghost() => {
                self.note_use(place);
                true
            }
            _ => false,
        }
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.make_ghost(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        let [t1, t2, b1, b2] = &self.parts;
        Occupancy {
            objects: t1.list.len() + t2.list.len(),
            bytes: (t1.bytes + t2.bytes) as u64,
            ghosts: b1.list.len() + b2.list.len(),
        }
    }
}
