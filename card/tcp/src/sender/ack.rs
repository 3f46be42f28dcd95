//! What an acknowledgment changes.

use core::time::Duration;

use super::{AckError, AckInfo, AckOutcome, Due, Sender, tick};
use crate::cubic::Cubic;
use crate::hystart::{GROWTH_DIVISOR, Pace};
use crate::prr::Prr;
use crate::recovery::{Doubt, Phase};
use crate::scoreboard::Range;
use crate::seq::Seq;
use crate::tail_probe::{Told, Verdict};
use crate::time::{Stamp, Time};

/// What an acknowledgment told, beside its number.
#[derive(Clone, Copy, Debug, Default)]
struct News {
    /// Sequence numbers acknowledged for the first time.
    acked: u32,
    /// Bytes that are known to have arrived since this acknowledgment, in order or not.
    arrived: u32,
    /// Bytes of those that were reported out of order.
    sacked: u32,
    /// A duplicate acknowledgment (RFC 5681 section 2), for peers without SACK.
    duplicate: bool,
    /// Bytes reported to have arrived twice (RFC 2883), which we had sent twice.
    duplicate_sack: Option<(Seq, Seq)>,
    /// Age of the oldest range that was acknowledged, in microseconds, if none of it was sent
    /// again: with the receiver's delay.
    oldest_us: Option<u32>,
    /// Age of the newest range that has arrived, sent once.
    newest_us: Option<u32>,
    /// Something that was sent again was acknowledged: what arrived with it may have waited for it
    /// at the receiver.
    mixed: bool,
    /// Bytes from before the recovery point, sent once, have arrived.
    originals: bool,
    flight_before: u32,
    echo: Option<u32>,
}

impl News {
    fn take(&mut self, range: &Range, now: Stamp, point: Seq, acknowledged: bool) {
        self.arrived += range.len();
        if range.again {
            self.mixed |= acknowledged;
            return;
        }
        let age = now.since(range.sent).max(1);
        if acknowledged || self.acked == 0 {
            self.oldest_us = Some(self.oldest_us.map_or(age, |oldest| oldest.max(age)));
        }
        self.newest_us = Some(self.newest_us.map_or(age, |newest| newest.min(age)));
        self.originals |= range.end.le(point);
    }
}

impl Sender {
    /// Takes the acknowledgment of a segment that passed the sequence number, RST and PAWS checks.
    #[inline]
    pub fn handle_ack(&mut self, info: &AckInfo, now: Time) -> AckOutcome {
        if self.is_expected(info) {
            return self.handle_expected_ack(info, now);
        }
        self.handle_any_ack(info, now)
    }

    /// Takes the acknowledgment of a segment that passed the sequence number, RST and PAWS checks,
    /// whatever it may say: the general way, which [`Sender::handle_ack`] spares expected ones.
    pub(super) fn handle_any_ack(&mut self, info: &AckInfo, now: Time) -> AckOutcome {
        let una = self.una();
        if info.ack.gt(self.acknowledgeable()) {
            // RFC 9293 section 3.10.7.4: an acknowledgment of something not yet sent.
            return AckOutcome { invalid: Some(AckError::Unsent), ..AckOutcome::default() };
        }
        if info.ack.lt(una) {
            // RFC 5961 section 5.2; RFC 9293 section 3.10.7.4: an old duplicate is ignored.
            let too_old = una.since(info.ack) > self.window.largest().max(self.mss);
            return AckOutcome {
                invalid: too_old.then_some(AckError::TooOld),
                ..AckOutcome::default()
            };
        }
        if info.ack.gt(self.nxt()) {
            // The peer took the byte of a window probe.
            self.probed = false;
        }
        let was_closed = self.window_closed();
        let newly = info.ack.since(una);
        let fin_acked = newly > 0 && self.fin && info.ack == self.limit();
        let mut news = self.take_arrivals(info, now);
        let window_moved = self.window.update(info.seq, info.ack, info.window);
        // RFC 5681 section 2, definition of a duplicate.
        news.duplicate =
            newly == 0 && self.flight() > 0 && !self.sack && !info.carries_data && !window_moved;

        self.persist.answered();
        if newly > 0 {
            self.expiries = 0;
            self.stalled = None;
            self.after_rto = false;
            self.recovery.advance(info.ack);
            self.ecn.advance(info.ack);
        }
        self.rack.advance(info.ack);
        self.measure(&news, now);
        let lost_before = self.board.lost();
        self.conclude_tail_probe(&news);
        if info.ece && self.ecn.handle_echo(self.una(), self.nxt()) {
            self.reduce_for_mark(&news);
        }
        self.follow_phase(&news);
        self.detect_loss(&news, now);
        self.move_window(&news, self.board.lost() > lost_before, now);
        self.reopen(was_closed);
        self.set_timers(newly > 0, window_moved, now);
        if newly > 0 && self.una().ge(self.round_end) {
            self.round_end = self.nxt();
            if self.recovery.phase == Phase::Open {
                self.pacer.start_round();
            }
        }
        self.set_pace();
        AckOutcome { newly_acked: newly - u32::from(fin_acked), fin_acked, invalid: None }
    }

