//! CLOCK: a FIFO whose oldest object, if it was used since it was last looked at, gets another
//! turn.
//!
//! Read first: Corbató 1968, "A paging experiment with the Multics system". A hit costs a bit, and
//! that only if the bit is not set yet: no order changes. With `n` bits per object its uses are
//! counted up to `2^n - 1`, and each turn costs one (the generalised clock of Smith 1978,
//! "Sequentiality and prefetching in database systems").
//!
//! # The hand
//!
//! A poll moves the hand: objects that were used get their turn then. It rests at the victim, so
//! another poll names the same object unless it has been used meanwhile. The incoming object,
//! if it is there already, gets a turn for nothing.
//!
//! Every operation is O(1); the hand's way is amortised over the uses that it takes back.

use crate::ordered::{Order, Ordered, is_incoming};
use crate::queue::{Object, Queue};
use crate::{Incoming, Place, Table};

/// The clock. 40 to 48 bytes per object.
pub type Clock = Ordered<ClockHand>;

/// The hand points to the last object of the queue.
#[derive(Clone, Copy, Debug)]
pub struct ClockHand {
    uses_max: u8,
}

impl Clock {
    /// CLOCK with one bit per object, for a memory of `bytes_max` that holds at most `objects_max`
    /// objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_bits(bytes_max, objects_max, 1)
    }

    /// CLOCK with counters of `bits`, clamped to 1..=8.
    pub fn with_bits(bytes_max: u64, objects_max: u32, bits: u8) -> Self {
        let uses_max = u8::MAX >> (8 - bits.clamp(1, 8));
        Self::with_order(bytes_max, objects_max, ClockHand { uses_max })
    }
}

impl Order for ClockHand {
    const NAME: &'static str = "clock";

    #[inline]
    fn use_object(&mut self, table: &mut Table<Object>, _queue: &mut Queue, place: Place) {
        let object = table.get_mut(place);
        // A popular object's cache line stays clean.
        if object.uses < self.uses_max {
            object.uses += 1;
        }
    }

    #[inline]
    fn victim(
        &mut self,
        table: &mut Table<Object>,
        queue: &mut Queue,
        incoming: Option<Incoming>,
    ) -> Option<Place> {
        loop {
            let place = queue.back()?;
            let is_incoming = is_incoming(table, place, incoming);
            if is_incoming && queue.len() == 1 {
                return None;
            }
            let object = table.get_mut(place);
            if object.uses > 0 {
                object.uses -= 1;
            } else if !is_incoming {
                return Some(place);
            }
            queue.move_to_front(table, place);
        }
    }
}
