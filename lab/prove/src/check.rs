//! The verdict on a reply. No clock, no I/O.
//!
//! Each marker of a subject must be of a version that was there at some moment of the reply's time
//! (`history.rs`), minus the time by which the server itself may be behind. A time that the page
//! prints must not have been too old already when the request was sent: whatever comes later is the
//! way of the reply.

use std::ops::Range;

use memchr::memmem::Finder;
use serde::Serialize;

use crate::floor::Floor;
use crate::history::{Possible, Verdict};
use crate::log::{Log, LogCopy};
use crate::marker::Marker;
use crate::sighting::Sightings;

/// What is wrong with a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Breach {
    /// A version that was gone before the request was sent.
    Stale,
    /// Long after the last edit, not the last version.
    NeverUpdated,
    /// A version that nobody had begun to write, or a time that is still to come.
    Impossible,
    /// Two versions of one subject.
    Torn,
    /// The printed time is too old.
    Aged,
    /// A marker is missing.
    Unexpected,
    /// What only this page has is missing: it is another one.
    Foreign,
    /// A status that is neither 200 nor allowed.
    Status,
    /// It cannot be read.
    Malformed,
    /// It ends too early.
    Cut,
    /// It does not come.
    Silent,
}

impl Breach {
    /// All of them, the worst first.
    pub const ALL: [Self; 11] = [
        Self::Stale,
        Self::NeverUpdated,
        Self::Impossible,
        Self::Torn,
        Self::Aged,
        Self::Unexpected,
        Self::Foreign,
        Self::Status,
        Self::Malformed,
        Self::Cut,
        Self::Silent,
    ];

    /// Its name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Stale => "stale",
            Self::NeverUpdated => "never_updated",
            Self::Impossible => "impossible",
            Self::Torn => "torn",
            Self::Aged => "aged",
            Self::Unexpected => "unexpected",
            Self::Foreign => "foreign",
            Self::Status => "status",
            Self::Malformed => "malformed",
            Self::Cut => "cut",
            Self::Silent => "silent",
        }
    }
}

/// A breach, and where it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub breach: Breach,
    /// Which subject's marker, by its place in the plan.
    pub subject: Option<usize>,
    /// The number that the page shows.
    pub shown: Option<u64>,
    /// What it might have shown.
    pub possible: Option<Possible>,
    /// By how much it is too old, in nanoseconds.
    pub by_ns: Option<u64>,
    /// Where in the body.
    pub place: Option<Range<usize>>,
}

impl Finding {
    /// A finding of this violation without any detail.
    pub fn new(breach: Breach) -> Self {
        Self { breach, subject: None, shown: None, possible: None, by_ns: None, place: None }
    }
}

/// How a request went to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Route {
    /// By what is to be proved.
    Proved,
    /// Past it.
    Direct,
}

#[derive(Debug)]
pub(crate) struct SubjectRule {
    pub(crate) name: String,
    pub(crate) marker: Marker,
    pub(crate) lag_ns: u64,
    pub(crate) one_state: bool,
    pub(crate) as_server: bool,
    pub(crate) log: Log,
}

#[derive(Debug)]
pub(crate) struct PageRule {
    pub(crate) target: String,
    /// The subjects that it shows, by their places in [`Rules::subjects`].
    pub(crate) shows: Vec<usize>,
    pub(crate) within_ns: Option<u64>,
    pub(crate) atomic: bool,
    pub(crate) steady: bool,
    /// What it has and no other page.
    pub(crate) own: Option<Finder<'static>>,
    /// What the server itself has shown here, for each subject.
    pub(crate) floors: Vec<Floor>,
    /// What it has shown here when that was over, for each subject.
    pub(crate) sightings: Vec<Sightings>,
}

/// What replies are judged by.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) subjects: Vec<SubjectRule>,
    pub(crate) pages: Vec<PageRule>,
    pub(crate) clock: Marker,
    pub(crate) clock_slack_ns: u64,
    pub(crate) statuses: Vec<u16>,
}

