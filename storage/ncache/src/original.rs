//! Payload through the page cache, as today's servers move it: the paper's *original*.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use bytes::BytesMut;
use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::cache::Cache;
use crate::copies::CopyClass;

/// Reads and writes files as they are.
pub struct Original {
    cache: Arc<Cache>,
}

impl Original {
    /// Serves the files of the file system on a [`BlockServer`](crate::BlockServer) of the same
    /// cache, whose verifier it has: a write that fails below may be of a file that nobody has
    /// open, and then the kernel tells nobody.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache }
    }

    /// An error of a flush: the kernel has dropped what it could not write.
    fn check(&self, result: io::Result<()>) -> io::Result<()> {
        result.inspect_err(|_| self.cache.change_verifier())
    }
}

impl Payload for Original {
    fn read(&self, file: &File, _: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        self.cache.check_lun()?;
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
        self.cache.copies().count(CopyClass::PageCacheOut, filled);
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
            self.cache.copies().count(CopyClass::PageCacheIn, extent.len());
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
        self.cache.verifier()
    }
}
