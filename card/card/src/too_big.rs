//! The message of a router that a packet is too long for the next link (RFC 1191 for IPv4, RFC 8201
//! for IPv6).

use nicache_port::{Checksum, Offload};
use nicache_tcp::frame::{Address, FlowKey, IPV4_BYTES, IPV6_BYTES, Packet};
use nicache_tcp::{Seq, checksum};
use smoltcp::wire::{IpProtocol, Ipv4Packet, Ipv6Packet};

/// Bytes before the quoted packet.
const ICMP_BYTES: usize = 8;
/// What is quoted of a segment at least: ports and number.
const QUOTED_BYTES: usize = 8;
const ICMPV4_UNREACHABLE: u8 = 3;
const ICMPV4_FRAGMENTATION_NEEDED: u8 = 4;
const ICMPV6_TOO_BIG: u8 = 2;

/// A message about a segment that was sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooBig {
    /// The connection.
    pub key: FlowKey,
    /// Number of the segment's first byte.
    pub seq: Seq,
    /// Bytes of a packet that the next link takes.
    pub mtu: u32,
    /// Where the number is in the frame.
    seq_at: usize,
    /// Where the message's checksum is.
    checksum_at: usize,
}

impl TooBig {
    /// The message in a frame, if it is one about TCP. `Err`: its checksum is wrong.
    pub(crate) fn parse(
        frame: &[u8],
        packet: &Packet,
        offload: &Offload,
    ) -> Option<Result<Self, ()>> {
        let at = packet.transport_at;
        let icmp = frame.get(at..packet.end).filter(|icmp| icmp.len() >= ICMP_BYTES)?;
        let quoted = &icmp[ICMP_BYTES..];
        let (mtu, server, client, ip_bytes) = match (packet.protocol, icmp[0], icmp[1]) {
            (IpProtocol::Icmp, ICMPV4_UNREACHABLE, ICMPV4_FRAGMENTATION_NEEDED) => {
                let (server, client) = quoted_v4(quoted)?;
                (u32::from(u16::from_be_bytes([icmp[6], icmp[7]])), server, client, IPV4_BYTES)
            }
            (IpProtocol::Icmpv6, ICMPV6_TOO_BIG, 0) => {
                let (server, client) = quoted_v6(quoted)?;
                (
                    u32::from_be_bytes([icmp[4], icmp[5], icmp[6], icmp[7]]),
                    server,
                    client,
                    IPV6_BYTES,
                )
            }
            _ => return None,
        };
        let tcp = &quoted.get(ip_bytes..ip_bytes + QUOTED_BYTES)?;
        let is_right = || packet.is_header_right(frame) && packet.is_message_right(frame);
        if offload.checksum == Checksum::Unverified && !is_right() {
            return Some(Err(()));
        }
        let key = FlowKey {
            client,
            server,
            client_port: u16::from_be_bytes([tcp[2], tcp[3]]),
            server_port: u16::from_be_bytes([tcp[0], tcp[1]]),
            vlans: packet.tags.vlans(),
        };
        let seq = Seq(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]));
        Some(Ok(Self {
            key,
            seq,
            mtu,
            seq_at: at + ICMP_BYTES + ip_bytes + 4,
            checksum_at: at + 2,
        }))
    }

    /// The frame with another number.
    pub(crate) fn renumber(&self, frame: &mut [u8], seq: Seq) {
        let (old, new) = (self.seq.0.to_be_bytes(), seq.0.to_be_bytes());
        frame[self.seq_at..self.seq_at + 4].copy_from_slice(&new);
        // RFC 1624: the sum loses the old number and gets the new one.
        let field = [frame[self.checksum_at], frame[self.checksum_at + 1]];
        let rest = checksum::add(!u16::from_be_bytes(field), !checksum::sum(&old));
        let sum = !checksum::add(rest, checksum::sum(&new));
        frame[self.checksum_at..self.checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

/// From whom to whom a quoted packet of TCP was; its total length is that of the packet, not of the
/// quotation.
fn quoted_v4(quoted: &[u8]) -> Option<(Address, Address)> {
    let ip = Ipv4Packet::new_unchecked(quoted.get(..IPV4_BYTES)?);
    let is_plain =
        ip.version() == 4 && usize::from(ip.header_len()) == IPV4_BYTES && ip.frag_offset() == 0;
    (is_plain && ip.next_header() == IpProtocol::Tcp)
        .then(|| (ip.src_addr().into(), ip.dst_addr().into()))
}

fn quoted_v6(quoted: &[u8]) -> Option<(Address, Address)> {
    let ip = Ipv6Packet::new_unchecked(quoted.get(..IPV6_BYTES)?);
    (ip.version() == 6 && ip.next_header() == IpProtocol::Tcp)
        .then(|| (ip.src_addr().into(), ip.dst_addr().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a segment of 10.0.0.2:80 to 10.0.0.1:4711, number 77, or of the like in
    /// IPv6.
    fn message(v4: bool, mtu: u16) -> Vec<u8> {
        let tcp = [0, 80, 0x12, 0x67, 0, 0, 0, 77];
        let (kind, ip, icmp) = if v4 {
            let quoted = [
                &[0x45, 0, 5, 0xdc, 0, 0, 0x40, 0, 64, 6, 0, 0][..],
                &[10, 0, 0, 2],
                &[10, 0, 0, 1],
            ]
            .concat();
            let icmp = [&[3, 4, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted, &tcp].concat();
            let len = 20 + icmp.len() as u8;
            let ip =
                [&[0x45, 0, 0, len, 0, 0, 0, 0, 64, 1, 0, 0][..], &[192, 0, 2, 1], &[10, 0, 0, 2]]
                    .concat();
            ([8, 0], ip, icmp)
        } else {
            let address = |last| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
            let quoted = [&[0x60, 0, 0, 0, 5, 0xb4, 6, 64][..], &address(2), &address(1)].concat();
            let icmp = [&[2, 0, 0, 0, 0, 0][..], &mtu.to_be_bytes(), &quoted, &tcp].concat();
            let ip = [&[0x60, 0, 0, 0, 0, icmp.len() as u8, 58, 64][..], &address(9), &address(2)]
                .concat();
            ([0x86, 0xdd], ip, icmp)
        };
        let mut frame = [&[2; 12][..], &kind, &ip, &icmp].concat();
        let packet = Packet::parse(&frame).unwrap();
        if v4 {
            let sum = !checksum::sum(&frame[14..34]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        let at = packet.transport_at + 2;
        let sum = !packet.message_sum(&frame);
        frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        frame
    }

    fn parse(frame: &[u8]) -> Option<Result<TooBig, ()>> {
        TooBig::parse(frame, &Packet::parse(frame)?, &Offload::default())
    }

    #[test]
    fn both_versions_are_understood_and_renumbered() {
        for v4 in [true, false] {
            let mut frame = message(v4, 1400);
            let told = parse(&frame).unwrap().unwrap();
            assert_eq!((told.seq, told.mtu), (Seq(77), 1400));
            assert_eq!((told.key.server_port, told.key.client_port), (80, 4711));
            assert_eq!(told.key.client.is_v4(), v4);
            for seq in [Seq(0), Seq(78), Seq(0xffff_0000), Seq(u32::MAX)] {
                parse(&frame).unwrap().unwrap().renumber(&mut frame, seq);
                assert_eq!(parse(&frame).unwrap().unwrap().seq, seq, "the sum is right, too");
            }
        }
    }

    #[test]
    fn pieces_and_wrong_sums_are_none() {
        for v4 in [true, false] {
            let frame = message(v4, 1400);
            for len in 0..frame.len() {
                assert!(!matches!(parse(&frame[..len]), Some(Ok(_))), "{len} bytes");
            }
            let mut wrong = frame.clone();
            wrong[frame.len() - 1] ^= 1;
            assert_eq!(parse(&wrong), Some(Err(())));
            let quoted_protocol = if v4 { 42 + 9 } else { 62 + 6 };
            let mut udp = frame;
            udp[quoted_protocol] = 17;
            assert_eq!(parse(&udp), None);
        }
    }
}
