//! Window TinyLFU: an object stays if it was asked for more often lately than the one whose place
//! it takes; a small window in front gives new objects the time to be asked for again.
//!
//! Read first: Einziger, Friedman and Manes 2017, "TinyLFU: a highly efficient cache admission
//! policy" (ACM Transactions on Storage 13(4)), sections 3 and 4.
//!
//! The memory has a *window* (LRU) and a *main* part, a segmented LRU of *probation* and
//! *protected*. An object enters the window; what the window has no room for any longer enters
//! probation; a use in probation moves it to protected, and what protected has no room for goes
//! back to probation. Requests of all keys, hits and misses alike, are counted in a sketch of a few
//! bits per key, and all counts are halved every so many requests. When the memory is full, the
//! last of the window and the last of probation are compared, and the one that was asked for less
//! goes; in case of doubt the one of the window.
//!
//! # Where the paper leaves room, it is done so
//!
//! *Sizes.* The paper's objects are of one size. Here the parts count bytes and objects, whichever
//! is used up first, and the window takes at least an object of the mean size, `bytes_max /
//! objects_max`. An object that is larger than the window does not pass through it: it is itself
//! compared with the last of probation, for each victim that it needs, and if one was asked for as
//! often or more, it is not stored. Frequencies are compared whatever the sizes are.
//!
//! *Room.* As long as the window has room for the incoming object, the main part has more than its
//! share and gives the victim without comparison. Where probation is empty, the last of protected
//! takes its part.
//!
//! *Sample.* The number of requests after which counts are halved is in proportion to the objects
//! that are in memory at that time, because with sizes their number is not known beforehand.
//!
//! Deliberately absent: the doorkeeper, a Bloom filter that keeps keys asked for once out of the
//! sketch. It makes the sketch smaller, which here takes 8 bytes per object.
//!
//! Every operation is O(1), amortised; halving the counts takes time in proportion to the sketch.

mod sketch;

use crate::{
    Admission, Incoming, Key, Linked, Links, List, Occupancy, Place, Policy, Removal, Table,
    TableFull,
};
use sketch::Sketch;

/// Settings of [`WTinyLfu`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WTinyLfuConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most.
    pub objects_max: u32,
    /// Share of the memory that is the window, from 0 to 1; at least one object.
    ///
    /// Default 0.01 (Einziger et al. 2017, section 4.1). More suits requests that come in bursts.
    pub window_share: f64,
    /// Share of the main part that is protected, from 0 to 1. Default 0.8 (the same section).
    pub protected_share: f64,
    /// Requests per object in memory after which all counts are halved; 1 at least.
    ///
    /// Default 10. More remembers longer, but no count exceeds 15.
    pub sample_per_object: u32,
    /// Counters of 4 bits in the sketch; rounded up to a power of two of 64 bytes.
    ///
    /// Default 16 per object of `objects_max`. Fewer take keys for more popular than they are.
    pub counters: u64,
}

impl WTinyLfuConfig {
    /// Defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self {
            bytes_max,
            objects_max,
            window_share: 0.01,
            protected_share: 0.8,
            sample_per_object: 10,
            counters: 16 * u64::from(objects_max),
        }
    }
}

/// Window TinyLFU. 48 to 56 bytes per object, and the sketch: 8 to 16 bytes per object by default.
#[derive(Debug)]
pub struct WTinyLfu {
    table: Table<Object>,
    /// By [`Home`], each with its last use in front.
    parts: [Part; 3],
    window_max: Limit,
    protected_max: Limit,
    sketch: Sketch,
    sample_per_object: u64,
    bytes_max: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Home {
    #[default]
    Window,
    Probation,
    Protected,
}

#[derive(Clone, Copy, Debug, Default)]
struct Part {
    list: List,
    /// Any number of any sizes fit.
    bytes: u128,
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    objects: usize,
    bytes: u64,
}

impl Part {
    fn exceeds(&self, limit: Limit) -> bool {
        self.list.len() > limit.objects || self.bytes > u128::from(limit.bytes)
    }

    fn has_room(&self, limit: Limit, bytes: u64) -> bool {
        self.list.len() < limit.objects && self.bytes + u128::from(bytes) <= u128::from(limit.bytes)
    }
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

impl WTinyLfu {
    /// W-TinyLFU with the default shares, for a memory of `bytes_max` that holds at most
    /// `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&WTinyLfuConfig::new(bytes_max, objects_max))
    }

