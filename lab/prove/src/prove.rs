//! Runs editors and readers: the first edit of each subject, load, the end of all edits, a rest,
//! and a last look.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope};
use std::time::Duration;

use memchr::memmem::{self, Finder};
use nicache_clock::monotonic_ns;

use crate::check::{PageRule, Route, Rules, SubjectRule};
use crate::editor::{Changer, EditCount};
use crate::floor::Floor;
use crate::history::History;
use crate::log::Log;
use crate::page::{Chooser, Page};
use crate::plan::{Plan, Subject};
use crate::reader::{Phase, Place, Reader, Shared};
use crate::report::{PageReport, Report, SubjectReport, Tally};
use crate::schedule::Schedule;
use crate::sighting::Sightings;
use crate::warm_up::{Fetched, fetch};

/// How often the end of the run is looked for.
const LOOK: Duration = Duration::from_millis(5);
/// How often progress is told.
const PROGRESS_NS: u64 = 1_000_000_000;
/// Readers go on for so long after the last edit.
const AFTER_EDITS: Duration = Duration::from_millis(50);
/// Between two attempts to learn what a page shows.
const TRY_AGAIN: Duration = Duration::from_millis(50);
/// Longest word by which a page is known.
const OWN_BYTES_MAX: usize = 200;
/// Versions above are not counted up from.
const VERSION_MAX: u64 = 1 << 62;

/// Why there is no run.
#[derive(Debug, thiserror::Error)]
pub enum ProveError {
    /// There is nothing to read.
    #[error("there is no page to read; name some with --pages")]
    NoPages,
    /// There is nothing to edit.
    #[error("there is nothing that is edited; say how with --edit")]
    NoSubjects,
    /// Nobody answers.
    #[error("{page} could not be read from {server}: {source}")]
    Fetch {
        /// Path and query.
        page: String,
        /// From where.
        server: SocketAddr,
        /// Why the page could not be read.
        source: io::Error,
    },
    /// A page is not there.
    #[error(
        "{page} answers {status} after the first edit, and only 200 can be judged; leave it out, or make it answer"
    )]
    PageStatus {
        /// Path and query.
        page: String,
        /// Its status.
        status: u16,
    },
    /// Nothing can be said about a page.
    #[error(
        "{page} shows none of the markers ({markers}); leave it out, or tell with --marker what its version looks like"
    )]
    NothingShown {
        /// Path and query.
        page: String,
        /// What was looked for.
        markers: String,
    },
    /// Nothing can be said about a subject.
    #[error(
        "no page shows `{subject}` ({marker}); add one that does, or tell with --marker what its version looks like"
    )]
    NotShown {
        /// The subject.
        subject: String,
        /// What was looked for.
        marker: String,
    },
    /// A page is said to show what does not exist.
    #[error("{page} is said to show `{subject}`, and there is no such subject")]
    UnknownSubject {
        /// Path and query.
        page: String,
        /// The name.
        subject: String,
    },
    /// Without the first edit nothing is known about what pages may show.
    #[error("the first edit of `{subject}`, to version {version}, failed: {why}")]
    FirstEdit {
        /// The subject.
        subject: String,
        /// What should have been made.
        version: u64,
        /// What the editor said.
        why: String,
    },
    /// A version that cannot be counted up.
    #[error(
        "`{subject}` shows {version}, which is too large to count up from; set the first version with --first-version"
    )]
    VersionTooLarge {
        /// The subject.
        subject: String,
        /// What a page shows.
        version: u64,
    },
    /// The machine refuses.
    #[error("cannot set up the connections: {0}")]
    Setup(io::Error),
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Since the run's start.
    pub seconds: f64,
    /// Checked replies.
    pub replies: u64,
    /// Edits that succeeded.
    pub edits: u64,
    /// Replies with a violation.
    pub violations: u64,
    /// What is going on.
    pub phase: &'static str,
}

