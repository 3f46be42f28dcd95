//! The packet that is being gathered.
//!
//! Bytes of main memory are copied into the transmit buffer; those of the cache stay where they are until the packet is sent.

use std::io::IoSlice;
use std::ops::Range;

use arrayvec::ArrayVec;
use nicache_bus::{Flags, Segmentation};
use nicache_port::{Checksum, FRAME_BYTES_MAX, Gso, GsoKind, HEADER_BYTES_MAX, Offload, PARTS_MAX};

use crate::cache::Cache;

/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;
/// Ethernet types.
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

#[derive(Debug, Clone)]
enum Part {
    Buffer(Range<usize>),
    Cache { offset: u32, len: u32 },
}

/// See the module's head.
#[derive(Debug)]
pub struct Packet {
    buffer: Box<[u8]>,
    used: usize,
    parts: ArrayVec<Part, PARTS_MAX>,
    bytes: usize,
    begun: bool,
    /// The rest of the packet is not wanted: a part of it was refused.
    spoilt: bool,
    checksum: bool,
    segmentation: Segmentation,
}

impl Packet {
    /// None yet.
    pub fn new() -> Packet {
        Packet {
            buffer: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            used: 0,
            parts: ArrayVec::new(),
            bytes: 0,
            begun: false,
            spoilt: false,
            checksum: false,
            segmentation: Segmentation::default(),
        }
    }

    /// Begins anew.
    pub fn begin(&mut self, flags: Flags, segmentation: Segmentation) {
        self.clear();
        self.begun = true;
        self.checksum = flags.has(Flags::CHECKSUM);
        self.segmentation = segmentation;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        (self.used, self.bytes, self.begun, self.spoilt) = (0, 0, false, false);
        self.parts.clear();
    }

    /// Nothing more of it is wanted, up to its end.
    pub fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// Whether it has begun and not ended.
    pub fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether a part of it was refused.
    pub fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    fn has_room(&self, len: u32) -> bool {
        self.begun && self.bytes + len as usize <= FRAME_BYTES_MAX && !self.parts.is_full()
    }

    /// Room for bytes of main memory, if the packet has it.
    pub fn room(&mut self, len: u32) -> Option<&mut [u8]> {
        if !self.has_room(len) {
            return None;
        }
        let range = self.used..self.used + len as usize;
        // What follows bytes of the buffer in the buffer is one part with them.
        match self.parts.last_mut() {
            Some(Part::Buffer(last)) => last.end = range.end,
            _ => self.parts.push(Part::Buffer(range.clone())),
        }
        self.used = range.end;
        self.bytes += len as usize;
        Some(&mut self.buffer[range])
    }

    /// Adds bytes of the cache. False: there is no room for them.
    pub fn append_cache(&mut self, offset: u32, len: u32) -> bool {
        if !self.has_room(len) {
            return false;
        }
        match self.parts.last_mut() {
            Some(Part::Cache { offset: at, len: before }) if *at + *before == offset => *before += len,
            _ => self.parts.push(Part::Cache { offset, len }),
        }
        self.bytes += len as usize;
        true
    }

