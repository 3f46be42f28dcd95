//! Blocks of files in the window.
//!
//! A page is *pinned* while something may have to send it: a connection whose client has not
//! acknowledged its bytes. A pinned page keeps its bytes whatever becomes of the file, so a
//! reply once begun is of one version (invariant I2); one that is forgotten while it is pinned is
//! nobody's any longer, and free when it is unpinned.
//!
//! Which page goes when another block needs one is decided by a clock: its hand passes over pages
//! that were used since it came by last, and takes the first that was not. A use costs one bit,
//! where an order of use would cost four pages' entries.

use hashbrown::HashMap;

use crate::block::{BLOCK_BYTES, Block, PageNumber, Revision};
use crate::mbuf::Mbuf;

/// What a page has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Of which block.
    pub block: Block,
    /// Of the file when it was read.
    pub revision: Revision,
    /// Bytes of the file in it: less than a block at the file's end.
    pub len: u16,
}

/// What the page cache says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// It is in this page.
    Here(PageNumber),
    /// It was, in another revision, and is forgotten.
    Outdated,
    /// It is not there.
    Missing,
}

#[derive(Debug, Default)]
struct Frame {
    page: Option<Page>,
    pins: u32,
    /// The index has it: it is neither free nor nobody's.
    is_found: bool,
    /// Since the clock's hand came by.
    is_used: bool,
    /// It never was a block's.
    is_private: bool,
}

/// Blocks of files in the window; a page is kept while a connection may have to send it. Everything
/// is allocated at construction.
#[derive(Debug)]
pub struct PageCache {
    frames: Box<[Frame]>,
    free: Vec<u32>,
    index: HashMap<Block, u32, foldhash::fast::RandomState>,
    /// The page that the clock's hand looks at next.
    hand: u32,
    /// Pages with pins.
    pinned: usize,
    /// The page that was found last.
    found_last: u32,
    mmaddr: u64,
}

impl PageCache {
    /// So many pages, from an address in the window on.
    pub fn new(mmaddr: u64, pages: u32) -> Self {
        let mut index = HashMap::with_hasher(foldhash::fast::RandomState::default());
        index.reserve(pages as usize);
        Self {
            frames: (0..pages).map(|_| Frame::default()).collect(),
            free: (0..pages).rev().collect(),
            index,
            hand: 0,
            pinned: 0,
            found_last: 0,
            mmaddr,
        }
    }

    /// Where a page is in the window.
    pub fn mmaddr(&self, page: PageNumber) -> u64 {
        self.mmaddr + u64::from(page.0) * BLOCK_BYTES
    }

    /// What a page has; `None`: it is free, or nobody's.
    pub fn page(&self, page: PageNumber) -> Option<&Page> {
        self.frames.get(page.0 as usize).filter(|frame| frame.is_found)?.page.as_ref()
    }

    /// The page of a block, as it was at a revision. Another revision of it is forgotten, and is to
    /// be forgotten by all directories, too.
    pub fn find(&mut self, block: Block, revision: Revision) -> Lookup {
        // Blocks that follow each other were often read one after the other. A look there costs
        // less than one in the index.
        let next = self.found_last.wrapping_add(1);
        let is_next = self.page(PageNumber(next)).is_some_and(|page| page.block == block);
        let frame = match is_next {
            true => next,
            false => match self.index.get(&block) {
                Some(&frame) => frame,
                None => return Lookup::Missing,
            },
        };
        self.found_last = frame;
        let found = &mut self.frames[frame as usize];
        if found.page.is_some_and(|page| page.revision == revision) {
            found.is_used = true;
            return Lookup::Here(PageNumber(frame));
        }
        self.forget(block);
        Lookup::Outdated
    }

    /// Whether a block can be found, in whatever revision.
    pub fn holds(&self, block: Block) -> bool {
        self.index.contains_key(&block)
    }

    /// A page for a block that was [not found](Self::find), and the block that had to go for it.
    /// The page is pinned, so it may be filled. `None`: all are pinned.
    pub fn allocate(&mut self, page: Page) -> Option<(PageNumber, Option<Block>)> {
        self.forget(page.block);
        let (frame, evicted) = self.take_free()?;
        self.index.insert(page.block, frame);
        self.frames[frame as usize] =
            Frame { page: Some(page), is_found: true, ..Frame::default() };
        self.pin(PageNumber(frame));
        Some((PageNumber(frame), evicted))
    }

    /// A page that no block is looked for in, pinned, and the block that had to go for it. `None`:
    /// all are pinned.
    pub fn allocate_private(&mut self) -> Option<(PageNumber, Option<Block>)> {
        let (frame, evicted) = self.take_free()?;
        self.frames[frame as usize] = Frame { is_private: true, ..Frame::default() };
        self.pin(PageNumber(frame));
        Some((PageNumber(frame), evicted))
    }

    fn take_free(&mut self) -> Option<(u32, Option<Block>)> {
        let mut evicted = None;
        if self.free.is_empty() {
            evicted = Some(self.victim()?);
            self.forget(evicted?);
        }
        Some((self.free.pop()?, evicted))
    }

