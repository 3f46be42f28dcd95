//! Services whose back end is chosen by the name that a client asks for: its handshake is answered
//! here, its first bytes are looked at, and from then on its segments are passed on like those of
//! any other connection, with other sequence numbers.
//!
//! Read first: RFC 9293 section 3.10, RFC 4987 section 3.6 for floods;
//! `docs/decisions/0048-content-switch.md`.
//!
//! ```text
//!  client                    here                                                     back end
//!  SYN ──────────────▶ HalfOpen (or a cookie, and nothing)
//!      ◀────────────── SYN-ACK
//!  ACK, first bytes ─▶ Looking: a name? ──no── more, or reset
//!      ◀────────────── ACK      └─yes─▶ Connecting ── SYN, client's number less the PROXY header ─▶
//!                                                  ◀───────────────────────────────────── SYN-ACK
//!                               Draining: the first bytes, until they are acknowledged ──────────▶
//!  ◀══════════════════ everything else, rewritten (splice) ═══════════════════════════════════════▶
//! ```
//!
//! Toward the back end a client's own sequence numbers are used, so only one direction is
//! moved. What the client was told is acknowledged is kept until the back end has acknowledged it,
//! too; only then may another forwarder take the connection over ([`crate::saved`]).
//!
//! | file | mechanism |
//! |---|---|
//! | `frames` | segments of our own |
//! | `client` | from a SYN to the name |
//! | `opening` | from the name to the back end's last acknowledgment of the first bytes |
//! | `stamps` | options that the client uses and the back end does not |
//! | `learned` | what back ends have said, for what the next clients are offered |
//!
//! Deliberately absent: urgent data, TCP Fast Open, ECN, a client's FIN before the back end has
//! answered (it comes again).

mod client;
mod frames;
mod learned;
mod opening;
mod stamps;

pub(crate) use frames::frame;

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use nicache_tcp::cookie_keys::CookieKeys;
use nicache_tcp::frame::{FlowKey, Mac};
use nicache_tcp::isn::IsnKey;
use nicache_tcp::receiver::Receiver;
use nicache_tcp::syn_pressure::SynPressure;
use nicache_tcp::timestamps::{Paws, TsClock};
use nicache_tcp::{Sender, Seq, Splice, SynOptions, Time, Wheel};

use self::learned::AllLearned;
pub use self::stamps::Lacks;
pub(crate) use self::stamps::{Echo, Spliced};
use crate::allowance::Allowance;
use crate::conntrack::ConnectionId;
use crate::fast_path::Moved;
use crate::lists::Lists;
pub use crate::segmenting::ANY_SIZE;
use crate::tcp_track::Direction;
use crate::tuple::Tuple;

/// Bytes of a client that are looked at and kept at most.
pub const LOOK_BYTES_MAX: u32 = 16 * 1024;
/// Connections at most that are not spliced yet.
pub const WAITING_MAX: u32 = 4096;
/// Of these, so many at most whose handshake is not complete; from half of them on, SYNs are
/// answered with cookies.
const HALF_OPEN_MAX: u32 = 1024;
/// Bytes of all clients that are kept at most.
const BYTES_MAX: usize = 16 << 20;
/// Frames of ours that wait to be sent at most.
const OWN_MAX: usize = 1024;
/// A client that does not complete its handshake is forgotten; it may begin again.
const HALF_OPEN_TIME: Duration = Duration::from_secs(10);
/// How long a client may take from the end of the handshake to the name.
pub const LOOK_TIME: Duration = Duration::from_secs(10);
/// After so long without an answer a back end is asked again, and given up at the end (RFC 6298: 1
/// s, doubled).
const SYN_TIMES: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(4)];
/// Resets per second, and at once: for segments of connections that nobody knows, which anybody can
/// send.
const STRAY_RESETS: Allowance = Allowance::new(1000, 200);
/// Resets per second, and at once: for segments of connections that end here, each of which was
/// begun with a handshake. A flood of segments that nobody knows takes nothing from them.
const ENDING_RESETS: Allowance = Allowance::new(1000, 200);
/// Shift of windows toward clients: up to 16 MiB.
const SCALE: u8 = 8;

