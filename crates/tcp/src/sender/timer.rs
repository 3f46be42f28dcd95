//! What to do when time has passed.

use super::{Due, Sender, TimeoutOutcome, Undo};
use crate::recovery::{DUP_THRESHOLD, Phase};
use crate::time::Time;

impl Sender {
    /// Time has come to `now`; to be called at [`Sender::next_timeout`], harmless at any other time.
    pub fn handle_timeout(&mut self, now: Time) -> TimeoutOutcome {
        if self.all_acked() {
            self.rto_at = None;
            self.pto_at = None;
            return TimeoutOutcome::Nothing;
        }
        if self.rto_at.is_some_and(|at| at <= now) {
            return self.handle_expiry(now);
        }
        if self.pto_at.is_some_and(|at| at <= now) {
            self.pto_at = None;
            if self.recovery.phase == Phase::Open && self.flight() > 0 && self.tail.is_none() {
                self.due = Due::TailProbe;
                // RFC 8985 section 7.3: the retransmission timer starts anew behind the probe.
                self.rto_at = Some(now + self.rto());
                return TimeoutOutcome::Armed;
            }
        }
        let poll = self.due != Due::Nothing || self.rto_at.is_none();
        if poll { TimeoutOutcome::Armed } else { TimeoutOutcome::Nothing }
    }

    fn handle_expiry(&mut self, now: Time) -> TimeoutOutcome {
        self.pto_at = None;
        if self.window_closed() || self.flight() == 0 {
            return self.handle_persist_expiry(now);
        }
        let since = *self.stalled.get_or_insert(now);
        if self.expiries >= self.cfg.expiries_max || now.since(since) >= self.cfg.give_up {
            return TimeoutOutcome::GaveUp;
        }
        let again = self.expiries > 0;
        self.expiries += 1;
        self.backoff.increase();
        if !again {
            // A timeout within a recovery keeps that recovery's way back out of use: the window was
            // reduced for a reason that the timeout confirms.
            self.undo =
                (self.timestamps && self.recovery.phase == Phase::Open).then_some(Undo { cubic: self.cubic, tick: 0 });
        }
        self.cubic.handle_timeout(self.flight(), again);
        // RFC 2018 section 8: after a timeout the receiver may have dropped what it reported.
        self.board.clear();
        self.recovery.enter(Phase::Loss, self.una, self.nxt, self.nxt);
        self.recovery.dupacks = 0;
        self.recovery.threshold = DUP_THRESHOLD;
        self.after_rto = true;
        self.tail = None;
        self.due = Due::Nothing;
        self.timed = None;
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