/// Carries a plan out. `progress` is called about once a second.
///
/// # Errors
/// [`ProveError`]. Violations are in the report, no error.
pub fn prove(mut plan: Plan, mut progress: impl FnMut(&Progress)) -> Result<Report, ProveError> {
    if plan.pages.is_empty() {
        return Err(ProveError::NoPages);
    }
    if plan.subjects.is_empty() {
        return Err(ProveError::NoSubjects);
    }
    let requests: Vec<Vec<u8>> = plan.pages.iter().map(|page| request(&plan, page)).collect();
    let mut subjects = std::mem::take(&mut plan.subjects);
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let pages = plan.pages.iter().zip(&requests);
    let before =
        pages.map(|(page, request)| fetch_page(&plan, &page.target, request, Route::Proved));
    let before: Vec<Fetched> = before.collect::<Result<_, _>>()?;
    let first_versions = first_versions(&plan, &subjects, &before)?;
    let histories = first_versions.iter().map(|&(before, _)| Log::new(History::new(before)));
    let mut rules = Rules {
        subjects: subjects
            .iter()
            .zip(histories)
            .map(|(subject, log)| SubjectRule {
                name: subject.name.clone(),
                marker: subject.marker.clone(),
                lag_ns: subject.lag.as_nanos() as u64,
                one_state: subject.one_state,
                as_server: subject.as_server,
                log,
            })
            .collect(),
        pages: Vec::new(),
        clock: plan.clock.clone(),
        clock_slack_ns: plan.clock_slack.as_nanos() as u64,
        statuses: plan.statuses.clone(),
    };
    let count = EditCount::default();
    for ((subject, rule), &(_, first)) in
        subjects.iter_mut().zip(&rules.subjects).zip(&first_versions)
    {
        let mut changer = changer(subject, rule, &count, first - 1, random.fork());
        changer.edit().map_err(|why| ProveError::FirstEdit {
            subject: rule.name.clone(),
            version: first,
            why,
        })?;
    }
    rules.pages = page_rules(&plan, &rules.subjects, &requests, &before)?;
    count.succeeded.store(0, Ordering::Relaxed);
    run(&plan, &mut subjects, &rules, requests, &first_versions, &count, &mut random, &mut progress)
}

