//! Short frames that wait to be sent with one system call.
//!
//! A system call for each frame costs more than copying a short frame: staged, frames of 60 bytes
//! cost 16 % less to send, frames of 1514 bytes 8 % (batches of 32, `sendmmsg` beside `writev`,
//! veth, medians of CPU time).

use std::io::IoSlice;
use std::os::fd::BorrowedFd;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

/// Most frames that wait.
const FRAMES: usize = 32;
/// Bytes of a place: a frame behind its header.
const PLACE_BYTES: usize = 2048;

/// Frames, each behind its header, in the order in which they are to be sent.
#[derive(Debug)]
pub(super) struct Stage {
    bytes: Box<[[u8; PLACE_BYTES]]>,
    lens: ArrayVec<usize, FRAMES>,
}

impl Stage {
    pub(super) fn new() -> Self {
        Self { bytes: vec![[0; PLACE_BYTES]; FRAMES].into_boxed_slice(), lens: ArrayVec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.lens.is_full()
    }

    /// Whether a frame of so many bytes, header included, has room in a place.
    pub(super) fn fits(len: usize) -> bool {
        len <= PLACE_BYTES
    }

    /// Puts a frame behind the others; there must be room.
    pub(super) fn push(&mut self, parts: &[IoSlice<'_>]) {
        let place = &mut self.bytes[self.lens.len()];
        let mut len = 0;
        for part in parts {
            place[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        self.lens.push(len);
    }

    /// Sends all frames; tells how many the kernel did not take. Whatever happens, none is left.
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>) -> usize {
        let parts: ArrayVec<[IoSlice<'_>; 1], FRAMES> = self
            .bytes
            .iter()
            .zip(&self.lens)
            .map(|(place, len)| [IoSlice::new(&place[..*len])])
            .collect();
        let mut control: ArrayVec<SendAncillaryBuffer<'_, '_, '_>, FRAMES> =
            parts.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: ArrayVec<MMsgHdr<'_>, FRAMES> = parts
            .iter()
            .zip(&mut control)
            .map(|(part, control)| MMsgHdr::new(part, control))
            .collect();
        let (mut sent, mut refused) = (0, 0);
        let mut is_stale = true;
        while sent + refused < messages.len() {
            match sendmmsg(socket, &mut messages[sent + refused..], SendFlags::DONTWAIT) {
                Ok(taken) => sent += taken,
                Err(Errno::INTR) => {}
                // The first time this may be about an earlier moment: the socket keeps it until it
                // is told.
                Err(Errno::NETDOWN) if is_stale => is_stale = false,
                // The first one is the one that was not taken.
                Err(_) => refused += 1,
            }
        }
        drop(messages);
        self.lens.clear();
        refused
    }
}
