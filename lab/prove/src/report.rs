//! What came out.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::check::{Breach, Finding, Measured, Route};
use crate::connection::Asked;

/// Violations described at most.
pub(crate) const DESCRIBED_MAX: usize = 10;

/// The word on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every reply was right, and enough happened.
    Proven,
    /// Replies were wrong.
    Violated,
    /// No reply was wrong, but that says little, for these reasons.
    NothingProven(Vec<String>),
}

/// Edits of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KindReport {
    /// Edits that succeeded.
    pub edits: u64,
    /// Edits that failed.
    pub failed: u64,
}

/// What became of a subject.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SubjectReport {
    /// Its name.
    pub name: String,
    /// How pages show it.
    pub marker: String,
    /// Edits that succeeded, the one before the run not counted.
    pub edits: u64,
    /// Edits that failed.
    pub failed: u64,
    /// Why the first of them did.
    pub first_failure: Option<String>,
    /// The version before the first edit of the run.
    pub first_version: u64,
    /// The version of the last edit.
    pub last_version: u64,
    /// By how much the server itself may be behind.
    pub lag_ms: f64,
    /// The server itself may be behind for any time: an old version that it still gave directly
    /// later was its own.
    pub as_server: bool,
    /// By how much it was seen to be behind at most (directly).
    pub server_lag_ms: f64,
    /// Edits by what they did.
    pub kinds: BTreeMap<String, KindReport>,
}

/// What became of a page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PageReport {
    /// Path and query.
    pub target: String,
    /// Subjects that it shows.
    pub shows: Vec<String>,
    /// Replies, violations included.
    pub replies: u64,
    /// Replies with a violation.
    pub violations: u64,
    /// How old a printed time may be.
    pub within_ms: Option<f64>,
    /// How old the oldest one was when its request was sent.
    pub age_ms: f64,
    /// Replies without a marker, where that is allowed.
    pub lacking: u64,
    /// A word that it has and no other page: a reply without it is another page's. `None` if there
    /// is none.
    pub own: Option<String>,
}

/// An edit near a violation, in milliseconds since the run's start.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EditTimes {
    /// Version that it made.
    pub version: u64,
    /// Its begin.
    pub begin_ms: f64,
    /// Its end, if it had one.
    pub end_ms: Option<f64>,
}

/// A wrong reply. Times are in milliseconds since the run's start.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// What is wrong.
    pub breach: Breach,
    /// Path and query.
    pub page: String,
    /// It came from the server directly, so no cache is to blame.
    pub direct: bool,
    /// Number of the connection.
    pub connection: usize,
    /// Before the request was sent.
    pub sent_ms: f64,
    /// After the reply was there.
    pub ended_ms: f64,
    /// Whose marker is wrong.
    pub subject: Option<String>,
    /// The number that was shown, or the status.
    pub shown: Option<u64>,
    /// The oldest version that would have been right.
    pub oldest: Option<u64>,
    /// The newest version that would have been right.
    pub newest: Option<u64>,
    /// By how much it was too old.
    pub older_by_ms: Option<f64>,
    /// The last edits before the reply's end, the latest first.
    pub edits: Vec<EditTimes>,
    /// The bytes around the marker, or what else there is to say.
    pub excerpt: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.breach.label().to_uppercase().replace('_', " "), self.page)?;
        if self.direct {
            write!(f, " (directly)")?;
        }
        write!(f, " on connection {}", self.connection)?;
        write!(f, ", sent at {:.3} ms, ended at {:.3} ms", self.sent_ms, self.ended_ms)?;
        if let Some(shown) = self.shown {
            write!(
                f,
                ", showed {}{shown}",
                self.subject.as_ref().map_or(String::new(), |name| format!("{name}="))
            )?;
        } else if let Some(subject) = &self.subject {
            write!(f, ", does not show {subject}")?;
        }
        if let (Some(oldest), Some(newest)) = (self.oldest, self.newest) {
            write!(f, " instead of {oldest} to {newest}")?;
        }
        if let Some(by) = self.older_by_ms {
            write!(f, ", {by:.3} ms too old")?;
        }
        for edit in &self.edits {
            write!(f, "\n    edit to {} began at {:.3} ms", edit.version, edit.begin_ms)?;
            match edit.end_ms {
                Some(end_ms) => write!(f, ", ended at {end_ms:.3} ms")?,
                None => write!(f, ", is under way")?,
            }
        }
        write!(f, "\n    {}", self.excerpt)
    }
}