/// What is kept beside a connection whose back end was chosen by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switched {
    /// How its segments are changed.
    pub splice: Splice,
    /// What its back end does without.
    pub lacks: Lacks,
    /// Bytes of options and payload that the back end, and the client, take in a segment at most
    /// (RFC 9293 section 3.7.1), by the direction toward them.
    pub takes: [u16; 2],
    pub(crate) echo: Echo,
    /// Its place among those that wait, as long as its first bytes are not acknowledged.
    pub(crate) place: Option<u32>,
}

impl Switched {
    /// Its segments are changed by the same numbers from now on, and no byte is put in or taken
    /// out.
    pub(crate) fn is_constant(&self) -> bool {
        self.place.is_none() && self.lacks == Lacks::default() && self.splice.in_delta == 0
    }

    /// How numbers of its segments are changed, if they [are constant](Self::is_constant).
    pub(crate) fn moved(&self, direction: Direction) -> Moved {
        let Splice { out_delta, ts_delta, .. } = self.splice;
        let Splice { client_scale, card_scale, host_scale, host_peer_scale, .. } = self.splice;
        match direction {
            Direction::Original => Moved {
                seq: 0,
                ack: out_delta.wrapping_neg(),
                tsval: 0,
                tsecr: ts_delta.wrapping_neg(),
                scales: [client_scale, host_peer_scale],
            },
            Direction::Reply => Moved {
                seq: out_delta,
                ack: 0,
                tsval: ts_delta,
                tsecr: 0,
                scales: [host_scale, card_scale],
            },
        }
    }
}

/// Where a connection stands that is not spliced yet.
#[derive(Debug)]
enum Step {
    HalfOpen,
    Looking,
    /// The back end was sent so many SYNs.
    Connecting {
        id: ConnectionId,
        syns: usize,
    },
    Draining {
        id: ConnectionId,
        drain: Box<Drain>,
    },
}

/// The first bytes on their way to the back end.
#[derive(Debug)]
struct Drain {
    sender: Sender,
    /// Payload of a segment at most.
    segment_bytes: u16,
    /// The number of the first one.
    start: Seq,
    /// What is acknowledged of the back end's bytes.
    ack: Seq,
    /// The back end's last timestamp, if it uses them.
    tsval: Option<u32>,
}

impl Step {
    fn list(&self) -> usize {
        match self {
            Self::HalfOpen => HALF_OPEN,
            Self::Looking => LOOKING,
            Self::Connecting { .. } | Self::Draining { .. } => OPENING,
        }
    }
}

const HALF_OPEN: usize = 0;
const LOOKING: usize = 1;
const OPENING: usize = 2;

/// A connection that is not spliced yet.
#[derive(Debug)]
struct Waiting {
    /// Addresses and ports of the client's packets as they come in.
    tuple: Tuple,
    service: u16,
    interface: usize,
    /// Where answers go.
    mac: Mac,
    step: Step,
    due: Time,
    /// The client's initial number, and ours.
    theirs: Seq,
    ours: Seq,
    /// What the client's SYN asked for, as far as it was agreed on.
    options: SynOptions,
    /// Shift of the windows that we send to it.
    scale: u8,
    clock: TsClock,
    receiver: Receiver,
    /// Its last timestamp.
    recent: Paws,
    window: u16,
    /// Its first bytes, behind the PROXY header from [`Step::Connecting`] on.
    bytes: Vec<u8>,
}

/// Connections of services by name that are not spliced yet: answers their handshakes, looks at
/// their first bytes, and opens the connection to the back end.
pub(crate) struct Switch {
    places: Vec<Option<Box<Waiting>>>,
    free: Vec<u32>,
    by_tuple: HashMap<Tuple, u32, FixedState>,
    lists: Lists<3>,
    wheel: Wheel,
    pressure: SynPressure,
    keys: CookieKeys,
    /// Until when a cookie may be answered.
    cookies_until: Option<Time>,
    isn_key: IsnKey,
    /// Bytes that are kept.
    bytes: usize,
    own: VecDeque<(usize, Vec<u8>)>,
    stray_resets: Allowance,
    ending_resets: Allowance,
    learned: AllLearned,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switch").field("waiting", &self.by_tuple.len()).finish_non_exhaustive()
    }
}

