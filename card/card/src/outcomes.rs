//! What last became of a page that is not served from card memory: so that an operator can be told why.
//!
//! A table of fixed size in which each page has one place: two that share it overwrite each other. It is written when a fill ends,
//! never for a hit, and read only on request.

use nicache_coherence::RefusalReason;
use nicache_http::{Key, NotShared};
use nicache_tcp::Time;

use crate::counters::FillAbort;

/// Pages remembered; a power of two.
const PLACES: usize = 4096;

/// What became of a reply that might have been stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in card memory.
    Stored,
    /// It is the first of two that must agree.
    First,
    /// It differed from another although no source had changed.
    Differed,
    /// Its head says that it is not for everybody.
    NotShared(NotShared),
    /// The card gave up.
    Aborted(FillAbort),
    /// The watcher refused.
    Refused(RefusalReason),
}

/// See the module's head.
pub(crate) struct Outcomes {
    places: Box<[Option<(Key, Outcome, Time)>]>,
}

impl Outcomes {
    pub(crate) fn new() -> Outcomes {
        Outcomes { places: vec![None; PLACES].into_boxed_slice() }
    }

    /// Takes note of the end of a fill for `base`.
    pub(crate) fn note(&mut self, base: &Key, outcome: Outcome, now: Time) {
        self.places[place_of(base)] = Some((*base, outcome, now));
    }

    /// What last became of a reply for `base`, and of which request's time: when it was forwarded.
    pub(crate) fn last(&self, base: &Key) -> Option<(Outcome, Time)> {
        self.places[place_of(base)].filter(|(key, ..)| key == base).map(|(_, outcome, at)| (outcome, at))
    }
}

fn place_of(base: &Key) -> usize {
    base.low_u64() as usize % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_is_told_and_no_other_pages() {
        let mut outcomes = Outcomes::new();
        let key = |low: u64| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&low.to_le_bytes());
            Key(bytes)
        };
        assert_eq!(outcomes.last(&key(1)), None);
        outcomes.note(&key(1), Outcome::First, Time(5));
        outcomes.note(&key(1), Outcome::Refused(RefusalReason::Wrote), Time(6));
        assert_eq!(outcomes.last(&key(1)), Some((Outcome::Refused(RefusalReason::Wrote), Time(6))));
        outcomes.note(&key(1 + PLACES as u64), Outcome::Stored, Time(7));
        assert_eq!(outcomes.last(&key(1)), None);
    }
}
