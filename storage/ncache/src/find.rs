//! The blocks of a file: from the index by file, from the index by block, from the logical unit.

use std::fs::File;
use std::io;

use bytes::Bytes;
use nicache_filemap::extents;
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::FileId;

use crate::cache::Cache;
use crate::index::{Found, Reader};
use crate::places::Lbn;

const BLOCK: u64 = BLOCK_BYTES as u64;
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

impl Cache {
    /// The chunks of neighbouring blocks. The caller has the file's lock.
    pub(crate) fn chunks(
        &self,
        file: &File,
        id: FileId,
        first: u64,
        count: u64,
        reader: Reader,
    ) -> io::Result<Vec<Bytes>> {
        // Most reads find all of it.
        let mut chunks = Vec::with_capacity(count as usize);
        let mut found = Vec::new();
        self.index().find(id, first, count, reader, |one| match one {
            Found::Chunk(chunk) if found.is_empty() => chunks.push(chunk),
            one => {
                if found.is_empty() {
                    found.reserve(count as usize);
                    found.extend(chunks.drain(..).map(Found::Chunk));
                }
                found.push(one);
            }
        });
        if found.is_empty() {
            return Ok(chunks);
        }
        if found.iter().any(|one| matches!(one, Found::Unknown)) {
            self.map(file, id, first, &mut found, reader)?;
        }
        self.fill_all(&mut found, reader)?;
        let zero = || Bytes::from_static(&ZEROES);
        chunks.extend(
            found.into_iter().map(|one| if let Found::Chunk(chunk) = one { chunk } else { zero() }),
        );
        Ok(chunks)
    }

    /// Asks the file system where unknown blocks are. What stays unknown is a hole.
    fn map(
        &self,
        file: &File,
        id: FileId,
        first: u64,
        found: &mut [Found],
        reader: Reader,
    ) -> io::Result<()> {
        // Blocks that are allocated only when they are written, or marked as written afterwards,
        // have a place only after a flush. A file without dirty pages is flushed at no cost.
        for sync in [false, true] {
            let is_unknown = |one: &Found| matches!(one, Found::Unknown);
            let Some(from) = found.iter().position(is_unknown) else { return Ok(()) };
            let to = found.iter().rposition(is_unknown).map_or(from, |last| last + 1);
            let start = (first + from as u64) * BLOCK;
            let extents = extents(file, start, (to - from) as u64 * BLOCK, sync)?;
            let mut index = self.index();
            for extent in extents {
                let Some(place) = extent.device_offset else { continue };
                if !(place.is_multiple_of(BLOCK) && extent.offset.is_multiple_of(BLOCK)) {
                    return Err(io::Error::other(
                        "the file system has blocks that are not whole pages",
                    ));
                }
                let block = extent.offset / BLOCK;
                let lbn = place / BLOCK;
                // Only of what was asked for: that is under the lock, and nothing else is.
                let begin = block.max(first + from as u64);
                let end = (block + extent.bytes.div_ceil(BLOCK)).min(first + to as u64);
                if begin >= end {
                    continue;
                }
                index.handle_places(id, begin, Lbn(lbn + begin - block), end - begin);
                for block in begin..end {
                    let one = &mut found[(block - first) as usize];
                    if is_unknown(one) {
                        let place = Lbn(lbn + block - (extent.offset / BLOCK));
                        *one = index.find_lbn(place, reader);
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads from the logical unit what is there only, neighbours at once.
    fn fill_all(&self, found: &mut [Found], reader: Reader) -> io::Result<()> {
        let mut at = 0;
        while at < found.len() {
            let Found::At(first) = found[at] else {
                at += 1;
                continue;
            };
            // Somebody reads it already: for another client, or ahead.
            if let Some(chunk) = self.wait_for_fill(first, reader) {
                found[at] = Found::Chunk(chunk);
                at += 1;
                continue;
            }
            let run = found[at..]
                .iter()
                .zip(first.0..)
                .take_while(|(one, lbn)| matches!(one, Found::At(place) if place.0 == *lbn))
                .count();
            let chunks = self.fill(first, run, reader)?;
            for (one, chunk) in found[at..at + run].iter_mut().zip(chunks) {
                *one = Found::Chunk(chunk);
            }
            at += run;
        }
        Ok(())
    }
}
