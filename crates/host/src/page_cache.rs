//! Blocks of files in the window.
//!
//! A page is *pinned* while something may have to send it: a connection whose client has not acknowledged its bytes. A pinned page keeps its bytes whatever
//! becomes of the file, so that a reply once begun is of one version (invariant I2); one that is forgotten while it is pinned is nobody's any more, and
//! free when it is unpinned.

use hashbrown::HashMap;
use nicache_policy::{Linked, Links, List, Place, Table};

use crate::block::{BLOCK_BYTES, Block, Revision};
use crate::mbuf::Mbuf;

/// A page, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageNumber(pub u32);

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
    /// In the order of use; `None`: it is free, or nobody's.
    place: Option<Place>,
    /// It never was a block's.
    is_private: bool,
}

#[derive(Debug, Clone, Default)]
struct Used {
    links: Links,
    frame: u32,
}

impl Linked for Used {
    fn links(&self) -> &Links {
        &self.links
    }

    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// See the module's head. Everything is allocated at construction.
#[derive(Debug)]
pub struct PageCache {
    frames: Box<[Frame]>,
    free: Vec<u32>,
    index: HashMap<Block, u32, foldhash::fast::RandomState>,
    order: List,
    used: Table<Used>,
    /// The page that was found last.
    found_last: u32,
    mmaddr: u64,
}

impl PageCache {
    /// So many pages, from an address in the window on.
    pub fn new(mmaddr: u64, pages: u32) -> PageCache {
        let mut index = HashMap::with_hasher(foldhash::fast::RandomState::default());
        index.reserve(pages as usize);
        PageCache {
            frames: (0..pages).map(|_| Frame::default()).collect(),
            free: (0..pages).rev().collect(),
            index,
            order: List::default(),
            used: Table::new(pages as usize),
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
        let frame = self.frames.get(page.0 as usize)?;
        frame.place?;
        frame.page.as_ref()
    }

    /// The page of a block, as it was at a revision. Another revision of it is forgotten, and is to be forgotten by all directories, too.
    pub fn find(&mut self, block: Block, revision: Revision) -> Lookup {
        // Blocks that follow each other were often read one after the other. A look there costs less than one in the index.
        let next = self.found_last.wrapping_add(1);
        let is_next = self
            .frames
            .get(next as usize)
            .is_some_and(|frame| frame.place.is_some() && frame.page.is_some_and(|page| page.block == block));
        let frame = match is_next {
            true => next,
            false => match self.index.get(&block) {
                Some(&frame) => frame,
                None => return Lookup::Missing,
            },
        };
        self.found_last = frame;
        let found = &self.frames[frame as usize];
        match (found.page, found.place) {
            (Some(page), Some(place)) if page.revision == revision => {
                self.order.move_to_front(&mut self.used, place);
                Lookup::Here(PageNumber(frame))
            }
            _ => {
                self.forget(block);
                Lookup::Outdated
            }
        }
    }

    /// Whether a block can be found, in whatever revision.
    pub fn holds(&self, block: Block) -> bool {
        self.index.contains_key(&block)
    }

    /// A page for a block that was [not found](Self::find), and the block that had to go for it. The page is pinned, so that it may be filled. `None`: all are pinned.
    pub fn allocate(&mut self, page: Page) -> Option<(PageNumber, Option<Block>)> {
        self.forget(page.block);
        let (frame, evicted) = self.take_free()?;
        let key = nicache_policy::Key(u64::from(frame));
        let place = self.used.insert(key, Used { links: Links::default(), frame })?;
        self.order.push_front(&mut self.used, place);
        self.index.insert(page.block, frame);
        self.frames[frame as usize] = Frame { page: Some(page), pins: 1, place: Some(place), is_private: false };
        Some((PageNumber(frame), evicted))
    }

    /// A page that no block is looked for in, pinned, and the block that had to go for it. `None`: all are pinned.
    pub fn allocate_private(&mut self) -> Option<(PageNumber, Option<Block>)> {
        let (frame, evicted) = self.take_free()?;
        self.frames[frame as usize] = Frame { page: None, pins: 1, place: None, is_private: true };
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

    /// The block that was used longest ago, of those that nobody has pinned.
    fn victim(&self) -> Option<Block> {
        let mut place = self.order.back();
        while let Some(at) = place {
            let frame = &self.frames[self.used.get(at).frame as usize];
            if frame.pins == 0 {
                return frame.page.map(|page| page.block);
            }
            place = List::before(&self.used, at);
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
        self.frames[page.0 as usize].pins += 1;
    }

    /// The pages of a buffer are wanted until it is [given back](Self::unpin_all).
    pub fn pin_all(&mut self, buffer: &Mbuf) {
        buffer.page_parts().for_each(|part| self.pin(part.page));
    }

    /// One who wanted it does no more.
    ///
    /// # Panics
    /// If nobody had pinned it: a bug of the caller.
    pub fn unpin(&mut self, page: PageNumber) {
        let frame = &mut self.frames[page.0 as usize];
        frame.pins = frame.pins.checked_sub(1).expect("a page that is unpinned was pinned");
        let is_nobodys = frame.pins == 0 && frame.place.is_none();
        if is_nobodys && (frame.page.take().is_some() || std::mem::take(&mut frame.is_private)) {
            self.free.push(page.0);
        }
    }

    /// One who wanted the pages of a buffer does no more.
    ///
    /// # Panics
    /// As [`unpin`](Self::unpin).
    pub fn unpin_all(&mut self, buffer: &Mbuf) {
        buffer.page_parts().for_each(|part| self.unpin(part.page));
    }

    /// The block is not to be found any more. True: it was there.
    pub fn forget(&mut self, block: Block) -> bool {
        let Some(frame) = self.index.remove(&block) else { return false };
        let found = &mut self.frames[frame as usize];
        if let Some(place) = found.place.take() {
            self.order.remove(&mut self.used, place);
            self.used.remove(place);
        }
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
        self.frames.iter().filter(|frame| frame.pins > 0).count()
    }
}
