//! A tracked connection: what of it the card owns and what the host owns.
//!
//! Terms. *Client-facing* sequence numbers are those that the client sees; *host-facing* ones those
//! that the host sees. *Out* is toward the client, *in* is from it. Bytes that the client sends are
//! taken and acknowledged by the card (`rcv_nxt`), which answers them or sends them on to the host;
//! the bytes of the host's replies pass end to end with their numbers moved by a constant, so
//! the host's own TCP paces and repairs them. Only one side talks to the client at a time:
//! ownership of the out stream changes when all that was sent before is acknowledged, so one
//! pair of deltas describes the flow at any moment.

pub(crate) mod changing;
pub(crate) mod hold;
pub(crate) mod parts;
pub(crate) mod preface;
pub(crate) mod reply;
pub(crate) mod table;
pub(crate) mod turn;

use nicache_cache::{FillId, Lesson, Recheck, Wait};
use nicache_http::Follower;
use nicache_tcp::challenge::Challenged;
use nicache_tcp::ecn::EcnReceiver;
use nicache_tcp::patience::{HeadTimer, KeepAlive, Reading};
use nicache_tcp::{
    PeerLimits, Sender, SenderConfig, Seq, Splice, SynOptions, Time, Timestamps,
    timestamps::{Paws, TsClock},
};

use crate::packet::{FlowKey, Mac, Tags, TcpFrame};
use changing::Changing;
use hold::Hold;
use preface::FlowPreface;
use reply::ReplyQueue;
use turn::Turn;

/// What the card does with the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The host answers the handshake itself; frames pass as they are (bos2009 section 2.1).
    HostHandshake,
    /// The card has answered the SYN and waits for the ACK.
    CardHandshake,
    /// The card takes the client's bytes and decides request by request.
    Requests,
    /// Both directions pass with constant deltas; with `Some`, until the client's bytes reach that
    /// number.
    Opaque(Option<Seq>),
}

/// The host's side of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPhase {
    /// The host knows nothing of the connection.
    Absent,
    /// The card has sent the host a SYN on the client's behalf.
    SynSent,
    /// Open.
    Open,
    /// The card has sent FIN to the host, and takes what still comes from there itself.
    Closing,
}

/// Timestamps of the connection (RFC 7323).
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowTimestamps {
    /// Ticks that the card puts into TSval toward the client.
    pub clock: TsClock,
    /// The client's: what to echo, and what is from the past.
    pub client: Paws,
    /// Last TSval of the host.
    pub host: u32,
    /// Highest TSval sent to the client; later ones must not be lower.
    pub sent: u32,
}

impl FlowTimestamps {
    /// Timestamps of a connection whose own clock is forgotten: what the client last saw is shown
    /// again.
    pub(crate) fn echoing(theirs: Timestamps, now: Time) -> Self {
        let mut clock = TsClock::default();
        clock.set(theirs.ecr, now);
        Self { clock, client: Paws::new(theirs.val, now), host: 0, sent: theirs.ecr }
    }
}

/// Where the host's reply stands.
pub(crate) enum ReplyTracking {
    /// The host has nothing to answer.
    Idle,
    /// A request was forwarded; the head of its reply has not come whole.
    Head {
        /// A reply to HEAD has no body.
        head_request: bool,
        /// After this reply the host closes (the request said so).
        last: bool,
    },
    /// The body is passing.
    Body(Follower),
}

/// The host's side.
pub(crate) struct HostSide {
    /// The state of the host's side.
    pub phase: HostPhase,
    /// Sends the client's requests, host-facing.
    pub sender: Sender,
    /// Next byte expected from the host, host numbers.
    pub rcv_nxt: Seq,
    /// Up to here the host has been told that the client has its bytes, host numbers.
    pub acked: Seq,
    /// Last window told to the host, in bytes.
    pub window: u32,
    /// The host's FIN was passed on to the client.
    pub fin_passed: bool,
    /// The host's FIN was taken by the card, which closes toward the host; the client does not hear
    /// of it.
    pub fin_taken: bool,
    /// When the SYN was sent last, and how often.
    pub syn_sent: Time,
    /// SYNs sent without an answer.
    pub syn_tries: u8,
}

