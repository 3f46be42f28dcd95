//! A segment in an IPv4 (RFC 791) or IPv6 packet (RFC 8200) in an Ethernet II frame with at most
//! two VLAN tags (IEEE 802.1Q).
//!
//! Deliberately absent: IP options, extension headers and fragments.

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, Ipv6Packet,
};

pub use crate::address::{Address, FlowKey};
pub use crate::headers::{
    Addresses, ETHERNET_BYTES, HEADERS_BYTES_MAX, IPV4_BYTES, IPV6_BYTES, Mac, TAG_BYTES, TAGS_MAX,
    Tags,
};
use crate::{Codepoint, HeadRepr, checksum, plain};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Where the address of a packet's sender begins in its header; that of the receiver follows.
const IPV4_ADDRESSES_AT: usize = 12;
const IPV6_ADDRESSES_AT: usize = 8;

/// Writes the headers of a segment with `payload_len` bytes, and returns their length. The checksum
/// field of TCP has the sum of the pseudo-header, for whoever adds the segment's own.
#[inline]
pub fn write_headers(
    addresses: &Addresses,
    tcp: &HeadRepr,
    payload_len: u32,
    ip_id: u16,
    bytes: &mut [u8; HEADERS_BYTES_MAX],
) -> usize {
    match plain::write_headers(addresses, tcp, payload_len, ip_id, bytes) {
        Some(len) => len,
        None => write_any_headers(addresses, tcp, payload_len, ip_id, bytes),
    }
}

/// Writes Ethernet, IP and TCP headers of any kind, with tags and options, to the front of `bytes`.
pub(crate) fn write_any_headers(
    addresses: &Addresses,
    tcp: &HeadRepr,
    payload_len: u32,
    ip_id: u16,
    bytes: &mut [u8; HEADERS_BYTES_MAX],
) -> usize {
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.set_src_addr(EthernetAddress(addresses.source_mac));
    ethernet.set_dst_addr(EthernetAddress(addresses.destination_mac));
    let (tags, ip_at) = (addresses.tags, ETHERNET_BYTES + addresses.tags.len());
    bytes[ETHERNET_BYTES - 2..ip_at - 2].copy_from_slice(tags.bytes());
    let segment_len = tcp.len() as u32 + payload_len;
    let (tcp_at, pseudo) = match (addresses.source.v4_octets(), addresses.destination.v4_octets()) {
        (Some(source), Some(destination)) => {
            bytes[ip_at - 2..ip_at].copy_from_slice(&IPV4);
            write_ipv4(&mut bytes[ip_at..], source, destination, segment_len, ip_id, tcp.ecn);
            (ip_at + IPV4_BYTES, checksum::pseudo_header_v4(source, destination, segment_len))
        }
        _ => {
            let (source, destination) = (addresses.source.octets(), addresses.destination.octets());
            bytes[ip_at - 2..ip_at].copy_from_slice(&IPV6);
            write_ipv6(&mut bytes[ip_at..], source, destination, segment_len, tcp.ecn);
            (ip_at + IPV6_BYTES, checksum::pseudo_header_v6(source, destination, segment_len))
        }
    };
    tcp.emit(&mut bytes[tcp_at..]);
    let field = tcp_at + crate::wire::CHECKSUM_OFFSET;
    bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    tcp_at + tcp.len()
}

fn write_ipv4(
    bytes: &mut [u8],
    source: [u8; 4],
    destination: [u8; 4],
    segment_len: u32,
    ip_id: u16,
    ecn: Codepoint,
) {
    let mut ip = Ipv4Packet::new_unchecked(bytes);
    ip.set_version(4);
    ip.set_header_len(IPV4_BYTES as u8);
    ip.set_ecn(ecn.bits());
    ip.set_total_len((IPV4_BYTES as u32 + segment_len) as u16);
    ip.set_ident(ip_id);
    ip.set_dont_frag(true);
    ip.set_hop_limit(64);
    ip.set_next_header(IpProtocol::Tcp);
    ip.set_src_addr(source.into());
    ip.set_dst_addr(destination.into());
    ip.fill_checksum();
}

