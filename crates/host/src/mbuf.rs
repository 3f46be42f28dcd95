//! Buffers of the network stack that refer to bytes without having them ("mbufs", Kim et al. 2002, section 4.2).

use nicache_bus::BusClass;

use crate::block::{Block, Revision};
use crate::page_cache::PageNumber;

/// Who gets the memory back when nobody needs it any more.
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
    /// Part of a page of the page cache.
    Page {
        /// Which page.
        page: PageNumber,
        /// What is in it.
        block: Block,
        /// Of the file, when the block was read.
        revision: Revision,
        /// First byte in the page.
        start: u16,
        /// Bytes.
        len: u16,
    },
}

impl Mbuf {
    /// Bytes that it refers to.
    pub fn len(&self) -> u32 {
        match *self {
            Mbuf::Bytes { len, .. } => len,
            Mbuf::Page { len, .. } => u32::from(len),
        }
    }

    /// Whether it refers to none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part of it from `start` on, of at most `len` bytes.
    ///
    /// # Panics
    /// If `start` lies behind its end.
    #[must_use]
    pub fn part(&self, start: u32, len: u32) -> Mbuf {
        let len = len.min(self.len() - start);
        match *self {
            Mbuf::Bytes { mmaddr, class, .. } => {
                Mbuf::Bytes { mmaddr: mmaddr + u64::from(start), len, class, owner: Owner::Nobody }
            }
            Mbuf::Page { page, block, revision, start: first, .. } => {
                Mbuf::Page { page, block, revision, start: first + start as u16, len: len as u16 }
            }
        }
    }
}

/// Ethernet, IP and TCP headers of a packet, with what the card is to do about checksum and segments.
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
    use crate::block::FileNumber;

    #[test]
    fn parts_refer_to_the_same_bytes() {
        let block = Block { file: FileNumber(1), index: 2 };
        let page = |start, len| Mbuf::Page { page: PageNumber(3), block, revision: Revision(4), start, len };
        assert_eq!(page(100, 1000).part(10, 20), page(110, 20));
        assert_eq!(page(100, 1000).part(990, 20), page(1090, 10));
        let bytes = |mmaddr, len| Mbuf::Bytes { mmaddr, len, class: BusClass::Other, owner: Owner::Nobody };
        assert_eq!(bytes(5, 10).part(10, 5), bytes(15, 0));
        assert!(bytes(5, 0).is_empty());
    }
}
