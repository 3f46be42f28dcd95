//! RACK: losses found by time (RFC 8985 sections 5 and 6). A range is lost if something sent later
//! has arrived, and more than a round trip and a *reordering window* have passed since it was sent.
//! That holds for retransmissions as for anything else.
//!
//! The window is zero until the path is seen to reorder; from then on it is a quarter of the least
//! round trip, and grows when duplicate arrivals show that retransmissions were not needed (section
//! 6.2, step 4).

use crate::scoreboard::{Range, Scoreboard};
use crate::seq::Seq;
use crate::time::Stamp;

/// Bytes above a hole, in segments, at which it counts as a loss on a path that was not seen to
/// reorder (RFC 8985 section 6.2 step 4, DupThresh).
pub const DUP_THRESHOLD: u32 = 3;
/// Recoveries for which a window that had to grow stays (RFC 8985 section 6.2 step 4).
const PERSIST_RECOVERIES: u8 = 16;
/// Quarters of the least round trip that the window has at most; it is also bounded by a round
/// trip.
const MULTIPLIER_MAX: u8 = 64;

/// What decides on the reordering window, beside RACK's own state.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Least round-trip time, in microseconds.
    pub min_rtt_us: u32,
    /// Smoothed round-trip time, in microseconds.
    pub srtt_us: u32,
    /// Losses are being repaired.
    pub in_recovery: bool,
    /// Payload bytes per segment.
    pub mss: u32,
}

/// What is known of the most recently sent range that has arrived, and of the path's reordering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rack {
    /// RACK.xmit_ts and RACK.end_seq; `None` before anything has arrived.
    newest: Option<(Stamp, Seq)>,
    /// RACK.rtt, in microseconds.
    rtt_us: u32,
    /// RACK.fack: behind the highest byte that has arrived.
    fack: Seq,
    reordering_seen: bool,
    multiplier: u8,
    persist: u8,
    /// End of the round in which a duplicate arrival has already enlarged the window.
    round: Option<Seq>,
}

impl Rack {
    /// The next byte is `at`.
    #[must_use]
    pub fn new(at: Seq) -> Self {
        Self {
            newest: None,
            rtt_us: 0,
            fack: at,
            reordering_seen: false,
            multiplier: 1,
            persist: 0,
            round: None,
        }
    }

    /// The stream goes on at `at`; what is known of the path stays.
    pub fn move_to(&mut self, at: Seq) {
        (self.newest, self.fack, self.round) = (None, at, None);
    }

    /// The path was seen to reorder.
    #[must_use]
    pub fn has_reordering(&self) -> bool {
        self.reordering_seen
    }

    /// A range has arrived, whether acknowledged or reported (section 6.2, steps 2 and 3).
    /// `echo_is_older`: the timestamp echoed is from before the range was sent last, so an
    /// earlier transmission has arrived.
    pub fn handle_arrival(
        &mut self,
        range: &Range,
        now: Stamp,
        min_rtt_us: u32,
        echo_is_older: bool,
    ) {
        if range.end.gt(self.fack) {
            self.fack = range.end;
        } else if range.end.lt(self.fack) && !range.again {
            self.reordering_seen = true;
        }
        let rtt_us = now.since(range.sent);
        if range.again && (echo_is_older || rtt_us < min_rtt_us) {
            return;
        }
        if self.newest.is_none_or(|newest| is_after((range.sent, range.end), newest)) {
            self.newest = Some((range.sent, range.end));
            self.rtt_us = rtt_us;
        }
    }

    /// The receiver got something twice that was sent again: the window was too small (section 6.2,
    /// step 4).
    pub fn handle_duplicate(&mut self, nxt: Seq) {
        if self.round.is_none() {
            self.round = Some(nxt);
            self.multiplier = (self.multiplier + 1).min(MULTIPLIER_MAX);
            self.persist = PERSIST_RECOVERIES;
            self.reordering_seen = true;
        }
    }

    /// Everything below `una` is acknowledged.
    pub fn advance(&mut self, una: Seq) {
        if self.round.is_some_and(|end| una.ge(end)) {
            self.round = None;
        }
        // Kept near, so comparisons survive the wrap of the sequence space.
        self.fack = self.fack.max(una);
    }

    /// A recovery has ended.
    pub fn handle_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiplier = 1;
        }
    }

    /// The reordering window in microseconds (section 6.2, step 4).
    #[must_use]
    pub fn window_us(&self, path: &Path, sacked: u32) -> u32 {
        if !self.reordering_seen && (path.in_recovery || sacked >= DUP_THRESHOLD * path.mss) {
            return 0;
        }
        let window = u64::from(self.multiplier) * u64::from(path.min_rtt_us) / 4;
        window.min(u64::from(path.srtt_us)) as u32
    }

    /// Deems lost what section 6.2, step 5 says. Returns in how many microseconds the next range
    /// will be, if nothing is heard of it.
    pub fn detect(&self, board: &mut Scoreboard, path: &Path, now: Stamp) -> Option<u32> {
        let newest = self.newest?;
        let allowed = self.rtt_us.saturating_add(self.window_us(path, board.sacked()));
        let mut next: Option<u32> = None;
        board.lose_where(|range| {
            if !is_after(newest, (range.sent, range.end)) {
                return false;
            }
            let age = now.since(range.sent);
            if age >= allowed {
                return true;
            }
            let left = allowed - age;
            // The last of them decides (section 6.2, step 5): one timer for all.
            next = Some(next.map_or(left, |next| next.max(left)));
            false
        });
        next
    }

    /// Deems lost, when the retransmission timer has expired, the first range and what was sent
    /// more than a round trip ago (section 6.3).
    pub fn detect_at_timeout(&self, board: &mut Scoreboard, path: &Path, now: Stamp) {
        let una = board.una();
        let allowed = self.rtt_us.saturating_add(self.window_us(path, board.sacked()));
        board.lose_where(|range| range.start == una || now.since(range.sent) >= allowed);
    }
}

