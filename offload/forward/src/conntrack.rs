//! The connections that are known: found by either direction, forgotten by time, and bounded.
//!
//! Read first: RFC 4787 section 4.3, RFC 5382 section 5, RFC 5508 section 3.2, RFC 7857 section 2
//! for the times.
//!
//! Each state has one time after which a silent connection is forgotten, so connections of a state
//! are in the order in which they lapse, and all of that is done in constant time. Those that
//! nobody has answered yet have shares of their own, one for UDP and one for all others: a flood of
//! them pushes out the oldest of its kind, and never a connection that is there to stay (invariant
//! F6). Whoever can spoof questions to a server that answers fills no table: what is not more than
//! a question and its answer gives way when the table is full.

use std::hash::BuildHasher;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use nicache_tcp::Time;

use crate::lists::Lists;
use crate::tcp_track::{Direction, Judged, Numbers, TcpState, TcpTrack};
use crate::tuple::{Protocol, Tuple};
use crate::view::{TcpView, Transport, View};

/// What a connection is, as far as its time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Begun, and not answered.
    Opening = 0,
    /// UDP or a query that was answered.
    Datagrams = 1,
    /// An echo that was answered.
    Query = 2,
    /// TCP whose handshake is over.
    Open = 3,
    /// TCP of which one end or both have sent their last byte.
    Closing = 4,
    /// TCP that is over in order.
    TimeWait = 5,
    /// TCP that was reset.
    Reset = 6,
}

/// Connections that have the same time and make room alike: phases, but for datagrams in more
/// detail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Opening = 0,
    /// UDP that nobody has answered.
    OneWay = 1,
    /// UDP that was answered, with one packet alone in a direction.
    Asked = 2,
    /// Other UDP.
    Datagrams = 3,
    Query = 4,
    Open = 5,
    Closing = 6,
    TimeWait = 7,
    Reset = 8,
    /// TCP of which one end alone has sent its last byte.
    HalfClosed = 9,
}

const KINDS: usize = 10;
const ALL: [Kind; KINDS] = [
    Kind::Opening,
    Kind::OneWay,
    Kind::Asked,
    Kind::Datagrams,
    Kind::Query,
    Kind::Open,
    Kind::Closing,
    Kind::TimeWait,
    Kind::Reset,
    Kind::HalfClosed,
];
/// Which of them make room for a new connection in a full table first, and in what order: those
/// that are over.
const OVER: [Kind; 2] = [Kind::Reset, Kind::TimeWait];
/// Which of them make room then: the kind of which there are most.
const FLEETING: [Kind; 4] = [Kind::Opening, Kind::OneWay, Kind::Asked, Kind::Query];
/// Packets in each direction after which UDP is there to stay.
const PACKETS_TO_STAY: u8 = 2;

/// After how long without a packet a connection is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Not answered, and not UDP. RFC 5382 allows 4 minutes for a handshake; a SYN is sent again
    /// after 1, 3, 7 and 15 seconds.
    pub opening: Duration,
    /// UDP of which a direction has had one packet at most: not below 2 minutes (RFC 4787, REQ-5).
    pub fleeting: Duration,
    /// Other UDP: not below 2 minutes (RFC 4787, REQ-5).
    pub datagrams: Duration,
    /// Echo: 60 seconds (RFC 5508, REQ-2).
    pub query: Duration,
    /// TCP: not below 2 hours 4 minutes (RFC 5382, REQ-5). Also after one end's last byte: the
    /// other one may take its time (RFC 6146, section 3.5.2.2).
    pub open: Duration,
    /// TCP of which both ends have sent their last byte: not below 4 minutes (RFC 5382, REQ-5).
    pub closing: Duration,
    /// TCP that is over in order: two segment lifetimes.
    pub time_wait: Duration,
    /// TCP that was reset: 4 minutes (RFC 7857, section 2.2). The reset may be lost further on, and
    /// then the other end's next segment is to be answered with another one.
    pub reset: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            opening: Duration::from_secs(30),
            fleeting: Duration::from_secs(120),
            datagrams: Duration::from_secs(300),
            query: Duration::from_secs(60),
            open: Duration::from_secs(7440),
            closing: Duration::from_secs(240),
            time_wait: Duration::from_secs(120),
            reset: Duration::from_secs(240),
        }
    }
}

