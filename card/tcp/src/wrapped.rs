//! TCP in packets that are not plain: with options of IPv4 (RFC 791 section 3.1), extension headers
//! of IPv6 (RFC 8200 section 4), or in fragments.
//!
//! Routers and stacks may add either without the ends having asked for it. What a receiver only
//! skips can be taken away, and what is left is a plain packet ([`frame`](crate::frame)). What a
//! receiver may judge by (source routes, security labels, options that it must know, other headers)
//! is not looked at here: then there is no [`Wrapped`], and the packet is for the receiver alone.

use std::net::{Ipv4Addr, Ipv6Addr};

use smoltcp::wire::EthernetProtocol;

use crate::frame::{Address, ETHERNET_BYTES, IPV4_BYTES, IPV6_BYTES, Tags, ecn_at};
use crate::{Codepoint, checksum};

const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;

/// Options of IPv4 that a receiver skips: record route, timestamp, router alert (RFC 791, RFC
/// 2113).
const IPV4_SKIPPED: [u8; 3] = [7, 68, 148];
const IPV4_OPTION_END: u8 = 0;
const IPV4_OPTION_NOTHING: u8 = 1;

const IPV4_MORE: u16 = 0x2000;
const IPV4_OFFSET: u16 = 0x1fff;
const IPV4_DONT: u16 = 0x4000;

/// Bits of an IPv6 option's type that say what becomes of a packet whose receiver does not know it;
/// 0: it is skipped (RFC 8200 section 4.2).
const IPV6_UNKNOWN: u8 = 0xc0;
/// Options of one header at most; the kernel accepts at most 8.
const IPV6_OPTIONS_MAX: usize = 16;

/// The least of a TCP header.
const TCP_BYTES_MIN: usize = 20;

/// A packet, or a fragment of one, that carries TCP and is not plain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// VLAN tags.
    pub tags: Tags,
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
    /// Where the IP header begins in the frame.
    pub ip_at: usize,
    /// Where the TCP header begins, or the bytes of the fragment.
    pub payload_at: usize,
    /// Where the packet ends (Ethernet padding is behind it).
    pub end: usize,
    /// Which part of a datagram it is, if it is not all of it.
    pub piece: Option<Piece>,
}

/// A fragment's place in its datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The datagram's number, among those with the same addresses.
    pub id: u32,
    /// The place of the fragment's first byte in the TCP segment.
    pub offset: usize,
    /// Others follow.
    pub more: bool,
}

