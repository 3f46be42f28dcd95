//! Ports for a card on the same thread as the two ends: frames go in by one copy, and of what comes
//! out only headers are kept.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use nicache_port::{Burst, Capabilities, Checksum, Offload, Port, SendError};

/// Bytes kept of each frame that the card sends: the headers, which is all that an end needs to go
/// on.
pub(super) const KEPT_BYTES: usize = 96;
/// Frames that wait in either direction at most; a burst of the card and what it answers fits.
const FRAMES_MAX: usize = 1024;

/// What an end knows of a frame that the card sent.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    bytes: [u8; KEPT_BYTES],
    kept: usize,
    /// Bytes of the whole frame.
    pub len: usize,
}

impl Sent {
    /// The first bytes of the frame.
    pub(super) fn start(&self) -> &[u8] {
        &self.bytes[..self.kept]
    }
}

#[derive(Default)]
struct Queues {
    /// Frames for the card, one behind the other, and where each ends.
    to_card: Vec<u8>,
    ends: Vec<(usize, Offload)>,
    taken: usize,
    from_card: Vec<Sent>,
    frames: u64,
}

/// The card's side of a port.
pub(super) struct StagePort(Rc<RefCell<Queues>>);

/// The other side.
#[derive(Clone)]
pub(super) struct StageEnd(Rc<RefCell<Queues>>);

/// Both sides of a port that can do everything.
pub(super) fn stage() -> (StagePort, StageEnd) {
    let queues = Rc::new(RefCell::new(Queues::default()));
    (StagePort(Rc::clone(&queues)), StageEnd(queues))
}

impl StageEnd {
    /// Gives the card a frame.
    pub(super) fn give(&self, frame: &[u8], offload: Offload) {
        let queues = &mut *self.0.borrow_mut();
        if queues.taken == queues.ends.len() {
            queues.to_card.clear();
            queues.ends.clear();
            queues.taken = 0;
        }
        queues.to_card.extend_from_slice(frame);
        queues.ends.push((queues.to_card.len(), offload));
        queues.frames += 1;
    }

    /// Hands over what the card has sent since the last call.
    pub(super) fn take(&self, into: &mut Vec<Sent>) {
        into.clear();
        std::mem::swap(into, &mut self.0.borrow_mut().from_card);
    }

    /// Frames that have passed so far in both directions.
    pub(super) fn frames(&self) -> u64 {
        self.0.borrow().frames
    }
}

impl Port for StagePort {
    fn capabilities(&self) -> Capabilities {
        Capabilities::FULL
    }

    fn receive(&mut self, burst: &mut Burst) -> io::Result<usize> {
        burst.clear();
        let queues = &mut *self.0.borrow_mut();
        while queues.taken < queues.ends.len() {
            let Some(frame) = burst.next_free() else { break };
            let start = queues.taken.checked_sub(1).map_or(0, |before| queues.ends[before].0);
            let (end, offload) = queues.ends[queues.taken];
            if frame.copy_from(&[IoSlice::new(&queues.to_card[start..end])], offload).is_err() {
                return Err(io::Error::other("a frame that is too long"));
            }
            burst.push();
            queues.taken += 1;
        }
        Ok(burst.len())
    }

    fn send(&mut self, parts: &[IoSlice<'_>], _: Offload) -> Result<(), SendError> {
        let queues = &mut *self.0.borrow_mut();
        if queues.from_card.len() >= FRAMES_MAX {
            return Err(SendError::Full);
        }
        let head = parts.first().map_or(&[][..], |part| &part[..part.len().min(KEPT_BYTES)]);
        let mut sent = Sent {
            bytes: [0; KEPT_BYTES],
            kept: head.len(),
            len: parts.iter().map(|part| part.len()).sum(),
        };
        sent.bytes[..head.len()].copy_from_slice(head);
        queues.from_card.push(sent);
        queues.frames += 1;
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// What a kernel's stack says of a segment whose checksum it leaves to the interface. `tcp_at`:
/// where the TCP header begins.
pub(super) fn partial(tcp_at: u16) -> Offload {
    let offset = nicache_tcp::wire::CHECKSUM_OFFSET as u16;
    Offload { checksum: Checksum::Partial { start: tcp_at, offset }, gso: None }
}
