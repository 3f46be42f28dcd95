//! Links, addresses, routes and neighbours, as the kernel has them, and the news that they have
//! changed (`rtnetlink(7)`).
//!
//! A socket works on the network namespace of the thread that opened it, whoever uses it later.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteNextHopFlags, RouteType, RouteVia,
};
use nicache_forward::prefix::Prefix;
use nicache_netlink::Netlink;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};
use serde::{Deserialize, Serialize};

/// What is told of: links, neighbours, addresses and routes of both versions of IP (`RTMGRP_*`).
const GROUPS: u32 = LINKS | 0x4 | 0x40 | 0x400;
/// Of those, links and addresses.
const LINKS: u32 = 0x1 | 0x10 | 0x100;
/// Messages of news that are read at once; the next look reads the rest.
const NEWS_MAX: usize = 10_000;
/// Routes of whole networks may be many: the kernel tells them as fast as they are read.
const RECEIVE_BYTES: usize = 1 << 20;

/// An interface of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Its MAC address; zeroes if it has none.
    pub mac: [u8; 6],
    /// Bytes of the longest IP packet that it takes.
    pub mtu: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether its frames are those of Ethernet.
    pub is_ethernet: bool,
    /// Its addresses, each with the length of the link's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// A route of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRoute {
    /// Where it leads.
    pub to: Prefix,
    /// By which interface, by its number. `None`: nowhere, it says that packets are thrown away.
    pub index: Option<u32>,
    /// By which router.
    pub gateway: Option<IpAddr>,
    /// Of several with the same prefix, the one with the lowest is taken.
    pub metric: u32,
}

/// How well the kernel knows a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Somebody has set it for good.
    Permanent,
    /// It was heard of a moment ago.
    Confirmed,
    /// It was heard of some time ago.
    Old,
}

/// A neighbour that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelNeighbour {
    /// On which interface, by its number.
    pub index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// How well it is known.
    pub knowledge: Knowledge,
}

/// The kernel's tables.
#[derive(Debug)]
pub struct Kernel {
    asked: Netlink,
    news: OwnedFd,
}

impl Kernel {
    /// Opens the tables of the calling thread's network namespace.
    ///
    /// # Errors
    /// What the system says.
    pub fn open() -> io::Result<Self> {
        Self::open_for(GROUPS)
    }

    /// The same, with news of links and their addresses alone.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_for_links() -> io::Result<Self> {
        Self::open_for(LINKS)
    }

    fn open_for(groups: u32) -> io::Result<Self> {
        let asked = Netlink::open()?;
        let flags = SocketFlags::CLOEXEC;
        let news = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        rustix::net::bind(&news, &SocketAddrNetlink::new(0, groups))?;
        // More than the system allows is cut down to that.
        sockopt::set_socket_recv_buffer_size(&asked, RECEIVE_BYTES)?;
        Ok(Self { asked, news })
    }

    /// The files that another process needs for [`from_files`](Self::from_files).
    pub fn files(&self) -> [BorrowedFd<'_>; 2] {
        [self.asked.as_fd(), self.news.as_fd()]
    }

    /// The tables by sockets that another process has opened.
    pub fn from_files([asked, news]: [OwnedFd; 2]) -> Self {
        // Answers to another process's questions may still wait: a number of its own tells them
        // apart.
        Self { asked: Netlink::from_file(asked, std::process::id() << 8), news }
    }

    /// Readable when something has changed.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Whether something has changed since the last call.
    pub fn has_news(&self) -> bool {
        let mut buffer = [0; 8192];
        let mut is_changed = false;
        for _ in 0..NEWS_MAX {
            match rustix::net::recv(&self.news, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok(_) | Err(Errno::NOBUFS) => is_changed = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        is_changed
    }

    /// All interfaces.
    ///
    /// # Errors
    /// What the system says.
    pub fn links(&mut self) -> io::Result<Vec<Link>> {
        let (mut links, mut addresses) = (Vec::new(), Vec::new());
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        for message in self.asked.dump(&question)? {
            if let RouteNetlinkMessage::NewLink(message) = message {
                links.extend(link(&message));
            }
        }
        let question = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        for message in self.asked.dump(&question)? {
            if let RouteNetlinkMessage::NewAddress(message) = message {
                addresses.push((message.header.index, address(&message)));
            }
        }
        for link in &mut links {
            let own = addresses.iter().filter(|(index, _)| *index == link.index);
            link.addresses = own.filter_map(|(_, address)| *address).collect();
        }
        Ok(links)
    }

    /// All routes of the main table, with those that lead nowhere.
    ///
    /// # Errors
    /// What the system says.
    pub fn routes(&mut self) -> io::Result<Vec<KernelRoute>> {
        let question = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let told = self.asked.dump(&question)?.into_iter();
        Ok(told
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewRoute(message) => route(&message),
                _ => None,
            })
            .collect())
    }

    /// All neighbours whose MAC address is known.
    ///
    /// # Errors
    /// What the system says.
    pub fn neighbours(&mut self) -> io::Result<Vec<KernelNeighbour>> {
        let question = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let told = self.asked.dump(&question)?.into_iter();
        Ok(told
            .filter_map(|message| match message {
                RouteNetlinkMessage::NewNeighbour(message) => neighbour(&message),
                _ => None,
            })
            .collect())
    }
}

