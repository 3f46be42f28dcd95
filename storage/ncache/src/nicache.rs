//! Payload by reference: the file system gets keys, replies get chunks of the cache. The paper's
//! *NCache*.
//!
//! A read asks the index by file, then, with the place of the block, the index by block, then the
//! logical unit. A write puts its payload into chunks and a key for each into the file, so
//! space, quotas, times and rights are the kernel's affair at once. What is written in part is
//! read, changed and written as a whole. What is shorter than a key goes as it is.
//!
//! The kernel also changes blocks of its own: it zeroes what is behind the end of a file. So before
//! the end moves away from the end of a block, that block's payload is written anew with the zeroes
//! in it, and afterwards the kernel's page of it is written and dropped (a *fence*).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nicache_filemap::{Wait, drop_pages, is_cached, write_back};
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::{Extent, FileId, Payload, Stability};
use rustix::io::Errno;

use crate::ahead::ReadAhead;
use crate::budget::{Charge, charged, charged_mut};
use crate::cache::Cache;
use crate::copies::CopyClass;
use crate::flusher::Flusher;
use crate::index::{Pending, Reader};
use crate::key::{KEY_BYTES, Sequence};
use crate::keyed::{put_again, write_keys};

const BLOCK: u64 = BLOCK_BYTES as u64;
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
/// Keys by one system call: two vectors each, of at most 1024.
const KEYS_PER_CALL: usize = 256;
/// How often a page is asked to go, a millisecond apart.
const FENCE_ATTEMPTS: usize = 1000;

/// Files whose payload is in the cache.
pub struct Nicache {
    cache: Arc<Cache>,
    // It ends first: it uses the flusher's locks.
    ahead: ReadAhead,
    flusher: Flusher,
}

/// A block that is to be written.
struct Put {
    block: u64,
    /// Bytes of it that are the file's.
    valid_bytes: usize,
    /// A whole block, with zeroes behind the valid bytes.
    chunk: Bytes,
}

impl Nicache {
    /// Serves the files of the file system on a [`BlockServer`](crate::BlockServer) of the same
    /// cache.
    pub fn new(cache: Arc<Cache>) -> io::Result<Self> {
        let flusher = Flusher::start(Arc::clone(&cache))?;
        let ahead = ReadAhead::start(Arc::clone(&cache), Arc::clone(flusher.locks()))?;
        Ok(Self { cache, ahead, flusher })
    }

    /// The cache that payload goes through.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// A block's bytes up to the end of the file, and zeroes behind them.
    fn block_now(&self, file: &File, id: FileId, block: u64, size: u64) -> io::Result<Vec<u8>> {
        let mut bytes = ZEROES.to_vec();
        let valid = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        if valid > 0
            && let Some(chunk) = self.cache.chunks(file, id, block, 1, Reader::Client)?.first()
        {
            self.cache.copies().copy(CopyClass::Edge, &chunk[..valid], &mut bytes[..valid]);
        }
        Ok(bytes)
    }

    /// Cuts a request's payload into blocks. The caller has the file's lock and has paid for the
    /// blocks.
    fn cut(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        size: u64,
        mut charge: Charge,
    ) -> io::Result<Vec<Put>> {
        let bytes: u64 = data.iter().map(|extent| extent.len() as u64).sum();
        let end = offset + bytes;
        // The buffers of the request stay as long as a chunk in them does: each has one charge.
        let held: Vec<Bytes> =
            data.iter().map(|extent| charged(extent.clone(), charge.split(extent.len()))).collect();
        let mut source = Source { extents: &held, at: 0 };
        let mut puts = Vec::with_capacity((bytes / BLOCK + 2) as usize);
        let mut at = offset;
        while at < end {
            let (block, within) = (at / BLOCK, (at % BLOCK) as usize);
            let len = (BLOCK - within as u64).min(end - at) as usize;
            let valid_bytes = size.max(end).saturating_sub(block * BLOCK).min(BLOCK) as usize;
            let by_reference = if len == BLOCK_BYTES { source.take_whole() } else { None };
            let chunk = match by_reference {
                Some(chunk) => chunk,
                None => {
                    let mut bytes = match len {
                        BLOCK_BYTES => ZEROES.to_vec(),
                        _ => self.block_now(file, id, block, size)?,
                    };
                    source.copy(&mut bytes[within..within + len], self.cache.copies());
                    charged_mut(bytes.as_slice().into(), charge.split(BLOCK_BYTES))
                }
            };
            puts.push(Put { block, valid_bytes, chunk });
            at += len as u64;
        }
        Ok(puts)
    }

    /// Puts keys, or short bytes, into the file. The caller has the file's lock.
    fn put(&self, file: &File, id: FileId, puts: &[Put]) -> io::Result<()> {
        let mut rest = puts;
        while let Some(first) = rest.first() {
            if first.valid_bytes < KEY_BYTES {
                self.put_literal(file, id, first)?;
                rest = &rest[1..];
                continue;
            }
            // Neighbours go by one call; only the last may be shorter than a block.
            let mut count = 1;
            while count < rest.len().min(KEYS_PER_CALL)
                && rest[count - 1].valid_bytes == BLOCK_BYTES
                && rest[count].block == rest[count - 1].block + 1
                && rest[count].valid_bytes >= KEY_BYTES
            {
                count += 1;
            }
            self.put_keys(file, id, &rest[..count])?;
            rest = &rest[count..];
        }
        Ok(())
    }

