//! Blocks of files, and pages for them.

/// Bytes of a block: a page of memory.
pub const BLOCK_BYTES: u64 = 4096;

/// A file, by a number that is never given to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileNumber(pub u32);

/// What a file was when a block of it was read. A file that has changed has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// A page of the page cache, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNumber(pub u32);

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// Which file.
    pub file: FileNumber,
    /// Its offset, in blocks.
    pub index: u32,
}

impl Block {
    /// The block that has a byte of a file.
    ///
    /// # Panics
    /// Past 16 TiB.
    pub fn at(file: FileNumber, offset: u64) -> Self {
        Self {
            file,
            index: u32::try_from(offset / BLOCK_BYTES).expect("files of less than 16 TiB"),
        }
    }

    /// Offset of its first byte in the file.
    pub fn offset(self) -> u64 {
        u64::from(self.index) * BLOCK_BYTES
    }
}
