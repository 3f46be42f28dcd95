//! The few requests to the kernel's tables that an interface needs: its other end, MAC address,
//! queue, MTU, up, address, default route, and which namespace is where.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// A new one, which must not be there yet.
const NEW: u16 = NLM_F_CREATE | NLM_F_EXCL;

/// A connection to the kernel's tables.
#[derive(Debug)]
pub(crate) struct Netlink(nicache_netlink::Netlink);

impl Netlink {
    /// Opens one in the calling thread's network namespace.
    pub(crate) fn open() -> io::Result<Self> {
        nicache_netlink::Netlink::open().map(Self)
    }

    /// Index of an interface, `None` if there is none of this name.
    pub(crate) fn index(&self, name: &str) -> io::Result<Option<u32>> {
        match rustix::net::netdevice::name_to_index(&self.0, name) {
            Ok(index) => Ok(Some(index)),
            Err(rustix::io::Errno::NODEV) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Bytes of an IP packet on an interface at most.
    pub(crate) fn mtu(&self, name: &str) -> io::Result<u32> {
        nicache_port::mtu(&self.0, name).map(|mtu| u32::try_from(mtu).unwrap_or(0))
    }

    /// Makes a pair of interfaces: `name` here, `peer` in another namespace.
    pub(crate) fn add_veth(
        &mut self,
        name: &str,
        peer: &str,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let mut there = LinkMessage::default();
        there.attributes.push(LinkAttribute::IfName(peer.to_owned()));
        there.attributes.push(LinkAttribute::NetNsFd(namespace.as_raw_fd()));
        let pair = InfoData::Veth(InfoVeth::Peer(there));
        let info = vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(pair)];
        let mut message = LinkMessage::default();
        message.attributes.push(LinkAttribute::IfName(name.to_owned()));
        message.attributes.push(LinkAttribute::LinkInfo(info));
        self.request(RouteNetlinkMessage::NewLink(message), NEW)
    }

    /// Gives an interface a MAC address.
    pub(crate) fn set_mac(&mut self, index: u32, mac: [u8; 6]) -> io::Result<()> {
        let message = link(index, [LinkAttribute::Address(mac.to_vec())]);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Lets so many frames wait in an interface's queue.
    pub(crate) fn set_queue(&mut self, index: u32, frames: u32) -> io::Result<()> {
        let message = link(index, [LinkAttribute::TxQueueLen(frames)]);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Brings an interface up, setting its MTU (bytes) if given.
    pub(crate) fn up(&mut self, index: u32, mtu: Option<u32>) -> io::Result<()> {
        let mut message = link(index, mtu.map(LinkAttribute::Mtu));
        (message.header.flags, message.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
        self.request(RouteNetlinkMessage::NewLink(message), 0)
    }

    /// Gives an interface an address.
    pub(crate) fn add_address(
        &mut self,
        index: u32,
        address: IpAddr,
        prefix: u8,
    ) -> io::Result<()> {
        let mut message = AddressMessage::default();
        (message.header.family, message.header.index) = (family(address), index);
        message.header.prefix_len = prefix;
        if address.is_ipv6() {
            // No search for others with the address: it may be used at once.
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        message.attributes =
            vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
        self.request(RouteNetlinkMessage::NewAddress(message), NEW)
    }

    /// Sets the default route of the gateway's version of IP, in a table of its own if that is
    /// given.
    pub(crate) fn add_default_route(
        &mut self,
        index: u32,
        gateway: IpAddr,
        table: Option<u32>,
    ) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = RouteHeader {
            address_family: family(gateway),
            table: RouteHeader::RT_TABLE_MAIN,
            protocol: RouteProtocol::Boot,
            kind: RouteType::Unicast,
            ..RouteHeader::default()
        };
        message.attributes =
            vec![RouteAttribute::Gateway(gateway.into()), RouteAttribute::Oif(index)];
        message.attributes.extend(table.map(RouteAttribute::Table));
        self.request(RouteNetlinkMessage::NewRoute(message), NEW)
    }

    /// What is sent from this address takes the routes of that table.
    pub(crate) fn add_source_rule(&mut self, source: IpAddr, table: u32) -> io::Result<()> {
        let mut message = RuleMessage::default();
        message.header.family = family(source);
        message.header.src_len = if source.is_ipv4() { 32 } else { 128 };
        message.header.action = RuleAction::ToTable;
        message.attributes = vec![RuleAttribute::Source(source), RuleAttribute::Table(table)];
        self.request(RouteNetlinkMessage::NewRule(message), NEW)
    }

    /// The number that this namespace gives to the one in which the other end of a veth is; `None`
    /// if that is here, or there is none.
    pub(crate) fn peer_namespace(&mut self, name: &str) -> io::Result<Option<i32>> {
        let index = self.index(name)?.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("no interface {name}"))
        })?;
        let told = self.0.request(RouteNetlinkMessage::GetLink(link(index, [])), 0)?;
        let attributes = told.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewLink(link) => Some(&link.attributes),
            _ => None,
        });
        Ok(attributes.flatten().find_map(|attribute| match attribute {
            LinkAttribute::LinkNetNsId(number) => Some(*number),
            _ => None,
        }))
    }

    /// The number that this namespace gives to another one; `None` if it has none.
    pub(crate) fn namespace_number(
        &mut self,
        namespace: BorrowedFd<'_>,
    ) -> io::Result<Option<i32>> {
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(namespace.as_raw_fd().unsigned_abs()));
        let told = self.0.request(RouteNetlinkMessage::GetNsId(message), 0)?;
        let attributes = told.iter().filter_map(|message| match message {
            RouteNetlinkMessage::NewNsId(namespace) => Some(&namespace.attributes),
            _ => None,
        });
        Ok(attributes.flatten().find_map(|attribute| match attribute {
            NsidAttribute::Id(number) if *number >= 0 => Some(*number),
            _ => None,
        }))
    }

    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.0.request(message, flags).map(drop)
    }
}

