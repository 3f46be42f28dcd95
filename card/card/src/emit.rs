//! Frames that the card itself builds: headers in a stack buffer, payload by reference.

use std::io::IoSlice;

use arrayvec::ArrayVec;
use nicache_port::{Capabilities, Checksum, Gso, GsoKind, Offload};
use nicache_tcp::frame::write_headers;
pub(crate) use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX};
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{HeadRepr, checksum};

/// The headers of a frame.
pub(crate) struct Headers {
    bytes: [u8; HEADERS_BYTES_MAX],
    len: usize,
    /// What the port has to complete.
    pub offload: Offload,
}

impl Headers {
    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Builds the headers of a segment with `payload_len` bytes. `payload_sum` is called only if
    /// the port cannot complete checksums; it gives the ones'-complement sum of the payload. With
    /// more than `mss` bytes the frame is a super-frame.
    #[inline(always)]
    pub(crate) fn new(
        addresses: &Addresses,
        tcp: &HeadRepr,
        payload_len: usize,
        mss: u16,
        ip_id: u16,
        capabilities: &Capabilities,
        payload_sum: impl FnOnce() -> u16,
    ) -> Self {
        // Written where it stays: bytes that were just written in small pieces are slow to move.
        let mut headers =
            Self { bytes: [0; HEADERS_BYTES_MAX], len: 0, offload: Offload::default() };
        let Self { bytes, len, offload } = &mut headers;
        *len = write_headers(addresses, tcp, payload_len as u32, ip_id, bytes);
        let tcp_at = addresses.tcp_at();
        if capabilities.checksum {
            offload.checksum =
                Checksum::Partial { start: tcp_at as u16, offset: CHECKSUM_OFFSET as u16 };
        } else {
            // The field has the sum of the pseudo-header.
            let sum = checksum::add(checksum::sum(&bytes[tcp_at..*len]), payload_sum());
            let field = tcp_at + CHECKSUM_OFFSET;
            bytes[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        }
        if payload_len > usize::from(mss) {
            let kind = if addresses.source.is_v4() { GsoKind::Tcp4 } else { GsoKind::Tcp6 };
            offload.gso = Some(Gso { kind, size: mss, header_len: *len as u16, ecn: false });
        }
        headers
    }
}

/// A gather list on the stack.
pub(crate) struct Gather<'a> {
    parts: ArrayVec<IoSlice<'a>, { crate::limits::GATHER_MAX }>,
    bytes: usize,
}

impl<'a> Gather<'a> {
    /// An empty list.
    pub(crate) fn new() -> Self {
        Gather { parts: ArrayVec::new(), bytes: 0 }
    }

    /// Adds a part; false if the list is full.
    pub(crate) fn push(&mut self, part: &'a [u8]) -> bool {
        if part.is_empty() {
            return true;
        }
        let taken = self.parts.try_push(IoSlice::new(part)).is_ok();
        self.bytes += if taken { part.len() } else { 0 };
        taken
    }

    /// The parts, in order.
    pub(crate) fn parts(&self) -> &[IoSlice<'a>] {
        &self.parts
    }

    /// Bytes in all parts.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }
}
