//! A wire in memory: two ports joined by two bounded queues. For simulation, benches and tests.
//!
//! Frames are copied once, when they are sent; receiving exchanges buffers. All buffers are
//! allocated at creation and circulate between the queues and the bursts.
//!
//! The two ends may be on different threads, so each queue is behind a lock. It is held for one
//! copy at most.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::frame::{Burst, Checksum, FrameBuf, Offload};
use crate::gather::SendError;
use crate::port::{Capabilities, Port};
use crate::virtio_net::encode_header;

/// Makes a wire that holds `frames` frames in each direction. The first port sends under the
/// capabilities `first`, the second under `second`.
///
/// Costs 2 · `frames` · [`FRAME_BYTES_MAX`](crate::FRAME_BYTES_MAX) bytes of address space, of
/// which memory is used as far as frames have been long.
pub fn memory_wire(
    frames: usize,
    first: Capabilities,
    second: Capabilities,
) -> (MemoryPort, MemoryPort) {
    let there = Arc::new(Mutex::new(Queue::new(frames)));
    let back = Arc::new(Mutex::new(Queue::new(frames)));
    let port = |capabilities, outgoing: &Arc<_>, incoming: &Arc<_>| MemoryPort {
        capabilities,
        outgoing: Arc::clone(outgoing),
        incoming: Arc::clone(incoming),
    };
    (port(first, &there, &back), port(second, &back, &there))
}

/// One end of a [`memory_wire`].
///
/// A port without [`Capabilities::checksum`] is like a real wire: what the sender knew about the
/// checksum gets lost, and the other end receives [`Checksum::Unverified`].
#[derive(Debug)]
pub struct MemoryPort {
    capabilities: Capabilities,
    outgoing: Arc<Mutex<Queue>>,
    incoming: Arc<Mutex<Queue>>,
}

impl MemoryPort {
    /// Frames that wait to be received at this end.
    pub fn pending(&self) -> usize {
        lock(&self.incoming).len
    }
}

impl Port for MemoryPort {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        let mut queue = lock(&self.incoming);
        while let Some(frame) = burst.next_free() {
            if !queue.pop(frame) {
                break;
            }
            burst.push();
        }
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        let frame_len = self.capabilities.check(parts, &offload)?;
        if offload.gso.is_none() && frame_len > self.capabilities.frame_bytes_max {
            return Err(SendError::TooLong);
        }
        // The same rules as on a TAP, so a frame that passes here would pass there.
        encode_header(&offload, frame_len).map_err(|_| SendError::Invalid)?;
        let checksum =
            if self.capabilities.checksum { offload.checksum } else { Checksum::Unverified };
        lock(&self.outgoing).push(parts, Offload { checksum, ..offload })
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A ring of buffers: the frames are at `start`, `start + 1` ... modulo the size.
#[derive(Debug)]
struct Queue {
    ring: Box<[FrameBuf]>,
    start: usize,
    len: usize,
}

impl Queue {
    fn new(frames: usize) -> Self {
        Self { ring: (0..frames).map(|_| FrameBuf::new()).collect(), start: 0, len: 0 }
    }

    fn push(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        if self.len == self.ring.len() {
            return Err(SendError::Full);
        }
        let slot = (self.start + self.len) % self.ring.len();
        self.ring[slot].copy_from(parts, offload)?;
        self.len += 1;
        Ok(())
    }

