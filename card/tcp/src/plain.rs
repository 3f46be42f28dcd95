//! Segments as nearly all are: IPv4 or IPv6 without VLAN tags, an acknowledgment with at most a
//! push, and no options but timestamps in the layout of RFC 7323 appendix A.
//!
//! One look instead of a parse of each layer; what is not plain is for [`crate::frame::Packet`] and
//! [`crate::parse`], which find the same of what is.

use nicache_checksum::{fold_halves, halves};

use crate::address::{Address, FlowKey};
use crate::headers::{Addresses, ETHERNET_BYTES, HEADERS_BYTES_MAX, IPV4_BYTES, IPV6_BYTES};
use crate::options::WINDOW_SCALE_MAX;
use crate::wire::{HEADER_BYTES_MIN, u16_at, u32_at};
use crate::{Codepoint, Flags, HeadRepr, Seq, Timestamps, checksum};

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
/// No-operation twice, timestamps, and the length of these.
const TIMESTAMPS_LAYOUT: u32 = 0x0101_080a;
const TIMESTAMPS_BYTES: usize = 12;
const DONT_FRAGMENT: u16 = 0x4000;
/// Hops that a packet may take (RFC 1700: 64).
const HOPS: u8 = 64;
/// Don't fragment is the only bit that may be set of an IPv4 header's flags and offset.
const FRAGMENT_MASK: u16 = 0xbfff;

/// A plain segment of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The connection; the client has sent it.
    pub key: FlowKey,
    /// Sequence number of the first byte.
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// The window as it stands in the header.
    pub window: u16,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// Where the TCP header starts in the frame.
    pub tcp_at: usize,
    /// Where the payload starts.
    pub payload_at: usize,
    /// Where it ends.
    pub end: usize,
}

fn octets<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut octets = [0; N];
    octets.copy_from_slice(&bytes[at..at + N]);
    octets
}

impl Plain {
    /// The segment of a frame, if it is plain. Packets marked as congested are not. Its checksums
    /// are not looked at ([`Plain::is_right`]).
    #[inline(always)]
    #[must_use]
    pub fn parse(frame: &[u8]) -> Option<Self> {
        if frame.len() < ETHERNET_BYTES + IPV4_BYTES + HEADER_BYTES_MIN {
            return None;
        }
        let (client, server, tcp_at, end) = match u16_at(frame, 12) {
            IPV4 => Self::ipv4(frame)?,
            IPV6 => Self::ipv6(frame)?,
            _ => return None,
        };
        let tcp = frame.get(tcp_at..end).filter(|tcp| tcp.len() >= HEADER_BYTES_MIN)?;
        // The data offset, and ACK with or without PSH.
        let header_len = usize::from(tcp[12] >> 4) * 4;
        if tcp[13] & !Flags::PSH.0 != Flags::ACK.0 {
            return None;
        }
        let timestamps = match header_len {
            HEADER_BYTES_MIN => None,
            len if len == HEADER_BYTES_MIN + TIMESTAMPS_BYTES
                && tcp.len() >= len
                && u32_at(tcp, 20) == TIMESTAMPS_LAYOUT =>
            {
                Some(Timestamps { val: u32_at(tcp, 24), ecr: u32_at(tcp, 28) })
            }
            _ => return None,
        };
        Some(Self {
            key: FlowKey {
                client,
                server,
                client_port: u16_at(tcp, 0),
                server_port: u16_at(tcp, 2),
                vlans: 0,
            },
            seq: Seq(u32_at(tcp, 4)),
            ack: Seq(u32_at(tcp, 8)),
            window: u16_at(tcp, 14),
            timestamps,
            tcp_at,
            payload_at: tcp_at + header_len,
            end,
        })
    }

    #[inline(always)]
    fn ipv4(frame: &[u8]) -> Option<(Address, Address, usize, usize)> {
        let ip = ETHERNET_BYTES;
        let end = ip + usize::from(u16_at(frame, ip + 2));
        let is_plain = frame[ip] == 0x45
            && frame[ip + 1] & 3 == 0
            && u16_at(frame, ip + 6) & FRAGMENT_MASK == 0
            && frame[ip + 9] == TCP
            && end <= frame.len();
        if !is_plain {
            return None;
        }
        let address = |at| Address::from(std::net::Ipv4Addr::from_bits(u32_at(frame, at)));
        Some((address(ip + 12), address(ip + 16), ip + IPV4_BYTES, end))
    }

