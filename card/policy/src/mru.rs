//! Most recently used: everything that fits is admitted, and the object that was used last goes
//! first.
//!
//! Read first: Yocum and Chase 2001, "Payload caching: high-speed data forwarding for network
//! intermediaries" (section 5.3). What is sent on in the order in which it came is wanted longest
//! ago first; once the memory is full, a new object does not displace one that is wanted sooner. So
//! of what a forwarder holds, as much is hit as fits.
//!
//! For objects that are wanted again and again in no such order it is the worst choice. Every
//! operation is O(1).

use crate::ordered::{Order, Ordered, is_incoming};
use crate::queue::{Object, Queue};
use crate::{Incoming, List, Place, Table};

/// Most recently used. 40 to 48 bytes per object.
pub type Mru = Ordered<MostRecent>;

/// Most recently used in front.
#[derive(Clone, Copy, Debug)]
pub struct MostRecent;

impl Mru {
    /// MRU for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_order(bytes_max, objects_max, MostRecent)
    }
}

impl Order for MostRecent {
    const NAME: &'static str = "mru";

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
        let newest = queue.front()?;
        if is_incoming(table, newest, incoming) { List::after(table, newest) } else { Some(newest) }
    }
}
