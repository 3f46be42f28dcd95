//! What is copied for each request, by class: payload is copied by this type or is not copied.
//!
//! The paper's Table 2 counts copies of regular data. Copies that the kernel makes for a system
//! call are counted where the call is made; those of sockets and of FUSE are the same in all modes
//! and are not here.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why bytes are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyClass {
    /// From the kernel's page cache into a reply.
    PageCacheOut,
    /// From a request into the kernel's page cache.
    PageCacheIn,
    /// Between the parts of a block that is written in part, or that lies across a request's
    /// buffers.
    Edge,
    /// Keys and zeroes into the page cache in the place of payload.
    Key,
    /// Blocks without keys on their way to the logical unit: metadata, and payload in the mode
    /// *original*.
    Literal,
    /// Blocks on their way to the kernel.
    Device,
}

impl CopyClass {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::PageCacheOut, Self::PageCacheIn, Self::Edge, Self::Key, Self::Literal, Self::Device];

    /// The class's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::PageCacheOut => "page_cache_out",
            Self::PageCacheIn => "page_cache_in",
            Self::Edge => "edge",
            Self::Key => "key",
            Self::Literal => "literal",
            Self::Device => "device",
        }
    }
}

/// Copies of one class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// How often bytes were copied.
    pub copies: u64,
    /// Bytes that were copied.
    pub bytes: u64,
}

/// Copies and counts.
#[derive(Debug, Default)]
pub struct Copies {
    classes: [(AtomicU64, AtomicU64); CopyClass::ALL.len()],
}

impl Copies {
    /// Copies. Both have the same length.
    pub fn copy(&self, class: CopyClass, from: &[u8], to: &mut [u8]) {
        to.copy_from_slice(from);
        self.count(class, from.len());
    }

    /// Counts what a system call copied.
    pub fn count(&self, class: CopyClass, bytes: usize) {
        let (copies, total) = &self.classes[class as usize];
        copies.fetch_add(1, Ordering::Relaxed);
        total.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What was copied so far.
    pub fn counted(&self, class: CopyClass) -> Counted {
        let (copies, bytes) = &self.classes[class as usize];
        Counted { copies: copies.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_is_counted_apart() {
        let copies = Copies::default();
        let mut to = [0; 3];
        copies.copy(CopyClass::Edge, b"abc", &mut to);
        copies.count(CopyClass::Key, 4096);
        assert_eq!(&to, b"abc");
        let bytes: Vec<u64> = CopyClass::ALL.map(|class| copies.counted(class).bytes).into();
        assert_eq!(bytes, [0, 0, 3, 4096, 0, 0]);
    }
}