    #[inline(always)]
    fn ipv6(frame: &[u8]) -> Option<(Address, Address, usize, usize)> {
        let ip = ETHERNET_BYTES;
        if frame.len() < ip + IPV6_BYTES {
            return None;
        }
        let end = ip + IPV6_BYTES + usize::from(u16_at(frame, ip + 4));
        let address = |at| Address::from(std::net::Ipv6Addr::from(octets::<16>(frame, at)));
        let (source, destination) = (address(ip + 8), address(ip + 24));
        // Of the traffic class, the two bits of ECN must be clear.
        let is_plain = frame[ip] >> 4 == 6
            && frame[ip + 1] >> 4 & 3 == 0
            && frame[ip + 6] == TCP
            && end <= frame.len()
            && !source.is_v4()
            && !destination.is_v4();
        is_plain.then_some((source, destination, ip + IPV6_BYTES, end))
    }

    /// The window in bytes (RFC 7323 section 2.2).
    #[inline]
    #[must_use]
    pub fn window_bytes(&self, scale: u8) -> u32 {
        u32::from(self.window) << scale.min(WINDOW_SCALE_MAX)
    }

    /// Are the checksums of its frame right?
    #[must_use]
    pub fn is_right(self, frame: &[u8]) -> bool {
        let is_v4 = self.key.client.is_v4();
        let segment = &frame[self.tcp_at..self.end];
        // The addresses are in front of the segment over either version of IP.
        let addresses = &frame[self.tcp_at - if is_v4 { 8 } else { 32 }..self.tcp_at];
        let len = checksum::sum(&(segment.len() as u32).to_be_bytes());
        let pseudo = checksum::add(checksum::add(checksum::sum(addresses), len), u16::from(TCP));
        checksum::add(pseudo, checksum::sum(segment)) == 0xffff
            && (!is_v4 || checksum::sum(&frame[ETHERNET_BYTES..self.tcp_at]) == 0xffff)
    }
}

/// Writes the headers of a plain segment with `payload_len` bytes as
/// [`crate::frame::write_headers`] does, and returns their length. `None`: it would not be plain.
#[inline]
pub(crate) fn write_headers(
    addresses: &Addresses,
    tcp: &HeadRepr,
    payload_len: u32,
    ip_id: u16,
    bytes: &mut [u8; HEADERS_BYTES_MAX],
) -> Option<usize> {
    if !addresses.tags.is_empty() || tcp.syn_options.is_some() || !tcp.sack.is_empty() {
        return None;
    }
    let header_len = HEADER_BYTES_MIN + if tcp.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
    let segment_len = header_len as u32 + payload_len;
    bytes[..6].copy_from_slice(&addresses.destination_mac);
    bytes[6..12].copy_from_slice(&addresses.source_mac);
    let (tcp_at, pseudo) = match (addresses.source.v4_octets(), addresses.destination.v4_octets()) {
        (Some(source), Some(destination)) => {
            bytes[12..14].copy_from_slice(&IPV4.to_be_bytes());
            let (source, destination) =
                (u32::from_be_bytes(source), u32::from_be_bytes(destination));
            let total = (IPV4_BYTES as u32 + segment_len) as u16;
            write_ipv4(
                &mut bytes[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES],
                tcp.ecn,
                total,
                ip_id,
                source,
                destination,
            );
            let sum = halves(source) + halves(destination) + u32::from(TCP) + halves(segment_len);
            (ETHERNET_BYTES + IPV4_BYTES, fold_halves(sum))
        }
        _ => {
            bytes[12..14].copy_from_slice(&IPV6.to_be_bytes());
            let (source, destination) = (addresses.source.octets(), addresses.destination.octets());
            let ip = &mut bytes[ETHERNET_BYTES..ETHERNET_BYTES + IPV6_BYTES];
            ip[..4].copy_from_slice(&(6 << 28 | u32::from(tcp.ecn.bits()) << 20).to_be_bytes());
            ip[4..6].copy_from_slice(&(segment_len as u16).to_be_bytes());
            (ip[6], ip[7]) = (TCP, HOPS);
            ip[8..24].copy_from_slice(&source);
            ip[24..].copy_from_slice(&destination);
            (
                ETHERNET_BYTES + IPV6_BYTES,
                checksum::pseudo_header_v6(source, destination, segment_len),
            )
        }
    };
    let head = &mut bytes[tcp_at..tcp_at + HEADER_BYTES_MIN + TIMESTAMPS_BYTES];
    head[..4]
        .copy_from_slice(&(u32::from(tcp.src_port) << 16 | u32::from(tcp.dst_port)).to_be_bytes());
    head[4..8].copy_from_slice(&tcp.seq.0.to_be_bytes());
    head[8..12].copy_from_slice(&tcp.ack.0.to_be_bytes());
    let offset_and_flags = (header_len as u32 / 4) << 28 | u32::from(tcp.flags.0) << 16;
    head[12..16].copy_from_slice(&(offset_and_flags | u32::from(tcp.window)).to_be_bytes());
    head[16..20].copy_from_slice(&(u32::from(pseudo) << 16).to_be_bytes());
    if let Some(stamps) = tcp.timestamps {
        head[20..24].copy_from_slice(&TIMESTAMPS_LAYOUT.to_be_bytes());
        head[24..28].copy_from_slice(&stamps.val.to_be_bytes());
        head[28..].copy_from_slice(&stamps.ecr.to_be_bytes());
    }
    Some(tcp_at + header_len)
}