    /// Brings the scoreboard up to date.
    fn take_arrivals(&mut self, info: &AckInfo, now: Time) -> News {
        let stamp = Stamp::at(now);
        let point =
            if self.recovery.phase == Phase::Open { self.nxt() } else { self.recovery.point };
        let mut news = News {
            acked: info.ack.since(self.una()),
            flight_before: self.flight(),
            echo: info.ts_ecr.filter(|_| self.timestamps),
            ..News::default()
        };
        let min_rtt_us = self.path().min_rtt_us;
        let Self { board, rack, .. } = self;
        let echo = news.echo;
        let mut arrive = |range: &Range| {
            let sent_tick = tick(now).wrapping_sub(stamp.since(range.sent).div_ceil(1_000));
            let echo_is_older = echo.is_some_and(|echo| (echo.wrapping_sub(sent_tick) as i32) < 0);
            rack.handle_arrival(range, stamp, min_rtt_us, echo_is_older);
        };
        board.acknowledge(info.ack, |range| {
            arrive(range);
            news.take(range, stamp, point, true);
        });
        if !self.sack {
            return news;
        }
        // RFC 2018 section 3, RFC 2883: the first block may report a duplicate. Blocks outside of
        // what is outstanding are ignored.
        let (una, nxt) = (self.board.una(), self.board.nxt());
        let blocks = info.sack.as_slice();
        if let Some(&(left, right)) = blocks.first()
            && left.lt(right)
            && (right.le(una) || blocks.get(1).is_some_and(|&(l, r)| l.le(left) && right.le(r)))
        {
            self.duplicate_bytes += u64::from(right.since(left));
            if self.duplicate_bytes <= self.resent_bytes {
                news.duplicate_sack = Some((left, right));
            } else {
                // The network's own copies (RFC 3708 section 3 (C)).
                self.duplicate_bytes = self.resent_bytes;
            }
        }
        for &(left, right) in blocks {
            // A block that begins at the acknowledgment would be covered by it.
            if left.gt(una) && left.lt(right) && right.le(nxt) {
                news.sacked += self.board.sack(left, right, |range| {
                    arrive(range);
                    news.take(range, stamp, point, false);
                });
            }
        }
        news
    }

    fn measure(&mut self, news: &News, now: Time) {
        let news =
            &if news.mixed { News { oldest_us: None, newest_us: None, ..*news } } else { *news };
        if let Some(us) = news.newest_us {
            self.rtt.observe_least(Duration::from_micros(u64::from(us)), now);
        }
        let samples = (news.flight_before / (2 * self.mss)).max(1);
        if let Some(us) = news.oldest_us {
            self.rtt.sample(Duration::from_micros(u64::from(us)), samples);
            self.backoff.reset();
        } else if news.acked > 0
            && let Some(echo) = news.echo
        {
            // RFC 7323 section 4.1: an acknowledgment of new data echoes the timestamp of what made
            // it advance, so retransmissions are measured without ambiguity. Without
            // timestamps the back-off stays (RFC 6298 section 5, Karn).
            self.backoff.reset();
            let ms = tick(now).wrapping_sub(echo);
            if ms <= i32::MAX as u32 {
                self.rtt.sample(Duration::from_millis(u64::from(ms.max(1))), samples);
            }
        }
    }

