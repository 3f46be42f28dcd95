//! Entries of the programs' maps by file descriptor, in whichever process holds it.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Frames of one side by what was done with them, as counted at the driver and at tc ingress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Left to the card.
    pub card: u64,
    /// Went on to the kernel's stack.
    pub passed: u64,
    /// Went out on the other side.
    pub redirected: u64,
    /// Did both, as they were for many.
    pub copied: u64,
    /// Dropped: of connections that were lost with a card.
    pub lost: u64,
}

/// Sets an entry.
pub(crate) fn set<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    key: [u8; K],
    value: [u8; V],
) -> io::Result<()> {
    // SAFETY: key and value live during the call; they are as long as those of the map, which all
    // callers know by name.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            key.as_ptr().cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    check(result)
}

/// Removes an entry; that there was none is not an error.
pub(crate) fn remove<const K: usize>(map: BorrowedFd<'_>, key: [u8; K]) -> io::Result<()> {
    // SAFETY: the key lives during the call and is as long as those of the map.
    let result = unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), key.as_ptr().cast()) };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        result => result,
    }
}

/// Reads an entry that is there, as in an array.
pub(crate) fn get<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    key: [u8; K],
) -> io::Result<[u8; V]> {
    let mut value = [0; V];
    // SAFETY: key and value live during the call; they are as long as those of the map.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            key.as_ptr().cast(),
            value.as_mut_ptr().cast(),
        )
    };
    check(result).map(|()| value)
}

/// Reads an entry, if it is there.
pub(crate) fn find<const K: usize, const V: usize>(
    map: BorrowedFd<'_>,
    key: [u8; K],
) -> io::Result<Option<[u8; V]>> {
    match get(map, key) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        result => result.map(Some),
    }
}

/// Removes all entries, in one pass.
pub(crate) fn clear<const K: usize>(map: BorrowedFd<'_>) -> io::Result<()> {
    let mut next = next_key::<K>(map, None)?;
    while let Some(key) = next {
        // The kernel would look through all that is empty if it were gone.
        next = next_key(map, Some(key))?;
        remove(map, key)?;
    }
    Ok(())
}

/// The key behind another one, or the first.
fn next_key<const K: usize>(
    map: BorrowedFd<'_>,
    key: Option<[u8; K]>,
) -> io::Result<Option<[u8; K]>> {
    let mut next = [0; K];
    let before = key.as_ref().map_or(std::ptr::null(), |key| key.as_ptr().cast());
    // SAFETY: `key`, if it is there, and `next` live during the call; they are as long as those of
    // the map.
    let result = unsafe {
        libbpf_sys::bpf_map_get_next_key(map.as_raw_fd(), before, next.as_mut_ptr().cast())
    };
    match check(result) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        result => result.map(|()| Some(next)),
    }
}

/// Reads the counts of a side, of all CPUs.
pub(crate) fn counts(map: BorrowedFd<'_>, side: u32) -> io::Result<Counts> {
    const WORDS: usize = size_of::<Counts>() / 8;
    let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
    let mut words = vec![0u64; cpus * WORDS];
    // SAFETY: the kernel writes one value of `WORDS` words for each possible CPU, which is what
    // there is room for.
    check(unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const side).cast(),
            words.as_mut_ptr().cast(),
        )
    })?;
    let mut sum = Counts::default();
    for cpu in words.chunks_exact(WORDS) {
        sum.card += cpu[0];
        sum.passed += cpu[1];
        sum.redirected += cpu[2];
        sum.copied += cpu[3];
        sum.lost += cpu[4];
    }
    Ok(sum)
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
