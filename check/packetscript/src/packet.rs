//! Frames of the wire: building those of the client, reading those of the server.
//!
//! Deliberately absent: VLAN tags, IP options and extension headers, fragments.

use std::net::IpAddr;

use nicache_tcp::checksum;

use crate::option::{self, TcpOption};

/// MAC of all clients.
pub(crate) const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// MAC of the server.
pub(crate) const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where the IP header begins in a frame.
pub(crate) const IP_AT: usize = 14;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// Bytes of an IPv4 packet that an ICMP error quotes at least (RFC 1191 section 4 with RFC 792):
/// header and 8 bytes.
const QUOTED_BYTES: usize = 28;

/// A TCP segment with what matters of its IP header. Numbers are as on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Who sent it.
    pub source: IpAddr,
    /// To whom it was sent.
    pub destination: IpAddr,
    /// The ECN bits of the IP header.
    pub ecn: u8,
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Control bits.
    pub flags: u8,
    /// Window field.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options, with padding.
    pub options: Vec<TcpOption>,
    /// Payload.
    pub payload: Vec<u8>,
}

/// What a frame of the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A segment.
    Tcp(Packet),
    /// Nothing that scripts speak of.
    Other,
    /// A TCP segment that nobody would accept, with the reason.
    Bad(&'static str),
}

impl Packet {
    /// The frame from a client.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let tcp = self.tcp();
        let mut frame = [&SERVER_MAC[..], &CLIENT_MAC[..]].concat();
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                frame.extend(ipv4(source.octets(), destination.octets(), TCP, self.ecn, &tcp));
            }
            (source, destination) => {
                frame.extend([0x86, 0xdd]);
                frame.extend(ipv6(octets(source), octets(destination), TCP, self.ecn, &tcp));
            }
        }
        frame
    }

    fn tcp(&self) -> Vec<u8> {
        let options = option::write(&self.options);
        let mut tcp = Vec::with_capacity(20 + options.len() + self.payload.len());
        tcp.extend(self.source_port.to_be_bytes());
        tcp.extend(self.destination_port.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        let words = (20 + options.len().min(40)) / 4;
        tcp.extend([(words as u8) << 4, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0, 0]);
        tcp.extend(self.urgent.to_be_bytes());
        tcp.extend(&options[..options.len().min(40)]);
        tcp.extend(&self.payload);
        let sum = !checksum::add(
            pseudo(self.source, self.destination, TCP, tcp.len()),
            checksum::sum(&tcp),
        );
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());
        tcp
    }
}

/// An ICMP error of the router `from`: a packet of the server was longer than `mtu`. `quoted` is
/// that packet.
pub(crate) fn too_big(from: IpAddr, mtu: u16, quoted: &Packet) -> Vec<u8> {
    let packet = quoted.frame().split_off(IP_AT);
    let mut frame = [&SERVER_MAC[..], &CLIENT_MAC[..]].concat();
    match (from, quoted.source) {
        (IpAddr::V4(router), IpAddr::V4(server)) => {
            // RFC 1191 section 4: type 3, code 4, the MTU in the low half of the second word.
            let mut icmp = vec![3, 4, 0, 0, 0, 0];
            icmp.extend(mtu.to_be_bytes());
            icmp.extend(&packet[..packet.len().min(QUOTED_BYTES + 20)]);
            let sum = !checksum::sum(&icmp);
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x08, 0x00]);
            frame.extend(ipv4(router.octets(), server.octets(), ICMP, 0, &icmp));
        }
        (router, server) => {
            // RFC 4443 section 3.2: type 2; as much of the packet as fits into 1280 bytes.
            let mut icmp = vec![2, 0, 0, 0, 0, 0];
            icmp.extend(mtu.to_be_bytes());
            icmp.extend(&packet[..packet.len().min(1280 - 48)]);
            let sum =
                !checksum::add(pseudo(router, server, ICMP_V6, icmp.len()), checksum::sum(&icmp));
            icmp[2..4].copy_from_slice(&sum.to_be_bytes());
            frame.extend([0x86, 0xdd]);
            frame.extend(ipv6(octets(router), octets(server), ICMP_V6, 0, &icmp));
        }
    }
    frame
}

fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let total = (20 + payload.len()) as u16;
    let mut ip = vec![0x45, ecn];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    ip.extend(source);
    ip.extend(destination);
    let sum = !checksum::sum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip.extend(payload);
    ip
}

fn ipv6(source: [u8; 16], destination: [u8; 16], protocol: u8, ecn: u8, payload: &[u8]) -> Vec<u8> {
    let mut ip = vec![0x60, ecn << 4, 0, 0];
    ip.extend((payload.len() as u16).to_be_bytes());
    ip.extend([protocol, 64]);
    ip.extend(source);
    ip.extend(destination);
    ip.extend(payload);
    ip
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u16 {
    let mut bytes = Vec::with_capacity(40);
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (source, destination) => {
            bytes.extend(octets(source));
            bytes.extend(octets(destination));
        }
    }
    bytes.extend((len as u32).to_be_bytes());
    bytes.extend([0, 0, 0, protocol]);
    checksum::sum(&bytes)
}