/// A reply and its times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply<'a> {
    pub(crate) page: usize,
    pub(crate) route: Route,
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
    pub(crate) sent_ns: u64,
    pub(crate) ended_ns: u64,
    /// What to add to these for UNIX time.
    pub(crate) unix_offset_ns: u64,
    /// Asked for after the quiet period: only the last version will do.
    pub(crate) last: bool,
}

/// What is measured besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measured {
    /// By how much the server itself was behind at most, for each subject.
    pub(crate) server_lag_ns: Vec<u64>,
    /// The oldest printed time of each page.
    pub(crate) age_ns: Vec<u64>,
    /// Replies without a marker, of each page that is not steady.
    pub(crate) lacking: Vec<u64>,
}

/// Judges replies.
#[derive(Debug)]
pub(crate) struct Checker<'a> {
    rules: &'a Rules,
    copies: Vec<LogCopy>,
    pub(crate) measured: Measured,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(rules: &'a Rules) -> Self {
        let measured = Measured {
            server_lag_ns: vec![0; rules.subjects.len()],
            age_ns: vec![0; rules.pages.len()],
            lacking: vec![0; rules.pages.len()],
        };
        Checker {
            rules,
            copies: rules.subjects.iter().map(|subject| subject.log.copy()).collect(),
            measured,
        }
    }

    /// What is wrong with a reply: nothing, or one finding for each kind of breach and subject.
    pub(crate) fn check(&mut self, reply: &Reply<'_>) -> Vec<Finding> {
        let page = &self.rules.pages[reply.page];
        if reply.status != 200 {
            let is_allowed = self.rules.statuses.contains(&reply.status) && !reply.last;
            let finding =
                Finding { shown: Some(reply.status.into()), ..Finding::new(Breach::Status) };
            return if is_allowed { Vec::new() } else { vec![finding] };
        }
        if page.own.as_ref().is_some_and(|own| own.find(reply.body).is_none()) {
            return vec![Finding::new(Breach::Foreign)];
        }
        let mut findings = Vec::new();
        for &subject in &page.shows {
            self.check_subject(subject, reply, &mut findings);
        }
        if let Some(within_ns) = page.within_ns {
            self.check_time(within_ns, reply, &mut findings);
        }
        findings
    }

    fn check_subject(&mut self, subject: usize, reply: &Reply<'_>, findings: &mut Vec<Finding>) {
        let page = &self.rules.pages[reply.page];
        let rule = &self.rules.subjects[subject];
        let mut first = None;
        rule.marker.find_all(reply.body, |found| {
            let value = found.value;
            match first {
                Some(first) if first == value => return,
                Some(_) if page.atomic => add(
                    findings,
                    Finding {
                        subject: Some(subject),
                        shown: Some(value),
                        place: Some(found.place.clone()),
                        ..Finding::new(Breach::Torn)
                    },
                ),
                Some(_) => {}
                None => first = Some(value),
            }
            let history = self.copies[subject].refreshed(&rule.log);
            // The server's own lag is measured, not granted; at the end nobody is granted any.
            let lag_ns = if reply.last { 0 } else { rule.lag_ns };
            let judged_from =
                |lag_ns| history.judge(value, reply.sent_ns.saturating_sub(lag_ns), reply.ended_ns);
            let mut verdict = judged_from(lag_ns);
            if let (Route::Direct, Verdict::Stale { by_ns }) = (reply.route, judged_from(0)) {
                let most = &mut self.measured.server_lag_ns[subject];
                *most = by_ns.max(*most);
                if rule.as_server {
                    // Nothing is edited during the last look, so it has one time.
                    let sent_ns = if reply.last { u64::MAX } else { reply.sent_ns };
                    page.sightings[subject].add(value, sent_ns);
                    page.floors[subject].raise(value, reply.ended_ns);
                    return;
                }
            }
            let floor = &page.floors[subject];
            match verdict {
                Verdict::Stale { ref mut by_ns } => *by_ns += lag_ns.min(reply.sent_ns),
                Verdict::Current if reply.route == Route::Direct => {
                    floor.raise(value, reply.ended_ns);
                }
                Verdict::Current if rule.one_state => {
                    if let Some(passed_ns) = floor.passed_ns(value, reply.sent_ns) {
                        verdict = Verdict::Stale { by_ns: reply.sent_ns - passed_ns };
                    }
                }
                Verdict::Current | Verdict::Impossible => {}
            }
            let (breach, by_ns) = match verdict {
                Verdict::Current => return,
                Verdict::Stale { by_ns } if reply.last => (Breach::NeverUpdated, Some(by_ns)),
                Verdict::Stale { by_ns } => (Breach::Stale, Some(by_ns)),
                Verdict::Impossible => (Breach::Impossible, None),
            };
            let possible = history.possible(reply.sent_ns.saturating_sub(lag_ns), reply.ended_ns);
            add(
                findings,
                Finding {
                    breach,
                    subject: Some(subject),
                    shown: Some(value),
                    possible: Some(possible),
                    by_ns,
                    place: Some(found.place),
                },
            );
        });
        if first.is_none() && self.may_lack(subject, reply) {
            self.measured.lacking[reply.page] += 1;
        } else if first.is_none() {
            add(findings, Finding { subject: Some(subject), ..Finding::new(Breach::Unexpected) });
        }
    }

    /// May the page be without the subject's marker?
    fn may_lack(&mut self, subject: usize, reply: &Reply<'_>) -> bool {
        let page = &self.rules.pages[reply.page];
        // What another subject's edit makes empty for a moment, a template, may be part of this
        // page, too.
        !page.steady
            || !page.atomic
                && (0..self.copies.len()).any(|changing| self.is_changing(changing, subject, reply))
    }

    /// Was the subject being changed when the server made that reply? Only the page's own is
    /// granted what the server may be behind.
    fn is_changing(&mut self, subject: usize, own: usize, reply: &Reply<'_>) -> bool {
        let rule = &self.rules.subjects[subject];
        let lag_ns = if subject == own { rule.lag_ns } else { 0 };
        let history = self.copies[subject].refreshed(&rule.log);
        let possible = history.possible(reply.sent_ns.saturating_sub(lag_ns), reply.ended_ns);
        possible.oldest < possible.newest
    }

    fn check_time(&mut self, within_ns: u64, reply: &Reply<'_>, findings: &mut Vec<Finding>) {
        let sent_ns = reply.sent_ns.saturating_add(reply.unix_offset_ns);
        let ended_ns = reply.ended_ns.saturating_add(reply.unix_offset_ns);
        let mut is_shown = false;
        let clock_slack_ns = self.rules.clock_slack_ns;
        let oldest = &mut self.measured.age_ns[reply.page];
        self.rules.clock.find_all(reply.body, |found| {
            is_shown = true;
            let unit_ns = unit_of(found.value);
            let printed_ns = found.value.saturating_mul(unit_ns);
            // It may have been printed at the very end of its second or millisecond.
            let age_ns = sent_ns.saturating_sub(printed_ns.saturating_add(unit_ns));
            *oldest = age_ns.max(*oldest);
            let breach = if age_ns > within_ns.saturating_add(clock_slack_ns) {
                Breach::Aged
            } else if printed_ns > ended_ns.saturating_add(clock_slack_ns) {
                Breach::Impossible
            } else {
                return;
            };
            let by_ns = (breach == Breach::Aged).then_some(age_ns);
            let shown = Some(found.value);
            add(
                findings,
                Finding { shown, by_ns, place: Some(found.place), ..Finding::new(breach) },
            );
        });
        if !is_shown {
            add(findings, Finding::new(Breach::Unexpected));
        }
    }
}

