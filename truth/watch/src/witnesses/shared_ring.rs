//! Reader of the ring that the preloaded library writes (`preload/memory.c`): many producers, which
//! may be killed at any moment.
//!
//! ```text
//! page 0            0 claimed: cells claimed so far (producers)  |  64 taken: cells that are done with (the reader)
//! from 4096         16384 cells of 384 bytes
//! cell              state | check | struct event_head | path
//! ```
//!
//! The cell of record `n` has the state `2n` while it is free for it, and `2n + 1` when the record
//! is there; then the reader makes it free for the record of the next round. A producer claims the
//! next cell by advancing `claimed`. One that is killed, or stopped, between claim and record would
//! hold up all behind it: a cell that stays so for [`GIVEN_UP_NS`] is given up, and counted as
//! lost. Should its producer wake up and write into what is by then another's cell, the check over
//! the record and its number does not fit, and that one is lost, too.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::witnesses::event::{EVENT_BYTES_MAX, HEAD_BYTES, LookupEvent, path_len};
use crate::witnesses::witness::Drained;

/// Records that fit.
pub const CELLS: u64 = 16_384;
const CELL_BYTES: usize = 384;
const RECORD_AT: usize = 16;
const FIRST_CELL_AT: usize = 4096;
/// Size of the file in bytes.
pub const SHARED_RING_BYTES: usize = FIRST_CELL_AT + CELLS as usize * CELL_BYTES;
/// A producer that takes longer is taken for dead, in nanoseconds.
pub const GIVEN_UP_NS: u64 = 500_000_000;

const TAKEN_AT: usize = 64;

/// Reader of the ring that the preloaded library writes, with many producers, which may be killed
/// at any moment. One reader only. The [module](self) has the layout.
pub struct SharedRing {
    memory: Memory,
    /// The next record.
    next: u64,
    /// Since when it is awaited, if it is claimed.
    awaited_since_ns: Option<u64>,
}

/// The mapped file.
struct Memory(NonNull<u8>);

// SAFETY: it owns its mapping, and nothing in it is bound to a thread.
unsafe impl Send for Memory {}

impl SharedRing {
    /// Makes a ring of an empty file.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(file: &File) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        file.set_len(SHARED_RING_BYTES as u64)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let memory = unsafe {
            mmap(
                std::ptr::null_mut(),
                SHARED_RING_BYTES,
                protection,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }?;
        let memory = NonNull::new(memory.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        let ring = Self { memory: Memory(memory), next: 0, awaited_since_ns: None };
        for number in 0..CELLS {
            ring.memory.state(number).store(number << 1, Ordering::SeqCst);
        }
        Ok(ring)
    }

    /// Hands out what was claimed by the time of the call. `lost` is called for each record that is
    /// not to be had.
    pub fn drain(
        &mut self,
        now_ns: u64,
        handle: &mut dyn FnMut(LookupEvent),
        lost: &mut dyn FnMut(),
    ) -> Drained {
        let claimed = self.memory.word(0).load(Ordering::SeqCst);
        if claimed.wrapping_sub(self.next) > CELLS {
            return Drained::Corrupt;
        }
        while self.next != claimed {
            let (number, state) = (self.next, self.memory.state(self.next));
            let free_again = (number + CELLS) << 1;
            let found = state.load(Ordering::Acquire);
            if found == number << 1 {
                let since_ns = *self.awaited_since_ns.get_or_insert(now_ns);
                if now_ns.saturating_sub(since_ns) < GIVEN_UP_NS {
                    return Drained::Busy;
                }
                // Unless it came in this very moment.
                if state
                    .compare_exchange(found, free_again, Ordering::SeqCst, Ordering::SeqCst)
                    .is_err()
                {
                    continue;
                }
                lost();
            } else if found == number << 1 | 1 {
                match self.memory.record(number).as_deref().and_then(LookupEvent::decode) {
                    Some(event) => handle(event),
                    None => lost(),
                }
                state.store(free_again, Ordering::SeqCst);
            } else {
                return Drained::Corrupt;
            }
            self.awaited_since_ns = None;
            self.next += 1;
            self.memory.word(TAKEN_AT).store(self.next, Ordering::Release);
        }
        Drained::All
    }
}

impl Memory {
    /// A copy of the record, if it is whole.
    fn record(&self, number: u64) -> Option<Vec<u8>> {
        let at = cell_at(number) + RECORD_AT;
        let mut record = vec![0; EVENT_BYTES_MAX];
        for (index, word) in record.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.word(at + index * 8).load(Ordering::Relaxed).to_ne_bytes());
        }
        record.truncate(HEAD_BYTES + path_len(&record)?.min(EVENT_BYTES_MAX - HEAD_BYTES));
        (check_of(&record, number) == self.word(at - 8).load(Ordering::Relaxed)).then_some(record)
    }

    fn state(&self, number: u64) -> &AtomicU64 {
        self.word(cell_at(number))
    }

    /// `at` is a multiple of 8 below the ring's size.
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at.is_multiple_of(8) && at + 8 <= SHARED_RING_BYTES);
        // SAFETY: in the mapping, which lives as long as `self`, and aligned; all words are only
        // ever accessed as atomics here.
        unsafe { self.0.add(at).cast().as_ref() }
    }
}

