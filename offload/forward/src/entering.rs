//! Connections whose packets need no look any longer: which ones these are, and what is known of
//! them while others forward them.
//!
//! A connection that is established in both directions is *entered* with each direction's way:
//! ends, next hop, and until when. From then on whoever has it ([`FastPath`]) forwards what changes
//! no state, and everything else comes here as before. What was forwarded elsewhere is *caught up
//! with* before a packet of the connection is judged, before it would lapse, and when somebody
//! asks.
//!
//! ```text
//!  a packet of an established connection ─▶ enter ──▶ forwarded elsewhere, and counted there
//!  FIN, RST, SYN, fragment, outside of the windows, ... ─▶ catch up ─▶ judged here ─▶ still established?  no: leave
//!  another route, MTU, or rule ─▶ void: all ways are of an old edition, and each is entered anew by its next packet
//!  a neighbour with another MAC address ─▶ those by way of it leave, if they are few; else void
//!  a back end that does otherwise ─▶ the ways of its connections are taken back, if they are few; else void
//! ```
//!
//! Not entered: what comes in or goes out where nobody else forwards, what a limit holds for, what
//! has options or is a fragment, frames with two VLAN tags, connections of services by name before
//! they are spliced, or whose options are changed.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use nicache_tcp::Time;
use nicache_tcp::frame::Tags;

use crate::conntrack::{Connection, ConnectionId, Conntrack, Phase};
use crate::fast_path::{Arrival, FastCounters, FastPath, PLACES_MAX, Passed, Way};
use crate::note::{Entered, Note};
use crate::packet::Packet;
use crate::tcp_track::Direction;
use crate::tuple::Protocol;

/// Packets of a connection before it is entered, in both directions together: a short one is not
/// worth it.
const PACKETS_BEFORE: u64 = 6;
/// Connections that one sweep looks at. It takes some microseconds for each.
const SWEEP_MAX: usize = 4096;
/// How long ways count after the last sweep: a forwarder that hangs decides nothing.
const LEASE: Duration = Duration::from_secs(10);
/// More than this was forwarded elsewhere: numbers of before and now cannot be compared any longer,
/// because they turn over every 4 GiB.
const FAR_BYTES: u64 = 1 << 30;
/// How long a place rests.
const REST: Duration = Duration::from_secs(1);

/// Which connections are on the fast path, and what is known of them while it forwards their
/// packets.
#[derive(Debug)]
pub(crate) struct Entering {
    path: Box<dyn FastPath>,
    /// Whose place it is.
    places: Box<[Option<ConnectionId>]>,
    free: Vec<u32>,
    /// Places that were given up, each with when it may be used again: a packet may be under way
    /// with the old one.
    resting: VecDeque<(u32, Time)>,
    next: usize,
    edition: u32,
    until: Time,
    counters: FastCounters,
}

impl Entering {
    /// # Errors
    /// What the system says.
    pub(crate) fn new(mut path: Box<dyn FastPath>, now: Time) -> io::Result<Self> {
        let (count, until) = (path.places().min(PLACES_MAX), now + LEASE);
        path.keep(1, until)?;
        Ok(Self {
            path,
            places: vec![None; count as usize].into_boxed_slice(),
            free: (0..count).rev().collect(),
            resting: VecDeque::new(),
            next: 0,
            edition: 1,
            until,
            counters: FastCounters::default(),
        })
    }

    /// What was forwarded elsewhere, as far as it is caught up with.
    pub(crate) fn counters(&self) -> FastCounters {
        FastCounters { unsent: self.path.unsent(), ..self.counters }
    }

    /// The edition of all that is decided now.
    pub(crate) fn edition(&self) -> u32 {
        self.edition
    }

    /// The connections that are entered.
    pub(crate) fn connections(&self) -> Vec<ConnectionId> {
        self.places.iter().copied().flatten().collect()
    }

    /// Whether a connection is forwarded elsewhere, in both directions.
    pub(crate) fn is_fast(&self, note: &Note) -> bool {
        [Direction::Original, Direction::Reply]
            .into_iter()
            .all(|direction| self.is_entered(note, direction))
    }

