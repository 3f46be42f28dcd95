//! Dynamic replies: kept only if two executions for different clients agreed, and
//! never for long (docs/coherence.md).
//!
//! The first execution leaves a *candidate*, no more than a hash. A second one for somebody else,
//! with equal bytes and with all sources unchanged in between, makes an entry of it. The entry is
//! served until a source changes, or its time is over: what nobody can see (the clock, chance, a
//! program's own memory) is never older than that. Then it has *lapsed*: it keeps its place, and
//! one more execution with equal bytes renews it.
//!
//! An execution that is *outdated* by the time it is judged makes no entry that is served to
//! everybody; but whoever had asked before it was forwarded may have its reply, if another one
//! agrees: then there is an entry that has lapsed from the start.
//!
//! A page whose executions differ although nothing has changed depends on something that cannot be
//! seen, and is put aside for a while.
//!
//! The card has the server asked a second time only where that costs the server nothing in the end:
//! the page has answered more visitors than the card has asked for it ([`Credit`]), or nobody else
//! asks for it, and then once.

use std::time::Duration;

use nicache_coherence::{Class, RecordNumber, Rule, SourceSet, Stamp};
use nicache_http::{ClientClass, Key, Trait};
use nicache_tcp::Time;

use super::credit::Credit;
use super::life::Life;
use super::pace::{Pace, Pause};
use super::remembered::Remembered;
use super::seen::{Seen, Traits};
use super::site_classes::SiteClasses;
use super::usual_time::NEVER;
use super::who::{Executor, Who};
use crate::digests::{Digests, Sameness};
use crate::earned::AgeBounds;
use crate::recheck::Recheck;

/// Pages remembered that have no entry.
pub(super) const CANDIDATES_MAX: usize = 4096;
/// Differences under unchanged sources after which a page is put aside.
const DIFFERENCES_MAX: u8 = 2;
/// For how long at first; each time twice as long, up to the maximum.
const PUT_ASIDE_FIRST: Duration = Duration::from_secs(15);
const PUT_ASIDE_DOUBLINGS: u32 = 8;

/// The usual time of an execution grows by a quarter, and at least this, at a time.
const USUAL_STEP: Duration = Duration::from_millis(1);

/// A lapsed entry is not asked for again for so long.
const REVIVAL: Duration = Duration::from_secs(5);

/// One execution of a request by the server.
#[derive(Clone, Debug)]
pub struct Execution {
    /// For whom the server worked.
    pub by: Who,
    /// Of what class the client is.
    pub class: ClientClass,
    /// The key of the page, whatever chooses among its variants.
    pub base: Key,
    /// Before the request went to the server.
    pub forwarded: Time,
    /// When its reply was whole.
    pub finished: Time,
    /// What it is compared by.
    pub digests: Digests,
    /// How old what nobody can see may become.
    pub ages: AgeBounds,
    /// The earlier reply to the same request whose sources have not changed since, by what the
    /// watcher says.
    pub unchanged_since: Option<RecordNumber>,
    /// The card's own request for the same; `None`: it cannot ask.
    pub recheck: Option<Recheck>,
}

impl Execution {
    /// What the server usually needs, if it was `before`: one that had to wait, for whatever
    /// reason, says little.
    fn usual(&self, before: Option<Duration>) -> Duration {
        let took = self.finished.since(self.forwarded);
        before.map_or(took, |before| took.min(before + (before / 4).max(USUAL_STEP)))
    }
}

