//! Loss detection and recovery: which bytes are deemed lost, how many are under way, what to send
//! again. RFC 6675 with SACK; RFC 6582 (NewReno) without, in which case duplicate
//! acknowledgments stand for segments that arrived somewhere. After a timeout everything
//! outstanding is deemed lost (RFC 6298, RFC 5681 section 3.1).
//!
//! Absent: RACK's per-segment times (RFC 8985). In their place, a retransmission counts as lost
//! once enough data sent after it has arrived.

use crate::sack::{Hole, Scoreboard};
use crate::seq::Seq;

/// Duplicate acknowledgments, or segments arrived above, that mean a loss (RFC 5681 section 3.2).
pub const DUP_THRESHOLD: u8 = 3;
/// The threshold grows to at most this on paths that are seen to reorder (RFC 4653 in spirit).
pub const DUP_THRESHOLD_MAX: u8 = 24;

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No loss known.
    Open,
    /// Fast recovery (RFC 6675 section 5, RFC 6582 section 3.2).
    Recovery,
    /// After a retransmission timeout, or after a window reopened over bytes it may have dropped.
    Loss,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Current phase.
    pub phase: Phase,
    /// RFC 6675 RecoveryPoint: the phase ends when this is acknowledged.
    pub recover: Seq,
    /// RFC 6675 HighRxt: missing bytes below were sent again in this phase.
    pub high_rxt: Seq,
    /// Missing bytes below are lost, whatever has arrived above them.
    pub lost_edge: Seq,
    /// SND.NXT when something was last sent again.
    pub rtx_nxt: Seq,
    /// Duplicate acknowledgments since the last progress (RFC 5681 section 2).
    pub dupacks: u16,
    /// Current duplicate threshold.
    pub threshold: u8,
    /// One segment may be sent again whatever the window says (RFC 6675 section 5, step 4.3).
    pub force: bool,
    /// The rescue retransmission of this phase was used (RFC 6675 section 4, NextSeg rule 4).
    pub rescued: bool,
}

impl Recovery {
    /// A sender whose first byte is `start`.
    #[must_use]
    pub fn new(start: Seq) -> Recovery {
        Recovery {
            phase: Phase::Open,
            recover: start - 1,
            high_rxt: start,
            lost_edge: start,
            rtx_nxt: start,
            dupacks: 0,
            threshold: DUP_THRESHOLD,
            force: false,
            rescued: false,
        }
    }

    /// Begins a phase; everything up to `nxt` is its business, missing bytes below `lost_edge` are
    /// lost already.
    pub fn enter(&mut self, phase: Phase, una: Seq, nxt: Seq, lost_edge: Seq) {
        self.phase = phase;
        self.recover = nxt;
        self.high_rxt = una;
        self.lost_edge = lost_edge;
        self.rtx_nxt = nxt;
        self.force = true;
        self.rescued = false;
    }

    /// Back to no known loss.
    pub fn leave(&mut self, una: Seq) {
        self.phase = Phase::Open;
        self.dupacks = 0;
        self.high_rxt = una;
        self.lost_edge = una;
        self.force = false;
    }

    /// Keeps positions at or above the acknowledgment.
    pub fn advance(&mut self, una: Seq) {
        self.high_rxt = self.high_rxt.max(una);
        self.lost_edge = self.lost_edge.max(una);
        if self.phase == Phase::Open {
            self.high_rxt = una;
            self.lost_edge = una;
            self.rtx_nxt = una;
            // Kept close behind, so that the comparison in `may_enter` survives the sequence wrap.
            if una.gt(self.recover) {
                self.recover = una - 1;
            }
        }
    }

    /// A new fast recovery may begin. RFC 6582 section 3.2 step 2: without SACK, only when more than
    /// the last recovery point is acknowledged; duplicates caused by its retransmissions would
    /// otherwise look like a loss. RFC 6675 section 5: with SACK, from the recovery point on.
    #[must_use]
    pub fn may_enter(&self, una: Seq, sack: bool) -> bool {
        self.phase == Phase::Open && if sack { una.ge(self.recover) } else { una.gt(self.recover) }
    }

