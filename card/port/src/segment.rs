//! Software fallback for ports without offloads: cuts a super-frame into frames, and completes
//! partial checksums.
//!
//! Read first: RFC 9293 (TCP), RFC 791 and 8200 (IP), RFC 768 (UDP) for the fields that differ
//! between segments:
//!
//! | field | segment `i` of `n` |
//! |---|---|
//! | IPv4 total length, IPv6 payload length, UDP length | its own |
//! | IPv4 identification | first + `i` |
//! | IPv4 header checksum | its own |
//! | TCP sequence number | first + `i` · size |
//! | TCP FIN, PSH | last only |
//! | TCP CWR | first only (RFC 3168, section 6.1.2) |
//! | transport checksum | its own |
//!
//! The payload stays where it is: only headers are copied, to the stack.
//!
//! Deliberately absent: IP fragmentation, tunnels, walking IPv6 extension headers (the start of the
//! transport header is known from the partial checksum).

use std::io::IoSlice;
use std::ops::Range;

use nicache_checksum::Sum;

use crate::frame::{Checksum, ETHERNET_HEADER_BYTES, FRAME_BYTES_MAX, Gso, GsoKind, Offload};
use crate::gather::{PARTS_MAX, SendError, parts_len};
use crate::port::Port;

/// Most bytes of headers that the fallback handles: Ethernet with two VLAN tags, IPv6 with
/// extension headers, TCP with options.
pub const HEADER_BYTES_MAX: usize = 256;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const VLAN_TAGS_MAX: usize = 2;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Offset of the checksum field in a TCP header.
const TCP_CHECKSUM: usize = 16;
/// Offset of the checksum field in a UDP header.
const UDP_CHECKSUM: usize = 6;