impl Wrapped {
    /// `None`: it is plain, carries something else, or a receiver has to judge it.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (tags, kind) = Tags::parse(frame)?;
        let ip_at = ETHERNET_BYTES + tags.len();
        let wrapped = match kind {
            EthernetProtocol::Ipv4 => Self::ipv4(frame, tags, ip_at),
            EthernetProtocol::Ipv6 => Self::ipv6(frame, tags, ip_at),
            _ => None,
        }?;
        // The first part tells the ports and all numbers; a part that others follow ends where one
        // may begin.
        let (bytes, piece) = (wrapped.payload().len(), wrapped.piece);
        let has_head = piece.is_some_and(|piece| piece.offset > 0) || bytes >= TCP_BYTES_MIN;
        let is_fit =
            piece.is_none_or(|piece| bytes > 0 && (!piece.more || bytes.is_multiple_of(8)));
        (has_head && is_fit).then_some(wrapped)
    }

    fn ipv4(frame: &[u8], tags: Tags, ip_at: usize) -> Option<Self> {
        let ip = frame.get(ip_at..)?;
        let (fixed, _) = ip.split_first_chunk::<IPV4_BYTES>()?;
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let fragment = u16::from_be_bytes([fixed[6], fixed[7]]);
        let header = ip.get(..header_len)?;
        let has_options = header_len > IPV4_BYTES;
        let is_piece = fragment & (IPV4_MORE | IPV4_OFFSET) != 0;
        if !has_options && !is_piece {
            return None;
        }
        let is_right = fixed[0] >> 4 == 4
            && (header_len..=ip.len()).contains(&total)
            && fixed[9] == PROTOCOL_TCP
            && checksum::sum(header) == 0xffff;
        if !is_right || !are_skipped_ipv4(header.get(IPV4_BYTES..)?) {
            return None;
        }
        let address = |at: usize| {
            <[u8; 4]>::try_from(fixed.get(at..at + 4)?)
                .ok()
                .map(|bytes| Ipv4Addr::from(bytes).into())
        };
        let id = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let piece = Piece {
            id,
            offset: usize::from(fragment & IPV4_OFFSET) * 8,
            more: fragment & IPV4_MORE != 0,
        };
        Some(Self {
            tags,
            source: address(12)?,
            destination: address(16)?,
            ip_at,
            payload_at: ip_at + header_len,
            end: ip_at + total,
            piece: is_piece.then_some(piece),
        })
    }

    fn ipv6(frame: &[u8], tags: Tags, ip_at: usize) -> Option<Self> {
        let ip = frame.get(ip_at..)?;
        let (fixed, _) = ip.split_first_chunk::<IPV6_BYTES>()?;
        let end = IPV6_BYTES + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let ip = ip.get(..end)?;
        let address =
            |at: usize| <[u8; 16]>::try_from(fixed.get(at..at + 16)?).ok().map(Ipv6Addr::from);
        let (source, destination) = (Address::from(address(8)?), Address::from(address(24)?));
        if fixed[0] >> 4 != 6 || source.is_v4() || destination.is_v4() || fixed[6] == PROTOCOL_TCP {
            return None;
        }
        let (mut next, mut at, mut piece) = (fixed[6], IPV6_BYTES, None);
        while next != PROTOCOL_TCP {
            let header = ip.get(at..)?;
            let follows = *header.first()?;
            match next {
                PROTOCOL_FRAGMENT if piece.is_none() => {
                    let (header, _) = header.split_first_chunk::<8>()?;
                    let place = u16::from_be_bytes([header[2], header[3]]);
                    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                    let (offset, more) = (usize::from(place & 0xfff8), place & 1 != 0);
                    piece = Some(Piece { id, offset, more });
                    // Headers in the fragments are another thing to judge.
                    if follows != PROTOCOL_TCP {
                        return None;
                    }
                    at += 8;
                }
                PROTOCOL_HOP_BY_HOP if at == IPV6_BYTES => at += skipped_ipv6(header)?,
                PROTOCOL_DESTINATION_OPTIONS => at += skipped_ipv6(header)?,
                _ => return None,
            }
            next = follows;
        }
        // One that is all of its datagram is not a part (RFC 6946).
        let piece = piece.filter(|piece| piece.offset > 0 || piece.more);
        (at <= end).then_some(Self {
            tags,
            source,
            destination,
            ip_at,
            payload_at: ip_at + at,
            end: ip_at + end,
            piece,
        })
    }

    fn payload(&self) -> std::ops::Range<usize> {
        self.payload_at..self.end
    }

    /// Bytes of the frame before the TCP header, once it is plain.
    #[must_use]
    pub fn plain_head_len(&self) -> usize {
        self.ip_at + if self.source.is_v4() { IPV4_BYTES } else { IPV6_BYTES }
    }

    /// Writes what is before the TCP header of the plain packet that has `segment_len` bytes of
    /// TCP, and returns its length. `frame` is this packet's, or that of the datagram's first part;
    /// `ecn` says what the parts have met (RFC 3168 section 5.3). `None`: that is too much for one
    /// packet.
    #[must_use]
    pub fn write_plain_head(
        &self,
        frame: &[u8],
        segment_len: usize,
        ecn: Codepoint,
        bytes: &mut [u8],
    ) -> Option<usize> {
        let len = self.plain_head_len();
        let head = bytes.get_mut(..len)?;
        head.copy_from_slice(frame.get(..len)?);
        let ip = &mut head[self.ip_at..];
        if self.source.is_v4() {
            let total = u16::try_from(IPV4_BYTES + segment_len).ok()?;
            ip[0] = 0x45;
            ip[1] = ip[1] & !3 | ecn.bits();
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            let dont = u16::from_be_bytes([ip[6], ip[7]]) & IPV4_DONT;
            ip[6..8].copy_from_slice(&dont.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !checksum::sum(ip);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            ip[1] = ip[1] & !0x30 | ecn.bits() << 4;
            ip[4..6].copy_from_slice(&u16::try_from(segment_len).ok()?.to_be_bytes());
            ip[6] = PROTOCOL_TCP;
        }
        Some(len)
    }

    /// The ECN field (RFC 3168 section 5).
    #[must_use]
    pub fn ecn(&self, frame: &[u8]) -> Codepoint {
        ecn_at(frame, self.ip_at, self.source.is_v4())
    }
}

