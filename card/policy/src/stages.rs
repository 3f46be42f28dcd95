//! Objects that come in through a first queue, go on to a main queue, and are remembered as ghosts
//! when the first queue drops them: what 2Q and S3-FIFO have in common.
//!
//! All three are of one table: a look-up finds an object or its ghost, and an object that becomes a
//! ghost stays where it is.
//!
//! A ghost for whose object room is being made is *returning*: it no longer counts as a ghost, so
//! the victims' ghosts do not push it out before it is inserted. There is one at a time; if
//! another comes instead, it is the newest ghost again.

use crate::queue::{Home, Object, Queue};
use crate::{Incoming, Key, List, Occupancy, Place, Table, TableFull};

/// The queues. 40 to 48 bytes per object or ghost.
#[derive(Debug)]
pub(crate) struct Stages {
    pub table: Table<Object>,
    pub first: Queue,
    pub main: Queue,
    ghosts: Queue,
    returning: Option<Place>,
    objects_max: usize,
    ghosts_max: usize,
    ghost_bytes_max: u64,
}

impl Stages {
    /// For at most `objects_max` objects (at most 2^30) and as many ghosts as are within both of
    /// their limits.
    pub(crate) fn new(objects_max: u32, ghosts_max: u32, ghost_bytes_max: u64) -> Self {
        let objects_max = objects_max.min(1 << 30) as usize;
        let ghosts_max = (ghosts_max as usize).min(objects_max);
        Self {
            table: Table::new(objects_max + ghosts_max + 1),
            first: Queue::default(),
            main: Queue::default(),
            ghosts: Queue::default(),
            returning: None,
            objects_max,
            ghosts_max,
            ghost_bytes_max,
        }
    }

    /// Objects that it can hold.
    #[inline]
    pub(crate) fn objects_max(&self) -> usize {
        self.objects_max
    }

    /// Objects in it.
    #[inline]
    pub(crate) fn objects(&self) -> usize {
        self.first.len() + self.main.len()
    }

    /// Where an object is, if in memory.
    #[inline]
    pub(crate) fn find(&self, key: Key) -> Option<Place> {
        self.table.find(key).filter(|&place| self.is_object(place))
    }

    /// Takes the incoming object's ghost, if there is one, out of the ghosts; where the object is
    /// if in memory already.
    #[inline]
    pub(crate) fn expect(&mut self, incoming: Option<Incoming>) -> Option<Place> {
        let place = self.table.find(incoming?.key)?;
        match self.table.get(place).home {
            Home::First | Home::Main => return Some(place),
            Home::Ghost => {
                self.ghosts.remove(&mut self.table, place);
                self.table.get_mut(place).home = Home::Returning;
                if let Some(other) = self.returning.replace(place) {
                    self.remember(other);
                }
            }
            Home::Returning => {}
        }
        None
    }

    /// Puts an object in front of the main queue if it was a ghost, else of the first queue. One
    /// that is there already gets its new size and stays where it is, which is the answer.
    #[inline]
    pub(crate) fn insert(&mut self, key: Key, bytes: u64) -> Result<Option<Place>, TableFull> {
        let found = self.table.find(key);
        if let Some(place) = found
            && self.is_object(place)
        {
            let queue = if self.table.get(place).home == Home::First {
                &mut self.first
            } else {
                &mut self.main
            };
            queue.resize(&mut self.table, place, bytes);
            return Ok(Some(place));
        }
        if self.objects() >= self.objects_max {
            return Err(TableFull);
        }
        if let Some(place) = found {
            if self.returning == Some(place) {
                self.returning = None;
            } else {
                self.ghosts.remove(&mut self.table, place);
            }
            let object = self.table.get_mut(place);
            *object = Object::new(bytes);
            object.home = Home::Main;
            self.main.push_front(&mut self.table, place);
        } else {
            let place = self.table.insert(key, Object::new(bytes)).ok_or(TableFull)?;
            self.first.push_front(&mut self.table, place);
        }
        Ok(None)
    }

    /// Moves an object from the first queue to the main queue; its uses are forgotten.
    #[inline]
    pub(crate) fn promote(&mut self, place: Place) {
        self.first.remove(&mut self.table, place);
        let object = self.table.get_mut(place);
        (object.home, object.uses) = (Home::Main, 0);
        self.main.push_front(&mut self.table, place);
    }

    /// Takes an object out; one of the first queue becomes the newest ghost.
    #[inline]
    pub(crate) fn evict(&mut self, place: Place) {
        if self.table.get(place).home == Home::First {
            self.first.remove(&mut self.table, place);
            self.remember(place);
        } else {
            self.purge(place);
        }
    }

    /// Takes an object out and forgets it.
    pub(crate) fn purge(&mut self, place: Place) {
        let queue = if self.table.get(place).home == Home::First {
            &mut self.first
        } else {
            &mut self.main
        };
        queue.remove(&mut self.table, place);
        self.table.remove(place);
    }

    /// The last object of a queue but one that is not wanted.
    #[inline]
    pub(crate) fn last_but(&self, queue: &Queue, unwanted: Option<Place>) -> Option<Place> {
        let last = queue.back()?;
        if unwanted == Some(last) { List::before(&self.table, last) } else { Some(last) }
    }

    /// What there is.
    pub(crate) fn occupancy(&self) -> Occupancy {
        Occupancy {
            objects: self.objects(),
            bytes: self.first.bytes().wrapping_add(self.main.bytes()),
            ghosts: self.ghosts.len() + usize::from(self.returning.is_some()),
        }
    }

    #[inline]
    fn is_object(&self, place: Place) -> bool {
        matches!(self.table.get(place).home, Home::First | Home::Main)
    }

    /// Makes the newest ghost of what is in no queue, unless it is too large.
    #[inline]
    fn remember(&mut self, place: Place) {
        let bytes = self.table.get(place).bytes();
        if bytes > self.ghost_bytes_max || self.ghosts_max == 0 {
            self.table.remove(place);
            return;
        }
        while (self.ghosts.len() >= self.ghosts_max
            || self.ghosts.bytes() > self.ghost_bytes_max - bytes)
            && let Some(oldest) = self.ghosts.back()
        {
            self.ghosts.remove(&mut self.table, oldest);
            self.table.remove(oldest);
        }
        self.table.get_mut(place).home = Home::Ghost;
        self.ghosts.push_front(&mut self.table, place);
    }
}

/// A share of a number of bytes or objects, rounded down; shares are within 0..=1, and what is not
/// a number is 0.
pub(crate) fn share_of(whole: u64, share: f64) -> u64 {
    (whole as f64 * share.clamp(0.0, 1.0)) as u64
}