    /// The next block that was not used since the hand came by last, of those that nobody has
    /// pinned. Only called when no page is free.
    fn victim(&mut self) -> Option<Block> {
        if self.pinned == self.frames.len() {
            return None;
        }
        // In the second round nothing counts as used.
        let frames = self.frames.len();
        for _ in 0..2 * frames {
            let frame = &mut self.frames[self.hand as usize];
            self.hand = (self.hand + 1) % frames as u32;
            if frame.pins == 0 && !std::mem::take(&mut frame.is_used) {
                return frame.page.map(|page| page.block);
            }
        }
        None
    }

    /// Whether somebody wants the page.
    pub fn is_pinned(&self, page: PageNumber) -> bool {
        self.frames.get(page.0 as usize).is_some_and(|frame| frame.pins > 0)
    }

    /// The page of a block, in whatever revision.
    pub fn page_of(&self, block: Block) -> Option<PageNumber> {
        self.index.get(&block).map(|&frame| PageNumber(frame))
    }

    /// The page is wanted until [`unpin`](Self::unpin).
    pub fn pin(&mut self, page: PageNumber) {
        let frame = &mut self.frames[page.0 as usize];
        self.pinned += usize::from(frame.pins == 0);
        frame.pins += 1;
    }

    /// The pages of a buffer are wanted until it is [given back](Self::unpin_all).
    pub fn pin_all(&mut self, buffer: &Mbuf) {
        buffer.page_parts().for_each(|part| self.pin(part.page));
    }

    /// One who wanted it no longer does.
    ///
    /// # Panics
    /// If nobody had pinned it: a bug of the caller.
    pub fn unpin(&mut self, page: PageNumber) {
        let frame = &mut self.frames[page.0 as usize];
        frame.pins = frame.pins.checked_sub(1).expect("a page that is unpinned was pinned");
        if frame.pins > 0 {
            return;
        }
        self.pinned -= 1;
        if !frame.is_found && (frame.page.take().is_some() || std::mem::take(&mut frame.is_private))
        {
            self.free.push(page.0);
        }
    }

    /// One who wanted the pages of a buffer no longer does.
    ///
    /// # Panics
    /// As [`unpin`](Self::unpin).
    pub fn unpin_all(&mut self, buffer: &Mbuf) {
        buffer.page_parts().for_each(|part| self.unpin(part.page));
    }

    /// The block is not to be found any longer. True: it was there.
    pub fn forget(&mut self, block: Block) -> bool {
        let Some(frame) = self.index.remove(&block) else { return false };
        let found = &mut self.frames[frame as usize];
        found.is_found = false;
        if found.pins == 0 {
            found.page = None;
            self.free.push(frame);
        }
        true
    }

    /// Pages that have a block that can be found.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Pages that are pinned.
    pub fn pinned(&self) -> usize {
        self.pinned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::FileNumber;

    const REVISION: Revision = Revision(1);

    fn block(index: u32) -> Block {
        Block { file: FileNumber(7), index }
    }

    fn insert(pages: &mut PageCache, index: u32) -> Option<(PageNumber, Option<Block>)> {
        pages.allocate(Page { block: block(index), revision: REVISION, len: 4096 })
    }

    #[test]
    fn what_was_used_stays_for_another_round() {
        let mut pages = PageCache::new(0, 3);
        for index in 0..3 {
            let (page, evicted) = insert(&mut pages, index).unwrap();
            assert_eq!(evicted, None);
            pages.unpin(page);
        }
        assert!(matches!(pages.find(block(0), REVISION), Lookup::Here(_)));
        let mut evicted = Vec::new();
        for index in 3..6 {
            let (page, gone) = insert(&mut pages, index).unwrap();
            pages.unpin(page);
            evicted.push(gone.unwrap().index);
        }
        assert_eq!(evicted, [1, 2, 0]);
        assert_eq!((pages.len(), pages.pinned()), (3, 0));
    }

    #[test]
    fn what_is_pinned_stays() {
        let mut pages = PageCache::new(0, 2);
        let (first, _) = insert(&mut pages, 0).unwrap();
        let (second, _) = insert(&mut pages, 1).unwrap();
        assert_eq!(
            (insert(&mut pages, 2), pages.allocate_private(), pages.pinned()),
            (None, None, 2)
        );
        pages.unpin(second);
        let (private, evicted) = pages.allocate_private().unwrap();
        assert_eq!((private, evicted), (second, Some(block(1))));
        // Forgotten while it is pinned, it is free when it is not.
        assert!(pages.forget(block(0)) && insert(&mut pages, 2).is_none());
        pages.unpin(first);
        assert_eq!(insert(&mut pages, 2), Some((first, None)));
    }

    #[test]
    fn another_revision_is_forgotten() {
        let mut pages = PageCache::new(0, 2);
        let (page, _) = insert(&mut pages, 0).unwrap();
        pages.unpin(page);
        assert_eq!(pages.find(block(0), Revision(2)), Lookup::Outdated);
        assert_eq!(pages.find(block(0), REVISION), Lookup::Missing);
    }
}
