//! Keys and values of the maps, as `ebpf/forward.bpf.c` has them.
//!
//! Numbers are in the machine's byte order, what stands in packets is in that of the network.

use std::net::IpAddr;

use nicache_forward::fast_path::{Moved, Numbers, Passed, Way};
use nicache_forward::tuple::{Protocol, Tuple};
use nicache_tcp::{Seq, Time};

/// Another number for each other form of what is below: after an upgrade, supervisor and forwarder
/// may be of two programs.
pub(crate) const LAYOUT: u32 = 4;
pub(crate) const KEY_BYTES: usize = 44;
pub(crate) const WAY_BYTES: usize = 104;
pub(crate) const SIDE_BYTES: usize = 24;
pub(crate) const NUMBERS_BYTES: usize = 2 * SIDE_BYTES;
pub(crate) const PASSED_BYTES: usize = 48;

/// An interface as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    /// 0: frames without a tag.
    pub(crate) vlan: u16,
}

/// Bytes in a row, up to a length.
struct Row<const LEN: usize> {
    bytes: [u8; LEN],
    at: usize,
}

impl<const LEN: usize> Row<LEN> {
    fn new() -> Self {
        Self { bytes: [0; LEN], at: 0 }
    }

    fn put(mut self, part: &[u8]) -> Self {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
        self
    }
}

/// IPv4 is mapped (RFC 4291 section 2.5.5.2).
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The key of a packet that comes in.
pub(crate) fn key(interface: Interface, tuple: &Tuple) -> [u8; KEY_BYTES] {
    let protocol = match tuple.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
        // Nobody enters one.
        Protocol::Query => 0,
    };
    let row = Row::<KEY_BYTES>::new()
        .put(&mapped(tuple.source.address))
        .put(&mapped(tuple.destination.address));
    let row = row.put(&tuple.source.port.to_be_bytes()).put(&tuple.destination.port.to_be_bytes());
    row.put(&interface.vlan.to_ne_bytes())
        .put(&[protocol, 0])
        .put(&interface.index.to_ne_bytes())
        .bytes
}

/// Its way.
pub(crate) fn way(way: &Way, incoming: &Tuple, out: Interface) -> [u8; WAY_BYTES] {
    let sum = difference(incoming, &way.tuple);
    let row =
        Row::<WAY_BYTES>::new().put(&way.until.0.to_ne_bytes()).put(&way.edition.to_ne_bytes());
    let row = row.put(&way.place.to_ne_bytes()).put(&(way.direction as u32).to_ne_bytes());
    let row = row.put(&out.index.to_ne_bytes()).put(&way.mtu.to_ne_bytes()).put(&sum.to_ne_bytes());
    let row =
        row.put(&mapped(way.tuple.source.address)).put(&mapped(way.tuple.destination.address));
    let row = row
        .put(&way.tuple.source.port.to_be_bytes())
        .put(&way.tuple.destination.port.to_be_bytes());
    let row = row.put(&out.vlan.to_ne_bytes()).put(&way.macs);
    let Some(Moved { seq, ack, tsval, tsecr, scales }) = way.moved else { return row.bytes };
    let row = row.put(&[1, scales[0], scales[1], 0, 0, 0]);
    [seq, ack, tsval, tsecr].into_iter().fold(row, |row, delta| row.put(&delta.to_ne_bytes())).bytes
}

/// The sum of the new addresses less that of the old ones, of words as they lie in memory (RFC
/// 1624). 0: they are the same.
fn difference(old: &Tuple, new: &Tuple) -> u32 {
    let ends = |tuple: &Tuple| [tuple.source.address, tuple.destination.address];
    if ends(old) == ends(new) {
        return 0;
    }
    let sum_of = |tuple: &Tuple, change: fn(u16) -> u16| -> u32 {
        let words = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        let bytes = ends(tuple).map(words).concat();
        bytes
            .chunks_exact(2)
            .map(|half| u32::from(change(u16::from_ne_bytes([half[0], half[1]]))))
            .sum()
    };
    // 32 words of 16 bits at most: nothing overflows.
    sum_of(new, |word| word) + sum_of(old, |word| !word)
}

/// The numbers of both ends. `telling`: how often they were told.
pub(crate) fn numbers(numbers: [Numbers; 2], telling: u32) -> [u8; NUMBERS_BYTES] {
    let mut row = Row::<NUMBERS_BYTES>::new();
    for (Numbers { end, max_end, max_window, acked, scale }, telling) in
        numbers.into_iter().zip([0, telling])
    {
        for word in [end.0, max_end.0, max_window, acked.0, u32::from(scale), telling] {
            row = row.put(&word.to_ne_bytes());
        }
    }
    row.bytes
}

/// `None`: the value has another length.
pub(crate) fn read_numbers(bytes: &[u8]) -> Option<[Numbers; 2]> {
    let bytes: &[u8; NUMBERS_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    Some([0, SIDE_BYTES].map(|at| Numbers {
        end: Seq(word(at)),
        max_end: Seq(word(at + 4)),
        max_window: word(at + 8),
        acked: Seq(word(at + 12)),
        scale: word(at + 16) as u8,
    }))
}

/// `None`: the value has another length.
pub(crate) fn read_passed(bytes: &[u8]) -> Option<[Passed; 2]> {
    let bytes: &[u8; PASSED_BYTES] = bytes.try_into().ok()?;
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    Some([0, 24].map(|at| Passed {
        last: Time(word(at)),
        packets: word(at + 8),
        bytes: word(at + 16),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicache_forward::tuple::Endpoint;
    use nicache_tcp::checksum::{add, sum};

    #[test]
    fn numbers_come_back() {
        let one = |first: u32| Numbers {
            end: Seq(first),
            max_end: Seq(first + 1),
            max_window: first + 2,
            acked: Seq(first + 3),
            scale: 7,
        };
        assert_eq!(
            read_numbers(&numbers([one(10), one(u32::MAX - 9)], 7)),
            Some([one(10), one(u32::MAX - 9)])
        );
        assert_eq!(read_numbers(&[0; 47]), None);
    }

    /// Old sum and difference make the new sum.
    #[test]
    fn the_difference_of_addresses() {
        let tuple = |a: &str, b: &str| Tuple {
            protocol: Protocol::Udp,
            source: Endpoint::new(a.parse::<IpAddr>().unwrap(), 1),
            destination: Endpoint::new(b.parse::<IpAddr>().unwrap(), 2),
        };
        for (old, new) in [
            (tuple("10.1.2.3", "192.0.2.9"), tuple("198.51.100.7", "10.255.255.1")),
            (tuple("fd01::2", "2001:db8::ffff"), tuple("fd99:1:2:3::1", "::1")),
        ] {
            let sum_of = |tuple: &Tuple| {
                let bytes = |address: IpAddr| match address {
                    IpAddr::V4(v4) => v4.octets().to_vec(),
                    IpAddr::V6(v6) => v6.octets().to_vec(),
                };
                add(sum(&bytes(tuple.source.address)), sum(&bytes(tuple.destination.address)))
            };
            let difference = difference(&old, &new);
            let folded = (difference & 0xffff) + (difference >> 16);
            let in_network_order = u16::from_be_bytes(
                ((folded & 0xffff) as u16 + (folded >> 16) as u16).to_ne_bytes(),
            );
            assert_eq!(add(sum_of(&old), in_network_order), sum_of(&new));
        }
        assert_eq!(difference(&tuple("10.0.0.1", "10.0.0.2"), &tuple("10.0.0.1", "10.0.0.2")), 0);
    }
}
