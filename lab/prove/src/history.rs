//! Which versions of a subject a reply may show. Pure: no clock, no I/O.
//!
//! A subject has one editor, so its edits do not overlap and their versions rise. The effect of an
//! edit may come at any time between its begin and its end, so version *v* can be seen from the
//! begin of its own edit until the end of the next edit that succeeded. A reply may show any
//! version that can be seen at some moment between the sending of its request and its last byte:
//! none below the last one whose edit had succeeded before the request was sent, none above the
//! last one whose edit had begun before the reply's end.
//!
//! Nobody knows what an edit that failed has done. Its version and the one before are both possible
//! until the end of the next edit that succeeds.

use std::collections::VecDeque;

/// Edits kept at most. Older ones matter only for saying how stale a very old version is.
const EDITS_MAX: usize = 1 << 16;
/// The end of an edit that is not over.
const UNDER_WAY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edit {
    version: u64,
    begin_ns: u64,
    end_ns: u64,
    /// The newest version known to be in effect when this edit is over: its own, unless it failed.
    settled: u64,
}

/// The versions that a reply may show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Possible {
    /// The last one that was in effect for certain before the request was sent.
    pub oldest: u64,
    /// The last one whose edit had begun before the reply's end.
    pub newest: u64,
}

/// The word on one marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The version was there at some moment of the reply's time.
    Current,
    /// It was not there any longer.
    Stale {
        /// Nanoseconds from the end of the edit that replaced it to the sending of the request.
        by_ns: u64,
    },
    /// It never was, or its edit had not begun.
    Impossible,
}

/// The edits of one subject, the oldest first. Times are CLOCK_MONOTONIC in nanoseconds.
#[derive(Clone, Debug)]
pub struct History {
    edits: VecDeque<Edit>,
    edits_max: usize,
    /// Edits that are not kept any longer.
    forgotten: u64,
}

impl History {
    /// A history without edits. `before`: the version that pages may show before the first one.
    pub fn new(before: Option<u64>) -> Self {
        Self::bounded(before, EDITS_MAX)
    }

    fn bounded(before: Option<u64>, edits_max: usize) -> Self {
        let since_ever =
            before.map(|version| Edit { version, begin_ns: 0, end_ns: 0, settled: version });
        Self { edits: since_ever.into_iter().collect(), edits_max, forgotten: 0 }
    }

    /// Notes that the edit to `version`, which is above all before, begins. To be called before
    /// anything is changed.
    pub fn begin(&mut self, version: u64, begin_ns: u64) {
        if self.edits.len() == self.edits_max {
            self.edits.pop_front();
            self.forgotten += 1;
        }
        let settled = self.edits.back().map_or(0, |last| last.settled);
        self.edits.push_back(Edit { version, begin_ns, end_ns: UNDER_WAY, settled });
    }

    /// Notes that the last edit is over. `succeeded`: its version is in effect.
    pub fn end(&mut self, end_ns: u64, succeeded: bool) {
        if let Some(last) = self.edits.back_mut() {
            last.end_ns = end_ns;
            if succeeded {
                last.settled = last.version;
            }
        }
    }

    /// The versions that a reply may show whose request was sent at `sent_ns` (noted before its
    /// first byte was written) and whose last byte was there at `ended_ns` (noted after).
    pub fn possible(&self, sent_ns: u64, ended_ns: u64) -> Possible {
        // Requests are young: the edit looked for is one of the last.
        let last = |found: &dyn Fn(&Edit) -> bool| self.edits.iter().rev().find(|edit| found(edit));
        let oldest = last(&|edit| edit.end_ns < sent_ns).map_or(0, |edit| edit.settled);
        // Edits that are forgotten had begun long before.
        let before = if self.forgotten > 0 { self.first_version().saturating_sub(1) } else { 0 };
        let newest = last(&|edit| edit.begin_ns <= ended_ns).map_or(before, |edit| edit.version);
        Possible { oldest, newest }
    }

