//! No copies of payload, and junk in its place: the paper's *baseline*, which says what the rest
//! costs. For demonstrations only.
//!
//! A read brings the file's pages into the page cache as *original* does, and answers with zeroes.
//! A write puts zeroes into the page cache.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use nicache_payload::{Extent, FileId, Payload, Stability};

use crate::cache::Cache;
use crate::copies::CopyClass;
use crate::original::Original;

static JUNK: [u8; 1 << 16] = [0; 1 << 16];

/// Answers with junk.
pub struct Baseline {
    cache: Arc<Cache>,
    original: Original,
}

impl Baseline {
    /// As [`Original::new`].
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { original: Original::new(Arc::clone(&cache)), cache }
    }
}

fn junk(bytes: u64) -> Vec<Extent> {
    let whole = JUNK.len() as u64;
    let parts = (0..bytes).step_by(JUNK.len());
    parts.map(|at| Extent::from_static(&JUNK[..whole.min(bytes - at) as usize])).collect()
}

impl Payload for Baseline {
    fn read(&self, file: &File, _: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        let size = file.metadata()?.len();
        let bytes = u64::from(len).min(size.saturating_sub(offset));
        if bytes == 0 {
            return Ok(Vec::new());
        }
        // The kernel reads what is missing; waiting for the last byte is waiting for the last page.
        if bytes > 4096 {
            rustix::fs::fadvise(
                file,
                offset,
                std::num::NonZeroU64::new(bytes),
                rustix::fs::Advice::WillNeed,
            )?;
        }
        let mut last = [0];
        rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut last, offset + bytes - 1))?;
        Ok(junk(bytes))
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        let bytes: u64 = data.iter().map(|extent| extent.len() as u64).sum();
        let mut at = offset;
        for part in junk(bytes) {
            file.write_all_at(&part, at)?;
            self.cache.copies().count(CopyClass::Key, part.len());
            at += part.len() as u64;
        }
        match stability {
            Stability::Unstable => Ok(()),
            Stability::DataSync | Stability::FileSync => self.commit(file, id),
        }
    }

    fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
        self.original.commit(file, id)
    }

    fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
        self.original.resize(file, id, size)
    }

    fn verifier(&self) -> u64 {
        self.original.verifier()
    }
}
