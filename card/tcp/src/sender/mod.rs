//! The sender of a byte stream that it knows only by sequence numbers.
//!
//! The caller maps ranges of sequence numbers to payload: transmission and retransmission are by
//! reference. Read first: RFC 9293 section 3.8, RFC 5681, RFC 6675.
//!
//! Order of calls: [`Sender::enqueue`] and [`Sender::handle_ack`] as events come, then
//! [`Sender::poll_transmit`] until it returns `None`, then [`Sender::next_timeout`]; at that time
//! [`Sender::handle_timeout`] and again `poll_transmit` until `None`.
//!
//! A FIN takes one sequence number behind the last byte. `una`, `nxt` count it, `end` does not.
//!
//! Losses are found by time (RFC 8985) and, for peers without SACK, by duplicate acknowledgments
//! (RFC 6582); the window shrinks in proportion to what arrives (RFC 9937); a reduction that turns
//! out to have had no reason is taken back (RFC 3522, RFC 3708, RFC 5682); what is sent is paced on
//! long paths; marks count (RFC 3168, RFC 8511). Limited transmit (RFC 3042) follows from counting
//! what is on the path rather than what is unacknowledged.

mod ack;
mod prediction;
#[cfg(test)]
mod tests;
mod timer;
mod transmit;

use core::time::Duration;

use crate::cubic::Cubic;
use crate::ecn::{Codepoint, EcnSender};
use crate::hystart::HyStart;
use crate::options::SackBlocks;
use crate::pacing::Pacer;
use crate::persist::Persist;
use crate::prr::Prr;
use crate::rack::{Path, Rack};
use crate::recovery::{Phase, Recovery};
use crate::rto::{self, Backoff};
use crate::rtt::Rtt;
use crate::scoreboard::Scoreboard;
use crate::seq::Seq;
use crate::tail_probe::TailProbe;
use crate::time::{Stamp, Time, earliest};
use crate::undo::Undo;
use crate::usage::Usage;
use crate::window::PeerWindow;

/// Settings shared by all flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Segments that may be sent before the first acknowledgment (RFC 6928: 10). More can overrun
    /// slow paths.
    pub initial_window_segments: u32,
    /// Least time that the timeout lies above the smoothed round-trip time (default 200 ms, as in
    /// Linux). Less than a peer's delayed acknowledgment makes retransmissions spurious.
    pub rto_min: Duration,
    /// Longest timeout and longest interval of probes (default 60 s; RFC 6298 (2.5): at least 60
    /// s).
    pub rto_max: Duration,
    /// Expiries without progress, or probes without answer, after which the flow is dead (default
    /// 15).
    pub expiries_max: u8,
    /// Time without progress since the first expiry after which the flow is dead (default 120 s;
    /// RFC 9293 section 3.8.3 asks for at least 100 s).
    pub give_up: Duration,
    /// Start again from the initial window after an idle time of more than a timeout
    /// (RFC 5681 section 4.1; default true).
    pub restart_after_idle: bool,
    /// Probe for tail losses (RFC 8985 section 7; default true).
    pub tail_loss_probe: bool,
    /// Try shorter segments when the timer has expired more than once without progress (RFC 4821;
    /// default false, as in Linux: on paths that lose much, segments become short without need).
    pub black_hole_detection: bool,
    /// Round-trip time from which on frames are paced (default 5 ms). Below, timers are too coarse,
    /// and a local network has room for a window.
    pub pacing_rtt_min: Duration,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self {
            initial_window_segments: 10,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            expiries_max: 15,
            give_up: Duration::from_secs(120),
            restart_after_idle: true,
            tail_loss_probe: true,
            black_hole_detection: false,
            pacing_rtt_min: Duration::from_millis(5),
        }
    }
}

/// What the handshake settled about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Payload bytes per segment, options already deducted.
    pub mss: u16,
    /// Shift of the windows that the peer sends. For the caller: [`AckInfo::window`] is in bytes.
    pub window_scale: u8,
    /// The peer sends SACK.
    pub sack: bool,
    /// Every segment carries timestamps.
    pub timestamps: bool,
    /// ECN was agreed on (RFC 3168 section 6.1.1).
    pub ecn: bool,
}

