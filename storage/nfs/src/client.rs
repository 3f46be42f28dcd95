//! Which clients may use an export, and how.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::credential::{Anonymous, Squash};

/// An address and those that begin like it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

/// A network must be an IP address, or one with a prefix length: 10.0.0.0/8, fd00::/8, 192.0.2.7.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("'{0}' is not a network: an IP address, or one with a prefix length such as 10.0.0.0/8")]
pub struct NetworkError(String);

impl Network {
    /// Every IPv4 and IPv6 address.
    pub const ALL: [Self; 2] = [
        Self { address: IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), prefix_bits: 0 },
        Self { address: IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED), prefix_bits: 0 },
    ];

    /// Whether `address` belongs to it. An IPv4 address that is mapped into IPv6 counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits())
                    .checked_shr(32 - u32::from(self.prefix_bits))
                    .unwrap_or(0)
                    == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits())
                    .checked_shr(128 - u32::from(self.prefix_bits))
                    .unwrap_or(0)
                    == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let error = || NetworkError(text.to_owned());
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| error())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits =
            prefix.map_or(Ok(bits_max), |prefix| prefix.parse().map_err(|_| error()))?;
        if prefix_bits > bits_max {
            return Err(error());
        }
        Ok(Self { address, prefix_bits })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

/// What the clients of a network may do. The first rule of an export that has the client's address
/// decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRule {
    /// Whom it is for.
    pub network: Network,
    /// Whether nothing may be changed.
    pub is_read_only: bool,
    /// Whose word is not taken.
    pub squash: Squash,
    /// Who stands for those.
    pub anonymous: Anonymous,
    /// Whether requests must come from a port below 1024, which only a client's superuser can use.
    /// Without it, any user of the client can claim to be any other.
    pub needs_reserved_port: bool,
}

impl ClientRule {
    /// A rule for `network`: reading and writing, root squashed, reserved ports only.
    #[must_use]
    pub fn new(network: Network) -> Self {
        Self {
            network,
            is_read_only: false,
            squash: Squash::default(),
            anonymous: Anonymous::default(),
            needs_reserved_port: true,
        }
    }

    /// The rule for a client, if it may use the export at all.
    #[must_use]
    pub fn find(rules: &[Self], peer: SocketAddr) -> Option<Self> {
        let rule = rules.iter().find(|rule| rule.network.contains(peer.ip()))?;
        (!rule.needs_reserved_port || peer.port() < 1024).then_some(*rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let inside = |network: &str, address: &str| {
            network.parse::<Network>().unwrap().contains(address.parse().unwrap())
        };
        assert!(inside("10.0.0.0/8", "10.255.0.1") && !inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("10.0.0.1", "10.0.0.1") && !inside("10.0.0.1", "10.0.0.2"));
        assert!(inside("0.0.0.0/0", "1.2.3.4") && !inside("0.0.0.0/0", "::1"));
        assert!(inside("10.0.0.0/8", "::ffff:10.1.1.1"));
        assert!(
            inside("fd00::/8", "fd12::1")
                && !inside("fd00::/8", "fe80::1")
                && inside("::/0", "::1")
        );
        for bad in ["", "10.0.0.0/33", "x", "10.0.0.0/", "::/129", "10.0.0.0/-1"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn the_first_rule_decides() {
        let closed =
            ClientRule { is_read_only: true, ..ClientRule::new("10.0.0.7".parse().unwrap()) };
        let open = ClientRule {
            needs_reserved_port: false,
            ..ClientRule::new("10.0.0.0/8".parse().unwrap())
        };
        let rules = [closed, open];
        assert_eq!(ClientRule::find(&rules, "10.0.0.7:700".parse().unwrap()), Some(closed));
        assert_eq!(ClientRule::find(&rules, "10.0.0.7:7000".parse().unwrap()), None);
        assert_eq!(ClientRule::find(&rules, "10.0.0.8:7000".parse().unwrap()), Some(open));
        assert_eq!(ClientRule::find(&rules, "192.0.2.1:7".parse().unwrap()), None);
    }
}
