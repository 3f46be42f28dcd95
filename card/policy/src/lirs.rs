//! Low inter-reference recency set: what matters is how many other objects were used between an
//! object's last two uses, not how long ago the last one was.
//!
//! Read first: Jiang and Zhang 2002, "LIRS: an efficient low inter-reference recency set
//! replacement policy to improve buffer cache performance" (SIGMETRICS), section 3.
//!
//! The stack `S` has objects by their last use, some of them no longer in memory. Most of the
//! memory is for *LIR* objects, which were used again while they were in the stack, no lower than
//! its lowest LIR object; `S` ends with it. The others are *HIR*; those in memory wait in the queue
//! `Q` for their eviction. A use of an HIR object that is in `S`, in memory or not, makes it LIR;
//! then the lowest LIR objects become HIR, at the end of `Q`, until the others fit. While `Q` is
//! empty, a new object that fits the LIR share is LIR. So a scan of any length passes through `Q`
//! alone.
//!
//! # Where the paper leaves room, it is done so
//!
//! *Sizes.* The paper's blocks are of one size. Here the shares count bytes and objects, whichever
//! is used up first. An object larger than the LIR share is never LIR. Where an object comes that
//! is larger than all of `Q`, the lowest LIR objects follow those of `Q`: they would have passed
//! through it. To keep this rare, `Q` has a larger share of the bytes from the first object on
//! that has another size than the ones before: with the paper's 1 %, most objects of a web server
//! are larger than `Q` where memory is short, and each that is asked for once takes LIR objects
//! away.
//!
//! *Stack.* `S` grows with the objects that are not in memory, which its lowest LIR object keeps.
//! It is bounded by [`LirsConfig::stack_share`] in bytes and in objects: those not in memory go,
//! the first evicted first.
//!
//! Every operation is O(1), amortised (one that takes the lowest LIR object away also takes what is
//! between it and the next), but `poll_victim` for the sake of the lowest LIR object itself when
//! `Q` is empty: it looks for the next LIR object.

mod queue;

use crate::{
    Admission, Incoming, Key, Linked, Links, List, Occupancy, Place, Policy, Removal, Table,
    TableFull,
};
use queue::{Queue, QueueLinks};

/// Settings of [`Lirs`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LirsConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most; 2^28 at most.
    pub objects_max: u32,
    /// Share of the memory that is for HIR objects, from 0 to 1; at least 1 byte and one object.
    ///
    /// Default 0.01 (Jiang and Zhang 2002, section 4). More follows shifts of interest faster and
    /// bears scans worse.
    pub hir_share: f64,
    /// Share of the bytes that is for HIR objects as soon as objects of different sizes have come,
    /// from 0 to 1; it counts if it is more than `hir_share`.
    ///
    /// Default 0.2: on three web servers' logs it has 3 to 8 points more hits than 0.01 where
    /// memory is short, and about as many where it is not.
    pub sized_hir_share: f64,
    /// How many times the memory the objects in the stack have, from 1 to 4.
    ///
    /// Default 2; each whole number costs about 60 bytes per object. A lower one forgets objects
    /// that come again late.
    pub stack_share: f64,
}

impl LirsConfig {
    /// Defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self { bytes_max, objects_max, hir_share: 0.01, sized_hir_share: 0.2, stack_share: 2.0 }
    }
}

/// Low inter-reference recency set. 168 to 192 bytes per object, with those in the stack only.
#[derive(Debug)]
pub struct Lirs {
    table: Table<Object>,
    /// `S`: used last in front.
    stack: List,
    stack_sum: Sum,
    stack_max: Sum,
    queue_links: QueueLinks,
    /// `Q`: all HIR objects in memory, the next victim first.
    queue: Queue,
    /// Objects of the stack that are not in memory, evicted first in front.
    ghosts: Queue,
    lir_sum: Sum,
    lir_max: Sum,
    /// LIR bytes at most once sizes differ.
    sized_lir_bytes_max: u128,
    sizes: Sizes,
    bytes: u64,
    bytes_max: u64,
    objects_max: usize,
}

/// A number of objects and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    objects: usize,
    /// Any number of any sizes fit.
    bytes: u128,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.objects += 1;
        self.bytes += u128::from(bytes);
    }

    fn take(&mut self, bytes: u64) {
        self.objects -= 1;
        self.bytes -= u128::from(bytes);
    }

    fn exceeds(&self, max: &Self) -> bool {
        self.objects > max.objects || self.bytes > max.bytes
    }
}

/// Which sizes objects have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sizes {
    /// No object has come.
    #[default]
    None,
    /// All objects had this many bytes.
    One(u64),
    /// Different ones.
    Several,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Status {
    /// In memory and in the stack.
    Lir,
    /// In memory and in `queue`.
    #[default]
    Hir,
    /// In the stack and in `ghosts`.
    Ghost,
}

#[derive(Clone, Debug, Default)]
struct Object {
    links: Links,
    status: Status,
    is_stacked: bool,
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

impl Lirs {
    /// LIRS with the default shares, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_config(&LirsConfig::new(bytes_max, objects_max))
    }