/// The parts of a received segment that concern the sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckInfo {
    /// Sequence number of the segment (it orders window updates).
    pub seq: Seq,
    /// Acknowledgment number.
    pub ack: Seq,
    /// Window in bytes, scaled.
    pub window: u32,
    /// SACK blocks.
    pub sack: SackBlocks,
    /// TSecr as ticks of the card's clock: [`crate::timestamps::TsClock::ticks`] of the received
    /// value.
    pub ts_ecr: Option<u32>,
    /// The segment carries payload, SYN or FIN, so it is not a duplicate acknowledgment (RFC 5681
    /// section 2).
    pub carries_data: bool,
    /// The segment has ECE: a router has marked what we sent (RFC 3168 section 6.1.2).
    pub ece: bool,
}

/// Why an acknowledgment was not acceptable; nothing was changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// The acknowledgment covers bytes never sent: answer with an acknowledgment and drop the
    /// segment (RFC 9293 section 3.10.7.4).
    Unsent,
    /// The acknowledgment lies more than the largest window in the past: send a challenge
    /// acknowledgment and drop the segment (RFC 5961 section 5.2).
    TooOld,
}

/// Effect of an acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckOutcome {
    /// Bytes acknowledged for the first time, FIN not counted; they may be released.
    pub newly_acked: u32,
    /// Our FIN was acknowledged by this segment.
    pub fin_acked: bool,
    /// The segment was not acceptable.
    pub invalid: Option<AckError>,
}

/// Why a segment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransmitKind {
    /// Bytes never sent before.
    New,
    /// Bytes deemed lost.
    Retransmit,
    /// One byte (or FIN) to make the peer tell its closed window; it may lie beyond the window.
    WindowProbe,
    /// The first bytes sent again after the retransmission timer expired.
    RtoProbe,
    /// The last segment sent again, to make the peer tell what it has (RFC 8985 section 7).
    TailProbe,
}

/// One frame to send: `len` payload bytes from `seq` on, to be cut into segments of the peer's
/// size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// First byte.
    pub seq: Seq,
    /// Payload bytes; a multiple of the segment size unless the range ends sooner. Zero only with
    /// `fin`.
    pub len: u32,
    /// FIN follows the payload.
    pub fin: bool,
    /// Why it is sent.
    pub kind: TransmitKind,
    /// The ECN field of its packets (RFC 3168 section 5).
    pub ecn: Codepoint,
    /// The frame's first segment has CWR (RFC 3168 section 6.1.2).
    pub cwr: bool,
}

/// Effect of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutOutcome {
    /// The timeout was not due yet, or there was nothing to do.
    Nothing,
    /// There may be something to send: poll.
    Armed,
    /// The peer is gone; abort the flow.
    GaveUp,
}

/// What a timer found to be sent next, whatever the windows say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// Zero-window probe.
    WindowProbe,
    /// The window has stayed too small for a segment: send what fits.
    SmallWindow,
    /// Tail loss probe.
    TailProbe,
}

/// The sender; see the module head. A plain value of fixed size, most of it the scoreboard.
#[derive(Clone, Debug)]
pub struct Sender {
    cfg: SenderConfig,
    mss: u32,
    sack: bool,
    timestamps: bool,
    /// What is between SND.UNA and SND.NXT.
    board: Scoreboard,
    /// Behind the last enqueued byte.
    end: Seq,
    /// A FIN follows `end`.
    fin: bool,
    window: PeerWindow,
    rtt: Rtt,
    backoff: Backoff,
    /// Expiries since the last progress.
    expiries: u8,
    /// First expiry since the last progress.
    stalled: Option<Time>,
    cubic: Cubic,
    hystart: HyStart,
    usage: Usage,
    prr: Prr,
    rack: Rack,
    recovery: Recovery,
    undo: Undo,
    ecn: EcnSender,
    pacer: Pacer,
    /// What is acknowledged when the next round trip begins.
    round_end: Seq,
    persist: Persist,
    /// Retransmission timer, or persist timer when nothing is outstanding or the window is closed.
    rto_at: Option<Time>,
    /// Tail loss probe timer.
    pto_at: Option<Time>,
    /// RACK's reordering timer (RFC 8985 section 6.2 step 5).
    reo_at: Option<Time>,
    /// The pacer lets go again.
    pace_at: Option<Time>,
    due: Due,
    tail: Option<TailProbe>,
    /// The byte at `nxt` went out as a window probe: the peer may acknowledge it.
    probed: bool,
    /// The next retransmission is the one the timer asked for.
    after_rto: bool,
    last_sent: Time,
    /// Bytes sent again and bytes reported to have arrived twice: more of the latter are the
    /// network's doing.
    resent_bytes: u64,
    duplicate_bytes: u64,
}

