//! Programs at two interfaces that leave the frames of services to a card between them.
//!
//! ```no_run
//! use nicache_xdp::*;
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = SteeringConfig {
//!     services: &[Service::port(80)],
//!     wire: Side { interface: "eth0", rest: Rest::Redirect, port: CardPort::Packet },
//!     host: Side { interface: "server", rest: Rest::Redirect, port: CardPort::Packet },
//!     has_first: false,
//!     connections: 10_000,
//! };
//! let steering = Steering::attach(&config)?;
//! let heartbeat = Heartbeat::map(steering.files().heartbeat)?;
//! steering.begin_term()?;
//! // ... open ports with `steering.files().wire.filter`, and beat.
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nicache_port::{PacketSocket, Reception};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::{SteeringError, step};
use crate::link::{Ingress, attach_ingress, attach_native};
use crate::maps::{self, Counts};
use crate::probe::ProbeFiles;
use crate::program::{SidePrograms, load};
use crate::service::{SERVICES_MAX, Service};
use crate::side::{CardPort, Rest, Side};
use crate::term::{Connection, Terms};

/// What is steered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeringConfig<'a> {
    /// What the card serves, at most [`SERVICES_MAX`]; see [`Steering::add_service`].
    pub services: &'a [Service],
    /// Toward the clients: frames *to* a service are the card's.
    pub wire: Side<'a>,
    /// Toward the server: frames *from* a service are the card's.
    pub host: Side<'a>,
    /// Whether another program may be asked before steering at the wire's driver ([`FirstFiles`]).
    /// If that runs no XDP programs, a card with packet sockets goes without
    /// ([`Steering::without_first`]).
    pub has_first: bool,
    /// Most connections that can be lost with a card: all that it holds.
    pub connections: u32,
}

/// The programs at work.
///
/// When this is dropped, or the process that has it ends in whatever way, both interfaces are as
/// before, unless another process holds the [files](Steering::held). (Before Linux 6.6 a process
/// that is killed leaves its filters, which let frames pass as if the card were dead, until the
/// next one attaches anything in that network namespace.)
#[derive(Debug)]
pub struct Steering {
    heartbeat: OwnedFd,
    services: OwnedFd,
    counts: OwnedFd,
    terms: Terms,
    host_queue: OwnedFd,
    first: OwnedFd,
    wire_rest: OwnedFd,
    probe: OwnedFd,
    probe_filter: OwnedFd,
    /// Why there is no place for a program before steering, if one was wanted.
    without_first: Option<SteeringError>,
    wire: Attached,
    host: Attached,
}

/// What is attached to one interface.
#[derive(Debug)]
struct Attached {
    port: CardPort,
    filter: OwnedFd,
    sockets: OwnedFd,
    ingress: Ingress,
    inject: OwnedFd,
    driver: Option<Driver>,
    /// Keeps the interface receiving frames for others.
    reception: Option<OwnedFd>,
}

/// An XDP program at an interface.
#[derive(Debug)]
struct Driver {
    program: OwnedFd,
    link: OwnedFd,
}

/// The files behind [`Steering`], to be borrowed for a port or passed to another process.
#[derive(Debug, Clone, Copy)]
pub struct SteeringFiles<'a> {
    /// For [`Heartbeat::map`](crate::Heartbeat::map).
    pub heartbeat: BorrowedFd<'a>,
    /// Toward the clients.
    pub wire: SideFiles<'a>,
    /// Toward the server.
    pub host: SideFiles<'a>,
    /// For [`PacketConfig::queue`](nicache_port::PacketConfig) toward the server if the card has
    /// several AF_XDP sockets toward the clients: gives both directions of a flow the same number.
    pub host_queue: BorrowedFd<'a>,
    /// For who answers before the card.
    pub first: FirstFiles<'a>,
    /// For [`probe`](crate::probe()).
    pub probe: ProbeFiles<'a>,
}

/// The place of a program that is asked before steering, for [`L0`](crate::l0::L0).
#[derive(Debug, Clone, Copy)]
pub struct FirstFiles<'a> {
    /// The array of programs that holds it. It is asked while the heartbeat beats.
    pub first: BorrowedFd<'a>,
    /// Steering, to which it passes what it does not answer.
    pub rest: BorrowedFd<'a>,
}

/// What the card needs of one side.
#[derive(Debug, Clone, Copy)]
pub struct SideFiles<'a> {
    /// For [`PacketConfig::filter`](nicache_port::PacketConfig): lets the socket receive frames of
    /// services only.
    pub filter: BorrowedFd<'a>,
    /// For [`XdpSocket::open`](crate::XdpSocket::open): the map of sockets by queue.
    pub sockets: BorrowedFd<'a>,
}

