//! HyStart++ (RFC 9406): slow start ends before it overruns the path's queue, when the round trips
//! of a round are longer than those of the round before.
//!
//! It first goes on for some rounds at a quarter of the pace (Conservative Slow Start); round trips
//! that shrink again call that off. The limit of growth per acknowledgment for senders without
//! pacing (section 4.3, L) is left out: acknowledgments of receivers that merge segments cover up
//! to 64 KB.

use crate::seq::Seq;

/// Least and most increase that counts, in microseconds (section 4.3, MIN_RTT_THRESH and
/// MAX_RTT_THRESH).
const THRESHOLD_US: (u32, u32) = (4_000, 16_000);
/// Share of the last round's least round trip that counts (MIN_RTT_DIVISOR).
const DIVISOR: u32 = 8;
/// Samples before a round says anything (N_RTT_SAMPLE).
const SAMPLES: u8 = 8;
/// Growth of the window in Conservative Slow Start is divided by this (CSS_GROWTH_DIVISOR).
pub const GROWTH_DIVISOR: f64 = 4.0;
/// Rounds of it (CSS_ROUNDS).
const ROUNDS: u8 = 5;

/// How slow start goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The window grows as in slow start without HyStart++.
    Full,
    /// The window grows at a quarter of slow start's pace.
    Conservative,
    /// Slow start has ended: the threshold is the window.
    Over,
}

/// Round trips of the round under way and the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HyStart {
    round_end: Option<Seq>,
    last_us: u32,
    current_us: u32,
    samples: u8,
    /// Least round trip when the conservative phase began, and rounds of it.
    conservative: Option<(u32, u8)>,
}

impl Default for HyStart {
    fn default() -> Self {
        Self {
            round_end: None,
            last_us: u32::MAX,
            current_us: u32::MAX,
            samples: 0,
            conservative: None,
        }
    }
}

impl HyStart {
    /// An acknowledgment up to `una` in slow start, with `nxt` sent so far and perhaps a round trip
    /// of `rtt_us` microseconds (section 4.2).
    pub fn handle_ack(&mut self, una: Seq, nxt: Seq, rtt_us: Option<u32>) -> Pace {
        let end = *self.round_end.get_or_insert(nxt);
        if let Some(rtt_us) = rtt_us {
            self.current_us = self.current_us.min(rtt_us);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= SAMPLES {
            match self.conservative {
                None if self.last_us != u32::MAX => {
                    let threshold = (self.last_us / DIVISOR).clamp(THRESHOLD_US.0, THRESHOLD_US.1);
                    if self.current_us >= self.last_us.saturating_add(threshold) {
                        self.conservative = Some((self.current_us, 0));
                    }
                }
                Some((baseline, _)) if self.current_us < baseline => self.conservative = None,
                _ => {}
            }
        }
        if una.ge(end) {
            (self.last_us, self.current_us, self.samples) = (self.current_us, u32::MAX, 0);
            self.round_end = Some(nxt);
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
            }
        }
        match self.conservative {
            None => Pace::Full,
            Some((_, rounds)) if rounds >= ROUNDS => Pace::Over,
            Some(_) => Pace::Conservative,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of ten segments of one byte; the pace after each.
    fn run(hystart: &mut HyStart, at: &mut u32, rtts_ms: &[u32]) -> Vec<Pace> {
        let mut round = |rtt_ms: u32| {
            let nxt = Seq(*at + 10);
            let mut pace = Pace::Full;
            for _ in 0..10 {
                *at += 1;
                pace = hystart.handle_ack(Seq(*at), nxt + 10, Some(rtt_ms * 1_000));
            }
            pace
        };
        rtts_ms.iter().map(|rtt| round(*rtt)).collect()
    }

    #[test]
    fn longer_round_trips_end_slow_start_in_steps() {
        // RFC 9406 section 4.2.
        let (mut hystart, mut at) = (HyStart::default(), 0);
        let paces = run(&mut hystart, &mut at, &[40, 40, 44, 60, 70, 80, 90, 100, 110]);
        assert_eq!(paces[..3], [Pace::Full; 3], "40 to 44 is less than an eighth");
        assert_eq!(paces[3], Pace::Conservative);
        assert_eq!(paces.last(), Some(&Pace::Over));
    }

    #[test]
    fn round_trips_that_shrink_call_it_off() {
        let (mut hystart, mut at) = (HyStart::default(), 0);
        let paces = run(&mut hystart, &mut at, &[40, 40, 60, 60, 41, 41, 41, 41, 41, 41]);
        assert_eq!((paces[2], paces.last()), (Pace::Conservative, Some(&Pace::Full)));
    }

    #[test]
    fn a_few_long_round_trips_mean_nothing() {
        let (mut hystart, mut at) = (HyStart::default(), 0);
        run(&mut hystart, &mut at, &[40, 40]);
        for i in 0..10 {
            at += 1;
            let rtt = if i == 3 { 40_000 } else { 90_000 };
            assert_eq!(
                hystart.handle_ack(Seq(at), Seq(1_000), Some(rtt)),
                Pace::Full,
                "sample {i}"
            );
            hystart.samples = hystart.samples.min(if i < 3 { 6 } else { u8::MAX });
        }
    }
}
