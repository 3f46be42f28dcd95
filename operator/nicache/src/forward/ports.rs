//! What the card is on each link by, which the supervisor keeps while cards come and go.
//!
//! ```text
//! AF_XDP ──▶ packet sockets          TAP
//! ```
//!
//! A link where AF_XDP cannot be attached, or is found dead by probe frames
//! ([`nicache_xdp::probe_link()`]), has a packet socket instead.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, anyhow};
use nicache_forward::tuple::Protocol;
use nicache_port::{PacketConfig, PacketSocket, Reception, TapQueue};
use nicache_router::config::{LinkPortKind, Linking, Plan};
use nicache_router::guard::kept;
use nicache_xdp::{KeptPorts, Settings, Sieve};
use serde::{Deserialize, Serialize};

use super::card_figures::CardFigures;
use super::place::Place;
use crate::serve::messages::PortSetup;
use crate::supervisor::netlink::Netlink;
use crate::supervisor::tap;

/// Queues of a link at most: each socket has 16 MiB of memory for frames.
const QUEUES_MAX: u32 = 16;

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
    /// Frames that arrived and found no room, or were malformed.
    #[serde(default)]
    pub receive_dropped: u64,
    /// Frames that were to be sent later and were then not taken.
    #[serde(default)]
    pub send_dropped: u64,
}

impl fmt::Display for PortStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { link, port, queues, instead, .. } = self;
        write!(f, "{link} {port}")?;
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
    pub(super) fn start(plan: &Plan, taps: Vec<TapQueue>, place: &Place) -> Result<Self> {
        let mut taps = taps.into_iter();
        let port = |link: &Linking| {
            let way = match link.port {
                LinkPortKind::Packet => Way::Packet { instead: None },
                LinkPortKind::Tap => Way::Tap(taps.next().context("a TAP was not made")?),
                LinkPortKind::Xdp => {
                    let keeps: Vec<KeptPorts> = kept(plan, &link.name)
                        .map(|kept| KeptPorts {
                            is_udp: kept.protocol == Protocol::Udp,
                            ports: kept.ports,
                        })
                        .collect();
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
            Ok(Port { link: link.clone(), way, has_vlan, is_fast })
        };
        plan.links.iter().map(port).collect::<Result<_>>().map(Self)
    }

    /// What a card is told of them, and the files for that. `filter`: for packet sockets where the
    /// fast path is.
    pub(super) fn open(
        &self,
        place: &Place,
        filter: Option<OwnedFd>,
    ) -> Result<(Vec<PortSetup>, Vec<OwnedFd>)> {
        let named = self.0.iter().filter(|port| !matches!(port.way, Way::Tap(_)));
        let named: Vec<(String, Reception<'static>, bool)> =
            named.map(|port| (port.link.name.clone(), port.reception(), port.is_fast)).collect();
        let sockets = place.run(move || {
            let open = |(name, reception, is_fast): &(String, Reception<'static>, bool)| {
                let filter = filter.as_ref().filter(|_| *is_fast).map(AsFd::as_fd);
                let config =
                    PacketConfig { filter, reception: *reception, ..PacketConfig::default() };
                PacketSocket::open(name, 1, &config).map(|mut all| all.remove(0))
            };
            named.iter().map(open).collect::<Result<Vec<PacketSocket>, _>>()
        })?;
        let (mut sockets, mut setups, mut files) =
            (sockets.into_iter().map(OwnedFd::from), Vec::new(), Vec::new());
        for port in &self.0 {
            match &port.way {
                Way::Packet { .. } => {
                    setups.push(PortSetup::Packet);
                    files.extend(sockets.next());
                }
                Way::Xdp { sieve, queues, is_proven } => {
                    let (interface, probe) = (port.link.name.clone(), !is_proven);
                    setups.push(PortSetup::Xdp { interface, queues: *queues, probe });
                    files.push(sieve.sockets().try_clone_to_owned()?);
                    files.extend(sockets.next());
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
        for port in &mut self.0 {
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
            let (link, port) = (port.link.name.clone(), kind.to_string());
            PortStatus { link, port, queues, instead, receive_dropped, send_dropped }
        };
        self.0.iter().enumerate().map(status).collect()
    }
}

impl Port {
    /// Addresses that only the file has are asked for by multicast that nobody else has joined, and
    /// network cards drop frames of VLANs that the kernel does not know.
    fn reception(&self) -> Reception<'static> {
        if self.has_vlan { Reception::Promiscuous } else { Reception::Addresses(&[]) }
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
fn attach(link: &Linking, kept: Vec<KeptPorts>) -> Result<(Sieve, u32)> {
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