    /// RFC 6675 section 4, IsLost(): the same for all bytes of a hole.
    #[must_use]
    pub fn is_lost(&self, hole: &Hole, mss: u32) -> bool {
        hole.ranges_above >= u32::from(self.threshold) || hole.bytes_above > u32::from(self.threshold - 1) * mss
    }

    /// RFC 6675 section 4, SetPipe(): bytes thought to be on the path.
    #[must_use]
    pub fn pipe(&self, board: &Scoreboard, una: Seq, nxt: Seq, mss: u32, sack: bool) -> u32 {
        let mut pipe = 0u32;
        for hole in board.holes(una, nxt) {
            let lost_end =
                if self.is_lost(&hole, mss) { hole.end } else { self.lost_edge.max(hole.start).min(hole.end) };
            // (a) not deemed lost; (b) sent again.
            pipe += hole.end.since(lost_end);
            pipe += self.high_rxt.min(hole.end).saturating_since(hole.start);
        }
        if !sack {
            // RFC 6582: a duplicate acknowledgment says that a segment has left the path.
            pipe = pipe.saturating_sub(u32::from(self.dupacks) * mss);
        }
        pipe
    }

    /// RFC 6675 section 4, NextSeg() rule 1: the first lost bytes not yet sent again.
    #[must_use]
    pub fn next_lost(&self, board: &Scoreboard, una: Seq, nxt: Seq, mss: u32) -> Option<(Seq, Seq)> {
        board.holes(una, nxt).find_map(|hole| {
            let start = hole.start.max(self.high_rxt);
            let end = if self.is_lost(&hole, mss) { hole.end } else { hole.end.min(self.lost_edge) };
            start.lt(end).then_some((start, end))
        })
    }

    /// NextSeg() rule 3: the first missing bytes below the highest that arrived, lost or not.
    #[must_use]
    pub fn next_missing(&self, board: &Scoreboard, una: Seq) -> Option<(Seq, Seq)> {
        let highest = board.highest()?;
        board.holes(una, highest).find_map(|hole| {
            let start = hole.start.max(self.high_rxt);
            start.lt(hole.end).then_some((start, hole.end))
        })
    }

    /// NextSeg() rule 4: once per phase, the last segment of what is missing.
    #[must_use]
    pub fn rescue(&self, board: &Scoreboard, una: Seq, nxt: Seq, mss: u32) -> Option<(Seq, Seq)> {
        if self.rescued {
            return None;
        }
        let hole = board.holes(una, nxt).last()?;
        let start = if hole.end.since(hole.start) > mss { hole.end - mss } else { hole.start };
        Some((start, hole.end))
    }

