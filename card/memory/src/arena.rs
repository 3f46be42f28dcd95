//! One anonymous mapping, touched in full at start so no page fault is left for the packet
//! path.
//!
//! Read first: mmap(2), madvise(2), Documentation/admin-guide/mm/transhuge.rst. Deliberately
//! absent: growing, swapping protection (mlock is the operator's choice through cgroups), and NUMA
//! placement (first touch decides: make the arena on the thread that will use it).

use std::ffi::c_void;
use std::io;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

const HUGE_PAGE_BYTES: usize = 2 << 20;
const SMALL_PAGE_BYTES: usize = 4096;

/// Whether large pages are asked for. Default: [`HugePages::Try`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Reserved 2 MiB pages (`MAP_HUGETLB`) if the system has enough of them, else transparent ones
    /// (`MADV_HUGEPAGE`), else small ones. Never fails for want of large pages.
    #[default]
    Try,
    /// Small pages only.
    No,
}

/// What kind of pages the kernel gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Reserved 2 MiB pages.
    Reserved,
    /// Transparent huge pages back this many bytes of the arena; the rest is in small pages.
    Transparent {
        /// Bytes in huge pages when the arena was made.
        huge_bytes: u64,
    },
    /// 4 KiB pages only.
    Small,
}

/// A fixed array of bytes in a mapping of its own.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    len: usize,
    mapping: Mapping,
    pages: Pages,
}

#[derive(Debug)]
struct Mapping {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: the arena owns its mapping alone (private, anonymous, unmapped only in drop) and hands
// out its bytes only through `&self` and `&mut self`, like a `Box<[u8]>`.
unsafe impl Send for Arena {}
// SAFETY: as above; `&Arena` gives only `&[u8]`.
unsafe impl Sync for Arena {}

impl Arena {
    /// Maps `len` bytes of zeros and touches every page.
    ///
    /// Fails with the error of mmap(2), or `ENOMEM` / `EINVAL` for a length of 0 or beyond the
    /// address space.
    pub fn new(len: usize, huge: HugePages) -> io::Result<Self> {
        if len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        match huge {
            HugePages::Try => Self::reserved(len).or_else(|_| Self::ordinary(len, true)),
            HugePages::No => Self::ordinary(len, false),
        }
    }

    /// What kind of pages it lies on.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// All bytes of the memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start` is the start of `len` mapped, initialised (zero or written) bytes that
        // live as long as self, and they are written only through `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// All bytes, to write.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }

    fn reserved(len: usize) -> io::Result<Self> {
        let bytes = round_up(len, HUGE_PAGE_BYTES)?;
        // MAP_HUGETLB reserves the pages at mmap(2), so a shortage is an error here and not a
        // SIGBUS later.
        let mapping = Mapping::new(bytes, MapFlags::HUGETLB | MapFlags::HUGE_2MB)?;
        let start = mapping.first_aligned(SMALL_PAGE_BYTES)?;
        let mut arena = Self { start, len, mapping, pages: Pages::Reserved };
        arena.settle(HUGE_PAGE_BYTES);
        Ok(arena)
    }

    fn ordinary(len: usize, huge: bool) -> io::Result<Self> {
        // A transparent huge page must lie on a 2 MiB boundary; one page more leaves room to begin
        // on it.
        let slack = if huge { HUGE_PAGE_BYTES } else { 0 };
        let bytes = round_up(len, SMALL_PAGE_BYTES)?
            .checked_add(slack)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping::new(bytes, MapFlags::empty())?;
        let start = mapping.first_aligned(if huge { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES })?;
        let mut arena = Self { start, len, mapping, pages: Pages::Small };
        // Advice is best effort: a kernel without transparent huge pages answers EINVAL, and that
        // is what `pages` says.
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        arena.advise(advice, if huge { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES });
        arena.settle(SMALL_PAGE_BYTES);
        let huge_bytes = huge_bytes_of_mapping_at(arena.start.as_ptr() as usize).unwrap_or(0);
        if huge_bytes > 0 {
            arena.pages = Pages::Transparent { huge_bytes };
        }
        Ok(arena)
    }