/// About an interface.
fn link(index: u32, attributes: impl IntoIterator<Item = LinkAttribute>) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.extend(attributes);
    message
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use nicache_namespaces::Namespace;
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn what_is_asked_for_is_what_ip_shows() {
        let Some(namespace) = Namespace::with_loopback() else { return };
        let Some(other) = Namespace::new() else { return };
        let there = other.file().try_clone_to_owned().unwrap();
        namespace.run(move || {
            let mut netlink = Netlink::open().unwrap();
            assert!(netlink.index("lo").unwrap().is_some());
            assert_eq!(netlink.index("near").unwrap(), None);
            assert_eq!(netlink.namespace_number(there.as_fd()).unwrap(), None);
            netlink.add_veth("near", "far", there.as_fd()).unwrap();
            let again = netlink.add_veth("near", "far", there.as_fd()).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
            let number = netlink.peer_namespace("near").unwrap();
            assert!(number.is_some() && number == netlink.namespace_number(there.as_fd()).unwrap());
            assert_eq!(netlink.peer_namespace("lo").unwrap(), None);
            let index = netlink.index("near").unwrap().unwrap();
            netlink.set_mac(index, [2, 0, 0, 0, 0, 9]).unwrap();
            netlink.set_queue(index, 77).unwrap();
            netlink.up(index, Some(1400)).unwrap();
            assert_eq!(netlink.mtu("near").unwrap(), 1400);
            let address = |text: &str| text.parse::<IpAddr>().unwrap();
            netlink.add_address(index, address("10.1.0.1"), 24).unwrap();
            netlink.add_address(index, address("fd01::1"), 64).unwrap();
            netlink.add_default_route(index, address("10.1.0.254"), None).unwrap();
            netlink.add_default_route(index, address("10.1.0.253"), Some(1001)).unwrap();
            netlink.add_default_route(index, address("fd01::ff"), None).unwrap();
            netlink.add_source_rule(address("10.1.0.1"), 1001).unwrap();
            netlink.add_source_rule(address("fd01::1"), 1001).unwrap();
            let nowhere = netlink.add_default_route(index, address("10.9.0.1"), Some(7));
            assert_eq!(nowhere.unwrap_err().kind(), io::ErrorKind::NetworkUnreachable);
            let none = netlink.up(1_000_000, None).unwrap_err();
            assert_eq!(none.raw_os_error(), Some(Errno::NODEV.raw_os_error()));
        });
        other.ip("link show far");
        for (command, expected) in [
            ("-o link show near", "mtu 1400"),
            ("-o link show near", ",UP"),
            ("-o link show near", "qlen 77"),
            ("-o link show near", "link/ether 02:00:00:00:00:09"),
            ("-o address show near", "inet 10.1.0.1/24 scope global near"),
            // No search for others with the address.
            ("-o address show near", "inet6 fd01::1/64 scope global nodad"),
            ("route", "default via 10.1.0.254 dev near"),
            ("route show table 1001", "default via 10.1.0.253 dev near"),
            ("-6 route", "default via fd01::ff dev near"),
            ("rule", "from 10.1.0.1 lookup 1001"),
            ("-6 rule", "from fd01::1 lookup 1001"),
        ] {
            let shown = namespace.ip(command);
            assert!(shown.contains(expected), "{command}: {shown}");
        }
        let boot = namespace.ip("-d route show default");
        assert!(boot.contains("unicast default") && boot.contains("proto boot"), "{boot}");
    }
}
