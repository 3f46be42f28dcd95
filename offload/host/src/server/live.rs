//! Live streams (Kim et al. 2002, section 6.4): a block is inserted into a card's memory once, sent
//! to all viewers from there, and goes when the last of them has it.
//!
//! *A stream* comes through a FIFO. What can be read of it at a time, up to a block, is a block;
//! viewers begin with the next one. A viewer that falls behind by more than [`WINDOW_BLOCKS`] is
//! cut. *A playlist* names segments that are files; those that it no longer names go as soon as
//! nobody is sent them.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nicache_bus::Window;
use nicache_tcp::Time;

use crate::block::{BLOCK_BYTES, Block, FileNumber, PageNumber, Revision};
use crate::files::{Gone, OpenFile};
use crate::mbuf::Mbuf;
use crate::page_cache::{Page, PageCache};
use crate::stack::ConnectionId;

/// Blocks of a stream that are kept for viewers who are behind.
pub(super) const WINDOW_BLOCKS: usize = 256;
/// Blocks that are read at a time.
const READ_BLOCKS_MAX: usize = 16;
/// Numbers of streams are at the end of those of files.
const FIRST_NUMBER: u32 = u32::MAX - 1024;
/// A stream has one revision.
const REVISION: Revision = Revision(1);
/// Longest playlist that is read.
pub(super) const PLAYLIST_BYTES_MAX: u64 = 1 << 20;

/// What is served live.
#[derive(Debug)]
pub struct LiveSource {
    /// The path by which it is asked for; begins with a slash.
    pub path: Vec<u8>,
    /// The FIFO, opened for reading and writing, so it stays open without a writer; `None`: a
    /// playlist below the document root.
    pub fifo: Option<OwnedFd>,
}

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct LiveCounters {
        blocks as "live_blocks": "Blocks of live streams.",
        bytes as "live_bytes": "Bytes of live streams.",
        lost as "live_blocks_lost": "Blocks of live streams that found no place.",
        cut as "live_viewers_cut": "Viewers of live streams that were too slow.",
    }
}

/// A playlist whose segments are live.
#[derive(Debug)]
pub(super) struct Playlist {
    pub(super) path: Vec<u8>,
    pub(super) file: Option<Arc<OpenFile>>,
    pub(super) segments: Vec<Vec<u8>>,
    /// Files that it has named before, and that are still in use.
    pub(super) retiring: Vec<Arc<OpenFile>>,
    pub(super) due: Time,
}

/// A stream.
#[derive(Debug)]
pub(super) struct Stream {
    path: Vec<u8>,
    fifo: OwnedFd,
    number: FileNumber,
    /// Of the first block that is kept.
    first: u32,
    blocks: VecDeque<(PageNumber, u16)>,
    /// The next block of each viewer.
    viewers: BTreeMap<ConnectionId, u32>,
    /// Blocks that no viewer needs any longer, but for those who have not acknowledged them.
    retiring: VecDeque<(Block, PageNumber)>,
}

impl Stream {
    /// The `number`-th stream.
    pub(super) fn new(path: Vec<u8>, fifo: OwnedFd, number: u32) -> Self {
        Self {
            path,
            fifo,
            number: FileNumber(FIRST_NUMBER + number),
            first: 0,
            blocks: VecDeque::new(),
            viewers: BTreeMap::new(),
            retiring: VecDeque::new(),
        }
    }

    /// The path by which it is asked for.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    fn next_index(&self) -> u32 {
        self.first + self.blocks.len() as u32
    }

    /// Viewers.
    pub(super) fn viewers(&self) -> impl Iterator<Item = ConnectionId> {
        self.viewers.keys().copied()
    }

    /// Viewers who wait for blocks that are gone.
    pub(super) fn viewers_behind(&self) -> Vec<ConnectionId> {
        self.viewers.iter().filter(|(_, index)| **index < self.first).map(|(id, _)| *id).collect()
    }

    /// One more, from the next block on.
    pub(super) fn join(&mut self, id: ConnectionId) {
        self.viewers.insert(id, self.next_index());
    }

    /// One less.
    pub(super) fn leave(&mut self, id: ConnectionId) {
        self.viewers.remove(&id);
    }

    /// Reads what is there. True: something was.
    pub(super) fn read(
        &mut self,
        pages: &mut PageCache,
        window: &Window,
        counters: &mut LiveCounters,
        mut gone: impl FnMut(Block, Gone),
    ) -> bool {
        let mut any = false;
        let mut bytes = [0; BLOCK_BYTES as usize];
        for _ in 0..READ_BLOCKS_MAX {
            let len = match rustix::io::read(&self.fifo, &mut bytes[..]) {
                Ok(len) if len > 0 => len,
                _ => break,
            };
            any = true;
            if self.viewers.is_empty() {
                continue;
            }
            let block = Block { file: self.number, index: self.next_index() };
            let page = Page { block, revision: REVISION, len: len as u16 };
            let Some((number, evicted)) = pages.allocate(page) else {
                counters.lost += 1;
                continue;
            };
            if let Some(evicted) = evicted {
                gone(evicted, Gone::Evicted);
            }
            if window.write(pages.mmaddr(number), &bytes[..len]).is_err() {
                pages.unpin(number);
                break;
            }
            counters.blocks += 1;
            counters.bytes += len as u64;
            self.blocks.push_back((number, len as u16));
        }
        any
    }

    /// The next block of a viewer, whose pin the buffer has. `Err`: it is too far behind, or no
    /// viewer.
    pub(super) fn next(
        &mut self,
        id: ConnectionId,
        pages: &mut PageCache,
    ) -> Result<Option<Mbuf>, Behind> {
        let index = self.viewers.get_mut(&id).ok_or(Behind)?;
        let at = index.checked_sub(self.first).ok_or(Behind)?;
        let Some(&(page, len)) = self.blocks.get(at as usize) else { return Ok(None) };
        let block = Block { file: self.number, index: *index };
        *index += 1;
        pages.pin(page);
        Ok(Some(Mbuf::Pages {
            first: page,
            block,
            revision: REVISION,
            start: 0,
            len: u32::from(len),
        }))
    }

    /// Lets go of blocks that every viewer has taken, or that are too old, and of the pages of
    /// those that every viewer has.
    pub(super) fn retire(&mut self, pages: &mut PageCache, mut gone: impl FnMut(Block, Gone)) {
        let wanted = self.viewers.values().min().copied().unwrap_or_else(|| self.next_index());
        while !self.blocks.is_empty() && (self.first < wanted || self.blocks.len() > WINDOW_BLOCKS)
        {
            if let Some((page, _)) = self.blocks.pop_front() {
                pages.unpin(page);
                self.retiring.push_back((Block { file: self.number, index: self.first }, page));
            }
            self.first += 1;
        }
        while let Some(&(block, page)) = self.retiring.front() {
            let is_its = pages.page(page).is_some_and(|held| held.block == block);
            if is_its && pages.is_pinned(page) {
                break;
            }
            self.retiring.pop_front();
            if is_its {
                pages.forget(block);
                gone(block, Gone::Used);
            }
        }
    }
}

