//! What an acknowledgment changes.

use core::time::Duration;

use super::{AckError, AckInfo, AckOutcome, Due, Sender, Undo, tick};
use crate::recovery::{DUP_THRESHOLD_MAX, Phase};
use crate::seq::Seq;
use crate::time::Time;

/// What an acknowledgment told, beside its number.
struct News {
    newly: u32,
    newly_sacked: u32,
    duplicate: bool,
    duplicate_sack: bool,
    flight_before: u32,
    ts_ecr: Option<u32>,
}

impl Sender {
    /// Takes the acknowledgment of a segment that passed the sequence number, RST and PAWS checks.
    pub fn handle_ack(&mut self, info: &AckInfo, now: Time) -> AckOutcome {
        let sent = self.nxt + u32::from(self.probed);
        if info.ack.gt(sent) {
            // RFC 9293 section 3.10.7.4: an acknowledgment of something not yet sent.
            return AckOutcome { invalid: Some(AckError::Unsent), ..AckOutcome::default() };
        }
        if info.ack.lt(self.una) {
            // RFC 5961 section 5.2; RFC 9293 section 3.10.7.4: an old duplicate is ignored.
            let too_old = self.una.since(info.ack) > self.window.largest().max(self.mss);
            return AckOutcome { invalid: too_old.then_some(AckError::TooOld), ..AckOutcome::default() };
        }
        if info.ack.gt(self.nxt) {
            // The peer took the byte of a window probe.
            self.nxt = info.ack;
            self.probed = false;
        }
        let flight_before = self.flight();
        let was_closed = self.window_closed();
        let newly = info.ack.since(self.una);
        let fin_acked = newly > 0 && self.fin && info.ack == self.limit();
        self.una = info.ack;
        let window_moved = self.window.update(info.seq, info.ack, info.window);
        let reneged = newly > 0 && self.board.advance(self.una);
        self.recovery.advance(self.una);
        if reneged {
            self.recovery.high_rxt = self.una;
        }
        let (newly_sacked, duplicate_sack) = self.take_sack(info);
        // RFC 5681 section 2, definition of a duplicate; RFC 6675 section 2: with SACK, one that reports
        // something new.
        let duplicate = newly == 0
            && self.flight() > 0
            && if self.sack { newly_sacked > 0 } else { !info.carries_data && !window_moved };
        let news = News {
            newly,
            newly_sacked,
            duplicate,
            duplicate_sack,
            flight_before,
            ts_ecr: info.ts_ecr.filter(|_| self.timestamps),
        };

        self.persist.answered();
        if newly > 0 {
            self.expiries = 0;
            self.stalled = None;
            self.after_rto = false;
            self.measure(&news, now);
        }
        self.conclude_tail_probe(&news);
        self.undo_if_spurious(&news);
        self.follow_recovery(&news, now);
        self.detect_loss();
        self.reopen(was_closed);
        self.set_timers(newly > 0, window_moved, now);
        AckOutcome { newly_acked: newly - u32::from(fin_acked), fin_acked, invalid: None }
    }

    /// RFC 2018 section 3, RFC 2883: returns the bytes reported for the first time and whether the first
    /// block reports a duplicate. Blocks outside of what is outstanding are ignored.
    fn take_sack(&mut self, info: &AckInfo) -> (u32, bool) {
        if !self.sack {
            return (0, false);
        }
        let mut newly_sacked = 0;
        let mut duplicate = false;
        for (i, &(left, right)) in info.sack.as_slice().iter().enumerate() {
            if i == 0 && right.le(self.una) && left.lt(right) {
                duplicate = true;
            }
            // A block that begins at the acknowledgment would be covered by it.
            if left.gt(self.una) && left.lt(right) && right.le(self.nxt) {
                newly_sacked += self.board.insert(left, right);
            }
        }
        (newly_sacked, duplicate)
    }

    fn measure(&mut self, news: &News, now: Time) {
        match self.timed {
            Some((seq, sent)) if self.una.ge(seq) => {
                self.timed = None;
                self.rtt.sample(now.since(sent), 1);
                self.backoff.reset();
            }
            Some(_) if news.ts_ecr.is_some() => self.backoff.reset(),
            // RFC 6298 section 5 (Karn): the back-off stays until something unambiguous is measured.
            Some(_) => {}
            None => {
                // RFC 7323 section 4.1: an acknowledgment of new data echoes the timestamp of what
                // made it advance, so that retransmissions are measured without ambiguity.
                let Some(ecr) = news.ts_ecr else { return };
                self.backoff.reset();
                let ms = tick(now).wrapping_sub(ecr);
                if ms <= i32::MAX as u32 {
                    let samples = (news.flight_before / (2 * self.mss)).max(1);
                    self.rtt.sample(Duration::from_millis(u64::from(ms.max(1))), samples);
                }
            }
        }
    }

    /// RFC 8985 section 7.4.2: the acknowledgment of a tail loss probe.
    fn conclude_tail_probe(&mut self, news: &News) {
        let Some(tail) = self.tail else { return };
        if self.una.ge(tail.end) {
            self.tail = None;
            // If the acknowledgment was caused by the original, nothing was lost.
            let original = match news.ts_ecr {
                Some(ecr) => (ecr.wrapping_sub(tail.tick) as i32) < 0,
                None => false,
            };
            if tail.retransmitted && !original && !news.duplicate_sack && self.recovery.phase == Phase::Open {
                self.cubic.handle_loss(news.flight_before);
            }
        } else if self.recovery.phase == Phase::Open
            && self.board.contains(tail.end - 1)
            && self.recovery.may_enter(self.una, self.sack)
        {
            // The probe went out two round trips after everything below it, and arrived before.
            self.tail = None;
            self.enter_recovery(tail.start.max(self.una));
        }
    }