    /// Allocates everything. Settings out of their bounds are brought into them; what is not a
    /// number counts as 0.
    pub fn with_config(config: &WTinyLfuConfig) -> Self {
        let table = Table::new(config.objects_max as usize);
        let memory = Limit { objects: table.capacity(), bytes: config.bytes_max };
        let mut window_max = memory.share(config.window_share);
        window_max.objects = window_max.objects.max(1).min(memory.objects);
        window_max.bytes = window_max.bytes.max(memory.bytes / memory.objects.max(1) as u64);
        let main_max = Limit {
            objects: memory.objects - window_max.objects,
            bytes: memory.bytes - window_max.bytes,
        };
        Self {
            table,
            parts: [Part::default(); 3],
            window_max,
            protected_max: main_max.share(config.protected_share),
            sketch: Sketch::new(config.counters),
            sample_per_object: u64::from(config.sample_per_object.max(1)),
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

    fn part(&self, home: Home) -> &Part {
        &self.parts[home as usize]
    }

    fn count(&mut self, key: Key) {
        let sample = self.sample_per_object * self.table.len().max(1) as u64;
        self.sketch.count(key, sample);
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
        match self.table.get(place).home {
            Home::Probation => {
                self.leave(place);
                self.enter(place, Home::Protected);
                self.settle();
            }
            home => self.parts[home as usize].list.move_to_front(&mut self.table, place),
        }
    }

    /// Moves what the window and protected have no room for to probation.
    fn settle(&mut self) {
        for (home, limit) in
            [(Home::Window, self.window_max), (Home::Protected, self.protected_max)]
        {
            while self.part(home).exceeds(limit)
                && let Some(last) = self.part(home).list.back()
            {
                self.leave(last);
                self.enter(last, Home::Probation);
            }
        }
    }

    fn last_but(&self, home: Home, key: Option<Key>) -> Option<Place> {
        let last = self.part(home).list.back()?;
        if Some(self.table.key(last)) == key { List::before(&self.table, last) } else { Some(last) }
    }

    fn victim(&self, incoming: Option<Incoming>) -> Option<Place> {
        let key = incoming.map(|incoming| incoming.key);
        let of_window = self.last_but(Home::Window, key);
        let of_main =
            self.last_but(Home::Probation, key).or_else(|| self.last_but(Home::Protected, key));
        match incoming {
            Some(incoming) if incoming.bytes > self.window_max.bytes => {
                let victim = of_main.or(of_window)?;
                self.is_rather_kept(incoming.key, victim).then_some(victim)
            }
            Some(incoming) if self.part(Home::Window).has_room(self.window_max, incoming.bytes) => {
                of_main.or(of_window)
            }
            _ => match (of_window, of_main) {
                (Some(candidate), Some(victim))
                    if self.is_rather_kept(self.table.key(candidate), victim) =>
                {
                    of_main
                }
                _ => of_window.or(of_main),
            },
        }
    }

    /// Whether the candidate was asked for more often lately than the victim.
    fn is_rather_kept(&self, candidate: Key, victim: Place) -> bool {
        self.sketch.frequency(candidate) > self.sketch.frequency(self.table.key(victim))
    }

    fn remove(&mut self, place: Place) {
        self.leave(place);
        self.table.remove(place);
    }
}

impl Limit {
    fn share(self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        Self {
            objects: (self.objects as f64 * share) as usize,
            bytes: self.bytes.min((self.bytes as f64 * share) as u64),
        }
    }
}

impl Policy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some()
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        self.count(key);
        if let Some(place) = self.table.find(key) {
            self.note_use(place);
        }
    }

    #[inline]
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        self.count(key);
        self.admits(bytes.unwrap_or(0))
    }

    fn handle_reply(&mut self, _key: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }

    /// An insertion of an object that is in memory, with a new size, is a use.
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        match self.table.find(key) {
            Some(place) => {
                let home = self.table.get(place).home;
                self.leave(place);
                self.table.get_mut(place).bytes = bytes;
                self.enter(place, home);
                self.note_use(place);
            }
            None => {
                let place = self
                    .table
                    .insert(key, Object { bytes, ..Object::default() })
                    .ok_or(TableFull)?;
                self.enter(
                    place,
                    if bytes > self.window_max.bytes { Home::Probation } else { Home::Window },
                );
            }
        }
        self.settle();
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
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let Some(place) = self.table.find(key) else { return false };
        self.count(key);
        self.note_use(place);
        true
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.remove(place);
        Some(key)
    }

    /// Counts in the sketch are of no key in particular: there are no ghosts.
    fn occupancy(&self) -> Occupancy {
        let bytes = self.parts.iter().map(|part| part.bytes).sum::<u128>() as u64;
        Occupancy { objects: self.table.len(), bytes, ghosts: 0 }
    }
}
