//! What the card's own requests may cost the server: not more than its hits have saved, and one in
//! twenty; for each page one in advance, and another if that came to nothing.
//!
//! Each page pays for itself first. What a page saves beyond that goes into a common credit, from
//! which others are paid whose execution takes no longer than what was saved there.
//!
//! What many pages have saved in a busy hour must not be spent at once in a quiet one. So the site
//! has an [`Allowance`], too: over any number of visits, as many executions as visits, one in
//! twenty, and as many as the site has visits in some seconds, within bounds.

use std::time::Duration;

use super::pace::Pace;

/// What is saved at most, so a page that was busy once does not cost more than it saves now.
const MAX: i8 = 8;
/// What the common credit holds at most.
const COMMON_MAX: u32 = 64;
/// What the site as a whole holds at most: as many as it has had [visits](Pace::visits) lately,
/// within these bounds. A busy site asks for more pages at once after a change than a quiet one has
/// visitors in a minute.
const ALLOWANCE_MIN: u32 = 32;
const ALLOWANCE_MAX: u32 = 128;
/// Executions for others after which the card may have one that nothing has paid for.
const EXECUTIONS: u32 = 20;

/// Hits of a page that the card's own requests have not used up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Credit {
    saved: i8,
    executions: u8,
    /// What was asked in advance came to nothing once, and was given back.
    is_given_back: bool,
}

impl Credit {
    /// The page has answered so many visitors. How many of them it has no use for itself.
    #[inline]
    pub(super) fn note_hits(&mut self, hits: u32) -> u32 {
        let room = MAX.saturating_sub(self.saved).max(0) as u32;
        let taken = hits.min(room);
        self.saved += taken as i8;
        hits - taken
    }

    /// The server has worked on the page for somebody.
    pub(super) fn note_execution(&mut self) {
        self.executions += 1;
        if u32::from(self.executions) >= EXECUTIONS {
            self.executions = 0;
            let _ = self.note_hits(1);
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

    /// What the card asked in advance came to nothing: it may do so again, once.
    pub(super) fn give_back(&mut self) {
        if self.saved < 0 && !self.is_given_back {
            (self.saved, self.is_given_back) = (0, true);
        }
    }

    /// May the card ask for the page? Then it does. `in_advance`: though nothing is saved, but
    /// never twice so.
    pub(super) fn spend(&mut self, in_advance: bool) -> bool {
        let may = self.saved > if in_advance { -1 } else { 0 };
        self.saved -= i8::from(may);
        may
    }
}

/// What pages have saved that they had no use for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Common {
    executions: u32,
    /// How long these would have taken.
    time: Duration,
}

impl Common {
    /// A page that usually takes so long has saved so many executions.
    #[inline]
    pub(super) fn give(&mut self, executions: u32, usual: Duration) {
        let taken = executions.min(COMMON_MAX - self.executions);
        self.executions += taken;
        self.time += usual * taken;
    }

    /// Is there enough for an execution that usually takes so long?
    pub(super) fn may_spend(&self, usual: Duration) -> bool {
        self.executions > 0 && self.time >= usual
    }

    /// May the card ask for a page that usually takes so long? Then it does.
    pub(super) fn spend(&mut self, usual: Duration) -> bool {
        let may = self.may_spend(usual);
        if may {
            self.executions -= 1;
            // What the last one leaves is worth nothing without an execution.
            self.time = if self.executions == 0 { Duration::ZERO } else { self.time - usual };
        }
        may
    }
}

/// What the card's own requests may cost the whole site, whatever its pages have saved. It is full
/// at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// In parts of a request, [`EXECUTIONS`] each.
    parts: u32,
}

impl Allowance {
    pub(super) fn new() -> Self {
        Self { parts: ALLOWANCE_MIN * EXECUTIONS }
    }

    /// So many visitors were answered without the server.
    #[inline]
    pub(super) fn note_hits(&mut self, hits: u32) {
        self.add(hits.saturating_mul(EXECUTIONS));
    }

    /// The server has worked for a visitor.
    pub(super) fn note_execution(&mut self) {
        self.add(1);
    }

    fn add(&mut self, parts: u32) {
        self.parts = self.parts.saturating_add(parts).min(ALLOWANCE_MAX * EXECUTIONS);
    }