/// Load, rest and last look.
#[allow(clippy::too_many_arguments, reason = "the parts of one run, made in its beginning")]
fn run(
    plan: &Plan,
    subjects: &mut [Subject],
    rules: &Rules,
    requests: Vec<Vec<u8>>,
    first_versions: &[(Option<u64>, u64)],
    count: &EditCount,
    random: &mut fastrand::Rng,
    progress: &mut impl FnMut(&Progress),
) -> Result<Report, ProveError> {
    let threads = plan.readers.threads.clamp(1, plan.readers.connections.max(1));
    let chooser = Chooser::new(plan.pages.len(), plan.popularity);
    let shared =
        Shared::new(rules, requests, chooser, threads, plan.readers.pipeline, plan.readers.timeout);
    let places = places(plan);
    let stop_editing = AtomicBool::new(false);
    let mut readers = Vec::new();
    for number in 0..threads {
        let mine = places.iter().skip(number).step_by(threads).cloned().collect();
        readers.push(Reader::new(&shared, number, mine, random.fork()).map_err(ProveError::Setup)?);
    }
    let start_ns = shared.start_ns;
    let mut told_ns = start_ns;
    let mut tell = |phase: &'static str| {
        let now = monotonic_ns();
        if now - told_ns >= PROGRESS_NS {
            told_ns = now;
            progress(&Progress {
                seconds: (now - start_ns) as f64 / 1e9,
                replies: shared.replies(),
                edits: count.succeeded.load(Ordering::Relaxed),
                violations: shared.violations(),
                phase,
            });
        }
    };
    let (tally, edited, seconds) = scope(|scope| {
        let readers: Vec<_> =
            readers.into_iter().map(|reader| scope.spawn(move || reader.run())).collect();
        let mut changers = Vec::new();
        for ((subject, rule), &(_, first)) in
            subjects.iter_mut().zip(&rules.subjects).zip(first_versions)
        {
            let changer = changer(subject, rule, count, first, random.fork());
            let schedule = Schedule::new(plan.edits_per_second, plan.burst, random.fork());
            let least_gap = plan.least_gap;
            let stop = &stop_editing;
            changers.push(scope.spawn(move || changer.run(schedule, least_gap, stop)));
        }
        let mut stall = Stall::new(plan.readers.timeout);
        while !is_enough(plan, &shared, count)
            && !stall.has_lasted(shared.replies())
            && !any_finished(&readers)
        {
            std::thread::sleep(LOOK);
            tell("load");
        }
        stop_editing.store(true, Ordering::Relaxed);
        while !changers.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK);
            tell("the last edits");
        }
        let edited: Vec<SubjectReport> = changers.into_iter().map(joined).collect();
        std::thread::sleep(AFTER_EDITS);
        let seconds = (monotonic_ns() - start_ns) as f64 / 1e9;
        shared.set_phase(Phase::Rest);
        while shared.resting.load(Ordering::SeqCst) < threads && !any_finished(&readers) {
            std::thread::sleep(LOOK);
            tell("the last replies");
        }
        let rest_until_ns = monotonic_ns() + rest(plan, rules).as_nanos() as u64;
        while monotonic_ns() < rest_until_ns {
            std::thread::sleep(LOOK);
            tell("a rest before the last look");
        }
        shared.set_phase(Phase::LastLook);
        while !readers.iter().all(ScopedJoinHandle::is_finished) {
            std::thread::sleep(LOOK);
            tell("the last look");
        }
        let mut tally = Tally::new(plan.pages.len());
        readers.into_iter().for_each(|reader| tally.merge(joined(reader)));
        shared.judge_held_back(&mut tally);
        (tally, edited, seconds)
    });
    let mut report = collect(plan, rules, tally, edited, seconds);
    report.described = shared.into_described();
    Ok(report)
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A reader ends before the last look only if it panics.
fn any_finished<T>(readers: &[ScopedJoinHandle<'_, T>]) -> bool {
    readers.iter().any(ScopedJoinHandle::is_finished)
}

fn is_enough(plan: &Plan, shared: &Shared<'_>, count: &EditCount) -> bool {
    if plan.stop.load(Ordering::Relaxed) {
        return true;
    }
    match plan.duration {
        Some(duration) => monotonic_ns() - shared.start_ns >= duration.as_nanos() as u64,
        None => {
            shared.replies() >= plan.replies
                && count.succeeded.load(Ordering::Relaxed) >= plan.edits
        }
    }
}

/// The longest time by which anything may be behind.
fn rest(plan: &Plan, rules: &Rules) -> Duration {
    let lags = rules.subjects.iter().map(|subject| subject.lag_ns);
    let ages = rules.pages.iter().filter_map(|page| page.within_ns);
    plan.quiet + Duration::from_nanos(lags.chain(ages).max().unwrap_or(0))
}

/// A server that does not answer any longer ends the run.
struct Stall {
    limit_ns: u64,
    replies: u64,
    since_ns: u64,
}

impl Stall {
    fn new(timeout: Duration) -> Self {
        Self { limit_ns: 2 * timeout.as_nanos() as u64, replies: 0, since_ns: monotonic_ns() }
    }

    fn has_lasted(&mut self, replies: u64) -> bool {
        if replies != self.replies {
            (self.replies, self.since_ns) = (replies, monotonic_ns());
        }
        monotonic_ns() - self.since_ns > self.limit_ns
    }
}

fn changer<'a>(
    subject: &'a mut Subject,
    rule: &'a SubjectRule,
    count: &'a EditCount,
    version: u64,
    random: fastrand::Rng,
) -> Changer<'a> {
    let report = SubjectReport {
        name: rule.name.clone(),
        marker: rule.marker.to_string(),
        first_version: version,
        lag_ms: rule.lag_ns as f64 / 1e6,
        ..SubjectReport::default()
    };
    Changer { editors: &mut subject.editors, log: &rule.log, count, version, report, random }
}