/// Section 6.1: RACK_sent_after.
fn is_after(a: (Stamp, Seq), b: (Stamp, Seq)) -> bool {
    a.0.is_after(b.0) || (a.0 == b.0 && a.1.gt(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path { min_rtt_us: 40_000, srtt_us: 50_000, in_recovery: false, mss: 100 };

    fn sent(board: &mut Scoreboard, segments: u32, from: u32) {
        for i in 0..segments {
            board.push(100, Stamp(from + i * 1_000), 1);
        }
    }

    fn arrive(rack: &mut Rack, board: &mut Scoreboard, segment: u32, now: u32) {
        let at = Seq(segment * 100);
        board.sack(at, at + 100, |range| {
            rack.handle_arrival(range, Stamp(now), PATH.min_rtt_us, false);
        });
    }

    #[test]
    fn without_reordering_three_segments_above_mean_loss_at_once() {
        let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(Seq(0)));
        sent(&mut board, 10, 0);
        arrive(&mut rack, &mut board, 1, 51_000);
        // A quarter of the least round trip after the round trip of what arrived.
        assert_eq!(rack.detect(&mut board, &PATH, Stamp(51_000)), Some(9_000));
        arrive(&mut rack, &mut board, 2, 52_000);
        arrive(&mut rack, &mut board, 3, 53_000);
        assert_eq!(rack.detect(&mut board, &PATH, Stamp(53_000)), None);
        assert_eq!((board.lost(), board.sacked()), (100, 300));
    }

    #[test]
    fn a_path_that_reorders_gets_time() {
        // Section 6.2, step 3: what arrives below the highest, sent once.
        let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(Seq(0)));
        sent(&mut board, 10, 0);
        arrive(&mut rack, &mut board, 5, 55_000);
        arrive(&mut rack, &mut board, 3, 56_000);
        assert!(rack.has_reordering());
        for segment in [6, 7, 8] {
            arrive(&mut rack, &mut board, segment, 58_000);
        }
        let left = rack.detect(&mut board, &PATH, Stamp(58_000)).unwrap();
        assert_eq!(
            (board.lost(), left),
            (0, 6_000),
            "the last of them is 54 ms old, and may become 60"
        );
        rack.detect(&mut board, &PATH, Stamp(58_000 + left));
        assert_eq!(board.lost(), 400);
    }

    #[test]
    fn duplicates_enlarge_the_window_once_a_round() {
        // Section 6.2, step 4.
        let mut rack = Rack::new(Seq(0));
        rack.handle_duplicate(Seq(1_000));
        rack.handle_duplicate(Seq(1_100));
        assert_eq!(rack.window_us(&PATH, 0), 20_000);
        rack.advance(Seq(1_000));
        for round in 2..20 {
            rack.handle_duplicate(Seq(round * 1_000));
            rack.advance(Seq(round * 1_000));
        }
        assert_eq!(rack.window_us(&PATH, 0), PATH.srtt_us, "a round trip at most");
        (0..16).for_each(|_| rack.handle_recovered());
        assert_eq!(rack.window_us(&PATH, 0), 10_000);
    }

    #[test]
    fn a_lost_retransmission_is_found() {
        let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(Seq(0)));
        sent(&mut board, 10, 0);
        board.lose(Seq(0), Seq(100));
        board.resend(Seq(0), Seq(100), Stamp(60_000));
        let path = Path { in_recovery: true, ..PATH };
        board.push(100, Stamp(61_000), 1);
        arrive(&mut rack, &mut board, 10, 111_000);
        rack.detect(&mut board, &path, Stamp(111_000));
        assert_eq!(board.first_lost().map(|range| range.start), Some(Seq(0)));
    }

    #[test]
    fn an_echo_from_before_the_retransmission_says_nothing_about_it() {
        // Section 6.2, step 2.
        let (mut rack, mut board) = (Rack::new(Seq(0)), Scoreboard::new(Seq(0)));
        sent(&mut board, 3, 0);
        board.resend(Seq(0), Seq(100), Stamp(60_000));
        board.acknowledge(Seq(100), |range| {
            rack.handle_arrival(range, Stamp(101_000), PATH.min_rtt_us, true);
        });
        assert_eq!(rack.newest, None);
        board.resend(Seq(100), Seq(200), Stamp(101_000));
        board.acknowledge(Seq(200), |range| {
            rack.handle_arrival(range, Stamp(102_000), PATH.min_rtt_us, false);
        });
        assert_eq!(rack.newest, None, "less than the least round trip");
    }
}
