//! A frame that a card has received: its headers, and where the rest of it is.

use std::ops::Range;

use arrayvec::ArrayVec;
use nicache_bus::{Received, ReceivedChecksum, ReceivedGso};
use nicache_port::{Checksum, Gso, GsoKind, Offload};

use crate::backend::PAYLOAD_AT;
use crate::decision::{HEAD_BYTES_MAX, Incoming};
use crate::pcache::BufferId;
use crate::view::{TCP, Transport, View, network_of};

/// Parts of a frame at most.
pub(crate) const PIECES_MAX: usize = 64;

/// A part of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) buffer: BufferId,
    pub(crate) frame_at: usize,
    pub(crate) len: usize,
    /// Where it is in the buffer, if it is there.
    pub(crate) at: u32,
    /// It is in an entry.
    pub(crate) is_split: bool,
    /// Its ones'-complement sum, if it is in an entry.
    pub(crate) sum: u16,
}

/// A frame that has come.
#[derive(Clone, Debug)]
pub struct Frame {
    pub(crate) look: ArrayVec<u8, HEAD_BYTES_MAX>,
    pub(crate) len: usize,
    pub(crate) port: u8,
    pub(crate) offload: Offload,
    pub(crate) pieces: ArrayVec<Piece, PIECES_MAX>,
}

impl Frame {
    /// Its first bytes: the headers, and of a frame that was not split some more.
    pub fn look(&self) -> &[u8] {
        &self.look
    }

    /// All of its bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none; there is no such frame.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// It, for a forwarder.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { look: &self.look, len: self.len, port: self.port, offload: self.offload }
    }

    /// The port that it came in by.
    pub fn port(&self) -> u8 {
        self.port
    }

    /// What is known of its checksum and segments.
    pub fn offload(&self) -> Offload {
        self.offload
    }
}

impl Frame {
    pub(crate) fn boxed() -> Box<Self> {
        let (look, pieces) = (ArrayVec::new(), ArrayVec::new());
        Box::new(Self { look, len: 0, port: 0, offload: Offload::default(), pieces })
    }

    pub(crate) fn clear(&mut self) {
        (self.len, self.offload) = (0, Offload::default());
        self.look.clear();
        self.pieces.clear();
    }

    /// False: there are too many parts.
    pub(crate) fn add(&mut self, buffer: BufferId, report: &Received) -> bool {
        let len = report.len as usize;
        let header_len = usize::from(report.header_len);
        let (headers, payload) =
            if report.is_split { (header_len, len - header_len) } else { (len, 0) };
        let mut add = |len: usize, at: u32, is_split: bool| {
            let piece = Piece { buffer, frame_at: self.len, len, at, is_split, sum: report.sum };
            self.len += len;
            len == 0 || self.pieces.try_push(piece).is_ok()
        };
        add(headers, 0, false) && add(payload, PAYLOAD_AT, true)
    }

    /// The metadata with the positions that follow from the headers. What contradicts them is not
    /// believed.
    pub(crate) fn offload_of(&self, told: Offload) -> Offload {
        let unknown = Offload::default();
        let plain = Offload { gso: None, ..told };
        if !matches!(told.checksum, Checksum::Partial { .. }) {
            return plain;
        }
        let view =
            network_of(&self.look).and_then(|(_, at)| View::parse(&self.look, at, self.len).ok());
        let Some(view) = view.filter(|view| view.fragment.is_none()) else { return unknown };
        let (offset, kind) = match view.transport {
            Transport::Tcp(_) if view.source.is_ipv4() => (16, GsoKind::Tcp4),
            Transport::Tcp(_) => (16, GsoKind::Tcp6),
            Transport::Udp { .. } => (6, GsoKind::Udp),
            _ => return unknown,
        };
        let checksum = Checksum::Partial { start: view.transport_at as u16, offset };
        let Some(gso) = told.gso else { return Offload { checksum, gso: None } };
        let header_len = view.headers_end as u16;
        let is_right = gso.kind == kind && gso.size > 0 && usize::from(header_len) < self.len;
        let ecn = view.protocol == TCP && self.look[view.transport_at + 13] & 0x80 != 0;
        let gso = is_right.then_some(Gso { kind, size: gso.size, header_len, ecn });
        Offload { checksum, gso }
    }
}

/// What the card tells of a received frame's checksum and segmentation, without positions.
pub(crate) fn offload_told(report: &Received) -> Offload {
    let checksum = match report.checksum {
        ReceivedChecksum::Unverified => Checksum::Unverified,
        ReceivedChecksum::Valid => Checksum::Valid,
        ReceivedChecksum::Partial => Checksum::Partial { start: 0, offset: 0 },
    };
    let gso = report.gso.map(|(kind, size)| {
        let kind = match kind {
            ReceivedGso::Tcp4 => GsoKind::Tcp4,
            ReceivedGso::Tcp6 => GsoKind::Tcp6,
            ReceivedGso::Udp => GsoKind::Udp,
        };
        Gso { kind, size, header_len: 0, ecn: false }
    });
    Offload { checksum, gso }
}

/// Whether a head fits what descriptors can say of it.
pub(crate) fn fits(head: &[u8], offload: Offload) -> bool {
    let short = |at: u16| at <= u16::from(u8::MAX);
    let checksum = match offload.checksum {
        Checksum::Partial { start, .. } => short(start),
        _ => true,
    };
    checksum
        && offload
            .gso
            .is_none_or(|gso| short(gso.header_len) && usize::from(gso.header_len) == head.len())
}

/// Which bytes of a range a part has.
pub(crate) fn overlap(piece: &Piece, range: &Range<usize>) -> Range<usize> {
    let start = range.start.max(piece.frame_at);
    start..range.end.min(piece.frame_at + piece.len).max(start)
}