/// An older echo cannot be that of a handshake under way.
const ECHO_MS_MAX: u32 = 120_000;

fn tick(now: Time) -> u32 {
    now.as_millis() as u32
}

impl Sender {
    /// A sender whose first byte will be `start`; `window` is the peer's window in bytes from
    /// there.
    #[must_use]
    pub fn new(cfg: &SenderConfig, start: Seq, peer: PeerLimits, window: u32, now: Time) -> Self {
        let mss = u32::from(peer.mss.max(1));
        // RFC 6928 section 2: min(10 * MSS, max(2 * MSS, 14600)).
        let initial = cfg.initial_window_segments.min((14_600 / mss).max(2)).max(1);
        let initial =
            if cfg.initial_window_segments > 10 { cfg.initial_window_segments } else { initial };
        Self {
            cfg: *cfg,
            mss,
            sack: peer.sack,
            timestamps: peer.timestamps,
            board: Scoreboard::new(start),
            end: start,
            fin: false,
            window: PeerWindow::new(start, window),
            rtt: Rtt::default(),
            backoff: Backoff::default(),
            expiries: 0,
            stalled: None,
            cubic: Cubic::new(mss, initial),
            hystart: HyStart::default(),
            usage: Usage::new(),
            prr: Prr::default(),
            rack: Rack::new(start),
            recovery: Recovery::new(start),
            undo: Undo::default(),
            ecn: EcnSender::new(peer.ecn),
            pacer: Pacer::default(),
            round_end: start,
            persist: Persist::default(),
            rto_at: None,
            pto_at: None,
            reo_at: None,
            pace_at: None,
            due: Due::Nothing,
            tail: None,
            probed: false,
            after_rto: false,
            last_sent: now,
            resent_bytes: 0,
            duplicate_bytes: 0,
        }
    }

    /// The stream goes on at `seq`: everything before was sent by somebody else and is
    /// acknowledged. Round-trip estimate and congestion window are kept (and decay by idle time,
    /// RFC 5681 section 4.1); the next segment given to [`Sender::handle_ack`] sets the window.
    /// Needs nothing outstanding and nothing enqueued.
    pub fn resume_at(&mut self, seq: Seq) {
        debug_assert!(self.is_idle(), "resume_at with bytes of our own");
        self.start_over(seq);
    }

    /// From now on somebody else sees to all that is outstanding, and to what follows until
    /// [`Sender::resume_at`].
    pub fn hand_over(&mut self) {
        self.start_over(self.end);
    }

    fn start_over(&mut self, seq: Seq) {
        self.round_end = seq;
        self.window.move_to(self.board.una(), seq);
        self.board.move_to(seq);
        self.end = seq;
        self.fin = false;
        self.recovery = Recovery::new(seq);
        self.rack.move_to(seq);
        self.hystart = HyStart::default();
        self.usage = Usage::new();
        self.undo.forget();
        self.ecn.move_to();
        self.backoff.reset();
        self.expiries = 0;
        self.stalled = None;
        self.persist.end();
        self.clear_timers();
        self.due = Due::Nothing;
        self.tail = None;
        self.probed = false;
        self.after_rto = false;
    }

