//! What to send next.

use core::time::Duration;

use super::{Due, Sender, TailProbe, Transmit, TransmitKind, Undo, tick};
use crate::recovery::Phase;
use crate::seq::Seq;
use crate::time::Time;

/// A tail loss probe waits at least this long, so that a peer that is merely scheduled late is not
/// probed (RFC 8985 section 7.2 leaves the floor to the implementation).
const PTO_MIN: Duration = Duration::from_millis(10);
/// A single segment may wait for a delayed acknowledgment (RFC 8985 section 7.2, TLP.max_ack_delay).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

impl Sender {
    /// The next frame to send, of at most `bytes_max` payload bytes; call until `None`.
    ///
    /// A frame longer than one segment is contiguous and lies within congestion window and peer's window.
    pub fn poll_transmit(&mut self, now: Time, bytes_max: u32) -> Option<Transmit> {
        if bytes_max == 0 || self.all_acked() {
            return None;
        }
        let transmit = self.next_transmit(now, bytes_max);
        match transmit {
            Some(t) => self.note_sent(&t, now),
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
                let room = self.window.edge().saturating_since(self.nxt).min(self.mss).min(bytes_max);
                if room > 0 && self.flight() == 0 {
                    return self.cut(self.nxt, self.window.edge(), room, TransmitKind::New);
                }
            }
            Due::TailProbe => {
                if let Some(t) = self.tail_probe(now, bytes_max) {
                    return Some(t);
                }
            }
        }
        if self.flight() == 0
            && self.cfg.restart_after_idle
            && now.since(self.last_sent) > self.rto_base()
            && self.rtt.smoothed().is_some()
        {
            // RFC 5681 section 4.1: the acknowledgment clock has stopped.
            self.cubic.restart(self.cfg.initial_window_segments);
            self.last_sent = now;
        }
        let budget = self.cubic.window().saturating_sub(self.pipe());
        if self.recovery.phase != Phase::Open
            && let Some((start, end)) = self.recovery.next_lost(&self.board, self.una, self.nxt, self.mss)
            && start.lt(self.window.edge())
        {
            // Lost bytes go before new ones (RFC 6675 section 4, NextSeg rules 1 and 2).
            let t = self.retransmit(start, end, budget, bytes_max);
            self.cwnd_limited |= t.is_none();
            return t;
        }
        if let Some(t) = self.new_data(budget, bytes_max) {
            return Some(t);
        }
        if self.recovery.phase == Phase::Recovery && self.sack && budget >= self.mss {
            return self.uncertain(budget, bytes_max);
        }
        None
    }

    /// Cuts `[start, end)` of sequence space to at most `bytes` of payload, with FIN if it is reached
    /// and lies before `end`.
    fn cut(&self, start: Seq, end: Seq, bytes: u32, kind: TransmitKind) -> Option<Transmit> {
        let data = end.min(self.end).saturating_since(start);
        let len = data.min(bytes);
        let fin = self.fin && start + len == self.end && end.gt(self.end);
        (len > 0 || fin).then_some(Transmit { seq: start, len, fin, kind })
    }

    fn retransmit(&mut self, start: Seq, end: Seq, budget: u32, bytes_max: u32) -> Option<Transmit> {
        let segment = self.mss.min(bytes_max);
        let budget = if self.recovery.force { budget.max(segment) } else { budget };
        let end = end.min(self.window.edge());
        let data = end.min(self.end).saturating_since(start);
        let bytes = whole_segments(data, budget.min(bytes_max), segment)?;
        let kind = if self.after_rto { TransmitKind::RtoProbe } else { TransmitKind::Retransmit };
        let t = self.cut(start, end, bytes, kind)?;
        self.recovery.high_rxt = t.seq + t.len + u32::from(t.fin);
        Some(t)
    }

    /// NextSeg rules 3 and 4 (RFC 6675 section 4).
    fn uncertain(&mut self, budget: u32, bytes_max: u32) -> Option<Transmit> {
        if let Some((start, end)) = self.recovery.next_missing(&self.board, self.una)
            && start.lt(self.window.edge())
        {
            return self.retransmit(start, end, budget.min(self.mss), bytes_max);
        }
        let (start, end) = self.recovery.rescue(&self.board, self.una, self.nxt, self.mss.min(bytes_max))?;
        if start.ge(self.window.edge()) || start.lt(self.recovery.high_rxt) {
            return None;
        }
        // HighRxt stays where it is.
        self.recovery.rescued = true;
        let data = end.min(self.end).saturating_since(start).min(self.mss.min(bytes_max));
        self.cut(start, end.min(self.window.edge()), data, TransmitKind::Retransmit)
    }

    fn new_data(&mut self, budget: u32, bytes_max: u32) -> Option<Transmit> {
        let edge = self.window.edge();
        if self.nxt == self.limit() || self.nxt.ge(edge) {
            self.cwnd_limited = false;
            return None;
        }
        let segment = self.mss.min(bytes_max);
        let data = self.end.saturating_since(self.nxt);
        let room = edge.since(self.nxt);
        if data == 0 {
            // FIN alone.
            return if budget > 0 { self.cut(self.nxt, edge, 0, TransmitKind::New) } else { None };
        }
        if let Some(bytes) = whole_segments(data, room.min(budget).min(bytes_max), segment) {
            return self.cut(self.nxt, edge, bytes, TransmitKind::New);
        }
        if budget < segment.min(data) {
            self.cwnd_limited = true;
            return None;
        }
        self.cwnd_limited = false;
        // RFC 9293 section 3.8.6.2.1, sender's silly window avoidance: less than a segment only if it is
        // at least half of the largest window that the peer ever offered.
        if room >= self.window.largest() / 2 {
            return self.cut(self.nxt, edge, room, TransmitKind::New);
        }
        None
    }

    /// RFC 9293 section 3.8.6.1: one byte of what the peer does not take.
    fn window_probe(&mut self) -> Option<Transmit> {
        if !self.window_closed() {
            return None;
        }
        self.cut(self.una, self.limit(), 1, TransmitKind::WindowProbe).map(|t| {
            // The FIN is a probe of its own; it takes the place of a byte.
            Transmit { fin: t.fin && t.len == 0, ..t }
        })
    }

    /// RFC 8985 section 7.3: new data if there is any, else the last segment again.
    fn tail_probe(&mut self, now: Time, bytes_max: u32) -> Option<Transmit> {
        if self.recovery.phase != Phase::Open || self.flight() == 0 {
            return None;
        }
        let segment = self.mss.min(bytes_max);
        let edge = self.window.edge();
        let (t, retransmitted) = if self.nxt.lt(self.limit().min(edge)) {
            (self.cut(self.nxt, edge, segment, TransmitKind::New)?, false)
        } else {
            let data_end = self.nxt.min(self.end);
            let start = if data_end.since(self.una) > segment { data_end - segment } else { self.una };
            if self.nxt.gt(edge) {
                return None;
            }
            (self.cut(start, self.nxt, segment, TransmitKind::TailProbe)?, true)
        };
        let end = t.seq + t.len + u32::from(t.fin);
        self.tail = Some(TailProbe { start: t.seq, end, retransmitted, tick: tick(now) });
        Some(t)
    }

    fn note_sent(&mut self, t: &Transmit, now: Time) {
        let end = t.seq + t.len + u32::from(t.fin);
        self.last_sent = now;
        match t.kind {
            TransmitKind::New => {
                self.nxt = end;
                self.probed = false;
                self.timed.get_or_insert((end, now));
            }
            TransmitKind::WindowProbe => {
                self.probed |= self.flight() == 0;
                self.timed = None;
                return;
            }
            TransmitKind::TailProbe => self.timed = None,
            TransmitKind::Retransmit | TransmitKind::RtoProbe => {
                // RFC 6298 section 3 (Karn): what is sent again is not timed.
                self.timed = None;
                self.after_rto = false;
                self.recovery.force = false;
                self.recovery.rtx_nxt = self.nxt;
                if let Some(Undo { tick: at @ 0, .. }) = &mut self.undo {
                    *at = tick(now).max(1);
                }
            }
        }
        // RFC 6298 (5.1).
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        if t.kind == TransmitKind::New && self.tail.is_none() {
            self.arm_tail_probe(now);
        }
    }

    /// RFC 8985 section 7.2: a probe is due two round trips after the last transmission or progress.
    pub(super) fn arm_tail_probe(&mut self, now: Time) {
        self.pto_at = None;
        let Some(srtt) = self.rtt.smoothed() else {
            return;
        };
        if !self.cfg.tail_loss_probe
            || !self.sack
            || self.recovery.phase != Phase::Open
            || self.flight() == 0
            || !self.board.is_empty()
            || self.nxt.gt(self.window.edge())
        {
            return;
        }
        let mut pto = (srtt * 2).max(PTO_MIN);
        if self.flight() <= self.mss {
            pto += ACK_DELAY_MAX;
        }
        let at = now + pto;
        if self.rto_at.is_none_or(|rto| at < rto) {
            self.pto_at = Some(at);
        }
    }

    /// RFC 9293 section 3.8.6.1: nothing outstanding, something to send, and no room for it.
    pub(super) fn arm_persist(&mut self, now: Time) {
        if self.flight() == 0 && self.nxt != self.limit() && self.rto_at.is_none() {
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
