//! S3-FIFO: a small FIFO that filters out what is used once, a main FIFO, and a FIFO of ghosts.
//!
//! Read first: Yang, Zhang, Qiu, Yue and Rashmi 2023, "FIFO queues are all you need for cache
//! eviction" (SOSP 2023; section 4, algorithm 1).
//!
//! A new object enters the small queue. At its end it goes on to the main queue if it was used
//! often enough there, else it goes and is remembered; a ghost that is asked for enters the main
//! queue. At the end of the main queue an object that was used gets another turn, which costs one
//! of its uses, of which three count. A hit costs a counter, and that only below three.
//!
//! The small queue has to give unless the main queue has more than its share. Objects that go on to
//! the main queue may bring it there; then the next victim is one of its own. So it is in the
//! authors' simulator; in algorithm 1 the main queue gives at once, besides the small queue.
//!
//! The paper's objects count as one each. Here the shares are of the bytes and of the number of
//! objects, whichever is reached first; an object larger than the ghosts' share is not remembered.
//! An object larger than the small queue's share enters it all the same: see
//! [`SizeLimit`](crate::SizeLimit) for one that does not.
//!
//! # Polls
//!
//! A poll moves objects on until the one at the end has to go. It rests there, so another poll
//! names the same object unless it has been used meanwhile. The incoming object, if it is there
//! already, is moved on like a used one.
//!
//! Every operation is O(1); the moves are amortised over insertions and uses.

use crate::stages::{Stages, share_of};
use crate::{Admission, Incoming, Key, Occupancy, Place, Policy, Removal, TableFull};

/// Uses that count.
const USES_MAX: u8 = 3;

/// Settings of [`S3Fifo`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct S3FifoConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most, at most 2^30.
    pub objects_max: u32,
    /// The small queue's share of both, within 0..=1. Default: 0.1 (the paper's).
    pub small_share: f64,
    /// The ghosts' share of both, within 0..=1: 40 to 48 bytes each. Default: 0.9 (the paper: as
    /// many as the main queue holds).
    pub ghost_share: f64,
    /// Uses in the small queue that lead to the main queue, at most 3. Default: 2 (the paper: more
    /// than one).
    pub uses_to_main: u8,
}

impl S3FifoConfig {
    /// The defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { bytes_max, objects_max, small_share: 0.1, ghost_share: 0.9, uses_to_main: 2 }
    }
}

/// The policy. 40 to 48 bytes per object and per ghost.
#[derive(Debug)]
pub struct S3Fifo {
    stages: Stages,
    main_objects_max: usize,
    main_bytes_max: u64,
    bytes_max: u64,
    uses_to_main: u8,
    /// A poll came to rest at the end of the small queue, and no victim went since.
    is_smalls_turn: bool,
}

impl S3Fifo {
    /// S3-FIFO with default settings, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&S3FifoConfig::new(bytes_max, objects_max))
    }

    /// Settings out of their bounds are brought into them.
    pub fn with_config(config: &S3FifoConfig) -> Self {
        let ghosts_max = share_of(config.objects_max.into(), config.ghost_share) as u32;
        let stages = Stages::new(
            config.objects_max,
            ghosts_max,
            share_of(config.bytes_max, config.ghost_share),
        );
        let objects_max = stages.objects_max() as u64;
        Self {
            main_objects_max: (objects_max - share_of(objects_max, config.small_share)) as usize,
            main_bytes_max: config
                .bytes_max
                .saturating_sub(share_of(config.bytes_max, config.small_share)),
            stages,
            bytes_max: config.bytes_max,
            uses_to_main: config.uses_to_main.min(USES_MAX),
            is_smalls_turn: false,
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

    /// Moves objects on until the last one of a queue has to go.
    #[inline]
    fn victim(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        let incoming = self.stages.expect(incoming);
        if self.is_smalls_turn || !self.is_mains_turn(incoming) {
            while let Some(place) = self.stages.first.back() {
                if self.stages.table.get(place).uses < self.uses_to_main && incoming != Some(place)
                {
                    self.is_smalls_turn = true;
                    return Some(place);
                }
                self.stages.promote(place);
            }
            self.is_smalls_turn = false;
        }
        let Stages { table, main, .. } = &mut self.stages;
        if main.len() == 1 && main.back() == incoming {
            return None;
        }
        while let Some(place) = main.back() {
            let object = table.get_mut(place);
            if object.uses > 0 {
                object.uses -= 1;
            } else if incoming != Some(place) {
                return Some(place);
            }
            main.move_to_front(table, place);
        }
        None
    }

    /// Whether the main queue has more than its share, and more than the incoming object.
    #[inline]
    fn is_mains_turn(&self, incoming: Option<Place>) -> bool {
        let main = &self.stages.main;
        (main.bytes() > self.main_bytes_max || main.len() > self.main_objects_max)
            && !(main.len() == 1 && main.back() == incoming)
    }

    #[inline]
    fn remove_victim(&mut self, place: Place) {
        self.is_smalls_turn = false;
        self.stages.evict(place);
    }

    #[inline]
    fn use_object(&mut self, place: Place) {
        let object = self.stages.table.get_mut(place);
        // A popular object's cache line stays clean.
        if object.uses < USES_MAX {
            object.uses += 1;
        }
    }
}

impl Policy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
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
                Removal::Evicted => self.remove_victim(place),
                Removal::Purged => self.stages.purge(place),
                Removal::Refused => {}
            }
        }
    }

    /// Moves objects on: see the module's documentation.
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
        self.remove_victim(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        self.stages.occupancy()
    }
}
