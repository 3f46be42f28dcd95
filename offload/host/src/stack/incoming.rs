//! What a received frame is to the host: a segment, a question about its address, or nothing.
//!
//! Deliberately absent: IPv6, IP options and fragments, VLAN tags. Such frames are dropped and
//! counted.

use std::net::Ipv4Addr;
use std::ops::Range;

use nicache_tcp::SegmentHead;
use nicache_tcp::frame::{ETHERNET_BYTES, FlowKey, IPV4_BYTES, Packet};
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    Icmpv4Message, Icmpv4Packet, IpProtocol, Ipv4Packet,
};

use super::connection::Ends;

/// Where a plain packet's payload begins.
const IPV4_END: usize = ETHERNET_BYTES + IPV4_BYTES;
/// Bytes of an ARP packet for IPv4 over Ethernet.
const ARP_BYTES: usize = 28;
/// Longest frame with an echo request that is answered: as long as a place for headers.
const ECHO_BYTES_MAX: usize = crate::driver::HEADER_PLACE_BYTES as usize;

/// What a received frame is to the host: a segment, a question about its address, or nothing.
#[derive(Debug, PartialEq)]
pub enum Incoming {
    /// A segment of TCP.
    Tcp {
        /// Who sent it to whom.
        ends: Ends,
        /// Its header.
        head: SegmentHead,
        /// Where its bytes are in the frame.
        payload: Range<usize>,
    },
    /// The frame that answers it, without anything else to be done.
    Answer(Vec<u8>),
    /// Its checksum is wrong.
    Corrupt,
    /// Not for this host.
    Nothing,
}

/// Looks at a frame. `is_right`: the card has verified its checksums. `mac` and `address` are the
/// host's.
pub fn parse(frame: &[u8], is_right: bool, mac: [u8; 6], address: u32) -> Incoming {
    let Ok(ethernet) = EthernetFrame::new_checked(frame) else { return Incoming::Nothing };
    let to = ethernet.dst_addr();
    if to.0 != mac && !to.is_broadcast() {
        return Incoming::Nothing;
    }
    match ethernet.ethertype() {
        EthernetProtocol::Arp => arp(frame, mac, address),
        EthernetProtocol::Ipv4 => ipv4(frame, ethernet.src_addr().0, is_right, mac, address),
        _ => Incoming::Nothing,
    }
}

fn arp(frame: &[u8], mac: [u8; 6], address: u32) -> Incoming {
    let Ok(packet) = ArpPacket::new_checked(&frame[ETHERNET_BYTES..]) else {
        return Incoming::Nothing;
    };
    let Ok(ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr,
        source_protocol_addr,
        target_protocol_addr,
        ..
    }) = ArpRepr::parse(&packet)
    else {
        return Incoming::Nothing;
    };
    if u32::from(target_protocol_addr) != address {
        return Incoming::Nothing;
    }
    let mut answer = vec![0; ETHERNET_BYTES + ARP_BYTES];
    let mut ethernet = EthernetFrame::new_unchecked(&mut answer[..]);
    ethernet.set_src_addr(EthernetAddress(mac));
    ethernet.set_dst_addr(source_hardware_addr);
    ethernet.set_ethertype(EthernetProtocol::Arp);
    let repr = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(mac),
        source_protocol_addr: target_protocol_addr,
        target_hardware_addr: source_hardware_addr,
        target_protocol_addr: source_protocol_addr,
    };
    repr.emit(&mut ArpPacket::new_unchecked(&mut answer[ETHERNET_BYTES..]));
    Incoming::Answer(answer)
}

fn ipv4(frame: &[u8], from_mac: [u8; 6], is_right: bool, mac: [u8; 6], address: u32) -> Incoming {
    let own = Ipv4Addr::from_bits(address).into();
    let Some(packet) = Packet::parse(frame).filter(|packet| packet.destination == own) else {
        return Incoming::Nothing;
    };
    if !is_right && !packet.is_header_right(frame) {
        return Incoming::Corrupt;
    }
    match packet.protocol {
        IpProtocol::Icmp => echo(&frame[..packet.end], from_mac, mac),
        IpProtocol::Tcp => {
            let Ok(mut head) = nicache_tcp::parse(&frame[packet.transport_at..packet.end]) else {
                return Incoming::Nothing;
            };
            if !is_right && !packet.is_segment_right(frame) {
                return Incoming::Corrupt;
            }
            head.ecn = packet.ecn(frame);
            let (client, server) = (packet.source, packet.destination);
            let key = FlowKey {
                client,
                server,
                client_port: head.src_port,
                server_port: head.dst_port,
                vlans: 0,
            };
            let ends = Ends { key, client_mac: from_mac, server_mac: mac };
            Incoming::Tcp { ends, payload: packet.transport_at + head.header_len..packet.end, head }
        }
        _ => Incoming::Nothing,
    }
}

