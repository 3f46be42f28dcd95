//! Replies that the server computed: kept only if two executions for different clients agreed, and never for long
//! (docs/coherence.md).
//!
//! The first execution leaves a *candidate*, no more than a hash. A second one for somebody else, with equal bytes and with all sources
//! unchanged in between, makes an entry of it. The entry is served until a source changes, or its time is over: what nobody can see (the
//! clock, chance, a program's own memory) is never older than that. Then it has *lapsed*: it keeps its place, and one more execution with
//! equal bytes renews it.
//!
//! An execution that is *outdated* by the time it is judged makes no entry that is served to everybody; but whoever had asked before it was forwarded may
//! have its reply, if another one agrees: then there is an entry that has lapsed from the start.
//!
//! A page whose executions differ although nothing has changed depends on something that cannot be seen, and is left alone for a while.

use std::time::Duration;

use hashbrown::HashTable;
use nicache_coherence::{RecordNumber, Rule, SourceSet, Stamp};
use nicache_http::Key;
use nicache_tcp::{Time, address::Address};

use crate::path::Digests;
use crate::recheck::Recheck;

/// Pages remembered that have no entry.
pub const CANDIDATES_MAX: usize = 4096;
/// Differences under unchanged sources after which a page is left alone.
const DIFFERENCES_MAX: u8 = 2;
/// For how long at first; each time twice as long, up to the maximum.
const LEFT_ALONE_FIRST: Duration = Duration::from_secs(15);
const LEFT_ALONE_DOUBLINGS: u32 = 8;

/// The usual time of an execution grows by a quarter, and at least this, at a time.
const USUAL_STEP: Duration = Duration::from_millis(1);

/// As good as never, for a test.
const NEVER: Duration = Duration::from_secs(86_400);

/// For whom the server worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A client, by its IPv4 address or the network of its IPv6 address.
    Client(Address),
    /// Any client that sent cookies, if only such as the operator calls harmless. That two of these agree says nothing of the others.
    Bearer,
    /// The card, which wants to know whether a page is still the same.
    Card,
}

/// One execution of a request by the server.
#[derive(Clone, Debug)]
pub struct Execution {
    /// For whom.
    pub by: Executor,
    /// Before the request went to the server.
    pub forwarded: Time,
    /// When its reply was whole.
    pub finished: Time,
    /// What it is compared by.
    pub digests: Digests,
    /// How old what nobody can see may become.
    pub age_max: Duration,
    /// The earlier reply to the same request whose sources have not changed since, by what the watcher says.
    pub unchanged_since: Option<RecordNumber>,
    /// The card's own request for the same.
    pub recheck: Recheck,
}

impl Execution {
    /// What the server usually needs, if it was `before`: one that had to wait, for whatever reason, says little.
    fn usual(&self, before: Option<Duration>) -> Duration {
        let took = self.finished.since(self.forwarded);
        before.map_or(took, |before| took.min(before + (before / 4).max(USUAL_STEP)))
    }
}

/// What an entry has beside a static one's: how the server is asked again, and until when it may be served.
#[derive(Clone, Debug)]
pub(super) struct Age {
    pub(super) digests: Digests,
    pub(super) recheck: Recheck,
    /// From here on it is not served.
    pub(super) expires: Time,
    /// From here on a hit has the server asked again.
    pub(super) recheck_at: Time,
    /// When the server was last asked to be asked again.
    pub(super) asked: Option<Time>,
    /// What the server usually needs for it.
    pub(super) usual: Duration,
}

