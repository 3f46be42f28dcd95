//! Connections whose packets need no look any more: which ones these are, and what is known of them while others forward them.
//!
//! A connection that is established in both directions is *entered* with each direction's way: ends, next hop, and until when. From then on whoever has it ([`FastPath`]) forwards what
//! changes no state, and everything else comes here as before. What was forwarded elsewhere is *caught up with* before a packet of the connection is judged, before it would lapse, and
//! when somebody asks.
//!
//! ```text
//!  a packet of an established connection ─▶ enter ──▶ forwarded elsewhere, and counted there
//!  FIN, RST, SYN, fragment, outside of the windows, ... ─▶ catch up ─▶ judged here ─▶ still established?  no: leave
//!  another route, neighbour, MTU, rule, or health ─▶ void: all ways are of an old edition, and each is entered anew by its next packet
//! ```
//!
//! Not entered: what a limit holds for, what has options or is a fragment, frames with two VLAN tags, connections whose numbers are changed (services by name).

use std::collections::VecDeque;
use std::fmt;
use std::io;

use nicache_tcp::Time;
use nicache_tcp::frame::Tags;

use crate::conntrack::{Connection, ConnectionId, Phase};
use crate::decision::{Head, Outgoing};
use crate::forwarder::{Forwarder, Note, Packet};
use crate::services::Health;
use crate::tcp_track::Direction;
pub use crate::tcp_track::Numbers;
use crate::tuple::{Protocol, Tuple};

/// Packets of a connection before it is entered, in both directions together: a short one is not worth it.
const PACKETS_BEFORE: u64 = 6;
/// Connections that are entered at most.
pub const PLACES_MAX: u32 = 65_536;
/// Connections that one [`Forwarder::sweep`] looks at. It takes some microseconds for each.
const SWEEP_MAX: usize = 4096;
/// How long ways count after the last sweep: a forwarder that hangs decides nothing.
const LEASE: std::time::Duration = std::time::Duration::from_secs(10);

/// What was forwarded elsewhere of a direction, since the connection has its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// When the last packet was; [`Time::ZERO`]: none.
    pub last: Time,
    /// Packets; a super-frame is one.
    pub packets: u64,
    /// Bytes of IP.
    pub bytes: u64,
}

/// How a packet is known that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// By which interface.
    pub interface: usize,
    /// Its ends.
    pub tuple: Tuple,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// The connection's place.
    pub place: u32,
    /// Its direction.
    pub direction: Direction,
    /// The edition of all that was decided; ways of others do not count.
    pub edition: u32,
    /// The interface that it goes out by.
    pub interface: usize,
    /// Its new ends.
    pub tuple: Tuple,
    /// Destination and source of the frame.
    pub macs: [u8; 12],
    /// Bytes of the longest IP packet that the link takes.
    pub mtu: u32,
    /// Until when this counts.
    pub until: Time,
}

/// Whoever forwards connections that are entered. A place is one of [`places`](Self::places) numbers.
pub trait FastPath: fmt::Debug + Send {
    /// Connections that it has room for.
    fn places(&self) -> u32;

    /// A place is a connection's from now on, of which nothing was forwarded yet.
    ///
    /// # Errors
    /// What the system says; as for all others.
    fn begin(&mut self, place: u32, numbers: Option<[Numbers; 2]>) -> io::Result<()>;

    /// Forwards such packets that way.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn enter(&mut self, arrival: &Arrival, way: &Way) -> io::Result<()>;

    /// No longer.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn leave(&mut self, arrival: &Arrival) -> io::Result<()>;

    /// What is known of a connection, and what was forwarded of it.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn look(&mut self, place: u32) -> io::Result<([Numbers; 2], [Passed; 2])>;

    /// More is known of a connection.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn tell(&mut self, place: u32, numbers: [Numbers; 2]) -> io::Result<()>;

    /// Only ways of this edition count, until a time.
    ///
    /// # Errors
    /// See [`begin`](Self::begin).
    fn keep(&mut self, edition: u32, until: Time) -> io::Result<()>;

