//! Where a packet that belongs to no connection goes, and what of it is translated from then on.

use crate::conntrack::{Connection, ConnectionId, InsertError};
use crate::counters::Drop;
use crate::decision::Moment;
use crate::forwarder::Forwarder;
use crate::nat::{MappingError, MappingId};
use crate::note::Note;
use crate::packet::Packet;
use crate::rules::Ruled;
use crate::services::Chosen;
use crate::tcp_track;
use crate::tuple::{Endpoint, Protocol, Tuple};
use crate::view::Transport;

/// Back ends that are tried for a connection whose ends are taken at the first one.
const TRIES: u32 = 8;
/// Connections that are over and make room for one that needs a port.
const PORTS_RECLAIMED_MAX: usize = 8;

/// What a packet begins.
pub(crate) enum Begun {
    /// A connection.
    Connection(ConnectionId),
    /// Nothing: it is passed on as it is.
    Untracked,
    /// It goes to all of a group.
    Group(usize),
    /// It asks us for an echo.
    Echo,
    /// It is for a service whose back end is chosen by name.
    ByName(usize),
    /// It is for a service that nobody serves.
    Nobody,
    /// There is no way to its destination.
    NoRoute,
}

/// Where a packet leads.
struct Lead {
    to: Endpoint,
    chosen: Option<Chosen>,
    mapping: Option<MappingId>,
    masquerade: Option<usize>,
}

impl Forwarder {
    pub(crate) fn begin(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        bytes: u64,
        moment: Moment,
    ) -> Result<Begun, Drop> {
        let ruled = self.rules.find(tuple, packet.interface);
        // One that comes again was counted before.
        if !self.is_whole && !self.rules.passes(ruled, bytes, moment.now) {
            return Err(Drop::Rule);
        }
        let destination = tuple.destination;
        if tuple.protocol == Protocol::Udp
            && let Some(group) = self.groups.find(destination)
        {
            return Ok(Begun::Group(group));
        }
        let service = self.services.find(tuple.protocol, destination);
        if service.is_none()
            && self.nat.find_external(tuple.protocol, destination).is_none()
            && self.links.owned.contains(&destination.address)
        {
            let is_echo = matches!(packet.view.transport, Transport::Query { is_request: true });
            if self.is_left_alone(tuple) {
                return Err(Drop::NotOurs);
            }
            return if is_echo && packet.view.fragment.is_none() {
                Ok(Begun::Echo)
            } else {
                Err(Drop::NoConnection)
            };
        }
        if let Some(service) = service
            && self.services.config(service).by_name.is_some()
        {
            return Ok(Begun::ByName(service));
        }
        self.begin_with(packet, tuple, service.map(|service| (service, 0)), ruled, moment)
    }

    /// Begins a connection: with a back end of a service and its set, or with whom it is for.
    pub(crate) fn begin_with(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        service: Option<(usize, u16)>,
        ruled: Ruled,
        moment: Moment,
    ) -> Result<Begun, Drop> {
        let destination = tuple.destination;
        let is_reset =
            matches!(packet.view.transport, Transport::Tcp(segment) if segment.flags.rst());
        let is_begun = match packet.view.transport {
            Transport::Tcp(segment) => tcp_track::begins(segment.flags),
            Transport::Query { is_request } => is_request,
            _ => true,
        };
        for attempt in 0..TRIES {
            let lead = match service {
                Some((service, set)) => {
                    // Another try, another place in the table.
                    let asked = Tuple {
                        source: Endpoint {
                            port: tuple.source.port.wrapping_add(attempt as u16),
                            ..tuple.source
                        },
                        ..*tuple
                    };
                    let Some(chosen) = self.services.choose(service, set, &asked) else {
                        return Ok(Begun::Nobody);
                    };
                    let masquerade = self.services.config(service).masquerade;
                    Lead {
                        to: self.services.endpoint(chosen),
                        chosen: Some(chosen),
                        mapping: None,
                        masquerade,
                    }
                }
                None => self.lead(packet, tuple)?,
            };
            let Some(route) = self.links.routes.find(lead.to.address) else {
                return Ok(Begun::NoRoute);
            };
            let is_moved = lead.to != destination;
            let through = lead.masquerade.or_else(|| match route.interface == packet.interface {
                false => self.nat.choose(
                    &self.links.interfaces[route.interface].masquerade,
                    tuple.source.address,
                ),
                // Who is reached by the interface that it came from would answer past us (hairpin,
                // RFC 4787 section 6).
                true => self.nat.external_of(destination.address).filter(|_| is_moved),
            });
            if !is_moved && through.is_none() {
                return Ok(Begun::Untracked);
            }
            // What is in the middle of a connection that is not known would leave half translated.
            // A service may have been taken over from another balancer, which chose the same back
            // end; but a reset begins nothing.
            if !is_begun && (through.is_some() || service.is_none() || is_reset) {
                return Err(Drop::NoConnection);
            }
            let is_v4 = tuple.source.address.is_ipv4();
            let external = through.and_then(|through| self.nat.external(through));
            if lead.to.address.is_ipv4() != is_v4
                || external.is_some_and(|external| external.address.is_ipv4() != is_v4)
            {
                return Err(Drop::NoRoute);
            }
            match self.insert(packet, tuple, &lead, through, ruled, moment)? {
                Some(id) => return Ok(Begun::Connection(id)),
                None if service.is_some() => {}
                None => break,
            }
        }
        Err(Drop::EndsUsed)
    }

