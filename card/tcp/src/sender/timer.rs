//! What to do when time has passed.

use super::{Due, Sender, TimeoutOutcome};
use crate::black_hole;
use crate::recovery::{Doubt, Phase};
use crate::time::{Stamp, Time};

impl Sender {
    /// Time has come to `now`; to be called at [`Sender::next_timeout`], harmless at any other
    /// time.
    pub fn handle_timeout(&mut self, now: Time) -> TimeoutOutcome {
        if self.all_acked() {
            self.clear_timers();
            return TimeoutOutcome::Nothing;
        }
        // RFC 8985 section 7.2: a probe takes the place of an expiry at the same time.
        let probe_first = self.pto_at.is_some_and(|at| at <= now) && self.may_probe_tail();
        if self.rto_at.is_some_and(|at| at <= now) && !probe_first {
            return self.handle_expiry(now);
        }
        let mut outcome = TimeoutOutcome::Nothing;
        if self.reo_at.is_some_and(|at| at <= now) {
            self.handle_reordering_expiry(now);
            outcome = TimeoutOutcome::Armed;
        }
        if self.pto_at.is_some_and(|at| at <= now) {
            self.pto_at = None;
            if self.may_probe_tail() {
                self.due = Due::TailProbe;
                // RFC 8985 section 7.3: the retransmission timer goes on behind the probe, from
                // when the oldest byte was sent.
                self.rto_at = Some(self.rto_after_probe(now));
                outcome = TimeoutOutcome::Armed;
            }
        }
        if self.pace_at.is_some_and(|at| at <= now) {
            self.pace_at = None;
            outcome = TimeoutOutcome::Armed;
        }
        if self.due != Due::Nothing || self.rto_at.is_none() {
            outcome = TimeoutOutcome::Armed;
        }
        outcome
    }

    /// RFC 8985 section 6.2 step 5: nothing was heard for a reordering window.
    fn handle_reordering_expiry(&mut self, now: Time) {
        self.reo_at = None;
        let lost_before = self.board.lost();
        self.detect_by_time(now);
        if self.board.lost() == lost_before {
            return;
        }
        if matches!(self.recovery.phase, Phase::Open | Phase::Reduction) {
            self.enter_recovery(0);
        }
        if self.recovery.is_reducing() {
            self.prr.handle_ack(self.mss, self.pipe(), self.cubic.threshold(), self.mss, false);
        }
    }

    fn handle_expiry(&mut self, now: Time) -> TimeoutOutcome {
        self.pto_at = None;
        self.reo_at = None;
        self.pace_at = None;
        if self.window_closed() || self.flight() == 0 {
            return self.handle_persist_expiry(now);
        }
        let since = *self.stalled.get_or_insert(now);
        if self.expiries >= self.cfg.expiries_max || now.since(since) >= self.cfg.give_up {
            return TimeoutOutcome::GaveUp;
        }
        let phase = self.recovery.phase;
        // A timeout within a recovery confirms what that has reduced.
        let first = phase == Phase::Open
            || self.una().ge(self.recovery.point)
            || (phase == Phase::Loss && self.expiries == 0)
            || phase == Phase::Reduction;
        self.expiries += 1;
        self.backoff.increase();
        if first {
            self.undo.begin(&self.cubic, self.una());
            self.ecn.handle_reduction(self.nxt());
        }
        if self.cfg.black_hole_detection
            && self.flight() >= self.mss
            && let Some(mss) = black_hole::after_silence(self.mss, self.expiries)
        {
            self.set_mss(mss as u16);
        }
        if self.sack {
            let path = self.path();
            self.rack.detect_at_timeout(&mut self.board, &path, Stamp::at(now));
        } else {
            self.board.lose_where(|_| true);
        }
        self.cubic.handle_timeout(self.board.in_flight(), !first);
        self.recovery.enter(Phase::Loss, self.nxt());
        self.recovery.dupacks = 0;
        if first || self.expiries > 1 {
            self.recovery.doubt = Doubt::Probed;
        }
        self.after_rto = true;
        self.tail = None;
        self.due = Due::Nothing;
        // RFC 6298 (5.5), (5.6).
        self.rto_at = Some(now + self.rto());
        TimeoutOutcome::Armed
    }

    fn handle_persist_expiry(&mut self, now: Time) -> TimeoutOutcome {
        if self.window_closed() {
            if self.persist.unanswered() >= self.cfg.expiries_max {
                return TimeoutOutcome::GaveUp;
            }
            self.persist.begin(now);
            self.persist.probe();
            self.due = Due::WindowProbe;
        } else {
            // RFC 9293 section 3.8.6.2.1: the override timeout of silly window avoidance.
            self.due = Due::SmallWindow;
        }
        self.rto_at = Some(now + self.persist.interval(self.rto_base(), self.cfg.rto_max));
        TimeoutOutcome::Armed
    }
}
