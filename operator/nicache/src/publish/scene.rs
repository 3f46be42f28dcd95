//! What is published for a card, with nothing left open.

use std::net::{IpAddr, SocketAddr};

use crate::options::Subnet;

/// One published port with its default filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Where clients connect.
    pub address: SocketAddr,
    /// The server's port.
    pub server_port: u16,
}

impl Mapping {
    /// The server's port on the network between this machine and it.
    pub(super) fn server(&self, subnet: Subnet) -> SocketAddr {
        let ip = if self.address.is_ipv4() {
            IpAddr::V4(subnet.server())
        } else {
            IpAddr::V6(subnet.server6())
        };
        SocketAddr::new(ip, self.server_port)
    }
}

/// What the rules are made from.
#[derive(Debug, Clone)]
pub(crate) struct Scene<'a> {
    /// Wire TAP.
    pub interface: &'a str,
    /// Network between this machine and the server.
    pub subnet: Subnet,
    /// Published ports.
    pub mappings: &'a [Mapping],
    /// Whether the server may reach other machines.
    pub outgoing: bool,
    /// Number of the card: its rules come after those of lower numbers.
    pub card: usize,
    /// Of so many connections to a published port that its rules see, one is this card's; the
    /// others are for cards that come later.
    pub one_of: usize,
}