/// Until when an entry may be served, and how the server is asked again.
#[derive(Clone, Debug)]
pub(super) struct Age {
    pub(super) class: Class,
    /// For whom the server has said it; the card only if nobody else was there.
    pub(super) by: Who,
    pub(super) digests: Digests,
    pub(super) recheck: Option<Recheck>,
    /// The server has been seen to say the same since then.
    pub(super) same_since: Time,
    /// What it has earned: T.
    pub(super) earned: Duration,
    /// From here on it is not served.
    pub(super) expires: Time,
    /// From here on a hit has the server asked again.
    pub(super) recheck_at: Time,
    /// When the server was last asked to be asked again.
    pub(super) asked: Option<Time>,
    /// How often that came to nothing, since the server last said it.
    pub(super) vain: u8,
    /// When somebody last got it, from the card or from the server.
    pub(super) used: Time,
    /// How long it usually is since somebody had got it before.
    pub(super) pause: Pause,
    /// How long it is right after a change.
    pub(super) life: Life,
    pub(super) credit: Credit,
    /// Who has got it from the server.
    pub(super) seen: Seen,
    /// The time that the server usually needs for the page.
    pub(super) usual: Duration,
}

/// A class that was answered so many T ago is asked for again.
const CLASS_AGES: u32 = 16;

/// What is known of a page when the server has said the same again.
#[derive(Clone, Debug)]
pub(super) struct Past {
    /// For whom the server has worked.
    pub(super) by: Who,
    /// Since when.
    pub(super) same_since: Time,
    pub(super) credit: Credit,
    /// Who has got it from the server.
    pub(super) seen: Seen,
    /// What the server usually needed for it.
    pub(super) usual: Option<Duration>,
    /// When somebody last got it, and how long after the one before.
    pub(super) used: Option<(Time, Pause)>,
    /// How long it is right after a change.
    pub(super) life: Life,
}

impl Past {
    /// A page that is new.
    pub(super) fn none(execution: &Execution) -> Self {
        Self {
            by: execution.by,
            same_since: execution.forwarded,
            credit: Credit::default(),
            seen: Seen::default(),
            usual: None,
            used: None,
            life: Life::new(execution.forwarded),
        }
    }
}

impl Age {
    pub(super) fn new(class: Class, execution: Execution, past: Past, pace: &Pace) -> Self {
        let usual = execution.usual(past.usual);
        let earned = execution.ages.earned(execution.forwarded.since(past.same_since));
        let age_max = if Rule::Age.holds() { earned } else { NEVER };
        // Time enough for one more execution, with some to spare. Too much of it has a slow server
        // that shares the card's CPU asked all the time.
        let mut seen = past.seen;
        seen.note(execution.class, execution.forwarded, execution.by.by == Executor::Card);
        let (used, pause) = match past.used {
            // The card is nobody who comes again.
            Some(before) if execution.by.by == Executor::Card => before,
            Some((before, mut pause)) => {
                pause.note(execution.forwarded.since(before), pace);
                (execution.forwarded, pause)
            }
            None => (execution.forwarded, Pause::unknown(pace)),
        };
        let lead =
            (age_max / 4).max(execution.finished.since(execution.forwarded) * 3 / 2).min(age_max);
        Self {
            class,
            by: if execution.by.by == Executor::Card { past.by } else { execution.by },
            digests: execution.digests,
            recheck: execution.recheck,
            same_since: past.same_since,
            earned: age_max,
            expires: execution.forwarded + age_max,
            recheck_at: execution.forwarded + (age_max - lead),
            asked: None,
            vain: 0,
            used,
            pause,
            life: past.life,
            credit: past.credit,
            seen,
            usual,
        }
    }

    /// Does the entry answer a client of this class?
    #[inline]
    pub(super) fn answers(&self, class: ClientClass, now: Time) -> bool {
        !Rule::Classes.holds() || self.seen.covers(class, now - self.earned * CLASS_AGES)
    }

    /// The traits in which it answers no client of this class, but for those that are `exempt`.
    pub(super) fn missing(
        &self,
        class: ClientClass,
        now: Time,
        exempt: impl Fn(Trait) -> bool,
    ) -> Traits {
        self.seen.missing_since(class, now - self.earned * CLASS_AGES, exempt)
    }

    /// What is known of the page, if the server says the same now.
    pub(super) fn past(&self) -> Past {
        let Self { by, same_since, credit, usual, used, pause, life, .. } = *self;
        Past {
            by,
            same_since,
            credit,
            seen: self.seen.clone(),
            usual: Some(usual),
            used: Some((used, pause)),
            life,
        }
    }

