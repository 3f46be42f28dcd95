//! A segment in an IPv4 packet (RFC 791) in an Ethernet II frame.
//!
//! Deliberately absent: VLAN tags, IPv6, IP options and fragments.

use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

use crate::{HeadRepr, checksum};

/// Bytes of an Ethernet II header.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Where the TCP header begins.
pub const TCP_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
/// Bytes of Ethernet, IPv4 and the longest TCP header.
pub const HEADERS_BYTES_MAX: usize = TCP_AT + 60;

/// A MAC address.
pub type Mac = [u8; 6];

/// The two ends of a connection. Addresses and ports are in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// IPv4 address of the client.
    pub client: u32,
    /// IPv4 address of the server.
    pub server: u32,
    /// TCP port of the client.
    pub client_port: u16,
    /// TCP port of the service.
    pub server_port: u16,
}

/// From where a frame goes where. IPv4 addresses are in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Source MAC.
    pub source_mac: Mac,
    /// Destination MAC.
    pub destination_mac: Mac,
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
}

/// Writes the headers of a segment with `payload_len` bytes, and returns their length. The checksum field of TCP has the sum of the pseudo-header, for whoever adds the
/// segment's own.
pub fn write_headers(
    addresses: &Addresses,
    tcp: &HeadRepr,
    payload_len: u32,
    ip_id: u16,
    bytes: &mut [u8; HEADERS_BYTES_MAX],
) -> usize {
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.set_src_addr(EthernetAddress(addresses.source_mac));
    ethernet.set_dst_addr(EthernetAddress(addresses.destination_mac));
    ethernet.set_ethertype(EthernetProtocol::Ipv4);
    let segment_len = tcp.len() as u32 + payload_len;
    let mut ip = Ipv4Packet::new_unchecked(&mut bytes[ETHERNET_BYTES..]);
    ip.set_version(4);
    ip.set_header_len(IPV4_BYTES as u8);
    ip.set_total_len((IPV4_BYTES as u32 + segment_len) as u16);
    ip.set_ident(ip_id);
    ip.set_dont_frag(true);
    ip.set_hop_limit(64);
    ip.set_next_header(IpProtocol::Tcp);
    ip.set_src_addr(addresses.source.into());
    ip.set_dst_addr(addresses.destination.into());
    ip.fill_checksum();
    tcp.emit(&mut bytes[TCP_AT..]);
    let (source, destination) = (addresses.source.to_be_bytes(), addresses.destination.to_be_bytes());
    let pseudo = checksum::pseudo_header_v4(source, destination, segment_len);
    let field = TCP_AT + crate::wire::CHECKSUM_OFFSET;
    bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    TCP_AT + tcp.len()
}

/// The IPv4 packet of an Ethernet II frame of that type, and where it ends in the frame (Ethernet padding is behind it). `None`: it is a fragment, has options, or is none.
pub fn plain_ipv4(frame: &[u8]) -> Option<(Ipv4Packet<&[u8]>, usize)> {
    let ip = Ipv4Packet::new_checked(frame.get(ETHERNET_BYTES..)?).ok()?;
    let is_plain = ip.version() == 4
        && usize::from(ip.header_len()) == IPV4_BYTES
        && !ip.more_frags()
        && ip.frag_offset() == 0
        && usize::from(ip.total_len()) >= IPV4_BYTES;
    let end = ETHERNET_BYTES + usize::from(ip.total_len());
    (is_plain && end <= frame.len()).then_some((ip, end))
}

/// Whether the checksum of a segment is right.
pub fn is_right(source: u32, destination: u32, segment: &[u8]) -> bool {
    let pseudo = checksum::pseudo_header_v4(source.to_be_bytes(), destination.to_be_bytes(), segment.len() as u32);
    checksum::add(pseudo, checksum::sum(segment)) == 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flags, SegmentHead, Seq};

    const ADDRESSES: Addresses =
        Addresses { source_mac: [1; 6], destination_mac: [2; 6], source: 0x0a00_0001, destination: 0x0a00_0002 };

    fn frame(payload: &[u8]) -> Vec<u8> {
        let tcp = HeadRepr { src_port: 80, dst_port: 999, seq: Seq(7), flags: Flags::ACK, ..HeadRepr::default() };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&ADDRESSES, &tcp, payload.len() as u32, 3, &mut bytes);
        let mut frame = [&bytes[..len], payload].concat();
        let sum = checksum::sum(&frame[TCP_AT..]);
        let field = TCP_AT + crate::wire::CHECKSUM_OFFSET;
        frame[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    #[test]
    fn what_is_written_is_read() {
        let frame = [frame(b"hello"), vec![0; 4]].concat();
        let (ip, end) = plain_ipv4(&frame).unwrap();
        assert!(ip.verify_checksum() && ip.ident() == 3 && end == frame.len() - 4);
        assert!(is_right(ADDRESSES.source, ADDRESSES.destination, &frame[TCP_AT..end]));
        assert!(!is_right(ADDRESSES.source, ADDRESSES.destination + 1, &frame[TCP_AT..end]));
        let head: SegmentHead = crate::parse(&frame[TCP_AT..end]).unwrap();
        assert_eq!((head.seq, &frame[TCP_AT + head.header_len..end]), (Seq(7), &b"hello"[..]));
        assert_eq!((&frame[..6], &frame[6..12], &frame[12..14]), (&[2; 6][..], &[1; 6][..], &[8, 0][..]));
    }

    #[test]
    fn fragments_options_and_pieces_are_none() {
        let whole = frame(b"hello");
        for (at, value) in [(14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (16, 0xff), (17, 10)] {
            let mut odd = whole.clone();
            odd[at] = value;
            assert!(plain_ipv4(&odd).is_none(), "byte {at} = {value}");
        }
        for len in 0..whole.len() {
            assert!(plain_ipv4(&whole[..len]).is_none(), "{len} bytes");
        }
    }
}