    /// Touches every page, and keeps the arena out of core dumps and of forked children (a child
    /// that shared it would turn each later write into a page copy).
    fn settle(&mut self, page_bytes: usize) {
        self.advise(Advice::LinuxDontDump, page_bytes);
        self.advise(Advice::LinuxDontFork, page_bytes);
        if !self.advise(Advice::LinuxPopulateWrite, page_bytes) {
            for page in self.bytes_mut().chunks_mut(page_bytes) {
                // A plain store of zero to memory that is known to be zero may be left out by the
                // compiler. SAFETY: a valid, exclusive reference to one byte.
                unsafe { std::ptr::write_volatile(&mut page[0], 0) };
            }
        }
    }

    fn advise(&mut self, advice: Advice, page_bytes: usize) -> bool {
        let bytes =
            self.mapping.bytes - (self.start.as_ptr() as usize - self.mapping.start as usize);
        let bytes = self.len.next_multiple_of(page_bytes).min(bytes);
        // SAFETY: the range lies inside our own mapping; none of the advices used here discards or
        // unmaps contents.
        unsafe { madvise(self.start.as_ptr().cast(), bytes, advice) }.is_ok()
    }
}

impl Mapping {
    fn new(bytes: usize, flags: MapFlags) -> io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice replaces
        // nothing that exists.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, access, MapFlags::PRIVATE | flags)
        }?;
        Ok(Self { start, bytes })
    }

    fn first_aligned(&self, boundary: usize) -> io::Result<NonNull<u8>> {
        let skip = (self.start as usize).next_multiple_of(boundary) - self.start as usize;
        NonNull::new(self.start.cast::<u8>().wrapping_add(skip))
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap gave, unmapped once; no reference outlives the arena
        // that owns it. An error is not possible for a range that is mapped, and could not be acted
        // upon.
        let _ = unsafe { munmap(self.start, self.bytes) };
    }
}

fn round_up(len: usize, boundary: usize) -> io::Result<usize> {
    len.checked_next_multiple_of(boundary)
        .filter(|&bytes| bytes <= isize::MAX as usize)
        .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// `AnonHugePages` of the mapping that holds `address`, from /proc/self/smaps; None if it cannot be
/// read.
fn huge_bytes_of_mapping_at(address: usize) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let mut inside = false;
    for line in maps.lines() {
        let first = line.split_whitespace().next()?;
        if let Some((low, high)) = first.split_once('-')
            && let (Ok(low), Ok(high)) =
                (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16))
        {
            inside = (low..high).contains(&address);
        } else if inside && first == "AnonHugePages:" {
            let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
            return Some(kib * 1024);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_zero_writable_and_apart_from_other_arenas() {
        for huge in [HugePages::Try, HugePages::No] {
            for len in [1, 4096, 4097, (2 << 20) + 5] {
                let mut a = Arena::new(len, huge).unwrap();
                let b = Arena::new(len, huge).unwrap();
                assert_eq!(a.bytes().len(), len);
                assert!(a.bytes().iter().all(|&byte| byte == 0));
                a.bytes_mut().fill(0xA5);
                assert!(a.bytes().iter().all(|&byte| byte == 0xA5));
                assert!(b.bytes().iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn impossible_lengths_are_errors() {
        for huge in [HugePages::Try, HugePages::No] {
            for len in [0, usize::MAX, isize::MAX as usize, usize::MAX / 4] {
                assert!(Arena::new(len, huge).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn reported_huge_bytes_lie_within_the_mapping() {
        let arena = Arena::new(8 << 20, HugePages::Try).unwrap();
        if let Pages::Transparent { huge_bytes } = arena.pages() {
            assert!((1..=10 << 20).contains(&huge_bytes), "{huge_bytes}");
        }
        assert_eq!(Arena::new(8 << 20, HugePages::No).unwrap().pages(), Pages::Small);
    }

    #[test]
    fn all_pages_are_resident_from_the_start() {
        let arena = Arena::new(4 << 20, HugePages::No).unwrap();
        let mut resident = 0;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        for line in maps.lines() {
            let first = line.split_whitespace().next().unwrap();
            if let Some((low, high)) = first.split_once('-')
                && let (Ok(low), Ok(high)) =
                    (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16))
            {
                inside = (low..high).contains(&(arena.start.as_ptr() as usize));
            } else if inside && first == "Rss:" {
                resident = line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024;
            }
        }
        assert!(resident >= 4 << 20, "{resident}");
    }
}