    /// The packet as a gather list with its metadata; `None`: its segmentation cannot be.
    pub fn gather<'a>(&'a self, cache: &'a Cache) -> Option<(ArrayVec<IoSlice<'a>, PARTS_MAX>, Offload)> {
        let slice = |part: &Part| match part {
            Part::Buffer(range) => Some(&self.buffer[range.clone()]),
            Part::Cache { offset, len } => cache.get(*offset, *len),
        };
        let mut list = ArrayVec::new();
        for part in &self.parts {
            list.push(IoSlice::new(slice(part)?));
        }
        Some((list, self.offload()?))
    }

    fn offload(&self) -> Option<Offload> {
        let Segmentation { size, header_len, transport } = self.segmentation;
        if !self.checksum {
            return (size == 0).then_some(Offload { checksum: Checksum::Valid, gso: None });
        }
        let checksum = Checksum::Partial { start: u16::from(transport), offset: TCP_CHECKSUM };
        // The checksum field must be in the headers, which are in one piece in the buffer.
        let Some(Part::Buffer(first)) = self.parts.first() else { return None };
        if usize::from(transport) + usize::from(TCP_CHECKSUM) + 2 > first.len() {
            return None;
        }
        if size == 0 || self.bytes <= usize::from(header_len) + usize::from(size) {
            return Some(Offload { checksum, gso: None });
        }
        let kind = match self.buffer[first.clone()].get(12..14)? {
            kind if kind == IPV4 => GsoKind::Tcp4,
            kind if kind == IPV6 => GsoKind::Tcp6,
            _ => return None,
        };
        let header_len = u16::from(header_len);
        let is_possible =
            header_len > u16::from(transport) && usize::from(header_len) <= first.len().min(HEADER_BYTES_MAX);
        is_possible.then_some(Offload { checksum, gso: Some(Gso { kind, size, header_len, ecn: false }) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(list: &[IoSlice<'_>]) -> Vec<u8> {
        list.iter().flat_map(|part| part.iter().copied()).collect()
    }

    #[test]
    fn neighbours_are_one_part() {
        let mut cache = Cache::new(100).unwrap();
        cache.get_mut(0, 10).unwrap().copy_from_slice(b"0123456789");
        let mut packet = Packet::new();
        packet.begin(Flags::FIRST, Segmentation::default());
        packet.room(2).unwrap().copy_from_slice(b"ab");
        packet.room(1).unwrap().copy_from_slice(b"c");
        assert!(packet.append_cache(3, 2) && packet.append_cache(5, 1) && packet.append_cache(0, 1));
        packet.room(1).unwrap().copy_from_slice(b"d");
        let (list, offload) = packet.gather(&cache).unwrap();
        assert_eq!((bytes(&list), list.len()), (b"abc3450d".to_vec(), 4));
        assert_eq!(offload, Offload { checksum: Checksum::Valid, gso: None });
    }

    #[test]
    fn a_packet_has_an_end() {
        let mut packet = Packet::new();
        assert!(packet.room(1).is_none(), "it has not begun");
        packet.begin(Flags::FIRST, Segmentation::default());
        assert!(packet.append_cache(0, 65_000) && !packet.append_cache(0, 1000) && packet.room(1000).is_none());
        packet.begin(Flags::FIRST, Segmentation::default());
        for part in 0..PARTS_MAX as u32 {
            assert!(packet.append_cache(part * 2, 1));
        }
        assert!(!packet.append_cache(1, 1));
    }

    #[test]
    fn segmentation_must_fit_the_headers() {
        let cache = Cache::new(4096).unwrap();
        let gather = |segmentation: Segmentation, headers: u32, content: u32| {
            let mut packet = Packet::new();
            packet.begin(Flags::FIRST.with(Flags::CHECKSUM), segmentation);
            let room = packet.room(headers).unwrap();
            if room.len() > 14 {
                room[12..14].copy_from_slice(&IPV4);
            }
            assert!(packet.append_cache(0, content));
            packet.gather(&cache).map(|(_, offload)| offload.gso)
        };
        let right = Segmentation { size: 1000, header_len: 54, transport: 34 };
        let gso = Gso { kind: GsoKind::Tcp4, size: 1000, header_len: 54, ecn: false };
        assert_eq!(gather(right, 54, 4000), Some(Some(gso)));
        assert_eq!(gather(right, 54, 1000), Some(None), "one segment");
        assert_eq!(gather(right, 50, 4000), None, "headers that are not there");
        assert_eq!(gather(Segmentation { transport: 200, ..right }, 54, 1), None);
        assert_eq!(
            gather(Segmentation { transport: 60, ..right }, 100, 4000),
            None,
            "headers that end before they begin"
        );
    }
}
