//! Addresses of either version of IP, and the ends of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv6 address, or an IPv4 address in its mapped form (RFC 4291 section 2.5.5.2), which never
/// is on a wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(u128);

impl Address {
    /// Is this an IPv4 address?
    #[must_use]
    pub fn is_v4(self) -> bool {
        self.0 >> 32 == 0xffff
    }

    /// The address's four bytes, if it is an IPv4 address.
    #[must_use]
    pub fn v4_octets(self) -> Option<[u8; 4]> {
        self.is_v4().then_some((self.0 as u32).to_be_bytes())
    }

    /// The address's 16 bytes; those of an IPv4 address are the mapped form.
    #[must_use]
    pub fn octets(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// The address in the standard library's form.
    #[must_use]
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from_bits(self.0).to_canonical()
    }

    /// What one subscriber has: an IPv4 address, or the first 64 bits of an IPv6 address (RFC 4291
    /// section 2.5.4: the rest is the interface's, and a host may have as many as it likes).
    #[must_use]
    pub fn network(self) -> Self {
        if self.is_v4() { self } else { Self(self.0 >> 64 << 64) }
    }
}

impl From<Ipv4Addr> for Address {
    fn from(address: Ipv4Addr) -> Self {
        Self(0xffff << 32 | u128::from(address.to_bits()))
    }
}

impl From<Ipv6Addr> for Address {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.to_bits())
    }
}

impl From<IpAddr> for Address {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_ip().fmt(f)
    }
}

/// The two ends of a connection. Ports are in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Address of the client.
    pub client: Address,
    /// Address of the server.
    pub server: Address,
    /// TCP port of the client.
    pub client_port: u16,
    /// TCP port of the service.
    pub server_port: u16,
    /// Numbers of the VLANs that both are in, the outer one in the upper half; 0: none. The same
    /// addresses in two VLANs are two machines.
    pub vlans: u32,
}

impl FlowKey {
    /// A fixed encoding of addresses and ports.
    #[must_use]
    pub fn tuple_bytes(&self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..16].copy_from_slice(&self.client.octets());
        bytes[16..32].copy_from_slice(&self.server.octets());
        bytes[32..34].copy_from_slice(&self.client_port.to_be_bytes());
        bytes[34..36].copy_from_slice(&self.server_port.to_be_bytes());
        bytes[36..].copy_from_slice(&self.vlans.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_come_back() {
        for text in ["10.0.0.1", "0.0.0.0", "255.255.255.255", "::", "2001:db8::1", "fe80::1"] {
            let ip: IpAddr = text.parse().unwrap();
            let address = Address::from(ip);
            assert_eq!((address.to_ip(), address.is_v4()), (ip, ip.is_ipv4()), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_has_no_neighbours() {
        let address = Address::from(Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!((address.v4_octets(), address.network()), (Some([10, 1, 2, 3]), address));
    }

    #[test]
    fn an_ipv6_network_is_64_bits() {
        let address = |text: &str| Address::from(text.parse::<Ipv6Addr>().unwrap());
        assert_eq!(address("2001:db8::1:2").network(), address("2001:db8::9").network());
        assert_ne!(address("2001:db8:0:1::1").network(), address("2001:db8::1").network());
    }
}
