//! Blocks of files are read into pages.
//!
//! A page has the bytes of its file's revision and of no other one: after the reading, the changes
//! that are under way are waited for, and if one was witnessed since the file was looked at, the
//! pages are nobody's.

use std::os::fd::AsFd;

use nicache_bus::Window;
use nicache_coherence::RevisionTable;
use nicache_watch::wait_for_changes;

use super::site::OpenFile;
use crate::block::{BLOCK_BYTES, Block, PageNumber};
use crate::page_cache::{Lookup, Page, PageCache};

/// Why blocks are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file is another one by now.
    #[error("the file has changed")]
    Changed,
    /// All pages are pinned.
    #[error("no page is free")]
    NoRoom,
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Io,
}

/// Why a block is no longer in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Another one needed its page.
    Evicted,
    /// Its file has changed.
    Outdated,
    /// Nobody will want it any longer.
    Used,
}

/// Finds or reads the blocks that have bytes `from..to` of a file, and appends their pages, each
/// pinned, to `into`. What had to go or is out of date is told to `gone`: directories must forget
/// it (invariant I8). With an error nothing is appended.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    file: &OpenFile,
    table: &RevisionTable,
    (from, to): (u64, u64),
    pages: &mut PageCache,
    window: &Window,
    into: &mut Vec<PageNumber>,
    mut gone: impl FnMut(Block, Gone),
) -> Result<(), LoadError> {
    let first = into.len();
    let mut read = Vec::new();
    let loaded = (|| {
        for index in from / BLOCK_BYTES..to.div_ceil(BLOCK_BYTES) {
            let block = Block {
                file: file.number,
                index: u32::try_from(index).map_err(|_| LoadError::Io)?,
            };
            match pages.find(block, file.revision) {
                Lookup::Here(page) => {
                    pages.pin(page);
                    into.push(page);
                    continue;
                }
                Lookup::Outdated => gone(block, Gone::Outdated),
                Lookup::Missing => {}
            }
            let len = (file.bytes - block.offset()).min(BLOCK_BYTES);
            let page = Page { block, revision: file.revision, len: len as u16 };
            let (number, evicted) = pages.allocate(page).ok_or(LoadError::NoRoom)?;
            if let Some(evicted) = evicted {
                gone(evicted, Gone::Evicted);
            }
            into.push(number);
            read.push(block);
            match window.read_file(pages.mmaddr(number), len, file.as_fd(), block.offset()) {
                Ok(bytes) if bytes == len => {}
                Ok(_) => return Err(LoadError::Changed),
                Err(_) => return Err(LoadError::Io),
            }
        }
        if !read.is_empty() {
            wait_for_changes(file.as_fd()).map_err(|_| LoadError::Io)?;
            if file.has_changed(table) {
                return Err(LoadError::Changed);
            }
        }
        Ok(())
    })();
    if loaded.is_err() {
        for block in read {
            pages.forget(block);
            gone(block, Gone::Outdated);
        }
        into.drain(first..).for_each(|page| pages.unpin(page));
    }
    loaded
}

/// Reads bytes `from..to` of a file as they are at the moment, into pages that are nobody's but the
/// caller's.
///
/// # Errors
/// See [`LoadError`]; [`LoadError::Changed`]: there are not so many.
pub fn load_private(
    file: &OpenFile,
    (from, to): (u64, u64),
    pages: &mut PageCache,
    window: &Window,
    into: &mut Vec<PageNumber>,
    mut gone: impl FnMut(Block, Gone),
) -> Result<(), LoadError> {
    let first = into.len();
    let loaded = (|| {
        let mut at = from;
        while at < to {
            let len = (to - at).min(BLOCK_BYTES);
            let (number, evicted) = pages.allocate_private().ok_or(LoadError::NoRoom)?;
            if let Some(evicted) = evicted {
                gone(evicted, Gone::Evicted);
            }
            into.push(number);
            match window.read_file(pages.mmaddr(number), len, file.as_fd(), at) {
                Ok(bytes) if bytes == len => at += len,
                Ok(_) => return Err(LoadError::Changed),
                Err(_) => return Err(LoadError::Io),
            }
        }
        Ok(())
    })();
    if loaded.is_err() {
        into.drain(first..).for_each(|page| pages.unpin(page));
    }
    loaded
}
