//! Memory that card and host share: an anonymous file that can neither grow nor shrink.
//!
//! Nothing here makes a reference to shared bytes: the other side may change them at any moment.
//! Words are atomics, all else is copied. A copy that the other side changes meanwhile is torn,
//! which is its own loss.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::ring::RingMemory;

/// A range that does not lie in the window. Addresses are offsets from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{len} bytes at {at} do not lie in a window of {bytes} bytes")]
pub struct WindowError {
    /// Where they should begin.
    pub at: u64,
    /// How many bytes the range has.
    pub len: u64,
    /// Bytes of the window.
    pub bytes: u64,
}

/// A mapping of the shared memory. Unmapped when dropped.
#[derive(Debug)]
pub struct Window {
    memory: NonNull<u8>,
    bytes: usize,
    file: OwnedFd,
}

// SAFETY: it owns its mapping, nothing in it is bound to a thread, and shared bytes are reached by
// atomics and raw copies alone.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Window {
    /// New memory, all 0.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(name: &str, bytes: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, bytes as u64)?;
        fcntl_add_seals(&file, SEALS)?;
        Self::map(file)
    }

    /// Memory that another process has made. If it could still shrink, touching it could end this
    /// process, and it is refused.
    ///
    /// # Errors
    /// `InvalidInput` if it is not such a file, or what the system says.
    pub fn map(file: OwnedFd) -> io::Result<Self> {
        let refused =
            |why: &str| io::Error::new(io::ErrorKind::InvalidInput, format!("shared memory {why}"));
        if !fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(refused("that can change its size"));
        }
        let bytes = usize::try_from(fstat(&file)?.st_size).map_err(|_| refused("of no size"))?;
        if bytes == 0 {
            return Err(refused("without a byte"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of a file that is `bytes`
        // long for good.
        let memory =
            unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) }?;
        let memory = NonNull::new(memory.cast())
            .ok_or_else(|| io::Error::other("mmap returned address 0"))?;
        Ok(Self { memory, bytes, file })
    }

    /// The file of the window, to be handed to the other side.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Bytes of the window.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn place(&self, at: u64, len: u64) -> Result<NonNull<u8>, WindowError> {
        let bytes = self.bytes as u64;
        if at.checked_add(len).is_none_or(|end| end > bytes) {
            return Err(WindowError { at, len, bytes });
        }
        // SAFETY: `at` is at most the length of the mapping.
        Ok(unsafe { self.memory.add(at as usize) })
    }

    /// Copies bytes out of the window.
    ///
    /// # Errors
    /// They do not lie in it.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), WindowError> {
        let from = self.place(at, into.len() as u64)?;
        // SAFETY: both ranges are valid for so many bytes, and private memory does not overlap the
        // mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Copies bytes into the window.
    ///
    /// # Errors
    /// They do not fit there.
    pub fn write(&self, at: u64, from: &[u8]) -> Result<(), WindowError> {
        let into = self.place(at, from.len() as u64)?;
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
        Ok(())
    }

    /// Reads bytes of a file into the window, without a copy in between, as many as there are.
    ///
    /// # Errors
    /// `InvalidInput` if they do not fit there, or what the system says.
    pub fn read_file(
        &self,
        at: u64,
        len: u64,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> io::Result<u64> {
        let refused = |error: WindowError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let into = self.place(at, len).map_err(refused)?;
        let mut done = 0;
        while done < len {
            let left = (len - done) as usize;
            // SAFETY: the range lies in the mapping. The kernel writes there as the other side
            // might; nobody has a reference to it.
            let buffer: &mut [MaybeUninit<u8>] = unsafe {
                std::slice::from_raw_parts_mut(into.as_ptr().add(done as usize).cast(), left)
            };
            match rustix::io::pread(file, buffer, offset + done) {
                Ok(([], _)) => break,
                Ok((read, _)) => done += read.len() as u64,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    /// The word at a byte offset.
    ///
    /// # Panics
    /// If it does not lie in the window, or is not aligned: offsets of words are never the other
    /// side's.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.bytes, "a word at {at} of {}", self.bytes);
        // SAFETY: in the mapping, aligned (which begins at a page), and every value of it is valid.
        unsafe { self.memory.add(at).cast::<AtomicU64>().as_ref() }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is this window's own; references to words cannot outlive it.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.bytes) };
    }
}

/// Some words of a window, as the memory of a ring.
#[derive(Debug, Clone)]
pub struct Words {
    window: std::sync::Arc<Window>,
    at: usize,
    words: usize,
}

impl Words {
    /// The words of a range of bytes.
    ///
    /// # Panics
    /// If it does not lie in the window, or is not aligned.
    pub fn new(window: std::sync::Arc<Window>, range: Range<usize>) -> Self {
        assert!(
            range.start.is_multiple_of(8) && range.end <= window.bytes && range.start <= range.end
        );
        Self { window, at: range.start, words: range.len() / 8 }
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.words, "word {word} of {}", self.words);
        self.window.word(self.at + 8 * word)
    }
}

impl RingMemory for Words {
    fn load(&self, word: usize, ordering: Ordering) -> u64 {
        self.word(word).load(ordering)
    }

    fn store(&self, word: usize, value: u64, ordering: Ordering) {
        self.word(word).store(value, ordering);
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_see_the_same() {
        let host = Window::create("test", 8192).unwrap();
        let card = Window::map(host.file().try_clone_to_owned().unwrap()).unwrap();
        host.write(4090, b"across a page").unwrap();
        let mut read = [0; 13];
        card.read(4090, &mut read).unwrap();
        assert_eq!(&read, b"across a page");
        card.word(16).store(7, Ordering::SeqCst);
        assert_eq!(host.word(16).load(Ordering::SeqCst), 7);
    }

    #[test]
    fn nothing_outside_is_touched() {
        let window = Window::create("test", 4096).unwrap();
        for (at, len) in [(4096, 1), (4095, 2), (u64::MAX, 1), (u64::MAX, 8), (0, 4097)] {
            let mut bytes = vec![0; len as usize];
            let error = WindowError { at, len, bytes: 4096 };
            assert_eq!(window.read(at, &mut bytes), Err(error));
            assert_eq!(window.write(at, &bytes), Err(error));
        }
        window.write(4096, b"").unwrap();
    }

    #[test]
    fn memory_that_can_shrink_is_refused() {
        let file = memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 4096).unwrap();
        assert_eq!(Window::map(file).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_file_is_read_up_to_its_end() {
        let window = Window::create("test", 4096).unwrap();
        let path = std::env::temp_dir().join(format!("nicache-bus-{}", std::process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(window.read_file(100, 50, file.as_fd(), 3).unwrap(), 7);
        let mut read = [0; 8];
        window.read(100, &mut read).unwrap();
        assert_eq!(&read, b"3456789\0");
        assert_eq!(
            window.read_file(4090, 7, file.as_fd(), 0).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
