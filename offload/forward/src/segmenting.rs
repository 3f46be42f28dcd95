//! Segments that are longer than the end takes which they go to: they are sent as super-frames,
//! which whoever sends them cuts.
//!
//! Read first: RFC 9293 section 3.7.1 and RFC 6691 (what an end says it takes is payload and
//! options), RFC 1624.
//!
//! A client of a service by name is told a size before its back end is known, so its first segments
//! may be too long for that one. To tell it by ICMP would do only where ICMP arrives. A super-frame
//! has one header; each segment that it is cut into gets a copy with its own number, lengths and
//! checksum, and FIN and PSH are the last one's (`card/port`, or the kernel).
//!
//! Whoever cuts computes checksums anew, so a whole checksum is looked at before: what was damaged
//! on its way is passed on as it is, and stays damaged.
//!
//! Deliberately absent: fragments, options and extension headers of IP, and urgent data, whose
//! pointer would be wrong in all segments but the first. They are passed on as they are.

use nicache_port::{Checksum, Gso, GsoKind, Offload};
use nicache_tcp::checksum::{add, same, sum};
use nicache_tcp::wire::{CHECKSUM_OFFSET, Flags, HEADER_BYTES_MIN};

use crate::decision::Head;
use crate::packet::Packet;
use crate::view::{TCP, Transport, View};

/// What an end takes of which nothing is known.
pub const ANY_SIZE: u16 = u16::MAX;

const FLAGS: usize = 13;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const IPV4_ADDRESSES: usize = 12;
const IPV6_ADDRESSES: usize = 8;

/// Bytes of the longest IP packet like this one whose segment an end takes.
pub(crate) fn packet_bytes(view: &View, takes: u16) -> u32 {
    (view.transport_at - view.network_at + HEADER_BYTES_MIN) as u32 + u32::from(takes)
}

/// Bytes of payload of each segment that a packet is cut into, whose segments become IP packets of
/// `len` bytes. `takes`: bytes of options and payload that the end takes; `mtu`: bytes of IP that
/// the next link does. `growth`: bytes of options that are still put in. `None`: it is not cut.
pub(crate) fn segment_bytes(
    packet: &Packet<'_>,
    len: usize,
    growth: usize,
    takes: u16,
    mtu: u32,
) -> Option<u16> {
    let view = &packet.view;
    let most = packet_bytes(view, takes).min(mtu) as usize;
    if len <= most {
        return None;
    }
    let Transport::Tcp(segment) = view.transport else { return None };
    let flags = segment.flags;
    if !packet.is_plain() || flags.syn() || flags.rst() || flags.urg() {
        return None;
    }
    let size = most.checked_sub(view.headers_end - view.network_at + growth)?;
    u16::try_from(size).ok().filter(|size| *size > 0)
}

/// The metadata of a packet with this `head` that is cut into segments of `size` bytes of payload.
/// Its checksum is still as it was.
pub(crate) fn cut(head: &Head, network_at: usize, offload: Offload, size: u16) -> Offload {
    let (kind, transport_at) = match head[network_at] >> 4 {
        4 => (GsoKind::Tcp4, network_at + IPV4_BYTES),
        _ => (GsoKind::Tcp6, network_at + IPV6_BYTES),
    };
    let ecn = head[transport_at + FLAGS] & Flags::CWR.0 != 0;
    Offload { gso: Some(Gso { kind, size, header_len: head.len() as u16, ecn }), ..offload }
}