fn write_ipv6(
    bytes: &mut [u8],
    source: [u8; 16],
    destination: [u8; 16],
    segment_len: u32,
    ecn: Codepoint,
) {
    let mut ip = Ipv6Packet::new_unchecked(bytes);
    ip.set_version(6);
    ip.set_traffic_class(ecn.bits());
    ip.set_payload_len(segment_len as u16);
    ip.set_next_header(IpProtocol::Tcp);
    ip.set_hop_limit(64);
    ip.set_src_addr(source.into());
    ip.set_dst_addr(destination.into());
}

/// What is around a transport header: an IP packet without options, extension headers and
/// fragmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// VLAN tags.
    pub tags: Tags,
    /// Source address.
    pub source: Address,
    /// Destination address.
    pub destination: Address,
    /// What the transport header is.
    pub protocol: IpProtocol,
    /// Where the IP header begins in the frame.
    pub ip_at: usize,
    /// Where the transport header begins.
    pub transport_at: usize,
    /// Where the packet ends (Ethernet padding is behind it).
    pub end: usize,
}

/// The ECN field of the packet whose header begins there (RFC 3168 section 5).
pub(crate) fn ecn_at(frame: &[u8], ip_at: usize, is_v4: bool) -> Codepoint {
    match (is_v4, frame.get(ip_at..ip_at + 2)) {
        (true, Some(start)) => Codepoint::from_bits(start[1]),
        // The traffic class lies across the first two bytes (RFC 8200 section 3).
        (false, Some(start)) => Codepoint::from_bits(start[1] >> 4),
        (_, None) => Codepoint::NotCapable,
    }
}

