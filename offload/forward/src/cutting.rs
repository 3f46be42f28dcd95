//! Packets of IPv4 that are longer than the next link takes, and may be cut (RFC 791 section 3.2).
//!
//! Headers alone are looked at, as everywhere: a piece is a head of its own, and a range of the
//! bytes that follow. A checksum that somebody further on was to complete is completed first, from
//! the sum of the payload that the card tells.
//!
//! Deliberately absent: packets with options, of which each piece would get some. Their senders are
//! told that they are too long.

use std::ops::Range;

use nicache_port::{Checksum, Offload};
use nicache_tcp::checksum::{add, finish, sum};

use crate::decision::Head;
use crate::view::UDP;

const IPV4_BYTES: usize = 20;
/// What each link takes (RFC 791 section 3.2).
const MTU_MIN: usize = 68;
const LENGTH: usize = 2;
const FRAGMENT: usize = 6;
const CHECKSUM: usize = 10;
const PROTOCOL: usize = 9;
const MORE: u16 = 0x2000;
const DO_NOT: u16 = 0x4000;
const OFFSET: u16 = 0x1fff;

/// Whether a packet that begins here may be cut.
pub(crate) fn may_cut(network: &[u8]) -> bool {
    network.len() >= IPV4_BYTES && network[0] == 0x45 && half(network, FRAGMENT) & DO_NOT == 0
}

/// Completes a checksum that is partial; `payload` is the sum of the bytes behind the head. Returns
/// what is left to do. `None`: the positions are not of this head.
pub(crate) fn complete(
    head: &mut Head,
    network_at: usize,
    offload: Offload,
    payload: u16,
) -> Option<Offload> {
    let Checksum::Partial { start, offset } = offload.checksum else { return Some(offload) };
    let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
    if field + 2 > head.len() {
        return None;
    }
    // The field has the sum of the pseudo-header, as it should for this.
    let all = add(sum(&head[start..]), payload);
    let value = match finish(all) {
        0 if head[network_at + PROTOCOL] == UDP => 0xffff,
        value => value,
    };
    head[field..field + 2].copy_from_slice(&value.to_be_bytes());
    Some(Offload::default())
}

/// The head of a piece, and which bytes follow it: those of `rest` for a packet with this `head`,
/// whose IP header is at `network_at`. `None`: there are no further pieces.
pub(crate) fn piece(
    head: &[u8],
    network_at: usize,
    rest: &Range<usize>,
    mtu: u32,
    number: usize,
    into: &mut Head,
) -> Option<Range<usize>> {
    let in_head = head.len() - network_at - IPV4_BYTES;
    let all = in_head + rest.len();
    let unit = ((mtu as usize).max(MTU_MIN) - IPV4_BYTES) & !7;
    let from = number * unit;
    if from >= all {
        return None;
    }
    let to = all.min(from + unit);
    // No header of TCP or UDP is as long as the shortest link's packets.
    let headers_end = if number == 0 { head.len() } else { network_at + IPV4_BYTES };
    into.clear();
    into.try_extend_from_slice(&head[..headers_end]).ok()?;
    let network = &mut into[network_at..network_at + IPV4_BYTES];
    let old = half(network, FRAGMENT);
    let offset = (old & OFFSET) + (from / 8) as u16;
    let more = if to < all { MORE } else { old & MORE };
    put(network, LENGTH, (IPV4_BYTES + to - from) as u16);
    put(network, FRAGMENT, offset | more);
    put(network, CHECKSUM, 0);
    let value = finish(sum(network));
    put(network, CHECKSUM, value);
    let at = |place: usize| rest.start + place.saturating_sub(in_head);
    Some(at(from)..at(to))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Put together again, the pieces are the packet: each fits the link, all but the last end
        /// at a multiple of eight, and their headers are right.
        #[test]
        fn pieces_are_the_packet(
            len in 8usize..9000,
            mtu in 576u32..3000,
            first_offset in 0u16..100,
            more in any::<bool>(),
        ) {
            let mut head = Head::new();
            head.try_extend_from_slice(&[0; 14]).unwrap();
            let fragment = first_offset | if more { MORE } else { 0 };
            let mut ip = [0x45, 0, 0, 0, 7, 7, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
            put(&mut ip, FRAGMENT, fragment);
            head.try_extend_from_slice(&ip).unwrap();
            head.try_extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
            let rest = 42..42 + len - 8;
            let (mut into, mut seen, mut bytes) = (Head::new(), 0, 0);
            for number in 0.. {
                let Some(range) = piece(&head, 14, &rest, mtu, number, &mut into) else { break };
                let network = &into[14..34];
                prop_assert_eq!(finish(sum(network)), 0);
                let length = usize::from(half(network, LENGTH));
                prop_assert!(length <= mtu as usize && length == into.len() - 14 + range.len());
                let fields = half(network, FRAGMENT);
                prop_assert_eq!(
                    usize::from(fields & OFFSET) * 8,
                    usize::from(first_offset) * 8 + seen
                );
                seen += length - 20;
                prop_assert_eq!(fields & MORE != 0, seen < len || more);
                prop_assert!(seen == len || (length - 20) % 8 == 0);
                prop_assert_eq!(range.start, 42 + bytes);
                bytes += range.len();
            }
            prop_assert_eq!((seen, bytes), (len, rest.len()));
        }
    }

    #[test]
    fn a_partial_checksum_becomes_whole() {
        let payload = [9u8; 100];
        let mut head = Head::new();
        head.try_extend_from_slice(&[0; 14]).unwrap();
        head.try_extend_from_slice(&[
            0x45, 0, 0, 128, 7, 7, 0, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ])
        .unwrap();
        let pseudo = nicache_tcp::checksum::add(sum(&head[26..34]), u16::from(UDP) + 108);
        head.try_extend_from_slice(&[0, 9, 0, 9, 0, 108]).unwrap();
        head.try_extend_from_slice(&pseudo.to_be_bytes()).unwrap();
        let offload = Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: None };
        assert_eq!(complete(&mut head, 14, offload, sum(&payload)), Some(Offload::default()));
        let whole = add(
            add(sum(&head[26..34]), u16::from(UDP) + 108),
            add(sum(&head[34..]), sum(&payload)),
        );
        assert_eq!(finish(whole), 0);
        // RFC 768: 0 means none. With this in the payload, that is what the sum comes to.
        let field = |head: &Head| u16::from_be_bytes([head[40], head[41]]);
        let rest = field(&head);
        let partial = pseudo.to_be_bytes();
        head[40..42].copy_from_slice(&partial);
        assert!(complete(&mut head, 14, offload, add(sum(&payload), rest)).is_some());
        assert_eq!(field(&head), 0xffff);
    }
}
