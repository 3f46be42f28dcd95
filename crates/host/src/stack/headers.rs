//! Headers of what the host sends. The card completes the TCP checksum, and cuts super-frames.

use nicache_tcp::{HeadRepr, checksum};
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

use super::connection::Ends;

/// Bytes of an Ethernet II header.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Where the TCP header begins.
pub const TCP_AT: usize = ETHERNET_BYTES + IPV4_BYTES;
/// Ethernet, IPv4 and the longest TCP header.
pub const HEADERS_BYTES_MAX: usize = TCP_AT + 60;

/// Writes the headers of a packet with `payload_len` bytes, and returns their length. The checksum field has the sum of the pseudo-header.
pub fn write_headers(
    ends: &Ends,
    tcp: &HeadRepr,
    payload_len: u32,
    ip_id: u16,
    bytes: &mut [u8; HEADERS_BYTES_MAX],
) -> usize {
    let mut ethernet = EthernetFrame::new_unchecked(&mut bytes[..]);
    ethernet.set_src_addr(EthernetAddress(ends.server_mac));
    ethernet.set_dst_addr(EthernetAddress(ends.client_mac));
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
    ip.set_src_addr(ends.key.server.into());
    ip.set_dst_addr(ends.key.client.into());
    ip.fill_checksum();
    tcp.emit(&mut bytes[TCP_AT..]);
    let (server, client) = (ends.key.server.to_be_bytes(), ends.key.client.to_be_bytes());
    let pseudo = checksum::pseudo_header_v4(server, client, segment_len);
    let field = TCP_AT + nicache_tcp::wire::CHECKSUM_OFFSET;
    bytes[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    TCP_AT + tcp.len()
}
