//! Headers changed in place, with their checksums brought up to date (RFC 1624, equation 3).
//!
//! A checksum over the payload is never computed anew: the payload may be on the card, and a packet
//! that was damaged on its way must stay so.

use std::net::IpAddr;

use nicache_tcp::checksum::{add, sub, sum, update};

use crate::tuple::Tuple;
use crate::view::{Transport, UDP, View};

const IPV4_TTL: usize = 8;
const IPV4_CHECKSUM: usize = 10;
const IPV4_ADDRESSES: usize = 12;
const IPV6_HOPS: usize = 7;
const IPV6_ADDRESSES: usize = 8;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;
const ICMP_CHECKSUM: usize = 2;
const QUERY_IDENTIFIER: usize = 4;

/// Gives a packet the ends of `to`: addresses, ports or identifier. `is_partial`: the checksum
/// field has the sum of the pseudo-header alone, and somebody further on completes it. Of a packet
/// that is quoted and cut off, what is there is changed.
///
/// # Panics
/// If `view` is not of these bytes, or `to` is of the other version of IP.
pub fn translate(bytes: &mut [u8], view: &View, to: &Tuple, is_partial: bool) {
    let (old_addresses, new_addresses) =
        readdress(bytes, view, to.source.address, to.destination.address);
    let at = view.transport_at;
    match view.transport {
        Transport::Tcp(_) | Transport::Udp { .. } => {
            let old = sum(&bytes[at..at + 4]);
            bytes[at..at + 2].copy_from_slice(&to.source.port.to_be_bytes());
            bytes[at + 2..at + 4].copy_from_slice(&to.destination.port.to_be_bytes());
            let new = sum(&bytes[at..at + 4]);
            let is_udp = view.protocol == UDP;
            if matches!(view.transport, Transport::Udp { has_checksum: false }) && !is_partial {
                return;
            }
            let field_at = at + if is_udp { UDP_CHECKSUM } else { TCP_CHECKSUM };
            change(bytes, field_at, is_partial, (old_addresses, new_addresses), (old, new), is_udp);
        }
        Transport::Query { is_request } => {
            let identifier = if is_request { to.source.port } else { to.destination.port };
            let field = at + QUERY_IDENTIFIER;
            let old = sum(&bytes[field..field + 2]);
            bytes[field..field + 2].copy_from_slice(&identifier.to_be_bytes());
            let pseudo =
                if view.source.is_ipv6() { (old_addresses, new_addresses) } else { (0, 0) };
            change(bytes, at + ICMP_CHECKSUM, is_partial, pseudo, (old, identifier), false);
        }
        Transport::Error(_) if view.source.is_ipv6() => {
            change(
                bytes,
                at + ICMP_CHECKSUM,
                is_partial,
                (old_addresses, new_addresses),
                (0, 0),
                false,
            );
        }
        Transport::Error(_) | Transport::Other | Transport::Later => {}
    }
}

/// Gives a packet other addresses, and nothing else: later fragments, and the outer header of
/// errors. Returns the sums of old and new addresses.
///
/// # Panics
/// As [`translate`].
pub fn readdress(bytes: &mut [u8], view: &View, source: IpAddr, destination: IpAddr) -> (u16, u16) {
    let at = view.network_at;
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            assert!(view.source.is_ipv4(), "addresses of another version");
            let range = at + IPV4_ADDRESSES..at + IPV4_ADDRESSES + 8;
            let old = sum(&bytes[range.clone()]);
            bytes[range.start..range.start + 4].copy_from_slice(&source.octets());
            bytes[range.start + 4..range.end].copy_from_slice(&destination.octets());
            let new = sum(&bytes[range]);
            let field = word(bytes, at + IPV4_CHECKSUM);
            put(bytes, at + IPV4_CHECKSUM, update(field, old, new));
            (old, new)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            assert!(view.source.is_ipv6(), "addresses of another version");
            let range = at + IPV6_ADDRESSES..at + IPV6_ADDRESSES + 32;
            let old = sum(&bytes[range.clone()]);
            bytes[range.start..range.start + 16].copy_from_slice(&source.octets());
            bytes[range.start + 16..range.end].copy_from_slice(&destination.octets());
            (old, sum(&bytes[range]))
        }
        _ => panic!("addresses of two versions"),
    }
}

/// One router more has passed the packet on. There must be hops left.
pub fn decrement_hops(bytes: &mut [u8], view: &View) {
    let at = view.network_at;
    if view.source.is_ipv4() {
        let old = word(bytes, at + IPV4_TTL);
        bytes[at + IPV4_TTL] -= 1;
        let new = word(bytes, at + IPV4_TTL);
        let field = word(bytes, at + IPV4_CHECKSUM);
        put(bytes, at + IPV4_CHECKSUM, update(field, old, new));
    } else {
        bytes[at + IPV6_HOPS] -= 1;
    }
}

/// Brings the checksum of an ICMP message up to date after a part of it changed that began at an
/// even place: `old` and `new` are that part's sums.
pub(crate) fn change_icmp(bytes: &mut [u8], view: &View, old: u16, new: u16) {
    change(bytes, view.transport_at + ICMP_CHECKSUM, false, (0, 0), (old, new), false);
}

/// `pseudo` and `own` are sums before and after, of the pseudo-header and of what the checksum
/// covers itself.
fn change(
    bytes: &mut [u8],
    at: usize,
    is_partial: bool,
    pseudo: (u16, u16),
    own: (u16, u16),
    is_udp: bool,
) {
    // A packet that is quoted may end before.
    if at + 2 > bytes.len() {
        return;
    }
    let field = word(bytes, at);
    let changed = if is_partial {
        // It is a sum, and what it does not cover yet counts later.
        add(sub(field, pseudo.0), pseudo.1)
    } else {
        match update(field, add(pseudo.0, own.0), add(pseudo.1, own.1)) {
            // 0 would mean "no checksum" (RFC 768).
            0 if is_udp => 0xffff,
            changed => changed,
        }
    };
    put(bytes, at, changed);
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