impl Timeouts {
    fn of(&self, kind: Kind) -> Duration {
        match kind {
            Kind::Opening => self.opening,
            Kind::OneWay | Kind::Asked => self.fleeting,
            Kind::Datagrams => self.datagrams,
            Kind::Query => self.query,
            Kind::Open | Kind::HalfClosed => self.open,
            Kind::Closing => self.closing,
            Kind::TimeWait => self.time_wait,
            Kind::Reset => self.reset,
        }
    }
}

/// How much is known at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all.
    pub connections: u32,
    /// Connections among them that nobody has answered: so many of UDP, and so many others.
    pub opening: u32,
}

/// A number of a connection, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId(pub u32);

#[derive(Clone, Copy, Debug)]
enum Track {
    Tcp(TcpTrack),
    /// Packets in each direction, as far as it matters.
    Datagrams([u8; 2]),
}

/// A connection. `T` is whatever its owner keeps beside it.
#[derive(Clone, Debug)]
pub struct Connection<T> {
    original: Tuple,
    reply: Tuple,
    track: Track,
    touched: Time,
    /// The owner's.
    pub note: T,
}

impl<T> Connection<T> {
    /// How a direction is known when its packets come in.
    pub fn incoming(&self, direction: Direction) -> Tuple {
        match direction {
            Direction::Original => self.original,
            Direction::Reply => self.reply,
        }
    }

    /// How the packets of a direction go out: the other direction comes in as their answer.
    pub fn outgoing(&self, direction: Direction) -> Tuple {
        self.incoming(direction.other()).reversed()
    }

    /// Where it stands.
    pub fn phase(&self) -> Phase {
        match &self.track {
            Track::Datagrams([_, 0]) => Phase::Opening,
            Track::Datagrams(_) if self.original.protocol == Protocol::Query => Phase::Query,
            Track::Datagrams(_) => Phase::Datagrams,
            Track::Tcp(track) => match track.state() {
                TcpState::SynSent | TcpState::SynReceived | TcpState::PickedUp => Phase::Opening,
                TcpState::Established => Phase::Open,
                TcpState::Closing => Phase::Closing,
                TcpState::TimeWait => Phase::TimeWait,
                TcpState::Reset => Phase::Reset,
            },
        }
    }

    fn kind(&self) -> Kind {
        match (self.phase(), &self.track) {
            (Phase::Opening, Track::Datagrams(_)) if self.original.protocol == Protocol::Udp => {
                Kind::OneWay
            }
            (Phase::Datagrams, Track::Datagrams(packets))
                if packets.iter().any(|packets| *packets < PACKETS_TO_STAY) =>
            {
                Kind::Asked
            }
            (Phase::Opening, _) => Kind::Opening,
            (Phase::Datagrams, _) => Kind::Datagrams,
            (Phase::Query, _) => Kind::Query,
            (Phase::Open, _) => Kind::Open,
            (Phase::Closing, Track::Tcp(track)) if track.is_half_closed() => Kind::HalfClosed,
            (Phase::Closing, _) => Kind::Closing,
            (Phase::TimeWait, _) => Kind::TimeWait,
            (Phase::Reset, _) => Kind::Reset,
        }
    }

    /// Whether it may go for one that needs its place, its port or its ends.
    pub fn is_over(&self) -> bool {
        OVER.contains(&self.kind())
    }

    /// Where the connection stands if it is one of TCP.
    pub fn tcp_state(&self) -> Option<TcpState> {
        match &self.track {
            Track::Tcp(track) => Some(track.state()),
            Track::Datagrams(_) => None,
        }
    }

    /// By direction, whether that end of a TCP connection has sent its last byte.
    pub fn fins(&self) -> [bool; 2] {
        match &self.track {
            Track::Tcp(track) => track.fins(),
            Track::Datagrams(_) => [false; 2],
        }
    }

    /// What is known of the ends of a TCP connection. `None`: it is another one, or not all is
    /// known.
    pub fn numbers(&self) -> Option<[Numbers; 2]> {
        match &self.track {
            Track::Tcp(track) => track.numbers(),
            Track::Datagrams(_) => None,
        }
    }

