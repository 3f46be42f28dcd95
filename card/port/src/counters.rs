//! Counts what goes through a port, for another thread to read.
//!
//! ```text
//!  PortCounters  | receive: frames bytes super dropped | pad to 128 | send: frames bytes super dropped refused | pad to 128 |
//! ```
//! A direction has its own pair of cache lines (128 bytes: adjacent lines are fetched together), so
//! a reader does not slow the other direction down. One thread writes, so an update is a plain
//! load and store: no locked instruction on the packet path.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::frame::{Burst, Offload};
use crate::gather::{SendError, parts_len};
use crate::port::{Capabilities, Port};

/// The counters of a port. Only the port that made them writes.
#[derive(Debug, Default)]
pub struct PortCounters {
    receive: DirectionCounters,
    send: DirectionCounters,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct DirectionCounters {
    frames: AtomicU64,
    bytes: AtomicU64,
    super_frames: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
}

/// The counters of one direction at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DirectionSnapshot {
    /// Frames; a super-frame counts once.
    pub frames: u64,
    /// Bytes from the Ethernet header on.
    pub bytes: u64,
    /// Super-frames among the frames.
    pub super_frames: u64,
    /// Received: frames with malformed metadata. Sent: frames dropped because the queue toward the
    /// peer was full.
    pub dropped: u64,
    /// Sent: frames dropped for any other reason (too long, offload missing, kernel error).
    /// Received: always 0.
    pub refused: u64,
}

/// The counters of a port at a moment. They are read one after the other: a frame may be in
/// `frames` and not yet in `bytes`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PortSnapshot {
    /// From the wire.
    pub receive: DirectionSnapshot,
    /// To the wire.
    pub send: DirectionSnapshot,
}

impl PortCounters {
    /// Reads all counters.
    pub fn snapshot(&self) -> PortSnapshot {
        PortSnapshot { receive: self.receive.snapshot(), send: self.send.snapshot() }
    }
}

impl DirectionCounters {
    fn count(&self, frames: u64, bytes: u64, super_frames: u64) {
        add(&self.frames, frames);
        add(&self.bytes, bytes);
        if super_frames > 0 {
            add(&self.super_frames, super_frames);
        }
    }

    fn snapshot(&self) -> DirectionSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DirectionSnapshot {
            frames: read(&self.frames),
            bytes: read(&self.bytes),
            super_frames: read(&self.super_frames),
            dropped: read(&self.dropped),
            refused: read(&self.refused),
        }
    }
}

/// Adds without a locked instruction; sound because one thread writes.
fn add(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// A port with counters.
#[derive(Debug)]
pub struct Counted<P> {
    inner: P,
    counters: Arc<PortCounters>,
}

impl<P: Port> Counted<P> {
    /// Counts what crosses `inner` from now on.
    pub fn new(inner: P) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counters, to be read by any thread.
    pub fn counters(&self) -> Arc<PortCounters> {
        Arc::clone(&self.counters)
    }

    /// The port inside.
    pub fn get_ref(&self) -> &P {
        &self.inner
    }

    /// The port inside. Frames that go through it directly are not counted.
    pub fn get_mut(&mut self) -> &mut P {
        &mut self.inner
    }
}

impl<P: Port> Port for Counted<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        let result = self.inner.receive(burst);
        let counters = &self.counters.receive;
        counters.dropped.store(self.inner.receive_dropped(), Ordering::Relaxed);
        let count = result?;
        if count > 0 {
            let (mut bytes, mut super_frames) = (0, 0);
            for frame in burst.iter() {
                bytes += frame.len() as u64;
                super_frames += u64::from(frame.offload().gso.is_some());
            }
            counters.count(count as u64, bytes, super_frames);
        }
        Ok(count)
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let result = self.inner.send(parts, offload);
        let counters = &self.counters.send;
        match &result {
            Ok(()) => counters.count(1, parts_len(parts) as u64, u64::from(offload.gso.is_some())),
            Err(SendError::Full) => add(&counters.dropped, 1),
            Err(_) => add(&counters.refused, 1),
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }

    fn finish(&mut self) -> io::Result<()> {
        self.inner.finish()
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.wait_fd()
    }

    fn receive_dropped(&self) -> u64 {
        self.inner.receive_dropped()
    }

    fn send_dropped(&self) -> u64 {
        self.inner.send_dropped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Checksum, Gso, GsoKind};
    use crate::memory_wire::memory_wire;

    #[test]
    fn the_directions_do_not_share_lines() {
        assert_eq!(align_of::<PortCounters>(), 128);
        assert_eq!(size_of::<PortCounters>(), 256);
    }

    #[test]
    fn every_outcome_is_counted() {
        let (a, b) = memory_wire(2, Capabilities::FULL, Capabilities::FULL);
        let (mut a, mut b) = (Counted::new(a), Counted::new(b));
        let offload = Offload {
            checksum: Checksum::Partial { start: 34, offset: 16 },
            gso: Some(Gso { kind: GsoKind::Tcp4, size: 1000, header_len: 54, ecn: false }),
        };
        a.send(&[IoSlice::new(&[0; 2000]), IoSlice::new(&[0; 54])], offload).unwrap();
        a.send(&[IoSlice::new(&[0; 60])], Offload::default()).unwrap();
        assert!(a.send(&[IoSlice::new(&[0; 60])], Offload::default()).is_err());
        assert!(a.send(&[IoSlice::new(&[0; 1])], Offload::default()).is_err());
        let mut burst = Burst::new(4);
        b.receive(&mut burst).unwrap();
        b.receive(&mut burst).unwrap();

        let counted =
            DirectionSnapshot { frames: 2, bytes: 2114, super_frames: 1, dropped: 0, refused: 0 };
        let (sent, received) = (a.counters(), b.counters());
        let (sent, received) =
            std::thread::spawn(move || (sent.snapshot(), received.snapshot())).join().unwrap();
        let failed = DirectionSnapshot { dropped: 1, refused: 1, ..counted };
        assert_eq!(sent, PortSnapshot { send: failed, ..Default::default() });
        assert_eq!(received, PortSnapshot { receive: counted, ..Default::default() });
    }
}
