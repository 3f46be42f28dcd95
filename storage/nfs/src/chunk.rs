//! Memory for payload, used again.
//!
//! A megabyte from the allocator is a mapping that the kernel has to clear; a chunk that was used
//! before is not.

use std::sync::{Arc, Mutex, PoisonError};

use nicache_payload::Extent;

use crate::limits::CHUNK_BYTES;

/// Below this the allocator is as good, and a short run of bytes does not hold a whole chunk.
const OWN_BYTES_MAX: usize = 16 << 10;

/// Chunks that nobody refers to at present.
#[derive(Debug)]
pub struct ChunkPool {
    free: Mutex<Vec<Box<[u8]>>>,
    kept_max: usize,
}

/// Memory of a size that was asked for, to be filled and then referred to.
#[derive(Debug)]
pub struct Chunk {
    bytes: Box<[u8]>,
    len: usize,
    pool: Option<Arc<ChunkPool>>,
}

impl ChunkPool {
    /// Keeps at most `bytes_max` bytes for later.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { free: Mutex::new(Vec::new()), kept_max: bytes_max / CHUNK_BYTES })
    }

    /// Memory for `len` bytes, of any content.
    ///
    /// # Panics
    ///
    /// If `len` is more than [`CHUNK_BYTES`].
    #[must_use]
    pub fn take(self: &Arc<Self>, len: usize) -> Chunk {
        assert!(len <= CHUNK_BYTES);
        if len <= OWN_BYTES_MAX {
            return Chunk { bytes: vec![0; len].into(), len, pool: None };
        }
        let used = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let bytes = used.unwrap_or_else(|| vec![0; CHUNK_BYTES].into());
        Chunk { bytes, len, pool: Some(self.clone()) }
    }

    /// Memory for `len` bytes in chunks.
    pub fn take_all(self: &Arc<Self>, len: usize) -> impl Iterator<Item = Chunk> {
        (0..len.div_ceil(CHUNK_BYTES))
            .map(move |i| self.take(CHUNK_BYTES.min(len - i * CHUNK_BYTES)))
    }
}

impl Chunk {
    /// All of it, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// The chunk's first `len` bytes, by reference from here on.
    #[must_use]
    pub fn freeze(mut self, len: usize) -> Extent {
        self.len = self.len.min(len);
        Extent::from_owner(self)
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        let bytes = std::mem::take(&mut self.bytes);
        let mut free = pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < pool.kept_max {
            free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_comes_back_when_the_last_reference_is_gone() {
        let pool = ChunkPool::new(2 * CHUNK_BYTES);
        let chunks: Vec<Chunk> = pool.take_all(3 * CHUNK_BYTES + 100).collect();
        assert_eq!(
            chunks.iter().map(|chunk| chunk.as_ref().len()).sum::<usize>(),
            3 * CHUNK_BYTES + 100
        );
        let extents: Vec<Extent> =
            chunks.into_iter().map(|chunk| chunk.freeze(usize::MAX)).collect();
        let kept = extents[0].slice(5..6);
        drop(extents);
        assert_eq!(pool.free.lock().unwrap().len(), 2);
        drop(pool.take(CHUNK_BYTES));
        drop(kept);
        assert_eq!(pool.free.lock().unwrap().len(), 2, "no more than the limit is kept");
    }
}