    /// Allocates everything. Settings out of their bounds are brought into them; what is not a
    /// number counts as the default.
    pub fn with_config(config: &LirsConfig) -> Self {
        let bytes_max = config.bytes_max;
        let objects_max = config.objects_max.min(1 << 28) as usize;
        let hir_share =
            if config.hir_share.is_nan() { 0.01 } else { config.hir_share.clamp(0.0, 1.0) };
        let sized_hir_share = if config.sized_hir_share.is_nan() {
            0.2
        } else {
            config.sized_hir_share.clamp(0.0, 1.0)
        };
        let stack_share =
            if config.stack_share.is_nan() { 2.0 } else { config.stack_share.clamp(1.0, 4.0) };
        let hir_bytes = ((bytes_max as f64 * hir_share) as u64).max(1);
        let sized_hir_bytes = ((bytes_max as f64 * sized_hir_share) as u64).max(hir_bytes);
        let hir_objects = ((objects_max as f64 * hir_share) as usize).max(1);
        let stack_max = Sum {
            objects: (objects_max as f64 * stack_share) as usize,
            bytes: (bytes_max as f64 * stack_share) as u128,
        };
        let table = Table::new(objects_max + stack_max.objects);
        Self {
            queue_links: QueueLinks::new(table.capacity()),
            table,
            stack: List::default(),
            stack_sum: Sum::default(),
            stack_max,
            queue: Queue::default(),
            ghosts: Queue::default(),
            lir_sum: Sum::default(),
            lir_max: Sum {
                objects: objects_max.saturating_sub(hir_objects),
                bytes: u128::from(bytes_max.saturating_sub(hir_bytes)),
            },
            sized_lir_bytes_max: u128::from(bytes_max.saturating_sub(sized_hir_bytes)),
            sizes: Sizes::None,
            bytes: 0,
            bytes_max,
            objects_max,
        }
    }

    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }

    /// An object of this size comes.
    fn note_size(&mut self, bytes: u64) {
        match self.sizes {
            Sizes::None => self.sizes = Sizes::One(bytes),
            Sizes::One(one) if one != bytes => {
                self.sizes = Sizes::Several;
                self.lir_max.bytes = self.sized_lir_bytes_max;
                self.demote_surplus();
            }
            Sizes::One(_) | Sizes::Several => {}
        }
    }

    fn may_be_lir(&self, bytes: u64) -> bool {
        self.lir_max.objects > 0 && u128::from(bytes) <= self.lir_max.bytes
    }

    fn has_lir_room(&self, bytes: u64) -> bool {
        let mut sum = self.lir_sum;
        sum.add(bytes);
        !sum.exceeds(&self.lir_max)
    }

    /// Puts an object on top of the stack, in it or not.
    fn raise(&mut self, place: Place) {
        let object = self.table.get_mut(place);
        if object.is_stacked {
            self.stack.move_to_front(&mut self.table, place);
        } else {
            object.is_stacked = true;
            self.stack_sum.add(object.bytes);
            self.stack.push_front(&mut self.table, place);
        }
    }

    fn unstack(&mut self, place: Place) {
        let object = self.table.get_mut(place);
        object.is_stacked = false;
        self.stack_sum.take(object.bytes);
        self.stack.remove(&mut self.table, place);
    }

    /// Takes an object out of what its status says.
    fn leave(&mut self, place: Place) {
        match self.table.get(place).status {
            Status::Lir => self.lir_sum.take(self.table.get(place).bytes),
            Status::Hir => self.queue.remove(&mut self.queue_links, place),
            Status::Ghost => self.ghosts.remove(&mut self.queue_links, place),
        }
    }

    fn enter(&mut self, place: Place, status: Status) {
        let object = self.table.get_mut(place);
        object.status = status;
        match status {
            Status::Lir => self.lir_sum.add(object.bytes),
            Status::Hir => self.queue.push(&mut self.queue_links, place),
            Status::Ghost => self.ghosts.push(&mut self.queue_links, place),
        }
    }

    /// Gives an object another size, and has it in memory if it was a ghost.
    fn set_bytes(&mut self, place: Place, bytes: u64) {
        let object = self.table.get_mut(place);
        let before = std::mem::replace(&mut object.bytes, bytes);
        if object.status == Status::Ghost {
            self.bytes = self.bytes.wrapping_add(bytes);
        } else {
            self.bytes = self.bytes.wrapping_sub(before).wrapping_add(bytes);
        }
        for (sum, counts) in [
            (&mut self.stack_sum, object.is_stacked),
            (&mut self.lir_sum, object.status == Status::Lir),
        ] {
            if counts {
                sum.take(before);
                sum.add(bytes);
            }
        }
    }

    /// A use of an object that is, or is now, in memory.
    fn note_use(&mut self, place: Place) {
        let Object { status, is_stacked, bytes, .. } = *self.table.get(place);
        if status == Status::Lir {
            let was_lowest = self.stack.back() == Some(place);
            self.raise(place);
            if was_lowest {
                self.prune();
            }
            return;
        }
        self.leave(place);
        let is_promoted = is_stacked && self.may_be_lir(bytes);
        self.enter(place, if is_promoted { Status::Lir } else { Status::Hir });
        self.raise(place);
        if is_promoted {
            self.demote_surplus();
        }
        self.bound_stack();
    }

    /// Lets the lowest LIR objects become HIR until the others fit their share.
    fn demote_surplus(&mut self) {
        self.prune();
        while self.lir_sum.exceeds(&self.lir_max)
            && let Some(lowest) = self.stack.back()
        {
            self.leave(lowest);
            self.enter(lowest, Status::Hir);
            self.unstack(lowest);
            self.prune();
        }
    }

    /// Stack pruning: what is below the lowest LIR object leaves the stack.
    fn prune(&mut self) {
        while self.lir_sum.objects > 0
            && let Some(lowest) = self.stack.back()
            && self.table.get(lowest).status != Status::Lir
        {
            self.drop_from_stack(lowest);
        }
    }

    /// Takes an object out of the stack that is not LIR.
    fn drop_from_stack(&mut self, place: Place) {
        self.unstack(place);
        if self.table.get(place).status == Status::Ghost {
            self.leave(place);
            self.table.remove(place);
        }
    }

    fn bound_stack(&mut self) {
        while self.stack_sum.exceeds(&self.stack_max)
            && let Some(oldest) = self.ghosts.front()
        {
            self.drop_from_stack(oldest);
        }
    }

    fn victim(&self, incoming: Option<Incoming>) -> Option<Place> {
        let may_go =
            |place: &Place| incoming.is_none_or(|incoming| self.table.key(*place) != incoming.key);
        let waiting = self.queue.front();
        let waiting = waiting.filter(may_go).or_else(|| Queue::after(&self.queue_links, waiting?));
        let lirs = || {
            let is_lir = |place: &Place| self.table.get(*place).status == Status::Lir;
            std::iter::successors(self.stack.back(), |&place| List::before(&self.table, place))
                .filter(is_lir)
        };
        waiting.or_else(|| lirs().find(may_go))
    }

    /// Removes an object, in memory or not, and all memory of it.
    fn forget(&mut self, place: Place) {
        let Object { status, is_stacked, bytes, .. } = *self.table.get(place);
        self.leave(place);
        if is_stacked {
            self.unstack(place);
        }
        if status != Status::Ghost {
            self.bytes = self.bytes.wrapping_sub(bytes);
        }
        self.table.remove(place);
        if status == Status::Lir {
            self.prune();
        }
    }

    fn evict_at(&mut self, place: Place) {
        let Object { status, is_stacked, bytes, .. } = *self.table.get(place);
        if status == Status::Hir && is_stacked {
            self.leave(place);
            self.enter(place, Status::Ghost);
            self.bytes = self.bytes.wrapping_sub(bytes);
            self.bound_stack();
        } else {
            self.forget(place);
        }
    }
}