    /// Packets that it could not send on after all.
    fn unsent(&self) -> u64;
}

/// What is kept beside a connection that is entered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    place: u32,
    /// By direction: by which interface, and of which edition.
    ways: [Option<(usize, u32)>; 2],
    /// What of it is counted here already.
    counted: [Passed; 2],
}

/// What was forwarded elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastCounters {
    /// Connections that are entered at the moment.
    pub connections: u64,
    /// Connections entered.
    pub entered: u64,
    /// How often all ways became void at once.
    pub voided: u64,
    /// Packets forwarded there.
    pub packets: u64,
    /// Bytes of IP in them.
    pub bytes: u64,
    /// Packets that were taken there and could not be sent.
    pub unsent: u64,
    /// Calls of the system that failed.
    pub failed: u64,
}

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Entering {
    path: Box<dyn FastPath>,
    /// Whose place it is.
    places: Box<[Option<ConnectionId>]>,
    free: Vec<u32>,
    /// Places that were given up, each with when it may be used again: a packet may be under way with the old one.
    resting: VecDeque<(u32, Time)>,
    next: usize,
    edition: u32,
    until: Time,
    counters: FastCounters,
}

/// How long a place rests.
const REST: std::time::Duration = std::time::Duration::from_secs(1);

impl Entering {
    fn check<T>(&mut self, result: io::Result<T>) -> Option<T> {
        self.counters.failed += u64::from(result.is_err());
        result.ok()
    }

    fn take_place(&mut self, now: Time) -> Option<u32> {
        if self.resting.front().is_some_and(|(_, until)| *until <= now) {
            return self.resting.pop_front().map(|(place, _)| place);
        }
        self.free.pop()
    }

    fn leave(&mut self, connection: &Connection<Note>, entered: &Entered, now: Time) {
        for direction in [Direction::Original, Direction::Reply] {
            if let Some((interface, _)) = entered.ways[direction as usize] {
                let arrival = Arrival { interface, tuple: connection.incoming(direction) };
                let left = self.path.leave(&arrival);
                self.check(left);
            }
        }
        self.places[entered.place as usize] = None;
        self.resting.push_back((entered.place, now + REST));
        self.counters.connections -= 1;
    }
}

/// One tag of the kind that the kernel puts in and takes out, or none.
fn is_plain(tags: &Tags) -> bool {
    matches!(tags.bytes(), [] | [0x81, 0, _, _])
}

impl Forwarder {
    /// From now on established connections are forwarded elsewhere, too.
    ///
    /// # Errors
    /// What the system says; then they are not.
    pub fn set_fast_path(&mut self, mut path: Box<dyn FastPath>, now: Time) -> io::Result<()> {
        let (count, until) = (path.places().min(PLACES_MAX), now + LEASE);
        path.keep(1, until)?;
        self.fast = Some(Entering {
            path,
            places: vec![None; count as usize].into_boxed_slice(),
            free: (0..count).rev().collect(),
            resting: VecDeque::new(),
            next: 0,
            edition: 1,
            until,
            counters: FastCounters::default(),
        });
        Ok(())
    }

    /// What was forwarded elsewhere, as far as it is caught up with.
    pub fn fast_counters(&self) -> Option<FastCounters> {
        let fast = self.fast.as_ref()?;
        Some(FastCounters { unsent: fast.path.unsent(), ..fast.counters })
    }

    /// Whether a connection is forwarded elsewhere, in both directions.
    pub fn is_fast(&self, note: &Note) -> bool {
        let edition = self.fast.as_ref().map(|fast| fast.edition);
        note.entered.is_some_and(|entered| entered.ways.iter().all(|way| way.map(|(_, of)| of) == edition))
    }

    /// Something that decisions depend on is otherwise: none of those that were entered counts.
    pub(crate) fn void_ways(&mut self) {
        let Some(fast) = &mut self.fast else { return };
        fast.edition = fast.edition.wrapping_add(1);
        fast.counters.voided += 1;
        let kept = fast.path.keep(fast.edition, fast.until);
        if fast.check(kept).is_none() {
            // What cannot be taken back must not stay.
            self.clear_fast_path();
        }
    }

