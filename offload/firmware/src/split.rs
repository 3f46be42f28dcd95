//! Where the headers of a frame end and its payload begins.
//!
//! Read first: RFC 791 section 3.1, RFC 8200 section 4, RFC 9293 section 3.1. Only what a card
//! needs: TCP, UDP, and later fragments of anything. All else is not split.

use nicache_bus::descriptor::HEADER_BYTES_MAX;

const ETHERNET_ADDRESSES: usize = 12;
/// VLAN tags that are looked behind.
const TAGS_MAX: usize = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Extension headers of IPv6 that are walked through: hop-by-hop, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;

/// What is behind Ethernet and VLAN tags, and where: IPv4 (4), IPv6 (6), or nothing that is known.
pub(crate) fn network(frame: &[u8]) -> Option<(u8, usize)> {
    let mut at = ETHERNET_ADDRESSES;
    for _ in 0..=TAGS_MAX {
        match frame.get(at..at + 2)? {
            [0x81, 0] | [0x88, 0xa8] => at += 4,
            [8, 0] => return Some((4, at + 2)),
            [0x86, 0xdd] => return Some((6, at + 2)),
            _ => return None,
        }
    }
    None
}

/// Bytes of headers. `None`: the frame has none that are known, or they are longer than can be
/// told.
pub(crate) fn header_len(frame: &[u8]) -> Option<usize> {
    let (version, at) = network(frame)?;
    let (protocol, at, is_later) = match version {
        4 => {
            let words = frame.get(at)? & 15;
            let place = u16::from_be_bytes([*frame.get(at + 6)?, *frame.get(at + 7)?]);
            (*frame.get(at + 9)?, at + usize::from(words) * 4, place & 0x1fff != 0)
        }
        _ => ipv6(frame, at)?,
    };
    let end = match protocol {
        _ if is_later => at,
        TCP => at + usize::from(frame.get(at + 12)? >> 4) * 4,
        UDP => at + 8,
        _ => return None,
    };
    (end <= HEADER_BYTES_MAX && end <= frame.len()).then_some(end)
}

fn ipv6(frame: &[u8], at: usize) -> Option<(u8, usize, bool)> {
    let mut protocol = *frame.get(at + 6)?;
    let mut at = at + 40;
    // Each of them has 8 bytes at least, and headers that are longer than can be told are not
    // split.
    while at <= HEADER_BYTES_MAX {
        if protocol == FRAGMENT {
            let place = u16::from_be_bytes([*frame.get(at + 2)?, *frame.get(at + 3)?]);
            (protocol, at) = (*frame.get(at)?, at + 8);
            if place & !7 != 0 {
                return Some((protocol, at, true));
            }
        } else if EXTENSIONS.contains(&protocol) {
            (protocol, at) = (*frame.get(at)?, at + 8 + usize::from(*frame.get(at + 1)?) * 8);
        } else {
            return Some((protocol, at, false));
        }
    }
    None
}