/// A tracked connection.
pub(crate) struct Flow {
    /// The connection's ends.
    pub key: FlowKey,
    /// MAC that the client's frames come from.
    pub client_mac: Mac,
    /// MAC that they go to.
    pub server_mac: Mac,
    /// VLAN tags of the client's frames.
    pub tags: Tags,
    /// What the card does with it.
    pub phase: Phase,
    /// Options of the client's SYN.
    pub client_options: SynOptions,
    /// Next byte expected from the client.
    pub rcv_nxt: Seq,
    /// Highest number that the card has acknowledged to the client.
    pub acked_to_client: Seq,
    /// The client has sent FIN, and the card has acknowledged it.
    pub client_fin: bool,
    /// The host has asked the client whether it is there, or for its window.
    pub host_asks: bool,
    /// The card has sent (or queued) FIN to the client.
    pub card_fin: bool,
    /// Sends replies from card memory, client-facing.
    pub sender: Sender,
    /// First out number that nobody has used yet.
    pub out_next: Seq,
    /// Highest ACK of the client.
    pub client_acked: Seq,
    /// Right edge of the client's window.
    pub client_edge: Seq,
    /// Replies from card memory that are not wholly acknowledged.
    pub replies: ReplyQueue,
    /// Timestamps, if agreed.
    pub timestamps: Option<FlowTimestamps>,
    /// When the client was last challenged.
    pub challenged: Challenged,
    /// How fast the client reads what the card sends.
    pub reading: Reading,
    /// How long the head of a request takes.
    pub head_timer: HeadTimer,
    /// Whether the client still lives.
    pub keep_alive: KeepAlive,
    /// When the client had acknowledged the card's FIN.
    pub fin_wait: Option<Time>,
    /// Largest window of the client, in bytes.
    pub client_window_max: u32,
    /// The client's last segment echoed a mark: if on bytes of the host, the host has to hear of
    /// it.
    pub client_echo: bool,
    /// Marks that the client's packets have got on their way (RFC 3168), to be echoed to it.
    pub ecn: EcnReceiver,
    /// Payload bytes of a segment toward the client.
    pub mss: u16,
    /// Shift of the windows that the card sends to the client.
    pub card_scale: u8,
    /// How numbers of the two sides map.
    pub splice: Splice,
    /// The host's side.
    pub host: HostSide,
    /// First byte of the host since it owns the out stream again, host numbers.
    pub host_base: Seq,
    /// Highest ACK of the host, host-facing numbers.
    pub host_acked_in: Seq,
    /// Sequence number of the client's last acceptable segment: orders its window updates.
    pub client_seq: Seq,
    /// What stands in front of its first request.
    pub preface: FlowPreface,
    /// Client bytes taken and not done with: first those that the host has yet to acknowledge
    /// (`forwarded`), then others.
    pub hold: Option<Hold>,
    /// Bytes at the start of `hold` that are the host's.
    pub forwarded: usize,
    /// Where the host's reply stands.
    pub reply: ReplyTracking,
    /// The beginning of a reply's head that has come in several segments. They have passed already.
    pub reply_head: Option<Hold>,
    /// After this reply the host closes: it said so, or the request did.
    pub last_reply: bool,
    /// The host works on a request that may change something.
    pub unsafe_request: bool,
    /// The fill that takes the host's reply.
    pub fill: Option<FillId>,
    /// What the request that the host works on may change, until it has been answered.
    pub changing: Option<Changing>,
    /// When a client's reset was passed on that the host may have taken.
    pub reset_passed: Option<Time>,
    /// Whether the content of the request is sent may depend on the host's interim reply.
    pub expects_continue: bool,
    /// What is learned from the host's reply.
    pub lesson: Option<Lesson>,
    /// How the request at the front waits for the reply to another one, or for the watcher.
    pub wait: Option<Wait>,
    /// A delayed ACK to the client is due.
    pub ack_due: Option<Time>,
    /// When the client's SYN came.
    pub opened: Time,
    /// When anything last came from the client.
    pub active: Time,
    /// Whether the host still knows the connection.
    pub host_alive: KeepAlive,
    /// When the fill was last looked at, and the host's next number then.
    pub fill_looked_at: (Time, Seq),
    /// What the card asks the server when that has replied.
    pub next: Option<Box<Recheck>>,
    /// When the card last answered a request.
    pub last_hit: Option<Time>,
    /// SYN-ACKs, of the card or the host, that have gone to the client.
    pub syn_ack_tries: u8,
    /// The ledger says that the connection is lost with this card.
    pub in_ledger: bool,
    /// The connection's place with L0 ([`crate::l0`]); what the numbers say is from before then.
    pub loan: Option<u32>,
    /// L0 has found that the client is not on this machine.
    pub is_elsewhere: bool,
    /// L0 can give the last reply, too; not tried yet.
    pub may_be_lent: bool,
    /// Whether it waits for its turn to send.
    pub turn: Turn,
}

