//! Frames that wait for a neighbour's answer, each for a second at most.
//!
//! A neighbour that does not answer delays nobody else: a few frames may wait for the same one.
//! When all places are taken, the neighbour with the most waiting frames loses its oldest one.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use nicache_tcp::Time;

/// How long a frame waits.
pub(crate) const WAITING_FOR: Duration = Duration::from_secs(1);
/// Frames that wait at most.
pub(crate) const FRAMES_MAX: usize = 32;
/// How many of them may wait for the same neighbour.
const FOR_ONE_MAX: usize = 3;

/// A neighbour, by interface and address.
pub(crate) type Hop = Option<(usize, IpAddr)>;

#[derive(Debug)]
struct One<T> {
    frame: T,
    until: Time,
    hop: Hop,
}

/// Frames that wait for neighbours' answers, the one that has waited longest first.
#[derive(Debug)]
pub(crate) struct Waiting<T>(VecDeque<One<T>>);

impl<T> Waiting<T> {
    pub(crate) fn new() -> Self {
        Self(VecDeque::with_capacity(FRAMES_MAX))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Has one of them waited long enough?
    pub(crate) fn is_due(&self, now: Time) -> bool {
        self.next_due().is_some_and(|due| due <= now)
    }

    /// When the first of them will have waited long enough. One that was looked at again is behind
    /// later ones.
    pub(crate) fn next_due(&self) -> Option<Time> {
        self.0.iter().map(|one| one.until).min()
    }

    /// Takes the first one, and until when it may wait.
    pub(crate) fn take(&mut self) -> Option<(T, Time)> {
        self.0.pop_front().map(|first| (first.frame, first.until))
    }

    /// Makes a frame wait for that neighbour. Returns a frame that no longer waits: this one, if it
    /// has waited long enough or enough others wait for the same neighbour; or an older one that
    /// has made room for it.
    pub(crate) fn add(&mut self, frame: T, hop: Hop, until: Time, now: Time) -> Option<T> {
        if until <= now || self.count(hop) >= FOR_ONE_MAX {
            return Some(frame);
        }
        let oldest = if self.0.len() >= FRAMES_MAX {
            // Of several the oldest.
            let most = (0..self.0.len()).rev().max_by_key(|&at| self.count(self.0[at].hop));
            most.and_then(|at| self.0.remove(at)).map(|one| one.frame)
        } else {
            None
        };
        self.0.push_back(One { frame, until, hop });
        oldest
    }

    fn count(&self, hop: Hop) -> usize {
        self.0.iter().filter(|one| one.hop == hop).count()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn hop(number: usize) -> Hop {
        Some((0, IpAddr::V4(Ipv4Addr::new(10, 0, 0, number as u8))))
    }

    fn until() -> Time {
        Time::ZERO + WAITING_FOR
    }

    #[test]
    fn a_few_wait_for_the_same_neighbour() {
        let mut waiting = Waiting::new();
        let back: Vec<Option<usize>> =
            (0..5).map(|frame| waiting.add(frame, hop(1), until(), Time::ZERO)).collect();
        assert_eq!(back, [None, None, None, Some(3), Some(4)]);
        assert_eq!(waiting.add(5, hop(2), until(), Time::ZERO), None);
        let all: Vec<usize> =
            std::iter::from_fn(|| waiting.take().map(|(frame, _)| frame)).collect();
        assert_eq!(all, [0, 1, 2, 5]);
    }

    #[test]
    fn many_that_are_silent_leave_room_for_one_that_answers() {
        let mut waiting = Waiting::new();
        // A scan of addresses that nobody has, three frames each.
        for frame in 0..96 {
            let back = waiting.add(frame, hop(frame / 3), until(), Time::ZERO);
            assert_eq!(back.is_some(), frame >= FRAMES_MAX);
        }
        let back = waiting.add(1000, hop(200), until(), Time::ZERO);
        assert!(back.is_some_and(|frame| frame < 96), "{back:?}");
        assert_eq!(waiting.len(), FRAMES_MAX);
        let last = std::iter::from_fn(|| waiting.take()).last();
        assert_eq!(last.map(|(frame, _)| frame), Some(1000));
    }

    #[test]
    fn nobody_waits_longer_than_once() {
        let mut waiting = Waiting::new();
        assert_eq!(waiting.add(1, hop(1), until(), Time::ZERO), None);
        assert!(!waiting.is_due(Time::ZERO) && waiting.is_due(until()));
        let (frame, until) = waiting.take().unwrap();
        assert_eq!(waiting.add(frame, hop(1), until, until), Some(1));
        assert_eq!(waiting.len(), 0);
    }
}