/// A reply with nothing wrong but versions that are over, each of a subject whose server may be
/// behind for any time.
#[derive(Clone, Debug)]
pub(crate) struct HeldBack {
    pub(crate) asked: Asked,
    pub(crate) findings: Vec<Finding>,
    /// What to tell if it is a violation; nothing beyond the first ones.
    pub(crate) described: Vec<Violation>,
}

/// What the readers of one thread have seen, or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) replies: u64,
    pub(crate) direct_replies: u64,
    pub(crate) last_replies: u64,
    pub(crate) body_bytes: u64,
    pub(crate) connections: u64,
    pub(crate) connect_failures: u64,
    pub(crate) unanswered: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// Replies of each page, and those with a violation.
    pub(crate) pages: Vec<(u64, u64)>,
    /// Replies with a violation.
    pub(crate) violations: u64,
    /// Replies that were as old as the server's own.
    pub(crate) as_old_as_server: u64,
    /// Replies that are judged when everything is over.
    pub(crate) held_back: Vec<HeldBack>,
    pub(crate) breaches: BTreeMap<Breach, u64>,
    pub(crate) direct_breaches: BTreeMap<Breach, u64>,
    pub(crate) measured: Measured,
}

impl Tally {
    pub(crate) fn new(pages: usize) -> Self {
        Self { pages: vec![(0, 0); pages], ..Self::default() }
    }

    /// Counts a reply of a page with these breaches.
    pub(crate) fn condemn(
        &mut self,
        page: usize,
        route: Route,
        breaches: impl IntoIterator<Item = Breach>,
    ) {
        let counts = match route {
            Route::Proved => {
                self.violations += 1;
                self.pages[page].1 += 1;
                &mut self.breaches
            }
            Route::Direct => &mut self.direct_breaches,
        };
        let mut breaches: Vec<Breach> = breaches.into_iter().collect();
        breaches.sort_unstable();
        breaches.dedup();
        breaches.into_iter().for_each(|breach| *counts.entry(breach).or_default() += 1);
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.replies += other.replies;
        self.direct_replies += other.direct_replies;
        self.last_replies += other.last_replies;
        self.body_bytes += other.body_bytes;
        self.connections += other.connections;
        self.connect_failures += other.connect_failures;
        self.unanswered += other.unanswered;
        self.violations += other.violations;
        self.as_old_as_server += other.as_old_as_server;
        self.held_back.extend(other.held_back);
        add_all(&mut self.statuses, other.statuses);
        add_all(&mut self.breaches, other.breaches);
        add_all(&mut self.direct_breaches, other.direct_breaches);
        for (mine, theirs) in self.pages.iter_mut().zip(&other.pages) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        raise_all(&mut self.measured.server_lag_ns, &other.measured.server_lag_ns);
        raise_all(&mut self.measured.age_ns, &other.measured.age_ns);
        add_each(&mut self.measured.lacking, &other.measured.lacking);
    }
}

fn add_all<K: Ord>(sums: &mut BTreeMap<K, u64>, others: BTreeMap<K, u64>) {
    for (key, count) in others {
        *sums.entry(key).or_default() += count;
    }
}

fn raise_all(most: &mut Vec<u64>, others: &[u64]) {
    most.resize(most.len().max(others.len()), 0);
    most.iter_mut().zip(others).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
}

fn add_each(sums: &mut Vec<u64>, others: &[u64]) {
    sums.resize(sums.len().max(others.len()), 0);
    sums.iter_mut().zip(others).for_each(|(mine, theirs)| *mine += theirs);
}