    fn put_keys(&self, file: &File, id: FileId, puts: &[Put]) -> io::Result<()> {
        let sequences: Vec<Sequence> = {
            let mut index = self.cache.index();
            let pending = |put: &Put| Pending {
                file: id,
                block: put.block,
                valid_bytes: put.valid_bytes as u32,
                chunk: put.chunk.clone(),
            };
            puts.iter().map(|put| index.register(pending(put))).collect()
        };
        let blocks: Vec<(u64, Sequence, u32)> = puts
            .iter()
            .zip(&sequences)
            .map(|(put, sequence)| (put.block, *sequence, put.valid_bytes as u32))
            .collect();
        let (written, result) = write_keys(&self.cache, file, &blocks);
        let mut index = self.cache.index();
        let mut until = 0;
        for (put, sequence) in puts.iter().zip(sequences) {
            // A part of a key in a page is a key in doubt; it is kept, because it may be whole.
            if written > until {
                index.publish(id, put.block, sequence);
            } else {
                index.unregister(sequence);
            }
            until += put.valid_bytes;
        }
        result
    }

    fn put_literal(&self, file: &File, id: FileId, put: &Put) -> io::Result<()> {
        file.write_all_at(&put.chunk[..put.valid_bytes], put.block * BLOCK)?;
        self.cache.copies().count(CopyClass::PageCacheIn, put.valid_bytes);
        self.cache.index().publish_literal(id, put.block, put.chunk.clone());
        Ok(())
    }

    /// Writes the last block anew, as it will be when the file has `size` bytes. The caller has the
    /// file's lock.
    fn put_tail(
        &self,
        file: &File,
        id: FileId,
        old: u64,
        size: u64,
        charge: Charge,
    ) -> io::Result<()> {
        let end = old.min(size);
        if end.is_multiple_of(BLOCK) {
            return Ok(());
        }
        let block = end / BLOCK;
        let mut bytes = self.block_now(file, id, block, old)?;
        bytes[(end % BLOCK) as usize..].fill(0);
        let valid_bytes = (size - block * BLOCK).min(BLOCK) as usize;
        let chunk = charged_mut(bytes.as_slice().into(), charge);
        if valid_bytes < KEY_BYTES && old > size {
            // A key may be there, of which the kernel would keep a part: so the whole block, as
            // long as the file still has it.
            let whole = (old - block * BLOCK).min(BLOCK) as usize;
            file.write_all_at(&chunk[..whole], block * BLOCK)?;
            self.cache.index().publish_literal(id, block, chunk);
            return Ok(());
        }
        self.put(file, id, &[Put { block, valid_bytes, chunk }])
    }

    /// Writes and drops the file's pages, if its end is inside one: neither the kernel's version of
    /// that page nor a key in it can outlive a newer one. All pages, because several may be one
    /// folio.
    fn fence(&self, file: &File, id: FileId, end: u64) -> io::Result<()> {
        if end.is_multiple_of(BLOCK) {
            return Ok(());
        }
        let literals = self.cache.index().literals_of(id);
        write_back(file, 0, 0, Wait::Yes)?;
        self.cache.index().handle_literals_written(id, &literals);
        // A page that somebody looks at stays: the kernel's own write-back, for a moment.
        for _ in 0..FENCE_ATTEMPTS {
            drop_pages(file, 0, 0)?;
            if !is_cached(file, end)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
            write_back(file, 0, 0, Wait::Yes)?;
        }
        Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("inode {}: the page of its end stays in use", id.inode),
        ))
    }

    fn sync(&self, file: &File, id: FileId, stability: Stability) -> io::Result<()> {
        let literals = self.cache.index().literals_of(id);
        let synced = match stability {
            Stability::FileSync => file.sync_all(),
            Stability::DataSync | Stability::Unstable => file.sync_data(),
        };
        // The kernel tells of an error once, and perhaps it told somebody else.
        let has_failed = self.cache.index().take_failed(id);
        if synced.is_ok() && !has_failed {
            self.cache.index().handle_literals_written(id, &literals);
            // What is left of a written page is a key that nobody needs.
            let _ = drop_pages(file, 0, 0);
            return self.cache.check_lun();
        }
        self.cache.change_verifier();
        let _lock = self.flusher.locks().write(id);
        if let Err(error) = put_again(&self.cache, file, id) {
            tracing::error!(
                "inode {}: what was not written cannot be written again: {error}",
                id.inode
            );
        }
        synced.and_then(|_| {
            Err(io::Error::other(format!("{}: a write did not arrive", self.cache.lun.name())))
        })
    }
}

