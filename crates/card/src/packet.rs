//! What a frame is to the card: a segment of a service's TCP connection over IPv4, or something to pass on untouched.
//!
//! Deliberately absent: VLAN tags, IPv6, IP options and fragments. Such frames are `Other` and pass.

use nicache_port::{Checksum, Offload};
use nicache_tcp::SegmentHead;
pub use nicache_tcp::frame::{FlowKey, Mac, TCP_AT};
use nicache_tcp::frame::{is_right, plain_ipv4};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol};

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
    let Some((ip, end)) = plain_ipv4(frame) else {
        return Classified::Other;
    };
    if ip.next_header() != IpProtocol::Tcp || end < TCP_AT + 20 {
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
    if offload.checksum == Checksum::Unverified && !(ip.verify_checksum() && is_right(source, destination, tcp)) {
        return Classified::Corrupt;
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