/// All that is known after a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Length of the run without the quiet period, in seconds.
    pub seconds: f64,
    /// Checked replies of the server that is to be proved, violations included.
    pub replies: u64,
    /// Checked replies of the server itself.
    pub direct_replies: u64,
    /// Replies after the quiet period, which had to show the last versions. They are in the numbers
    /// above, too.
    pub last_replies: u64,
    /// Bytes of all bodies.
    pub body_bytes: u64,
    /// Connections made.
    pub connections: u64,
    /// Attempts that failed.
    pub connect_failures: u64,
    /// Requests whose connection the server ended before it began to reply.
    pub unanswered: u64,
    /// Replies by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Replies, or missing ones, with a violation.
    pub violations: u64,
    /// Replies with a version that was over, which the server itself still gave directly later:
    /// they are not violations ([`SubjectReport::as_server`]).
    pub as_old_as_server: u64,
    /// Violations by kind. A reply may have several.
    pub breaches: BTreeMap<Breach, u64>,
    /// Violations of the server itself, without any cache, by kind.
    pub direct_breaches: BTreeMap<Breach, u64>,
    /// Each subject.
    pub subjects: Vec<SubjectReport>,
    /// Each page.
    pub pages: Vec<PageReport>,
    /// The first violations.
    pub described: Vec<Violation>,
    /// Replies that the plan asked for.
    pub replies_needed: u64,
    /// Edits that the plan asked for.
    pub edits_needed: u64,
}

impl Report {
    /// Edits that succeeded, of all subjects.
    pub fn edits(&self) -> u64 {
        self.subjects.iter().map(|subject| subject.edits).sum()
    }

    /// Violations of one kind, without those of the server itself.
    pub fn count(&self, breach: Breach) -> u64 {
        self.breaches.get(&breach).copied().unwrap_or(0)
    }

