//! Arrays that a program and this process share.

#![allow(unsafe_code)]

use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// What may lie in shared memory: all bit patterns are valid, and everything in it is atomic.
///
/// # Safety
/// The implementer consists of atomic integers only, without padding, in `repr(C)`.
pub(super) unsafe trait Shared {}

/// A BPF array of `T` that is mapped.
#[derive(Debug)]
pub(super) struct Mapped<T> {
    first: NonNull<T>,
    len: usize,
}

// SAFETY: the mapping belongs to the value, is valid on every thread until it is dropped, and holds
// atomics only (`Shared`).
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps the first `len` elements of the array.
    ///
    /// # Errors
    /// What `mmap` says, e.g. that the array is shorter.
    pub(super) fn new(map: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; nothing else refers to it.
        let address = unsafe {
            mmap(std::ptr::null_mut(), bytes::<T>(len), protection, MapFlags::SHARED, map, 0)
        }?;
        let first = NonNull::new(address.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { first, len })
    }
}

fn bytes<T>(len: usize) -> usize {
    (len * size_of::<T>()).next_multiple_of(4096)
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `new` has mapped so many elements, page-aligned; they are valid as they come
        // (`Shared`), and live as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this length; no reference outlives `self`.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), bytes::<T>(self.len)) };
        debug_assert!(unmapped.is_ok());
    }
}