    /// From now on everything is forwarded here.
    pub fn clear_fast_path(&mut self) {
        let Some(mut fast) = self.fast.take() else { return };
        for id in fast.places.clone().into_iter().flatten() {
            let entered = self.conntrack.note_mut(id).and_then(|note| note.entered.take());
            if let (Some(entered), Some(connection)) = (entered, self.conntrack.get(id)) {
                fast.leave(connection, &entered, Time::ZERO);
            }
        }
    }

    /// Looks after connections that are entered, a bounded number of them: what was forwarded is counted, their neighbours are asked whether they are still there, and those that have
    /// another MAC address, or none, are no longer forwarded elsewhere. To be called about once a second.
    pub fn sweep(&mut self, now: Time) {
        let Some(fast) = &mut self.fast else { return };
        fast.until = now + LEASE;
        let kept = fast.path.keep(fast.edition, fast.until);
        fast.check(kept);
        let count = fast.places.len();
        for _ in 0..count.min(SWEEP_MAX) {
            let Some(fast) = &mut self.fast else { return };
            let place = fast.next;
            fast.next = (place + 1) % count;
            let Some(id) = fast.places[place] else { continue };
            if self.catch_up(id) > 0 {
                self.look_after(id, now);
            }
        }
    }

    /// Asks for the next hops of a connection that has moved.
    fn look_after(&mut self, id: ConnectionId, now: Time) {
        for direction in [Direction::Original, Direction::Reply] {
            let Some(connection) = self.conntrack.get(id) else { return };
            let destination = connection.outgoing(direction).destination.address;
            let Some(route) = self.routes.find(destination).copied() else { continue };
            if self.resolve(&route, destination, now).is_none() {
                return self.leave_fast_path(id, now);
            }
        }
    }

    /// What was forwarded of all connections is counted.
    pub fn catch_up_all(&mut self) {
        let ids: Vec<ConnectionId> = self.fast.iter().flat_map(|fast| fast.places.iter().copied().flatten()).collect();
        for id in ids {
            self.catch_up(id);
        }
    }

    /// What was forwarded of a connection is counted, and its state follows. Returns how many packets these were.
    pub(crate) fn catch_up(&mut self, id: ConnectionId) -> u64 {
        let Some(fast) = &mut self.fast else { return 0 };
        let Some(connection) = self.conntrack.get(id) else { return 0 };
        let Some(entered) = connection.note.entered else { return 0 };
        let looked = fast.path.look(entered.place);
        let Some((numbers, passed)) = fast.check(looked) else { return 0 };
        let last = passed[0].last.max(passed[1].last);
        self.conntrack.catch_up(id, numbers, last);
        let Some(note) = self.conntrack.note_mut(id) else { return 0 };
        let mut all = 0;
        for (direction, passed) in passed.iter().enumerate() {
            let before = entered.counted[direction];
            let packets = passed.packets.saturating_sub(before.packets);
            let bytes = passed.bytes.saturating_sub(before.bytes);
            note.packets[direction] += packets;
            note.bytes[direction] += bytes;
            fast.counters.packets += packets;
            fast.counters.bytes += bytes;
            all += packets;
        }
        note.entered = Some(Entered { counted: passed, ..entered });
        self.counters.packets += all;
        self.counters.forwarded += all;
        all
    }

    /// After a packet of a connection was judged here: whoever forwards the others is told what it has shown, or that the connection is over.
    pub(crate) fn tell_fast_path(&mut self, id: ConnectionId, now: Time) {
        let Some(connection) = self.conntrack.get(id) else { return };
        let Some(entered) = connection.note.entered else { return };
        if !matches!(connection.phase(), Phase::Open | Phase::Datagrams) {
            return self.leave_fast_path(id, now);
        }
        if let (Some(numbers), Some(fast)) = (connection.numbers(), &mut self.fast) {
            let told = fast.path.tell(entered.place, numbers);
            fast.check(told);
        }
    }