fn cell_at(number: u64) -> usize {
    FIRST_CELL_AT + (number % CELLS) as usize * CELL_BYTES
}

/// The sum by which a torn record is told from a whole one, as `check_of` in `preload/memory.c`
/// computes it.
fn check_of(record: &[u8], number: u64) -> u64 {
    let mut check = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(record.len() as u64);
    for part in record.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        check = (check ^ u64::from_le_bytes(word)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        check ^= check >> 32;
    }
    check
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `create` with this length, and no reference is left.
        let unmapped = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), SHARED_RING_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

const _: () =
    assert!(RECORD_AT + EVENT_BYTES_MAX <= CELL_BYTES && EVENT_BYTES_MAX.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;

    /// What a producer does, step by step; the record's number.
    fn claim(ring: &SharedRing) -> u64 {
        ring.memory.word(0).fetch_add(1, Ordering::SeqCst)
    }

    fn write(ring: &SharedRing, number: u64, time_ns: u64) {
        let mut record = [0; HEAD_BYTES];
        record[..8].copy_from_slice(&time_ns.to_ne_bytes());
        // A look-up.
        record[80] = 1;
        let at = cell_at(number) + RECORD_AT;
        for (index, word) in record.chunks_exact(8).enumerate() {
            let word = u64::from_ne_bytes(word.try_into().unwrap());
            ring.memory.word(at + index * 8).store(word, Ordering::Relaxed);
        }
        ring.memory.word(at - 8).store(check_of(&record, number), Ordering::Relaxed);
    }

    fn commit(ring: &SharedRing, number: u64) -> bool {
        let free = number << 1;
        ring.memory
            .state(number)
            .compare_exchange(free, free | 1, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    fn push(ring: &SharedRing, time_ns: u64) {
        let number = claim(ring);
        write(ring, number, time_ns);
        assert!(commit(ring, number));
    }

    fn ring() -> SharedRing {
        SharedRing::create(&tempfile::tempfile().unwrap()).unwrap()
    }

    fn drain(ring: &mut SharedRing, now_ns: u64) -> (Drained, Vec<u64>, u32) {
        let (mut times, mut lost) = (Vec::new(), 0);
        let drained = ring.drain(now_ns, &mut |event| times.push(event.time_ns), &mut || lost += 1);
        (drained, times, lost)
    }

    #[test]
    fn a_producer_that_dies_between_claim_and_record_is_given_up() {
        let mut ring = ring();
        push(&ring, 1);
        claim(&ring);
        push(&ring, 3);
        assert_eq!(drain(&mut ring, 1000), (Drained::Busy, vec![1], 0));
        assert_eq!(drain(&mut ring, 1000 + GIVEN_UP_NS - 1), (Drained::Busy, vec![], 0));
        assert_eq!(drain(&mut ring, 1000 + GIVEN_UP_NS), (Drained::All, vec![3], 1));
    }

    #[test]
    fn a_producer_that_wakes_up_too_late_harms_no_record_unnoticed() {
        let mut ring = ring();
        let late = claim(&ring);
        assert_eq!(drain(&mut ring, 0).0, Drained::Busy);
        assert_eq!(drain(&mut ring, GIVEN_UP_NS), (Drained::All, vec![], 1));
        for time_ns in 1..CELLS {
            push(&ring, time_ns);
            drain(&mut ring, GIVEN_UP_NS);
        }
        // The same cell, one round later.
        push(&ring, 77);
        write(&ring, late, 66);
        assert!(!commit(&ring, late));
        assert_eq!(drain(&mut ring, GIVEN_UP_NS), (Drained::All, vec![], 1));
        push(&ring, 78);
        assert_eq!(drain(&mut ring, GIVEN_UP_NS), (Drained::All, vec![78], 0));
    }

    #[test]
    fn nonsense_in_the_memory_ends_it() {
        let mut ring = ring();
        ring.memory.word(0).store(CELLS + 1, Ordering::SeqCst);
        assert_eq!(drain(&mut ring, 0).0, Drained::Corrupt);
        let mut ring = self::ring();
        claim(&ring);
        ring.memory.state(0).store(12345, Ordering::SeqCst);
        assert_eq!(drain(&mut ring, 0).0, Drained::Corrupt);
        let mut ring = self::ring();
        let number = claim(&ring);
        ring.memory.word(RECORD_AT + FIRST_CELL_AT + 80).store(u64::MAX, Ordering::SeqCst);
        assert!(commit(&ring, number));
        assert_eq!(drain(&mut ring, 0), (Drained::All, vec![], 1));
    }
}
