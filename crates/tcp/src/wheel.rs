//! Timers of connections: a hashed wheel with intrusive links, O(1) to arm and to disarm.
//!
//! A flow has at most one armed timer. A timer that fires early is harmless: the connection looks at its own deadlines again and
//! arms the wheel anew, so the packet path needs to touch the wheel only when a deadline moves forward in time.

use crate::time::Time;

/// Nanoseconds of one tick.
const TICK_NS: u64 = 2_000_000;
/// Ticks of one turn (about 8 s); a later deadline fires once a turn and is armed again.
const TICKS: usize = 4096;
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
    links: Box<[Link]>,
    /// Tick up to which (exclusive) everything has fired.
    turned: u64,
    armed: usize,
}

impl Wheel {
    /// A wheel for timers `0..capacity`.
    pub fn new(capacity: usize, now: Time) -> Wheel {
        let link = Link { next: NONE, previous: NONE, tick: NONE, due_ns: u64::MAX };
        Wheel {
            heads: vec![NONE; TICKS].into_boxed_slice(),
            links: vec![link; capacity].into_boxed_slice(),
            turned: now.0 / TICK_NS,
            armed: 0,
        }
    }

    /// Makes timer `index` fire at `due` or earlier. Does nothing if it is armed for an earlier time already.
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
        self.links[index as usize] = Link { next: head, previous: NONE, tick: tick as u32, due_ns: due.0 };
        if head != NONE {
            self.links[head as usize].previous = index;
        }
        self.heads[tick] = index;
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
        } else {
            self.links[link.previous as usize].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next as usize].previous = link.previous;
        }
        self.links[index as usize] = Link { next: NONE, previous: NONE, tick: NONE, due_ns: u64::MAX };
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
        while self.turned <= tick_now {
            let index = self.heads[(self.turned % TICKS as u64) as usize];
            if index != NONE {
                self.disarm(index);
                return Some(index);
            }
            if self.turned == tick_now {
                return None;
            }
            self.turned += 1;
        }
        None
    }

    /// When to look again, at the latest, if nothing else happens: `None` if no timer is armed.
    pub fn next_due(&self) -> Option<Time> {
        if self.armed == 0 {
            return None;
        }
        (0..TICKS as u64)
            .map(|ahead| self.turned + ahead)
            .find(|tick| self.heads[(tick % TICKS as u64) as usize] != NONE)
            .map(|tick| Time(tick * TICK_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(wheel.next_due(), Some(Time(22_000_000)));
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
