//! Where the server of `nicache run` is, and the interfaces that the card stands between.
//!
//! Without `--wire` it is a network of its own behind a TAP, or several of them with a card each,
//! which `--publish` opens to others. With `--wire` it is a station on the network of an existing
//! interface, beside this machine itself: it has a MAC address and IP addresses of its own there,
//! and answers for these itself (ARP, neighbor discovery). Programs at the interface take its
//! frames out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};
use nicache_netns::Namespace;
use nicache_secret::random_bytes;
use nicache_xdp::Rest;

use super::card_setup::connections_lost_max;
use super::card_unit::CardPorts;
use super::instance::Instance;
use super::netlink::Netlink;
use super::standing::{Standing, StandingPlan};
use super::tap;
use crate::options::{Network, RunPlan, WireOptions};
use crate::setup::{PortsSetup, RecheckAddresses};

/// Where the server of `nicache run` is, and the interfaces that the card stands between.
pub(super) struct Place {
    /// The interfaces of each card, for the supervisor and for the card.
    pub cards: Vec<(CardPorts, PortsSetup)>,
    /// Each card's own client and the server, if that is reached from here.
    pub rechecker: Vec<Option<RecheckAddresses>>,
    /// Where clients come from.
    pub interface: String,
    /// The server's addresses; unspecified: none of that version.
    pub addresses: (Ipv4Addr, Ipv6Addr),
    /// The server's default route.
    pub gateway: Ipv4Addr,
    /// Bytes of an IP packet at most.
    pub mtu: u32,
}

impl Place {
    /// Makes it.
    pub(super) fn make(
        plan: &RunPlan,
        instances: &[Instance],
        namespace: &Namespace,
    ) -> Result<Self> {
        match &plan.wire {
            None => Self::own_networks(plan, instances, namespace),
            Some(wire) => Self::station(plan, wire, &instances[0], namespace),
        }
    }

    /// A network for each card. The server's replies leave by the card that their addresses are
    /// behind.
    fn own_networks(plan: &RunPlan, instances: &[Instance], namespace: &Namespace) -> Result<Self> {
        let (mut cards, mut rechecker) = (Vec::new(), Vec::new());
        for (number, instance) in (0..).zip(instances) {
            let (queues, subnet) = (plan.queues, instance.subnet);
            let wire = tap::open_wire(&instance.interface, queues, subnet)?;
            tap::add_rechecker(&instance.interface, subnet)?;
            let host = namespace.run(move || tap::open_host(number, queues, subnet))?;
            cards.push((CardPorts::Taps { wire, host }, PortsSetup::Taps));
            rechecker.push(Some(RecheckAddresses {
                own: subnet.rechecker(),
                proxy: subnet.gateway(),
                server: subnet.server(),
            }));
        }
        let first = &instances[0];
        let interfaces =
            instances.iter().map(|instance| instance.interface.as_str()).collect::<Vec<_>>();
        Ok(Self {
            cards,
            rechecker,
            interface: interfaces.join(", "),
            addresses: (first.subnet.server(), first.subnet.server6()),
            gateway: first.subnet.gateway(),
            mtu: tap::MTU,
        })
    }

    fn station(
        plan: &RunPlan,
        wire: &WireOptions,
        instance: &Instance,
        namespace: &Namespace,
    ) -> Result<Self> {
        let mut netlink = Netlink::open()?;
        let mac = own_mac()?;
        netlink.add_veth(&instance.interface, tap::HOST_NAME, namespace.file()).with_context(
            || format!("cannot make the interfaces {} and {}", instance.interface, tap::HOST_NAME),
        )?;
        let index = netlink.index(&instance.interface)?.context("the new interface is gone")?;
        let mtu = netlink
            .mtu(&wire.interface)
            .with_context(|| format!("--wire {}: cannot ask for its MTU", wire.interface))?;
        netlink.up(index, Some(mtu))?;
        let settings = wire.clone();
        namespace.run(move || configure(&settings, mac, mtu))?;

        let standing = Standing::make(StandingPlan {
            http_ports: plan.http_ports.clone(),
            wire: wire.interface.clone(),
            wire_rest: Rest::Station(mac),
            host: instance.interface.clone(),
            port: wire.port.of_card(plan.queues),
            l0: plan.l0,
            connections: connections_lost_max(plan),
        })
        .with_context(|| format!("cannot put the server on {}", wire.interface))?;
        let ports = standing.setup(true);
        let v4 = |address: &Network| {
            if let IpAddr::V4(address) = address.address { Some(address) } else { None }
        };
        let v6 = |address: &Network| {
            if let IpAddr::V6(address) = address.address { Some(address) } else { None }
        };
        let gateway = wire.gateways.iter().find_map(|gateway| match gateway {
            IpAddr::V4(gateway) => Some(*gateway),
            IpAddr::V6(_) => None,
        });
        Ok(Self {
            cards: vec![(CardPorts::Interfaces(Box::new(standing)), ports)],
            rechecker: vec![None],
            interface: wire.interface.clone(),
            addresses: (
                wire.addresses.iter().find_map(v4).unwrap_or(Ipv4Addr::UNSPECIFIED),
                wire.addresses.iter().find_map(v6).unwrap_or(Ipv6Addr::UNSPECIFIED),
            ),
            gateway: gateway.unwrap_or(Ipv4Addr::UNSPECIFIED),
            mtu,
        })
    }
}

/// The server's interface, in its network namespace.
fn configure(wire: &WireOptions, mac: [u8; 6], mtu: u32) -> Result<()> {
    let mut netlink = Netlink::open()?;
    let loopback =
        netlink.index("lo")?.context("the server's network namespace has no loopback")?;
    netlink.up(loopback, None).context("cannot bring up the server's loopback")?;
    let index = netlink.index(tap::HOST_NAME)?.context("the server's interface is gone")?;
    netlink.set_mac(index, mac).context("cannot give the server a MAC address")?;
    for network in &wire.addresses {
        netlink
            .add_address(index, network.address, network.prefix)
            .with_context(|| format!("cannot give the server the address {network}"))?;
    }
    netlink.up(index, Some(mtu)).context("cannot bring up the server's interface")?;
    for gateway in &wire.gateways {
        netlink.add_default_route(index, *gateway, None).with_context(|| {
            format!("--gateway {gateway}: is it in the network of an --address?")
        })?;
    }
    Ok(())
}

/// A MAC address of local administration that nobody else has (IEEE 802, bit 1 of the first byte).
fn own_mac() -> Result<[u8; 6]> {
    let mut mac = random_bytes::<6>()?;
    mac[0] = mac[0] & 0xfc | 2;
    Ok(mac)
}