    /// `bytes` more exist after the current end. Less than 2^31 may be unacknowledged at a time,
    /// and nothing may follow a FIN.
    #[track_caller]
    pub fn enqueue(&mut self, bytes: u32) {
        debug_assert!(!self.fin, "data behind FIN");
        debug_assert!(
            self.end.since(self.una()).checked_add(bytes).is_some_and(|n| n <= i32::MAX as u32)
        );
        if !self.fin {
            self.end += bytes;
        }
    }

    /// The stream ends behind what is enqueued.
    pub fn enqueue_fin(&mut self) {
        self.fin = true;
    }

    /// A round-trip time measured elsewhere, such as that of the handshake (RFC 6298 section 2).
    pub fn observe_rtt(&mut self, rtt: Duration) {
        self.rtt.sample(rtt, 1);
        self.rtt.observe_least(rtt, self.last_sent);
    }

    /// The acknowledgment of a SYN-ACK that was sent more than once echoes `ticks` of the card's
    /// clock in milliseconds: which of them has arrived, and so a round-trip time without ambiguity
    /// (RFC 7323 section 4.1). Echoes of the future or of a long time ago are ignored.
    pub fn observe_echo(&mut self, ticks: u32, now: Time) {
        let ms = tick(now).wrapping_sub(ticks);
        if ms <= ECHO_MS_MAX {
            self.observe_rtt(Duration::from_millis(u64::from(ms.max(1))));
        }
    }

    /// The handshake was repeated more than once: the path is full, and the first flight is one
    /// segment (RFC 5681 section 3.1). Before anything is sent.
    pub fn handle_lost_handshake(&mut self) {
        self.cubic = Cubic::new(self.mss, 1);
    }

    /// Another segment size from now on.
    pub fn set_mss(&mut self, mss: u16) {
        self.mss = u32::from(mss.max(1));
        self.cubic.set_mss(self.mss);
    }

    /// The path takes no more than `mss` payload bytes in a segment (RFC 9293 section 3.7.5; the
    /// caller has believed a router: RFC 5927 section 4.1). What is outstanding is cut anew and
    /// sent again; congestion has no part in it (RFC 8201 section 5.4). Returns false if segments
    /// are short enough already.
    pub fn handle_path_mtu(&mut self, mss: u16) -> bool {
        if u32::from(mss) >= self.mss {
            return false;
        }
        self.set_mss(mss);
        if self.flight() > 0 && !self.window_closed() {
            self.lose_everything();
        }
        true
    }