    /// Without a service: a mapping's inside end, or straight on.
    fn lead(&self, packet: &Packet<'_>, tuple: &Tuple) -> Result<Lead, Drop> {
        let Some(mapping) = self.nat.find_external(tuple.protocol, tuple.destination) else {
            return Ok(Lead {
                to: tuple.destination,
                chosen: None,
                mapping: None,
                masquerade: None,
            });
        };
        let is_from_inside = self.links.interfaces[packet.interface].masquerade.is_empty();
        if !is_from_inside && !self.nat.is_open(mapping) {
            return Err(Drop::NoConnection);
        }
        let to = self.nat.get(mapping).ok_or(Drop::NoConnection)?.internal;
        Ok(Lead { to, chosen: None, mapping: Some(mapping), masquerade: None })
    }

    /// `None`: its ends are another connection's.
    fn insert(
        &mut self,
        packet: &Packet<'_>,
        tuple: &Tuple,
        lead: &Lead,
        through: Option<usize>,
        ruled: Ruled,
        Moment { now, random }: Moment,
    ) -> Result<Option<ConnectionId>, Drop> {
        if let Some(old) = self.conntrack.in_the_way(tuple.protocol) {
            self.end(old, now);
            self.counters.pushed_out += 1;
        }
        let source = match through {
            Some(through) => Some(self.hold(tuple, through, Moment { now, random })?),
            None => None,
        };
        let from = source
            .and_then(|mapping| self.nat.get(mapping))
            .map_or(tuple.source, |mapping| mapping.external);
        let outgoing = Tuple { protocol: tuple.protocol, source: from, destination: lead.to };
        // One that is over leaves its ends to the next.
        if let Some((old, _)) = self.conntrack.find(&outgoing.reversed())
            && self.conntrack.get(old).is_some_and(Connection::is_over)
        {
            self.end(old, now);
            self.counters.pushed_out += 1;
        }
        let note = Note {
            source,
            destination: lead.mapping,
            chosen: lead.chosen,
            ruled,
            interface: packet.interface,
            begun: now,
            packets: [0; 2],
            bytes: [0; 2],
            entered: None,
            switched: None,
        };
        match self.conntrack.insert(&packet.view, &outgoing, note, now) {
            Ok(id) => {
                if let Some(mapping) = lead.mapping {
                    self.nat.hold_again(mapping);
                }
                if let Some(chosen) = lead.chosen {
                    self.services.begin(chosen);
                }
                self.counters.begun += 1;
                Ok(Some(id))
            }
            Err((error, _)) => {
                if let Some(mapping) = source {
                    self.nat.release(mapping);
                }
                match error {
                    InsertError::Taken => Ok(None),
                    _ => Err(Drop::TableFull),
                }
            }
        }
    }

    /// A mapping for the source. If all ports are in use, connections that are over give theirs.
    fn hold(
        &mut self,
        tuple: &Tuple,
        through: usize,
        Moment { now, random }: Moment,
    ) -> Result<MappingId, Drop> {
        for _ in 0..=PORTS_RECLAIMED_MAX {
            match self.nat.hold(tuple.protocol, tuple.source, through, random) {
                Ok(mapping) => return Ok(mapping),
                Err(MappingError::NoPort) => match self.conntrack.over() {
                    Some(old) => {
                        self.end(old, now);
                        self.counters.pushed_out += 1;
                    }
                    None => break,
                },
                Err(_) => return Err(Drop::TableFull),
            }
        }
        Err(Drop::PortsUsed)
    }
}