/// A connection that waits, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingView {
    /// Of which service.
    pub service: u16,
    /// What it waits for.
    pub state: &'static str,
    /// Bytes that have come.
    pub bytes: usize,
}

impl Switch {
    /// `secret`: a number that nobody else knows.
    pub(crate) fn new(secret: u64, now: Time) -> Self {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&secret.to_le_bytes());
        key[8..].copy_from_slice(
            &secret.rotate_left(29).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes(),
        );
        Self {
            places: (0..WAITING_MAX).map(|_| None).collect(),
            free: (0..WAITING_MAX).rev().collect(),
            by_tuple: HashMap::with_capacity_and_hasher(
                WAITING_MAX as usize,
                FixedState::with_seed(secret),
            ),
            lists: Lists::new(WAITING_MAX),
            wheel: Wheel::new(WAITING_MAX as usize, now),
            pressure: SynPressure::default(),
            keys: CookieKeys::new(IsnKey(key)),
            cookies_until: None,
            isn_key: IsnKey(key),
            bytes: 0,
            own: VecDeque::new(),
            stray_resets: STRAY_RESETS,
            ending_resets: ENDING_RESETS,
            learned: AllLearned::default(),
        }
    }

    fn get(&mut self, place: u32) -> Option<&mut Waiting> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    fn insert(&mut self, waiting: Box<Waiting>) -> Option<u32> {
        let place = self.free.pop()?;
        self.by_tuple.insert(waiting.tuple, place);
        self.lists.push(waiting.step.list(), place);
        self.wheel.arm(place, waiting.due);
        self.places[place as usize] = Some(waiting);
        Some(place)
    }

    fn remove(&mut self, place: u32) -> Option<Box<Waiting>> {
        let waiting = self.places.get_mut(place as usize)?.take()?;
        self.bytes -= waiting.bytes.capacity();
        self.by_tuple.remove(&waiting.tuple);
        self.lists.remove(place);
        self.wheel.disarm(place);
        self.free.push(place);
        Some(waiting)
    }

    /// It goes on, and has so long for the next step.
    fn step(&mut self, place: u32, step: Step, due: Time) {
        let Some(waiting) = self.places[place as usize].as_deref_mut() else { return };
        (waiting.step, waiting.due) = (step, due);
        self.lists.push(waiting.step.list(), place);
        self.wheel.arm(place, due);
    }

    fn queue(&mut self, interface: usize, frame: Vec<u8>) -> bool {
        let has_room = self.own.len() < OWN_MAX;
        if has_room {
            self.own.push_back((interface, frame));
        }
        has_room
    }

    /// A frame of ours that is to be sent, with its interface.
    pub(crate) fn poll_own(&mut self) -> Option<(usize, Vec<u8>)> {
        self.own.pop_front()
    }

    /// Whether there is such a frame.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    pub(crate) fn next_due(&self) -> Option<Time> {
        self.wheel.next_due()
    }

    /// Connections that wait: for the end of their handshake, for their name, for their back end.
    pub(crate) fn counts(&self) -> [u32; 3] {
        [HALF_OPEN, LOOKING, OPENING].map(|list| self.lists.len(list))
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = (Tuple, WaitingView)> + '_ {
        self.places.iter().flatten().map(|waiting| {
            let state = match waiting.step {
                Step::HalfOpen => "the end of its handshake",
                Step::Looking => "its name",
                Step::Connecting { .. } => "its back end's answer",
                Step::Draining { .. } => "its back end's acknowledgment",
            };
            (
                waiting.tuple,
                WaitingView { service: waiting.service, state, bytes: waiting.bytes.len() },
            )
        })
    }
}

/// A fixed encoding of a connection's ends.
fn tuple_bytes(tuple: &Tuple) -> [u8; 40] {
    let (source, destination) = (tuple.source, tuple.destination);
    let key = FlowKey {
        client: source.address.into(),
        server: destination.address.into(),
        client_port: source.port,
        server_port: destination.port,
        vlans: 0,
    };
    key.tuple_bytes()
}