impl Packet {
    /// The packet of a frame. `None`: it is a fragment, has options or extension headers, or is
    /// none.
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let (tags, kind) = Tags::parse(frame)?;
        let ip_at = ETHERNET_BYTES + tags.len();
        match kind {
            EthernetProtocol::Ipv4 => Self::ipv4(frame, tags, ip_at),
            EthernetProtocol::Ipv6 => Self::ipv6(frame, tags, ip_at),
            _ => None,
        }
    }

    fn ipv4(frame: &[u8], tags: Tags, ip_at: usize) -> Option<Self> {
        let ip = Ipv4Packet::new_checked(frame.get(ip_at..)?).ok()?;
        let is_plain = ip.version() == 4
            && usize::from(ip.header_len()) == IPV4_BYTES
            && !ip.more_frags()
            && ip.frag_offset() == 0
            && usize::from(ip.total_len()) >= IPV4_BYTES;
        is_plain.then(|| Self {
            tags,
            source: ip.src_addr().into(),
            destination: ip.dst_addr().into(),
            protocol: ip.next_header(),
            ip_at,
            transport_at: ip_at + IPV4_BYTES,
            end: ip_at + usize::from(ip.total_len()),
        })
    }

    fn ipv6(frame: &[u8], tags: Tags, ip_at: usize) -> Option<Self> {
        let ip = Ipv6Packet::new_checked(frame.get(ip_at..)?).ok()?;
        let (source, destination) = (Address::from(ip.src_addr()), Address::from(ip.dst_addr()));
        // A mapped address on the wire would be taken for one of IPv4.
        let is_plain = ip.version() == 6 && !source.is_v4() && !destination.is_v4();
        is_plain.then(|| Self {
            tags,
            source,
            destination,
            protocol: ip.next_header(),
            ip_at,
            transport_at: ip_at + IPV6_BYTES,
            end: ip_at + IPV6_BYTES + usize::from(ip.payload_len()),
        })
    }

    /// The ECN field (RFC 3168 section 5).
    #[must_use]
    pub fn ecn(&self, frame: &[u8]) -> Codepoint {
        ecn_at(frame, self.ip_at, self.source.is_v4())
    }

    /// Whether the header's checksum is right; IPv6 has none.
    #[must_use]
    pub fn is_header_right(&self, frame: &[u8]) -> bool {
        !self.source.is_v4() || checksum::sum(&frame[self.ip_at..self.transport_at]) == 0xffff
    }

    /// Whether the checksum of the segment in the packet is right.
    #[must_use]
    pub fn is_segment_right(&self, frame: &[u8]) -> bool {
        self.sum_with_addresses(frame) == 0xffff
    }

    /// The ones'-complement sum that the checksum of an ICMP message is made of: with the addresses
    /// over IPv6 only (RFC 792, RFC 4443 section 2.3).
    #[must_use]
    pub fn message_sum(&self, frame: &[u8]) -> u16 {
        if self.source.is_v4() {
            return checksum::sum(&frame[self.transport_at..self.end]);
        }
        self.sum_with_addresses(frame)
    }

    /// Whether the checksum of the ICMP message in the packet is right.
    #[must_use]
    pub fn is_message_right(&self, frame: &[u8]) -> bool {
        self.message_sum(frame) == 0xffff
    }

    fn sum_with_addresses(&self, frame: &[u8]) -> u16 {
        checksum::add(
            self.pseudo_header_sum(frame),
            checksum::sum(&frame[self.transport_at..self.end]),
        )
    }

    /// The sum of the pseudo-header: what the checksum field has of a frame that somebody further
    /// on completes.
    #[must_use]
    pub fn pseudo_header_sum(&self, frame: &[u8]) -> u16 {
        // The addresses are in a row, as in the pseudo-header (RFC 9293 section 3.1, RFC 8200
        // section 8.1).
        let at =
            self.ip_at + if self.source.is_v4() { IPV4_ADDRESSES_AT } else { IPV6_ADDRESSES_AT };
        let addresses = checksum::sum(&frame[at..self.transport_at]);
        let len = checksum::sum(&((self.end - self.transport_at) as u32).to_be_bytes());
        checksum::add(checksum::add(addresses, len), u16::from(u8::from(self.protocol)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::{Flags, SegmentHead, Seq};

    fn v4() -> Addresses {
        Addresses {
            source_mac: [1; 6],
            destination_mac: [2; 6],
            tags: Tags::default(),
            source: Ipv4Addr::new(10, 0, 0, 1).into(),
            destination: Ipv4Addr::new(10, 0, 0, 2).into(),
        }
    }

    fn v6() -> Addresses {
        let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last).into();
        Addresses { source: address(1), destination: address(2), ..v4() }
    }

    /// With a tag of a provider and one of a customer.
    fn tagged(addresses: Addresses) -> Addresses {
        let mut frame = vec![0; 12];
        frame.extend([0x88, 0xa8, 0x20, 0x07, 0x81, 0x00, 0x01, 0x00, 0x08, 0x00]);
        Addresses { tags: Tags::parse(&frame).unwrap().0, ..addresses }
    }

    fn all() -> [Addresses; 4] {
        [v4(), v6(), tagged(v4()), tagged(v6())]
    }

    fn frame(addresses: &Addresses, payload: &[u8]) -> Vec<u8> {
        let tcp = HeadRepr {
            src_port: 80,
            dst_port: 999,
            seq: Seq(7),
            flags: Flags::ACK,
            ..HeadRepr::default()
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(addresses, &tcp, payload.len() as u32, 3, &mut bytes);
        let mut frame = [&bytes[..len], payload].concat();
        let sum = checksum::sum(&frame[addresses.tcp_at()..]);
        let field = addresses.tcp_at() + crate::wire::CHECKSUM_OFFSET;
        frame[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    #[test]
    fn what_is_written_is_read() {
        for addresses in all() {
            let frame = [frame(&addresses, b"hello"), vec![0; 4]].concat();
            let packet = Packet::parse(&frame).unwrap();
            assert_eq!(
                (packet.source, packet.destination),
                (addresses.source, addresses.destination)
            );
            assert_eq!((packet.transport_at, packet.end), (addresses.tcp_at(), frame.len() - 4));
            assert_eq!((packet.tags, packet.protocol), (addresses.tags, IpProtocol::Tcp));
            assert!(packet.is_header_right(&frame) && packet.is_segment_right(&frame));
            let head: SegmentHead = crate::parse(&frame[packet.transport_at..packet.end]).unwrap();
            let payload = &frame[packet.transport_at + head.header_len..packet.end];
            assert_eq!((head.seq, payload), (Seq(7), &b"hello"[..]));
            assert_eq!((&frame[..6], &frame[6..12]), (&[2; 6][..], &[1; 6][..]));
            for at in packet.ip_at..packet.end {
                let mut wrong = frame.clone();
                wrong[at] ^= 1;
                let Some(packet) = Packet::parse(&wrong) else { continue };
                let is_right = packet.is_header_right(&wrong) && packet.is_segment_right(&wrong);
                // Class, label and hop limit of IPv6 are in no sum.
                let is_summed =
                    addresses.source.is_v4() || at >= packet.ip_at + 4 && at != packet.ip_at + 7;
                assert_eq!(is_right, !is_summed, "byte {at} of {addresses:?}");
            }
        }
    }

    #[test]
    fn vlans_are_told_apart() {
        assert_eq!((v4().tags.vlans(), tagged(v4()).tags.vlans()), (0, 7 << 16 | 256));
        let priority_only = [&[0; 12][..], &[0x81, 0x00, 0xe0, 0x00, 0x08, 0x00]].concat();
        let (tags, kind) = Tags::parse(&priority_only).unwrap();
        assert_eq!((tags.vlans(), tags.len(), kind), (0, 4, EthernetProtocol::Ipv4));
    }

    #[test]
    fn three_tags_are_too_many() {
        let frame = [&[0; 12][..], &[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]].concat();
        assert!(Tags::parse(&frame).is_none());
    }

    #[test]
    fn fragments_options_and_pieces_are_none() {
        let whole = frame(&v4(), b"hello");
        for (at, value) in [(14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (16, 0xff), (17, 10)] {
            let mut odd = whole.clone();
            odd[at] = value;
            assert!(Packet::parse(&odd).is_none(), "byte {at} = {value}");
        }
        for addresses in all() {
            let whole = frame(&addresses, b"hello");
            for len in 0..whole.len() {
                assert!(Packet::parse(&whole[..len]).is_none(), "{len} bytes");
            }
        }
    }

    #[test]
    fn the_ecn_field_is_written_and_read() {
        for addresses in all() {
            for bits in 0..4 {
                let tcp = HeadRepr { ecn: Codepoint::from_bits(bits), ..HeadRepr::default() };
                let mut bytes = [0; HEADERS_BYTES_MAX];
                let len = write_headers(&addresses, &tcp, 0, 3, &mut bytes);
                let packet = Packet::parse(&bytes[..len]).unwrap();
                assert_eq!(packet.ecn(&bytes), tcp.ecn);
                assert!(packet.is_header_right(&bytes));
            }
        }
    }

    #[test]
    fn an_extension_header_is_another_protocol() {
        let mut frame = frame(&v6(), b"hello");
        frame[14 + 6] = 44;
        assert_eq!(Packet::parse(&frame).unwrap().protocol, IpProtocol::Ipv6Frag);
    }

    #[test]
    fn a_mapped_address_on_the_wire_is_no_address() {
        let mut frame = frame(&v6(), b"hello");
        frame[22..38].copy_from_slice(&Address::from(Ipv4Addr::new(10, 0, 0, 1)).octets());
        assert!(Packet::parse(&frame).is_none());
    }
}
