//! Networks of servers: that of an existing interface, and the small ones that nicache makes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// The address.
    pub address: IpAddr,
    /// Bits that all in the network have in common.
    pub prefix: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (prefix <= most && !address.is_unspecified()).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is not an address with a prefix; write for example 192.0.2.10/24 or 2001:db8::10/64")
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// A /30 IPv4 network: gateway (this machine) and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subnet {
    network: Ipv4Addr,
}

impl Subnet {
    /// Prefix length of every such network.
    pub(crate) const PREFIX: u8 = 30;

    /// Prefix length of [`server6`](Subnet::server6)'s network.
    pub(crate) const PREFIX6: u8 = 64;

    /// 10.N.0.0/30.
    pub(crate) const fn ten(n: u8) -> Self {
        Self { network: Ipv4Addr::new(10, n, 0, 0) }
    }

    /// Network address.
    pub(crate) const fn network(self) -> Ipv4Addr {
        self.network
    }

    /// This machine's address, the server's default route.
    pub(crate) fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + 1)
    }

    /// The address of the card's own client, on this machine: one of the range that is set aside
    /// for measurements between networks (RFC 2544), so no client has it. What a page says to
    /// this address and to another client, it says to everybody.
    pub(crate) fn rechecker(self) -> Ipv4Addr {
        let [_, second, third, fourth] = self.network.octets();
        Ipv4Addr::new(198, 18, second ^ third, fourth | 1)
    }

    /// The IPv6 network that goes with the IPv4 network: one of those that anybody may use within a
    /// site (RFC 4193), with the IPv4 network's number in it.
    fn network6(self) -> [u16; 4] {
        let [a, b, c, d] = self.network.octets();
        [0xfd6e, 0x6900 | u16::from(a), u16::from_be_bytes([b, c]), u16::from_be_bytes([d, 0])]
    }

    /// This machine's IPv6 address there, the server's default route.
    pub(crate) fn gateway6(self) -> Ipv6Addr {
        let [a, b, c, d] = self.network6();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 1)
    }

    /// The server's IPv6 address.
    pub(crate) fn server6(self) -> Ipv6Addr {
        let [a, b, c, d] = self.network6();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 2)
    }

    /// The server's address.
    pub(crate) fn server(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + 2)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let network: Option<Ipv4Addr> = text.strip_suffix("/30").and_then(|ip| ip.parse().ok());
        match network {
            Some(network)
                if u32::from(network) & 3 == 0
                    && !network.is_loopback()
                    && !network.is_multicast() =>
            {
                Ok(Self { network })
            }
            _ => Err(format!("`{text}` is not a /30 network; write for example 10.77.0.0/30")),
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, Self::PREFIX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets_are_read() {
        let subnet: Subnet = "10.9.0.4/30".parse().unwrap();
        assert_eq!(subnet.server(), Ipv4Addr::new(10, 9, 0, 6));
        for text in ["10.9.0.1/30", "10.9.0.0/24", "127.0.0.0/30", "10.9.0.0"] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
    }
}
