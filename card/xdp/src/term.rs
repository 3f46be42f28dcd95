//! Which connections pass without a card: the terms of cards, and what is lost at the end of each
//! (`term` and `lost` in `ebpf/steer.bpf.c`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use crate::maps;

/// A TCP connection of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
}

/// The key of an array with one entry.
const ONLY: [u8; 4] = [0; 4];

/// Bytes of `struct flow`.
const KEY_BYTES: usize = 36;

impl Connection {
    /// The key in the tables: addresses, IPv4 mapped into IPv6, and ports, as on the wire.
    fn key(&self) -> [u8; KEY_BYTES] {
        let octets = |end: &SocketAddr| match end.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&octets(&self.client));
        key[16..32].copy_from_slice(&octets(&self.server));
        key[32..34].copy_from_slice(&self.client.port().to_be_bytes());
        key[34..].copy_from_slice(&self.server.port().to_be_bytes());
        key
    }
}

/// The maps.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) heartbeat: OwnedFd,
    pub(crate) term: OwnedFd,
    pub(crate) lost: OwnedFd,
    pub(crate) begun: OwnedFd,
}

impl Terms {
    pub(crate) fn begin(&self) -> io::Result<()> {
        self.set(self.number()?.wrapping_add(1), false)
    }

    pub(crate) fn end(&self, lost: impl IntoIterator<Item = Connection>) -> io::Result<()> {
        let number = self.number()?;
        self.set(number, false)?;
        let until_ns: [u8; 8] = maps::get(self.heartbeat.as_fd(), ONLY)?;
        // Its last beat may have been just now.
        maps::set(self.heartbeat.as_fd(), ONLY, [0; 8])?;
        maps::clear::<KEY_BYTES>(self.lost.as_fd())?;
        let gaps = [until_ns, [0; 8]].map(|until_ns| gap(until_ns, number));
        for connection in lost {
            let begun = maps::find(self.begun.as_fd(), connection.key())?;
            // Its client may have begun it anew meanwhile.
            if !begun.is_some_and(|begun| gaps.contains(&begun)) {
                maps::set(self.lost.as_fd(), connection.key(), 1u32.to_ne_bytes())?;
            }
        }
        self.set(number, true)
    }

    fn number(&self) -> io::Result<u32> {
        let [a, b, c, d, ..]: [u8; 8] = maps::get(self.term.as_fd(), ONLY)?;
        Ok(u32::from_ne_bytes([a, b, c, d]))
    }

    fn set(&self, number: u32, is_lost_known: bool) -> io::Result<()> {
        let mut term = [0; 8];
        term[..4].copy_from_slice(&number.to_ne_bytes());
        term[4..].copy_from_slice(&u32::from(is_lost_known).to_ne_bytes());
        maps::set(self.term.as_fd(), ONLY, term)
    }
}

/// `struct gap`.
fn gap(until_ns: [u8; 8], number: u32) -> [u8; 16] {
    let mut gap = [0; 16];
    gap[..8].copy_from_slice(&until_ns);
    gap[8..].copy_from_slice(&u64::from(number).to_ne_bytes());
    gap
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_programs() {
        let connection = Connection {
            client: "10.1.2.3:4660".parse().unwrap(),
            server: "[fd00::1]:80".parse().unwrap(),
        };
        let key = connection.key();
        assert_eq!(key[10..16], [0xff, 0xff, 10, 1, 2, 3]);
        assert_eq!((key[16], key[31]), (0xfd, 1));
        assert_eq!(key[32..], [0x12, 0x34, 0, 80]);
    }
}