/// Are these options that every receiver skips?
fn are_skipped_ipv4(mut options: &[u8]) -> bool {
    loop {
        match *options {
            [] | [IPV4_OPTION_END, ..] => return true,
            [IPV4_OPTION_NOTHING, ref rest @ ..] => options = rest,
            [kind, len, ..]
                if IPV4_SKIPPED.contains(&kind)
                    && len >= 2
                    && usize::from(len) <= options.len() =>
            {
                options = &options[usize::from(len)..];
            }
            _ => return false,
        }
    }
}

/// Bytes of an IPv6 header of options at the start of these bytes, if every receiver skips them
/// all.
fn skipped_ipv6(header: &[u8]) -> Option<usize> {
    let len = (usize::from(*header.get(1)?) + 1) * 8;
    let mut options = header.get(2..len)?;
    for _ in 0..IPV6_OPTIONS_MAX {
        match *options {
            [] => return Some(len),
            // Padding of one byte; of several.
            [0, ref rest @ ..] => options = rest,
            [kind, bytes, ref rest @ ..] if kind & IPV6_UNKNOWN == 0 => {
                options = rest.get(usize::from(bytes)..)?;
            }
            _ => return None,
        }
    }
    options.is_empty().then_some(len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Addresses, HEADERS_BYTES_MAX, Packet, write_headers};
    use crate::{Flags, HeadRepr, Seq};

    fn plain(is_v4: bool, tagged: bool, payload: &[u8]) -> Vec<u8> {
        let v6 = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
        let v4 = |last| Ipv4Addr::new(10, 0, 0, last).into();
        let (source, destination) = if is_v4 { (v4(1), v4(2)) } else { (v6(1), v6(2)) };
        let tags =
            if tagged { Tags::from_bytes(&[0x81, 0, 0, 7]).unwrap() } else { Tags::default() };
        let addresses =
            Addresses { source_mac: [1; 6], destination_mac: [2; 6], tags, source, destination };
        let tcp = HeadRepr { flags: Flags::ACK, seq: Seq(7), ..HeadRepr::default() };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, &tcp, payload.len() as u32, 3, &mut bytes);
        [&bytes[..len], payload].concat()
    }

    /// The frame with something between its IP header and TCP, which `next` calls.
    fn with(frame: &[u8], next: u8, between: &[u8]) -> Vec<u8> {
        let packet = Packet::parse(frame).unwrap();
        let (ip_at, at) = (packet.ip_at, packet.transport_at);
        let mut bytes = [&frame[..at], between, &frame[at..]].concat();
        let ip = &mut bytes[ip_at..];
        if packet.source.is_v4() {
            ip[0] += (between.len() / 4) as u8;
            let total = u16::from_be_bytes([ip[2], ip[3]]) + between.len() as u16;
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[10..12].fill(0);
            let sum = !checksum::sum(&ip[..IPV4_BYTES + between.len()]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            let len = u16::from_be_bytes([ip[4], ip[5]]) + between.len() as u16;
            ip[4..6].copy_from_slice(&len.to_be_bytes());
            ip[6] = next;
        }
        bytes
    }

    fn unwrapped(frame: &[u8]) -> Option<Vec<u8>> {
        let wrapped = Wrapped::parse(frame)?;
        let mut head = [0; 128];
        let segment = &frame[wrapped.payload_at..wrapped.end];
        let len = wrapped.write_plain_head(frame, segment.len(), wrapped.ecn(frame), &mut head)?;
        Some([&head[..len], segment].concat())
    }

    /// A record of the route, a timestamp and padding; an end before the header's.
    const SKIPPED_IPV4: [&[u8]; 4] =
        [&[7, 7, 4, 0, 0, 0, 0, 1], &[68, 8, 5, 0, 0, 0, 0, 0], &[1, 1, 1, 0], &[0, 131, 255, 9]];
    /// A loose and a strict source route, a security label, an unknown one, lengths that cannot be.
    const JUDGED_IPV4: [&[u8]; 6] = [
        &[131, 7, 4, 10, 0, 0, 9, 0],
        &[137, 7, 4, 10, 0, 0, 9, 0],
        &[134, 6, 0, 0, 0, 1, 0, 0],
        &[30, 4, 0, 0],
        &[7, 1, 4, 0],
        &[7, 9, 4, 0],
    ];
    /// Hop by hop: padding, and a router alert; destination options after them.
    const SKIPPED_IPV6: [(u8, &[u8]); 4] = [
        (60, &[6, 0, 1, 4, 0, 0, 0, 0]),
        (0, &[6, 0, 5, 2, 0, 0, 1, 0]),
        (0, &[60, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0]),
        // All of its datagram.
        (44, &[6, 0, 0, 0, 1, 2, 3, 4]),
    ];
    /// An option that must be known, a home address, a route, hop by hop not as the first, a header
    /// in a fragment, too many options.
    const JUDGED_IPV6: [(u8, &[u8]); 6] = [
        (60, &[6, 0, 0x41, 4, 0, 0, 0, 0]),
        (60, &[6, 0, 0xc9, 4, 0, 0, 0, 0]),
        (43, &[6, 0, 4, 0, 0, 0, 0, 0]),
        (60, &[0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]),
        (44, &[60, 0, 0, 0, 1, 2, 3, 4, 6, 0, 1, 4, 0, 0, 0, 0]),
        (60, &[6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ];

    #[test]
    fn what_every_receiver_skips_is_taken_away() {
        for tagged in [false, true] {
            let frame = plain(true, tagged, b"hello");
            SKIPPED_IPV4.iter().for_each(|between| {
                assert_eq!(unwrapped(&with(&frame, 0, between)).unwrap(), frame);
            });
            let frame = plain(false, tagged, b"hello");
            for (next, between) in SKIPPED_IPV6 {
                assert_eq!(
                    unwrapped(&with(&frame, next, between)).unwrap(),
                    frame,
                    "{next} {between:?}"
                );
            }
        }
    }

    #[test]
    fn what_a_receiver_may_judge_by_is_left_alone() {
        let frame = plain(true, false, b"hello");
        JUDGED_IPV4.iter().for_each(|between| {
            assert_eq!(unwrapped(&with(&frame, 0, between)), None, "{between:?}");
        });
        assert_eq!(unwrapped(&frame), None, "it is plain");
        let mut wrong = with(&frame, 0, SKIPPED_IPV4[0]);
        wrong[14 + 8] ^= 1;
        assert_eq!(unwrapped(&wrong), None, "the header's checksum is wrong");
        let frame = plain(false, false, b"hello");
        assert_eq!(unwrapped(&frame), None, "it is plain");
        for (next, between) in JUDGED_IPV6 {
            assert_eq!(unwrapped(&with(&frame, next, between)), None, "{next} {between:?}");
        }
    }

    #[test]
    fn a_fragment_says_its_place() {
        let frame = plain(false, false, &[b'x'; 28]);
        let first = with(&frame, 44, &[6, 0, 0, 1, 0, 0, 0, 9]);
        let piece = Wrapped::parse(&first).unwrap().piece;
        assert_eq!(piece, Some(Piece { id: 9, offset: 0, more: true }));
        let last = with(&frame, 44, &[6, 0, 0, 48, 0, 0, 0, 9]);
        assert_eq!(
            Wrapped::parse(&last).unwrap().piece,
            Some(Piece { id: 9, offset: 48, more: false })
        );
        // Before others only whole words, and the first has the TCP header.
        let odd = with(&plain(false, false, b"x"), 44, &[6, 0, 0, 1, 0, 0, 0, 9]);
        assert_eq!(Wrapped::parse(&odd), None);
    }

    proptest! {
        /// Whatever comes is none, or lies within the frame.
        #[test]
        fn any_bytes_can_be_looked_at(
            is_v4 in any::<bool>(),
            between in prop::collection::vec(any::<u8>(), 0..40),
            next in any::<u8>(),
            changes in prop::collection::vec((0usize..120, any::<u8>()), 0..6),
            cut in 0usize..160,
        ) {
            let between = &between[..between.len() / 4 * 4];
            let mut frame = with(&plain(is_v4, false, &[b'x'; 30]), next, between);
            for (at, value) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = value;
                }
            }
            frame.truncate(cut);
            if let Some(wrapped) = Wrapped::parse(&frame) {
                prop_assert!(
                    wrapped.ip_at < wrapped.payload_at && wrapped.payload_at <= wrapped.end
                );
                prop_assert!(wrapped.end <= frame.len());
                let _ = unwrapped(&frame);
            }
        }
    }
}
