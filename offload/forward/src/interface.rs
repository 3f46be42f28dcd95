//! The interfaces of a forwarder: a port, or a VLAN on one.

use std::net::IpAddr;

use nicache_tcp::frame::{Mac, Tags};

use crate::prefix::Prefix;

/// An interface of a forwarder: a port, or a VLAN on one.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The port of the card.
    pub port: u8,
    /// VLAN tags of its frames.
    pub tags: Tags,
    /// Its MAC address.
    pub mac: Mac,
    /// Its addresses, each with the length of the link's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Bytes of the longest IP packet that the link takes.
    pub mtu: u32,
    /// What leaves here gets one of these external addresses, by their numbers, unless it came from
    /// here. None: it keeps its own. With some, but none of its version of IP, it does not leave.
    pub masquerade: Vec<usize>,
}

impl Interface {
    /// The address with which it speaks to a neighbour: one of the same link, or else one of the
    /// same version of IP.
    pub fn address_for(&self, neighbour: IpAddr) -> Option<IpAddr> {
        let is_same = |address: &&(IpAddr, u8)| address.0.is_ipv4() == neighbour.is_ipv4();
        let on_link = |(address, len): &&(IpAddr, u8)| {
            Prefix::new(*address, *len).is_some_and(|prefix| prefix.contains(neighbour))
        };
        let found = self.addresses.iter().filter(is_same).find(on_link);
        found.or_else(|| self.addresses.iter().find(is_same)).map(|(address, _)| *address)
    }
}
