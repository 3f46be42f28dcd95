//! The contract between a file server's front end and the storage behind it: payload moves by
//! reference.
//!
//! The front end speaks the protocol and does metadata by system calls; what a file *contains*
//! passes through [`Payload`] only. Implementations are in `nicache-ncache`.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

/// A run of a file's bytes, by reference. A reply that holds one keeps it alive.
pub type Extent = bytes::Bytes;

/// A file, as the kernel's file system tells it from every other that it has or had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId {
    /// The inode's number.
    pub inode: u64,
    /// Which of the files that had this number one after the other.
    pub generation: u32,
}

/// How durable a write is when it returns (RFC 1813, section 3.3.7: `stable_how`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stability {
    /// Not at all, until [`Payload::commit`].
    Unstable,
    /// The data, and what is needed to find it.
    DataSync,
    /// The data and all of the file's attributes.
    FileSync,
}

/// Where the bytes of files come from, and where they go.
pub trait Payload: Send + Sync {
    /// Up to `len` bytes from `offset`; fewer only at the end of the file. Holes are zeroes.
    fn read(
        &self,
        file: &std::fs::File,
        id: FileId,
        offset: u64,
        len: u32,
    ) -> std::io::Result<Vec<Extent>>;

    /// Writes all of `data` at `offset`; durable on return unless `Unstable`.
    fn write(
        &self,
        file: &std::fs::File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> std::io::Result<()>;

    /// Makes all earlier writes to the file durable.
    fn commit(&self, file: &std::fs::File, id: FileId) -> std::io::Result<()>;

    /// Sets the file's size; bytes beyond the old end read as zeroes.
    fn resize(&self, file: &std::fs::File, id: FileId, size: u64) -> std::io::Result<()>;

    /// Changes whenever unstable writes may have been lost.
    fn verifier(&self) -> u64;
}
