//! Frames between clients, card and host: how they are made, and whether one is well-formed.

use std::net::{Ipv4Addr, Ipv6Addr};

use nicache_port::{Checksum, Offload};
use nicache_tcp::frame::{
    Address, Addresses, HEADERS_BYTES_MAX, IPV4_BYTES, IPV6_BYTES, Packet, Tags, write_headers,
};
use nicache_tcp::wire::CHECKSUM_OFFSET;
use nicache_tcp::{HeadRepr, SegmentHead, checksum};
use smoltcp::wire::IpProtocol;

/// What all frames of a run have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// IPv6.
    pub is_v6: bool,
    /// VLAN tags.
    pub tags: Tags,
}

impl Line {
    /// Bytes of headers in front of a segment.
    pub(super) fn tcp_at(&self) -> usize {
        14 + self.tags.len() + if self.is_v6 { IPV6_BYTES } else { IPV4_BYTES }
    }

    /// Address of a client, or of the server as number 9.
    pub(super) fn address(&self, number: u8) -> Address {
        if self.is_v6 {
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)).into()
        } else {
            Ipv4Addr::new(10, 0, 0, number).into()
        }
    }

    /// A segment from one address to the other. The sum is complete, or (`is_partial`) that of the
    /// pseudo-header only.
    pub(super) fn segment(
        &self,
        from: u8,
        to: u8,
        head: &HeadRepr,
        payload: &[u8],
        is_partial: bool,
    ) -> Vec<u8> {
        let addresses = Addresses {
            source_mac: [2, 0, 0, 0, 0, from],
            destination_mac: [2, 0, 0, 0, 0, to],
            tags: self.tags,
            source: self.address(from),
            destination: self.address(to),
        };
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, head, payload.len() as u32, 1, &mut bytes);
        let mut frame = [&bytes[..len], payload].concat();
        if !is_partial {
            complete(&mut frame, addresses.tcp_at(), CHECKSUM_OFFSET);
        }
        frame
    }

    /// A router says that the segment which begins with `quoted` is longer than `mtu` bytes.
    pub(super) fn too_big(&self, from: u8, quoted: &[u8], mtu: u16) -> Vec<u8> {
        let quoted = &quoted[14 + self.tags.len()..];
        let quoted = &quoted[..quoted.len().min(if self.is_v6 { 600 } else { IPV4_BYTES + 8 })];
        let icmp = if self.is_v6 {
            [&[2, 0, 0, 0, 0, 0][..], &mtu.to_be_bytes(), quoted].concat()
        } else {
            [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), quoted].concat()
        };
        let mut frame = self.segment(from, 9, &HeadRepr::default(), &[], false);
        frame.truncate(self.tcp_at());
        let ip = 14 + self.tags.len();
        if self.is_v6 {
            frame[ip + 4..ip + 6].copy_from_slice(&(icmp.len() as u16).to_be_bytes());
            frame[ip + 6] = 58;
        } else {
            frame[ip + 2..ip + 4]
                .copy_from_slice(&((IPV4_BYTES + icmp.len()) as u16).to_be_bytes());
            frame[ip + 9] = 1;
        }
        frame.extend(icmp);
        sum_again(&mut frame);
        frame
    }
}

fn complete(frame: &mut [u8], start: usize, offset: usize) {
    let sum = !checksum::sum(&frame[start..]);
    frame[start + offset..start + offset + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Makes the sums right, whatever the frame says.
pub(super) fn sum_again(frame: &mut [u8]) {
    let Some(packet) = Packet::parse(frame) else { return };
    if packet.source.is_v4() {
        frame[packet.ip_at + 10..packet.ip_at + 12].fill(0);
        let sum = !checksum::sum(&frame[packet.ip_at..packet.transport_at]);
        frame[packet.ip_at + 10..packet.ip_at + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let offset = match packet.protocol {
        IpProtocol::Tcp => CHECKSUM_OFFSET,
        IpProtocol::Icmp | IpProtocol::Icmpv6 => 2,
        _ => return,
    };
    let field = packet.transport_at + offset;
    if field + 2 > packet.end {
        return;
    }
    frame[field..field + 2].fill(0);
    // Twice what a field of zeros says: the sum that remains with the pseudo-header.
    let rest = if packet.protocol == IpProtocol::Tcp {
        segment_sum(&packet, frame)
    } else {
        packet.message_sum(frame)
    };
    frame[field..field + 2].copy_from_slice(&(!rest).to_be_bytes());
}

fn segment_sum(packet: &Packet, frame: &[u8]) -> u16 {
    let segment = &frame[packet.transport_at..packet.end];
    let pseudo = match (packet.source.v4_octets(), packet.destination.v4_octets()) {
        (Some(from), Some(to)) => checksum::pseudo_header_v4(from, to, segment.len() as u32),
        _ => checksum::pseudo_header_v6(
            packet.source.octets(),
            packet.destination.octets(),
            segment.len() as u32,
        ),
    };
    checksum::add(pseudo, checksum::sum(segment))
}

/// A segment that was read back.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// From whom.
    pub source: Address,
    /// To whom.
    pub destination: Address,
    /// Its header.
    pub head: SegmentHead,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// The segment in a frame, if there is one.
pub(super) fn segment(frame: &[u8]) -> Option<Segment> {
    let packet = Packet::parse(frame)?;
    if packet.protocol != IpProtocol::Tcp {
        return None;
    }
    let mut head = nicache_tcp::parse(&frame[packet.transport_at..packet.end]).ok()?;
    head.ecn = packet.ecn(frame);
    let payload = frame[packet.transport_at + head.header_len..packet.end].to_vec();
    Some(Segment { source: packet.source, destination: packet.destination, head, payload })
}

/// A frame that the card made or changed: its lengths, sums and metadata are right.
pub(super) fn check(frame: &[u8], offload: &Offload, bytes_max: usize) {
    let packet = Packet::parse(frame).unwrap_or_else(|| panic!("no packet: {frame:02x?}"));
    let mut whole = frame.to_vec();
    if let Checksum::Partial { start, offset } = offload.checksum {
        assert_eq!(usize::from(start), packet.transport_at);
        complete(&mut whole, usize::from(start), usize::from(offset));
    }
    assert!(packet.is_header_right(&whole), "the header's sum: {frame:02x?}");
    if packet.protocol == IpProtocol::Tcp {
        assert!(packet.is_segment_right(&whole), "the segment's sum: {frame:02x?}");
        let head = nicache_tcp::parse(&whole[packet.transport_at..packet.end]).expect("a header");
        if let Some(gso) = offload.gso {
            assert_eq!(usize::from(gso.header_len), packet.transport_at + head.header_len);
            assert!(gso.size >= 8 && matches!(offload.checksum, Checksum::Partial { .. }));
        }
    } else {
        assert!(packet.is_message_right(&whole), "the message's sum: {frame:02x?}");
    }
    assert!(offload.gso.is_some() || frame.len() <= bytes_max, "a frame of {} bytes", frame.len());
}
