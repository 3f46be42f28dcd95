//! What the card's own requests may cost the server: for each page not more than it has saved, and one in twenty.

/// What is saved at most, so that a page that was busy once does not cost more than it saves now.
const MAX: i8 = 8;
/// Executions for others after which the card may have one that nothing has paid for.
const EXECUTIONS: u8 = 20;

/// Hits of a page that the card's own requests have not used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    saved: i8,
    executions: u8,
}

impl Credit {
    /// The page has answered so many visitors.
    #[inline]
    pub(super) fn note_hits(&mut self, hits: u32) {
        let hits = hits.min(2 * MAX as u32) as i8;
        self.saved = self.saved.saturating_add(hits).min(MAX);
    }

    /// The server has worked on the page for somebody.
    pub(super) fn note_execution(&mut self) {
        self.executions += 1;
        if self.executions >= EXECUTIONS {
            self.executions = 0;
            self.note_hits(1);
        }
    }

    /// Has the page saved a request?
    pub(super) fn may_spend(&self) -> bool {
        self.saved > 0
    }

    /// Has it saved more than one?
    pub(super) fn is_ample(&self) -> bool {
        self.saved > 1
    }

    /// May the card ask for the page? Then it does. `in_advance`: though nothing is saved, but never twice so.
    pub(super) fn spend(&mut self, in_advance: bool) -> bool {
        let may = self.saved > if in_advance { -1 } else { 0 };
        self.saved -= i8::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Never more executions than visitors, one in twenty, and the first one.
        #[test]
        fn the_card_costs_the_server_nothing(steps in prop::collection::vec((0u8..4, any::<bool>()), 0..400)) {
            let mut credit = Credit::default();
            let (mut visitors, mut executions) = (0u32, 0u32);
            for (step, in_advance) in steps {
                match step {
                    0 => {
                        credit.note_hits(1);
                        visitors += 1;
                    }
                    1 => {
                        credit.note_execution();
                        (visitors, executions) = (visitors + 1, executions + 1);
                    }
                    _ => executions += u32::from(credit.spend(in_advance)),
                }
                prop_assert!(executions <= visitors + visitors / 20 + 1);
            }
        }
    }

    #[test]
    fn hits_long_ago_do_not_pay_for_today() {
        let mut credit = Credit::default();
        credit.note_hits(u32::MAX);
        credit.note_hits(u32::MAX);
        assert_eq!((0..100).filter(|_| credit.spend(false)).count(), MAX as usize);
        assert!(credit.spend(true) && !credit.spend(true));
    }
}
