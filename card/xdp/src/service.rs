//! What a card serves, as the programs at the interfaces know it (`struct service` in
//! `ebpf/service.h`).

use std::net::{IpAddr, Ipv6Addr};

/// Most services that can be steered.
pub const SERVICES_MAX: usize = 1024;

/// A TCP port whose connections go to the card, of one address or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Service {
    /// The server's address, IPv4 or IPv6; `None`: whichever.
    pub address: Option<IpAddr>,
    /// The server's port.
    pub port: u16,
}

/// Bytes of a key.
const KEY_BYTES: usize = 20;

impl Service {
    /// A port at all addresses.
    pub fn port(port: u16) -> Self {
        Self { address: None, port }
    }

    /// The key in the table: address, IPv4 mapped into IPv6, and port, as on the wire.
    pub(crate) fn key(&self) -> [u8; KEY_BYTES] {
        let address = match self.address {
            None => Ipv6Addr::UNSPECIFIED,
            Some(IpAddr::V4(address)) => address.to_ipv6_mapped(),
            Some(IpAddr::V6(address)) => address,
        };
        let mut key = [0; KEY_BYTES];
        key[..16].copy_from_slice(&address.octets());
        key[16..18].copy_from_slice(&self.port.to_be_bytes());
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_programs() {
        let service = Service { address: Some("10.1.2.3".parse().unwrap()), port: 0x1234 };
        assert_eq!(service.key()[10..], [0xff, 0xff, 10, 1, 2, 3, 0x12, 0x34, 0, 0]);
        assert_eq!(Service::port(80).key()[..18], [&[0; 16][..], &[0, 80]].concat());
    }
}
