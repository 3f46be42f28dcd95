//! What the owner of a ublk device and the server say to each other about requests, and the memory
//! that their bytes are in: one slot for each request that the device can have at once.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::abi::{DEPTH, Description, Operation, REQUEST_BYTES_MAX};

const MEMORY_BYTES: usize = DEPTH as usize * REQUEST_BYTES_MAX;

/// Memory that both have.
pub(crate) struct Slots(*mut u8);

// SAFETY: it is only reached by `slot`, whose callers see to it that nobody else has the same one.
unsafe impl Sync for Slots {}

impl Slots {
    /// New memory, and its file for the other side.
    pub(crate) fn new() -> io::Result<(Self, OwnedFd)> {
        let file = memfd_create("nicache-device", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, MEMORY_BYTES as u64)?;
        Ok((Self::map(&file)?, file))
    }

    /// The other side's memory.
    pub(crate) fn map(file: &OwnedFd) -> io::Result<Self> {
        if rustix::fs::fstat(file)?.st_size as usize != MEMORY_BYTES {
            return Err(io::Error::other("the device's memory has another size"));
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file that is as long.
        let at =
            unsafe { mmap(std::ptr::null_mut(), MEMORY_BYTES, access, MapFlags::SHARED, file, 0)? };
        Ok(Self(at.cast()))
    }

    /// The bytes of a request.
    ///
    /// # Safety
    /// Only one side has a request at a time, and of that only one thread.
    #[expect(clippy::mut_from_ref, reason = "the caller sees to it that it is the only one")]
    pub(crate) unsafe fn slot(&self, tag: u16, bytes: usize) -> &mut [u8] {
        let (tag, bytes) = (usize::from(tag.min(DEPTH - 1)), bytes.min(REQUEST_BYTES_MAX));
        // The message that brought the request came after what was written.
        fence(Ordering::SeqCst);
        // SAFETY: inside the mapping, and nobody else's at the moment.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(tag * REQUEST_BYTES_MAX), bytes) }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, which nobody refers to any longer.
        let _ = unsafe { munmap(self.0.cast(), MEMORY_BYTES) };
    }
}

/// A request on its way to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) tag: u16,
    pub(crate) what: Description,
}

/// Its answer: bytes, or an error's number below zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) tag: u16,
    pub(crate) result: i32,
}

/// One packet of a socket.
pub(crate) trait Packet: Sized {
    fn to_bytes(self) -> [u8; 16];
    fn from_bytes(bytes: [u8; 16]) -> Self;
}

impl Packet for Request {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.what.offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&(self.what.bytes as u32).to_ne_bytes());
        bytes[12..14].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[14] = self.what.operation as u8;
        bytes
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, _] = bytes;
        let operation = match o {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Flush,
            _ => Operation::Other,
        };
        let offset = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        let bytes = u32::from_ne_bytes([i, j, k, l]) as usize;
        let what = Description { operation, offset, bytes };
        Self { tag: u16::from_ne_bytes([m, n]), what }
    }
}

impl Packet for Answer {
    fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&self.result.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.tag.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; 16]) -> Self {
        let [a, b, c, d, e, f, ..] = bytes;
        Self { tag: u16::from_ne_bytes([e, f]), result: i32::from_ne_bytes([a, b, c, d]) }
    }
}

/// Hands a packet over. A socket has room for all that can be under way.
pub(crate) fn hand_over<P: Packet>(socket: impl AsFd, packet: P) -> Result<(), Errno> {
    fence(Ordering::SeqCst);
    let bytes = packet.to_bytes();
    retry_on_intr(|| send(&socket, &bytes, SendFlags::NOSIGNAL)).map(drop)
}

/// The next packet; None when the other side is gone. An error if there is none at the moment and
/// the flags say not to wait.
pub(crate) fn take<P: Packet>(socket: impl AsFd, flags: RecvFlags) -> Result<Option<P>, Errno> {
    let mut bytes = [0; 16];
    let received = retry_on_intr(|| recv(&socket, &mut bytes, flags));
    match received {
        Ok((_, 16)) => Ok(Some(P::from_bytes(bytes))),
        Err(Errno::AGAIN) => Err(Errno::AGAIN),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_arrive_as_they_were_sent() {
        for operation in [Operation::Read, Operation::Write, Operation::Flush, Operation::Other] {
            let what = Description { operation, offset: 0x1234_5678_9ABC_D000, bytes: 262_144 };
            let request = Request { tag: 63, what };
            assert_eq!(Request::from_bytes(request.to_bytes()), request);
        }
        for result in [0, 262_144, -5] {
            let answer = Answer { tag: 7, result };
            assert_eq!(Answer::from_bytes(answer.to_bytes()), answer);
        }
    }

    #[test]
    fn both_sides_have_the_same_memory() {
        let (ours, file) = Slots::new().unwrap();
        let theirs = Slots::map(&file).unwrap();
        // SAFETY: there is one thread, and it uses one at a time.
        unsafe {
            ours.slot(DEPTH - 1, 5).copy_from_slice(b"hello");
            assert_eq!(theirs.slot(DEPTH - 1, 5), b"hello");
            assert_eq!(theirs.slot(0, REQUEST_BYTES_MAX + 1).len(), REQUEST_BYTES_MAX);
        }
        let other = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(Slots::map(&other).is_err());
    }
}