    fn conclude_tail_probe(&mut self, news: &News) {
        let Some(tail) = self.tail else { return };
        let told = Told {
            ack: self.una(),
            is_progress: news.arrived > 0,
            duplicate_end: news.duplicate_sack.map(|(_, right)| right),
            echo_is_older: false,
        };
        match tail.judge(&told) {
            Verdict::Open => {}
            Verdict::Done => self.tail = None,
            Verdict::Repaired => {
                self.tail = None;
                if self.recovery.phase == Phase::Open {
                    self.undo.forget();
                    self.cubic.handle_loss();
                    self.ecn.handle_reduction(self.nxt());
                }
            }
        }
    }

    fn reduce_for_mark(&mut self, news: &News) {
        if self.recovery.phase != Phase::Open {
            return;
        }
        self.undo.forget();
        self.prr = Prr::new(news.flight_before, self.pipe());
        self.cubic.handle_mark();
        self.recovery.enter(Phase::Reduction, self.nxt());
    }

    /// Ends phases that are over, and takes back what had no reason.
    fn follow_phase(&mut self, news: &News) {
        if let Some((left, right)) = news.duplicate_sack {
            self.undo.handle_duplicate(left, right);
            self.rack.handle_duplicate(self.nxt());
        }
        let is_over = self.una().ge(self.recovery.point);
        match self.recovery.phase {
            Phase::Open => {
                if news.acked > 0 {
                    self.recovery.dupacks = 0;
                }
                if self.undo.is_disproven_by_duplicates() {
                    self.take_back();
                }
            }
            Phase::Reduction if is_over => self.recovery.leave(),
            Phase::Reduction => {}
            Phase::Recovery => self.follow_recovery(news, is_over),
            Phase::Loss => self.follow_timeout(news, is_over),
        }
        if news.duplicate && self.recovery.phase != Phase::Loss {
            self.recovery.count_duplicate(self.flight().div_ceil(self.mss));
        }
    }

    fn follow_recovery(&mut self, news: &News, is_over: bool) {
        let by_echo = news.acked > 0
            && self.undo.is_disproven_by_echo(news.echo)
            && (is_over || !self.board.ranges().any(|range| range.again));
        if by_echo || self.undo.is_disproven_by_duplicates() {
            self.take_back();
        } else if is_over {
            self.rack.handle_recovered();
            self.recovery.leave();
        } else if news.acked > 0 && !self.sack {
            // RFC 6582 section 3.2 step 3, partial acknowledgment: the next segment is lost, too.
            let arrived = (news.acked / self.mss).saturating_sub(1) as u16;
            self.recovery.dupacks = self.recovery.dupacks.saturating_sub(arrived);
            self.lose_first_segment();
        }
    }

    /// F-RTO (RFC 5682 section 2.1, with SACK section 3.1), then the ordinary end.
    fn follow_timeout(&mut self, news: &News, is_over: bool) {
        let doubted = self.recovery.doubt != Doubt::None;
        // Without SACK, what is acknowledged together with a retransmission may have waited for it
        // at the receiver.
        let originals = news.originals && (self.sack || !news.mixed);
        if (doubted && originals)
            || (news.acked > 0 && self.undo.is_disproven_by_echo(news.echo))
            || self.undo.is_disproven_by_duplicates()
        {
            // Step 3 b: what was sent once has arrived, so the timeout was early.
            self.take_back();
        } else if is_over {
            self.recovery.leave();
        } else if self.recovery.doubt == Doubt::NewData && (news.sacked > 0 || news.duplicate) {
            // Step 3 a: a window of up to three segments, so beside the two new ones there is
            // room for what is missing.
            self.recovery.doubt = Doubt::None;
            self.cubic = self.cubic.at_least(&Cubic::new(self.mss, 3));
        } else if self.recovery.doubt == Doubt::Probed && news.acked > 0 {
            // Step 2 b, if there is anything new to send.
            let has_new = self.nxt().lt(self.limit()) && self.nxt().lt(self.window.edge());
            self.recovery.point = self.nxt();
            self.recovery.doubt = if has_new { Doubt::NewData } else { Doubt::None };
        }
    }