    fn is_entered(&self, note: &Note, direction: Direction) -> bool {
        let way = note.entered.and_then(|entered| entered.ways[direction as usize]);
        way.is_some_and(|(_, edition)| edition == self.edition)
    }

    /// Whether the way of a packet is to be entered that is passed on to `out`, between interfaces
    /// with these `tags`.
    pub(crate) fn wants(
        &self,
        packet: &Packet<'_>,
        connection: &Connection<Note>,
        direction: Direction,
        out: usize,
        tags: [&Tags; 2],
    ) -> bool {
        let note = &connection.note;
        !self.is_entered(note, direction)
            && note.packets.iter().sum::<u64>() >= PACKETS_BEFORE
            && note.switched.is_none_or(|switched| switched.is_constant())
            && packet.is_plain()
            && is_established(connection)
            && tags.into_iter().all(is_usual)
            && [packet.interface, out].into_iter().all(|interface| self.path.has(interface))
    }

    /// The place of a connection, a new one if need be. `None`: there is no room.
    pub(crate) fn place(
        &mut self,
        id: ConnectionId,
        conntrack: &mut Conntrack<Note>,
        now: Time,
    ) -> Option<u32> {
        let connection = conntrack.get(id)?;
        if let Some(entered) = connection.note.entered {
            return Some(entered.place);
        }
        let place = self.take_place(now)?;
        let begun = self.path.begin(place, connection.numbers());
        if self.check(begun).is_none() {
            self.free.push(place);
            return None;
        }
        self.places[place as usize] = Some(id);
        self.counters.connections += 1;
        self.counters.entered += 1;
        let entered = Entered { place, ways: [None; 2], counted: [Passed::default(); 2] };
        conntrack.note_mut(id)?.entered = Some(entered);
        Some(place)
    }

    /// Packets of a connection that has its [`place`](Self::place) go this way.
    pub(crate) fn enter(
        &mut self,
        id: ConnectionId,
        conntrack: &mut Conntrack<Note>,
        arrival: &Arrival,
        way: &Way,
    ) {
        let Some(entered) = conntrack.note_mut(id).and_then(|note| note.entered.as_mut()) else {
            return;
        };
        let side = way.direction as usize;
        if let Some((interface, _)) = entered.ways[side]
            && interface != arrival.interface
        {
            let left = self.path.leave(&Arrival { interface, ..*arrival });
            if self.check(left).is_none() {
                return;
            }
            entered.ways[side] = None;
        }
        let result = self.path.enter(arrival, way);
        // One of an older edition stays where it is if it cannot be renewed.
        if self.check(result).is_some() {
            entered.ways[side] = Some((arrival.interface, way.edition));
        }
    }

    /// Something that decisions depend on is otherwise: none of those that were entered counts.
    /// False: they cannot be taken back so.
    #[must_use]
    pub(crate) fn void(&mut self) -> bool {
        self.edition = self.edition.wrapping_add(1);
        self.counters.voided += 1;
        self.keep()
    }

    fn keep(&mut self) -> bool {
        let kept = self.path.keep(self.edition, self.until);
        self.check(kept).is_some()
    }

    /// Ways count for longer. Returns how many connections are to be looked at now, with
    /// [`next_connection`](Self::next_connection).
    pub(crate) fn begin_sweep(&mut self, now: Time) -> usize {
        self.until = now + LEASE;
        self.keep();
        (self.counters.connections as usize).min(SWEEP_MAX)
    }

    /// The next one that has a place, if any has.
    pub(crate) fn next_connection(&mut self) -> Option<ConnectionId> {
        for _ in 0..self.places.len() {
            let place = self.next;
            self.next = (place + 1) % self.places.len();
            if self.places[place].is_some() {
                return self.places[place];
            }
        }
        None
    }