    /// RFC 3522: the first acknowledgment of new data after a retransmission echoes a timestamp from
    /// before it, so the original had arrived. RFC 4015: the window is as if nothing had happened.
    fn undo_if_spurious(&mut self, news: &News) {
        if news.newly == 0 {
            return;
        }
        let Some(Undo { cubic, tick }) = self.undo.take() else {
            return;
        };
        let Some(ecr) = news.ts_ecr else { return };
        if tick != 0 && (ecr.wrapping_sub(tick) as i32) < 0 && self.recovery.phase != Phase::Open {
            if self.recovery.phase == Phase::Recovery {
                let threshold = self.recovery.threshold;
                self.recovery.threshold = (threshold * 2).min(DUP_THRESHOLD_MAX);
            }
            self.cubic = cubic;
            self.recovery.leave(self.una);
            self.recovery.recover = self.una - 1;
        }
    }

    fn follow_recovery(&mut self, news: &News, now: Time) {
        match self.recovery.phase {
            Phase::Open => {
                if news.newly > 0 {
                    self.recovery.dupacks = 0;
                    self.grow(news, now);
                }
            }
            Phase::Recovery => {
                if self.una.ge(self.recovery.recover) {
                    self.leave_recovery();
                } else if news.newly > 0 && !self.sack {
                    // RFC 6582 section 3.2 step 3, partial acknowledgment: the next segment is lost, too.
                    let arrived = (news.newly / self.mss).saturating_sub(1) as u16;
                    self.recovery.dupacks = self.recovery.dupacks.saturating_sub(arrived);
                    self.recovery.lost_edge = (self.una + self.mss).min(self.nxt);
                    self.recovery.high_rxt = self.una;
                    self.recovery.force = true;
                }
            }
            Phase::Loss => {
                if news.newly > 0 {
                    self.grow(news, now);
                }
                if self.una.ge(self.recovery.recover) {
                    self.leave_recovery();
                }
            }
        }
        if news.duplicate && self.recovery.phase != Phase::Loss {
            // No more segments can have arrived than are outstanding, less the missing one.
            let most = (self.flight() / self.mss).saturating_sub(1).min(u32::from(u16::MAX)) as u16;
            self.recovery.dupacks = self.recovery.dupacks.saturating_add(1).min(most.max(1));
        }
        if news.newly_sacked > 0 {
            self.recovery.detect_lost_retransmission(&self.board, self.una, self.nxt, self.mss);
        }
    }

    fn leave_recovery(&mut self) {
        self.recovery.leave(self.una);
        self.undo = None;
    }

    /// Enters fast recovery when a loss is evident (RFC 5681 section 3.2, RFC 6675 section 5).
    fn detect_loss(&mut self) {
        if self.flight() == 0 || !self.recovery.may_enter(self.una, self.sack) {
            return;
        }
        let lost = self
            .board
            .holes(self.una, self.nxt)
            .next()
            .is_some_and(|hole| hole.start == self.una && self.recovery.is_lost(&hole, self.mss));
        if lost {
            self.enter_recovery(self.una);
        } else if self.recovery.dupacks >= u16::from(self.recovery.threshold) {
            self.enter_recovery((self.una + self.mss).min(self.nxt));
        }
    }

    fn enter_recovery(&mut self, lost_edge: Seq) {
        self.undo = self.timestamps.then_some(Undo { cubic: self.cubic, tick: 0 });
        self.cubic.handle_loss(self.flight());
        self.recovery.enter(Phase::Recovery, self.una, self.nxt, lost_edge);
        self.tail = None;
        self.due = Due::Nothing;
    }

    /// RFC 7661, RFC 5681 section 3.1: the window grows only if it was used.
    fn grow(&mut self, news: &News, now: Time) {
        let used = self.cwnd_limited || (self.cubic.in_slow_start() && news.flight_before >= self.cubic.window() / 2);
        if used {
            let srtt = self.rtt.smoothed().unwrap_or(Duration::from_millis(1));
            self.cubic.grow(news.newly, srtt, now);
        }
    }

    /// The window opens again: what was outstanding when it closed was sent beyond it and may have
    /// been dropped. It is sent again at once, and the congestion window has no part in it.
    fn reopen(&mut self, was_closed: bool) {
        if !was_closed || self.window_closed() {
            return;
        }
        self.persist.end();
        if self.due == Due::WindowProbe {
            self.due = Due::Nothing;
        }
        self.rto_at = None;
        if self.flight() > 0 {
            self.undo = None;
            self.recovery.enter(Phase::Loss, self.una, self.nxt, self.nxt);
            self.recovery.force = false;
        }
    }

    fn set_timers(&mut self, progress: bool, window_moved: bool, now: Time) {
        if self.flight() == 0 {
            self.pto_at = None;
            if progress {
                // RFC 6298 (5.2).
                self.rto_at = None;
            }
            if self.window_closed() {
                self.arm_persist(now);
            } else if window_moved {
                // The next poll finds out whether it is still too small.
                self.rto_at = None;
            }
            return;
        }
        // RFC 6298 (5.3).
        if progress || self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        if self.tail.is_none() && (progress || self.recovery.phase != Phase::Open || !self.board.is_empty()) {
            self.arm_tail_probe(now);
        }
    }
}