impl Age {
    /// `before`: what the server usually needed for it.
    pub(super) fn new(execution: Execution, before: Option<Duration>) -> Age {
        let usual = execution.usual(before);
        let age_max = if Rule::Age.holds() { execution.age_max } else { NEVER };
        // Time enough for one more execution, with some to spare. Too much of it has a slow server that shares the card's CPU asked all the time.
        let lead = (age_max / 4).max(execution.finished.since(execution.forwarded) * 3 / 2).min(age_max);
        Age {
            digests: execution.digests,
            recheck: execution.recheck,
            expires: execution.forwarded + age_max,
            recheck_at: execution.forwarded + (age_max - lead),
            asked: None,
            usual,
        }
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
    key: Key,
    by: Executor,
    digests: Digests,
    stamp: Stamp,
    sources: SourceSet,
    record: RecordNumber,
    /// It was out of date when it was judged: that another one differs says nothing.
    outdated: bool,
    /// It was an entry before.
    popular: bool,
    differences: u8,
    left_alone: u32,
    left_alone_until: Time,
    usual: Duration,
}

/// What to do with a reply that the watcher has agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// Two agree, `exactly` or but for what is masked.
    Agreed { exactly: bool },
    /// It is the first.
    First,
    /// It differs from another although nothing has changed.
    Differs,
}

/// Pages that have no entry, but may get one.
pub(super) struct Candidates {
    candidates: Vec<Candidate>,
    index: HashTable<u32>,
    /// The next one to be replaced.
    oldest: usize,
}

impl Candidates {
    pub(super) fn new() -> Candidates {
        Candidates {
            candidates: Vec::with_capacity(CANDIDATES_MAX),
            index: HashTable::with_capacity(CANDIDATES_MAX),
            oldest: 0,
        }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let found = self.index.find(key.low_u64(), |&at| self.candidates[at as usize].key == *key);
        found.map(|&at| at as usize)
    }

    /// Who executed it last, if somebody did and nobody has agreed yet.
    pub(super) fn executor(&self, key: &Key) -> Option<Executor> {
        self.find(key).map(|at| self.candidates[at].by)
    }

    /// Was it an entry not long ago?
    pub(super) fn is_popular(&self, key: &Key) -> bool {
        self.find(key).is_some_and(|at| self.candidates[at].popular)
    }

    /// Is it a page whose executions differ?
    pub(super) fn is_left_alone(&self, key: &Key, now: Time) -> bool {
        self.find(key).is_some_and(|at| now < self.candidates[at].left_alone_until)
    }

    /// Until when it is left alone; may be over.
    pub(super) fn left_alone_until(&self, key: &Key) -> Option<Time> {
        self.find(key).map(|at| self.candidates[at].left_alone_until)
    }

    /// What the server usually needs for it.
    pub(super) fn usual(&self, key: &Key) -> Option<Duration> {
        self.find(key).map(|at| self.candidates[at].usual)
    }

    /// What the watcher is to be asked about the execution before.
    pub(super) fn previous(&self, key: &Key) -> Option<(RecordNumber, Stamp)> {
        self.find(key).map(|at| (self.candidates[at].record, self.candidates[at].stamp))
    }

    /// Compares an execution with the one before, and takes its place unless they agree. `unchanged` says whether sources are as they were.
    pub(super) fn compare(
        &mut self,
        key: &Key,
        execution: &Execution,
        basis: Basis,
        unchanged: impl Fn(&SourceSet, Stamp) -> bool,
    ) -> Opinion {
        if !Rule::Agreement.holds() {
            return Opinion::Agreed { exactly: true };
        }
        let Some(at) = self.find(key) else {
            let mut candidate = Candidate::new(*key, execution, None);
            candidate.rest_on(basis);
            self.push(candidate);
            return Opinion::First;
        };
        let known = &mut self.candidates[at];
        let is_comparable = !known.outdated
            && (execution.unchanged_since == Some(known.record) || unchanged(&known.sources, known.stamp));
        let is_equal = known.digests.masked == execution.digests.masked;
        if (is_comparable || known.outdated) && is_equal && known.by != execution.by {
            let exactly = known.digests.exact == execution.digests.exact;
            self.remove(at);
            return Opinion::Agreed { exactly };
        }
        known.rest_on(basis);
        (known.by, known.digests) = (execution.by, execution.digests);
        known.usual = execution.usual(Some(known.usual));
        if is_comparable && !is_equal {
            known.count_difference(execution.finished);
            return Opinion::Differs;
        }
        Opinion::First
    }

