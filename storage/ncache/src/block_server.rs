//! The block device below the file system: keys become payload on the way to the logical unit.
//!
//! The device alone decides what a block contains. Reads give true bytes. A block with a valid key
//! is its payload, and then the cache finds it by block; a block with the tag and no valid key is
//! an error and goes nowhere; any other block is literal and replaces what the cache had. The last
//! arrival wins, so the reuse of freed blocks is right by construction.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use nicache_device::Blocks;
use nicache_initiator::{BLOCK_BYTES, LunError};

use crate::cache::Cache;
use crate::copies::CopyClass;
use crate::key::{BlockContent, Sequence};
use crate::places::Lbn;

/// Answers a block device from a cache and its logical unit.
pub struct BlockServer {
    cache: Arc<Cache>,
}

impl BlockServer {
    /// The device of a cache.
    pub fn new(cache: Arc<Cache>) -> Self {
        Self { cache }
    }

    fn refuse(&self, offset: u64, what: &str) -> LunError {
        self.cache.refused_keys.fetch_add(1, Ordering::Relaxed);
        self.cache.change_verifier();
        let reason = format!("the block at {offset} has {what}; it is not written");
        LunError::Failed { lun: self.cache.lun.name().to_owned(), command: "write", reason }
    }

    /// What goes to the logical unit for `data`, and the keys that it came by.
    fn substitute(
        &self,
        offset: u64,
        data: &[u8],
    ) -> Result<(Vec<Bytes>, Vec<Option<Sequence>>), LunError> {
        let mut pieces = Vec::new();
        let mut keys = Vec::with_capacity(data.len() / BLOCK_BYTES);
        let mut literal_from = None::<usize>;
        let end_literal = |from: &mut Option<usize>, to: usize, pieces: &mut Vec<Bytes>| {
            if let Some(from) = from.take() {
                self.cache.copies().count(CopyClass::Literal, to - from);
                pieces.push(Bytes::copy_from_slice(&data[from..to]));
            }
        };
        for (i, block) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            let at = i * BLOCK_BYTES;
            match self.cache.keyring.open(block) {
                BlockContent::Literal => {
                    literal_from.get_or_insert(at);
                    keys.push(None);
                }
                BlockContent::Key { sequence, .. } => {
                    end_literal(&mut literal_from, at, &mut pieces);
                    let chunk =
                        self.cache.index().payload(sequence).map(|pending| pending.chunk.clone());
                    let chunk = chunk.ok_or_else(|| {
                        self.refuse(offset + at as u64, "a key whose payload is gone")
                    })?;
                    pieces.push(chunk);
                    keys.push(Some(sequence));
                }
                BlockContent::Forged => return Err(self.refuse(offset + at as u64, "a forged key")),
            }
        }
        end_literal(&mut literal_from, data.len(), &mut pieces);
        Ok((pieces, keys))
    }
}

impl Blocks for BlockServer {
    fn name(&self) -> &str {
        self.cache.lun.name()
    }

    fn capacity_bytes(&self) -> u64 {
        self.cache.lun.capacity_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), LunError> {
        let copies = self.cache.copies();
        let blocks: Vec<&mut [u8]> = into.chunks_exact_mut(BLOCK_BYTES).collect();
        let first = offset / BLOCK_BYTES as u64;
        let cached: Vec<Option<Bytes>> = {
            let index = self.cache.index();
            (first..).take(blocks.len()).map(|lbn| index.peek_lbn(Lbn(lbn))).collect()
        };
        let mut missing: Vec<(u64, Vec<&mut [u8]>)> = Vec::new();
        for ((lbn, block), chunk) in (first..).zip(blocks).zip(cached) {
            match chunk {
                Some(chunk) => copies.copy(CopyClass::Device, &chunk, block),
                None => match missing.last_mut() {
                    Some((start, run)) if *start + run.len() as u64 == lbn => run.push(block),
                    _ => missing.push((lbn, vec![block])),
                },
            }
        }
        for (start, run) in missing {
            let mut buffers = vec![BytesMut::zeroed(run.len() * BLOCK_BYTES)];
            let result = self.cache.lun.read(start * BLOCK_BYTES as u64, &mut buffers);
            result.inspect_err(|error| self.cache.handle_read_error(error))?;
            let read = buffers.iter().flat_map(|buffer| buffer.chunks_exact(BLOCK_BYTES));
            for (block, read) in run.into_iter().zip(read) {
                copies.copy(CopyClass::Device, read, block);
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), LunError> {
        let (pieces, keys) = self.substitute(offset, data).inspect_err(|_| {
            // The kernel takes all of these pages for lost.
            for block in data.chunks_exact(BLOCK_BYTES) {
                if let BlockContent::Key { sequence, .. } = self.cache.keyring.open(block) {
                    self.cache.index().handle_refused(sequence);
                }
            }
        })?;
        let lbns = || (offset / BLOCK_BYTES as u64..).map(Lbn);
        {
            let mut index = self.cache.index();
            lbns().zip(&keys).for_each(|(lbn, _)| index.begin_write(lbn));
        }
        let result = self.cache.lun.write(offset, &pieces);
        let mut index = self.cache.index();
        lbns().zip(&keys).for_each(|(lbn, key)| index.end_write(lbn, *key, result.is_ok()));
        drop(index);
        result.inspect_err(|error| self.cache.handle_lun_error(error))
    }

    fn flush(&self) -> Result<(), LunError> {
        self.cache.lun.flush().inspect_err(|error| self.cache.handle_lun_error(error))
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.cache.lun.descriptors()
    }
}