/// Adds a finding if it is the first of its kind.
fn add(findings: &mut Vec<Finding>, finding: Finding) {
    let is_known =
        |known: &Finding| known.breach == finding.breach && known.subject == finding.subject;
    if !findings.iter().any(is_known) {
        findings.push(finding);
    }
}

/// The unit of a UNIX time, in nanoseconds, by its size: no clock shows the year 5000.
fn unit_of(time: u64) -> u64 {
    match time {
        0..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1000,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;

    const MS: u64 = 1_000_000;
    const LAG: u64 = 500 * MS;

    /// Subject 0 with version `n` by an edit of 10 ms at `n` seconds, up to 5; subject 1 the same
    /// with a lag.
    fn rules(atomic: bool, one_state: bool) -> Rules {
        let history = || {
            let mut history = History::new(None);
            for version in 1..=5 {
                history.begin(version, version * 1000 * MS);
                history.end(version * 1000 * MS + 10 * MS, true);
            }
            history
        };
        let subject = |name: &str, lag_ns| SubjectRule {
            name: name.to_owned(),
            marker: Marker::named(name),
            lag_ns,
            one_state,
            as_server: false,
            log: Log::new(history()),
        };
        let page = |shows: &[usize], within_ns| PageRule {
            target: "/".to_owned(),
            shows: shows.to_vec(),
            within_ns,
            atomic,
            steady: true,
            own: None,
            floors: vec![Floor::default(), Floor::default()],
            sightings: vec![Sightings::default(), Sightings::default()],
        };
        Rules {
            subjects: vec![subject("a", 0), subject("b", LAG)],
            pages: vec![
                page(&[0], None),
                page(&[1], None),
                page(&[0, 1], None),
                page(&[], Some(1000 * MS)),
            ],
            clock: Marker::named("time"),
            clock_slack_ns: 100 * MS,
            statuses: vec![503],
        }
    }

    fn reply(page: usize, body: &str, sent_ms: u64, ended_ms: u64) -> Reply<'_> {
        Reply {
            page,
            route: Route::Proved,
            status: 200,
            body: body.as_bytes(),
            sent_ns: sent_ms * MS,
            ended_ns: ended_ms * MS,
            unix_offset_ns: 1_700_000_000_000 * MS,
            last: false,
        }
    }

    fn breaches(checker: &mut Checker<'_>, reply: &Reply<'_>) -> Vec<(Breach, Option<u64>)> {
        checker
            .check(reply)
            .into_iter()
            .map(|finding| (finding.breach, finding.by_ns.map(|ns| ns / MS)))
            .collect()
    }

    #[test]
    fn versions_and_their_age() {
        let rules = rules(true, false);
        let mut checker = Checker::new(&rules);
        let mut of =
            |page, body: &str, sent, ended| breaches(&mut checker, &reply(page, body, sent, ended));
        assert_eq!(of(0, "a=2", 2500, 2600), []);
        assert_eq!(of(0, "a=2", 3015, 3020), [(Breach::Stale, Some(5))]);
        assert_eq!(of(0, "a=4", 3015, 3020), [(Breach::Impossible, None)]);
        assert_eq!(of(0, "a=2 a=3", 3005, 3020), [(Breach::Torn, None)]);
        assert_eq!(of(0, "a=2 a=3", 3015, 3020), [(Breach::Stale, Some(5)), (Breach::Torn, None)]);
        assert_eq!(of(0, "nothing", 3015, 3020), [(Breach::Unexpected, None)]);
        // Subject b may be half a second behind.
        assert_eq!(of(1, "b=2", 3509, 3600), []);
        assert_eq!(of(1, "b=2", 3515, 3600), [(Breach::Stale, Some(505))]);
        assert_eq!(of(2, "a=3", 3515, 3600), [(Breach::Unexpected, None)]);
        assert_eq!(of(2, "a=3 b=2", 3400, 3600), []);
    }

    #[test]
    fn a_page_that_is_not_atomic_may_show_two_versions_that_are_both_possible() {
        let rules = rules(false, false);
        let mut checker = Checker::new(&rules);
        assert_eq!(breaches(&mut checker, &reply(0, "a=2 a=3", 3005, 3020)), []);
        assert_eq!(
            breaches(&mut checker, &reply(0, "a=3 a=2", 3015, 3020)),
            [(Breach::Stale, Some(5))]
        );
    }

    #[test]
    fn what_a_page_may_lack() {
        let lacks = |rules: &Rules, sent_ms| {
            let mut checker = Checker::new(rules);
            let found = breaches(&mut checker, &reply(0, "nothing", sent_ms, sent_ms + 3));
            assert_eq!(checker.measured.lacking[0], u64::from(found.is_empty()));
            found.is_empty()
        };
        assert!(!lacks(&rules(true, false), 3005) && !lacks(&rules(true, false), 3500));
        assert!(lacks(&rules(false, false), 3005) && !lacks(&rules(false, false), 3500));
        // Another subject changes: what changes it may be part of the page. Once that is over,
        // nothing is granted.
        let mut others = rules(false, false);
        others.subjects[0].log = Log::new(History::new(None));
        assert!(lacks(&others, 3005) && !lacks(&others, 3015));
        let mut unsteady = rules(true, false);
        unsteady.pages.iter_mut().for_each(|page| page.steady = false);
        assert!(lacks(&unsteady, 3500));
    }

    #[test]
    fn in_the_end_only_the_last_version_will_do() {
        let rules = rules(true, false);
        let mut checker = Checker::new(&rules);
        let last = |body| Reply { last: true, ..reply(1, body, 5100, 5101) };
        assert_eq!(breaches(&mut checker, &last("b=5")), []);
        assert_eq!(breaches(&mut checker, &last("b=4")), [(Breach::NeverUpdated, Some(90))]);
        assert_eq!(
            breaches(&mut checker, &Reply { status: 503, ..last("") }),
            [(Breach::Status, None)]
        );
    }

    #[test]
    fn statuses() {
        let rules = rules(true, false);
        let mut checker = Checker::new(&rules);
        assert_eq!(breaches(&mut checker, &Reply { status: 503, ..reply(0, "", 1, 2) }), []);
        assert_eq!(
            breaches(&mut checker, &Reply { status: 404, ..reply(0, "", 1, 2) }),
            [(Breach::Status, None)]
        );
    }

    #[test]
    fn printed_times() {
        let rules = rules(true, false);
        let mut checker = Checker::new(&rules);
        let mut of = |body: &str| breaches(&mut checker, &reply(3, body, 5000, 5001));
        assert_eq!(of("time=1700000005"), []);
        // Anything up to the end of its second.
        assert_eq!(of("time=1700000003"), []);
        assert_eq!(of("time=1700000002"), [(Breach::Aged, Some(2000))]);
        assert_eq!(of("time=1700000003899"), []);
        assert_eq!(of("time=1700000003898"), [(Breach::Aged, Some(1101))]);
        assert_eq!(of("time=1700000005101"), []);
        assert_eq!(of("time=1700000005102"), [(Breach::Impossible, None)]);
        assert_eq!(of("time=1700000003899000"), [(Breach::Aged, Some(1100))]);
        assert_eq!(of("no time"), [(Breach::Unexpected, None)]);
        assert_eq!(checker.measured.age_ns, [0, 0, 0, 2000 * MS]);
    }

    #[test]
    fn the_server_itself_is_measured_and_is_a_floor_if_it_has_one_state() {
        for one_state in [false, true] {
            let rules = rules(true, one_state);
            let mut checker = Checker::new(&rules);
            let direct =
                |body, sent, ended| Reply { route: Route::Direct, ..reply(1, body, sent, ended) };
            assert_eq!(breaches(&mut checker, &direct("b=2", 3210, 3211)), []);
            assert_eq!(checker.measured.server_lag_ns, [0, 200 * MS]);
            assert_eq!(breaches(&mut checker, &reply(1, "b=2", 3250, 3260)), []);
            assert_eq!(breaches(&mut checker, &direct("b=3", 3210, 3300)), []);
            assert_eq!(breaches(&mut checker, &reply(1, "b=2", 3300, 3310)), []);
            let after = breaches(&mut checker, &reply(1, "b=2", 3320, 3330));
            assert_eq!(after, if one_state { vec![(Breach::Stale, Some(20))] } else { vec![] });
            assert_eq!(
                breaches(&mut checker, &direct("b=2", 3710, 3711)),
                [(Breach::Stale, Some(700))]
            );
        }
    }
}