/// Numbers of the sides (`enum side` in `ebpf/service.h`).
const WIRE: u32 = 0;
const HOST: u32 = 1;

impl Steering {
    /// Loads the programs and attaches them to both interfaces. The card does not count as alive
    /// yet, so no frame is its own until the first beat.
    ///
    /// # Errors
    /// See [`SteeringError`]; then nothing is left behind.
    pub fn attach(config: &SteeringConfig<'_>) -> Result<Self, SteeringError> {
        let (wire, host) = (&config.wire, &config.host);
        let (wire_index, host_index) = (index_of(wire.interface)?, index_of(host.interface)?);
        if wire_index == host_index {
            return Err(SteeringError::SameInterface(wire.interface.to_owned()));
        }
        if config.services.len() > SERVICES_MAX {
            return Err(SteeringError::TooManyServices);
        }
        let queues = |side: &Side<'_>| match side.port {
            CardPort::Packet => 0,
            CardPort::Xdp { queues } => queues,
        };
        if queues(host) > 1 || (queues(wire) > 1 && queues(host) > 0) {
            return Err(SteeringError::Queues);
        }
        let loaded = load(queues(wire).max(queues(host)), config.connections)?;
        for service in config.services {
            set_service(loaded.services.as_fd(), service)
                .map_err(step("telling the programs about a service"))?;
        }
        for (side, number, other) in [(wire, WIRE, host_index), (host, HOST, wire_index)] {
            maps::set(loaded.ways.as_fd(), number.to_ne_bytes(), way(side, other))
                .map_err(step("telling the programs about an interface"))?;
        }
        let heartbeat = loaded.heartbeat.try_clone().map_err(step("keeping the heartbeat"))?;
        let terms = Terms { heartbeat, term: loaded.term, lost: loaded.lost, begun: loaded.begun };
        terms.end([]).map_err(step("telling the programs that there was no card"))?;
        let (wire, without_first) = attach_side(wire, wire_index, loaded.wire, config.has_first)?;
        let (host, _) = attach_side(host, host_index, loaded.host, false)?;
        Ok(Self {
            terms,
            without_first,
            wire,
            host,
            probe: loaded.probe,
            probe_filter: loaded.probe_filter,
            heartbeat: loaded.heartbeat,
            services: loaded.services,
            counts: loaded.counts,
            host_queue: loaded.host_queue,
            first: loaded.first,
            wire_rest: loaded.wire_rest,
        })
    }

    /// A card is about to begin. When it stops beating, connections pass that began after that, as
    /// others may be such that only it could go on with; until [`end_term`](Steering::end_term)
    /// tells which.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn begin_term(&self) -> io::Result<()> {
        self.terms.begin()
    }

    /// The card has ended, whatever its last beat says, and with it these connections: their
    /// segments are dropped, with whichever VLAN tags. All others pass from now on, and so does a
    /// connection that a client begins anew.
    ///
    /// # Errors
    /// What the kernel says, e.g. `E2BIG` if there are more than
    /// [`connections`](SteeringConfig::connections). Then the term goes on.
    pub fn end_term(&self, lost: impl IntoIterator<Item = Connection>) -> io::Result<()> {
        self.terms.end(lost)
    }

    /// From now on the connections of this service go to the card, too.
    ///
    /// # Errors
    /// [`SteeringError::TooManyServices`], or what the kernel says.
    pub fn add_service(&self, service: &Service) -> Result<(), SteeringError> {
        set_service(self.services.as_fd(), service).map_err(|error| match error.raw_os_error() {
            Some(libc::E2BIG) => SteeringError::TooManyServices,
            _ => step("telling the programs about a service")(error),
        })
    }

    /// From now on the connections of this service do not go to the card any longer.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn remove_service(&self, service: &Service) -> Result<(), SteeringError> {
        maps::remove(self.services.as_fd(), service.key())
            .map_err(step("telling the programs about a service"))
    }

    /// Frames from the wire and from the host since the programs were attached.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn counts(&self) -> io::Result<[Counts; 2]> {
        Ok([maps::counts(self.counts.as_fd(), WIRE)?, maps::counts(self.counts.as_fd(), HOST)?])
    }

    /// Whether there are XDP programs at wire and host.
    pub fn has_driver(&self) -> [bool; 2] {
        [&self.wire, &self.host].map(|side| side.driver.is_some())
    }

    /// Why no program can be asked before steering, if that was
    /// [wanted](SteeringConfig::has_first).
    pub fn without_first(&self) -> Option<&SteeringError> {
        self.without_first.as_ref()
    }

    /// Nobody is asked before steering: the XDP program toward the wire, if it is there for nothing
    /// else, is detached.
    pub fn drop_first(&mut self) {
        if self.wire.port == CardPort::Packet {
            self.wire.driver = None;
        }
    }

    /// What a card needs.
    pub fn files(&self) -> SteeringFiles<'_> {
        SteeringFiles {
            heartbeat: self.heartbeat.as_fd(),
            wire: self.wire.files(),
            host: self.host.files(),
            host_queue: self.host_queue.as_fd(),
            first: FirstFiles { first: self.first.as_fd(), rest: self.wire_rest.as_fd() },
            probe: ProbeFiles {
                key: self.probe.as_fd(),
                filter: self.probe_filter.as_fd(),
                inject: [self.wire.inject.as_fd(), self.host.inject.as_fd()],
                drivers: [&self.wire, &self.host]
                    .map(|side| side.driver.as_ref().map(|driver| driver.program.as_fd())),
            },
        }
    }

    /// The files that keep the programs attached: they stay until the last process that holds one
    /// of each kind has closed it.
    pub fn held(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.wire, &self.host].into_iter().flat_map(|side| {
            let driver = side.driver.as_ref().map(|driver| driver.link.as_fd());
            side.ingress
                .link()
                .into_iter()
                .chain(driver)
                .chain(side.reception.as_ref().map(AsFd::as_fd))
        })
    }
}

