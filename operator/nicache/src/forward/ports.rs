//! What the card is on each link by, which the supervisor keeps while cards come and go.
//!
//! ```text
//! AF_XDP ──▶ packet sockets          TAP
//! ```
//!
//! A link where AF_XDP cannot be attached, or is found dead by probe frames
//! ([`nicache_xdp::probe_link()`]), has a packet socket instead.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use nicache_forward::tuple::Protocol;
use nicache_port::{PacketConfig, PacketError, PacketSocket, Reception, TapQueue};
use nicache_router::config::{LinkPortKind, Linking, Plan};
use nicache_router::guard::{answered, kept};
use nicache_router::kernel::Link;
use nicache_xdp::{KeptPorts, Settings, Sieve};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::card_figures::CardFigures;
use super::place::Place;
use crate::serve::messages::PortSetup;
use crate::supervisor::netlink::Netlink;
use crate::supervisor::tap;

/// Queues of a link at most: each socket has 16 MiB of memory for frames.
const QUEUES_MAX: u32 = 16;

/// What is known of a link that is gone, at first.
pub(super) const GONE: &str = "there is no interface of that name";

/// What the card is on a link by, for viewers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PortStatus {
    /// The link.
    pub link: String,
    /// `packet`, `xdp` or `tap`.
    pub port: String,
    /// Queues, each with an AF_XDP socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<u32>,
    /// Why it is not what the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// The link is gone, and what is known of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone: Option<String>,
    /// Frames that arrived and found no room, or were malformed.
    #[serde(default)]
    pub receive_dropped: u64,
    /// Frames that were to be sent later and were then not taken.
    #[serde(default)]
    pub send_dropped: u64,
}

impl fmt::Display for PortStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, port, queues, instead, gone, .. } = self;
        write!(f, "{link} {port}")?;
        if let Some(why) = gone {
            return write!(f, " (GONE: {why})");
        }
        match queues {
            None => {}
            Some(1) => f.write_str(" (1 queue)")?,
            Some(queues) => write!(f, " ({queues} queues)")?,
        }
        match instead {
            None => Ok(()),
            Some(why) => write!(f, " ({why})"),
        }
    }
}

/// What the card is on each link by (AF_XDP, packet socket or TAP), which the supervisor keeps
/// while cards come and go.
#[derive(Debug)]
pub(super) struct Ports(Vec<Port>);

#[derive(Debug)]
struct Port {
    link: Linking,
    way: Way,
    /// The file has a VLAN of it, of which the kernel need not know.
    has_vlan: bool,
    /// It was a packet socket from the start: then the fast path's programs are there.
    is_fast: bool,
    /// Its link is gone, and what is known of that.
    gone: Option<String>,
}

#[derive(Debug)]
enum Way {
    /// `instead`: why not AF_XDP.
    Packet { instead: Option<String> },
    /// `is_proven`: probe frames have come and gone.
    Xdp { sieve: Sieve, queues: u32, is_proven: bool },
    /// Open here, it outlives the card.
    Tap(TapQueue),
}

impl Ports {
    /// The TAPs that a plan wants made, up and with their addresses.
    pub(super) fn make_taps(plan: &Plan, place: &Place) -> Result<Vec<TapQueue>> {
        let wanted: Vec<Linking> =
            plan.links.iter().filter(|link| link.port == LinkPortKind::Tap).cloned().collect();
        place.run(move || wanted.iter().map(make_tap).collect())
    }

    /// A place on each link of the plan, in their order. `taps`: what
    /// [`make_taps`](Self::make_taps) has made.
    pub(super) fn start(
        plan: &Plan,
        links: &[Link],
        taps: Vec<TapQueue>,
        place: &Place,
    ) -> Result<Self> {
        let mut taps = taps.into_iter();
        let port = |link: &Linking| {
            let tap = if link.port == LinkPortKind::Tap { taps.next() } else { None };
            Port::start((plan, links), link, tap, place)
        };
        plan.links.iter().map(port).collect::<Result<_>>().map(Self)
    }