/// RFC 792: the same bytes back.
fn echo(frame: &[u8], from_mac: [u8; 6], mac: [u8; 6]) -> Incoming {
    let Ok(request) = Icmpv4Packet::new_checked(&frame[IPV4_END..]) else {
        return Incoming::Nothing;
    };
    if request.msg_type() != Icmpv4Message::EchoRequest || frame.len() > ECHO_BYTES_MAX {
        return Incoming::Nothing;
    }
    if !request.verify_checksum() {
        return Incoming::Corrupt;
    }
    let mut answer = frame.to_vec();
    let mut ethernet = EthernetFrame::new_unchecked(&mut answer[..]);
    ethernet.set_src_addr(EthernetAddress(mac));
    ethernet.set_dst_addr(EthernetAddress(from_mac));
    let mut ip = Ipv4Packet::new_unchecked(&mut answer[ETHERNET_BYTES..]);
    let (from, to) = (ip.src_addr(), ip.dst_addr());
    ip.set_src_addr(to);
    ip.set_dst_addr(from);
    ip.set_hop_limit(64);
    ip.fill_checksum();
    let mut reply = Icmpv4Packet::new_unchecked(&mut answer[IPV4_END..]);
    reply.set_msg_type(Icmpv4Message::EchoReply);
    reply.fill_checksum();
    Incoming::Answer(answer)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ADDRESS: u32 = 0x0a4d_0002;

    fn ethernet(kind: u16, to: [u8; 6]) -> Vec<u8> {
        [&to[..], &PEER, &kind.to_be_bytes()].concat()
    }

    #[test]
    fn a_question_about_the_address_is_answered() {
        let question = |address: u32| {
            let arp = [
                &[0, 1, 8, 0, 6, 4, 0, 1][..],
                &PEER,
                &[10, 77, 0, 1],
                &[0; 6],
                &address.to_be_bytes(),
            ]
            .concat();
            [ethernet(0x0806, [0xff; 6]), arp].concat()
        };
        let Incoming::Answer(answer) = parse(&question(ADDRESS), false, MAC, ADDRESS) else {
            panic!("no answer")
        };
        assert_eq!(
            (&answer[..6], &answer[6..12], &answer[22..28]),
            (&PEER[..], &MAC[..], &MAC[..])
        );
        assert_eq!(parse(&question(ADDRESS + 1), false, MAC, ADDRESS), Incoming::Nothing);
    }

    #[test]
    fn a_ping_is_answered() {
        let icmp = [8, 0, 0, 0, 0, 7, 0, 1, b'h', b'i'];
        let ip = [
            &[0x45, 0, 0, 30, 0, 0, 0, 0, 64, 1, 0, 0][..],
            &[10, 77, 0, 1],
            &ADDRESS.to_be_bytes(),
        ]
        .concat();
        let mut frame = [ethernet(0x0800, MAC), ip, icmp.to_vec()].concat();
        Ipv4Packet::new_unchecked(&mut frame[14..]).fill_checksum();
        assert_eq!(
            parse(&frame, false, MAC, ADDRESS),
            Incoming::Corrupt,
            "its own checksum is wrong"
        );
        Icmpv4Packet::new_unchecked(&mut frame[34..]).fill_checksum();
        let Incoming::Answer(answer) = parse(&frame, false, MAC, ADDRESS) else {
            panic!("no answer")
        };
        assert!(Ipv4Packet::new_checked(&answer[14..]).unwrap().verify_checksum());
        assert_eq!((answer[34], &answer[26..30]), (0, &ADDRESS.to_be_bytes()[..]));
        frame[0] ^= 4;
        assert_eq!(parse(&frame, false, MAC, ADDRESS), Incoming::Nothing, "for somebody else");
    }

    proptest! {
        /// Whatever comes, an answer is no longer than the question, but for the shortest.
        #[test]
        fn any_bytes(
            mut frame in proptest::collection::vec(any::<u8>(), 0..200),
            kind in 0..3,
            is_right: bool,
        ) {
            if frame.len() >= 14 {
                frame[..6].copy_from_slice(&MAC);
                let kinds = [[8, 0], [8, 6], [frame[12], frame[13]]];
                frame[12..14].copy_from_slice(&kinds[kind as usize]);
            }
            if frame.len() > 34 && kind == 0 {
                frame[14] = 0x45;
                frame[30..34].copy_from_slice(&ADDRESS.to_be_bytes());
            }
            match parse(&frame, is_right, MAC, ADDRESS) {
                Incoming::Answer(answer) => prop_assert!(answer.len() <= frame.len().max(42)),
                Incoming::Tcp { payload, .. } => {
                    prop_assert!(payload.start <= payload.end && payload.end <= frame.len());
                }
                Incoming::Corrupt | Incoming::Nothing => {}
            }
        }
    }
}
