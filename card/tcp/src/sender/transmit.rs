//! What to send next.

use super::{Due, Sender, Transmit, TransmitKind, tick};
use crate::ecn::Codepoint;
use crate::recovery::{Doubt, Phase};
use crate::scoreboard::Range;
use crate::seq::Seq;
use crate::tail_probe::{self, TailProbe};
use crate::time::{Stamp, Time};

/// Bytes sent within a round trip divided by this share one record of their time: much less than a
/// quarter round trip, the reordering window.
const GRAINS_PER_ROUND: u32 = 64;

/// New segments that tell whether a timeout was needed (RFC 5682 section 2.1, step 2 b).
const FRTO_SEGMENTS: u32 = 2;

impl Sender {
    /// The next frame to send, of at most `bytes_max` payload bytes; call until `None`.
    ///
    /// A frame longer than one segment is contiguous and lies within congestion window and peer's
    /// window.
    pub fn poll_transmit(&mut self, now: Time, bytes_max: u32) -> Option<Transmit> {
        self.pace_at = None;
        if bytes_max == 0 || self.all_acked() {
            return None;
        }
        let mut transmit = self.next_transmit(now, bytes_max);
        match &mut transmit {
            Some(t) => {
                (t.ecn, t.cwr) =
                    self.ecn.mark(t.kind == TransmitKind::New && t.len > 0, t.seq + t.len);
                self.note_sent(t, now);
            }
            None => self.arm_persist(now),
        }
        transmit
    }

    fn next_transmit(&mut self, now: Time, bytes_max: u32) -> Option<Transmit> {
        match core::mem::replace(&mut self.due, Due::Nothing) {
            Due::Nothing => {}
            Due::WindowProbe => {
                if let Some(t) = self.window_probe() {
                    return Some(t);
                }
            }
            Due::SmallWindow => {
                let room =
                    self.window.edge().saturating_since(self.nxt()).min(self.mss).min(bytes_max);
                if room > 0 && self.flight() == 0 {
                    return self.cut(self.nxt(), self.window.edge(), room, TransmitKind::New);
                }
            }
            Due::TailProbe => {
                if let Some(t) = self.tail_probe(bytes_max) {
                    return Some(t);
                }
            }
        }
        if self.flight() == 0 && self.last_sent < now {
            self.start_after_pause(now);
        }
        if let Some(at) = self.pacer.blocked_until(now) {
            self.pace_at = Some(at);
            return None;
        }
        let bytes_max = bytes_max.min(self.pacer.frame_bytes_max(self.mss));
        let budget = self.cwnd().saturating_sub(self.pipe());
        if self.recovery.doubt != Doubt::NewData
            && let Some(range) = self.board.first_lost()
            && range.start.lt(self.window.edge())
        {
            // Lost bytes go before new ones (RFC 6675 section 4, NextSeg rules 1 and 2).
            let t = self.retransmit(&range, budget, bytes_max);
            if t.is_none() {
                self.note_use(true);
            }
            return t;
        }
        self.new_data(budget, bytes_max)
    }

    /// The acknowledgment clock has stopped (RFC 5681 section 4.1).
    fn start_after_pause(&mut self, now: Time) {
        self.pacer.start(self.cfg.initial_window_segments * self.mss);
        let idle = now.since(self.last_sent);
        if self.cfg.restart_after_idle && idle > self.rto_base() && self.rtt.smoothed().is_some() {
            self.cubic.restart(self.cfg.initial_window_segments, idle, self.rto_base());
            self.last_sent = now;
        }
    }

    #[inline]
    pub(super) fn note_use(&mut self, limited: bool) {
        let (flight, una, nxt) = (self.flight(), self.una(), self.nxt());
        self.usage.handle_polled(limited, flight, una, nxt);
    }

    /// Cuts `[start, end)` of sequence space to at most `bytes` of payload, with FIN if it is
    /// reached and lies before `end`.
    fn cut(&self, start: Seq, end: Seq, bytes: u32, kind: TransmitKind) -> Option<Transmit> {
        let data = end.min(self.end).saturating_since(start);
        let len = data.min(bytes);
        let fin = self.fin && start + len == self.end && end.gt(self.end);
        let (ecn, cwr) = (Codepoint::NotCapable, false);
        (len > 0 || fin).then_some(Transmit { seq: start, len, fin, kind, ecn, cwr })
    }

    fn retransmit(&mut self, lost: &Range, budget: u32, bytes_max: u32) -> Option<Transmit> {
        let segment = self.mss.min(bytes_max);
        let end = lost.end.min(self.window.edge());
        let data = end.min(self.end).saturating_since(lost.start);
        let bytes = if data == 0 && budget > 0 {
            0
        } else {
            whole_segments(data, budget.min(bytes_max), segment)?
        };
        let kind = if self.after_rto { TransmitKind::RtoProbe } else { TransmitKind::Retransmit };
        self.cut(lost.start, end, bytes, kind)
    }

