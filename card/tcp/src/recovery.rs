//! What the sender is doing about losses, and until when; duplicate acknowledgments of peers
//! without SACK (RFC 6582, RFC 5681).

use crate::seq::Seq;

/// Duplicate acknowledgments that mean a loss (RFC 5681 section 3.2).
pub const DUP_THRESHOLD: u16 = 3;

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No loss known.
    Open,
    /// The window is being reduced because of a mark (RFC 3168), nothing is lost.
    Reduction,
    /// Losses found by acknowledgments are being repaired (RFC 6675, RFC 6582).
    Recovery,
    /// After a retransmission timeout, or after a window reopened over bytes it may have dropped.
    Loss,
}

/// Whether a timeout may have been spurious (F-RTO, RFC 5682 section 3, with SACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// None, or decided.
    None,
    /// The first segment was sent again; its acknowledgment is awaited.
    Probed,
    /// New data goes before more is sent again: what is acknowledged next decides.
    NewData,
}

/// State of loss recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Current phase.
    pub phase: Phase,
    /// The phase ends when this is acknowledged (RFC 6675, RecoveryPoint).
    pub point: Seq,
    /// Duplicate acknowledgments since the last progress, without SACK (RFC 5681 section 2).
    pub dupacks: u16,
    /// F-RTO.
    pub doubt: Doubt,
}

impl Recovery {
    /// A sender whose first byte is `start`.
    #[must_use]
    pub fn new(start: Seq) -> Self {
        Self { phase: Phase::Open, point: start - 1, dupacks: 0, doubt: Doubt::None }
    }

    /// Begins a phase; everything up to `nxt` is its business.
    pub fn enter(&mut self, phase: Phase, nxt: Seq) {
        self.phase = phase;
        self.point = nxt;
        self.doubt = Doubt::None;
    }

    /// Back to no known loss.
    pub fn leave(&mut self) {
        self.phase = Phase::Open;
        self.dupacks = 0;
        self.doubt = Doubt::None;
    }

    /// The window is being reduced by proportional rate reduction.
    #[must_use]
    pub fn is_reducing(&self) -> bool {
        matches!(self.phase, Phase::Reduction | Phase::Recovery)
    }

    /// Everything below `una` is acknowledged.
    pub fn advance(&mut self, una: Seq) {
        // Kept close behind, so comparisons survive the wrap of the sequence space.
        if self.phase == Phase::Open && una.gt(self.point) {
            self.point = una - 1;
        }
    }

    /// A duplicate acknowledgment without SACK while `segments` are outstanding; more cannot have
    /// arrived than are, less the missing one.
    pub fn count_duplicate(&mut self, segments: u32) {
        let most = segments.saturating_sub(1).clamp(1, u32::from(u16::MAX)) as u16;
        self.dupacks = self.dupacks.saturating_add(1).min(most);
    }

    /// RFC 6582 section 3.2 step 2: without SACK, a recovery begins only beyond the point of the
    /// last one; the duplicates that its retransmissions cause would look like a loss.
    #[must_use]
    pub fn is_loss_by_duplicates(&self, una: Seq) -> bool {
        self.dupacks >= DUP_THRESHOLD && una.gt(self.point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_count_beyond_the_last_recovery_point() {
        // RFC 6582 section 3.2 step 2.
        let mut r = Recovery::new(Seq(0));
        for _ in 0..3 {
            assert!(!r.is_loss_by_duplicates(Seq(0)));
            r.count_duplicate(10);
        }
        assert!(r.is_loss_by_duplicates(Seq(0)));
        r.enter(Phase::Recovery, Seq(500));
        r.leave();
        (0..3).for_each(|_| r.count_duplicate(10));
        assert!(!r.is_loss_by_duplicates(Seq(500)));
        r.advance(Seq(600));
        assert!(r.is_loss_by_duplicates(Seq(600)));
    }

    #[test]
    fn no_more_arrive_than_are_outstanding() {
        let mut r = Recovery::new(Seq(0));
        (0..9).for_each(|_| r.count_duplicate(4));
        assert_eq!(r.dupacks, 3);
    }
}