impl Payload for Nicache {
    fn read(&self, file: &File, id: FileId, offset: u64, len: u32) -> io::Result<Vec<Extent>> {
        self.cache.check_lun()?;
        let _lock = self.flusher.locks().read(id);
        let size = size(file)?;
        let end = size.min(offset.saturating_add(u64::from(len)));
        if offset >= end {
            return Ok(Vec::new());
        }
        let first = offset / BLOCK;
        self.ahead.note(file, id, first, end.div_ceil(BLOCK), size.div_ceil(BLOCK));
        let count = end.div_ceil(BLOCK) - first;
        let mut chunks = self.cache.chunks(file, id, first, count, Reader::Client)?;
        if let Some(last) = chunks.last_mut() {
            last.truncate((end - (end - 1) / BLOCK * BLOCK) as usize);
        }
        if let Some(chunk) = chunks.first_mut() {
            *chunk = chunk.slice((offset % BLOCK) as usize..);
        }
        Ok(chunks)
    }

    fn write(
        &self,
        file: &File,
        id: FileId,
        offset: u64,
        data: &[Extent],
        stability: Stability,
    ) -> io::Result<()> {
        self.cache.check_lun()?;
        let bytes: usize = data.iter().map(Extent::len).sum();
        let end = offset.checked_add(bytes as u64).filter(|end| i64::try_from(*end).is_ok());
        if end.is_none() {
            return Err(Errno::FBIG.into());
        }
        if bytes == 0 {
            return Ok(());
        }
        self.flusher.check(file, id)?;
        // Before any lock: whoever frees memory may need it. The request's buffers, each block's
        // copy if they are not aligned, and a tail.
        let is_aligned = offset.is_multiple_of(BLOCK)
            && data.iter().all(|extent| extent.len().is_multiple_of(BLOCK_BYTES));
        let copied =
            if is_aligned { 0 } else { bytes.next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES };
        let mut charge = self.cache.charge(bytes + copied + BLOCK_BYTES)?;
        {
            let _lock = self.flusher.locks().write(id);
            let _noted = self.flusher.note(file, id)?;
            let size = size(file)?;
            if offset > size && offset / BLOCK != size / BLOCK {
                // The block with the old end becomes whole, and what was behind its end is zeroes.
                self.put_tail(file, id, size, offset, charge.split(BLOCK_BYTES))?;
            }
            let puts = self.cut(file, id, offset, data, size, charge)?;
            self.put(file, id, &puts)?;
        }
        self.flusher.relieve(id);
        match stability {
            Stability::Unstable => Ok(()),
            Stability::DataSync | Stability::FileSync => self.sync(file, id, stability),
        }
    }

    fn commit(&self, file: &File, id: FileId) -> io::Result<()> {
        self.cache.check_lun()?;
        self.sync(file, id, Stability::DataSync)
    }

    fn resize(&self, file: &File, id: FileId, size: u64) -> io::Result<()> {
        self.cache.check_lun()?;
        self.flusher.check(file, id)?;
        let charge = self.cache.charge(BLOCK_BYTES)?;
        let _lock = self.flusher.locks().write(id);
        let old = self::size(file)?;
        if size != old {
            let _noted = self.flusher.note(file, id)?;
            self.put_tail(file, id, old, size, charge)?;
        }
        // The kernel zeroes what is behind the end in its page, also if that stays where it is:
        // behind the new end, and on newer kernels behind the old one of a file that grows. A key
        // in there that has arrived would go to the device once more.
        self.fence(file, id, old.min(size))?;
        file.set_len(size)?;
        if size < old {
            self.cache.index().cut(id, size.div_ceil(BLOCK));
            self.fence(file, id, size)?;
        }
        Ok(())
    }

    fn verifier(&self) -> u64 {
        self.cache.verifier()
    }
}

fn size(file: &File) -> io::Result<u64> {
    Ok(rustix::fs::fstat(file)?.st_size as u64)
}

/// The payload of a request, taken from the front.
struct Source<'d> {
    extents: &'d [Bytes],
    at: usize,
}

impl Source<'_> {
    /// A block by reference, if it lies in one extent.
    fn take_whole(&mut self) -> Option<Bytes> {
        self.skip_empty();
        let extent = self.extents.first()?;
        let chunk = (extent.len() - self.at >= BLOCK_BYTES)
            .then(|| extent.slice(self.at..self.at + BLOCK_BYTES))?;
        self.at += BLOCK_BYTES;
        Some(chunk)
    }

    /// The next bytes, by copying.
    fn copy(&mut self, mut to: &mut [u8], copies: &crate::copies::Copies) {
        while !to.is_empty() {
            self.skip_empty();
            let Some(extent) = self.extents.first() else { return };
            let bytes = to.len().min(extent.len() - self.at);
            let (now, later) = to.split_at_mut(bytes);
            copies.copy(CopyClass::Edge, &extent[self.at..self.at + bytes], now);
            self.at += bytes;
            to = later;
        }
    }

    fn skip_empty(&mut self) {
        while let Some((first, rest)) = self.extents.split_first() {
            if self.at < first.len() {
                return;
            }
            (self.extents, self.at) = (rest, 0);
        }
    }
}
