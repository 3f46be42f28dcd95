//! Where a file's bytes are on its device, and what the page cache holds of them: system calls
//! without a safe wrapper elsewhere.
//!
//! Read first: Documentation/filesystems/fiemap.rst; sync_file_range(2); cachestat(2).
#![deny(clippy::disallowed_methods)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

use rustix::fs::{Advice, fadvise};

/// Where a part of a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileExtent {
    /// The part's first byte in the file.
    pub offset: u64,
    /// The part's length in bytes.
    pub bytes: u64,
    /// The part's first byte on the device; None if it reads as zeroes or is not on the device yet.
    pub device_offset: Option<u64>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FiemapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// Extents by one call; more take further calls.
const EXTENTS_PER_CALL: usize = 32;

#[repr(C)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [FiemapExtent; EXTENTS_PER_CALL],
}

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`, of which the extents are not a part.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
/// Write dirty pages first, so the answer is final.
const FIEMAP_FLAG_SYNC: u32 = 1;
const LAST: u32 = 0x1;
/// The flags with which `physical` does not say where the bytes are: unknown, delayed, encoded, not
/// aligned, inline, tail.
const NOT_PLAIN: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400;
const UNWRITTEN: u32 = 0x800;

/// The extents of a part of a file, in order; what is missing between them is a hole. With `sync`,
/// dirty pages of the whole file are written first.
pub fn extents(file: &File, offset: u64, bytes: u64, sync: bool) -> io::Result<Vec<FileExtent>> {
    let end = offset.saturating_add(bytes);
    let mut found = Vec::new();
    let mut start = offset;
    while start < end {
        let mut map = Fiemap {
            start,
            length: end - start,
            flags: if sync { FIEMAP_FLAG_SYNC } else { 0 },
            mapped_extents: 0,
            extent_count: EXTENTS_PER_CALL as u32,
            reserved: 0,
            extents: [FiemapExtent::default(); EXTENTS_PER_CALL],
        };
        // SAFETY: the descriptor is open; the argument is a `struct fiemap` with room for as many
        // extents as it says.
        if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut map) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let count = (map.mapped_extents as usize).min(EXTENTS_PER_CALL);
        for extent in &map.extents[..count] {
            let is_plain = extent.flags & (NOT_PLAIN | UNWRITTEN) == 0;
            found.push(FileExtent {
                offset: extent.logical,
                bytes: extent.length,
                device_offset: is_plain.then_some(extent.physical),
            });
        }
        let Some(last) = map.extents[..count].last() else { break };
        let next = last.logical.saturating_add(last.length);
        if last.flags & LAST != 0 || count < EXTENTS_PER_CALL || next <= start {
            break;
        }
        start = next;
    }
    Ok(found)
}

/// What `sync_file_range` waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Nothing: writing begins.
    No,
    /// Every page of the range that was dirty is written.
    Yes,
}

/// Writes the dirty pages of a range; `bytes` 0 is to the end. Makes nothing durable.
pub fn write_back(file: &File, offset: u64, bytes: u64, wait: Wait) -> io::Result<()> {
    let flags = match wait {
        Wait::No => libc::SYNC_FILE_RANGE_WRITE,
        Wait::Yes => {
            libc::SYNC_FILE_RANGE_WAIT_BEFORE
                | libc::SYNC_FILE_RANGE_WRITE
                | libc::SYNC_FILE_RANGE_WAIT_AFTER
        }
    };
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let (offset, bytes) =
        (i64::try_from(offset).map_err(out_of_range)?, i64::try_from(bytes).map_err(out_of_range)?);
    // SAFETY: the call takes a descriptor and numbers.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), offset, bytes, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Drops the clean pages of a range from the page cache; `bytes` 0 is to the end.
pub fn drop_pages(file: &File, offset: u64, bytes: u64) -> io::Result<()> {
    Ok(fadvise(file, offset, std::num::NonZeroU64::new(bytes), Advice::DontNeed)?)
}

/// Whether the page cache has the page with this byte of a file. The file is readable, and writable
/// or the caller's own (mincore(2)).
pub fn is_cached(file: &File, offset: u64) -> io::Result<bool> {
    const PAGE: usize = 4096;
    let start = i64::try_from(offset - offset % PAGE as u64)
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a new mapping, which is not touched; nothing else has its address.
    let page = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            start,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mut resident = 0_u8;
    // SAFETY: the mapping is one page long, and so the answer is one byte.
    let result = unsafe { libc::mincore(page, PAGE, &raw mut resident) };
    let error = io::Error::last_os_error();
    // SAFETY: the mapping of above, which nothing refers to.
    unsafe { libc::munmap(page, PAGE) };
    if result == 0 { Ok(resident & 1 != 0) } else { Err(error) }
}

/// What the page cache holds of a file, in pages.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CachedPages {
    /// All.
    pub cached: u64,
    /// Cached pages that are not written yet.
    pub dirty: u64,
    /// Cached pages that are being written.
    pub writeback: u64,
    /// Pages that were dropped.
    pub evicted: u64,
    /// Pages that were dropped a short time ago.
    pub recently_evicted: u64,
}

/// What the page cache holds of a file (Linux 6.5 or later).
pub fn cached_pages(file: &File) -> io::Result<CachedPages> {
    /// Not in the C library that is linked.
    const SYS_CACHESTAT: libc::c_long = 451;
    #[repr(C)]
    struct Range {
        offset: u64,
        bytes: u64,
    }
    let range = Range { offset: 0, bytes: 0 };
    let mut pages = CachedPages::default();
    // SAFETY: both pointers are to structures of the form that the call expects
    // (include/uapi/linux/mman.h), for as long as it runs.
    match unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0)
    } {
        0 => Ok(pages),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `FS_IOC_GETVERSION`: the generation of a file's inode, which ext4 tells.
pub fn generation(file: &File) -> io::Result<u32> {
    /// `_IOR('v', 1, long)`.
    const FS_IOC_GETVERSION: libc::c_ulong = 0x8008_7601;
    // The kernel writes an `int` although the number says `long`.
    let mut generation = [0_u32; 2];
    // SAFETY: the descriptor is open, and the buffer is as long as the longest that the call may
    // write.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETVERSION, generation.as_mut_ptr()) } {
        0 => Ok(generation[0]),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a file's pages do not simply go to their places on the device; None if they do.
pub fn not_plain(file: &File) -> io::Result<Option<&'static str>> {
    /// `_IOR('f', 1, long)`.
    const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
    const KINDS: [(u32, &str); 5] = [
        (0x4000, "its data goes through the journal (chattr +j)"),
        (0x800, "it is encrypted"),
        (0x10_0000, "it has fs-verity"),
        (0x1000_0000, "its data is in its inode"),
        (0x4, "it is compressed"),
    ];
    // The kernel writes an `int` although the number says `long`.
    let mut flags = [0_u32; 2];
    // SAFETY: the descriptor is open, and the buffer is as long as the longest that the call may
    // write.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, flags.as_mut_ptr()) } {
        0 => Ok(KINDS.into_iter().find(|(flag, _)| flags[0] & flag != 0).map(|(_, reason)| reason)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    fn file() -> File {
        tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    /// File systems without extents (tmpfs, overlays) cannot run these.
    fn supported(file: &File) -> bool {
        let is_supported = extents(file, 0, 4096, false).is_ok();
        if !is_supported {
            println!("skipped: the file system here has no FIEMAP");
        }
        is_supported
    }

    #[test]
    fn many_extents_are_all_found_and_holes_are_missing() {
        let file = file();
        if !supported(&file) {
            return;
        }
        for i in 0..100 {
            file.write_all_at(&[1; 4096], i * 8192).unwrap();
        }
        file.set_len(101 * 8192).unwrap();
        let found = extents(&file, 0, u64::MAX, true).unwrap();
        assert_eq!(found.len(), 100);
        assert!(
            found.iter().enumerate().all(|(i, e)| e.offset == i as u64 * 8192 && e.bytes == 4096)
        );
        assert!(found.iter().all(|e| e.device_offset.is_some_and(|at| at % 4096 == 0)));
        assert_eq!(extents(&file, 4096, 4096, false).unwrap(), []);
    }

    #[test]
    fn what_is_allocated_and_not_written_has_no_place() {
        let file = file();
        if !supported(&file)
            || rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 20)
                .is_err()
        {
            return;
        }
        assert!(
            extents(&file, 0, 1 << 20, true)
                .unwrap()
                .iter()
                .all(|extent| extent.device_offset.is_none())
        );
    }

    #[test]
    fn pages_go_when_they_are_clean() {
        let file = file();
        file.write_all_at(&[1; 65536], 0).unwrap();
        let Ok(pages) = cached_pages(&file) else {
            return println!("skipped: this kernel has no cachestat");
        };
        assert!(pages.cached >= 1);
        assert!(is_cached(&file, 5000).unwrap());
        write_back(&file, 0, 0, Wait::Yes).unwrap();
        drop_pages(&file, 0, 0).unwrap();
        assert_eq!(cached_pages(&file).unwrap().dirty, 0);
    }
}
