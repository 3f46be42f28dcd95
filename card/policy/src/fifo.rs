//! First in, first out: everything that fits is admitted, and the object that was inserted first
//! goes first, however often it was served.
//!
//! One of the policies that Kim et al. 2002 (section 3) compare: slightly worse there than
//! [`Lru`](crate::Lru). Every operation is O(1), and a hit costs nothing.

use crate::ordered::{Order, Ordered, is_incoming};
use crate::queue::{Object, Queue};
use crate::{Incoming, List, Place, Table};

/// First in, first out. 40 to 48 bytes per object.
pub type Fifo = Ordered<FirstIn>;

/// The oldest is behind; uses, and new sizes, change nothing.
#[derive(Clone, Copy, Debug)]
pub struct FirstIn;

impl Fifo {
    /// FIFO for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_order(bytes_max, objects_max, FirstIn)
    }
}

impl Order for FirstIn {
    const NAME: &'static str = "fifo";

    #[inline]
    fn use_object(&mut self, _table: &mut Table<Object>, _queue: &mut Queue, _place: Place) {}

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