    /// Data sent after every retransmission has arrived in an amount that means loss, and the byte
    /// at `una` has not: the retransmissions of what is still missing were lost, too.
    pub fn detect_lost_retransmission(&mut self, board: &Scoreboard, una: Seq, nxt: Seq, mss: u32) {
        if self.phase != Phase::Open
            && self.high_rxt.gt(una)
            && board.bytes_from(self.rtx_nxt) > u32::from(self.threshold - 1) * mss
        {
            self.high_rxt = una;
            self.rtx_nxt = nxt;
            self.rescued = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 100;

    fn board(ranges: &[(u32, u32)]) -> Scoreboard {
        let mut board = Scoreboard::default();
        for &(l, r) in ranges {
            board.insert(Seq(l), Seq(r));
        }
        board
    }

    #[test]
    fn three_ranges_or_more_than_two_segments_above_mean_loss() {
        // RFC 6675 section 4, IsLost().
        let r = Recovery::new(Seq(0));
        let lost = |b: &Scoreboard| b.holes(Seq(0), Seq(1_000)).map(|h| r.is_lost(&h, MSS)).collect::<Vec<_>>();
        assert_eq!(lost(&board(&[(100, 300)])), [false, false]);
        assert_eq!(lost(&board(&[(100, 301)])), [true, false]);
        assert_eq!(lost(&board(&[(100, 110), (200, 210), (300, 310)])), [true, false, false, false]);
    }

    #[test]
    fn pipe_counts_what_is_neither_lost_nor_arrived_and_what_was_sent_again() {
        // RFC 6675 section 4, SetPipe().
        let mut r = Recovery::new(Seq(0));
        let b = board(&[(200, 600)]);
        assert_eq!(r.pipe(&b, Seq(0), Seq(1_000), MSS, true), 400);
        r.enter(Phase::Recovery, Seq(0), Seq(1_000), Seq(0));
        assert_eq!(r.next_lost(&b, Seq(0), Seq(1_000), MSS), Some((Seq(0), Seq(200))));
        r.high_rxt = Seq(100);
        assert_eq!(r.pipe(&b, Seq(0), Seq(1_000), MSS, true), 500);
        assert_eq!(r.next_lost(&b, Seq(0), Seq(1_000), MSS), Some((Seq(100), Seq(200))));
    }

    #[test]
    fn after_a_timeout_all_is_lost() {
        // RFC 5681 section 3.1.
        let mut r = Recovery::new(Seq(0));
        r.enter(Phase::Loss, Seq(0), Seq(1_000), Seq(1_000));
        let none = Scoreboard::default();
        assert_eq!(r.pipe(&none, Seq(0), Seq(1_000), MSS, true), 0);
        assert_eq!(r.next_lost(&none, Seq(0), Seq(1_000), MSS), Some((Seq(0), Seq(1_000))));
        let some = board(&[(100, 300)]);
        r.high_rxt = Seq(100);
        assert_eq!(r.next_lost(&some, Seq(0), Seq(1_000), MSS), Some((Seq(300), Seq(1_000))));
    }

    #[test]
    fn duplicates_count_as_arrived_without_sack() {
        // RFC 6582 section 3.2.
        let mut r = Recovery::new(Seq(0));
        r.dupacks = 2;
        assert_eq!(r.pipe(&Scoreboard::default(), Seq(0), Seq(1_000), MSS, false), 800);
    }

    #[test]
    fn rules_three_and_four() {
        // RFC 6675 section 4, NextSeg().
        let mut r = Recovery::new(Seq(0));
        let b = board(&[(100, 200)]);
        assert_eq!(r.next_lost(&b, Seq(0), Seq(450), MSS), None);
        assert_eq!(r.next_missing(&b, Seq(0)), Some((Seq(0), Seq(100))));
        assert_eq!(r.rescue(&b, Seq(0), Seq(450), MSS), Some((Seq(350), Seq(450))));
        r.rescued = true;
        assert_eq!(r.rescue(&b, Seq(0), Seq(450), MSS), None);
    }

    #[test]
    fn a_lost_retransmission_is_seen() {
        let mut r = Recovery::new(Seq(0));
        r.enter(Phase::Recovery, Seq(0), Seq(1_000), Seq(0));
        r.high_rxt = Seq(100);
        let mut b = board(&[(100, 1_000)]);
        r.detect_lost_retransmission(&b, Seq(0), Seq(1_400), MSS);
        assert_eq!(r.high_rxt, Seq(100));
        b.insert(Seq(1_000), Seq(1_300));
        r.detect_lost_retransmission(&b, Seq(0), Seq(1_400), MSS);
        assert_eq!((r.high_rxt, r.rtx_nxt), (Seq(0), Seq(1_400)));
    }

    #[test]
    fn entry_needs_progress_beyond_the_last_recovery_point() {
        // RFC 6582 section 3.2 step 2, RFC 6675 section 5.
        let mut r = Recovery::new(Seq(0));
        assert!(r.may_enter(Seq(0), false));
        r.enter(Phase::Loss, Seq(0), Seq(500), Seq(500));
        r.leave(Seq(500));
        assert!(r.may_enter(Seq(500), true) && !r.may_enter(Seq(500), false));
        r.advance(Seq(600));
        assert!(r.may_enter(Seq(600), false));
    }
}