    /// The part of the site's visitors, in thousandths, to whom the card's next request for it may
    /// bring the answer; `after_change`: nobody has it.
    pub(super) fn share_of_turn(
        &self,
        site_classes: &SiteClasses,
        after_change: bool,
        now: Time,
    ) -> u64 {
        self.seen.share_of_turn(site_classes, after_change, now)
    }

    /// The class that the card asks as next, if it can ask.
    pub(super) fn take_turn(
        &mut self,
        site_classes: &SiteClasses,
        now: Time,
    ) -> Option<ClientClass> {
        self.recheck.as_ref()?;
        Some(self.seen.take_turn(site_classes, now))
    }

    /// When the request was forwarded that the server last answered so.
    pub(super) fn forwarded(&self) -> Time {
        self.expires - self.earned
    }

    /// Has the server been asked a moment ago?
    pub(super) fn is_awaited(&self, now: Time) -> bool {
        self.asked.is_some_and(|asked| now < asked + REVIVAL)
    }

    /// Is it time to have the server asked again, as somebody is answered? If the next one, who
    /// comes after as much time as this one, comes too late, or if there is hardly time enough.
    #[inline]
    pub(super) fn is_recheck_due(&mut self, pace: &Pace, now: Time) -> bool {
        self.pause.note(now.since(std::mem::replace(&mut self.used, now)), pace);
        let pause = self.pause.now(pace, now);
        let is_last = now + pause >= self.expires && pause < self.earned;
        (now >= self.recheck_at || is_last) && self.asked.is_none() && self.recheck.is_some()
    }
}

/// What an execution rests on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Basis {
    pub(super) stamp: Stamp,
    pub(super) sources: SourceSet,
    pub(super) record: RecordNumber,
}

#[derive(Clone, Debug)]
struct Candidate {
    by: Who,
    class: ClientClass,
    digests: Digests,
    stamp: Stamp,
    sources: SourceSet,
    record: RecordNumber,
    /// The reply was out of date when it was judged: that another one differs says nothing.
    outdated: bool,
    /// The page had an entry before.
    popular: bool,
    /// The server has been seen to say the same since then.
    same_since: Time,
    credit: Credit,
    differences: u8,
    put_aside: u32,
    put_aside_until: Time,
    usual: Duration,
}

/// What to do with a reply that the watcher has agreed to.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "it is made once for a reply and taken apart at once"
)]
pub(super) enum Opinion {
    /// Two executions agree, in this way.
    Agreed { sameness: Sameness, past: Past },
    /// The reply is the first one to the page.
    First,
    /// The reply cannot agree with the one before, which was for the same client.
    SameClient,
    /// The reply differs from another although nothing has changed.
    Differs,
    /// The reply differs from another, which was for a client of another class, although nothing
    /// has changed. The classes differ in these traits.
    IsForOthers(Traits),
}

/// By which of the traits in which two clients differ the server has told them apart, as far as its
/// replies say: another coding is due to what the client can decode, another type to what it
/// accepts. All of them, if the replies do not say.
pub(super) fn blamed(apart: Traits, one: &Digests, other: &Digests) -> Traits {
    let said = |of: Trait| match of {
        Trait::Coding => one.coding != other.coding,
        Trait::Accept => one.kind != other.kind,
        _ => false,
    };
    let told = Traits::of(|of| apart.has(of) && said(of));
    if told.is_empty() { apart } else { told }
}

/// Pages that have no entry, but may get one.
pub(super) struct Candidates {
    candidates: Remembered<Key, Candidate>,
}

impl Candidates {
    pub(super) fn new() -> Self {
        Self { candidates: Remembered::new(CANDIDATES_MAX) }
    }