    /// Exchanges the oldest frame for the buffer given.
    fn pop(&mut self, frame: &mut FrameBuf) -> bool {
        if self.len == 0 {
            return false;
        }
        std::mem::swap(&mut self.ring[self.start], frame);
        self.start = (self.start + 1) % self.ring.len();
        self.len -= 1;
        true
    }
}

/// The queue, also after a panic of the other end's thread: each step leaves it consistent.
fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Gso, GsoKind};
    use crate::gather::PARTS_MAX;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn send(port: &mut MemoryPort, bytes: &[u8]) -> Result<(), SendError> {
        port.send(&[IoSlice::new(bytes)], Offload::default())
    }

    #[test]
    fn both_directions_keep_order_and_metadata() {
        let (mut a, mut b) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
        let offload = Offload { checksum: Checksum::Partial { start: 14, offset: 6 }, gso: None };
        a.send(&[IoSlice::new(&[1; 20]), IoSlice::new(&[2; 20])], offload).unwrap();
        send(&mut a, &[3; 14]).unwrap();
        send(&mut b, &[4; 15]).unwrap();
        let mut burst = Burst::new(8);
        assert_eq!((a.pending(), b.pending()), (1, 2));
        assert_eq!(b.receive(&mut burst).unwrap(), 2);
        assert_eq!(burst.frames()[0].data(), [[1; 20], [2; 20]].concat());
        assert_eq!(burst.frames()[0].offload(), offload);
        assert_eq!(burst.frames()[1].data(), [3; 14]);
        assert_eq!(a.receive(&mut burst).unwrap(), 1);
        assert_eq!(burst.frames()[0].data(), [4; 15]);
        assert_eq!(a.receive(&mut burst).unwrap(), 0);
        assert!(burst.is_empty());
    }

    #[test]
    fn what_a_plain_wire_lacks_is_refused() {
        let (mut a, mut b) = memory_wire(4, Capabilities::PLAIN, Capabilities::PLAIN);
        let partial = Checksum::Partial { start: 14, offset: 6 };
        let gso = Gso { kind: GsoKind::Udp, size: 100, header_len: 22, ecn: false };
        let frame = [0; 60];
        let result = a.send(&[IoSlice::new(&frame)], Offload { checksum: partial, gso: None });
        assert!(matches!(result, Err(SendError::Unsupported)));
        let offload = Offload { checksum: partial, gso: Some(gso) };
        assert!(matches!(a.send(&[IoSlice::new(&frame)], offload), Err(SendError::Unsupported)));
        assert!(matches!(send(&mut a, &[0; 1515]), Err(SendError::TooLong)));
        assert!(matches!(send(&mut a, &[0; 13]), Err(SendError::Invalid)));
        let parts = [IoSlice::new(&frame[..1]); PARTS_MAX + 1];
        assert!(matches!(a.send(&parts, Offload::default()), Err(SendError::TooManyParts)));
        a.send(&parts[1..], Offload::default()).unwrap();
        let valid = Offload { checksum: Checksum::Valid, gso: None };
        a.send(&[IoSlice::new(&[0; 1514])], valid).unwrap();
        let mut burst = Burst::new(4);
        assert_eq!(b.receive(&mut burst).unwrap(), 2);
        assert_eq!(burst.frames()[1].offload().checksum, Checksum::Unverified);
    }

    #[test]
    fn metadata_that_contradict_the_frame_are_refused() {
        let (mut a, _b) = memory_wire(4, Capabilities::FULL, Capabilities::FULL);
        let offload = Offload { checksum: Checksum::Partial { start: 50, offset: 16 }, gso: None };
        assert!(matches!(a.send(&[IoSlice::new(&[0; 67])], offload), Err(SendError::Invalid)));
    }

    #[test]
    fn buffers_circulate_instead_of_being_allocated() {
        let (mut a, mut b) = memory_wire(2, Capabilities::FULL, Capabilities::FULL);
        let mut burst = Burst::new(2);
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..50u8 {
            send(&mut a, &[round; 14]).unwrap();
            assert_eq!(b.receive(&mut burst).unwrap(), 1);
            seen.insert(burst.frames()[0].data().as_ptr());
        }
        assert!(seen.len() <= 4, "{} buffers for 2 in the queue and 2 in the burst", seen.len());
    }

    proptest! {
        /// Against a queue that cannot be wrong.
        #[test]
        fn a_bounded_queue(
            capacity in 1usize..5,
            room in 1usize..4,
            steps in proptest::collection::vec(any::<bool>(), 0..60),
        ) {
            let (mut a, mut b) = memory_wire(capacity, Capabilities::FULL, Capabilities::FULL);
            let mut burst = Burst::new(room);
            let mut model = VecDeque::new();
            for (number, receive) in steps.into_iter().enumerate() {
                if receive {
                    b.receive(&mut burst).unwrap();
                    let expected: Vec<u8> = model.drain(..room.min(model.len())).collect();
                    prop_assert_eq!(
                        burst.iter().map(|frame| frame.data()[0]).collect::<Vec<_>>(),
                        expected
                    );
                } else {
                    let sent = send(&mut a, &[number as u8; 14]);
                    prop_assert_eq!(sent.is_ok(), model.len() < capacity);
                    if sent.is_ok() {
                        model.push_back(number as u8);
                    } else {
                        prop_assert!(matches!(sent, Err(SendError::Full)));
                    }
                }
            }
        }
    }
}
