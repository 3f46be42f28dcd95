//! Buffers of the network stack that refer to bytes without having them ("mbufs", Kim et al. 2002,
//! section 4.2).

use nicache_bus::BusClass;

use crate::block::{BLOCK_BYTES, Block, FileNumber, PageNumber, Revision};

/// Who gets the memory back when nobody needs it any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Nobody: it stays.
    Nobody,
    /// [`Places`](crate::Places).
    Place(u32),
    /// The page cache: a page of no block.
    Page(PageNumber),
}

/// One contiguous piece of main memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mbuf {
    /// Bytes that belong to no file.
    Bytes {
        /// Address in the window.
        mmaddr: u64,
        /// Bytes.
        len: u32,
        /// What they are.
        class: BusClass,
        /// Whose they are. A part of them belongs to nobody.
        owner: Owner,
    },
    /// Bytes of pages of the page cache that follow each other there as their blocks do in the
    /// file.
    Pages {
        /// The page that has the first byte.
        first: PageNumber,
        /// What is in it.
        block: Block,
        /// Of the file, when the blocks were read.
        revision: Revision,
        /// First byte in the first page: less than a block.
        start: u16,
        /// Bytes.
        len: u32,
    },
}

/// Bytes of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagePart {
    /// Which page.
    pub page: PageNumber,
    /// What is in it.
    pub block: Block,
    /// First byte in the page.
    pub start: u32,
    /// Bytes.
    pub len: u32,
}

impl Mbuf {
    /// Bytes that it refers to.
    pub fn len(&self) -> u32 {
        match *self {
            Self::Bytes { len, .. } | Self::Pages { len, .. } => len,
        }
    }

    /// Whether it refers to none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In how many places its bytes may be in a card: one for each page.
    pub fn places(&self) -> u32 {
        match *self {
            Self::Bytes { .. } => 1,
            Self::Pages { start, len, .. } => (u32::from(start) + len).div_ceil(PAGE_BYTES).max(1),
        }
    }

    /// Its bytes page by page; none, if they are in no page.
    pub fn page_parts(&self) -> impl Iterator<Item = PagePart> + use<> {
        let (page, block, start, end) = match *self {
            Self::Bytes { .. } => (0, Block { file: FileNumber(0), index: 0 }, 0, 0),
            Self::Pages { first, block, start, len, .. } => {
                (first.0, block, u32::from(start), u32::from(start) + len)
            }
        };
        (0..end.div_ceil(PAGE_BYTES)).map(move |number| {
            let at = number * PAGE_BYTES;
            let (from, to) = (at.max(start), (at + PAGE_BYTES).min(end));
            let block = Block { index: block.index + number, ..block };
            PagePart { page: PageNumber(page + number), block, start: from - at, len: to - from }
        })
    }

    /// The part of it from `start` on, of at most `len` bytes in at most `places`
    /// [places](Self::places).
    ///
    /// # Panics
    /// If `start` lies behind its end, or there is no place.
    #[must_use]
    pub fn part(&self, start: u32, len: u32, places: u32) -> Self {
        assert!(places > 0, "a part is somewhere");
        let len = len.min(self.len() - start);
        match *self {
            Self::Bytes { mmaddr, class, .. } => {
                Self::Bytes { mmaddr: mmaddr + u64::from(start), len, class, owner: Owner::Nobody }
            }
            Self::Pages { first, block, revision, start: before, .. } => {
                let at = u32::from(before) + start;
                let (skipped, start) = (at / PAGE_BYTES, at % PAGE_BYTES);
                let len = len.min(places.saturating_mul(PAGE_BYTES) - start);
                let block = Block { index: block.index + skipped, ..block };
                Self::Pages {
                    first: PageNumber(first.0 + skipped),
                    block,
                    revision,
                    start: start as u16,
                    len,
                }
            }
        }
    }
}

const PAGE_BYTES: u32 = BLOCK_BYTES as u32;

/// Ethernet, IP and TCP headers of a packet, with what the card is to do about checksum and
/// segments.
#[derive(Clone, Copy, Debug)]
pub struct Headers<'a> {
    /// The bytes. The checksum field has the sum of the pseudo-header.
    pub bytes: &'a [u8],
    /// Where the TCP header begins.
    pub transport: u8,
    /// Payload bytes of each segment; 0: one packet.
    pub segment: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileNumber = FileNumber(1);

    fn pages(first: u32, index: u32, start: u16, len: u32) -> Mbuf {
        let block = Block { file: FILE, index };
        Mbuf::Pages { first: PageNumber(first), block, revision: Revision(4), start, len }
    }

    #[test]
    fn parts_refer_to_the_same_bytes() {
        assert_eq!(pages(3, 2, 100, 1000).part(10, 20, 1), pages(3, 2, 110, 20));
        assert_eq!(pages(3, 2, 100, 1000).part(990, 20, 1), pages(3, 2, 1090, 10));
        let bytes =
            |mmaddr, len| Mbuf::Bytes { mmaddr, len, class: BusClass::Other, owner: Owner::Nobody };
        assert_eq!(bytes(5, 10).part(10, 5, 1), bytes(15, 0));
        assert!(bytes(5, 0).is_empty() && bytes(5, 10).page_parts().next().is_none());
    }

    #[test]
    fn parts_of_several_pages() {
        let all = pages(3, 20, 4000, 9000);
        assert_eq!(all.places(), 4);
        let part = |page, index, start, len| PagePart {
            page: PageNumber(page),
            block: Block { file: FILE, index },
            start,
            len,
        };
        let expected = [
            part(3, 20, 4000, 96),
            part(4, 21, 0, 4096),
            part(5, 22, 0, 4096),
            part(6, 23, 0, 712),
        ];
        assert_eq!(all.page_parts().collect::<Vec<_>>(), expected);
        assert_eq!(all.part(96, 4096, 9), pages(4, 21, 0, 4096));
        assert_eq!(all.part(97, 9000, 2), pages(4, 21, 1, 8191));
        assert_eq!(all.part(95, 2, 9), pages(3, 20, 4095, 2));
        assert_eq!(pages(3, 20, 4095, 2).places(), 2);
        assert_eq!((pages(3, 20, 0, 4096).places(), pages(3, 20, 0, 4097).places()), (1, 2));
    }
}