    /// The verdict on a reply of these times that shows version `shown`.
    pub fn judge(&self, shown: u64, sent_ns: u64, ended_ns: u64) -> Verdict {
        let possible = self.possible(sent_ns, ended_ns);
        if shown > possible.newest || (self.forgotten == 0 && shown < self.first_version()) {
            return Verdict::Impossible;
        }
        if shown >= possible.oldest {
            return Verdict::Current;
        }
        Verdict::Stale { by_ns: sent_ns.saturating_sub(self.replaced_ns(shown).unwrap_or(sent_ns)) }
    }

    fn first_version(&self) -> u64 {
        self.edits.front().map_or(u64::MAX, |first| first.version)
    }

    /// The end of the first edit after which `version` was gone for certain.
    pub fn replaced_ns(&self, version: u64) -> Option<u64> {
        let at = self.edits.partition_point(|edit| edit.settled <= version);
        self.edits.get(at).map(|edit| edit.end_ns)
    }

    /// The last version that is in effect for certain, or 0.
    pub fn settled(&self) -> u64 {
        self.edits.iter().rev().find(|edit| edit.end_ns != UNDER_WAY).map_or(0, |edit| edit.settled)
    }

    /// Edits that begun at or before `until_ns`, the latest first: version, begin, and end unless
    /// it is under way.
    pub fn latest(&self, until_ns: u64) -> impl Iterator<Item = (u64, u64, Option<u64>)> {
        // Time 0 is that of no edit, but of what was there before.
        let begun =
            self.edits.iter().rev().filter(move |edit| (1..=until_ns).contains(&edit.begin_ns));
        begun.map(|edit| {
            (edit.version, edit.begin_ns, (edit.end_ns != UNDER_WAY).then_some(edit.end_ns))
        })
    }

    /// Makes this copy of an earlier state of `other` equal to it, at the cost of what is new.
    pub fn catch_up(&mut self, other: &Self) {
        // The last one may have ended since.
        self.edits.pop_back();
        let known = self.forgotten + self.edits.len() as u64;
        let new = usize::try_from(known.saturating_sub(other.forgotten))
            .unwrap_or(usize::MAX)
            .min(other.edits.len());
        if known < other.forgotten {
            self.edits.clear();
        }
        self.edits.extend(other.edits.range(new..));
        while self.edits.len() > other.edits.len() {
            self.edits.pop_front();
        }
        self.forgotten = other.forgotten;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Version `n` by an edit from `100 * n` to `100 * n + 10`, up to 5.
    fn history() -> History {
        let mut history = History::new(None);
        for version in 1..=5 {
            history.begin(version, 100 * version);
            history.end(100 * version + 10, true);
        }
        history
    }

    #[test]
    fn a_version_is_current_from_its_begin_until_the_next_end() {
        let history = history();
        assert_eq!(history.judge(2, 250, 260), Verdict::Current);
        assert_eq!(history.judge(3, 250, 299), Verdict::Impossible);
        assert_eq!(history.judge(3, 250, 300), Verdict::Current);
        assert_eq!(history.judge(2, 310, 320), Verdict::Current);
        assert_eq!(history.judge(2, 311, 320), Verdict::Stale { by_ns: 1 });
        assert_eq!(history.judge(1, 10_000, 10_001), Verdict::Stale { by_ns: 9790 });
        assert_eq!(history.judge(0, 10_000, 10_001), Verdict::Impossible);
        assert_eq!(history.judge(6, 10_000, 10_001), Verdict::Impossible);
    }

    #[test]
    fn a_failed_edit_leaves_both_versions_until_one_succeeds() {
        let mut history = history();
        history.begin(6, 600);
        history.end(610, false);
        assert_eq!(history.settled(), 5);
        for version in [5, 6] {
            assert_eq!(history.judge(version, 5000, 5001), Verdict::Current);
        }
        history.begin(7, 6000);
        history.end(6010, true);
        for version in [5, 6] {
            assert_eq!(history.judge(version, 6011, 6020), Verdict::Stale { by_ns: 1 });
        }
        assert_eq!(history.judge(7, 6011, 6020), Verdict::Current);
        assert_eq!(history.settled(), 7);
    }

    #[test]
    fn what_was_there_before_is_stale_after_the_first_edit() {
        let mut history = History::new(Some(41));
        assert_eq!(history.judge(41, 10, 20), Verdict::Current);
        history.begin(42, 100);
        assert_eq!(history.judge(41, 110, 120), Verdict::Current);
        history.end(150, true);
        assert_eq!(history.judge(41, 160, 170), Verdict::Stale { by_ns: 10 });
        assert_eq!(history.judge(40, 160, 170), Verdict::Impossible);
    }

    /// Gaps, durations and success of edits.
    fn edits() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        prop::collection::vec((0..4u64, 0..4u64, prop::bool::weighted(0.8)), 0..10)
    }

