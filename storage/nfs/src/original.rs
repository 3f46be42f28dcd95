//! Payload by the kernel's own file system and page cache: read and written by copying.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use nicache_payload::{Extent, FileId, Payload, Stability};
use rustix::io::pwritev;

use crate::chunk::ChunkPool;

/// Slices that one system call takes.
const SLICES_MAX: usize = 256;

/// Files as they are.
#[derive(Debug)]
pub struct Original {
    chunks: Arc<ChunkPool>,
    verifier: AtomicU64,
}

impl Original {
    /// Reads and writes files with memory from `chunks`.
    #[must_use]
    pub fn new(chunks: Arc<ChunkPool>) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "nanoseconds since 1970 fit until 2554"
        )]
        let verifier = AtomicU64::new(now.as_nanos() as u64);
        Self { chunks, verifier }
    }

    /// The kernel tells of a failed write-back once; what was lost, nobody knows. All clients send
    /// what is not committed again.
    fn told(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            self.verifier.fetch_add(1, Ordering::SeqCst);
        }
        result
    }
}

impl Payload for Original {
    fn read(&self, file: &File, _: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        let mut extents = Vec::new();
        let mut at = offset;
        for mut chunk in self.chunks.take_all(len as usize) {
            let bytes = chunk.bytes_mut();
            let asked = bytes.len();
            let mut filled = 0;
            while filled < asked {
                match file.read_at(&mut bytes[filled..], at) {
                    Ok(0) => break,
                    Ok(n) => {
                        filled += n;
                        at += n as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            if filled > 0 {
                extents.push(chunk.freeze(filled));
            }
            if filled < asked {
                break;
            }
        }
        Ok(extents)
    }

    fn write(
        &self,
        file: &File,
        _: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        let mut at = offset;
        for extents in data.chunks(SLICES_MAX) {
            let mut slices: Vec<IoSlice<'_>> =
                extents.iter().map(|extent| IoSlice::new(extent)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                match pwritev(file, rest, at) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => {
                        at += n as u64;
                        IoSlice::advance_slices(&mut rest, n);
                    }
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        match stability {
            Stability::Unstable => Ok(()),
            Stability::DataSync => self.told(file.sync_data()),
            Stability::FileSync => self.told(file.sync_all()),
        }
    }

    fn commit(&self, file: &File, _: FileId) -> io::Result<()> {
        self.told(file.sync_all())
    }

    fn resize(&self, file: &File, _: FileId, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::SeqCst)
    }
}
