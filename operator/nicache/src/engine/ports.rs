//! The ports of a card: TAP queues that the supervisor has made, or sockets on existing interfaces.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use nicache_port::{PacketConfig, PacketSocket, Port, Reception, TapConfig, TapQueue};
use nicache_xdp::l0::L0;
use nicache_xdp::{
    CardPort, Heartbeat, ProbeFiles, ProbeSide, ProbeSockets, Rest, XdpConfig, XdpError, XdpSocket,
    probe,
};

use crate::setup::{PortsSetup, ProbeSetup};

/// A port of any kind.
pub(crate) type AnyPort = Box<dyn Port + Send>;

/// The two ports of each queue, and what the kernel knows of the card's life.
pub(crate) struct Ports {
    /// Toward the clients, toward the server.
    pub pairs: Vec<(AnyPort, AnyPort)>,
    /// Of existing interfaces: while it beats, frames come here.
    pub heartbeat: Option<Heartbeat>,
    /// Name of the TAP toward the clients.
    pub tap: Option<String>,
    /// Where a program can be that answers before the card.
    pub first: Option<FirstPlace>,
    /// What is to be sent through them first.
    pub probe: Option<Probe>,
}

/// Probe frames for the ports ([`nicache_xdp::probe()`]).
pub(crate) struct Probe {
    wire: (String, ProbeSockets),
    host: (String, ProbeSockets),
    setup: ProbeSetup,
    key: OwnedFd,
    filter: OwnedFd,
    inject: [OwnedFd; 2],
    driver: Option<OwnedFd>,
}

impl Probe {
    /// Sends them. `secret`: a number that nobody else knows, not 0.
    pub(crate) fn send(&self, pairs: &mut [(AnyPort, AnyPort)], secret: u64) -> Result<()> {
        let [wire, host] = &self.inject;
        let files = ProbeFiles {
            key: self.key.as_fd(),
            filter: self.filter.as_fd(),
            inject: [wire.as_fd(), host.as_fd()],
            drivers: [self.driver.as_ref().map(AsFd::as_fd), None],
        };
        let (mut wire, mut host) = (Vec::new(), Vec::new());
        for (one, other) in pairs {
            wire.push(one.as_mut() as &mut dyn Port);
            host.push(other.as_mut() as &mut dyn Port);
        }
        let rest = self.setup.station.map_or(Rest::Redirect, Rest::Station);
        let mut sides = [side(&self.wire, wire, rest), side(&self.host, host, Rest::Redirect)];
        for untried in probe(&files, &mut sides, secret)? {
            tracing::info!("not all probe frames could be sent: {untried}");
        }
        Ok(())
    }
}

/// Where a program can be that answers before the card.
pub(crate) enum FirstPlace {
    /// At tc egress of a TAP, by its name.
    Tap(String),
    /// Before steering at the driver of an interface ([`nicache_xdp::FirstFiles`]).
    Driver {
        /// Its name.
        interface: String,
        /// The array of programs.
        first: OwnedFd,
        /// Steering.
        rest: OwnedFd,
    },
}

