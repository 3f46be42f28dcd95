//! What a frame is to the card: a segment of a service's TCP connection over IPv4, or something to pass on untouched.
//!
//! Deliberately absent: VLAN tags, IPv6, IP options and fragments. Such frames are `Other` and pass.

use nicache_port::{Checksum, Offload};
use nicache_tcp::{SegmentHead, checksum};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet};

/// Bytes of an Ethernet II header.
pub const ETHERNET_BYTES: usize = 14;
/// Bytes of an IPv4 header without options.
pub const IPV4_BYTES: usize = 20;
/// Where the TCP header starts in a frame that the card handles.
pub const TCP_AT: usize = ETHERNET_BYTES + IPV4_BYTES;

/// A MAC address.
pub type Mac = [u8; 6];

/// The two ends of a connection, seen from the wire. Addresses and ports are in host byte order.
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

/// From which side a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The wire port: a client sent it.
    Wire,
    /// The host port: the server's stack sent it.
    Host,
}

/// A TCP segment over plain IPv4.
#[derive(Debug)]
pub struct TcpFrame {
    /// The connection.
    pub key: FlowKey,
    /// Source MAC.
    pub source: Mac,
    /// Destination MAC.
    pub destination: Mac,
    /// The TCP header.
    pub head: SegmentHead,
    /// Where the payload starts in the frame.
    pub payload_at: usize,
    /// Where the IP packet ends in the frame (Ethernet padding is behind it).
    pub end: usize,
}

impl TcpFrame {
    /// Payload bytes.
    pub fn payload_len(&self) -> u32 {
        (self.end - self.payload_at) as u32
    }
}

/// What the card does with a frame.
#[derive(Debug)]
pub enum Classified {
    /// A segment of a service's connection.
    Tcp(TcpFrame),
    /// Not for the card.
    Other,
    /// Its checksum is wrong: whoever it was meant for would drop it.
    Corrupt,
}

/// Looks at one frame. `is_service` says whether a TCP port is one that the card serves.
pub fn classify(frame: &[u8], offload: &Offload, side: Side, is_service: impl Fn(u16) -> bool) -> Classified {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else {
        return Classified::Other;
    };
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return Classified::Other;
    }
    let Ok(ip) = Ipv4Packet::new_checked(&frame[ETHERNET_BYTES..]) else {
        return Classified::Other;
    };
    if ip.version() != 4
        || ip.header_len() as usize != IPV4_BYTES
        || ip.next_header() != IpProtocol::Tcp
        || ip.more_frags()
        || ip.frag_offset() != 0
    {
        return Classified::Other;
    }
    let end = ETHERNET_BYTES + ip.total_len() as usize;
    if end < TCP_AT + 20 || end > frame.len() {
        return Classified::Other;
    }
    let tcp = &frame[TCP_AT..end];
    let source_port = u16::from_be_bytes([tcp[0], tcp[1]]);
    let destination_port = u16::from_be_bytes([tcp[2], tcp[3]]);
    let source = u32::from_be_bytes(ip.src_addr().octets());
    let destination = u32::from_be_bytes(ip.dst_addr().octets());
    let key = match side {
        Side::Wire => {
            FlowKey { client: source, server: destination, client_port: source_port, server_port: destination_port }
        }
        Side::Host => {
            FlowKey { client: destination, server: source, client_port: destination_port, server_port: source_port }
        }
    };
    if !is_service(key.server_port) {
        return Classified::Other;
    }
    let Ok(head) = nicache_tcp::parse(tcp) else {
        return Classified::Other;
    };
    if offload.checksum == Checksum::Unverified {
        if !ip.verify_checksum() {
            return Classified::Corrupt;
        }
        let pseudo = checksum::pseudo_header_v4(source.to_be_bytes(), destination.to_be_bytes(), tcp.len() as u32);
        if checksum::add(pseudo, checksum::sum(tcp)) != 0xffff {
            return Classified::Corrupt;
        }
    }
    let payload_at = TCP_AT + head.header_len;
    Classified::Tcp(TcpFrame {
        key,
        source: ethernet.src_addr().0,
        destination: ethernet.dst_addr().0,
        head,
        payload_at,
        end,
    })
}
