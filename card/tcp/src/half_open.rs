//! Connections whose handshake is not complete: a class of its own with a bound, so a flood of
//! SYNs takes no place from those that are established.
//!
//! The queue remembers the places of a flow table, oldest first. A place is taken out lazily: an
//! entry whose flow has gone on, or is another one by now, is skipped when it is met. Counted is
//! what the caller says has begun and ended.

use core::time::Duration;
use std::collections::VecDeque;

use crate::time::Time;

/// Whether a handshake that begins may have a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room.
    Admit,
    /// There is room once this place is given up: its handshake is the oldest.
    Replace(u32),
    /// There is no room: all are younger than clients may take, or the limit is zero.
    Refuse,
}

/// The queue; see the module head.
#[derive(Debug)]
pub struct HalfOpen {
    /// Place in the table, the number of the handshake, and when it began.
    order: VecDeque<(u32, u64, Time)>,
    /// Number of the handshake at each place; zero: none.
    places: Box<[u64]>,
    next: u64,
    open: usize,
    limit: usize,
    patience: Duration,
}

impl HalfOpen {
    /// For a table of `capacity` places, of which at most `limit` are half open. None gives way
    /// that is younger than `patience`: its client may be about to answer. Zero is right where a
    /// connection does without its place.
    #[must_use]
    pub fn new(capacity: usize, limit: usize, patience: Duration) -> Self {
        Self {
            order: VecDeque::with_capacity(2 * limit + 2),
            places: vec![0; capacity].into_boxed_slice(),
            next: 1,
            open: 0,
            limit,
            patience,
        }
    }

    /// Handshakes under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open
    }

    /// There is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open == 0
    }

    /// Handshakes that may be under way.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Whether another handshake may begin.
    pub fn admit(&mut self, now: Time) -> Admission {
        if self.open < self.limit {
            return Admission::Admit;
        }
        self.oldest(now, self.patience).map_or(Admission::Refuse, Admission::Replace)
    }

    /// The place of the oldest handshake, if it began `age` ago at least.
    pub fn oldest(&mut self, now: Time, age: Duration) -> Option<u32> {
        while let Some(&(place, number, begun)) = self.order.front() {
            if self.places[place as usize] == number {
                return (now.since(begun) >= age).then_some(place);
            }
            self.order.pop_front();
        }
        None
    }

    /// A handshake has begun at `place`.
    pub fn begin(&mut self, place: u32, now: Time) {
        self.end(place);
        if self.order.len() > 2 * self.limit {
            let places = &self.places;
            self.order.retain(|(place, number, _)| places[*place as usize] == *number);
        }
        self.places[place as usize] = self.next;
        self.order.push_back((place, self.next, now));
        self.next += 1;
        self.open += 1;
    }

    /// The handshake at `place`, if there is one, is over, whatever became of it.
    pub fn end(&mut self, place: u32) {
        if core::mem::take(&mut self.places[place as usize]) != 0 {
            self.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_oldest_gives_way() {
        let mut half = HalfOpen::new(10, 3, Duration::ZERO);
        for place in [4, 7, 1] {
            assert_eq!(half.admit(Time::ZERO), Admission::Admit);
            half.begin(place, Time::ZERO);
        }
        assert_eq!(half.admit(Time::ZERO), Admission::Replace(4));
        half.end(4);
        half.begin(9, Time::ZERO);
        half.end(7);
        assert_eq!((half.len(), half.admit(Time::ZERO)), (2, Admission::Admit));
        half.begin(4, Time::ZERO);
        assert_eq!(
            half.admit(Time::ZERO),
            Admission::Replace(1),
            "7 has gone on, 4 is young again"
        );
        assert_eq!(HalfOpen::new(4, 0, Duration::ZERO).admit(Time::ZERO), Admission::Refuse);
    }

    #[test]
    fn the_young_have_their_time() {
        let mut half = HalfOpen::new(4, 1, Duration::from_secs(1));
        half.begin(2, Time::from_millis(500));
        assert_eq!(half.admit(Time::from_millis(1_499)), Admission::Refuse);
        assert_eq!(half.admit(Time::from_millis(1_500)), Admission::Replace(2));
    }

    proptest! {
        /// Against a list, with as little memory as at first.
        #[test]
        fn equals_a_list(steps in proptest::collection::vec((0u32..12, any::<bool>()), 0..300)) {
            let mut half = HalfOpen::new(12, 5, Duration::ZERO);
            let capacity = half.order.capacity();
            let mut list: Vec<u32> = Vec::new();
            for (place, ends) in steps {
                if ends {
                    half.end(place);
                    list.retain(|other| *other != place);
                } else {
                    match half.admit(Time::ZERO) {
                        Admission::Admit => prop_assert!(list.len() < 5),
                        Admission::Replace(oldest) => {
                            prop_assert_eq!((list.len(), oldest), (5, list[0]));
                            half.end(oldest);
                            list.remove(0);
                        }
                        Admission::Refuse => prop_assert!(false, "the limit is not zero"),
                    }
                    half.begin(place, Time::ZERO);
                    list.retain(|other| *other != place);
                    list.push(place);
                }
                prop_assert_eq!(half.len(), list.len());
                prop_assert_eq!(half.order.capacity(), capacity);
            }
        }
    }
}