/// Sends a frame through a port that may lack the offloads that the frame needs. Tells how many
/// frames it became.
///
/// # Errors
/// [`SendError::Invalid`] for a frame that contradicts its metadata; else what the port says. The
/// segments before the one that failed have been sent, the others are dropped, as a full queue
/// would do it on a real wire.
pub fn send_with_fallback<P: Port + ?Sized>(
    port: &mut P,
    parts: &[IoSlice<'_>],
    offload: Offload,
) -> Result<usize, SendError> {
    let capabilities = port.capabilities();
    if capabilities.supports(&offload) {
        return port.send(parts, offload).map(|()| 1);
    }
    if parts.len() > PARTS_MAX {
        return Err(SendError::TooManyParts);
    }
    if offload.gso.is_none() {
        let Checksum::Partial { start, offset } = offload.checksum else {
            return Err(SendError::Unsupported);
        };
        return send_completed(port, parts, usize::from(start), usize::from(offset)).map(|()| 1);
    }
    let segments = Segments::new(parts, &offload)?;
    let mut header = [0; HEADER_BYTES_MAX];
    for index in 0..segments.count() {
        let (header_len, offload) =
            segments.emit_header(index, parts, capabilities.checksum, &mut header);
        send_behind(port, &header[..header_len], parts, segments.payload(index), offload)?;
    }
    Ok(segments.count())
}

/// A super-frame, looked at as the frames that it stands for.
#[derive(Debug)]
pub struct Segments {
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// Start of the IP header.
    network: usize,
    /// Start of the TCP or UDP header.
    transport: usize,
    ipv6: bool,
    gso: Gso,
    frame_len: usize,
}

impl Segments {
    /// Checks the headers of a super-frame.
    ///
    /// # Errors
    /// [`SendError::Invalid`] if it is not a super-frame, or its headers are not what the metadata
    /// say, or longer than [`HEADER_BYTES_MAX`]; [`SendError::TooLong`] if it is longer than a
    /// buffer.
    pub fn new(parts: &[IoSlice<'_>], offload: &Offload) -> Result<Self, SendError> {
        let (Some(gso), Checksum::Partial { start, offset }) = (offload.gso, offload.checksum)
        else {
            return Err(SendError::Invalid);
        };
        let frame_len = parts_len(parts);
        if frame_len > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let (header_len, transport) = (usize::from(gso.header_len), usize::from(start));
        if header_len > HEADER_BYTES_MAX || header_len >= frame_len || gso.size == 0 {
            return Err(SendError::Invalid);
        }
        let mut header = [0; HEADER_BYTES_MAX];
        copy_front(parts, &mut header[..header_len]);
        let segments =
            Self { header, header_len, network: 0, transport, ipv6: false, gso, frame_len };
        segments.checked(usize::from(offset)).ok_or(SendError::Invalid)
    }

    /// Finds the IP header and checks all three headers; every index that
    /// [`emit_header`](Segments::emit_header) uses is covered.
    fn checked(mut self, checksum_offset: usize) -> Option<Self> {
        let header = &self.header[..self.header_len];
        let (ethertype, network) = network_header(header)?;
        let ip = header.get(network..self.transport)?;
        let transport = header.get(self.transport..)?;
        let (protocol, transport_len, checksum) = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                (PROTOCOL_TCP, usize::from(*transport.get(12)? >> 4) * 4, TCP_CHECKSUM)
            }
            GsoKind::Udp => (PROTOCOL_UDP, 8, UDP_CHECKSUM),
        };
        if transport_len < checksum + 2
            || transport_len != transport.len()
            || checksum_offset != checksum
        {
            return None;
        }
        let version = ip.first()? >> 4;
        let right = match (ethertype, self.gso.kind) {
            (ETHERTYPE_IPV4, GsoKind::Tcp4 | GsoKind::Udp) => {
                let fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff;
                let len = usize::from(ip[0] & 0x0f) * 4;
                version == 4
                    && ip.len() >= 20
                    && len == ip.len()
                    && fragment == 0
                    && ip[9] == protocol
            }
            (ETHERTYPE_IPV6, GsoKind::Tcp6 | GsoKind::Udp) => {
                version == 6 && ip.len() >= 40 && (ip.len() > 40 || ip[6] == protocol)
            }
            _ => false,
        };
        // IP lengths are 16 bits: a segment that would need more contradicts itself.
        let segment_len =
            self.frame_len.min(self.header_len + usize::from(self.gso.size)) - network;
        if !right || segment_len > usize::from(u16::MAX) {
            return None;
        }
        self.network = network;
        self.ipv6 = ethertype == ETHERTYPE_IPV6;
        Some(self)
    }

    /// Number of frames; at least 1.
    pub fn count(&self) -> usize {
        (self.frame_len - self.header_len).div_ceil(usize::from(self.gso.size))
    }

    /// Where the payload of segment `index` is, in bytes from the start of the super-frame.
    pub fn payload(&self, index: usize) -> Range<usize> {
        let size = usize::from(self.gso.size);
        let start = self.header_len + index * size;
        start..self.frame_len.min(start + size)
    }

    /// Writes the headers of segment `index` of the super-frame `parts`; tells their length and the
    /// metadata of the segment.
    ///
    /// `partial` leaves the transport checksum partial; otherwise it is complete, and the metadata
    /// say [`Checksum::Unverified`], as for a frame from a wire.
    ///
    /// # Panics
    /// If `index` is not below [`count`](Segments::count), or `parts` is not what
    /// [`new`](Segments::new) was given.
    pub fn emit_header(
        &self,
        index: usize,
        parts: &[IoSlice<'_>],
        partial: bool,
        out: &mut [u8; HEADER_BYTES_MAX],
    ) -> (usize, Offload) {
        assert!(index < self.count(), "segment {index} of {}", self.count());
        let payload = self.payload(index);
        let (first, last) = (index == 0, index + 1 == self.count());
        let header = &mut out[..self.header_len];
        header.copy_from_slice(&self.header[..self.header_len]);
        let (ip, transport) = header[self.network..].split_at_mut(self.transport - self.network);

        let transport_len = transport.len() + payload.len();
        let packet_len = ip.len() + transport_len;
        if self.ipv6 {
            put_u16(ip, 4, (packet_len - 40) as u16);
        } else {
            put_u16(ip, 2, packet_len as u16);
            let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(index as u16);
            put_u16(ip, 4, identification);
            put_u16(ip, 10, 0);
            let mut sum = Sum::default();
            sum.add(ip);
            put_u16(ip, 10, sum.complete());
        }

        let (protocol, checksum) = match self.gso.kind {
            GsoKind::Tcp4 | GsoKind::Tcp6 => {
                let seq =
                    u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
                let seq = seq.wrapping_add(index as u32 * u32::from(self.gso.size));
                transport[4..8].copy_from_slice(&seq.to_be_bytes());
                if !last {
                    transport[13] &= !(TCP_FIN | TCP_PSH);
                }
                if !first {
                    transport[13] &= !TCP_CWR;
                }
                (PROTOCOL_TCP, TCP_CHECKSUM)
            }
            GsoKind::Udp => {
                put_u16(transport, 4, transport_len as u16);
                (PROTOCOL_UDP, UDP_CHECKSUM)
            }
        };
        let mut sum = Sum::default();
        sum.add(if self.ipv6 { &ip[8..40] } else { &ip[12..20] });
        sum.add_u16(u16::from(protocol));
        sum.add_u16(transport_len as u16);
        let offload = if partial {
            put_u16(transport, checksum, sum.folded());
            Checksum::Partial { start: self.transport as u16, offset: checksum as u16 }
        } else {
            put_u16(transport, checksum, 0);
            sum.add(transport);
            add_range(&mut sum, parts, payload);
            put_u16(transport, checksum, on_the_wire(sum.complete(), checksum));
            Checksum::Unverified
        };
        (self.header_len, Offload { checksum: offload, gso: None })
    }
}

/// Sends an ordinary frame with its partial checksum completed.
fn send_completed<P: Port + ?Sized>(
    port: &mut P,
    parts: &[IoSlice<'_>],
    start: usize,
    offset: usize,
) -> Result<(), SendError> {
    let frame_len = parts_len(parts);
    let header_len = start + offset + 2;
    if start < ETHERNET_HEADER_BYTES || header_len > frame_len || header_len > HEADER_BYTES_MAX {
        return Err(SendError::Invalid);
    }
    if frame_len > FRAME_BYTES_MAX {
        return Err(SendError::TooLong);
    }
    let mut header = [0; HEADER_BYTES_MAX];
    let header = &mut header[..header_len];
    copy_front(parts, header);
    let mut sum = Sum::default();
    add_range(&mut sum, parts, start..frame_len);
    put_u16(header, start + offset, on_the_wire(sum.complete(), offset));
    send_behind(port, header, parts, header_len..frame_len, Offload::default())
}

/// Completes the partial checksum of a frame in place; `None` if the position is outside of it.
pub(crate) fn complete_in_place(frame: &mut [u8], start: usize, offset: usize) -> Option<()> {
    let mut sum = Sum::default();
    sum.add(frame.get(start..)?);
    let field = frame.get_mut(start + offset..start + offset + 2)?;
    field.copy_from_slice(&on_the_wire(sum.complete(), offset).to_be_bytes());
    Some(())
}

/// Sends `header`, then a range of the bytes of `parts`.
fn send_behind<P: Port + ?Sized>(
    port: &mut P,
    header: &[u8],
    parts: &[IoSlice<'_>],
    range: Range<usize>,
    offload: Offload,
) -> Result<(), SendError> {
    let mut list = [IoSlice::new(&[]); 1 + PARTS_MAX];
    list[0] = IoSlice::new(header);
    let mut len = 1;
    for piece in pieces(parts, range) {
        // There are no more pieces than parts, of which the caller has counted at most PARTS_MAX.
        list[len] = IoSlice::new(piece);
        len += 1;
    }
    port.send(&list[..len], offload)
}

/// Ethertype and start of the header that follows Ethernet and its VLAN tags.
pub(crate) fn network_header(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ETHERNET_HEADER_BYTES - 2;
    for _ in 0..=VLAN_TAGS_MAX {
        let ethertype = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
        if !ETHERTYPES_VLAN.contains(&ethertype) {
            return Some((ethertype, at + 2));
        }
        at += 4;
    }
    None
}

/// The checksum as it is transmitted: in UDP, 0 means "none" and is sent as all ones, which is
/// equal in ones' complement (RFC 768). The position of the field tells UDP from TCP (16), ICMP and
/// ICMPv6 (2).
fn on_the_wire(checksum: u16, offset: usize) -> u16 {
    if checksum == 0 && offset == UDP_CHECKSUM { 0xffff } else { checksum }
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The bytes of a gather list in `range`, piece by piece, empty ones left out.
fn pieces<'a>(parts: &'a [IoSlice<'_>], range: Range<usize>) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    parts.iter().filter_map(move |part| {
        let (from, to) = (range.start.max(start), range.end.min(start + part.len()));
        let piece = (from < to).then(|| &part[from - start..to - start]);
        start += part.len();
        piece
    })
}

fn add_range(sum: &mut Sum, parts: &[IoSlice<'_>], range: Range<usize>) {
    for piece in pieces(parts, range) {
        sum.add(piece);
    }
}

/// Copies the first bytes of a gather list, which has as many.
fn copy_front(parts: &[IoSlice<'_>], out: &mut [u8]) {
    let mut at = 0;
    for piece in pieces(parts, 0..out.len()) {
        out[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
}

#[cfg(test)]
mod tests;
