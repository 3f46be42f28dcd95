//! Reader of the kernel's ring of look-up events (`BPF_MAP_TYPE_RINGBUF`), from its descriptor
//! alone.
//!
//! Read first: Linux, Documentation/bpf/ringbuf.rst.
//!
//! ```text
//! page 0            consumer position (ours to write)
//! page 1            producer position (the kernel's)
//! pages 2..         data, mapped twice in a row, so a record is always contiguous
//! record            u32 length, bit 31 = still being written, bit 30 = discarded | u32 | data, padded to 8 bytes
//! ```
//!
//! Only one reader may exist: the consumer position is shared by all who map the ring. Wake-ups are
//! off (they would cost the server an interrupt for each look-up); the reader comes when it has a
//! fill to judge, and now and then.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::witnesses::event::LookupEvent;
use crate::witnesses::witness::Drained;

/// Size of the data area in bytes, `RING_BYTES` of `ebpf/shared.h`: some 24,000 look-ups.
pub const RING_BYTES: usize = 8 << 20;

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const RECORD_HEAD_BYTES: u64 = 8;

/// The mapped ring.
pub struct LookupRing {
    consumer: NonNull<u8>,
    producer: NonNull<u8>,
    page_bytes: usize,
}

// SAFETY: the ring owns its two mappings, and nothing in them is bound to a thread.
unsafe impl Send for LookupRing {}

impl LookupRing {
    /// Maps the ring; the descriptor may be closed afterwards.
    ///
    /// # Errors
    /// What `mmap` says, `EINVAL` if it is not a ring of [`RING_BYTES`].
    pub fn map(ring: BorrowedFd<'_>) -> io::Result<Self> {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let page_bytes = rustix::param::page_size();
        let null = std::ptr::null_mut();
        let writable = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let consumer = unsafe { mmap(null, page_bytes, writable, MapFlags::SHARED, ring, 0) }?;
        let readable_bytes = page_bytes + 2 * RING_BYTES;
        // SAFETY: as above; the kernel allows this part to be read only.
        let producer = unsafe {
            mmap(null, readable_bytes, ProtFlags::READ, MapFlags::SHARED, ring, page_bytes as u64)
        };
        let producer = producer.inspect_err(|_| unmap(consumer.cast(), page_bytes))?;
        match (NonNull::new(consumer.cast()), NonNull::new(producer.cast())) {
            (Some(consumer), Some(producer)) => Ok(Self { consumer, producer, page_bytes }),
            _ => Err(io::Error::other("mmap returned address 0")),
        }
    }

    /// Hands out what is in the ring at the time of the call, in the order in which room was
    /// reserved.
    pub fn drain(&mut self, mut handle: impl FnMut(LookupEvent)) -> Drained {
        let end = self.producer_position().load(Ordering::Acquire);
        let mut position = self.consumer_position().load(Ordering::Relaxed);
        if end.wrapping_sub(position) > RING_BYTES as u64 {
            return Drained::Corrupt;
        }
        while position != end {
            let length = self.record_length(position).load(Ordering::Acquire);
            if length & BUSY != 0 {
                return Drained::Busy;
            }
            let bytes = (length & !DISCARDED) as usize;
            let next =
                position.wrapping_add((RECORD_HEAD_BYTES + bytes as u64).next_multiple_of(8));
            if end.wrapping_sub(next) > RING_BYTES as u64 {
                return Drained::Corrupt;
            }
            if length & DISCARDED == 0 {
                match LookupEvent::decode(self.record_data(position, bytes)) {
                    Some(event) => handle(event),
                    None => return Drained::Corrupt,
                }
            }
            position = next;
            self.consumer_position().store(position, Ordering::Release);
        }
        Drained::All
    }

    fn consumer_position(&self) -> &AtomicU64 {
        // SAFETY: the first word of a page that is mapped as long as `self`.
        unsafe { self.consumer.cast().as_ref() }
    }

    fn producer_position(&self) -> &AtomicU64 {
        // SAFETY: as above. The page is not writable, and this is only ever loaded.
        unsafe { self.producer.cast().as_ref() }
    }

    fn record_length(&self, position: u64) -> &AtomicU32 {
        let offset = self.page_bytes + (position as usize & (RING_BYTES - 1) & !7);
        // SAFETY: the offset is below page + RING_BYTES, hence in the mapping, and a multiple of 8.
        // Loaded only.
        unsafe { self.producer.add(offset).cast().as_ref() }
    }

    /// `bytes` must be at most RING_BYTES - 8, which `drain` has checked.
    fn record_data(&self, position: u64, bytes: usize) -> &[u8] {
        let offset = self.page_bytes
            + (position as usize & (RING_BYTES - 1) & !7)
            + RECORD_HEAD_BYTES as usize;
        debug_assert!(bytes + RECORD_HEAD_BYTES as usize <= RING_BYTES);
        // SAFETY: offset + bytes <= page + 2 * RING_BYTES, the size of the mapping. The kernel does
        // not touch a committed record until the consumer position has passed it, which `drain`
        // does only afterwards.
        unsafe { std::slice::from_raw_parts(self.producer.add(offset).as_ptr(), bytes) }
    }
}

impl Drop for LookupRing {
    fn drop(&mut self) {
        unmap(self.consumer.as_ptr(), self.page_bytes);
        unmap(self.producer.as_ptr(), self.page_bytes + 2 * RING_BYTES);
    }
}

fn unmap(address: *mut u8, bytes: usize) {
    // SAFETY: called once for each mapping of `LookupRing::map` with its length.
    let unmapped = unsafe { rustix::mm::munmap(address.cast(), bytes) };
    debug_assert!(unmapped.is_ok());
}

const _: () = assert!(RING_BYTES.is_power_of_two());
