//! What nearly every segment of a connection in good order is: an acknowledgment of all that was
//! sent, a reply that fits into one segment.
//!
//! Header prediction (RFC 7323 section 5.6): a few comparisons show that most of what
//! [`super::ack`] and [`super::transmit`] provide for cannot apply, and what is left is short. The
//! outcome is the same to the last field; the tests hold each against the general way.

use super::{AckInfo, AckOutcome, Due, Sender, Transmit, TransmitKind};
use crate::ecn::Codepoint;
use crate::hystart::{GROWTH_DIVISOR, Pace};
use crate::recovery::{Doubt, Phase};
use crate::seq::Seq;
use crate::time::{Stamp, Time, nanos};

impl Sender {
    /// Does the segment acknowledge all that was sent, sent once and at about the same time, with
    /// nothing unusual under way?
    #[inline]
    pub(super) fn is_expected(&self, info: &AckInfo) -> bool {
        self.recovery.phase == Phase::Open
            && info.ack == self.nxt()
            && self.board.lone().is_some_and(|range| !range.again)
            && info.sack.is_empty()
            && !info.ece
            && info.window > 0
            && !self.window_closed()
            && !self.probed
            && self.tail.is_none()
            && !self.undo.is_begun()
    }

    /// Takes an acknowledgment that [`Sender::is_expected`].
    #[inline]
    pub(super) fn handle_expected_ack(&mut self, info: &AckInfo, now: Time) -> AckOutcome {
        let Some(range) = self.board.lone() else { return AckOutcome::default() };
        let newly = info.ack.since(self.una());
        let fin_acked = self.fin && info.ack == self.limit();
        let age_us = Stamp::at(now).since(range.sent).max(1);
        self.rack.handle_arrival(&range, Stamp::at(now), 0, false);
        self.rack.advance(info.ack);
        self.board.move_to(info.ack);
        let window_moved = self.window.update(info.seq, info.ack, info.window);
        self.persist.answered();
        self.expiries = 0;
        self.stalled = None;
        self.after_rto = false;
        self.recovery.advance(info.ack);
        self.recovery.dupacks = 0;
        self.ecn.advance(info.ack);
        self.rtt.observe_age(
            age_us,
            if newly < 2 * self.mss { 1 } else { newly / (2 * self.mss) },
            now,
        );
        self.backoff.reset();
        self.grow_expected(newly, age_us, now);
        self.set_timers(true, window_moved, now);
        if info.ack.ge(self.round_end) {
            self.round_end = info.ack;
            self.pacer.start_round();
        }
        self.set_pace();
        AckOutcome { newly_acked: newly - u32::from(fin_acked), fin_acked, invalid: None }
    }

    #[inline]
    fn grow_expected(&mut self, newly: u32, age_us: u32, now: Time) {
        let in_slow_start = self.cubic.in_slow_start();
        let pace = if in_slow_start {
            self.hystart.handle_ack(self.una(), self.nxt(), Some(age_us))
        } else {
            Pace::Full
        };
        if pace == Pace::Over {
            self.cubic.end_slow_start();
        }
        if self.usage.may_grow(self.cubic.window(), self.cubic.in_slow_start()) {
            let srtt = self.rtt.smoothed().unwrap_or_default();
            let divisor = if pace == Pace::Conservative { GROWTH_DIVISOR } else { 1.0 };
            self.cubic.grow(newly, divisor, srtt, now);
        }
    }

    /// The stream goes on at `seq` as [`Sender::resume_at`] says, with a window of `window` bytes
    /// from there, told by the segment that began at `segment`.
    pub fn resume_with(&mut self, seq: Seq, segment: Seq, window: u32) {
        self.resume_at(seq);
        self.window.update(segment, seq, window);
        self.set_pace();
    }

