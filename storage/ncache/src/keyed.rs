//! Keys into files.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt as _;

use nicache_filemap::{Wait, drop_pages, write_back};
use nicache_initiator::BLOCK_BYTES;
use nicache_payload::FileId;
use rustix::io::Errno;

use crate::cache::Cache;
use crate::copies::CopyClass;
use crate::key::{KEY_BYTES, Sequence};

const BLOCK: u64 = BLOCK_BYTES as u64;
static ZEROES: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Writes the keys of neighbouring blocks, and says how many bytes went into the file.
pub(crate) fn write_keys(
    cache: &Cache,
    file: &File,
    blocks: &[(u64, Sequence, u32)],
) -> (usize, io::Result<()>) {
    let Some((first, _, _)) = blocks.first() else { return (0, Ok(())) };
    let offset = first * BLOCK;
    let keys: Vec<[u8; KEY_BYTES]> = blocks
        .iter()
        .map(|(_, sequence, valid_bytes)| cache.keyring.seal(*sequence, *valid_bytes))
        .collect();
    let mut parts: Vec<&[u8]> = Vec::with_capacity(blocks.len() * 2);
    for (key, (_, _, valid_bytes)) in keys.iter().zip(blocks) {
        parts.push(key);
        parts.push(&ZEROES[..*valid_bytes as usize - KEY_BYTES]);
    }
    let total: usize = parts.iter().map(|part| part.len()).sum();
    let mut written = 0;
    while written < total {
        let mut skip = written;
        let slices: Vec<IoSlice<'_>> = parts
            .iter()
            .filter_map(|part| {
                let skipped = skip.min(part.len());
                skip -= skipped;
                (skipped < part.len()).then(|| IoSlice::new(&part[skipped..]))
            })
            .collect();
        match rustix::io::pwritev(file, &slices, offset + written as u64) {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(bytes) => {
                written += bytes;
                cache.copies().count(CopyClass::Key, bytes);
            }
            Err(Errno::INTR) => {}
            Err(error) => return (written, Err(error.into())),
        }
    }
    (written, Ok(()))
}

/// Puts the keys of everything that did not arrive into the file again. The caller has the file's
/// lock.
///
/// The pages go first. ext4 takes a page whose write failed for one with a place, and would write
/// it there without calling the place written: after a crash the block would read as zeroes.
pub(crate) fn put_again(cache: &Cache, file: &File, id: FileId) -> io::Result<()> {
    // What fails now is put again below.
    let _ = write_back(file, 0, 0, Wait::Yes);
    drop_pages(file, 0, 0)?;
    let (keys, literals) = {
        let index = cache.index();
        (index.keys_of(id), index.literals_of(id))
    };
    for key in keys {
        write_keys(cache, file, &[key]).1?;
    }
    let size = file.metadata()?.len();
    for (block, chunk) in literals {
        let valid = size.saturating_sub(block * BLOCK).min(BLOCK) as usize;
        file.write_all_at(&chunk[..valid], block * BLOCK)?;
    }
    Ok(())
}
