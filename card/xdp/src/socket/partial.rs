//! Frames that never were on a real wire and whose checksum is partial, which AF_XDP does not tell.
//!
//! A virtual interface such as a veth hands over frames of the kernel at its other end as they are,
//! with the sum of the pseudo-header in the checksum field. They are known by just that. A complete
//! checksum has the same value once in 65,536 frames; then the rest of the sum is that of zeros,
//! and completing it again leaves it as it is.

use nicache_checksum::{add, fold, sum};
use nicache_port::{Checksum, ETHERNET_HEADER_BYTES};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_HOP_BY_HOP: u8 = 0;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_FRAGMENT: u8 = 44;
const PROTOCOL_DESTINATION_OPTIONS: u8 = 60;
/// Headers between those of IPv6 and the transport that are looked behind.
const EXTENSIONS_MAX: usize = 3;

/// [`Checksum::Partial`] if the checksum field holds the sum of the pseudo-header, else
/// [`Checksum::Unverified`].
pub(super) fn checksum(frame: &[u8]) -> Checksum {
    partial(frame).unwrap_or(Checksum::Unverified)
}

fn partial(frame: &[u8]) -> Option<Checksum> {
    let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    let mut network = ETHERNET_HEADER_BYTES;
    let mut ethertype = word(network - 2)?;
    for _ in 0..2 {
        if ETHERTYPES_VLAN.contains(&ethertype) {
            network += 4;
            ethertype = word(network - 2)?;
        }
    }
    let (addresses, start, protocol, bytes) = match ethertype {
        ETHERTYPE_IPV4 if word(network + 6)? & 0x3fff == 0 => {
            let header = usize::from(*frame.get(network)? & 0x0f) * 4;
            let bytes = usize::from(word(network + 2)?).checked_sub(header)?;
            (network + 12..network + 20, network + header, *frame.get(network + 9)?, bytes)
        }
        ETHERTYPE_IPV6 => {
            let end = network + 40 + usize::from(word(network + 4)?);
            let (mut protocol, mut start) = (*frame.get(network + 6)?, network + 40);
            for _ in 0..EXTENSIONS_MAX {
                let len = match protocol {
                    PROTOCOL_HOP_BY_HOP | PROTOCOL_DESTINATION_OPTIONS => {
                        8 * (usize::from(*frame.get(start + 1)?) + 1)
                    }
                    // All of its datagram.
                    PROTOCOL_FRAGMENT if word(start + 2)? & 0xfff9 == 0 => 8,
                    _ => break,
                };
                (protocol, start) = (*frame.get(start)?, start + len);
            }
            (network + 8..network + 40, start, protocol, end.checked_sub(start)?)
        }
        _ => return None,
    };
    let offset = match protocol {
        PROTOCOL_TCP => 16,
        PROTOCOL_UDP => 6,
        _ => return None,
    };
    let length = u32::try_from(bytes).ok()?;
    let sum = add(sum(frame.get(addresses)?), fold(u64::from(protocol) + u64::from(length)));
    let is_partial = word(start + offset)? == sum && start + bytes <= frame.len();
    is_partial.then_some(Checksum::Partial { start: start as u16, offset: offset as u16 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// On its own, to find faults of the product's.
    fn sum(bytes: &[u8]) -> u16 {
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let mut sum: u32 = bytes.chunks(2).map(word).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    /// A frame with a partial checksum, where the transport header starts, and the pseudo-header.
    fn frame(ipv6: bool, udp: bool, tags: usize, payload: &[u8]) -> (Vec<u8>, usize, Vec<u8>) {
        let (protocol, header, offset) = if udp { (17, 8, 6) } else { (6, 20, 16) };
        let bytes = (header + payload.len()) as u16;
        let mut frame: Vec<u8> = (1..=12).collect();
        (0..tags).for_each(|_| frame.extend([0x81, 0, 0, 5]));
        let addresses: Vec<u8> = if ipv6 { (100..132).collect() } else { (100..108).collect() };
        if ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(bytes.to_be_bytes());
            frame.extend([protocol, 64]);
        } else {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes).to_be_bytes());
            frame.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        }
        frame.extend(&addresses);
        let start = frame.len();
        frame.extend(vec![7; header]);
        let pseudo = [&addresses[..], &[0, protocol], &bytes.to_be_bytes()].concat();
        frame[start + offset..start + offset + 2].copy_from_slice(&sum(&pseudo).to_be_bytes());
        frame.extend(payload);
        (frame, start, pseudo)
    }

    #[test]
    fn checksums_behind_extension_headers_are_found() {
        let (whole, start, _) = frame(true, false, 0, &[1; 30]);
        let between: [(u8, &[u8]); 3] = [
            (60, &[6, 0, 1, 4, 0, 0, 0, 0]),
            (0, &[60, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0]),
            (44, &[6, 0, 0, 0, 1, 2, 3, 4]),
        ];
        for (next, between) in between {
            let mut longer = [&whole[..start], between, &whole[start..]].concat();
            let bytes = u16::from_be_bytes([longer[18], longer[19]]) + between.len() as u16;
            longer[18..20].copy_from_slice(&bytes.to_be_bytes());
            longer[20] = next;
            let found = Checksum::Partial { start: (start + between.len()) as u16, offset: 16 };
            assert_eq!(checksum(&longer), found, "{next}");
        }
        // One of several parts has a checksum of all.
        let mut part = [&whole[..start], &[6, 0, 0, 1, 1, 2, 3, 4], &whole[start..]].concat();
        part[20] = 44;
        assert_eq!(checksum(&part), Checksum::Unverified);
    }

    #[test]
    fn fragments_and_other_protocols_are_left_alone() {
        let (whole, start, _) = frame(false, false, 0, &[1; 30]);
        assert_eq!(checksum(&whole), Checksum::Partial { start: start as u16, offset: 16 });
        for (at, value) in [(20, 0x20), (23, 1), (12, 0x88), (16, 1)] {
            let mut other = whole.clone();
            other[at] = value;
            assert_eq!(checksum(&other), Checksum::Unverified, "byte {at}");
        }
        for len in 0..whole.len() {
            assert_eq!(checksum(&whole[..len]), Checksum::Unverified, "{len} bytes");
        }
    }

    proptest! {
        /// Partial ones are found; of complete ones, only those are taken for partial that
        /// completing leaves alone.
        #[test]
        fn partial_checksums_are_known_by_their_value(
            ipv6: bool,
            udp: bool,
            tags in 0usize..3,
            payload in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let (mut frame, start, pseudo) = frame(ipv6, udp, tags, &payload);
            let offset = if udp { 6 } else { 16 };
            let found = Checksum::Partial { start: start as u16, offset: offset as u16 };
            prop_assert_eq!(checksum(&frame), found);

            let complete = !sum(&frame[start..]);
            frame[start + offset..start + offset + 2].copy_from_slice(&complete.to_be_bytes());
            prop_assert_eq!(sum(&[&pseudo[..], &frame[start..]].concat()), 0xffff);
            if checksum(&frame) == found {
                prop_assert_eq!(!sum(&frame[start..]), complete);
            }
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            checksum(&bytes);
        }
    }
}
