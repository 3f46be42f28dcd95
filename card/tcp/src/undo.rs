//! Taking a reduction of the window back that turns out to have had no reason: a segment was late,
//! not lost.
//!
//! Two proofs count. *Eifel* (RFC 3522, RFC 4015): what was deemed lost is acknowledged with a
//! timestamp from before its retransmission. *D-SACK* (RFC 2883, RFC 3708): every byte that was
//! sent again is reported to have arrived twice.

use crate::cubic::Cubic;
use crate::seq::Seq;

/// What the last reduction has changed, and what was sent again since.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Undo {
    saved: Option<Saved>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Saved {
    cubic: Cubic,
    /// SND.UNA when it began: duplicates of bytes below are about something else.
    start: Seq,
    /// Bytes sent again and not reported to have arrived twice.
    unproven: u32,
    /// Millisecond of the first retransmission.
    first: Option<u32>,
}

impl Undo {
    /// The window is about to be reduced.
    pub fn begin(&mut self, cubic: &Cubic, una: Seq) {
        self.saved = Some(Saved { cubic: *cubic, start: una, unproven: 0, first: None });
    }

    /// Was the window reduced, and may that be taken back?
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.saved.is_some()
    }

    /// The reduction stands.
    pub fn forget(&mut self) {
        self.saved = None;
    }

    /// Deemed lost bytes were sent again in millisecond `tick`.
    pub fn handle_resent(&mut self, bytes: u32, tick: u32) {
        if let Some(saved) = &mut self.saved {
            saved.unproven = saved.unproven.saturating_add(bytes);
            saved.first.get_or_insert(tick);
        }
    }

    /// The receiver reports that these bytes have arrived twice.
    pub fn handle_duplicate(&mut self, left: Seq, right: Seq) {
        if let Some(saved) = &mut self.saved
            && saved.first.is_some()
            && right.gt(saved.start)
        {
            saved.unproven = saved.unproven.saturating_sub(right.since(left.max(saved.start)));
        }
    }

    /// Everything that was sent again has arrived twice.
    #[must_use]
    pub fn is_disproven_by_duplicates(&self) -> bool {
        self.saved.is_some_and(|saved| saved.first.is_some() && saved.unproven == 0)
    }

    /// The echoed timestamp of what acknowledges bytes deemed lost is older than their
    /// retransmission, or there was none.
    #[must_use]
    pub fn is_disproven_by_echo(&self, echo: Option<u32>) -> bool {
        let Some(saved) = self.saved else { return false };
        match (saved.first, echo) {
            (None, _) => true,
            (Some(first), Some(echo)) => (echo.wrapping_sub(first) as i32) < 0,
            (Some(_), None) => false,
        }
    }

    /// The window as if nothing had happened, once: what it was, or what it has grown to.
    pub fn take(&mut self, now: &Cubic) -> Option<Cubic> {
        self.saved.take().map(|saved| saved.cubic.at_least(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> (Undo, Cubic) {
        let mut cubic = Cubic::new(1_000, 10);
        let mut undo = Undo::default();
        undo.begin(&cubic, Seq(100));
        cubic.handle_loss();
        (undo, cubic)
    }

    #[test]
    fn an_echo_from_before_the_retransmission() {
        // RFC 3522 section 3.2.
        let (mut undo, cubic) = begun();
        undo.handle_resent(10, 50);
        undo.handle_resent(10, 60);
        assert!(!undo.is_disproven_by_echo(Some(50)) && !undo.is_disproven_by_echo(None));
        assert!(undo.is_disproven_by_echo(Some(49)));
        assert_eq!(undo.take(&cubic).unwrap().window(), 10_000);
        assert!(undo.take(&cubic).is_none() && !undo.is_disproven_by_echo(Some(1)));
    }

    #[test]
    fn duplicates_of_everything_that_was_sent_again() {
        // RFC 3708 section 3.
        let (mut undo, _) = begun();
        undo.handle_duplicate(Seq(100), Seq(110));
        assert!(!undo.is_disproven_by_duplicates(), "nothing was sent again");
        undo.handle_resent(20, 50);
        undo.handle_duplicate(Seq(50), Seq(90));
        undo.handle_duplicate(Seq(100), Seq(110));
        assert!(!undo.is_disproven_by_duplicates());
        undo.handle_duplicate(Seq(110), Seq(120));
        assert!(undo.is_disproven_by_duplicates());
    }
}