impl Policy for Lirs {
    fn name(&self) -> &'static str {
        "lirs"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some_and(|place| self.table.get(place).status != Status::Ghost)
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
        let found = self.table.find(key);
        let status = found.map(|place| self.table.get(place).status);
        if matches!(status, None | Some(Status::Ghost))
            && self.occupancy().objects == self.objects_max
        {
            return Err(TableFull);
        }
        self.note_size(bytes);
        // It may have left the stack.
        let found = self.table.find(key);
        let status = found.map(|place| self.table.get(place).status);
        let Some(place) = found else {
            let place =
                self.table.insert(key, Object { bytes, ..Object::default() }).ok_or(TableFull)?;
            self.bytes = self.bytes.wrapping_add(bytes);
            let is_lir = self.queue.is_empty() && self.has_lir_room(bytes);
            self.enter(place, if is_lir { Status::Lir } else { Status::Hir });
            self.raise(place);
            self.prune();
            self.bound_stack();
            return Ok(());
        };
        self.set_bytes(place, bytes);
        self.note_use(place);
        if status == Some(Status::Lir) {
            self.demote_surplus();
            self.bound_stack();
        }
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        let Some(place) = self.table.find(key) else { return };
        match removal {
            Removal::Refused => {}
            Removal::Purged => self.forget(place),
            Removal::Evicted if self.table.get(place).status == Status::Ghost => {}
            Removal::Evicted => self.evict_at(place),
        }
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.victim(incoming).map(|place| self.table.key(place))
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        match self.table.find(key) {
            Some(place) if self.table.get(place).status != Status::Ghost => {
                self.note_use(place);
                true
            }
            _ => false,
        }
    }

    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let place = self.victim(incoming)?;
        let key = self.table.key(place);
        self.evict_at(place);
        Some(key)
    }

    fn occupancy(&self) -> Occupancy {
        let objects = self.lir_sum.objects + self.queue.len();
        Occupancy { objects, bytes: self.bytes, ghosts: self.ghosts.len() }
    }
}