    /// Compares an execution that is outdated with the one before, and takes its place unless they agree.
    pub(super) fn compare_outdated(&mut self, key: &Key, execution: &Execution) -> Opinion {
        let Some(at) = self.find(key) else {
            let mut candidate = Candidate::new(*key, execution, None);
            candidate.outdated = true;
            self.push(candidate);
            return Opinion::First;
        };
        let known = &mut self.candidates[at];
        if known.digests.masked == execution.digests.masked && known.by != execution.by {
            let exactly = known.digests.exact == execution.digests.exact;
            self.remove(at);
            return Opinion::Agreed { exactly };
        }
        known.rest_on_nothing();
        (known.by, known.digests) = (execution.by, execution.digests);
        known.usual = execution.usual(Some(known.usual));
        Opinion::First
    }

    /// An entry is gone, for which the server `usually` needed so long; the page may have another soon. Without a `basis` the execution is outdated.
    pub(super) fn note_entry(
        &mut self,
        key: &Key,
        execution: &Execution,
        usually: Option<Duration>,
        basis: Option<Basis>,
        differs: bool,
    ) {
        let at = match self.find(key) {
            Some(at) => at,
            None => self.push(Candidate::new(*key, execution, usually)),
        };
        let candidate = &mut self.candidates[at];
        candidate.usual = execution.usual(usually);
        candidate.popular = true;
        (candidate.by, candidate.digests) = (execution.by, execution.digests);
        match basis {
            Some(basis) => candidate.rest_on(basis),
            None => candidate.rest_on_nothing(),
        }
        if differs {
            candidate.count_difference(execution.finished);
        }
    }

    fn push(&mut self, candidate: Candidate) -> usize {
        let hash = candidate.key.low_u64();
        let at = if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push(candidate);
            self.candidates.len() - 1
        } else {
            let at = self.oldest;
            self.oldest = (at + 1) % CANDIDATES_MAX;
            self.unlink(at);
            self.candidates[at] = candidate;
            at
        };
        let candidates = &self.candidates;
        self.index.insert_unique(hash, at as u32, |&at| candidates[at as usize].key.low_u64());
        at
    }

    /// Its place stays, and is taken by the next in turn.
    fn remove(&mut self, at: usize) {
        self.unlink(at);
    }

    fn unlink(&mut self, at: usize) {
        if let Ok(found) = self.index.find_entry(self.candidates[at].key.low_u64(), |&index| index as usize == at) {
            found.remove();
        }
    }
}

impl Candidate {
    fn new(key: Key, execution: &Execution, before: Option<Duration>) -> Candidate {
        Candidate {
            key,
            by: execution.by,
            digests: execution.digests,
            stamp: Stamp(0),
            sources: SourceSet::new(),
            record: RecordNumber::default(),
            outdated: false,
            popular: false,
            differences: 0,
            left_alone: 0,
            left_alone_until: Time(0),
            usual: execution.usual(before),
        }
    }

    fn rest_on(&mut self, basis: Basis) {
        (self.stamp, self.sources, self.record) = (basis.stamp, basis.sources, basis.record);
        self.outdated = false;
    }

    fn rest_on_nothing(&mut self) {
        (self.stamp, self.sources, self.record) = (Stamp(0), SourceSet::new(), RecordNumber::default());
        self.outdated = true;
    }

    fn count_difference(&mut self, now: Time) {
        self.differences += 1;
        if self.differences >= DIFFERENCES_MAX {
            self.differences = 0;
            self.popular = false;
            self.left_alone_until = now + LEFT_ALONE_FIRST * (1 << self.left_alone.min(LEFT_ALONE_DOUBLINGS));
            self.left_alone += 1;
        }
    }
}