/// The request for a page.
fn request(plan: &Plan, page: &Page) -> Vec<u8> {
    let mut text = format!("GET {} HTTP/1.1\r\nHost: {}\r\n", page.target, plan.host);
    let fields = || plan.headers.iter().chain(&page.fields);
    let names_program = |field: &String| {
        field.get(..11).is_some_and(|name| name.eq_ignore_ascii_case("user-agent:"))
    };
    if !fields().any(names_program) {
        text.push_str("User-Agent: nicache-prove\r\n");
    }
    for header in fields() {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

fn fetch_page(
    plan: &Plan,
    page: &str,
    request: &[u8],
    route: Route,
) -> Result<Fetched, ProveError> {
    let timeout = plan.readers.timeout;
    let read = |server| fetch(server, request, timeout);
    let (server, fetched) = match (route, &plan.direct) {
        (Route::Direct, Some(direct)) => {
            (direct.address, direct.within(|| read(direct.address)).flatten())
        }
        _ => (plan.server, read(plan.server)),
    };
    fetched.map_err(|source| ProveError::Fetch { page: page.to_owned(), server, source })
}

/// For each subject: the version that is there, if any, and that of the first edit.
fn first_versions(
    plan: &Plan,
    subjects: &[Subject],
    before: &[Fetched],
) -> Result<Vec<(Option<u64>, u64)>, ProveError> {
    let of = |subject: &Subject| {
        let shown = before.iter().filter_map(|page| page.largest(&subject.marker)).max();
        if let Some(first) = plan.first_version {
            return Ok((shown.filter(|&shown| shown < first.max(1)), first.max(1)));
        }
        match shown {
            Some(version) if version >= VERSION_MAX => {
                Err(ProveError::VersionTooLarge { subject: subject.name.clone(), version })
            }
            shown => Ok((shown, shown.unwrap_or(0) + 1)),
        }
    };
    subjects.iter().map(of).collect()
}

/// Learns which page shows what, from the server itself if it can be asked.
fn page_rules(
    plan: &Plan,
    subjects: &[SubjectRule],
    requests: &[Vec<u8>],
    before: &[Fetched],
) -> Result<Vec<PageRule>, ProveError> {
    let route = if plan.direct.is_some() { Route::Direct } else { Route::Proved };
    // Whoever is behind may show for a while what was there before there were markers.
    let patience = plan.quiet
        + Duration::from_nanos(subjects.iter().map(|subject| subject.lag_ns).max().unwrap_or(0));
    let until_ns = monotonic_ns() + patience.as_nanos() as u64;
    let mut rules = Vec::new();
    let mut after = Vec::new();
    for (page, request) in plan.pages.iter().zip(requests) {
        let shows = loop {
            let fetched = fetch_page(plan, &page.target, request, route)?;
            match shown_on(page, &fetched, subjects) {
                Ok(shows) => {
                    after.push(fetched.body);
                    break shows;
                }
                Err(error) if monotonic_ns() > until_ns => return Err(error),
                Err(_) => std::thread::sleep(TRY_AGAIN),
            }
        };
        rules.push(PageRule {
            target: page.name(),
            shows,
            within_ns: page.within.map(|within| within.as_nanos() as u64),
            atomic: page.atomic,
            steady: page.steady,
            own: page.says.as_ref().map(|says| Finder::new(says.as_bytes()).into_owned()),
            floors: subjects.iter().map(|_| Floor::default()).collect(),
            sightings: subjects.iter().map(|_| Sightings::default()).collect(),
        });
    }
    let is_open = |rule: &PageRule| rule.steady && rule.own.is_none();
    for (index, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| is_open(rule)) {
        rule.own = own_text(&plan.pages[index].target, index, &before[index].body, &after)
            .map(|own| Finder::new(own).into_owned());
    }
    for (index, subject) in subjects.iter().enumerate() {
        if !rules.iter().any(|page| page.shows.contains(&index)) {
            return Err(ProveError::NotShown {
                subject: subject.name.clone(),
                marker: subject.marker.to_string(),
            });
        }
    }
    Ok(rules)
}

/// A word with the page's own path that was on the page `before` the first edits and is on it now,
/// and on none of the others.
fn own_text<'a>(
    target: &str,
    page: usize,
    before: &[u8],
    pages: &'a [Vec<u8>],
) -> Option<&'a [u8]> {
    // Shorter ones are part of too much.
    if target.len() < 4 {
        return None;
    }
    let (path, is_there) =
        (Finder::new(target), |word: &[u8], body: &[u8]| memmem::find(body, word).is_some());
    let ends = |byte: &u8| byte.is_ascii_whitespace() || b"\"'<>".contains(byte);
    let mut words = pages[page]
        .split(ends)
        .filter(|word| word.len() <= OWN_BYTES_MAX && path.find(word).is_some());
    let others =
        || pages.iter().enumerate().filter(|(other, _)| *other != page).map(|(_, body)| body);
    words.find(|word| is_there(word, before) && !others().any(|other| is_there(word, other)))
}