/// Reads a frame, and checks its sums.
pub(crate) fn read(frame: &[u8]) -> Frame {
    let Some(kind) = frame.get(12..IP_AT) else { return Frame::Other };
    let ip = &frame[IP_AT..];
    match kind {
        [0x08, 0x00] => read_v4(ip),
        [0x86, 0xdd] => read_v6(ip),
        _ => Frame::Other,
    }
}

fn read_v4(ip: &[u8]) -> Frame {
    if ip.len() < 20 || ip[0] != 0x45 || ip[9] != TCP {
        return Frame::Other;
    }
    if checksum::sum(&ip[..20]) != 0xffff {
        return Frame::Bad("the sum of its IPv4 header is wrong");
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let Some(tcp) = ip.get(20..total) else {
        return Frame::Bad("its IPv4 header tells another length");
    };
    let address = |at: usize| IpAddr::from([ip[at], ip[at + 1], ip[at + 2], ip[at + 3]]);
    read_tcp(address(12), address(16), ip[1] & 3, tcp)
}

fn read_v6(ip: &[u8]) -> Frame {
    if ip.len() < 40 || ip[0] >> 4 != 6 || ip[6] != TCP {
        return Frame::Other;
    }
    let total = 40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    let Some(tcp) = ip.get(40..total) else {
        return Frame::Bad("its IPv6 header tells another length");
    };
    let address =
        |at: usize| IpAddr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap_or_default());
    read_tcp(address(8), address(24), ip[1] >> 4 & 3, tcp)
}

fn read_tcp(source: IpAddr, destination: IpAddr, ecn: u8, tcp: &[u8]) -> Frame {
    let header = tcp.get(12).map_or(0, |words| usize::from(words >> 4) * 4);
    if header < 20 || header > tcp.len() {
        return Frame::Bad("its TCP header has an impossible length");
    }
    if checksum::add(pseudo(source, destination, TCP, tcp.len()), checksum::sum(tcp)) != 0xffff {
        return Frame::Bad("its TCP checksum is wrong");
    }
    let half = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([tcp[at], tcp[at + 1], tcp[at + 2], tcp[at + 3]]);
    Frame::Tcp(Packet {
        source,
        destination,
        ecn,
        source_port: half(0),
        destination_port: half(2),
        seq: word(4),
        ack: word(8),
        flags: tcp[13],
        window: half(14),
        urgent: half(18),
        options: option::read(&tcp[20..header]),
        payload: tcp[header..].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(v6: bool, payload: Vec<u8>, ecn: u8) -> Packet {
        let (source, destination) = if v6 {
            ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        } else {
            (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]))
        };
        Packet {
            source,
            destination,
            ecn,
            source_port: 40_001,
            destination_port: 80,
            seq: 7,
            ack: 9,
            flags: 0x18,
            window: 500,
            urgent: 3,
            options: vec![TcpOption::Nop, TcpOption::Nop, TcpOption::Timestamps { val: 1, ecr: 2 }],
            payload,
        }
    }

    proptest! {
        #[test]
        fn what_is_built_is_read(
            v6: bool,
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            ecn in 0u8..4,
        ) {
            let mut packet = packet(v6, payload, ecn);
            // Timestamps alone get their padding by themselves.
            packet.options.drain(..2);
            let frame = packet.frame();
            packet.options.splice(0..0, [TcpOption::Nop, TcpOption::Nop]);
            prop_assert_eq!(read(&frame), Frame::Tcp(packet));
        }

        #[test]
        fn any_bit_that_changes_is_found(v6: bool, at in 0usize..70, bit in 0u8..8) {
            let packet = packet(v6, vec![5; 30], 0);
            let mut frame = packet.frame();
            let at = IP_AT + at % (frame.len() - IP_AT);
            frame[at] ^= 1 << bit;
            let original = read(&packet.frame());
            // In IPv6, traffic class, flow label and hop limit are under no sum.
            let unsummed = v6 && (at < IP_AT + 4 || at == IP_AT + 7);
            prop_assert!(unsummed || read(&frame) != original);
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = read(&bytes);
        }
    }

    #[test]
    fn an_icmp_error_quotes_the_packet() {
        let quoted = packet(false, vec![0; 1000], 0);
        let frame = too_big(IpAddr::from([192, 0, 2, 9]), 1000, &quoted);
        assert_eq!(frame[IP_AT + 9], ICMP);
        let icmp = &frame[IP_AT + 20..];
        assert_eq!(checksum::sum(icmp), 0xffff);
        assert_eq!(icmp[..2], [3, 4]);
        assert_eq!(icmp[6..8], 1000u16.to_be_bytes());
        assert_eq!(icmp[8..56], quoted.frame()[IP_AT..IP_AT + 48]);
        let quoted = packet(true, vec![0; 1400], 0);
        let frame = too_big("2001:db8::9".parse().unwrap(), 1300, &quoted);
        assert_eq!(frame.len(), IP_AT + 1280);
    }
}