impl Flow {
    /// A flow as a client's SYN opens it, with the handshake left to the host.
    pub(crate) fn opening(tcp: &TcpFrame, now: Time) -> Self {
        let mut flow = Self::vacant();
        flow.key = tcp.key;
        flow.client_mac = tcp.source;
        flow.server_mac = tcp.destination;
        flow.tags = tcp.tags;
        flow.client_options = tcp.head.syn_options.unwrap_or_default();
        flow.client_options.timestamps = tcp.head.timestamps;
        flow.rcv_nxt = tcp.head.seq + 1;
        flow.acked_to_client = flow.rcv_nxt;
        (flow.opened, flow.active) = (now, now);
        flow.keep_alive = KeepAlive::new(now);
        flow
    }

    /// A flow that stands for none.
    pub(crate) fn vacant() -> Self {
        let peer =
            PeerLimits { mss: 536, window_scale: 0, sack: false, timestamps: false, ecn: false };
        let sender = Sender::new(&SenderConfig::default(), Seq(0), peer, 0, Time(0));
        Self {
            key: FlowKey::default(),
            client_mac: Mac::default(),
            server_mac: Mac::default(),
            tags: Tags::default(),
            phase: Phase::HostHandshake,
            client_options: SynOptions::default(),
            rcv_nxt: Seq(0),
            acked_to_client: Seq(0),
            client_fin: false,
            host_asks: false,
            card_fin: false,
            sender: sender.clone(),
            out_next: Seq(0),
            client_acked: Seq(0),
            client_edge: Seq(0),
            replies: ReplyQueue::default(),
            timestamps: None,
            challenged: Challenged::default(),
            reading: Reading::default(),
            head_timer: HeadTimer::default(),
            keep_alive: KeepAlive::new(Time(0)),
            fin_wait: None,
            client_window_max: 0,
            client_echo: false,
            ecn: EcnReceiver::default(),
            mss: 536,
            card_scale: 0,
            splice: Splice::default(),
            host: HostSide {
                phase: HostPhase::Absent,
                sender,
                rcv_nxt: Seq(0),
                acked: Seq(0),
                window: 0,
                fin_passed: false,
                fin_taken: false,
                syn_sent: Time(0),
                syn_tries: 0,
            },
            host_base: Seq(0),
            host_acked_in: Seq(0),
            client_seq: Seq(0),
            preface: FlowPreface::Unread,
            hold: None,
            forwarded: 0,
            reply: ReplyTracking::Idle,
            reply_head: None,
            last_reply: false,
            unsafe_request: false,
            fill: None,
            changing: None,
            reset_passed: None,
            expects_continue: false,
            lesson: None,
            wait: None,
            ack_due: None,
            opened: Time(0),
            active: Time(0),
            host_alive: KeepAlive::new(Time(0)),
            fill_looked_at: (Time(0), Seq(0)),
            next: None,
            last_hit: None,
            syn_ack_tries: 0,
            in_ledger: false,
            loan: None,
            is_elsewhere: false,
            may_be_lent: false,
            turn: Turn::No,
        }
    }

    /// Is the card sending, or waiting for acknowledgments of what it sent?
    pub(crate) fn card_speaks(&self) -> bool {
        !self.replies.is_empty() || self.card_fin
    }

    /// Is its handshake under way?
    pub(crate) fn is_half_open(&self) -> bool {
        matches!(self.phase, Phase::HostHandshake | Phase::CardHandshake)
    }

    /// Has either side begun to close?
    pub(crate) fn is_closing(&self) -> bool {
        self.client_fin || self.host.fin_passed
    }

    /// Have both sides closed, and does the client have all that the host sent?
    pub(crate) fn is_closed(&self) -> bool {
        self.client_fin && self.host.fin_passed && self.client_acked.ge(self.out_next)
    }

    /// Is the client done with it, and is all that is left the server's to do: take it, if it has
    /// not yet, and close it?
    pub(crate) fn is_left_to_host(&self) -> bool {
        match self.host.phase {
            HostPhase::Absent | HostPhase::SynSent => false,
            HostPhase::Open => {
                self.client_fin
                    && !self.host.fin_passed
                    && matches!(self.phase, Phase::Opaque(None))
            }
            HostPhase::Closing => !self.host.fin_taken,
        }
    }

    /// Makes the card's sender go on where the out stream stands. Everything before is
    /// acknowledged.
    pub(crate) fn resume_sender(&mut self) {
        let window = self.client_edge.saturating_since(self.out_next);
        self.sender.resume_with(self.out_next, self.client_seq, window);
    }

    /// Has the client acknowledged everything that was sent to it, and has nobody more to send?
    pub(crate) fn output_idle(&self) -> bool {
        self.replies.is_empty()
            && self.client_acked.ge(self.out_next)
            && matches!(self.reply, ReplyTracking::Idle)
    }

    /// Does the client lack bytes of the host, or their acknowledgment the card?
    pub(crate) fn lacks_acks(&self) -> bool {
        self.host.phase == HostPhase::Open && self.client_acked.lt(self.out_next)
    }

