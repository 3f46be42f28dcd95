//! Timers of connections: a hashed wheel with intrusive links, O(1) to arm and to disarm.
//!
//! A flow has at most one armed timer. A timer that fires early is harmless: the connection looks
//! at its own deadlines again and arms the wheel anew, so the packet path needs to touch the wheel
//! only when a deadline moves forward in time.

use crate::time::Time;

/// Nanoseconds of one tick: fine enough for paced frames.
const TICK_NS: u64 = 500_000;
/// Ticks of one turn (about 8 s); a later deadline fires once a turn and is armed again.
const TICKS: usize = 16_384;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    previous: u32,
    /// Tick index at which it is armed, or `NONE`.
    tick: u32,
    due_ns: u64,
}

/// A wheel for a fixed number of timers.
pub struct Wheel {
    heads: Box<[u32]>,
    /// One bit per tick: something is armed for it. Looking for the next one would read 64 KB
    /// otherwise.
    occupied: Box<[u64]>,
    links: Box<[Link]>,
    /// Tick up to which (exclusive) everything has fired.
    turned: u64,
    armed: usize,
}

impl Wheel {
    /// A wheel for timers `0..capacity`.
    pub fn new(capacity: usize, now: Time) -> Self {
        let link = Link { next: NONE, previous: NONE, tick: NONE, due_ns: u64::MAX };
        Self {
            heads: vec![NONE; TICKS].into_boxed_slice(),
            occupied: vec![0; TICKS / 64].into_boxed_slice(),
            links: vec![link; capacity].into_boxed_slice(),
            turned: now.0 / TICK_NS,
            armed: 0,
        }
    }

    /// Makes timer `index` fire at `due` or earlier. Does nothing if it is armed for an earlier
    /// time already.
    pub fn arm(&mut self, index: u32, due: Time) {
        let link = self.links[index as usize];
        if link.tick != NONE {
            if link.due_ns <= due.0 {
                return;
            }
            self.disarm(index);
        }
        let ticks = (due.0 / TICK_NS + 1).max(self.turned).min(self.turned + TICKS as u64 - 1);
        let tick = (ticks % TICKS as u64) as usize;
        let head = self.heads[tick];
        self.links[index as usize] =
            Link { next: head, previous: NONE, tick: tick as u32, due_ns: due.0 };
        if head != NONE {
            self.links[head as usize].previous = index;
        }
        self.heads[tick] = index;
        self.occupied[tick / 64] |= 1 << (tick % 64);
        self.armed += 1;
    }