    /// What the run has shown.
    pub fn outcome(&self) -> Outcome {
        if self.violations > 0 {
            return Outcome::Violated;
        }
        let mut reasons = Vec::new();
        if self.replies < self.replies_needed {
            reasons.push(format!(
                "there were {} replies instead of {}",
                self.replies, self.replies_needed
            ));
        }
        let edits = self.edits();
        if edits < self.edits_needed.max(1) {
            reasons
                .push(format!("there were {edits} edits instead of {}", self.edits_needed.max(1)));
        }
        for subject in self.subjects.iter().filter(|subject| subject.edits == 0) {
            let why =
                subject.first_failure.as_ref().map_or(String::new(), |why| format!(" ({why})"));
            reasons.push(format!("`{}` was never edited during the run{why}", subject.name));
        }
        for page in self.pages.iter().filter(|page| page.replies == 0) {
            reasons.push(format!("{} was never read", page.target));
        }
        for subject in self
            .subjects
            .iter()
            .filter(|subject| !subject.as_server && subject.server_lag_ms > subject.lag_ms)
        {
            reasons.push(format!(
                "the server itself was {:.0} ms behind the edits of `{}`, and only {:.0} ms were allowed for: \
                 declare its lag",
                subject.server_lag_ms, subject.name, subject.lag_ms
            ));
        }
        for (breach, count) in
            self.direct_breaches.iter().filter(|(breach, _)| **breach != Breach::Stale)
        {
            reasons.push(format!(
                "the server itself, without a cache, gave {count} replies that were {}",
                breach.label()
            ));
        }
        if reasons.is_empty() { Outcome::Proven } else { Outcome::NothingProven(reasons) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.replies as f64 / self.seconds.max(1e-9);
        writeln!(
            f,
            "replies    {} in {:.1} s ({rate:.0}/s, {:.1} MB), {} of them after all edits; {} directly",
            self.replies,
            self.seconds,
            self.body_bytes as f64 / 1e6,
            self.last_replies,
            self.direct_replies
        )?;
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        writeln!(
            f,
            "           by status {}; {} connections, {} failed to connect, {} requests unanswered",
            if statuses.is_empty() { "none".to_owned() } else { statuses.join(", ") },
            self.connections,
            self.connect_failures,
            self.unanswered
        )?;
        for page in &self.pages {
            write!(
                f,
                "page       {} shows {}, {} replies",
                page.target,
                listed(&page.shows),
                page.replies
            )?;
            if let Some(own) = &page.own {
                write!(f, ", each with {own}")?;
            }
            if let Some(within_ms) = page.within_ms {
                write!(f, ", its time {:.0} ms old at most (allowed {within_ms:.0})", page.age_ms)?;
            }
            if page.lacking > 0 {
                write!(f, ", {} without its content", page.lacking)?;
            }
            writeln!(f, ", {} violations", page.violations)?;
        }
        for subject in &self.subjects {
            write!(
                f,
                "subject    {} shown as {}, {} edits up to version {}, {} failed",
                subject.name, subject.marker, subject.edits, subject.last_version, subject.failed
            )?;
            if subject.as_server {
                let seen = subject.server_lag_ms;
                write!(f, ", the server was seen to be {seen:.0} ms behind by itself")?;
            } else if subject.lag_ms > 0.0 || subject.server_lag_ms > 0.0 {
                let (lag, seen) = (subject.lag_ms, subject.server_lag_ms);
                write!(f, ", the server may be {lag:.0} ms behind and was seen to be {seen:.0}")?;
            }
            writeln!(f)?;
            for (kind, counted) in &subject.kinds {
                writeln!(
                    f,
                    "             {:>7} edits, {} failed: {kind}",
                    counted.edits, counted.failed
                )?;
            }
            if let Some(failure) = &subject.first_failure {
                writeln!(f, "             the first failure: {failure}")?;
            }
        }
        let counts = |breaches: &BTreeMap<Breach, u64>| {
            let counts =
                breaches.iter().map(|(breach, count)| format!("{count} {}", breach.label()));
            listed(&counts.collect::<Vec<_>>())
        };
        if self.as_old_as_server > 0 {
            writeln!(
                f,
                "behind     {} replies with an old version that the server itself gave directly, too, and later",
                self.as_old_as_server
            )?;
        }
        writeln!(f, "violations {}", counts(&self.breaches))?;
        if self.direct_replies > 0 {
            writeln!(f, "           {} of the server itself", counts(&self.direct_breaches))?;
        }
        self.described.iter().try_for_each(|violation| writeln!(f, "! {violation}"))
    }
}

fn listed(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Report {
        Report {
            replies: 10,
            replies_needed: 10,
            subjects: vec![SubjectReport {
                name: "a".into(),
                edits: 1,
                ..SubjectReport::default()
            }],
            pages: vec![PageReport { target: "/".into(), replies: 10, ..PageReport::default() }],
            ..Report::default()
        }
    }

    #[test]
    fn a_quiet_run_is_no_proof() {
        assert_eq!(good().outcome(), Outcome::Proven);
        let reason = |change: fn(&mut Report)| {
            let mut report = good();
            change(&mut report);
            match report.outcome() {
                Outcome::NothingProven(reasons) => reasons.join("; "),
                other => panic!("{other:?}"),
            }
        };
        assert!(reason(|report| report.replies = 9).contains("9 replies instead of 10"));
        assert!(reason(|report| report.subjects[0].edits = 0).contains("`a` was never edited"));
        assert!(reason(|report| report.edits_needed = 2).contains("1 edits instead of 2"));
        assert!(reason(|report| report.pages[0].replies = 0).contains("/ was never read"));
        assert!(
            reason(|report| report.subjects[0].server_lag_ms = 1.0).contains("declare its lag")
        );
        assert!(
            reason(|report| report.direct_breaches = [(Breach::Torn, 1)].into()).contains("torn")
        );
        let violated = Report { violations: 1, replies: 0, ..good() };
        assert_eq!(violated.outcome(), Outcome::Violated);
    }
}