    /// Does the client lack bytes of the host, or their acknowledgment the card, or is there no
    /// room in the client's window for more?
    pub(crate) fn owes_acks(&self) -> bool {
        let is_full = self.client_edge.le(self.out_next);
        self.lacks_acks() || self.host.phase == HostPhase::Open && is_full
    }

    /// Is it somebody else's turn than the client's: the host owes a reply, or the card asks for
    /// one? Nobody but the two ends knows whose turn it is once the host has switched protocols.
    pub(crate) fn awaits_host(&self) -> bool {
        let has_all = !self.card_speaks() && !self.owes_acks();
        let is_asked = self.host.phase == HostPhase::SynSent || self.forwarded > 0;
        has_all
            && match self.phase {
                Phase::HostHandshake | Phase::CardHandshake => false,
                Phase::Opaque(None) => true,
                Phase::Opaque(Some(until)) => {
                    let has_whole = self.host_acked_in.ge(self.splice.in_to_host(until));
                    is_asked || self.expects_continue || self.host_replying() && has_whole
                }
                Phase::Requests => is_asked || self.host_replying() || self.wait.is_some(),
            }
    }

    /// Bytes that are held.
    pub(crate) fn held(&self) -> usize {
        self.hold.as_ref().map_or(0, Hold::len)
    }

    /// Number of the first byte that is held, or of the next one that will be; the client's FIN
    /// lies behind what is held.
    pub(crate) fn first_held(&self) -> Seq {
        self.rcv_nxt - (self.held() as u32 + u32::from(self.client_fin))
    }

    /// May the next request go to the host? What the card has queued must be sent, though not
    /// acknowledged: the card's own sender repeats it. What the host has sent must be acknowledged
    /// if the deltas change, because only the newest are kept.
    pub(crate) fn may_hand_over(&self) -> bool {
        let same_deltas = self.out_next.since(self.host.rcv_nxt) == self.splice.out_delta;
        self.phase == Phase::Requests
            && self.forwarded == 0
            && !self.host_replying()
            && !self.card_fin
            && (self.replies.is_empty() || self.sender.all_sent())
            && (self.host.phase != HostPhase::Open
                || self.host.acked == self.host.rcv_nxt
                || same_deltas)
    }

    /// First number that the client has not been sent.
    pub(crate) fn sent(&self) -> Seq {
        if self.card_spoke_last() { self.sender.nxt() } else { self.out_next }
    }

    /// Highest number that the client can acknowledge.
    pub(crate) fn acknowledgeable(&self) -> Seq {
        if self.card_spoke_last() { self.sender.acknowledgeable() } else { self.out_next }
    }

    fn card_spoke_last(&self) -> bool {
        self.card_speaks() && (self.card_fin || self.sender.end() == self.out_next)
    }

    /// Is the host in the middle of a reply?
    pub(crate) fn host_replying(&self) -> bool {
        !matches!(self.reply, ReplyTracking::Idle)
    }

    /// Would the connection survive if the card forgot it? True while no number was moved and
    /// nothing is held.
    pub(crate) fn is_forgettable(&self) -> bool {
        matches!(self.phase, Phase::Opaque(_) | Phase::Requests | Phase::HostHandshake)
            && self.host.phase == HostPhase::Open
            && self.splice.out_delta == 0
            && self.splice.in_delta == 0
            && self.replies.is_empty()
            && self.loan.is_none()
            && self.hold.is_none()
            && self.host.sender.all_acked()
            // What the card has answered itself moves the splice only when the next request goes to
            // the host.
            && (self.phase != Phase::Requests || self.is_at_splice())
            // A FIN that the card has acknowledged and may have kept.
            && !(self.client_fin && self.phase == Phase::Requests)
    }

    /// Do client and host agree on both streams, but for the splice's deltas?
    fn is_at_splice(&self) -> bool {
        self.host.sender.end().since(self.first_held()) == self.splice.in_delta
            && self.out_next.since(self.host.rcv_nxt) == self.splice.out_delta
    }

    /// The TSval for a segment of the card to the client at `now`, and the TSecr.
    pub(crate) fn stamps_to_client(&mut self, now: Time) -> Option<Timestamps> {
        let stamps = self.timestamps.as_mut()?;
        let value = stamps.clock.at(now);
        if Seq(value).gt(Seq(stamps.sent)) {
            stamps.sent = value;
        }
        Some(Timestamps { val: stamps.sent, ecr: stamps.client.recent() })
    }

    /// The timestamps for a segment of the card to the host.
    pub(crate) fn stamps_to_host(&self) -> Option<Timestamps> {
        let stamps = self.timestamps.as_ref()?;
        Some(Timestamps { val: stamps.client.recent(), ecr: stamps.host })
    }
}