    /// Forgets timer `index`.
    pub fn disarm(&mut self, index: u32) {
        let link = self.links[index as usize];
        if link.tick == NONE {
            return;
        }
        if link.previous == NONE {
            self.heads[link.tick as usize] = link.next;
            if link.next == NONE {
                self.occupied[link.tick as usize / 64] &= !(1 << (link.tick % 64));
            }
        } else {
            self.links[link.previous as usize].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next as usize].previous = link.previous;
        }
        self.links[index as usize] =
            Link { next: NONE, previous: NONE, tick: NONE, due_ns: u64::MAX };
        self.armed -= 1;
    }

    /// The next timer of the ticks that have passed, disarmed. Call until `None`.
    pub fn poll(&mut self, now: Time) -> Option<u32> {
        let tick_now = now.0 / TICK_NS;
        if self.armed == 0 {
            self.turned = self.turned.max(tick_now);
            return None;
        }
        // After a long sleep one turn visits everything.
        self.turned = self.turned.max(tick_now.saturating_sub(TICKS as u64));
        let next = self.turned + self.ticks_to_next();
        if next > tick_now {
            self.turned = tick_now;
            return None;
        }
        self.turned = next;
        let index = self.heads[(next % TICKS as u64) as usize];
        self.disarm(index);
        Some(index)
    }

    /// Ticks from the present one to the first for which something is armed. Something is.
    fn ticks_to_next(&self) -> u64 {
        let start = (self.turned % TICKS as u64) as usize;
        let words = self.occupied.len();
        let first = self.occupied[start / 64] >> (start % 64);
        if first != 0 {
            return u64::from(first.trailing_zeros());
        }
        for ahead in 1..=words {
            let word = self.occupied[(start / 64 + ahead) % words];
            if word != 0 {
                return (ahead * 64) as u64 + u64::from(word.trailing_zeros())
                    - (start % 64) as u64;
            }
        }
        TICKS as u64
    }

    /// When to look again, at the latest, if nothing else happens: `None` if no timer is armed.
    pub fn next_due(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        Some(Time((self.turned + self.ticks_to_next()) * TICK_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        std::iter::from_fn(|| wheel.poll(Time(now_ns))).collect()
    }

    #[test]
    fn fires_after_its_time_and_not_a_tick_before() {
        let mut wheel = Wheel::new(4, Time(0));
        wheel.arm(1, Time(10_000_000));
        wheel.arm(2, Time(20_000_000));
        assert!(drain(&mut wheel, 9_000_000).is_empty());
        assert_eq!(drain(&mut wheel, 14_000_000), [1]);
        assert_eq!(wheel.next_due(), Some(Time(20_500_000)));
        assert_eq!(drain(&mut wheel, 24_000_000), [2]);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn an_earlier_deadline_moves_it_and_a_later_one_does_not() {
        let mut wheel = Wheel::new(4, Time(0));
        wheel.arm(0, Time(50_000_000));
        wheel.arm(0, Time(90_000_000));
        wheel.arm(0, Time(10_000_000));
        assert_eq!(drain(&mut wheel, 14_000_000), [0]);
        assert!(drain(&mut wheel, 200_000_000).is_empty());
    }

    #[test]
    fn every_timer_fires_after_a_sleep_longer_than_a_turn() {
        let mut wheel = Wheel::new(100, Time(0));
        for index in 0..100 {
            wheel.arm(index, Time(u64::from(index) * 70_000_000));
        }
        let mut fired = drain(&mut wheel, 60_000_000_000);
        fired.sort_unstable();
        assert_eq!(fired, (0..100).collect::<Vec<_>>());
    }

    proptest! {
        /// Against a list: everything fires once, after its time and within a tick of it, and what
        /// is next is known.
        #[test]
        fn equals_a_list(
            steps in proptest::collection::vec(
                (0u32..20, 0u64..9_000, 0u64..400, any::<bool>()),
                0..100,
            ),
        ) {
            let mut wheel = Wheel::new(20, Time(0));
            let mut armed: Vec<Option<u64>> = vec![None; 20];
            let mut now = 0;
            for (index, due_ms, pass_ms, disarm) in steps {
                if disarm {
                    wheel.disarm(index);
                    armed[index as usize] = None;
                } else {
                    let due = now + due_ms * 1_000_000 + 1;
                    wheel.arm(index, Time(due));
                    let place = &mut armed[index as usize];
                    *place = Some(place.map_or(due, |earlier| earlier.min(due)));
                }
                let earliest = armed.iter().flatten().min().copied();
                prop_assert_eq!(wheel.next_due().is_some(), earliest.is_some());
                if let (Some(next), Some(earliest)) = (wheel.next_due(), earliest) {
                    // One beyond the wheel's turn fires early.
                    prop_assert!(next.0 <= earliest + TICK_NS, "{next:?} {earliest}");
                }
                now += pass_ms * 1_000_000;
                while let Some(index) = wheel.poll(Time(now)) {
                    let due = armed[index as usize].take().expect("it fires once");
                    prop_assert!(due <= now || due > TICKS as u64 * TICK_NS - TICK_NS);
                }
                for due in armed.iter().flatten() {
                    prop_assert!(due + TICK_NS > now, "late: {due} at {now}");
                }
            }
        }
    }

    #[test]
    fn disarm_unlinks_from_the_middle() {
        let mut wheel = Wheel::new(3, Time(0));
        for index in 0..3 {
            wheel.arm(index, Time(1));
        }
        wheel.disarm(1);
        let mut fired = drain(&mut wheel, 100_000_000);
        fired.sort_unstable();
        assert_eq!(fired, [0, 2]);
    }
}
