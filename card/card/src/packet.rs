//! What a frame is to the card: a segment of a service's TCP connection, or something to pass on
//! untouched.
//!
//! IP options, extension headers and fragments are `Other` here; `reassembly.rs` makes plain
//! packets of what is a segment.

use nicache_port::{Checksum, Offload};
use nicache_tcp::SegmentHead;
use nicache_tcp::frame::Packet;
pub(crate) use nicache_tcp::frame::{FlowKey, Mac, Tags};
use smoltcp::wire::{EthernetFrame, IpProtocol};

use crate::too_big::TooBig;

/// From which side a frame came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// The wire port: a client sent it.
    Wire,
    /// The host port: the server's stack sent it.
    Host,
}

/// A TCP segment in a plain packet.
#[derive(Debug)]
pub(crate) struct TcpFrame {
    /// The connection.
    pub key: FlowKey,
    /// Source MAC.
    pub source: Mac,
    /// Destination MAC.
    pub destination: Mac,
    /// VLAN tags.
    pub tags: Tags,
    /// The TCP header.
    pub head: SegmentHead,
    /// Where it starts in the frame.
    pub head_at: usize,
    /// Where the payload starts in the frame.
    pub payload_at: usize,
    /// Where the IP packet ends in the frame (Ethernet padding is behind it).
    pub end: usize,
}

impl TcpFrame {
    /// Payload bytes.
    pub(crate) fn payload_len(&self) -> u32 {
        (self.end - self.payload_at) as u32
    }
}

/// What the card does with a frame.
#[derive(Debug)]
pub(crate) enum Classified {
    /// A segment of a service's connection.
    Tcp(TcpFrame),
    /// A router says that a segment to a client was too long.
    TooBig(TooBig),
    /// Not for the card.
    Other,
    /// The frame's checksum is wrong: whoever it was meant for would drop it.
    Corrupt,
}

/// Looks at one frame. `is_service` says whether a TCP port is one that the card serves.
pub(crate) fn classify(
    frame: &[u8],
    offload: &Offload,
    side: Side,
    is_service: impl Fn(u16) -> bool,
) -> Classified {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else {
        return Classified::Other;
    };
    let Some(packet) = Packet::parse(frame) else {
        return Classified::Other;
    };
    let tcp = &frame[packet.transport_at..packet.end];
    if packet.protocol != IpProtocol::Tcp || tcp.len() < 20 {
        return match TooBig::parse(frame, &packet, offload).filter(|_| side == Side::Wire) {
            Some(Ok(told)) if is_service(told.key.server_port) => Classified::TooBig(told),
            Some(Err(())) => Classified::Corrupt,
            Some(Ok(_)) | None => Classified::Other,
        };
    }
    let source_port = u16::from_be_bytes([tcp[0], tcp[1]]);
    let destination_port = u16::from_be_bytes([tcp[2], tcp[3]]);
    let (source, destination) = (packet.source, packet.destination);
    let vlans = packet.tags.vlans();
    let key = match side {
        Side::Wire => {
            let (client_port, server_port) = (source_port, destination_port);
            FlowKey { client: source, server: destination, client_port, server_port, vlans }
        }
        Side::Host => {
            let (client_port, server_port) = (destination_port, source_port);
            FlowKey { client: destination, server: source, client_port, server_port, vlans }
        }
    };
    if !is_service(key.server_port) {
        return Classified::Other;
    }
    let Ok(mut head) = nicache_tcp::parse(tcp) else {
        return Classified::Other;
    };
    head.ecn = packet.ecn(frame);
    if offload.checksum == Checksum::Unverified
        && !(packet.is_header_right(frame) && packet.is_segment_right(frame))
    {
        return Classified::Corrupt;
    }
    Classified::Tcp(TcpFrame {
        key,
        source: ethernet.src_addr().0,
        destination: ethernet.dst_addr().0,
        tags: packet.tags,
        head,
        head_at: packet.transport_at,
        payload_at: packet.transport_at + head.header_len,
        end: packet.end,
    })
}