    /// What a card is told of them, and the files for that. `filter`: for packet sockets where the
    /// fast path is.
    pub(super) fn open(
        &mut self,
        place: &Place,
        filter: Option<OwnedFd>,
    ) -> Result<(Vec<PortSetup>, Vec<OwnedFd>)> {
        let is_named = |port: &Port| port.gone.is_none() && !matches!(port.way, Way::Tap(_));
        let named = self.0.iter().enumerate().filter(|(_, port)| is_named(port));
        let named: Vec<(usize, String, Reception<'static>, bool)> = named
            .map(|(number, port)| (number, port.link.name.clone(), port.reception(), port.is_fast))
            .collect();
        let opened = place.run(move || {
            let open = |(number, name, reception, is_fast): (usize, String, _, bool)| {
                let filter = filter.as_ref().filter(|_| is_fast).map(AsFd::as_fd);
                let config = PacketConfig { filter, reception, ..PacketConfig::default() };
                (number, PacketSocket::open(&name, 1, &config))
            };
            named.into_iter().map(open).collect::<Vec<_>>()
        });
        let mut sockets: BTreeMap<usize, OwnedFd> = BTreeMap::new();
        for (number, result) in opened {
            match result {
                Ok(all) => sockets.extend(all.into_iter().map(|one| (number, OwnedFd::from(one)))),
                Err(error) if is_gone(&error) => self.0[number].lose(),
                Err(error) => return Err(error.into()),
            }
        }
        let (mut setups, mut files) = (Vec::new(), Vec::new());
        for (number, port) in self.0.iter().enumerate() {
            if port.gone.is_some() {
                setups.push(PortSetup::Absent);
                continue;
            }
            match &port.way {
                Way::Packet { .. } => {
                    setups.push(PortSetup::Packet);
                    files.extend(sockets.remove(&number));
                }
                Way::Xdp { sieve, queues, is_proven } => {
                    let (interface, probe) = (port.link.name.clone(), !is_proven);
                    setups.push(PortSetup::Xdp { interface, queues: *queues, probe });
                    files.push(sieve.sockets().try_clone_to_owned()?);
                    files.extend(sockets.remove(&number));
                    if probe {
                        files.push(sieve.program().try_clone_to_owned()?);
                    }
                }
                Way::Tap(queue) => {
                    setups.push(PortSetup::Tap { super_frames: true });
                    files.push(queue.as_fd().try_clone_to_owned()?);
                }
            }
        }
        Ok((setups, files))
    }

    /// A card has them all.
    pub(super) fn handle_ready(&mut self) {
        for port in self.0.iter_mut().filter(|port| port.gone.is_none()) {
            if let Way::Xdp { is_proven, .. } = &mut port.way {
                *is_proven = true;
            }
        }
    }

    /// A card cannot use one as it is. Another way is tried; false: there is none.
    pub(super) fn step_down(&mut self, number: usize, reason: String) -> bool {
        match self.0.get_mut(number) {
            Some(Port { link, way: way @ Way::Xdp { .. }, .. }) => {
                *way = instead_of_xdp(&link.name, reason);
                true
            }
            _ => false,
        }
    }

    /// Numbers of those whose links are gone.
    pub(super) fn gone(&self) -> Vec<usize> {
        let gone = self.0.iter().enumerate().filter(|(_, port)| port.gone.is_some());
        gone.map(|(number, _)| number).collect()
    }

    /// Loses those whose links are not among these, by the kernel's numbers.
    pub(super) fn lose_absent(&mut self, links: &[Link]) {
        for port in &mut self.0 {
            if !links.iter().any(|link| link.index == port.link.index) {
                port.lose();
            }
        }
    }

    /// This machine has the addresses of these links now.
    pub(super) fn set_addresses(&mut self, links: &[Link]) {
        let addresses = addresses(links).collect();
        for port in &mut self.0 {
            if let Way::Xdp { sieve, .. } = &mut port.way
                && let Err(error) = sieve.set_addresses(&addresses)
            {
                let name = &port.link.name;
                tracing::warn!(
                    "cannot tell the program at {name} which addresses this machine has: {error}"
                );
            }
        }
    }

    /// What is now known of one whose link is gone.
    pub(super) fn set_gone(&mut self, number: usize, why: String) {
        if let Some(gone) = self.0.get_mut(number).and_then(|port| port.gone.as_mut()) {
            *gone = why;
        }
    }

    /// Makes the TAP of one that is gone.
    pub(super) fn make_tap(link: &Linking, place: &Place) -> Result<TapQueue> {
        let wanted = link.clone();
        place.run(move || make_tap(&wanted))
    }

    /// The link of one is there again, as a new plan has it. `attach` attaches the fast path's
    /// programs to it, by the kernel's number: false, it is not there.
    pub(super) fn bring_back(
        &mut self,
        number: usize,
        (plan, links): (&Plan, &[Link]),
        tap: Option<TapQueue>,
        place: &Place,
        attach: impl FnOnce(u32) -> bool,
    ) -> Result<()> {
        let link = plan.links.get(number).context("a plan without the link")?;
        let mut port = Port::start((plan, links), link, tap, place)?;
        port.is_fast = port.is_fast && attach(link.index);
        *self.0.get_mut(number).context("a port that there is not")? = port;
        Ok(())
    }

    /// Links where the fast path can be, by the kernel's numbers.
    pub(super) fn fast(&self) -> Vec<u32> {
        self.0.iter().filter(|port| port.is_fast).map(|port| port.link.index).collect()
    }

    /// Names of those where it cannot be.
    pub(super) fn slow(&self) -> Vec<&str> {
        self.0.iter().filter(|port| !port.is_fast).map(|port| &*port.link.name).collect()
    }

    /// How each port is doing, for viewers.
    pub(super) fn status(&self, figures: &CardFigures) -> Vec<PortStatus> {
        let status = |(number, port): (usize, &Port)| {
            let (kind, queues, instead) = match &port.way {
                Way::Packet { instead } => (LinkPortKind::Packet, None, instead.clone()),
                Way::Xdp { queues, .. } => (LinkPortKind::Xdp, Some(*queues), None),
                Way::Tap(_) => (LinkPortKind::Tap, None, None),
            };
            let [receive_dropped, send_dropped] = figures.dropped(number);
            let (link, gone) = (port.link.name.clone(), port.gone.clone());
            let port = kind.to_string();
            PortStatus { link, port, queues, instead, gone, receive_dropped, send_dropped }
        };
        self.0.iter().enumerate().map(status).collect()
    }
}

impl Port {
    /// `tap`: what [`Ports::make_tap`] has made.
    fn start(
        (plan, links): (&Plan, &[Link]),
        link: &Linking,
        tap: Option<TapQueue>,
        place: &Place,
    ) -> Result<Self> {
        let way = match link.port {
            LinkPortKind::Packet => Way::Packet { instead: None },
            LinkPortKind::Tap => Way::Tap(tap.context("a TAP was not made")?),
            LinkPortKind::Xdp => {
                let keeps = what_is_kept(plan, links, &link.name);
                let wanted = link.clone();
                match place.run(move || attach(&wanted, keeps)) {
                    Ok((sieve, queues)) => Way::Xdp { sieve, queues, is_proven: false },
                    Err(error) => instead_of_xdp(&link.name, format!("{error:#}")),
                }
            }
        };
        let has_vlan = plan
            .interfaces
            .iter()
            .any(|interface| interface.link == link.name && interface.vlan.is_some());
        let is_fast = matches!(way, Way::Packet { .. });
        Ok(Self { link: link.clone(), way, has_vlan, is_fast, gone: None })
    }

