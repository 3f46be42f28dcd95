//! SIEVE: a FIFO in which a hand goes from the oldest to the newest object and removes those not
//! used since its last visit; those that were used keep their place.
//!
//! Read first: Zhang, Yang, Yue, Vigfusson and Rashmi 2024, "SIEVE is simpler than LRU" (NSDI 2024;
//! section 3). Against [`Clock`](crate::Clock), a new object is reached soon after the hand has
//! passed the old ones: what is used once goes early, without ghosts and without a second queue. A
//! hit costs a bit, and that only if it is not set yet.
//!
//! # The hand
//!
//! A poll moves it. It rests at the victim, so another poll names the same object unless it
//! has been used meanwhile. When what it rests at goes, it moves on to the next newer object,
//! behind the newest to the oldest. The incoming object, if it is there already, is passed over.
//!
//! Every operation is O(1); the hand's way is amortised over the uses whose bits it clears.

use crate::ordered::{Order, Ordered, is_incoming};
use crate::queue::{Object, Queue};
use crate::{Incoming, List, Place, Table};

/// The sieve. 40 to 48 bytes per object.
pub type Sieve = Ordered<SieveHand>;

/// The hand moves from old to new objects; None: at the oldest.
#[derive(Clone, Copy, Debug, Default)]
pub struct SieveHand {
    at: Option<Place>,
}

impl Sieve {
    /// SIEVE for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        Self::with_order(bytes_max, objects_max, SieveHand::default())
    }
}

impl Order for SieveHand {
    const NAME: &'static str = "sieve";

    #[inline]
    fn use_object(&mut self, table: &mut Table<Object>, _queue: &mut Queue, place: Place) {
        let object = table.get_mut(place);
        // A popular object's cache line stays clean.
        if object.uses == 0 {
            object.uses = 1;
        }
    }

    #[inline]
    fn victim(
        &mut self,
        table: &mut Table<Object>,
        queue: &mut Queue,
        incoming: Option<Incoming>,
    ) -> Option<Place> {
        let mut place = self.at.or_else(|| queue.back())?;
        loop {
            let is_incoming = is_incoming(table, place, incoming);
            if is_incoming && queue.len() == 1 {
                return None;
            }
            let object = table.get_mut(place);
            if object.uses > 0 {
                object.uses = 0;
            } else if !is_incoming {
                self.at = Some(place);
                return Some(place);
            }
            place = List::before(table, place).or_else(|| queue.back())?;
        }
    }

    #[inline]
    fn handle_leave(&mut self, table: &Table<Object>, place: Place) {
        if self.at == Some(place) {
            self.at = List::before(table, place);
        }
    }
}