    /// The earliest time at which [`Sender::handle_timeout`] has something to do. `Some` whenever
    /// anything is outstanding or waiting to be sent; [`Time::ZERO`] means that it is already due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        if self.due != Due::Nothing {
            return Some(Time::ZERO);
        }
        let armed = earliest([self.rto_at, self.pto_at, self.reo_at, self.pace_at]);
        if armed.is_none() && self.una() != self.limit() {
            return Some(Time::ZERO);
        }
        armed
    }

    /// Oldest unacknowledged sequence number (SND.UNA).
    #[must_use]
    pub fn una(&self) -> Seq {
        self.board.una()
    }

    /// Next sequence number to be sent for the first time (SND.NXT).
    #[must_use]
    pub fn nxt(&self) -> Seq {
        self.board.nxt()
    }

    /// Highest number that the peer can acknowledge: SND.NXT, or one more while a window probe's
    /// byte is out.
    #[must_use]
    pub fn acknowledgeable(&self) -> Seq {
        self.nxt() + u32::from(self.probed)
    }

    /// Behind the last enqueued byte; FIN, if any, is here.
    #[must_use]
    pub fn end(&self) -> Seq {
        self.end
    }

    /// Behind the last byte that the peer takes (SND.UNA + SND.WND).
    #[must_use]
    pub fn window_edge(&self) -> Seq {
        self.window.edge()
    }

    /// Everything enqueued, FIN included, was sent at least once.
    #[must_use]
    pub fn all_sent(&self) -> bool {
        self.nxt() == self.limit()
    }

    /// Is there anything to send, now or when the windows allow: new, lost, or a probe?
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.all_acked()
            && (!self.all_sent() || self.due != Due::Nothing || self.board.first_lost().is_some())
    }

    /// Everything enqueued, FIN included, is acknowledged.
    #[must_use]
    pub fn all_acked(&self) -> bool {
        self.una() == self.limit()
    }

    /// Nothing outstanding and nothing waiting: [`Sender::resume_at`] is allowed.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.all_acked()
    }

    /// A FIN was enqueued and is acknowledged.
    #[must_use]
    pub fn fin_acked(&self) -> bool {
        self.fin && self.all_acked()
    }

    /// Unacknowledged bytes sent (FlightSize, RFC 5681 section 2).
    #[must_use]
    pub fn flight(&self) -> u32 {
        self.board.outstanding()
    }

    /// Bytes thought to be on the path (RFC 6675 section 4, pipe).
    #[must_use]
    pub fn pipe(&self) -> u32 {
        let pipe = self.board.in_flight();
        // RFC 6582: without SACK, a duplicate acknowledgment says that a segment has left the path.
        if self.sack {
            pipe
        } else {
            pipe.saturating_sub(u32::from(self.recovery.dupacks) * self.mss)
        }
    }

    /// Smoothed round-trip time, once measured.
    #[must_use]
    pub fn rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Congestion window in bytes: what may be on the path.
    #[must_use]
    pub fn cwnd(&self) -> u32 {
        if self.recovery.is_reducing() { self.prr.window() } else { self.cubic.window() }
    }

    /// Pacing rate in bytes per second, if frames are paced.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        self.pacer.rate()
    }

    /// Slow start threshold in bytes; `u32::MAX` before the first congestion event.
    #[must_use]
    pub fn ssthresh(&self) -> u32 {
        self.cubic.threshold()
    }

    /// Payload bytes per segment.
    #[must_use]
    pub fn mss(&self) -> u32 {
        self.mss
    }

    /// What is being done about losses.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.recovery.phase
    }

    /// The current retransmission timeout, back-off included.
    #[must_use]
    #[inline]
    pub fn rto(&self) -> Duration {
        let base = rto::timeout(&self.rtt, self.cfg.rto_min, self.cfg.rto_max);
        self.backoff.apply(base, self.cfg.rto_max)
    }

    /// Since when the peer keeps its window closed although there is something to send. A peer may
    /// do so for ever (RFC 9293 section 3.8.6.1); whether it may keep the memory is the caller's
    /// decision (RFC 6429).
    #[must_use]
    pub fn window_closed_since(&self) -> Option<Time> {
        self.persist.since()
    }

    /// Behind everything enqueued, FIN included.
    fn limit(&self) -> Seq {
        self.end + u32::from(self.fin)
    }

    /// The timeout without back-off.
    fn rto_base(&self) -> Duration {
        rto::timeout(&self.rtt, self.cfg.rto_min, self.cfg.rto_max)
    }

    /// The peer's window ends at or before what it has acknowledged.
    fn window_closed(&self) -> bool {
        self.window.edge().le(self.una())
    }

    fn clear_timers(&mut self) {
        (self.rto_at, self.pto_at, self.reo_at, self.pace_at) = (None, None, None, None);
    }

    /// What RACK needs to know of the path.
    fn path(&self) -> Path {
        let micros = |rtt: Option<Duration>| {
            rtt.map_or(0, |rtt| rtt.as_micros().min(u128::from(u32::MAX)) as u32)
        };
        Path {
            min_rtt_us: micros(self.rtt.least()),
            srtt_us: micros(self.rtt.smoothed()),
            in_recovery: matches!(self.recovery.phase, Phase::Recovery | Phase::Loss),
            mss: self.mss,
        }
    }

    /// The retransmission timer as it runs from the last transmission of the oldest byte, but not
    /// before a probe that is sent now can be answered.
    fn rto_after_probe(&self, now: Time) -> Time {
        let age = self.board.ranges().next().map_or(0, |head| Stamp::at(now).since(head.sent));
        let answer = self.rtt.smoothed().unwrap_or_default() * 5 / 4;
        now + self.rto().saturating_sub(Duration::from_micros(u64::from(age))).max(answer)
    }
}