    /// Somebody comes. What was saved when more came is not spent on those who come now.
    #[inline]
    pub(super) fn follow(&mut self, pace: &Pace) {
        let most = pace.visits().clamp(ALLOWANCE_MIN, ALLOWANCE_MAX);
        self.parts = self.parts.min(most * EXECUTIONS);
    }

    /// May the card ask the server?
    pub(super) fn may_spend(&self) -> bool {
        self.parts >= EXECUTIONS
    }

    /// The card asks. What it asks in advance it may ask without an allowance.
    pub(super) fn spend(&mut self) {
        self.parts = self.parts.saturating_sub(EXECUTIONS);
    }
}

#[cfg(test)]
mod tests {
    use nicache_tcp::Time;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Never more executions than visitors, one in twenty, and the first two of each page; and
        /// never more of the server's time.
        #[test]
        fn the_card_costs_the_server_nothing(
            steps in prop::collection::vec((0u8..6, 0usize..2, any::<bool>()), 0..600),
        ) {
            const USUAL: [Duration; 2] = [Duration::from_millis(3), Duration::from_millis(50)];
            let (mut credits, mut common) = ([Credit::default(); 2], Common::default());
            let (mut visitors, mut executions) = (0u32, 0u32);
            let (mut saved, mut spent) = (Duration::ZERO, Duration::ZERO);
            for (step, page, in_advance) in steps {
                let (credit, usual) = (&mut credits[page], USUAL[page]);
                match step {
                    0 | 1 => {
                        let rest = credit.note_hits(1);
                        saved += usual * rest;
                        common.give(rest, usual);
                        visitors += 1;
                    }
                    2 => {
                        credit.note_execution();
                        (visitors, executions) = (visitors + 1, executions + 1);
                    }
                    3 => executions += u32::from(credit.spend(in_advance)),
                    4 => credit.give_back(),
                    _ if common.spend(usual) => {
                        (executions, spent) = (executions + 1, spent + usual);
                    }
                    _ => {}
                }
                prop_assert!(executions <= visitors + visitors / 20 + 4 && spent <= saved);
            }
        }
    }

    proptest! {
        /// However much pages have saved before: from any visit on.
        #[test]
        fn no_stretch_of_visits_costs_much_more_than_itself(
            steps in prop::collection::vec((0u8..5, 0u64..1500), 0..600),
            begun in 0usize..600,
        ) {
            let (mut allowance, mut pace) = (Allowance::new(), Pace::new());
            let (mut now, mut most) = (Time(0), ALLOWANCE_MIN);
            let (mut visitors, mut executions) = (0u32, 0u32);
            for (at, (step, pause_ms)) in steps.into_iter().enumerate() {
                if at == begun {
                    (visitors, executions) = (0, 0);
                    most = pace.visits().clamp(ALLOWANCE_MIN, ALLOWANCE_MAX);
                }
                if step < 2 {
                    // Some of them come all at once.
                    now += Duration::from_millis(pause_ms.saturating_sub(1000));
                    pace.note(now);
                    allowance.follow(&pace);
                }
                match step {
                    0 => {
                        allowance.note_hits(1);
                        visitors += 1;
                    }
                    1 => {
                        allowance.note_execution();
                        (visitors, executions) = (visitors + 1, executions + 1);
                    }
                    _ if allowance.may_spend() => {
                        allowance.spend();
                        executions += 1;
                    }
                    _ => {}
                }
                prop_assert!(executions <= visitors + visitors.div_ceil(20) + most);
            }
        }
    }

    #[test]
    fn hits_long_ago_do_not_pay_for_today() {
        let mut credit = Credit::default();
        assert_eq!(credit.note_hits(u32::MAX), u32::MAX - MAX as u32);
        assert_eq!(credit.note_hits(7), 7);
        assert_eq!((0..100).filter(|_| credit.spend(false)).count(), MAX as usize);
        assert!(credit.spend(true) && !credit.spend(true));
        credit.give_back();
        assert!(credit.spend(true) && !credit.spend(true));
        credit.give_back();
        assert!(!credit.spend(true));
        let mut common = Common::default();
        common.give(u32::MAX, Duration::from_millis(1));
        assert!(!common.spend(Duration::from_millis(65)));
        assert_eq!(
            (0..100).filter(|_| common.spend(Duration::from_micros(1))).count(),
            COMMON_MAX as usize
        );
    }
}
