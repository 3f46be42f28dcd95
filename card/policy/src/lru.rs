//! Least recently used: everything that fits is admitted, and the object whose last use is longest
//! ago goes first.
//!
//! The policy against which Bos et al. 2009 (section 2.2, figure 5) set their own. Every operation
//! is O(1).

use crate::ordered::{Order, Ordered, is_incoming};
use crate::queue::{Object, Queue};
use crate::{Incoming, List, Place, Table};

/// Least recently used. 40 to 48 bytes per object.
pub type Lru = Ordered<LeastRecent>;

/// Most recently used in front.
#[derive(Clone, Copy, Debug)]
pub struct LeastRecent;

impl Lru {
    /// LRU for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_order(bytes_max, objects_max, LeastRecent)
    }
}

impl Order for LeastRecent {
    const NAME: &'static str = "lru";

    #[inline]
    fn use_object(&mut self, table: &mut Table<Object>, queue: &mut Queue, place: Place) {
        queue.move_to_front(table, place);
    }

    #[inline]
    fn victim(
        &mut self,
        table: &mut Table<Object>,
        queue: &mut Queue,
        incoming: Option<Incoming>,
    ) -> Option<Place> {
        let oldest = queue.back()?;
        if is_incoming(table, oldest, incoming) {
            List::before(table, oldest)
        } else {
            Some(oldest)
        }
    }
}
