//! Memory that is shared with the kernel: mappings, and the frames of a socket (its UMEM).

#![allow(unsafe_code)]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Bytes of a chunk, in which one frame, or a part of a longer one, lies.
pub(super) const CHUNK_BYTES: usize = 4096;

/// A mapping, undone when it is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value and is valid on every thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps a ring of a socket.
    pub(super) fn of_ring(socket: BorrowedFd<'_>, offset: u64, bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let address = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                socket,
                offset,
            )
        }?;
        Self::new(address.cast(), bytes)
    }

    /// Zeroed memory, whose pages are there.
    pub(super) fn anonymous(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
        }?;
        Self::new(address.cast(), bytes)
    }

    fn new(address: *mut u8, bytes: usize) -> io::Result<Self> {
        let address =
            NonNull::new(address).ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { address, bytes })
    }

    /// A pointer to `T`s at `offset`, aligned and within the mapping; `None` if that is not so.
    pub(super) fn pointer<T>(&self, offset: u64, count: usize) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let end = size_of::<T>().checked_mul(count)?.checked_add(offset)?;
        // SAFETY: `offset` lies within the mapping.
        let pointer = (end <= self.bytes).then(|| unsafe { self.address.add(offset) })?.cast::<T>();
        pointer.is_aligned().then_some(pointer)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with this length; whoever has pointers into it owns it.
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The frames of a socket: chunks, known by the offset of their first byte.
///
/// At any time a chunk belongs to the kernel (it is in the fill ring, or between transmit and
/// completion ring) or to the socket's owner. Only chunks that belong to the owner may be read and
/// written; who passes offsets here sees to that.
#[derive(Debug)]
pub(super) struct Chunks {
    mapping: Mapping,
}

impl Chunks {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        Ok(Self { mapping: Mapping::anonymous(count * CHUNK_BYTES)? })
    }

    /// Address and bytes of the memory, for the kernel.
    pub(super) fn region(&self) -> (u64, u64) {
        (self.mapping.address.as_ptr() as u64, self.mapping.bytes as u64)
    }

    /// Bytes at an offset; `None` if they are not within one chunk.
    pub(super) fn read(&self, offset: u64, bytes: u32) -> Option<&[u8]> {
        let pointer = self.within_chunk(offset, bytes as usize)?;
        // SAFETY: within the mapping, which lives as long as `self`; the chunk belongs to the
        // socket's owner, so nobody writes to it while it is borrowed.
        Some(unsafe { std::slice::from_raw_parts(pointer.as_ptr(), bytes as usize) })
    }

    /// The whole chunk at an offset, to be written.
    pub(super) fn chunk_mut(&mut self, offset: u64) -> Option<&mut [u8]> {
        let pointer = self.within_chunk(offset, CHUNK_BYTES)?;
        // SAFETY: within the mapping, which is exclusively borrowed; the chunk belongs to the
        // socket's owner.
        Some(unsafe { std::slice::from_raw_parts_mut(pointer.as_ptr(), CHUNK_BYTES) })
    }

    fn within_chunk(&self, offset: u64, bytes: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(offset % CHUNK_BYTES as u64).ok()?;
        (at + bytes <= CHUNK_BYTES).then(|| self.mapping.pointer(offset, bytes))?
    }
}

/// The first byte of the chunk that an offset lies in.
pub(super) fn chunk_of(offset: u64) -> u64 {
    offset - offset % CHUNK_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_a_chunk_is_refused() {
        let mut chunks = Chunks::new(2).unwrap();
        chunks.chunk_mut(4096).unwrap()[7] = 9;
        assert_eq!(chunks.read(4096 + 7, 1), Some(&[9][..]));
        assert_eq!(chunks.read(4096 + 4000, 96).map(<[u8]>::len), Some(96));
        for (offset, bytes) in [(4000, 97), (8192, 1), (u64::MAX, 1), (u64::MAX - 4095, 4096)] {
            assert_eq!(chunks.read(offset, bytes), None, "{offset} {bytes}");
        }
        assert!(chunks.chunk_mut(1).is_none() && chunks.chunk_mut(8192).is_none());
        assert_eq!([chunk_of(0), chunk_of(4095), chunk_of(4100)], [0, 0, 4096]);
    }
}
