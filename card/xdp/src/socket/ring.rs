//! The four rings of an AF_XDP socket: one side writes entries and moves `producer` on, the other
//! reads them and moves `consumer`.
//!
//! Read first: Linux `include/uapi/linux/if_xdp.h` and `net/xdp/xsk_queue.h`. Both indices run
//! freely through 32 bits.
//!
//! ```text
//!        consumer          producer
//!           ▼                 ▼
//!   │ free  │ entry │ entry │ free  │ free  │      entries are at index & mask
//! ```
//!
//! What the kernel writes is not believed to be within bounds.

#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{XDP_RING_NEED_WAKEUP, xdp_ring_offset};

use super::memory::Mapping;

/// What both kinds of ring have.
#[derive(Debug)]
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    size: u32,
    /// Keeps the pointers valid.
    _mapping: Mapping,
}

// SAFETY: the pointers lead into the mapping, which belongs to the value.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn new(mapping: Mapping, offsets: &xdp_ring_offset, size: u32) -> io::Result<Self> {
        let outside = || io::Error::other("the kernel places a ring outside of its mapping");
        if !size.is_power_of_two() {
            return Err(io::Error::other("the size of a ring is not a power of two"));
        }
        Ok(Self {
            producer: mapping.pointer(offsets.producer, 1).ok_or_else(outside)?,
            consumer: mapping.pointer(offsets.consumer, 1).ok_or_else(outside)?,
            flags: mapping.pointer(offsets.flags, 1).ok_or_else(outside)?,
            entries: mapping.pointer(offsets.desc, size as usize).ok_or_else(outside)?,
            size,
            _mapping: mapping,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned and within the mapping, as `new` has seen; the kernel, too, uses it as an
        // atomic.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&self, index: u32) -> *mut T {
        // SAFETY: the masked index is below the size, as many entries as `new` has seen to be
        // there.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }.as_ptr()
    }
}

/// A ring that the kernel reads: fill, transmit.
#[derive(Debug)]
pub(super) struct ToKernel<T> {
    ring: Ring<T>,
    /// The next index to write; those from `producer` on are not published.
    next: u32,
    /// `consumer` as last seen.
    consumed: u32,
}

impl<T: Copy> ToKernel<T> {
    pub(super) fn new(mapping: Mapping, offsets: &xdp_ring_offset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let (next, consumed) =
            (ring.producer().load(Ordering::Relaxed), ring.consumer().load(Ordering::Relaxed));
        Ok(Self { ring, next, consumed })
    }

    /// Whether so many entries can be written.
    pub(super) fn has_room(&mut self, entries: u32) -> bool {
        if self.room() < entries {
            self.consumed = self.ring.consumer().load(Ordering::Acquire);
        }
        self.room() >= entries
    }

    fn room(&self) -> u32 {
        self.ring.size.saturating_sub(self.next.wrapping_sub(self.consumed))
    }

