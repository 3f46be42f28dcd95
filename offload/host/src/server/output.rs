//! What is to be sent on a connection, in the order of its requests: bytes, and pieces of files
//! (`sendfile`, the one way in which content enters).
//!
//! Pages of a piece are found or read when it is begun, so it is of one revision whatever
//! becomes of the file (invariant I2). Of a piece that is larger than [`PieceLimits`] the rest
//! follows as the client takes it; if the file has changed by then, the connection is ended.

use std::collections::VecDeque;
use std::sync::Arc;

use nicache_bus::{BusClass, Window};
use nicache_coherence::RevisionTable;

use crate::block::{BLOCK_BYTES, Block, PageNumber};
use crate::files::{Gone, LoadError, OpenFile, load, load_private};
use crate::mbuf::{Mbuf, Owner};
use crate::page_cache::PageCache;

/// How much of a file is pinned for one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceLimits {
    /// Most bytes of a piece whose pages are all pinned from its beginning.
    at_once_bytes: u64,
    /// Of a larger one, bytes that follow at a time.
    chunk_bytes: u64,
    /// Bytes of a connection that TCP has at most, so no client has all pages.
    pub queue_bytes: u32,
    /// Bytes of one buffer at most: its pages are free when the client has all of them.
    buffer_bytes: u64,
}

impl PieceLimits {
    /// Several replies then find room in a page cache.
    pub(super) fn for_pages(pages: u32) -> Self {
        let bytes = u64::from(pages) * BLOCK_BYTES;
        let queue_bytes = (bytes / 64).clamp(BLOCK_BYTES, 1 << 20);
        Self {
            at_once_bytes: (bytes / 8).min(8 << 20),
            chunk_bytes: (bytes / 64 / BLOCK_BYTES * BLOCK_BYTES).clamp(BLOCK_BYTES, 128 << 10),
            queue_bytes: queue_bytes as u32,
            buffer_bytes: (queue_bytes / 4).clamp(BLOCK_BYTES, 64 << 10),
        }
    }
}

/// Where bytes of files come from.
pub(super) struct Source<'a> {
    /// The page cache.
    pub pages: &'a mut PageCache,
    /// Host memory.
    pub window: &'a Window,
    /// Who tells of changes.
    pub table: Option<&'a RevisionTable>,
    /// How much is pinned.
    pub limits: PieceLimits,
}

/// A piece of a file.
#[derive(Debug)]
struct Piece {
    file: Arc<OpenFile>,
    from: u64,
    at: u64,
    to: u64,
    /// Pages from the one that has `at` on, each pinned.
    pages: VecDeque<PageNumber>,
    /// Where the bytes end that these pages have.
    loaded_to: u64,
}

#[derive(Debug)]
enum Item {
    Buffer(Mbuf),
    Piece(Piece),
    /// Blocks of a stream, for ever.
    Live(usize),
}

/// What comes next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// This. It is the caller's to give back.
    Buffer(Mbuf),
    /// The next block of a stream.
    Live(usize),
    /// Nothing: all of it is with TCP.
    Nothing,
}

/// What is to be sent on a connection, in the order of its requests: bytes, and pieces of files.
#[derive(Debug, Default)]
pub(super) struct Output {
    items: VecDeque<Item>,
}

impl Output {
    /// Pieces and buffers that are not yet with TCP.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Adds a buffer.
    pub(super) fn push(&mut self, buffer: Mbuf) {
        self.items.push_back(Item::Buffer(buffer));
    }

    /// Adds a stream, behind which there is nothing.
    pub(super) fn push_live(&mut self, stream: usize) {
        self.items.push_back(Item::Live(stream));
    }