    fn leave_fast_path(&mut self, id: ConnectionId, now: Time) {
        let Some(entered) = self.conntrack.note_mut(id).and_then(|note| note.entered.take()) else { return };
        if let (Some(connection), Some(fast)) = (self.conntrack.get(id), &mut self.fast) {
            fast.leave(connection, &entered, now);
        }
    }

    /// The same for a connection that is forgotten.
    pub(crate) fn forget_fast_path(&mut self, connection: &Connection<Note>, now: Time) {
        if let (Some(entered), Some(fast)) = (connection.note.entered, &mut self.fast) {
            fast.leave(connection, &entered, now);
        }
    }

    /// A packet of a connection is passed on. If others like it need no look, its way is entered.
    pub(crate) fn enter(
        &mut self,
        packet: &Packet<'_>,
        (id, direction): (ConnectionId, Direction),
        out: &Outgoing,
        head: &Head,
        now: Time,
    ) {
        let Some(fast) = &self.fast else { return };
        let Some(connection) = self.conntrack.get(id) else { return };
        let note = &connection.note;
        let (edition, side) = (fast.edition, direction as usize);
        let is_entered = note.entered.and_then(|entered| entered.ways[side]).is_some_and(|(_, of)| of == edition);
        if is_entered || note.packets.iter().sum::<u64>() < PACKETS_BEFORE || !self.is_fit(packet, connection, out) {
            return;
        }
        let until = match note.chosen.map(|chosen| self.services.health(chosen)) {
            Some(Health::Draining { until }) => until,
            _ => Time::MAX,
        };
        let (tuple, incoming, numbers) =
            (connection.outgoing(direction), connection.incoming(direction), connection.numbers());
        let mtu = self.interfaces[out.interface].mtu;
        let mut macs = [0; 12];
        macs.copy_from_slice(&head[..12]);
        let Some(fast) = &mut self.fast else { return };
        let mut entered = match note.entered {
            Some(entered) => entered,
            None => {
                let Some(place) = fast.take_place(now) else { return };
                let begun = fast.path.begin(place, numbers);
                if fast.check(begun).is_none() {
                    fast.free.push(place);
                    return;
                }
                fast.places[place as usize] = Some(id);
                fast.counters.connections += 1;
                fast.counters.entered += 1;
                Entered { place, ways: [None; 2], counted: [Passed::default(); 2] }
            }
        };
        let arrival = Arrival { interface: packet.interface, tuple: incoming };
        if let Some((interface, _)) = entered.ways[side]
            && interface != packet.interface
        {
            let left = fast.path.leave(&Arrival { interface, ..arrival });
            fast.check(left);
        }
        let way = Way { place: entered.place, direction, edition, interface: out.interface, tuple, macs, mtu, until };
        let result = fast.path.enter(&arrival, &way);
        entered.ways[side] = fast.check(result).map(|()| (packet.interface, edition));
        if let Some(note) = self.conntrack.note_mut(id) {
            note.entered = Some(entered);
        }
    }

    fn is_fit(&self, packet: &Packet<'_>, connection: &Connection<Note>, out: &Outgoing) -> bool {
        let view = &packet.view;
        let header = if view.source.is_ipv4() { 20 } else { 40 };
        let is_whole = view.fragment.is_none() && view.transport_at - view.network_at == header;
        let is_known = match (connection.phase(), connection.incoming(Direction::Original).protocol) {
            (Phase::Open, Protocol::Tcp) => connection.numbers().is_some(),
            (Phase::Datagrams, Protocol::Udp) => true,
            _ => false,
        };
        let tags = [packet.interface, out.interface].map(|interface| &self.interfaces[interface].tags);
        is_whole
            && is_known
            && connection.note.switched.is_none()
            && self.rules.is_free(connection.note.ruled)
            && tags.into_iter().all(is_plain)
    }

    /// A neighbour has another MAC address than before, or a packet has shown that.
    pub(crate) fn follow_neighbours(&mut self) {
        if self.neighbours.moved() != self.moved {
            self.moved = self.neighbours.moved();
            self.void_ways();
        }
    }
}