    /// Writes an entry; `false` if there is no room.
    pub(super) fn push(&mut self, entry: T) -> bool {
        if !self.has_room(1) {
            return false;
        }
        // SAFETY: the slot is within the ring, and the kernel has read what was in it.
        unsafe { self.ring.slot(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Lets the kernel see what was written.
    pub(super) fn publish(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Whether the kernel has read everything.
    pub(super) fn is_drained(&mut self) -> bool {
        self.consumed = self.ring.consumer().load(Ordering::Acquire);
        self.consumed == self.next
    }

    /// Whether the kernel wants to be told.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A ring that the kernel writes: completion, receive.
#[derive(Debug)]
pub(super) struct FromKernel<T> {
    ring: Ring<T>,
    /// The next index to read.
    next: u32,
    /// `producer` as last seen.
    produced: u32,
}

impl<T: Copy> FromKernel<T> {
    pub(super) fn new(mapping: Mapping, offsets: &xdp_ring_offset, size: u32) -> io::Result<Self> {
        let ring = Ring::new(mapping, offsets, size)?;
        let (next, produced) =
            (ring.consumer().load(Ordering::Relaxed), ring.producer().load(Ordering::Relaxed));
        Ok(Self { ring, next, produced })
    }

    /// Looks for entries; tells how many are there.
    pub(super) fn refresh(&mut self) -> u32 {
        self.produced = self.ring.producer().load(Ordering::Acquire);
        self.len()
    }

    fn len(&self) -> u32 {
        self.produced.wrapping_sub(self.next).min(self.ring.size)
    }

    /// The entry `ahead` of the next one, if it is there.
    pub(super) fn peek(&self, ahead: u32) -> Option<T> {
        // SAFETY: the slot is within the ring; the kernel has written it, and writes it again only
        // when it is released. Entries are plain numbers, of which every bit pattern is valid.
        (ahead < self.len())
            .then(|| unsafe { self.ring.slot(self.next.wrapping_add(ahead)).read() })
    }

    /// Takes the next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Lets the kernel write again where entries were taken.
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const OFFSETS: xdp_ring_offset =
        xdp_ring_offset { producer: 0, consumer: 64, desc: 128, flags: 64 + 4 };

    /// Two views of one ring, as it would be shared with the kernel.
    fn pair(size: u32, start: u32) -> (ToKernel<u64>, FromKernel<u64>) {
        let memory = Mapping::anonymous(4096).unwrap();
        let base = memory.pointer::<u8>(0, 4096).unwrap();
        // SAFETY: both words are within the mapping and aligned.
        unsafe {
            base.cast::<u32>().write(start);
            base.add(64).cast::<u32>().write(start);
        }
        let mut from = FromKernel::new(memory, &OFFSETS, size).unwrap();
        let shared = Ring {
            producer: from.ring.producer,
            consumer: from.ring.consumer,
            flags: from.ring.flags,
            entries: from.ring.entries,
            size,
            _mapping: Mapping::anonymous(4096).unwrap(),
        };
        from.refresh();
        (ToKernel { ring: shared, next: start, consumed: start }, from)
    }

    #[test]
    fn offsets_outside_of_the_mapping_are_refused() {
        let ring = |offsets: xdp_ring_offset, size| {
            FromKernel::<u64>::new(Mapping::anonymous(4096).unwrap(), &offsets, size).is_ok()
        };
        assert!(ring(OFFSETS, 64));
        assert!(!ring(OFFSETS, 63));
        assert!(!ring(OFFSETS, 512));
        assert!(!ring(xdp_ring_offset { producer: 4096, ..OFFSETS }, 64));
        assert!(!ring(xdp_ring_offset { flags: 3, ..OFFSETS }, 64));
        assert!(!ring(xdp_ring_offset { desc: u64::MAX - 7, ..OFFSETS }, 64));
    }

    #[test]
    fn an_index_out_of_bounds_gives_no_more_than_the_ring_has() {
        let (mut to, mut from) = pair(4, 0);
        to.ring.producer().store(1000, Ordering::Release);
        assert_eq!(from.refresh(), 4);
        while to.push(0) {}
        to.ring.consumer().store(77, Ordering::Release);
        assert!(!to.has_room(1));
    }

    proptest! {
        /// Against a queue that cannot be wrong, also where the indices wrap.
        #[test]
        fn a_bounded_queue(
            start in prop_oneof![Just(0u32), u32::MAX - 5..=u32::MAX],
            steps in proptest::collection::vec(0u8..6, 0..200),
        ) {
            let (mut to, mut from) = pair(4, start);
            // Written, published, released.
            let (mut written, mut published, mut unreleased) =
                (VecDeque::new(), VecDeque::new(), 0);
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let fits = written.len() + published.len() + unreleased < 4;
                        prop_assert_eq!(to.push(number as u64), fits);
                        if fits {
                            written.push_back(number as u64);
                        }
                    }
                    2 => {
                        to.publish();
                        published.append(&mut written);
                        prop_assert_eq!(to.is_drained(), published.is_empty() && unreleased == 0);
                    }
                    3 => {
                        prop_assert_eq!(from.refresh() as usize, published.len());
                        prop_assert_eq!(from.peek(1), published.get(1).copied());
                    }
                    4 => {
                        from.refresh();
                        let popped = from.pop();
                        prop_assert_eq!(popped, published.pop_front());
                        unreleased += usize::from(popped.is_some());
                    }
                    _ => {
                        from.release();
                        unreleased = 0;
                    }
                }
            }
        }
    }
}