    fn new_data(&mut self, budget: u32, bytes_max: u32) -> Option<Transmit> {
        let mut edge = self.window.edge();
        if self.recovery.doubt == Doubt::NewData {
            // RFC 5682 section 2.1, step 2 b.
            edge = edge.min(self.recovery.point + FRTO_SEGMENTS * self.mss);
        }
        let nxt = self.nxt();
        if nxt == self.limit() || nxt.ge(edge) {
            self.note_use(false);
            return None;
        }
        let segment = self.mss.min(bytes_max);
        let bytes_max = if self.ecn.has_news() { segment } else { bytes_max };
        let data = self.end.saturating_since(nxt);
        let room = edge.since(nxt);
        if data == 0 {
            // FIN alone.
            return if budget > 0 { self.cut(nxt, edge, 0, TransmitKind::New) } else { None };
        }
        if let Some(bytes) = whole_segments(data, room.min(budget).min(bytes_max), segment) {
            return self.cut(nxt, edge, bytes, TransmitKind::New);
        }
        let limited = budget < segment.min(data);
        self.note_use(limited);
        if limited {
            return None;
        }
        // RFC 9293 section 3.8.6.2.1, sender's silly window avoidance: less than a segment only if
        // it is at least half of the largest window that the peer ever offered.
        if room >= self.window.largest() / 2 {
            return self.cut(nxt, edge, room, TransmitKind::New);
        }
        None
    }

    /// RFC 9293 section 3.8.6.1: one byte of what the peer does not take.
    fn window_probe(&mut self) -> Option<Transmit> {
        if !self.window_closed() {
            return None;
        }
        self.cut(self.una(), self.limit(), 1, TransmitKind::WindowProbe).map(|t| {
            // The FIN is a probe of its own; it takes the place of a byte.
            Transmit { fin: t.fin && t.len == 0, ..t }
        })
    }

    /// RFC 8985 section 7.3: new data if there is any, else the last segment again.
    fn tail_probe(&mut self, bytes_max: u32) -> Option<Transmit> {
        if !self.may_probe_tail() {
            return None;
        }
        let segment = self.mss.min(bytes_max);
        let (nxt, edge) = (self.nxt(), self.window.edge());
        let (t, again) = if nxt.lt(self.limit().min(edge)) {
            (self.cut(nxt, edge, segment, TransmitKind::New)?, false)
        } else {
            let data_end = nxt.min(self.end);
            let start =
                if data_end.since(self.una()) > segment { data_end - segment } else { self.una() };
            (self.cut(start, nxt, segment, TransmitKind::TailProbe)?, true)
        };
        let end = if again { nxt } else { t.seq + t.len + u32::from(t.fin) };
        self.tail = Some(TailProbe::new(end, again));
        Some(t)
    }

    #[inline]
    pub(super) fn may_probe_tail(&self) -> bool {
        self.cfg.tail_loss_probe
            && self.sack
            && matches!(self.recovery.phase, Phase::Open | Phase::Reduction)
            && self.flight() > 0
            && self.board.sacked() == 0
            && self.tail.is_none()
            && self.nxt().le(self.window.edge())
    }

    fn note_sent(&mut self, t: &Transmit, now: Time) {
        let end = t.seq + t.len + u32::from(t.fin);
        self.last_sent = now;
        let stamp = Stamp::at(now);
        match t.kind {
            TransmitKind::New => {
                let srtt_us = self.path().srtt_us;
                self.board.push(end.since(t.seq), stamp, (srtt_us / GRAINS_PER_ROUND).max(1));
                self.probed = false;
            }
            TransmitKind::WindowProbe => {
                self.probed |= self.flight() == 0;
                return;
            }
            TransmitKind::TailProbe => {
                self.board.resend(t.seq, end, stamp);
                self.resent_bytes += u64::from(t.len);
            }
            TransmitKind::Retransmit | TransmitKind::RtoProbe => {
                self.board.resend(t.seq, end, stamp);
                self.resent_bytes += u64::from(t.len);
                self.undo.handle_resent(end.since(t.seq), tick(now));
                self.after_rto = false;
                if t.seq == self.una() {
                    self.rto_at = Some(now + self.rto());
                }
            }
        }
        self.pacer.handle_sent(t.len, now);
        if self.recovery.is_reducing() {
            self.prr.handle_sent(end.since(t.seq), self.mss);
        }
        // RFC 6298 (5.1).
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        if t.kind == TransmitKind::New {
            self.arm_tail_probe(now);
        }
    }

    /// RFC 8985 section 7.2: a probe is due two round trips after the last transmission or
    /// progress.
    #[inline]
    pub(super) fn arm_tail_probe(&mut self, now: Time) {
        self.pto_at = None;
        let srtt_ns = self.rtt.smoothed_ns();
        if srtt_ns == 0 || !self.may_probe_tail() {
            return;
        }
        let at =
            Time(now.0.saturating_add(tail_probe::wait_ns(srtt_ns, self.flight() <= self.mss)));
        self.pto_at = Some(self.rto_at.map_or(at, |rto| at.min(rto)));
    }

    /// RFC 9293 section 3.8.6.1: nothing outstanding, something to send, and no room for it.
    pub(super) fn arm_persist(&mut self, now: Time) {
        if self.flight() == 0
            && self.nxt() != self.limit()
            && self.rto_at.is_none()
            && self.pace_at.is_none()
        {
            if self.window_closed() {
                self.persist.begin(now);
            }
            self.rto_at = Some(now + self.persist.interval(self.rto_base(), self.cfg.rto_max));
        }
    }
}

/// Bytes to take from `data` with `room` for them: all, or whole segments; `None` for neither.
fn whole_segments(data: u32, room: u32, segment: u32) -> Option<u32> {
    if data <= room {
        return Some(data);
    }
    let whole = room - room % segment;
    (whole > 0).then_some(whole)
}