/// Makes the whole checksum of such a packet partial, as whoever cuts it expects. Behind the head
/// are so many bytes, with a sum that counts if nobody has looked at the checksum. `None`: it is
/// wrong.
pub(crate) fn open_checksum(
    head: &mut Head,
    network_at: usize,
    offload: Offload,
    (rest_len, rest_sum): (usize, u16),
) -> Option<Offload> {
    let (addresses, transport_at) = match head[network_at] >> 4 {
        4 => (IPV4_ADDRESSES..IPV4_BYTES, network_at + IPV4_BYTES),
        _ => (IPV6_ADDRESSES..IPV6_BYTES, network_at + IPV6_BYTES),
    };
    let len = head.len() - transport_at + rest_len;
    let addresses = sum(&head[network_at + addresses.start..network_at + addresses.end]);
    let pseudo = add(add(addresses, u16::try_from(len).ok()?), u16::from(TCP));
    let all = add(add(pseudo, sum(&head[transport_at..])), rest_sum);
    if offload.checksum == Checksum::Unverified && !same(all, 0xffff) {
        return None;
    }
    let field = transport_at + CHECKSUM_OFFSET;
    head[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    let checksum = Checksum::Partial { start: transport_at as u16, offset: CHECKSUM_OFFSET as u16 };
    Some(Offload { checksum, ..offload })
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use nicache_port::{Burst, Capabilities, Port, memory_wire, send_with_fallback};
    use nicache_tcp::frame::{self, Addresses, HEADERS_BYTES_MAX, Tags, write_headers};
    use nicache_tcp::{HeadRepr, SackBlocks, Seq, Timestamps};
    use proptest::prelude::*;

    use super::*;
    const SEQ: Seq = Seq(u32::MAX - 700);

    /// A whole frame with this payload, and where its IP header begins.
    fn frame_of(is_v6: bool, repr: HeadRepr, payload: &[u8]) -> (Vec<u8>, usize) {
        let address = |last: u8| match is_v6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(),
            false => Ipv4Addr::new(10, 0, 0, last).into(),
        };
        let addresses = Addresses {
            source_mac: [1; 6],
            destination_mac: [2; 6],
            tags: Tags::default(),
            source: address(1),
            destination: address(2),
        };
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, &repr, payload.len() as u32, 3, &mut headers);
        let mut bytes = [&headers[..len], payload].concat();
        let at = addresses.tcp_at();
        let value = nicache_tcp::checksum::finish(sum(&bytes[at..]));
        bytes[at + CHECKSUM_OFFSET..at + CHECKSUM_OFFSET + 2].copy_from_slice(&value.to_be_bytes());
        (bytes, 14)
    }

    /// Where a frame's head ends, and the size of what it is cut into.
    fn looked_at(bytes: &[u8], offload: Offload, takes: u16, mtu: u32) -> (usize, Option<u16>) {
        let view = View::parse(bytes, 14, bytes.len()).unwrap();
        let packet = Packet { frame: bytes, view, interface: 0, offload };
        (view.headers_end, segment_bytes(&packet, view.packet_len(), 0, takes, mtu))
    }

    proptest! {
        /// What arrives is what was sent, in segments that the end takes, whose headers and
        /// checksums are right; FIN and PSH are the last one's.
        #[test]
        fn segments_are_the_packet(
            is_v6 in any::<bool>(),
            has_timestamps in any::<bool>(),
            blocks in 0u32..=3,
            payload in proptest::collection::vec(any::<u8>(), 1..1400),
            takes in 48u16..1500,
            mtu in 200u32..1500,
            kind in 0u8..3,
        ) {
            let mut sack = SackBlocks::EMPTY;
            for number in 0..blocks {
                sack.push(Seq(100 * number), Seq(100 * number + 50));
            }
            let repr = HeadRepr {
                seq: SEQ,
                flags: Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR,
                window: 9,
                timestamps: has_timestamps.then_some(Timestamps { val: 1, ecr: 2 }),
                sack,
                ..HeadRepr::default()
            };
            let (mut bytes, network_at) = frame_of(is_v6, repr, &payload);
            let packet = frame::Packet::parse(&bytes).unwrap();
            let field = packet.transport_at + CHECKSUM_OFFSET;
            let checksum = match kind {
                0 => Checksum::Unverified,
                1 => Checksum::Valid,
                _ => {
                    let pseudo = packet.pseudo_header_sum(&bytes).to_be_bytes();
                    bytes[field..field + 2].copy_from_slice(&pseudo);
                    Checksum::Partial { start: packet.transport_at as u16, offset: 16 }
                }
            };
            let offload = Offload { checksum, gso: None };
            let (head_len, size) = looked_at(&bytes, offload, takes, mtu);
            let before = packet.transport_at - network_at + HEADER_BYTES_MIN;
            let most = (before + usize::from(takes)).min(mtu as usize);
            prop_assert_eq!(size.is_some(), bytes.len() - network_at > most);
            let Some(size) = size else { return Ok(()) };
            let mut head = Head::new();
            head.try_extend_from_slice(&bytes[..head_len]).unwrap();
            let mut offload = cut(&head, network_at, offload, size);
            if kind < 2 {
                let rest = (payload.len(), sum(&payload));
                offload = open_checksum(&mut head, network_at, offload, rest).unwrap();
            }
            let (mut near, mut far) =
                memory_wire(2048, Capabilities::PLAIN, Capabilities::PLAIN);
            let parts = [IoSlice::new(&head), IoSlice::new(&payload)];
            let count = send_with_fallback(&mut near, &parts, offload).unwrap();
            near.flush().unwrap();
            let mut burst = Burst::new(2048);
            far.receive(&mut burst).unwrap();
            prop_assert_eq!(burst.len(), count);
            let mut arrived = Vec::<u8>::new();
            for (number, got) in burst.frames().iter().enumerate() {
                let bytes = got.data();
                let packet = frame::Packet::parse(bytes).unwrap();
                prop_assert!(packet.is_header_right(bytes) && packet.is_segment_right(bytes));
                prop_assert!(packet.end == bytes.len() && bytes.len() - network_at <= most);
                let tcp = nicache_tcp::parse(&bytes[packet.transport_at..]).unwrap();
                prop_assert_eq!(tcp.seq, SEQ + arrived.len() as u32);
                prop_assert_eq!((tcp.timestamps, tcp.sack), (repr.timestamps, sack));
                let is_last = number + 1 == count;
                prop_assert_eq!(
                    (tcp.flags.fin(), tcp.flags.psh(), tcp.flags.contains(Flags::CWR)),
                    (is_last, is_last, number == 0)
                );
                arrived.extend(&bytes[packet.transport_at + tcp.header_len..]);
            }
            prop_assert!(arrived == payload);
        }

        /// What was damaged on its way stays so: no checksum is computed for it.
        #[test]
        fn damage_is_not_covered_up(is_v6 in any::<bool>(), at in 0usize..1000, bit in 0u8..8) {
            let payload = [7; 1000];
            let repr = HeadRepr { seq: SEQ, flags: Flags::ACK, ..HeadRepr::default() };
            let (mut bytes, network_at) = frame_of(is_v6, repr, &payload);
            let (head_len, size) = looked_at(&bytes, Offload::default(), 500, 1500);
            bytes[head_len + at] ^= 1 << bit;
            let mut head = Head::new();
            head.try_extend_from_slice(&bytes[..head_len]).unwrap();
            let before = head.clone();
            let offload = cut(&head, network_at, Offload::default(), size.unwrap());
            let rest = (payload.len(), sum(&bytes[head_len..]));
            prop_assert_eq!(open_checksum(&mut head, network_at, offload, rest), None);
            prop_assert_eq!(head, before);
        }
    }

    #[test]
    fn what_cannot_be_cut_is_not() {
        let frame = |flags: Flags| {
            let repr = HeadRepr { seq: SEQ, flags, ..HeadRepr::default() };
            frame_of(false, repr, &[7; 1000]).0
        };
        let size = |bytes: &[u8]| looked_at(bytes, Offload::default(), 500, 1500).1;
        assert_eq!(size(&frame(Flags::ACK)), Some(500));
        for flags in [Flags::SYN, Flags::RST, Flags::ACK | Flags::URG] {
            assert_eq!(size(&frame(flags)), None, "{flags:?}");
        }
        // A fragment, of which more follow.
        let mut bytes = frame(Flags::ACK);
        bytes[20] = 0x20;
        assert_eq!(size(&bytes), None);
    }
}