impl AsFd for Stream {
    /// Readable when there is more.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fifo.as_fd()
    }
}

/// The viewer is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Behind;

/// Segments that a playlist (RFC 8216 section 4.1) at a path names, as paths; those on other
/// servers are left out.
pub fn segments(path: &[u8], playlist: &str) -> Vec<Vec<u8>> {
    let folder = path.iter().rposition(|&byte| byte == b'/').map_or(&b"/"[..], |at| &path[..=at]);
    let lines =
        playlist.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let local = lines.filter(|line| !line.contains("://") && !line.starts_with("//"));
    local
        .map(|line| line.split(['?', '#']).next().unwrap_or_default().as_bytes())
        .map(|name| if name.starts_with(b"/") { name.to_vec() } else { [folder, name].concat() })
        .collect()
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    const NOBODY: ConnectionId = ConnectionId(9);

    fn id(number: u32) -> ConnectionId {
        ConnectionId(number)
    }

    #[test]
    fn blocks_stay_until_the_last_viewer_has_them() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let window = Window::create("test", 64 * 4096).unwrap();
        let mut pages = PageCache::new(0, 64);
        let mut counters = LiveCounters::default();
        let mut stream = Stream::new(b"/tv".to_vec(), reader, 0);
        let write =
            |bytes: &[u8]| assert_eq!(rustix::io::write(&writer, bytes).unwrap(), bytes.len());
        write(b"nobody sees this");
        assert!(stream.read(&mut pages, &window, &mut counters, |_, _| {}));
        assert_eq!(counters.blocks, 0);
        stream.join(id(1));
        stream.join(id(2));
        write(b"first");
        stream.read(&mut pages, &window, &mut counters, |_, _| {});
        write(b"second");
        stream.read(&mut pages, &window, &mut counters, |_, _| {});
        let mut gone = Vec::new();
        let Ok(Some(Mbuf::Pages { first: one, len: 5, .. })) = stream.next(id(1), &mut pages)
        else {
            panic!()
        };
        assert!(
            stream.next(id(1), &mut pages).unwrap().is_some()
                && stream.next(id(1), &mut pages).unwrap().is_none()
        );
        stream.retire(&mut pages, |block, _| gone.push(block.index));
        assert!(gone.is_empty(), "the other one wants it");
        stream.next(id(2), &mut pages).unwrap().unwrap();
        pages.unpin(one);
        stream.retire(&mut pages, |block, _| gone.push(block.index));
        assert!(gone.is_empty(), "the other one has not acknowledged it");
        pages.unpin(one);
        stream.retire(&mut pages, |block, _| gone.push(block.index));
        assert_eq!(gone, [0]);
        stream.leave(id(2));
        assert_eq!(stream.next(NOBODY, &mut pages), Err(Behind));
    }

    #[test]
    fn who_is_too_far_behind_is_told() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let window = Window::create("test", 1024 * 4096).unwrap();
        let mut pages = PageCache::new(0, 1024);
        let mut stream = Stream::new(b"/tv".to_vec(), reader, 0);
        stream.join(id(1));
        for _ in 0..=WINDOW_BLOCKS {
            rustix::io::write(&writer, b"x").unwrap();
            stream.read(&mut pages, &window, &mut LiveCounters::default(), |_, _| {});
        }
        stream.retire(&mut pages, |_, _| {});
        assert_eq!((stream.next(id(1), &mut pages), pages.len()), (Err(Behind), WINDOW_BLOCKS));
        assert_eq!(stream.viewers_behind(), [id(1)]);
    }

    #[test]
    fn playlists_name_segments() {
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nseg1.ts?x=1\n\n/abs/seg2.ts\nhttp://other/seg3.ts\n//other/seg4.ts\n";
        assert_eq!(
            segments(b"/live/list.m3u8", text),
            [b"/live/seg1.ts".to_vec(), b"/abs/seg2.ts".to_vec()]
        );
    }
}
