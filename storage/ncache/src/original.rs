//! Payload through the page cache, as today's servers move it: the paper's *original*.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::BytesMut;
use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::copies::{Copies, CopyClass};

/// Reads and writes files as they are.
#[derive(Debug)]
pub struct Original {
    copies: Arc<Copies>,
    verifier: AtomicU64,
}

impl Original {
    /// Counts in `copies`.
    pub fn new(copies: Arc<Copies>) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { copies, verifier: AtomicU64::new(since_epoch.as_nanos() as u64) }
    }

    /// An error of a flush: the kernel has dropped what it could not write.
    fn check(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|_| {
            self.verifier.fetch_add(1, Ordering::AcqRel);
        })
    }
}

impl Payload for Original {
    fn read(&self, file: &File, _: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        let size = file.metadata()?.len();
        let bytes = u64::from(len).min(size.saturating_sub(offset)) as usize;
        let mut buffer = BytesMut::zeroed(bytes);
        let mut filled = 0;
        while filled < bytes {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer.truncate(filled);
        self.copies.count(CopyClass::PageCacheOut, filled);
        Ok(if filled == 0 { Vec::new() } else { vec![buffer.freeze()] })
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        let mut at = offset;
        for extent in data {
            file.write_all_at(extent, at)?;
            self.copies.count(CopyClass::PageCacheIn, extent.len());
            at += extent.len() as u64;
        }
        match stability {
            Stability::Unstable => Ok(()),
            Stability::DataSync => self.commit(file, id),
            Stability::FileSync => self.check(file.sync_all()),
        }
    }

    fn commit(&self, file: &File, _: FileId) -> io::Result<()> {
        self.check(file.sync_data())
    }

    fn resize(&self, file: &File, _: FileId, size: u64) -> io::Result<()> {
        file.set_len(size)
    }

    fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }
}
