//! Why a block of the device is not in the cache, as far as that is remembered: for operators only,
//! nothing depends on it.
//!
//! One word for each place, chosen by a hash of the block's number; a later departure takes the
//! place of an earlier one. So it has a fixed size, and noting one costs a store.

use crate::places::Lbn;

/// Why a chunk went, or was not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Departure {
    /// Others needed the room.
    Evicted,
    /// The kernel wrote the block without a key.
    Overwritten,
    /// Reads or writes of the block overlapped, so nobody knows what is true.
    Contested,
    /// The policy held others for worth more.
    Declined,
}

/// The low bits of a word are the departure, the others the block's number and one, so zero is
/// none.
const KIND_BITS: u32 = 2;
/// An odd factor that spreads numbers over the upper half of a word.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

pub(crate) struct Departures {
    words: Box<[u64]>,
}

impl Departures {
    /// Room for at least `count`, which is 8 bytes each.
    pub(crate) fn new(count: usize) -> Self {
        Self { words: vec![0; count.clamp(16, 1 << 24).next_power_of_two()].into_boxed_slice() }
    }

    pub(crate) fn note(&mut self, lbn: Lbn, departure: Departure) {
        let at = self.place(lbn);
        self.words[at] = (lbn.0 + 1) << KIND_BITS | departure as u64;
    }

    /// Why it went the last time, if that is remembered.
    pub(crate) fn of(&self, lbn: Lbn) -> Option<Departure> {
        let word = self.words[self.place(lbn)];
        let kinds =
            [Departure::Evicted, Departure::Overwritten, Departure::Contested, Departure::Declined];
        (word >> KIND_BITS == lbn.0 + 1)
            .then(|| kinds.into_iter().find(|kind| *kind as u64 == word & ((1 << KIND_BITS) - 1)))
            .flatten()
    }

    fn place(&self, lbn: Lbn) -> usize {
        // Neighbours that went together must not all be forgotten together.
        (lbn.0.wrapping_mul(SPREAD) >> 32) as usize & (self.words.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_departure_is_remembered_until_its_place_is_taken() {
        let mut departures = Departures::new(16);
        let other =
            (6..).map(Lbn).find(|lbn| departures.place(*lbn) == departures.place(Lbn(5))).unwrap();
        assert_eq!(departures.of(Lbn(0)), None);
        for kind in
            [Departure::Evicted, Departure::Contested, Departure::Declined, Departure::Overwritten]
        {
            departures.note(Lbn(5), kind);
            assert_eq!((departures.of(Lbn(5)), departures.of(other)), (Some(kind), None));
        }
        departures.note(other, Departure::Evicted);
        assert_eq!((departures.of(Lbn(5)), departures.of(other)), (None, Some(Departure::Evicted)));
    }
}