    fn build(edits: &[(u64, u64, bool)], edits_max: usize) -> (History, Vec<Edit>) {
        let mut history = History::bounded(None, edits_max);
        let mut all = Vec::new();
        let mut now = 1;
        for (version, &(gap, takes, succeeded)) in (1..).zip(edits) {
            now += gap;
            let begin_ns = now;
            history.begin(version, begin_ns);
            now += takes;
            history.end(now, succeeded);
            all.push(Edit {
                version,
                begin_ns,
                end_ns: now,
                settled: if succeeded { version } else { 0 },
            });
        }
        (history, all)
    }

    /// Whether `version` can be seen at `moment`, straight from the rule in the module's head.
    fn is_visible(edits: &[Edit], version: u64, moment: u64) -> bool {
        let begun = edits.iter().any(|edit| edit.version == version && edit.begin_ns <= moment);
        let replaced = edits.iter().any(|edit| edit.settled > version && edit.end_ns < moment);
        begun && !replaced
    }

    proptest! {
        #[test]
        fn the_verdict_is_that_of_brute_force(
            edits in edits(), shown in 0..12u64, sent in 0..80u64, takes in 0..20u64
        ) {
            let (history, all) = build(&edits, EDITS_MAX);
            let ended = sent + takes;
            let expected = if (sent..=ended).any(|moment| is_visible(&all, shown, moment)) {
                Verdict::Current
            } else if (0..=ended).any(|moment| is_visible(&all, shown, moment)) {
                let gone = all
                    .iter()
                    .filter(|edit| edit.settled > shown)
                    .map(|edit| edit.end_ns)
                    .min()
                    .unwrap();
                Verdict::Stale { by_ns: sent - gone }
            } else {
                Verdict::Impossible
            };
            prop_assert_eq!(history.judge(shown, sent, ended), expected);
        }

        #[test]
        fn a_copy_that_catches_up_now_and_then_is_equal(
            edits in edits(),
            steps in prop::collection::vec(any::<bool>(), 0..20),
            edits_max in 1..6usize,
        ) {
            let mut history = History::bounded(None, edits_max);
            let mut copy = history.clone();
            let mut now = 0;
            let mut catch_up = steps.into_iter().cycle();
            for (version, &(gap, takes, succeeded)) in (1..).zip(&edits) {
                now += gap;
                history.begin(version, now);
                if catch_up.next() == Some(true) {
                    copy.catch_up(&history);
                }
                now += takes;
                history.end(now, succeeded);
                if catch_up.next() == Some(true) {
                    copy.catch_up(&history);
                }
            }
            copy.catch_up(&history);
            prop_assert_eq!(&copy.edits, &history.edits);
            prop_assert_eq!(copy.forgotten, history.forgotten);
        }

        #[test]
        fn forgetting_never_condemns(
            edits in edits(),
            shown in 0..12u64,
            sent in 0..80u64,
            takes in 0..20u64,
        ) {
            let (whole, _) = build(&edits, EDITS_MAX);
            let (bounded, _) = build(&edits, 2);
            if whole.judge(shown, sent, sent + takes) == Verdict::Current && shown > 0 {
                prop_assert_eq!(bounded.judge(shown, sent, sent + takes), Verdict::Current);
            }
        }
    }
}