    /// Should the card ask for the page, too, when somebody is about to ask the server for it? Then
    /// it asks as soon as the server has replied. `may_ask`: the site's allowance suffices.
    pub(super) fn take_second(&mut self, key: &Key, by: &Who, may_ask: bool) -> bool {
        let Some(known) = self.candidates.get_mut(key) else { return false };
        known.credit.note_execution();
        (known.popular || !known.by.is_other(by)) && may_ask && known.credit.spend(false)
    }

    /// A client has come again and has got a reply that may be kept: may the card ask, too? Then it
    /// does. It asks once the client has the reply, because two executions at one time of a program
    /// that takes notes change what the other reads.
    pub(super) fn take_other(&mut self, key: &Key) -> bool {
        self.candidates.get_mut(key).is_some_and(|known| known.credit.spend(true))
    }

    /// What the card asked for came to nothing.
    pub(super) fn note_vain(&mut self, key: &Key) {
        if let Some(known) = self.candidates.get_mut(key) {
            known.credit.give_back();
        }
    }

    /// Did the page have an entry not long ago?
    pub(super) fn is_popular(&self, key: &Key) -> bool {
        self.candidates.get(key).is_some_and(|known| known.popular)
    }

    /// Is the page put aside now, because its executions differ?
    pub(super) fn is_put_aside(&self, key: &Key, now: Time) -> bool {
        self.candidates.get(key).is_some_and(|known| now < known.put_aside_until)
    }

    /// Until when the page is put aside; may be over.
    pub(super) fn put_aside_until(&self, key: &Key) -> Option<Time> {
        self.candidates.get(key).map(|known| known.put_aside_until)
    }

    /// The time that the server usually needs for the page.
    pub(super) fn usual(&self, key: &Key) -> Option<Duration> {
        self.candidates.get(key).map(|known| known.usual)
    }

    /// No execution until now says for whom the page is; how often pages are asked for stays known.
    pub(super) fn rest_on_nothing(&mut self) {
        self.candidates.values_mut().for_each(Candidate::rest_on_nothing);
    }

    /// What the watcher is to be asked about the execution before.
    pub(super) fn previous(&self, key: &Key) -> Option<(RecordNumber, Stamp)> {
        self.candidates.get(key).map(|known| (known.record, known.stamp))
    }

    /// Compares an execution with the one before, and takes its place unless they agree.
    /// `unchanged` says whether sources are as they were.
    pub(super) fn compare(
        &mut self,
        key: &Key,
        execution: &Execution,
        basis: Basis,
        unchanged: impl Fn(&SourceSet, Stamp) -> bool,
    ) -> Opinion {
        if !Rule::Agreement.holds() {
            return Opinion::Agreed { sameness: Sameness::Exact, past: Past::none(execution) };
        }
        let Some(known) = self.candidates.get_mut(key) else {
            self.candidates.get_or_insert(*key, || Candidate::new(execution, None)).rest_on(basis);
            return Opinion::First;
        };
        let is_comparable = !known.outdated
            && (execution.unchanged_since == Some(known.record)
                || unchanged(&known.sources, known.stamp));
        let is_equal = known.digests.sameness(&execution.digests).is_some();
        if (is_comparable || known.outdated) && is_equal && known.by.is_other(&execution.by) {
            let is_unchanged = execution.unchanged_since == Some(known.record);
            return self.agree(key, execution, is_comparable && is_unchanged);
        }
        let apart = Traits::of(|of: Trait| known.class.of(of) != execution.class.of(of));
        let apart = blamed(apart, &known.digests, &execution.digests);
        let is_same_client = !known.by.is_other(&execution.by);
        known.rest_on(basis);
        known.take(execution);
        if is_comparable && !is_equal && !apart.is_empty() && Rule::Classes.holds() {
            return Opinion::IsForOthers(apart);
        }
        if is_comparable && !is_equal {
            known.count_difference(execution.finished);
            return Opinion::Differs;
        }
        if is_same_client { Opinion::SameClient } else { Opinion::First }
    }

