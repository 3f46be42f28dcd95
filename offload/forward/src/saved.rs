//! Connections as they are kept for a forwarder that takes over after this one has ended.
//!
//! Kept is who speaks with whom, and by which mapping and back end. Not kept are the windows of
//! TCP: the first segment of each direction tells them anew. Nor are connections that nobody has
//! answered: their first packet comes again, and a flood of them costs nothing here. A SYN that was
//! answered does not come again, so a connection is kept from its SYN-ACK on.

use std::net::SocketAddr;

use nicache_tcp::{Splice, Time};

use crate::conntrack::{ConnectionId, Phase};
use crate::forwarder::Forwarder;
use crate::note::Note;
use crate::rules::Ruled;
use crate::segmenting::ANY_SIZE;
use crate::services::Chosen;
use crate::switch::{Echo, Lacks, Switched};
use crate::tcp_track::{Direction, TcpState};
use crate::tuple::{Endpoint, Tuple};

/// A connection as it is kept for a forwarder that takes over: who speaks with whom, and by which
/// mapping and back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Addresses and ports of its packets as they come in.
    pub original: Tuple,
    /// Addresses and ports of its packets as they go out.
    pub outgoing: Tuple,
    /// Of TCP: where it stands.
    pub state: Option<TcpState>,
    /// Of TCP: by direction, whether that end has sent its last byte.
    pub fins: [bool; 2],
    /// The interface by which it began.
    pub interface: usize,
    /// The external address that stands for its source, by its number.
    pub through: Option<usize>,
    /// Its destination was found by a mapping.
    pub is_mapped: bool,
    /// When it began.
    pub begun: Time,
    /// Packets in the original direction, and back.
    pub packets: [u64; 2],
    /// Bytes of IP.
    pub bytes: [u64; 2],
    /// Its back end was chosen by name: how its segments are changed.
    pub splice: Option<Splice>,
    /// What that back end does without.
    pub lacks: Lacks,
    /// See [`Switched::takes`].
    pub takes: [u16; 2],
}

impl Forwarder {
    /// From now on it remembers which connections have changed
    /// ([`poll_changed`](Self::poll_changed)).
    pub fn remember_changes(&mut self) {
        self.conntrack.remember_changes();
    }

    /// A number under which a connection has come, gone, or got to another state. What is there now
    /// is told by [`save`](Self::save).
    pub fn poll_changed(&mut self) -> Option<ConnectionId> {
        self.conntrack.poll_changed()
    }

    /// A connection, to be kept. `None`: there is nothing under this number that is worth it.
    pub fn save(&self, id: ConnectionId) -> Option<Saved> {
        let connection = self.conntrack.get(id).filter(|connection| {
            connection.phase() != Phase::Opening
                || connection.tcp_state() == Some(TcpState::SynReceived)
        })?;
        let note = &connection.note;
        // Its first bytes are kept here alone.
        if note.switched.is_some_and(|switched| switched.place.is_some()) {
            return None;
        }
        Some(Saved {
            original: connection.incoming(Direction::Original),
            outgoing: connection.outgoing(Direction::Original),
            state: connection.tcp_state(),
            fins: connection.fins(),
            interface: note.interface,
            through: note
                .source
                .and_then(|mapping| self.nat.get(mapping))
                .map(|mapping| mapping.through),
            is_mapped: note.destination.is_some(),
            begun: note.begun,
            packets: note.packets,
            bytes: note.bytes,
            splice: note.switched.map(|switched| switched.splice),
            lacks: note.switched.map_or_else(Lacks::default, |switched| switched.lacks),
            takes: note.switched.map_or([ANY_SIZE; 2], |switched| switched.takes),
        })
    }

    /// Takes over a connection that was kept. False: it does not fit how this forwarder is set up,
    /// or what is there.
    pub fn restore(&mut self, saved: &Saved, now: Time) -> bool {
        let Saved { original, outgoing, .. } = *saved;
        let is_v4 = [original.source, original.destination, outgoing.source, outgoing.destination]
            .map(|end: Endpoint| end.address.is_ipv4());
        if saved.interface >= self.links.interfaces.len()
            || is_v4 != [is_v4[0]; 4]
            || original.protocol != outgoing.protocol
            || saved.through.is_none() && original.source != outgoing.source
            || saved.splice.is_some() && (self.switch.is_none() || saved.state.is_none())
        {
            return false;
        }
        let destination = match saved.is_mapped {
            false => None,
            true => match self.nat.find_external(original.protocol, original.destination) {
                Some(mapping) => Some(mapping),
                None => return false,
            },
        };
        let source = match saved.through {
            None => None,
            Some(through) => {
                match self.nat.hold_as(original.protocol, original.source, outgoing.source, through)
                {
                    Some(mapping) => Some(mapping),
                    None => return false,
                }
            }
        };
        let chosen = self.back_end_at(&original, outgoing.destination);
        let note = Note {
            source,
            destination,
            chosen,
            ruled: Ruled::default(),
            interface: saved.interface,
            begun: saved.begun,
            packets: saved.packets,
            bytes: saved.bytes,
            entered: None,
            switched: saved.splice.map(|splice| Switched {
                splice,
                lacks: saved.lacks,
                takes: saved.takes,
                echo: Echo::default(),
                place: None,
            }),
        };
        let Saved { state, fins, .. } = *saved;
        if self.conntrack.restore(original, outgoing, state, fins, note, now).is_none() {
            source.into_iter().for_each(|mapping| self.nat.release(mapping));
            return false;
        }
        destination.into_iter().for_each(|mapping| self.nat.hold_again(mapping));
        chosen.into_iter().for_each(|chosen| self.services.begin(chosen));
        true
    }

    fn back_end_at(&self, original: &Tuple, target: Endpoint) -> Option<Chosen> {
        let service = self.services.find(original.protocol, original.destination)?;
        let back_ends = &self.services.config(service).back_ends;
        let back_end = back_ends.iter().position(|back_end| back_end.endpoint == target)?;
        Some(Chosen { service: service as u16, back_end: back_end as u16 })
    }
}

impl Saved {
    /// Its four ends, in the order source and destination as they come in, and as they go out.
    pub fn ends(&self) -> [SocketAddr; 4] {
        [
            self.original.source,
            self.original.destination,
            self.outgoing.source,
            self.outgoing.destination,
        ]
        .map(|end| SocketAddr::new(end.address, end.port))
    }
}
