//! What a script says, as values.

use std::time::Duration;

use crate::option::OptionSpec;

/// Who a script runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The card of this workspace, in virtual time.
    Ours,
    /// The stack of the host that manages a card, in virtual time.
    Host,
    /// The kernel's TCP, in real time.
    Linux,
}

impl Side {
    /// What is marked for `mark` is for this side, too: card and host have the same sender, and are
    /// both ours.
    pub fn reads(self, mark: Self) -> bool {
        self == mark || (self, mark) == (Self::Host, Self::Ours)
    }

    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Host => "host",
            Self::Linux => "linux",
        }
    }
}

/// A whole script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What it needs before it starts.
    pub setup: Setup,
    /// Its events, in order.
    pub lines: Vec<Line>,
}

/// What is there before the first event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The only side that the script is for, with the reason.
    pub only: Option<(Side, String)>,
    /// What the server has.
    pub objects: Vec<Object>,
    /// What the client says on each connection, by its number.
    pub streams: Vec<(u16, Vec<Request>)>,
    /// How the card is set up.
    pub card: CardSetup,
    /// How the kernel's side is set up.
    pub linux: LinuxSetup,
    /// IP version, 4 or 6.
    pub ip: u8,
    /// Bytes of the longest IP packet on the wire.
    pub mtu: u16,
    /// First sequence number of every client connection.
    pub client_isn: u32,
    /// Pure acknowledgments that no expectation asks for are passed over.
    pub ignores_acks: bool,
    /// How much earlier or later than said a packet may come, if that is more than the side's own
    /// tolerance.
    pub tolerance: Option<Duration>,
}

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Path of its request.
    pub path: String,
    /// Bytes of the reply with its head.
    pub reply_bytes: usize,
}

/// A request of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// GET or POST.
    pub method: Method,
    /// What it asks for.
    pub path: String,
    /// Bytes of its head.
    pub head_bytes: usize,
    /// Bytes of its body.
    pub body_bytes: usize,
    /// It asks the server to close after the reply.
    pub closes: bool,
}

/// Methods of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST, with a body.
    Post,
}

/// How the card is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardSetup {
    /// The host answers SYNs instead of the card.
    pub passes_handshake: bool,
    /// Nothing is in the card's memory: all requests go to the host.
    pub misses: bool,
}

/// How the kernel's side is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxSetup {
    /// Values below `/proc/sys/net/ipv4` of the namespace.
    pub sysctls: Vec<(String, String)>,
    /// Congestion control of the server's connections.
    pub congestion: String,
    /// Words added to the route to the client.
    pub route: Vec<String>,
    /// Keep-alive of the server's connections: seconds of silence, seconds between probes, probes.
    pub keep_alive: Option<(u32, u32, u32)>,
    /// Bytes of the server's receive buffer (SO_RCVBUF).
    pub receive_buffer: Option<usize>,
    /// Connections that may wait for `accept`.
    pub backlog: i32,
}

/// An event, with when and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Number in the file, from 1.
    pub number: usize,
    /// The line as it was written.
    pub text: String,
    /// The only side that it is for, with the reason.
    pub only: Option<(Side, String)>,
    /// When it happens or is to happen.
    pub when: When,
    /// What happens or is to happen.
    pub event: Event,
}

/// A time after the event before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// So long after it, with a tolerance of its own if it has one.
    After {
        /// The time.
        time: Duration,
        /// In place of the script's.
        tolerance: Option<Duration>,
    },
    /// Not before, and not after.
    Between(Duration, Duration),
    /// Between these times since the script's beginning.
    At(Duration, Duration),
    /// Whenever it is.
    Any,
}

impl When {
    /// At once.
    pub const NOW: Self = Self::After { time: Duration::ZERO, tolerance: None };
}

