//! Who speaks with whom: what a connection is known by.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// What connections are told apart by beside their ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
    /// Queries of ICMP and ICMPv6 (echo): their identifier stands where the port of the asking end
    /// would.
    Query,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Query => "icmp",
        })
    }
}

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port, or the identifier of a query.
    pub port: u16,
}

impl Endpoint {
    /// An address with a port.
    pub fn new(address: impl Into<IpAddr>, port: u16) -> Self {
        Self { address: address.into(), port }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address: address.ip(), port: address.port() }
    }
}

/// One direction of a connection. Both ends have the same version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tuple {
    /// See [`Protocol`].
    pub protocol: Protocol,
    /// Who sends.
    pub source: Endpoint,
    /// Who receives.
    pub destination: Endpoint,
}

impl Tuple {
    /// Something for places that are empty.
    pub(crate) const NOBODY: Self = {
        let nobody = Endpoint { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: 0 };
        Self { protocol: Protocol::Tcp, source: nobody, destination: nobody }
    };

    /// The tuple of packets in the other direction.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { protocol: self.protocol, source: self.destination, destination: self.source }
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} > {}", self.protocol, self.source, self.destination)
    }
}