    /// Whether a segment of TCP answers a SYN that came after the connection's own: the end that
    /// was spoken to begins another one.
    pub fn answers_again(&self, segment: &TcpView) -> bool {
        matches!(&self.track, Track::Tcp(track) if track.answers_again(segment))
    }

    /// When a packet of it came last.
    pub fn touched(&self) -> Time {
        self.touched
    }
}

/// Why a connection is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InsertError {
    /// There is no room.
    #[error("the table of connections is full")]
    Full,
    /// One of its directions is another connection's already.
    #[error("another connection has the same ends")]
    Taken,
    /// The packet begins nothing.
    #[error("the packet belongs to no protocol that is tracked")]
    Protocol,
}

/// The connections that are known: found by either direction, forgotten by time, and bounded. All
/// memory is allocated at creation.
#[derive(Debug)]
pub struct Conntrack<T> {
    slots: Vec<Option<Connection<T>>>,
    free: Vec<u32>,
    /// Slot and direction: twice the slot, and one more for replies.
    index: HashTable<u32>,
    seed: FixedState,
    lists: Lists<KINDS>,
    timeouts: Timeouts,
    limits: Limits,
    changes: Option<Changes>,
}

/// Numbers of connections that have come, gone, or got to another phase or state of TCP; each
/// once.
#[derive(Debug)]
struct Changes {
    waiting: Vec<u32>,
    is_waiting: Box<[bool]>,
}

impl Changes {
    fn add(&mut self, slot: u32) {
        if !std::mem::replace(&mut self.is_waiting[slot as usize], true) {
            self.waiting.push(slot);
        }
    }
}

impl<T> Conntrack<T> {
    /// An empty table. `seed`: a number that clients cannot know, so they cannot choose what
    /// collides.
    pub fn new(limits: Limits, timeouts: Timeouts, seed: u64) -> Self {
        let count = limits.connections;
        Self {
            slots: (0..count).map(|_| None).collect(),
            free: (0..count).rev().collect(),
            index: HashTable::with_capacity(2 * count as usize),
            seed: FixedState::with_seed(seed),
            lists: Lists::new(count),
            timeouts,
            limits,
            changes: None,
        }
    }

    /// From now on it remembers which connections have changed.
    pub fn remember_changes(&mut self) {
        let count = self.limits.connections as usize;
        let is_waiting = vec![false; count].into_boxed_slice();
        self.changes = Some(Changes { waiting: Vec::with_capacity(count), is_waiting });
    }

    /// A number under which a connection has come, gone, or got to another phase or state of TCP.
    pub fn poll_changed(&mut self) -> Option<ConnectionId> {
        let changes = self.changes.as_mut()?;
        let slot = changes.waiting.pop()?;
        changes.is_waiting[slot as usize] = false;
        Some(ConnectionId(slot))
    }

    fn change(&mut self, slot: u32) {
        if let Some(changes) = &mut self.changes {
            changes.add(slot);
        }
    }

    /// Connections in all.
    pub fn len(&self) -> u32 {
        self.limits.connections - self.free.len() as u32
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections in a phase.
    pub fn count(&self, phase: Phase) -> u32 {
        let kinds: &[Kind] = match phase {
            Phase::Opening => &[Kind::Opening, Kind::OneWay],
            Phase::Datagrams => &[Kind::Asked, Kind::Datagrams],
            Phase::Query => &[Kind::Query],
            Phase::Open => &[Kind::Open],
            Phase::Closing => &[Kind::HalfClosed, Kind::Closing],
            Phase::TimeWait => &[Kind::TimeWait],
            Phase::Reset => &[Kind::Reset],
        };
        kinds.iter().map(|kind| self.lists.len(*kind as usize)).sum()
    }

    /// The connection and direction that a packet comes in by.
    pub fn find(&self, tuple: &Tuple) -> Option<(ConnectionId, Direction)> {
        let place = *self.index.find(self.hash(tuple), |place| self.tuple_at(*place) == *tuple)?;
        let direction = if place & 1 == 0 { Direction::Original } else { Direction::Reply };
        Some((ConnectionId(place / 2), direction))
    }

    /// A connection, if it is there.
    pub fn get(&self, id: ConnectionId) -> Option<&Connection<T>> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// The owner's note of a connection, to change it, if the connection is there.
    pub fn note_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        Some(&mut self.slots.get_mut(id.0 as usize)?.as_mut()?.note)
    }

