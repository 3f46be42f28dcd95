//! A card's sign of life, which the programs at the interfaces look at for each frame: one word in
//! memory that they share.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// How often a card that is at work beats.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(50);

/// How long a beat counts. Six times the interval: a card that the machine's other programs keep
/// from running for a moment is not passed by. Danger: for so long frames of a card that is dead
/// are lost.
pub const LEASE: Duration = Duration::from_millis(300);

/// Bytes of the mapping: a page, as BPF arrays are mapped.
const BYTES: usize = 4096;

/// The time until which the card counts as alive, in CLOCK_MONOTONIC. A card of several threads
/// beats only while all of them work.
#[derive(Debug)]
pub struct Heartbeat {
    word: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to the value, is valid on every thread until it is dropped, and is
// only used as an atomic.
unsafe impl Send for Heartbeat {}
// SAFETY: as above.
unsafe impl Sync for Heartbeat {}

impl Heartbeat {
    /// Maps the word; see [`SteeringFiles::heartbeat`](crate::SteeringFiles). The descriptor may be
    /// closed afterwards.
    ///
    /// # Errors
    /// What `mmap` says, e.g. that this is not such a map.
    pub fn map(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let address =
            unsafe { mmap(std::ptr::null_mut(), BYTES, protection, MapFlags::SHARED, fd, 0) }?;
        let word = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { word })
    }

    /// The card is alive now, and for `lease` ([`LEASE`] as a rule) without another beat.
    pub fn beat(&self, now_ns: u64, lease: Duration) {
        let lease_ns = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        self.word().store(now_ns.saturating_add(lease_ns), Ordering::Relaxed);
    }

    /// The card ends: from the next frame on it is passed by.
    pub fn stop(&self) {
        self.word().store(0, Ordering::Relaxed);
    }

    /// Until when the card counts as alive, in ns of CLOCK_MONOTONIC.
    pub fn until_ns(&self) -> u64 {
        self.word().load(Ordering::Relaxed)
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: the mapping is a page, so aligned and long enough, and lives as long as `self`.
        // Everybody uses it as an atomic word.
        unsafe { self.word.as_ref() }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        // SAFETY: made by `map` with this length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.word.as_ptr().cast(), BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}