    /// The last reduction of the window had no reason.
    fn take_back(&mut self) {
        if let Some(cubic) = self.undo.take(&self.cubic) {
            self.cubic = cubic;
        }
        self.board.find_lost();
        self.recovery.leave();
        self.recovery.point = self.una() - 1;
    }

    fn detect_loss(&mut self, news: &News, now: Time) {
        if self.flight() == 0 {
            return;
        }
        if self.sack {
            if news.arrived > 0 || self.reo_at.is_some() {
                self.detect_by_time(now);
            }
        } else if self.recovery.phase == Phase::Open
            && self.recovery.is_loss_by_duplicates(self.una())
        {
            self.lose_first_segment();
        }
        if self.board.lost() > 0 && matches!(self.recovery.phase, Phase::Open | Phase::Reduction) {
            self.enter_recovery(news.arrived);
        }
    }

    /// RFC 8985 section 6.2.
    pub(super) fn detect_by_time(&mut self, now: Time) {
        let path = self.path();
        let left = self.rack.detect(&mut self.board, &path, Stamp::at(now));
        self.reo_at = left.map(|us| now + Duration::from_micros(u64::from(us)));
    }

    fn lose_first_segment(&mut self) {
        let una = self.una();
        self.board.lose(una, una + self.mss);
    }

    /// Begins a reduction because of losses, of which `arrived` bytes have just told.
    pub(super) fn enter_recovery(&mut self, arrived: u32) {
        if self.recovery.phase == Phase::Open {
            self.undo.begin(&self.cubic, self.una());
            // RFC 9937 section 5, RecoverFS.
            self.prr = Prr::new(
                (self.flight() - self.board.sacked()).saturating_add(arrived),
                self.pipe(),
            );
            self.cubic.handle_loss();
            self.ecn.handle_reduction(self.nxt());
        }
        self.recovery.enter(Phase::Recovery, self.nxt());
        self.tail = None;
        self.pto_at = None;
        if self.due == Due::TailProbe {
            self.due = Due::Nothing;
        }
    }

    /// What the acknowledgment does to the congestion window.
    fn move_window(&mut self, news: &News, newly_lost: bool, now: Time) {
        if self.recovery.is_reducing() {
            let clean = news.acked > 0 && !newly_lost;
            let threshold = self.cubic.threshold();
            let arrived = if self.sack {
                news.arrived
            } else {
                news.acked + if news.duplicate { self.mss } else { 0 }
            };
            self.prr.handle_ack(arrived, self.pipe(), threshold, self.mss, clean);
            return;
        }
        let pace = if self.cubic.in_slow_start()
            && self.recovery.phase == Phase::Open
            && news.acked > 0
        {
            self.hystart.handle_ack(self.una(), self.nxt(), news.newest_us.filter(|_| !news.mixed))
        } else {
            Pace::Full
        };
        if pace == Pace::Over {
            self.cubic.end_slow_start();
        }
        // On a path that reorders, what has arrived out of order is progress, too.
        let progress = news.acked > 0 || (self.rack.has_reordering() && news.arrived > 0);
        if progress && self.usage.may_grow(self.cubic.window(), self.cubic.in_slow_start()) {
            let srtt = self.rtt.smoothed().unwrap_or(Duration::from_millis(1));
            let divisor = if pace == Pace::Conservative { GROWTH_DIVISOR } else { 1.0 };
            self.cubic.grow(news.arrived, divisor, srtt, now);
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
            self.lose_everything();
        }
    }

    /// What is outstanding is sent again, without a fault of the path.
    pub(super) fn lose_everything(&mut self) {
        self.undo.forget();
        self.tail = None;
        self.pto_at = None;
        self.reo_at = None;
        self.board.lose_where(|_| true);
        self.recovery.enter(Phase::Loss, self.nxt());
        self.recovery.dupacks = 0;
    }

    #[inline]
    pub(super) fn set_timers(&mut self, progress: bool, window_moved: bool, now: Time) {
        if self.flight() == 0 {
            self.pto_at = None;
            self.reo_at = None;
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
        if progress || self.recovery.phase != Phase::Open || self.board.sacked() > 0 {
            self.arm_tail_probe(now);
        }
    }
}