    /// What was forwarded of a connection is counted, and its state follows. Returns how many
    /// packets these were.
    pub(crate) fn catch_up(&mut self, id: ConnectionId, conntrack: &mut Conntrack<Note>) -> u64 {
        let Some(connection) = conntrack.get(id) else { return 0 };
        let Some(entered) = connection.note.entered else { return 0 };
        let looked = self.path.look(entered.place);
        let Some((numbers, passed)) = self.check(looked) else { return 0 };
        let last = passed[0].last.max(passed[1].last);
        let bytes = |passed: &[Passed; 2]| passed[0].bytes.saturating_add(passed[1].bytes);
        let since = bytes(&passed).saturating_sub(bytes(&entered.counted));
        conntrack.catch_up(id, numbers, since >= FAR_BYTES, last);
        let Some(note) = conntrack.note_mut(id) else { return 0 };
        let mut all = 0;
        for (direction, passed) in passed.iter().enumerate() {
            let before = entered.counted[direction];
            let packets = passed.packets.saturating_sub(before.packets);
            let bytes = passed.bytes.saturating_sub(before.bytes);
            note.packets[direction] += packets;
            note.bytes[direction] += bytes;
            self.counters.packets += packets;
            self.counters.bytes += bytes;
            all += packets;
        }
        note.entered = Some(Entered { counted: passed, ..entered });
        all
    }

    /// After a packet of a connection was judged here, and its state is still one in which others
    /// may forward it: these are told what it has shown.
    pub(crate) fn tell(&mut self, id: ConnectionId, conntrack: &Conntrack<Note>) {
        let Some(connection) = conntrack.get(id) else { return };
        let Some(entered) = connection.note.entered else { return };
        if let Some(numbers) = connection.numbers() {
            let told = self.path.tell(entered.place, numbers);
            self.check(told);
        }
    }

    /// Whether a connection is entered and is in a state in which others may not forward it.
    pub(crate) fn must_leave(&self, connection: &Connection<Note>) -> bool {
        connection.note.entered.is_some()
            && !matches!(connection.phase(), Phase::Open | Phase::Datagrams)
    }

    /// Takes back the ways of a connection, which keeps its place: its next packets enter it anew.
    /// False: one of them could not be taken back.
    #[must_use]
    pub(crate) fn take_back(&mut self, id: ConnectionId, conntrack: &mut Conntrack<Note>) -> bool {
        let Some(connection) = conntrack.get(id) else { return true };
        let Some(mut entered) = connection.note.entered else { return true };
        for direction in [Direction::Original, Direction::Reply] {
            let way = &mut entered.ways[direction as usize];
            if let Some((interface, _)) = *way {
                let arrival = Arrival { interface, tuple: connection.incoming(direction) };
                let left = self.path.leave(&arrival);
                if self.check(left).is_some() {
                    *way = None;
                }
            }
        }
        if let Some(note) = conntrack.note_mut(id) {
            note.entered = Some(entered);
        }
        entered.ways == [None; 2]
    }

    /// From now on a connection is forwarded here. Returns how many packets were forwarded
    /// elsewhere until then and had not been counted, and whether its ways were taken back; if
    /// not, all must become [void](Self::void).
    pub(crate) fn leave(
        &mut self,
        id: ConnectionId,
        conntrack: &mut Conntrack<Note>,
        now: Time,
    ) -> (u64, bool) {
        let is_taken_back = self.take_back(id, conntrack);
        // Only now nothing more is forwarded, and all that was is known.
        let packets = self.catch_up(id, conntrack);
        if let Some(entered) = conntrack.note_mut(id).and_then(|note| note.entered.take()) {
            self.places[entered.place as usize] = None;
            self.resting.push_back((entered.place, now + REST));
            self.counters.connections -= 1;
        }
        (packets, is_taken_back)
    }

    fn take_place(&mut self, now: Time) -> Option<u32> {
        if self.resting.front().is_some_and(|(_, until)| *until <= now) {
            return self.resting.pop_front().map(|(place, _)| place);
        }
        self.free.pop()
    }

    fn check<T>(&mut self, result: io::Result<T>) -> Option<T> {
        self.counters.failed += u64::from(result.is_err());
        result.ok()
    }
}

fn is_established(connection: &Connection<Note>) -> bool {
    match (connection.phase(), connection.incoming(Direction::Original).protocol) {
        (Phase::Open, Protocol::Tcp) => connection.numbers().is_some(),
        (Phase::Datagrams, Protocol::Udp) => true,
        _ => false,
    }
}

/// One tag of the kind that the kernel puts in and takes out, or none.
fn is_usual(tags: &Tags) -> bool {
    matches!(tags.bytes(), [] | [0x81, 0, _, _])
}