    /// Compares an execution that is outdated with the one before, and takes its place unless they
    /// agree.
    pub(super) fn compare_outdated(&mut self, key: &Key, execution: &Execution) -> Opinion {
        let Some(known) = self.candidates.get_mut(key) else {
            self.candidates.get_or_insert(*key, || Candidate::new(execution, None)).outdated = true;
            return Opinion::First;
        };
        if known.digests.sameness(&execution.digests).is_some() && known.by.is_other(&execution.by)
        {
            return self.agree(key, execution, false);
        }
        known.rest_on_nothing();
        known.take(execution);
        Opinion::First
    }

    /// The execution agrees with the one before, whose client counts if all `is_unchanged` in
    /// between and the entry depends on what that one depended on, too.
    fn agree(&mut self, key: &Key, execution: &Execution, is_unchanged: bool) -> Opinion {
        let Some(known) = self.candidates.get(key) else { return Opinion::First };
        let Some(sameness) = known.digests.sameness(&execution.digests) else {
            return Opinion::First;
        };
        let mut seen = Seen::default();
        if is_unchanged {
            seen.note(known.class, known.same_since, known.by.by == Executor::Card);
        }
        let Candidate { by, same_since, credit, usual, .. } = *known;
        let life = Life::new(execution.forwarded);
        let past = Past { by, same_since, credit, seen, usual: Some(usual), used: None, life };
        self.candidates.forget(key);
        Opinion::Agreed { sameness, past }
    }

    /// An entry is gone, of which so much is known; the page may have another soon. Without a
    /// `basis` the execution is outdated.
    pub(super) fn note_entry(
        &mut self,
        key: &Key,
        execution: &Execution,
        past: Past,
        basis: Option<Basis>,
        differs: bool,
    ) {
        let candidate =
            self.candidates.get_or_insert(*key, || Candidate::new(execution, past.usual));
        candidate.usual = execution.usual(past.usual);
        (candidate.popular, candidate.credit) = (true, past.credit);
        (candidate.by, candidate.class) = (execution.by, execution.class);
        (candidate.digests, candidate.same_since) = (execution.digests, execution.forwarded);
        match basis {
            Some(basis) => candidate.rest_on(basis),
            None => candidate.rest_on_nothing(),
        }
        if differs {
            candidate.count_difference(execution.finished);
        }
    }
}

impl Candidate {
    fn new(execution: &Execution, before: Option<Duration>) -> Self {
        Self {
            by: execution.by,
            class: execution.class,
            digests: execution.digests,
            stamp: Stamp(0),
            sources: SourceSet::new(),
            record: RecordNumber::default(),
            outdated: false,
            popular: false,
            same_since: execution.forwarded,
            credit: Credit::default(),
            differences: 0,
            put_aside: 0,
            put_aside_until: Time(0),
            usual: execution.usual(before),
        }
    }

    /// The execution is the last one now.
    fn take(&mut self, execution: &Execution) {
        let sameness = self.digests.sameness(&execution.digests);
        if !sameness.is_some_and(Sameness::is_whole) {
            self.same_since = execution.forwarded;
        }
        (self.by, self.class, self.digests) = (execution.by, execution.class, execution.digests);
        self.usual = execution.usual(Some(self.usual));
    }

    fn rest_on(&mut self, basis: Basis) {
        (self.stamp, self.sources, self.record) = (basis.stamp, basis.sources, basis.record);
        self.outdated = false;
    }

    fn rest_on_nothing(&mut self) {
        (self.stamp, self.sources, self.record) =
            (Stamp(0), SourceSet::new(), RecordNumber::default());
        self.outdated = true;
    }

    fn count_difference(&mut self, now: Time) {
        self.differences += 1;
        if self.differences >= DIFFERENCES_MAX {
            self.differences = 0;
            self.popular = false;
            self.put_aside_until =
                now + PUT_ASIDE_FIRST * (1 << self.put_aside.min(PUT_ASIDE_DOUBLINGS));
            self.put_aside += 1;
        }
    }
}