#[inline]
fn write_ipv4(
    ip: &mut [u8],
    ecn: Codepoint,
    total_len: u16,
    id: u16,
    source: u32,
    destination: u32,
) {
    let first = 0x4500_0000 | u32::from(ecn.bits()) << 16 | u32::from(total_len);
    let second = u32::from(id) << 16 | u32::from(DONT_FRAGMENT);
    let third = u32::from(HOPS) << 24 | u32::from(TCP) << 16;
    let sum = halves(first) + halves(second) + halves(third) + halves(source) + halves(destination);
    for (at, word) in [first, second, third | u32::from(!fold_halves(sum)), source, destination]
        .into_iter()
        .enumerate()
    {
        ip[4 * at..4 * at + 4].copy_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;
    use smoltcp::wire::IpProtocol;

    use super::*;
    use crate::frame::{Packet, Tags, write_any_headers};
    use crate::wire::CHECKSUM_OFFSET;
    use crate::{SackBlocks, parse};

    fn addresses(is_v6: bool, tags: &[u8]) -> Addresses {
        let (source, destination) = if is_v6 {
            let address = |last| Address::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
            (address(1), address(2))
        } else {
            (Ipv4Addr::new(10, 0, 0, 1).into(), Ipv4Addr::new(10, 0, 0, 2).into())
        };
        let tags = Tags::from_bytes(tags).unwrap();
        Addresses { source_mac: [1; 6], destination_mac: [2; 6], tags, source, destination }
    }

    fn frame(addresses: &Addresses, head: &HeadRepr, payload: &[u8]) -> Vec<u8> {
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_any_headers(addresses, head, payload.len() as u32, 3, &mut bytes);
        let mut frame = [&bytes[..len], payload].concat();
        let sum = checksum::sum(&frame[addresses.tcp_at()..]);
        let field = addresses.tcp_at() + CHECKSUM_OFFSET;
        frame[field..field + 2].copy_from_slice(&(!sum).to_be_bytes());
        frame
    }

    /// What the general way finds must be what the short one has found.
    fn agrees(frame: &[u8]) -> bool {
        let Some(plain) = Plain::parse(frame) else { return false };
        let packet = Packet::parse(frame).expect("a packet");
        let head = parse(&frame[packet.transport_at..packet.end]).expect("a header");
        assert_eq!(packet.protocol, IpProtocol::Tcp);
        assert!(
            packet.tags.is_empty()
                && !head.unknown_option
                && head.sack.is_empty()
                && head.syn_options.is_none()
        );
        assert!(matches!(packet.ecn(frame), Codepoint::NotCapable));
        assert_eq!(head.flags.without(Flags::PSH), Flags::ACK);
        let key = FlowKey {
            client: packet.source,
            server: packet.destination,
            client_port: head.src_port,
            server_port: head.dst_port,
            vlans: packet.tags.vlans(),
        };
        let found = Plain {
            key,
            seq: head.seq,
            ack: head.ack,
            window: head.window,
            timestamps: head.timestamps,
            tcp_at: packet.transport_at,
            payload_at: packet.transport_at + head.header_len,
            end: packet.end,
        };
        assert_eq!(plain, found);
        assert_eq!(
            plain.is_right(frame),
            packet.is_header_right(frame) && packet.is_segment_right(frame)
        );
        true
    }

    fn request(timestamps: bool) -> HeadRepr {
        HeadRepr {
            src_port: 999,
            dst_port: 80,
            seq: Seq(7),
            ack: Seq(9),
            flags: Flags::ACK | Flags::PSH,
            window: 502,
            timestamps: timestamps.then_some(Timestamps { val: 3, ecr: 4 }),
            ..HeadRepr::default()
        }
    }

    #[test]
    fn requests_are_plain_and_others_are_not() {
        for is_v6 in [false, true] {
            let to = addresses(is_v6, &[]);
            for timestamps in [false, true] {
                let plain = frame(&to, &request(timestamps), b"GET / HTTP/1.1\r\n\r\n");
                assert!(agrees(&plain) && Plain::parse(&plain).unwrap().is_right(&plain));
                assert!(agrees(&[&plain[..], &[0; 7]].concat()), "with padding");
                for len in 0..plain.len() {
                    assert!(Plain::parse(&plain[..len]).is_none(), "{len} bytes");
                }
            }
            let mut sack = SackBlocks::EMPTY;
            sack.push(Seq(1), Seq(2));
            for odd in [
                HeadRepr { flags: Flags::ACK | Flags::FIN, ..request(true) },
                HeadRepr { flags: Flags::ACK | Flags::ECE, ..request(true) },
                HeadRepr { flags: Flags::SYN, ..request(false) },
                HeadRepr { flags: Flags::PSH, ..request(false) },
                HeadRepr { ecn: Codepoint::Congested, ..request(true) },
                HeadRepr { sack, ..request(true) },
            ] {
                assert!(Plain::parse(&frame(&to, &odd, b"x")).is_none(), "{odd:?}");
            }
            let tagged = addresses(is_v6, &[0x81, 0x00, 0x01, 0x00]);
            assert!(Plain::parse(&frame(&tagged, &request(true), b"x")).is_none());
        }
    }

    proptest! {
        #[test]
        fn headers_are_written_alike(
            is_v6: bool,
            source: u128,
            destination: u128,
            numbers: [u32; 4],
            ports: [u16; 4],
            flags: u8,
            ecn in 0u8..4,
            timestamps: bool,
            payload_len in 0u32..65_000,
        ) {
            let mut to = addresses(is_v6, &[]);
            if is_v6 {
                (to.source, to.destination) =
                    (Ipv6Addr::from_bits(source).into(), Ipv6Addr::from_bits(destination).into());
            } else {
                let address = |bits: u128| Address::from(Ipv4Addr::from_bits(bits as u32));
                (to.source, to.destination) = (address(source), address(destination));
            }
            let head = HeadRepr {
                src_port: ports[0],
                dst_port: ports[1],
                seq: Seq(numbers[0]),
                ack: Seq(numbers[1]),
                flags: Flags(flags),
                window: ports[2],
                timestamps: timestamps.then_some(Timestamps { val: numbers[2], ecr: numbers[3] }),
                ecn: Codepoint::from_bits(ecn),
                ..HeadRepr::default()
            };
            let (mut short, mut general) = ([0; HEADERS_BYTES_MAX], [0; HEADERS_BYTES_MAX]);
            let len = write_headers(&to, &head, payload_len, ports[3], &mut short);
            prop_assert_eq!(
                len,
                Some(write_any_headers(&to, &head, payload_len, ports[3], &mut general))
            );
            prop_assert_eq!(short, general);
        }

        #[test]
        fn whatever_is_changed_is_found_alike(
            is_v6: bool,
            timestamps: bool,
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            changes in proptest::collection::vec((0usize..90, any::<u8>()), 0..4),
            cut in 0usize..12,
        ) {
            let mut frame = frame(&addresses(is_v6, &[]), &request(timestamps), &payload);
            for (at, bits) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= bits;
                }
            }
            frame.truncate(frame.len() - cut);
            agrees(&frame);
        }
    }
}