    /// All that waits to be sent, if nothing is outstanding and it fits into one segment that goes
    /// at once: what [`Sender::poll_transmit`] would give before it has nothing more.
    #[inline]
    pub fn transmit_all(&mut self, now: Time, bytes_max: u32) -> Option<Transmit> {
        let una = self.una();
        let len = self.end.saturating_since(una);
        let is_whole = self.nxt() == una
            && len > 0
            && len <= self.mss.min(bytes_max)
            && !self.fin
            && self.due == Due::Nothing
            && self.recovery.phase == Phase::Open
            && self.recovery.doubt == Doubt::None
            && !self.ecn.is_agreed()
            && self.pacer.rate().is_none()
            && self.end.le(self.window.edge())
            && len <= self.cubic.window()
            // The timeout is longer.
            && now.0.saturating_sub(self.last_sent.0) <= nanos(self.cfg.rto_min)
            && self.cfg.rto_min <= self.cfg.rto_max;
        if !is_whole {
            return None;
        }
        if self.last_sent < now {
            self.pacer.start(self.cfg.initial_window_segments * self.mss);
        }
        self.pace_at = None;
        self.last_sent = now;
        self.board.push(len, Stamp::at(now), 1);
        self.probed = false;
        self.pacer.handle_sent(len, now);
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rto());
        }
        self.arm_tail_probe(now);
        self.note_use(false);
        Some(Transmit {
            seq: una,
            len,
            fin: false,
            kind: TransmitKind::New,
            ecn: Codepoint::NotCapable,
            cwr: false,
        })
    }

    /// Tells the pacer of the path. The window matters only where frames are paced.
    #[inline]
    pub(super) fn set_pace(&mut self) {
        if self.rtt.is_below(self.cfg.pacing_rtt_min) {
            self.pacer.stop();
            return;
        }
        let slow_start = self.cubic.in_slow_start();
        self.pacer.set_path(
            self.cwnd().max(self.flight()),
            slow_start,
            self.rtt.smoothed(),
            self.cfg.pacing_rtt_min,
        );
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::prelude::*;

    use super::super::{PeerLimits, SenderConfig};
    use super::*;

    const START: Seq = Seq(u32::MAX - 4_000);

    /// All fields; two senders that show the same are the same.
    fn all(sender: &Sender) -> String {
        format!("{sender:?}")
    }

    #[derive(Clone, Debug)]
    enum Step {
        Enqueue(u32),
        Poll(u32),
        Wait(u64),
        /// At the time of the next timeout.
        Timeout,
        /// Per mille of what is outstanding, the window, and what is unusual about it.
        Ack(u32, u32, u8),
        Resume(u32),
        Fin,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => prop_oneof![3 => 1u32..900, 1 => 900u32..9_000].prop_map(Step::Enqueue),
            6 => prop_oneof![Just(500u32), Just(64_000), Just(0)].prop_map(Step::Poll),
            6 => prop_oneof![1u64..3_000, 3_000u64..400_000_000, Just(700_000_000)]
                .prop_map(Step::Wait),
            2 => Just(Step::Timeout),
            8 => (prop_oneof![4 => Just(1_000u32), 1 => 0u32..1_000],
                prop_oneof![4 => Just(60_000u32), 1 => 0u32..4_000],
                  prop_oneof![5 => Just(0u8), 1 => 1u8..9, 1 => Just(8)])
                      .prop_map(|(a, b, c)| Step::Ack(a, b, c)),
            4 => (0u32..100_000).prop_map(Step::Resume),
            1 => Just(Step::Fin),
        ];
        proptest::collection::vec(step, 1..150)
    }

    fn acknowledgment(
        sender: &Sender,
        per_mille: u32,
        window: u32,
        unusual: u8,
        now: Time,
    ) -> AckInfo {
        let flight = sender.flight();
        let ack = sender.una() + (u64::from(flight) * u64::from(per_mille) / 1_000) as u32;
        let mut info =
            AckInfo { seq: Seq(1), ack, window, carries_data: unusual != 3, ..AckInfo::default() };
        match unusual {
            1 => info.ece = true,
            2 if flight > 10 => assert!(info.sack.push(sender.nxt() - 5, sender.nxt())),
            4 => info.seq = Seq(0),
            5 => info.ack = sender.acknowledgeable(),
            6 => info.ts_ecr = Some((now.0 / 1_000_000) as u32),
            7 => info.ack = sender.una() - 7,
            // Bytes that have arrived twice (RFC 2883).
            8 => assert!(info.sack.push(ack - 300, ack)),
            _ => {}
        }
        info
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

        #[test]
        fn both_ways_lead_to_the_same(
            steps in steps(),
            sack: bool,
            timestamps: bool,
            ecn: bool,
            paced: bool,
            mss in 500u16..1_460,
            segments in 1u32..12,
        ) {
            let peer = PeerLimits { mss, window_scale: 0, sack, timestamps, ecn };
            let pacing_rtt_min =
                if paced { Duration::from_micros(200) } else { Duration::from_secs(9) };
            let cfg = SenderConfig {
                initial_window_segments: segments,
                pacing_rtt_min,
                ..SenderConfig::default()
            };
            let mut now = Time::from_millis(10);
            let mut sender = Sender::new(&cfg, START, peer, 20_000, now);
            for step in steps {
                let mut other = sender.clone();
                match step {
                    Step::Enqueue(bytes) if !sender.fin => {
                        sender.enqueue(bytes);
                        other.enqueue(bytes);
                    }
                    Step::Fin if !sender.fin => {
                        sender.enqueue_fin();
                        other.enqueue_fin();
                    }
                    Step::Wait(ns) => now = Time(now.0 + ns),
                    Step::Timeout => {
                        now = sender.next_timeout().map_or(now, |due| due.max(now));
                        prop_assert_eq!(sender.handle_timeout(now), other.handle_timeout(now));
                    }
                    Step::Poll(bytes_max) => {
                        if let Some(whole) = sender.transmit_all(now, bytes_max) {
                            prop_assert_eq!(Some(whole), other.poll_transmit(now, bytes_max));
                            prop_assert_eq!(None, other.poll_transmit(now, bytes_max));
                        } else {
                            prop_assert_eq!(all(&sender), all(&other));
                            while sender.poll_transmit(now, bytes_max).is_some() {}
                            other = sender.clone();
                        }
                    }
                    Step::Ack(per_mille, window, unusual) => {
                        let info = acknowledgment(&sender, per_mille, window, unusual, now);
                        prop_assert_eq!(
                            sender.handle_ack(&info, now),
                            other.handle_any_ack(&info, now)
                        );
                    }
                    Step::Resume(window) if sender.is_idle() => {
                        let seq = sender.end() + window % 1_000 + 1;
                        sender.resume_with(seq, Seq(5), window);
                        other.resume_at(seq);
                        other.handle_any_ack(
                            &AckInfo { seq: Seq(5), ack: seq, window, ..AckInfo::default() },
                            now,
                        );
                    }
                    Step::Enqueue(_) | Step::Fin | Step::Resume(_) => {}
                }
                prop_assert_eq!(all(&sender), all(&other));
            }
        }
    }

    /// Acknowledgments of replies in good order are expected. Otherwise the test above would
    /// compare the general way with itself.
    #[test]
    fn replies_in_good_order_are_expected() {
        let peer =
            PeerLimits { mss: 1_448, window_scale: 0, sack: true, timestamps: true, ecn: false };
        let mut sender = Sender::new(&SenderConfig::default(), START, peer, 60_000, Time(0));
        for round in 1..5u64 {
            let now = Time(round * 20_000);
            sender.enqueue(350);
            assert!(sender.transmit_all(now, 64_000).is_some());
            let info =
                AckInfo { seq: Seq(1), ack: sender.nxt(), window: 60_000, ..AckInfo::default() };
            assert!(sender.is_expected(&info));
            assert_eq!(sender.handle_ack(&info, Time(now.0 + 10_000)).newly_acked, 350);
        }
    }
}