impl Ports {
    /// Takes the TAP queues out of `files`, or opens sockets with what is there instead
    /// ([`CardSetup`](crate::setup::CardSetup)).
    pub(crate) fn open(
        setup: &PortsSetup,
        queues: u16,
        files: &mut impl Iterator<Item = OwnedFd>,
    ) -> Result<Self> {
        let mut next =
            || files.next().context("a file of the card's ports did not come with the setup");
        match setup {
            PortsSetup::Taps => {
                let config = TapConfig::default();
                let mut taps =
                    || (0..queues).map(|_| tap(next()?, &config)).collect::<Result<Vec<_>>>();
                let (wire, host) = (taps()?, taps()?);
                let tap = wire.first().map(|queue| queue.interface().to_owned());
                let boxed = |queue: TapQueue| -> AnyPort { Box::new(queue) };
                let pairs = wire.into_iter().map(boxed).zip(host.into_iter().map(boxed)).collect();
                Ok(Self {
                    pairs,
                    heartbeat: None,
                    first: tap.clone().map(FirstPlace::Tap),
                    tap,
                    probe: None,
                })
            }
            PortsSetup::Interfaces { wire, host, port, has_driver, probe } => {
                let heartbeat =
                    Heartbeat::map(next()?.as_fd()).context("cannot map the card's heartbeat")?;
                let host_queue = next()?;
                // The network card has spread what comes from the wire; the kernel spreads what
                // comes from the host alike.
                let queue = (*port != CardPort::Packet).then(|| host_queue.as_fd());
                let mut open = |name: &str, port, queue| {
                    sockets(name, port, queues, queue, &next()?, &next()?)
                };
                let (wire_name, host_name) = (wire.clone(), host.clone());
                let (wire, wire_kind) = open(wire, *port, None)?;
                let (host, host_kind) = open(host, CardPort::Packet, queue)?;
                let (first, rest) = (next()?, next()?);
                // A card before this one may have left its own there.
                L0::detach_first(first.as_fd()).context("who answers before the card")?;
                let interface = wire_name.clone();
                let first = has_driver.then_some(FirstPlace::Driver { interface, first, rest });
                let probe = match probe {
                    None => None,
                    Some(setup) => Some(Probe {
                        wire: (wire_name, wire_kind),
                        host: (host_name, host_kind),
                        setup: setup.clone(),
                        key: next()?,
                        filter: next()?,
                        inject: [next()?, next()?],
                        driver: has_driver.then(&mut next).transpose()?,
                    }),
                };
                let pairs = wire.into_iter().zip(host).collect();
                Ok(Self { pairs, heartbeat: Some(heartbeat), tap: None, first, probe })
            }
        }
    }
}

fn side<'a>(
    of: &'a (String, ProbeSockets),
    ports: Vec<&'a mut dyn Port>,
    rest: Rest,
) -> ProbeSide<'a> {
    ProbeSide { interface: &of.0, ports, sockets: of.1, rest }
}

/// A TAP queue that the supervisor has made.
pub(crate) fn tap(file: OwnedFd, config: &TapConfig) -> Result<TapQueue> {
    TapQueue::from_owned_fd(file, config).context("a TAP queue from the supervisor")
}

/// Sockets that receive frames of services only. Others on the interface see to what it receives at
/// all.
fn sockets(
    name: &str,
    port: CardPort,
    queues: u16,
    queue: Option<BorrowedFd<'_>>,
    filter: &OwnedFd,
    map: &OwnedFd,
) -> Result<(Vec<AnyPort>, ProbeSockets)> {
    match port {
        CardPort::Packet => {
            let filter = Some(filter.as_fd());
            let config = PacketConfig {
                reception: Reception::Own,
                filter,
                queue,
                ..PacketConfig::default()
            };
            let sockets = PacketSocket::open(name, usize::from(queues), &config)?;
            let boxed = sockets.into_iter().map(|socket| -> AnyPort { Box::new(socket) }).collect();
            Ok((boxed, ProbeSockets::Packet))
        }
        CardPort::Xdp { queues } => {
            let (sockets, kind) = xdp_sockets(name, queues, map.as_fd())?;
            Ok((sockets.into_iter().map(|socket| -> AnyPort { Box::new(socket) }).collect(), kind))
        }
    }
}

/// AF_XDP sockets on so many queues of an interface, in a map of a program there.
pub(crate) fn xdp_sockets(
    name: &str,
    queues: u32,
    map: BorrowedFd<'_>,
) -> Result<(Vec<XdpSocket>, ProbeSockets), XdpError> {
    let (mut sockets, mut kind) = (Vec::new(), ProbeSockets::Copied);
    for queue in 0..queues {
        let socket = XdpSocket::open(name, queue, map, &XdpConfig::default())?;
        tracing::info!(interface = name, queue, zero_copy = socket.is_zero_copy(), "AF_XDP socket");
        if socket.is_zero_copy() {
            kind = ProbeSockets::ZeroCopy;
        }
        sockets.push(socket);
    }
    Ok((sockets, kind))
}