impl Attached {
    fn files(&self) -> SideFiles<'_> {
        SideFiles { filter: self.filter.as_fd(), sockets: self.sockets.as_fd() }
    }
}

fn attach_side(
    side: &Side<'_>,
    index: u32,
    programs: SidePrograms,
    has_first: bool,
) -> Result<(Attached, Option<SteeringError>), SteeringError> {
    let ingress = attach_ingress(programs.ingress.as_fd(), index).map_err(|error| {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => SteeringError::NotPermitted(error.to_string()),
            _ => step("attaching a program at tc ingress")(error),
        }
    })?;
    let attached = (has_first || side.port != CardPort::Packet)
        .then(|| attach_native(programs.driver.as_fd(), side.interface, index));
    let (link, without_first) = match attached.transpose() {
        Ok(link) => (link, None),
        Err(error) if side.port == CardPort::Packet => (None, Some(error)),
        Err(error) => return Err(error),
    };
    let driver = link.map(|link| Driver { program: programs.driver, link });
    let reception = match side.rest {
        Rest::Pass => None,
        Rest::Redirect => Some(PacketSocket::listen(side.interface, Reception::Promiscuous)?),
        Rest::Station(address) => {
            Some(PacketSocket::listen(side.interface, Reception::Addresses(&[address]))?)
        }
    };
    let SidePrograms { filter, sockets, inject, .. } = programs;
    Ok((
        Attached { port: side.port, filter, sockets, inject, ingress, driver, reception },
        without_first,
    ))
}

fn set_service(services: BorrowedFd<'_>, service: &Service) -> io::Result<()> {
    maps::set(services, service.key(), 1u32.to_ne_bytes())
}

/// `struct way` in `ebpf/steer.bpf.c`.
fn way(side: &Side<'_>, other: u32) -> [u8; 20] {
    let (rest, station) = match side.rest {
        Rest::Pass => (0u32, [0; 6]),
        Rest::Redirect => (1, [0; 6]),
        Rest::Station(address) => (2, address),
    };
    let mut way = [0; 20];
    way[..4].copy_from_slice(&other.to_ne_bytes());
    way[4..8].copy_from_slice(&rest.to_ne_bytes());
    way[8..12].copy_from_slice(&u32::from(side.port == CardPort::Packet).to_ne_bytes());
    way[12..18].copy_from_slice(&station);
    if let CardPort::Xdp { queues } = side.port {
        way[18..].copy_from_slice(&u16::try_from(queues).unwrap_or(u16::MAX).to_ne_bytes());
    }
    way
}

pub(crate) fn index_of(interface: &str) -> Result<u32, SteeringError> {
    let failed = step::<rustix::io::Errno>("opening a socket to ask for interfaces");
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(failed)?;
    rustix::net::netdevice::name_to_index(&socket, interface)
        .map_err(|_| SteeringError::NoInterface(interface.to_owned()))
}
