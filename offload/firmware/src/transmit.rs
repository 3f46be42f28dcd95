//! The packet that is being gathered.
//!
//! Bytes of main memory are copied into the transmit buffer; those of the cache stay where they are
//! until the packet is sent.

use std::io::IoSlice;
use std::ops::Range;

use arrayvec::ArrayVec;
use nicache_bus::descriptor::Refusal;
use nicache_bus::{Flags, Segmentation};
use nicache_port::{Checksum, FRAME_BYTES_MAX, Gso, GsoKind, HEADER_BYTES_MAX, Offload, PARTS_MAX};

use crate::cache::Cache;
use crate::split::network;

/// Offsets of the checksum in a TCP header, and in one of UDP.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;
/// Where the flags are in a TCP header, and the one that only a first segment may have (RFC 3168
/// section 6.1.2).
const TCP_FLAGS: usize = 13;
const TCP_CWR: u8 = 0x80;

#[derive(Debug, Clone)]
enum Part {
    Buffer(Range<usize>),
    Cache { offset: u32, len: u32, generation: u16 },
}

/// The packet that is being gathered: bytes of main memory are copied into the transmit buffer,
/// those of the cache stay where they are until it is sent.
#[derive(Debug)]
pub(crate) struct Packet {
    buffer: Box<[u8]>,
    used: usize,
    parts: ArrayVec<Part, PARTS_MAX>,
    bytes: usize,
    begun: bool,
    /// The rest of the packet is not wanted: a part of it was refused.
    spoilt: bool,
    checksum: Option<u16>,
    segmentation: Segmentation,
    port: u8,
}

impl Packet {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            used: 0,
            parts: ArrayVec::new(),
            bytes: 0,
            begun: false,
            spoilt: false,
            checksum: None,
            segmentation: Segmentation::default(),
            port: 0,
        }
    }

    /// Begins anew.
    pub(crate) fn begin(&mut self, flags: Flags, port: u8, segmentation: Segmentation) {
        self.clear();
        (self.begun, self.port) = (true, port);
        let offset = if flags.has(Flags::UDP) { UDP_CHECKSUM } else { TCP_CHECKSUM };
        self.checksum = flags.has(Flags::CHECKSUM).then_some(offset);
        self.segmentation = segmentation;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.used, self.bytes, self.begun, self.spoilt) = (0, 0, false, false);
        self.parts.clear();
    }

    /// Nothing more of it is wanted, up to its end.
    pub(crate) fn spoil(&mut self) {
        self.spoilt = true;
    }

    /// The port that it goes out by.
    pub(crate) fn port(&self) -> usize {
        usize::from(self.port)
    }

    /// Whether it has begun and not ended.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether a part of it was refused.
    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    fn has_room(&self, len: u32) -> bool {
        self.begun && self.bytes + len as usize <= FRAME_BYTES_MAX && !self.parts.is_full()
    }

    /// Room for bytes of main memory, if the packet has it.
    pub(crate) fn room(&mut self, len: u32) -> Option<&mut [u8]> {
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
    pub(crate) fn append_cache(&mut self, offset: u32, len: u32, generation: u16) -> bool {
        if !self.has_room(len) {
            return false;
        }
        match self.parts.last_mut() {
            Some(Part::Cache { offset: at, len: before, generation: of })
                if *at + *before == offset && *of == generation =>
            {
                *before += len;
            }
            _ => self.parts.push(Part::Cache { offset, len, generation }),
        }
        self.bytes += len as usize;
        true
    }

    /// The packet as a gather list with its metadata.
    ///
    /// # Errors
    /// Its segmentation cannot be, or the cache has another load by now.
    pub(crate) fn gather<'a>(
        &'a self,
        cache: &'a Cache,
    ) -> Result<(ArrayVec<IoSlice<'a>, PARTS_MAX>, Offload), Refusal> {
        let mut list = ArrayVec::new();
        for part in &self.parts {
            list.push(IoSlice::new(match part {
                Part::Buffer(range) => &self.buffer[range.clone()],
                Part::Cache { offset, len, generation } => {
                    cache.get_of(*offset, *len, *generation)?
                }
            }));
        }
        Ok((list, self.offload().ok_or(Refusal::Packet)?))
    }

    fn offload(&self) -> Option<Offload> {
        let Segmentation { size, header_len, transport } = self.segmentation;
        let Some(offset) = self.checksum else {
            // Whether a checksum is right that the host has not asked for, nobody has said.
            return (size == 0).then_some(Offload::default());
        };
        let checksum = Checksum::Partial { start: u16::from(transport), offset };
        // The checksum field must be in the headers, which are in one piece in the buffer.
        let Some(Part::Buffer(first)) = self.parts.first() else { return None };
        if usize::from(transport) + usize::from(offset) + 2 > first.len() {
            return None;
        }
        if size == 0 || self.bytes <= usize::from(header_len) + usize::from(size) {
            return Some(Offload { checksum, gso: None });
        }
        let headers = &self.buffer[first.clone()];
        let kind = match network(headers)? {
            _ if offset == UDP_CHECKSUM => GsoKind::Udp,
            (4, _) => GsoKind::Tcp4,
            _ => GsoKind::Tcp6,
        };
        let flags = headers[usize::from(transport)..].get(TCP_FLAGS).copied().unwrap_or(0);
        let ecn = kind != GsoKind::Udp && flags & TCP_CWR != 0;
        let header_len = u16::from(header_len);
        let is_possible = header_len > u16::from(transport)
            && usize::from(header_len) <= first.len().min(HEADER_BYTES_MAX);
        is_possible.then_some(Offload { checksum, gso: Some(Gso { kind, size, header_len, ecn }) })
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
        packet.begin(Flags::FIRST, 0, Segmentation::default());
        packet.room(2).unwrap().copy_from_slice(b"ab");
        packet.room(1).unwrap().copy_from_slice(b"c");
        assert!(
            packet.append_cache(3, 2, 0)
                && packet.append_cache(5, 1, 0)
                && packet.append_cache(0, 1, 0)
        );
        packet.room(1).unwrap().copy_from_slice(b"d");
        let (list, offload) = packet.gather(&cache).unwrap();
        assert_eq!((bytes(&list), list.len()), (b"abc3450d".to_vec(), 4));
        assert_eq!(offload, Offload::default());
    }

    #[test]
    fn a_packet_has_an_end() {
        let mut packet = Packet::new();
        assert!(packet.room(1).is_none(), "it has not begun");
        packet.begin(Flags::FIRST, 0, Segmentation::default());
        assert!(
            packet.append_cache(0, 65_000, 0)
                && !packet.append_cache(0, 1000, 0)
                && packet.room(1000).is_none()
        );
        packet.begin(Flags::FIRST, 0, Segmentation::default());
        for part in 0..PARTS_MAX as u32 {
            assert!(packet.append_cache(part * 2, 1, 0));
        }
        assert!(!packet.append_cache(1, 1, 0));
    }

    #[test]
    fn segmentation_must_fit_the_headers() {
        let cache = Cache::new(4096).unwrap();
        let gather = |segmentation: Segmentation, headers: u32, content: u32| {
            let mut packet = Packet::new();
            packet.begin(Flags::FIRST.with(Flags::CHECKSUM), 0, segmentation);
            let room = packet.room(headers).unwrap();
            if room.len() > 14 {
                room[12..14].copy_from_slice(&[8, 0]);
            }
            assert!(packet.append_cache(0, content, 0));
            packet.gather(&cache).ok().map(|(_, offload)| offload.gso)
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
