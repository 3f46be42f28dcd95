//! 2Q: a FIFO for what is asked for the first time (`A1in`), the keys that it dropped lately
//! (`A1out`), and an LRU queue (`Am`) for what was asked for again while it was among those.
//!
//! Read first: Johnson and Shasha 1994, "2Q: a low overhead high performance buffer management
//! replacement algorithm" (VLDB 1994; the full version, figure 2). Uses in close succession, which
//! `A1in` absorbs, say nothing about an object; one after that does.
//!
//! The paper's pages are of one size. Here `Kin` and `Kout` are shares of the bytes and of the
//! number of objects, whichever is reached first; an object larger than `Kout` is not remembered.
//! `Am` has all that `A1in` leaves. If nothing is in `Am` though `A1in` is within its share, `A1in`
//! has to give.
//!
//! A poll changes nothing but that it takes the incoming object's key out of `A1out`. Every
//! operation is O(1).

use crate::queue::Home;
use crate::stages::{Stages, share_of};
use crate::{Admission, Incoming, Key, Occupancy, Place, Policy, Removal, TableFull};

/// Settings of [`TwoQ`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TwoQConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most, at most 2^30.
    pub objects_max: u32,
    /// `Kin` as a share of both, within 0..=1. Default: 0.25 (the paper's).
    pub in_share: f64,
    /// `Kout` as a share of both, within 0..=1: 40 to 48 bytes each. Default: 0.5 (the paper's).
    pub out_share: f64,
}

impl TwoQConfig {
    /// The defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { bytes_max, objects_max, in_share: 0.25, out_share: 0.5 }
    }
}

/// The policy. 40 to 48 bytes per object and per key remembered.
#[derive(Debug)]
pub struct TwoQ {
    /// `A1in`, `Am` and `A1out`.
    stages: Stages,
    in_objects_max: usize,
    in_bytes_max: u64,
    bytes_max: u64,
}

impl TwoQ {
    /// 2Q with default settings, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&TwoQConfig::new(bytes_max, objects_max))
    }

    /// Settings out of their bounds are brought into them.
    pub fn with_config(config: &TwoQConfig) -> Self {
        let ghosts_max = share_of(config.objects_max.into(), config.out_share) as u32;
        let stages = Stages::new(
            config.objects_max,
            ghosts_max,
            share_of(config.bytes_max, config.out_share),
        );
        Self {
            in_objects_max: share_of(stages.objects_max() as u64, config.in_share) as usize,
            in_bytes_max: share_of(config.bytes_max, config.in_share),
            stages,
            bytes_max: config.bytes_max,
        }
    }

    #[inline]
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.stages.objects_max() > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    #[inline]
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        let incoming = self.stages.expect(incoming);
        let stages = &self.stages;
        let oldest = stages.last_but(&stages.first, incoming);
        if stages.first.bytes() > self.in_bytes_max || stages.first.len() > self.in_objects_max {
            return oldest.or_else(|| stages.last_but(&stages.main, incoming));
        }
        stages.last_but(&stages.main, incoming).or(oldest)
    }

    #[inline]
    fn use_object(&mut self, place: Place) {
        let Stages { table, main, .. } = &mut self.stages;
        if table.get(place).home == Home::Main {
            main.move_to_front(table, place);
        }
    }
}

impl Policy for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.stages.find(key).is_some()
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
        if let Some(place) = self.stages.insert(key, bytes)? {
            self.use_object(place);
        }
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if let Some(place) = self.stages.find(key) {
            match removal {
                Removal::Evicted => self.stages.evict(place),
                Removal::Purged => self.stages.purge(place),
                Removal::Refused => {}
            }
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.stages.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        let place = self.stages.find(key);
        if let Some(place) = place {
            self.use_object(place);
        }
        place.is_some()
    }

    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.stages.table.key(place);
        self.stages.evict(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        self.stages.occupancy()
    }
}