    /// Whether a stream is next.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.items.front(), Some(Item::Live(_)))
    }

    /// Adds everything of another one behind it.
    pub(super) fn append(&mut self, mut other: Self) {
        self.items.append(&mut other.items);
    }

    /// Adds bytes `from..to` of a file. The bytes that are begun with are there, or nothing is
    /// added.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(super) fn sendfile(
        &mut self,
        file: &Arc<OpenFile>,
        (from, to): (u64, u64),
        source: &mut Source<'_>,
        gone: impl FnMut(Block, Gone),
    ) -> Result<(), LoadError> {
        let mut piece = Piece {
            file: Arc::clone(file),
            from,
            at: from,
            to,
            pages: VecDeque::new(),
            loaded_to: from,
        };
        if from == to {
            return Ok(());
        }
        let first = if to - from <= source.limits.at_once_bytes {
            to
        } else {
            piece.chunk_end(&source.limits)
        };
        piece.load(first, source, gone)?;
        self.items.push_back(Item::Piece(piece));
        Ok(())
    }

    /// What TCP is to have next.
    ///
    /// # Errors
    /// See [`LoadError`]: the reply cannot be completed.
    pub(super) fn next(
        &mut self,
        source: &mut Source<'_>,
        gone: impl FnMut(Block, Gone),
    ) -> Result<Next, LoadError> {
        match self.items.front_mut() {
            None => Ok(Next::Nothing),
            Some(Item::Live(stream)) => Ok(Next::Live(*stream)),
            Some(Item::Buffer(buffer)) => {
                let buffer = *buffer;
                self.items.pop_front();
                Ok(Next::Buffer(buffer))
            }
            Some(Item::Piece(piece)) => {
                if piece.pages.is_empty() {
                    piece.load(piece.chunk_end(&source.limits), source, gone)?;
                }
                let buffer = piece.take(source.pages, source.limits.buffer_bytes);
                if piece.at == piece.to {
                    self.items.pop_front();
                }
                Ok(Next::Buffer(buffer))
            }
        }
    }

    /// Nothing of it is sent any longer. Buffers are handed out.
    pub(super) fn clear(
        &mut self,
        pages: &mut PageCache,
        mut free: impl FnMut(&mut PageCache, Mbuf),
    ) {
        for item in self.items.drain(..) {
            match item {
                Item::Buffer(buffer) => free(pages, buffer),
                Item::Live(_) => {}
                Item::Piece(piece) => piece.pages.into_iter().for_each(|page| pages.unpin(page)),
            }
        }
    }
}

impl Piece {
    /// Where the next chunk ends: with a block, so none is in two chunks.
    fn chunk_end(&self, limits: &PieceLimits) -> u64 {
        let end = self.loaded_to + limits.chunk_bytes;
        if self.file.is_kept {
            (end / BLOCK_BYTES * BLOCK_BYTES).min(self.to)
        } else {
            end.min(self.to)
        }
    }

    fn load(
        &mut self,
        to: u64,
        source: &mut Source<'_>,
        gone: impl FnMut(Block, Gone),
    ) -> Result<(), LoadError> {
        let mut pages = Vec::new();
        let range = (self.loaded_to, to);
        match (source.table, self.file.is_kept) {
            (Some(table), true) => {
                load(&self.file, table, range, source.pages, source.window, &mut pages, gone)?;
            }
            (table, _) => {
                load_private(&self.file, range, source.pages, source.window, &mut pages, gone)?;
                // What follows must be of the same version as what a client has begun to receive.
                if self.loaded_to > self.from && !self.file.seems_unchanged(table) {
                    pages.into_iter().for_each(|page| source.pages.unpin(page));
                    return Err(LoadError::Changed);
                }
            }
        }
        self.pages.extend(pages);
        self.loaded_to = to;
        Ok(())
    }

    /// What is next of the pages that follow each other, whose pins the buffer has from now on.
    fn take(&mut self, pages: &PageCache, bytes_max: u64) -> Mbuf {
        let first = self.pages.pop_front().expect("a piece that is not over has a page");
        if !self.file.is_kept {
            let len = (self.to - self.at).min(BLOCK_BYTES);
            self.at += len;
            let (mmaddr, class) = (pages.mmaddr(first), BusClass::Content);
            return Mbuf::Bytes { mmaddr, len: len as u32, class, owner: Owner::Page(first) };
        }
        let mut last = first;
        let mut bytes = BLOCK_BYTES;
        while bytes < bytes_max
            && let Some(next) = self.pages.pop_front_if(|next| next.0 == last.0 + 1)
        {
            (last, bytes) = (next, bytes + BLOCK_BYTES);
        }
        let block = Block::at(self.file.number, self.at);
        let start = self.at - block.offset();
        let len = (self.to - self.at).min(bytes - start);
        self.at += len;
        Mbuf::Pages {
            first,
            block,
            revision: self.file.revision,
            start: start as u16,
            len: len as u32,
        }
    }
}