/// What happens, or is to happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client sends a segment.
    Inject(Segment),
    /// Somebody on the way says that a packet was too big.
    InjectTooBig(TooBig),
    /// The server is to send.
    Expect(Expectation),
    /// The server may send this at any time from here on: once, or as often as it likes.
    May {
        /// What it may send.
        segment: Segment,
        /// It may do so as often as it likes, not only once.
        is_repeated: bool,
    },
    /// The server is to send all of these, in any order; each with the time and the line's number
    /// and text.
    AnyOrder(Vec<Line>),
    /// The server is to send nothing for so long.
    Quiet(Duration),
    /// The server's program does something.
    Server(ServerAction),
    /// So many other clients send a SYN each and are never heard of again; what the server answers
    /// them is dropped.
    Flood(u32),
}

/// Segments that the server is to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// What they are; with more than one, the bytes of all of them.
    pub segment: Segment,
    /// In how many segments the bytes come.
    pub count: u32,
}

/// What a server's program can be told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAction {
    /// Reads nothing from now on.
    Pause,
    /// Reads so many bytes, and then nothing again.
    Read(usize),
    /// Reads again whatever comes.
    Resume,
    /// Closes its connections.
    Close,
    /// Closes its connections for sending only.
    Shutdown,
    /// Resets its connections.
    Reset,
}

/// A segment to send or to match. Numbers are relative: 0 is the SYN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of the connection.
    pub connection: u16,
    /// ECN codepoint: `None` matches any, and sends not-ECT.
    pub ecn: Option<Ecn>,
    /// Control bits; `None` matches any.
    pub flags: Option<FlagSpec>,
    /// Number of the first byte; `None` matches any.
    pub seq: Option<u32>,
    /// Bytes of payload; `None` matches any.
    pub len: Option<u32>,
    /// Bytes of payload at most.
    pub len_max: Option<u32>,
    /// Acknowledgment; `None` is not looked at, and sends 0.
    pub ack: Option<u32>,
    /// Window field as it stands in the header.
    pub window: Option<(u16, u16)>,
    /// Urgent pointer.
    pub urgent: Option<u16>,
    /// Options; `None` is not looked at, and sends none.
    pub options: Option<OptionList>,
    /// Payload before this number is not what the client's stream has there.
    pub other_until: Option<u32>,
}

/// Options of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OptionList {
    /// The options that are named, in order.
    pub options: Vec<OptionSpec>,
    /// Others may be there, too.
    pub others: bool,
}

/// Control bits of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagSpec {
    /// The bits, as in the header.
    pub bits: u8,
}

/// ECN codepoints (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// 00: not capable.
    NotEct = 0,
    /// 01.
    Ect1 = 1,
    /// 10.
    Ect0 = 2,
    /// 11: congestion was met.
    Ce = 3,
}

impl Ecn {
    /// The codepoint of the two lowest bits.
    pub fn of_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotEct,
            1 => Self::Ect1,
            2 => Self::Ect0,
            _ => Self::Ce,
        }
    }

    /// Its name in scripts.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotEct => "noecn",
            Self::Ect1 => "ect1",
            Self::Ect0 => "ect0",
            Self::Ce => "ce",
        }
    }
}

/// ICMP "fragmentation needed" (RFC 1191) or ICMPv6 "packet too big" (RFC 8201).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// The connection that the quoted packet is of.
    pub connection: u16,
    /// The MTU that is told.
    pub mtu: u16,
    /// Relative number of the quoted segment.
    pub seq: u32,
    /// Its payload.
    pub len: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            only: None,
            objects: Vec::new(),
            streams: Vec::new(),
            card: CardSetup::default(),
            linux: LinuxSetup::default(),
            ip: 4,
            mtu: 1500,
            client_isn: 1_000_000,
            ignores_acks: false,
            tolerance: None,
        }
    }
}

impl Default for LinuxSetup {
    fn default() -> Self {
        Self {
            sysctls: Vec::new(),
            congestion: "cubic".to_owned(),
            route: Vec::new(),
            keep_alive: None,
            receive_buffer: None,
            backlog: 128,
        }
    }
}