    fn lose(&mut self) {
        if self.gone.is_none() {
            let name = &self.link.name;
            tracing::warn!(
                "the interface {name} is gone: the other ones go on, and it is taken back when \
                 there is one of that name again"
            );
            self.gone = Some(GONE.to_owned());
        }
    }

    /// Addresses that only the file has are asked for by multicast that nobody else has joined, and
    /// network cards drop frames of VLANs that the kernel does not know.
    fn reception(&self) -> Reception<'static> {
        if self.has_vlan { Reception::Promiscuous } else { Reception::Addresses(&[]) }
    }
}

fn addresses(links: &[Link]) -> impl Iterator<Item = IpAddr> {
    links.iter().flat_map(|link| &link.addresses).map(|(address, _)| *address)
}

fn what_is_kept(plan: &Plan, links: &[Link], link: &str) -> nicache_xdp::Kept {
    let ports = kept(plan, link)
        .map(|kept| KeptPorts { is_udp: kept.protocol == Protocol::Udp, ports: kept.ports });
    let answered = answered(plan, link).map(|(protocol, endpoint)| {
        (protocol == Protocol::Udp, SocketAddr::new(endpoint.address, endpoint.port))
    });
    nicache_xdp::Kept {
        ports: ports.collect(),
        addresses: addresses(links).collect(),
        answered: answered.collect(),
    }
}

/// Whether a socket could not be opened because its interface is gone.
fn is_gone(error: &PacketError) -> bool {
    match error {
        PacketError::NoInterface(_) | PacketError::Gone(_) => true,
        PacketError::Io { error, .. } => {
            matches!(Errno::from_io_error(error), Some(Errno::NODEV | Errno::NXIO))
        }
        _ => false,
    }
}

fn instead_of_xdp(link: &str, reason: String) -> Way {
    tracing::warn!(
        "{reason}: the card uses a packet socket on {link} instead of AF_XDP (as with port = \"packet\")"
    );
    Way::Packet { instead: Some(reason) }
}

/// The program at a link, and how many queues get a socket. What comes by others comes by the
/// packet socket.
fn attach(link: &Linking, kept: nicache_xdp::Kept) -> Result<(Sieve, u32)> {
    let name = &link.name;
    let settings =
        Settings::of(name).with_context(|| format!("asking for the settings of {name}"))?;
    anyhow::ensure!(
        !settings.takes_tags,
        "the driver of {name} takes VLAN tags out of frames, which AF_XDP then does not see: `ethtool -K {name} rxvlan off`"
    );
    let there = settings.receive_queues.unwrap_or(1);
    let queues = there.min(QUEUES_MAX);
    // These errors tell their causes themselves.
    let sieve = Sieve::attach(name, queues, kept).map_err(|error| anyhow!("{error}"))?;
    if queues < there {
        tracing::warn!(
            "{queues} of the {there} queues of {name} have AF_XDP sockets, the others a packet socket: `ethtool -L {name} combined {queues}`"
        );
    }
    Ok((sieve, queues))
}

fn make_tap(link: &Linking) -> Result<TapQueue> {
    let (name, wanted) =
        (&link.name, link.tap.as_ref().context("nobody says what a TAP is to be like")?);
    let queue = tap::open(name, 1)?.pop().context("the TAP was opened without a queue")?;
    let mut netlink = Netlink::open()?;
    let index = netlink.index(name)?.with_context(|| format!("the interface {name} is gone"))?;
    for (address, len) in &wanted.addresses {
        netlink
            .add_address(index, *address, *len)
            .with_context(|| format!("cannot give {name} the address {address}"))?;
    }
    netlink.up(index, Some(wanted.mtu)).with_context(|| format!("cannot bring up {name}"))?;
    Ok(queue)
}
