//! The event list: what happens next, and when.
//!
//! Events of the same time happen in the order in which they were scheduled, so a run is a
//! function of its configuration and seed alone.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::time::Time;

/// Events of type `E` in order of time.
#[derive(Debug)]
pub struct Kernel<E> {
    now: Time,
    sequence: u64,
    heap: BinaryHeap<Scheduled<E>>,
}

#[derive(Debug)]
struct Scheduled<E> {
    time: Time,
    sequence: u64,
    event: E,
}

impl<E> Kernel<E> {
    /// Nothing scheduled, at time 0.
    pub fn new() -> Self {
        Self { now: Time::ZERO, sequence: 0, heap: BinaryHeap::new() }
    }

    /// The time of the last event that was polled.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events handed out and not: how many have been scheduled.
    pub fn scheduled(&self) -> u64 {
        self.sequence
    }

    /// `event` is to happen at `time`; what would be in the past happens now.
    #[inline]
    pub fn schedule(&mut self, time: Time, event: E) {
        self.heap.push(Scheduled { time: time.max(self.now), sequence: self.sequence, event });
        self.sequence += 1;
    }

    /// The next event, whose time becomes the present.
    #[inline]
    pub fn poll(&mut self) -> Option<E> {
        let next = self.heap.pop()?;
        self.now = next.time;
        Some(next.event)
    }
}

impl<E> Default for Kernel<E> {
    fn default() -> Self {
        Self::new()
    }
}

/// The largest of a heap comes first: reversed.
impl<E> Ord for Scheduled<E> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.sequence).cmp(&(self.time, self.sequence))
    }
}

impl<E> PartialOrd for Scheduled<E> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<E> Eq for Scheduled<E> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A stable sort of what is outstanding is the model.
        #[test]
        fn events_come_in_order_of_time_then_of_scheduling(
            steps in prop::collection::vec(prop::option::of(0u64..20), 0..200),
        ) {
            let mut kernel = Kernel::new();
            let mut model: Vec<(u64, usize)> = Vec::new();
            let mut now = 0;
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Some(time) => {
                        kernel.schedule(Time(time), at);
                        model.push((time.max(now), at));
                        model.sort_by_key(|entry| entry.0);
                    }
                    None if model.is_empty() => prop_assert_eq!(kernel.poll(), None),
                    None => {
                        let (time, event) = model.remove(0);
                        now = time;
                        prop_assert_eq!(kernel.poll(), Some(event));
                        prop_assert_eq!(kernel.now(), Time(time));
                    }
                }
            }
        }
    }
}