fn link(message: &LinkMessage) -> Option<Link> {
    let mut link = Link {
        name: String::new(),
        index: message.header.index,
        mac: [0; 6],
        mtu: 0,
        is_up: message.header.flags.contains(LinkFlags::Up),
        is_ethernet: message.header.link_layer_type == LinkLayerType::Ether,
        addresses: Vec::new(),
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::Address(mac) => link.mac = mac.as_slice().try_into().unwrap_or([0; 6]),
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

fn address(message: &AddressMessage) -> Option<(IpAddr, u8)> {
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let any = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some((local.or(any)?, message.header.prefix_len))
}

fn route(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let is_v4 = match header.address_family {
        netlink_packet_route::AddressFamily::Inet => true,
        netlink_packet_route::AddressFamily::Inet6 => false,
        _ => return None,
    };
    if header.table != RouteHeader::RT_TABLE_MAIN || header.source_prefix_length > 0 {
        return None;
    }
    let is_way = match header.kind {
        RouteType::Unicast => true,
        // The tables that `throw` goes on to are not looked at.
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            false
        }
        _ => return None,
    };
    let nothing: IpAddr = if is_v4 { [0u8; 4].into() } else { [0u8; 16].into() };
    let (mut to, mut index, mut gateway, mut metric) = (nothing, None, None, 0);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address)?,
            RouteAttribute::Oif(number) => index = Some(*number),
            RouteAttribute::Gateway(address) => gateway = Some(ip(address)?),
            RouteAttribute::Via(via) => gateway = Some(via_ip(via)?),
            RouteAttribute::Priority(number) => metric = *number,
            RouteAttribute::MultiPath(hops) => {
                // The first that works: which of them is taken must not change within a connection.
                let hop = hops.iter().find(|hop| !hop.flags.contains(RouteNextHopFlags::Dead))?;
                index = Some(hop.interface_index);
                gateway = hop.attributes.iter().find_map(|attribute| match attribute {
                    RouteAttribute::Gateway(address) => ip(address),
                    RouteAttribute::Via(via) => via_ip(via),
                    _ => None,
                });
            }
            _ => {}
        }
    }
    let to = Prefix::new(to, header.destination_prefix_length)?;
    // Each link has its own.
    let is_of_link = matches!(to.address(), IpAddr::V6(v6) if v6.is_unicast_link_local());
    // The kernel tells `lo` as the interface of those of IPv6 that lead nowhere.
    let index = if is_way { Some(index?) } else { None };
    (!is_of_link).then_some(KernelRoute { to, index, gateway, metric })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn via_ip(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(v4) => Some((*v4).into()),
        RouteVia::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn neighbour(message: &NeighbourMessage) -> Option<KernelNeighbour> {
    let knowledge = match message.header.state {
        NeighbourState::Permanent => Knowledge::Permanent,
        NeighbourState::Reachable => Knowledge::Confirmed,
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => Knowledge::Old,
        _ => return None,
    };
    let (mut address, mut mac) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(v4)) => {
                address = Some(IpAddr::V4(*v4));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(v6)) => {
                address = Some(IpAddr::V6(*v6));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = bytes.as_slice().try_into().ok(),
            _ => {}
        }
    }
    let index = message.header.ifindex;
    Some(KernelNeighbour { index, address: address?, mac: mac?, knowledge })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicache_namespaces::Namespace;

    #[test]
    fn what_ip_sets_up_is_seen() {
        let Some(namespace) = Namespace::with_loopback() else { return };
        let (mut kernel, before) = namespace.run(|| {
            let mut kernel = Kernel::open().unwrap();
            let before = kernel.links().unwrap().len();
            (kernel, before)
        });
        namespace.ip("link add left type veth peer name right");
        for command in [
            "link set left addrgenmode none mtu 1400 up",
            "link set right up",
            "address add 10.1.0.1/24 dev left",
            "address add fd01::1/64 dev left nodad",
            "route add 198.51.100.0/24 via 10.1.0.9",
            "route add default via 10.1.0.254 metric 7",
            "route add 203.0.113.0/24 nexthop via 10.1.0.8 nexthop via 10.1.0.9",
            "neighbour add 10.1.0.9 lladdr 2:0:0:0:0:9 dev left nud permanent",
            "neighbour add 10.1.0.8 lladdr 2:0:0:0:0:8 dev left nud reachable",
            "neighbour add 10.1.0.7 lladdr 2:0:0:0:0:7 dev left nud stale",
            "route add blackhole 192.0.2.0/24",
            "route add unreachable fd09::/16 metric 9",
        ] {
            namespace.ip(command);
        }
        assert!(kernel.has_news());
        assert!(!kernel.has_news());
        let links = kernel.links().unwrap();
        assert_eq!(links.len(), before + 2);
        let left = links.iter().find(|link| link.name == "left").unwrap();
        assert!(
            left.is_up && left.is_ethernet && left.mtu == 1400 && left.mac != [0; 6],
            "{left:?}"
        );
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(left.addresses.contains(&(address("10.1.0.1"), 24)), "{left:?}");
        assert!(left.addresses.contains(&(address("fd01::1"), 64)), "{left:?}");
        let routes = kernel.routes().unwrap();
        let found = |to: &str| routes.iter().find(|route| route.to == to.parse().unwrap()).copied();
        let via = |to: &str| found(to).map(|route| (route.index, route.gateway));
        assert_eq!(via("198.51.100.0/24"), Some((Some(left.index), Some(address("10.1.0.9")))));
        assert_eq!(via("0.0.0.0/0"), Some((Some(left.index), Some(address("10.1.0.254")))));
        assert_eq!(via("203.0.113.0/24"), Some((Some(left.index), Some(address("10.1.0.8")))));
        assert_eq!(via("10.1.0.0/24"), Some((Some(left.index), None)));
        assert_eq!(
            (via("192.0.2.0/24"), via("fd09::/16")),
            (Some((None, None)), Some((None, None)))
        );
        let neighbours = kernel.neighbours().unwrap();
        for (last, knowledge) in
            [(9, Knowledge::Permanent), (8, Knowledge::Confirmed), (7, Knowledge::Old)]
        {
            let known = KernelNeighbour {
                index: left.index,
                address: [10, 1, 0, last].into(),
                mac: [2, 0, 0, 0, 0, last],
                knowledge,
            };
            assert!(neighbours.contains(&known), "{neighbours:?}");
        }
        namespace.ip("route del default");
        assert!(
            kernel.has_news() && kernel.routes().unwrap().iter().all(|route| !route.to.is_empty())
        );
    }
}