/// The subjects of a page.
fn shown_on(
    page: &Page,
    fetched: &Fetched,
    subjects: &[SubjectRule],
) -> Result<Vec<usize>, ProveError> {
    if fetched.status != 200 {
        return Err(ProveError::PageStatus { page: page.target.clone(), status: fetched.status });
    }
    if let Some(names) = &page.shows {
        let find = |name: &String| {
            subjects.iter().position(|subject| subject.name == *name).ok_or_else(|| {
                ProveError::UnknownSubject { page: page.target.clone(), subject: name.clone() }
            })
        };
        return names.iter().map(find).collect();
    }
    let is_shown = |&subject: &usize| fetched.largest(&subjects[subject].marker).is_some();
    let shows: Vec<usize> = (0..subjects.len()).filter(is_shown).collect();
    if shows.is_empty() && page.within.is_none() {
        let markers: Vec<String> =
            subjects.iter().map(|subject| subject.marker.to_string()).collect();
        return Err(ProveError::NothingShown {
            page: page.target.clone(),
            markers: markers.join(", "),
        });
    }
    Ok(shows)
}

fn places(plan: &Plan) -> Vec<Place> {
    let direct = plan.direct.as_ref().map_or(0, |_| plan.readers.direct_connections);
    let total = plan.readers.connections + direct;
    let place = |number: usize| {
        let from = &plan.readers.from;
        let direct = plan.direct.clone().filter(|_| number >= plan.readers.connections);
        let from = (!from.is_empty()).then(|| from[number % from.len()]);
        Place { number, server: plan.server, direct, from }
    };
    (0..total).map(place).collect()
}

fn collect(
    plan: &Plan,
    rules: &Rules,
    tally: Tally,
    mut edited: Vec<SubjectReport>,
    seconds: f64,
) -> Report {
    for (subject, &lag_ns) in edited.iter_mut().zip(&tally.measured.server_lag_ns) {
        subject.server_lag_ms = lag_ns as f64 / 1e6;
    }
    for (subject, rule) in edited.iter_mut().zip(&rules.subjects) {
        subject.as_server = rule.as_server;
    }
    let pages = rules.pages.iter().enumerate().map(|(index, page)| PageReport {
        target: page.target.clone(),
        shows: page.shows.iter().map(|&subject| rules.subjects[subject].name.clone()).collect(),
        replies: tally.pages[index].0,
        violations: tally.pages[index].1,
        within_ms: page.within_ns.map(|ns| ns as f64 / 1e6),
        age_ms: tally.measured.age_ns.get(index).map_or(0.0, |&ns| ns as f64 / 1e6),
        lacking: tally.measured.lacking.get(index).copied().unwrap_or(0),
        own: page.own.as_ref().map(|own| String::from_utf8_lossy(own.needle()).into_owned()),
    });
    Report {
        seconds,
        replies: tally.replies,
        direct_replies: tally.direct_replies,
        last_replies: tally.last_replies,
        body_bytes: tally.body_bytes,
        connections: tally.connections,
        connect_failures: tally.connect_failures,
        unanswered: tally.unanswered,
        statuses: tally.statuses,
        violations: tally.violations,
        as_old_as_server: tally.as_old_as_server,
        breaches: tally.breaches,
        direct_breaches: tally.direct_breaches,
        subjects: edited,
        pages: pages.collect(),
        described: Vec::new(),
        replies_needed: plan.replies,
        edits_needed: plan.edits,
    }
}