    /// All connections, for a list.
    pub fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection<T>)> {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(slot, connection)| {
            Some((ConnectionId(slot as u32), connection.as_ref()?))
        })
    }

    /// What has to go before another connection of a protocol fits, if anything has to. The owner
    /// takes it out with [`remove`](Self::remove).
    pub fn in_the_way(&self, protocol: Protocol) -> Option<ConnectionId> {
        let kind = begun(protocol) as usize;
        if self.lists.len(kind) >= self.limits.opening {
            return self.lists.first(kind).map(ConnectionId);
        }
        if !self.free.is_empty() {
            return None;
        }
        // Who comes in a flood gives way to others, and they do not give way to the flood.
        let most = FLEETING.into_iter().max_by_key(|kind| self.lists.len(*kind as usize));
        self.over().or_else(|| self.lists.first(most? as usize).map(ConnectionId))
    }

    /// A connection that is over and may go for its ports, the oldest first.
    pub fn over(&self) -> Option<ConnectionId> {
        OVER.iter().find_map(|kind| self.lists.first(*kind as usize)).map(ConnectionId)
    }

    /// A connection whose first packet is `view`, and whose packets leave as `outgoing`.
    ///
    /// # Errors
    /// See [`InsertError`]; nothing has changed then.
    pub fn insert(
        &mut self,
        view: &View,
        outgoing: &Tuple,
        note: T,
        now: Time,
    ) -> Result<ConnectionId, (InsertError, T)> {
        let Some(original) = view.tuple() else { return Err((InsertError::Protocol, note)) };
        let reply = outgoing.reversed();
        if original == reply || self.find(&original).is_some() || self.find(&reply).is_some() {
            return Err((InsertError::Taken, note));
        }
        if self.lists.len(begun(original.protocol) as usize) >= self.limits.opening {
            return Err((InsertError::Full, note));
        }
        if self.free.is_empty() {
            return Err((InsertError::Full, note));
        }
        let track = match view.transport {
            Transport::Tcp(segment) => Track::Tcp(TcpTrack::new(&segment)),
            _ => Track::Datagrams([1, 0]),
        };
        Ok(self.add(Connection { original, reply, track, touched: now, note }))
    }

    /// A connection that was answered, of which another table knew. `None`: there is no room, or
    /// one of its directions is another connection's. One whose handshake is not over takes from
    /// the share of those that are begun. `fins`: by direction, whether an end of TCP has sent its
    /// last byte.
    pub fn restore(
        &mut self,
        original: Tuple,
        outgoing: Tuple,
        state: Option<TcpState>,
        fins: [bool; 2],
        note: T,
        now: Time,
    ) -> Option<ConnectionId> {
        let reply = outgoing.reversed();
        let is_taken =
            original == reply || self.find(&original).is_some() || self.find(&reply).is_some();
        if is_taken
            || self.free.is_empty()
            || state.is_some() != (original.protocol == Protocol::Tcp)
        {
            return None;
        }
        let track = match state {
            Some(state) => Track::Tcp(TcpTrack::restored(state, fins)),
            None => Track::Datagrams([PACKETS_TO_STAY; 2]),
        };
        let connection = Connection { original, reply, track, touched: now, note };
        let kind = connection.kind();
        if matches!(kind, Kind::Opening | Kind::OneWay)
            && self.lists.len(kind as usize) >= self.limits.opening
        {
            return None;
        }
        Some(self.add(connection))
    }

    /// There must be room.
    fn add(&mut self, connection: Connection<T>) -> ConnectionId {
        let slot = self.free.pop().expect("looked at before");
        let Connection { original, reply, .. } = connection;
        self.lists.push(connection.kind() as usize, slot);
        self.slots[slot as usize] = Some(connection);
        for (place, tuple) in [(2 * slot, original), (2 * slot + 1, reply)] {
            let (slots, seed) = (&self.slots, &self.seed);
            let rehash = |place: &u32| seed.hash_one(tuple_of(slots, *place));
            self.index.insert_unique(seed.hash_one(tuple), place, rehash);
        }
        self.change(slot);
        ConnectionId(slot)
    }

    /// A packet of a connection. [`Judged::Begins`]: the connection is to be removed, and the
    /// packet begins another one.
    pub fn handle(
        &mut self,
        id: ConnectionId,
        direction: Direction,
        view: &View,
        now: Time,
    ) -> Judged {
        let Some(connection) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return Judged::Outside;
        };
        let before = connection.tcp_state();
        match (&mut connection.track, view.transport) {
            (Track::Tcp(track), Transport::Tcp(segment)) => match track.handle(direction, &segment)
            {
                Judged::Inside => {}
                other => return other,
            },
            (Track::Datagrams(packets), _) => {
                let packets = &mut packets[direction as usize];
                *packets = packets.saturating_add(1).min(PACKETS_TO_STAY);
            }
            _ => return Judged::Outside,
        }
        connection.touched = now;
        let (mut kind, listed) = (connection.kind(), self.lists.list_of(id.0));
        // A reset that an end did not believe may lead back to where nobody has answered. If there
        // is no room, the connection goes as one that was reset.
        let comes_back = kind == Kind::Opening && listed != Some(Kind::Opening as usize);
        if comes_back && self.lists.len(Kind::Opening as usize) >= self.limits.opening {
            kind = Kind::Reset;
        }
        // Whether a SYN was answered says whether the connection is kept.
        if listed != Some(kind as usize) || connection.tcp_state() != before {
            self.change(id.0);
        }
        self.lists.push(kind as usize, id.0);
        Judged::Inside
    }

    /// Somebody else has seen packets of a connection, the last one at a time, and knows more of
    /// it.
    pub fn catch_up(&mut self, id: ConnectionId, numbers: [Numbers; 2], is_far: bool, last: Time) {
        let Some(connection) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        match &mut connection.track {
            Track::Tcp(track) => track.catch_up(numbers, is_far),
            // Only of those that have had several packets others see any.
            Track::Datagrams(packets) if last > connection.touched => {
                *packets = [PACKETS_TO_STAY; 2];
            }
            Track::Datagrams(_) => {}
        }
        if last > connection.touched {
            connection.touched = last;
            let kind = connection.kind() as usize;
            self.lists.push(kind, id.0);
        }
    }

    /// Its owner keeps something else beside it than before.
    pub fn mark_changed(&mut self, id: ConnectionId) {
        self.change(id.0);
    }

    /// Takes a connection out.
    pub fn remove(&mut self, id: ConnectionId) -> Option<Connection<T>> {
        self.slots.get(id.0 as usize)?.as_ref()?;
        for place in [2 * id.0, 2 * id.0 + 1] {
            let hash = self.hash(&self.tuple_at(place));
            if let Ok(found) = self.index.find_entry(hash, |other| *other == place) {
                found.remove();
            }
        }
        self.lists.remove(id.0);
        self.free.push(id.0);
        self.change(id.0);
        self.slots[id.0 as usize].take()
    }

    /// A connection that has lapsed, if there is one. Its owner takes it out.
    pub fn lapsed(&self, now: Time) -> Option<ConnectionId> {
        ALL.into_iter().find_map(|kind| {
            let first = self.lists.first(kind as usize)?;
            let touched = self.slots[first as usize].as_ref()?.touched;
            (touched + self.timeouts.of(kind) <= now).then_some(ConnectionId(first))
        })
    }

    /// When a connection lapses next, if none has a packet before.
    pub fn next_due(&self) -> Option<Time> {
        let due = |kind: Kind| {
            let first = self.lists.first(kind as usize)?;
            Some(self.slots[first as usize].as_ref()?.touched + self.timeouts.of(kind))
        };
        ALL.into_iter().filter_map(due).min()
    }

    fn hash(&self, tuple: &Tuple) -> u64 {
        self.seed.hash_one(tuple)
    }

    fn tuple_at(&self, place: u32) -> Tuple {
        tuple_of(&self.slots, place)
    }
}

/// Of which kind a connection is at first.
fn begun(protocol: Protocol) -> Kind {
    if protocol == Protocol::Udp { Kind::OneWay } else { Kind::Opening }
}

fn tuple_of<T>(slots: &[Option<Connection<T>>], place: u32) -> Tuple {
    let direction = if place & 1 == 0 { Direction::Original } else { Direction::Reply };
    slots[place as usize / 2]
        .as_ref()
        .map_or(Tuple::NOBODY, |connection| connection.incoming(direction))
}
