//! What is told of a run: medians with the least and the most, stale replies of all rounds
//! together, as a table and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::cell::{FULL, Sample};
use super::page::Page;
use super::subject::Subject;
use super::watchers::{AIM, CONNECTIONS, Cost, PAGES, WatchersSample};
use crate::Summary;
use crate::wire::grouped;

/// Most reasons told of a card that did not answer.
const REASONS_MAX: usize = 4;

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was measured.
    pub setting: Setting,
    /// Medians and sums.
    pub cells: Vec<Cell>,
    /// Subjects that did not take part.
    pub skipped: Vec<Skipped>,
    /// Measurements that failed.
    pub failures: Vec<Failure>,
    /// What the cells are of.
    pub samples: Vec<Sample>,
    /// Measurements of what watching costs.
    pub watchers: Vec<WatchersSample>,
}

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Times that everything was measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Settings of the server.
    pub server: String,
    /// Settings of nginx as a cache.
    pub nginx_cache: String,
    /// Settings of Varnish.
    pub varnish: String,
    /// Settings of nicache.
    pub nicache: String,
    /// Versions of the programs.
    pub versions: Vec<String>,
    /// Share of the CPUs that was busy before the run, 0 to 1.
    pub load_before: f64,
    /// Whether that was too much for figures that mean something.
    pub busy: bool,
    /// Whether another nicache ran before, whose watchers burden the whole machine.
    pub other_nicache: bool,
    /// Whether the run was ended before its end.
    pub stopped: bool,
}

/// A subject that did not take part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which subject did not take part.
    pub subject: Subject,
    /// Why it did not take part.
    pub reason: String,
}

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Who should have answered.
    pub subject: Subject,
    /// What was asked for.
    pub page: Page,
    /// How often the page changed; `None`: it was about the watchers' cost.
    pub edits_per_s: Option<u32>,
    /// When, from 0.
    pub round: usize,
    /// Why the measurement failed.
    pub reason: String,
}

impl Failure {
    /// A failure with an error and all its causes as the reason.
    pub fn new(
        subject: Subject,
        page: Page,
        edits_per_s: Option<u32>,
        round: usize,
        error: &anyhow::Error,
    ) -> Self {
        Self { subject, page, edits_per_s, round, reason: format!("{error:#}") }
    }
}

/// All samples of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Who answered.
    pub subject: Subject,
    /// What was asked for.
    pub page: Page,
    /// How often it changed.
    pub edits_per_s: u32,
    /// Samples.
    pub samples: usize,
    /// Replies per second.
    pub requests_per_s: Summary,
    /// Median latency.
    pub p50_us: Summary,
    /// 99th percentile of the latency.
    pub p99_us: Summary,
    /// Requests that PHP executed, per second.
    pub executions_per_s: Summary,
    /// CPU time per request of the serving side.
    pub server_cpu_us: Summary,
    /// CPU time per request of the whole machine.
    pub machine_cpu_us: Summary,
    /// Busy share of the client's CPU.
    pub client_busy: Summary,
    /// Busy share of the serving side's CPU.
    pub server_busy: Summary,
    /// Share of requests that the card answered; all zero without a card.
    pub hit_share: Summary,
    /// Edits in all samples.
    pub edits: u64,
    /// Replies of all samples whose body was looked at.
    pub checked: u64,
    /// Checked replies of all samples that were stale.
    pub stale: u64,
    /// The worst staleness of all samples.
    pub worst_stale_ms: f64,
    /// Replies of all samples with a version that could not be.
    pub impossible: u64,
}

impl Cell {
    fn of(samples: &[&Sample]) -> Option<Self> {
        let first = samples.first()?;
        let summary =
            |value: fn(&Sample) -> f64| Summary::of(samples.iter().map(|sample| value(sample)));
        let sum = |value: fn(&Sample) -> u64| samples.iter().map(|sample| value(sample)).sum();
        Some(Self {
            subject: first.subject,
            page: first.page,
            edits_per_s: first.edits_per_s,
            samples: samples.len(),
            requests_per_s: summary(|s| s.requests_per_s),
            p50_us: summary(|s| s.p50_us),
            p99_us: summary(|s| s.p99_us),
            executions_per_s: summary(|s| s.executions_per_s),
            server_cpu_us: summary(|s| s.server_cpu_us),
            machine_cpu_us: summary(|s| s.machine_cpu_us),
            client_busy: summary(|s| s.client_busy),
            server_busy: summary(|s| s.server_busy),
            hit_share: Summary::of(samples.iter().filter_map(|sample| sample.hit_share)),
            edits: sum(|s| s.edits),
            checked: sum(|s| s.checked),
            stale: sum(|s| s.stale),
            worst_stale_ms: samples.iter().map(|sample| sample.worst_stale_ms).fold(0.0, f64::max),
            impossible: sum(|s| s.impossible),
        })
    }

    /// What keeps it from being faster, as far as a full CPU tells.
    pub fn limit(&self) -> Limit {
        match (self.client_busy.median >= FULL, self.server_busy.median >= FULL) {
            (true, false) => Limit::Client,
            (false, true) => Limit::Server,
            (true, true) => Limit::Both,
            (false, false) => Limit::Neither,
        }
    }
}

/// Whose CPU is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The load generator's: the subject could do more.
    Client,
    /// The serving side's.
    Server,
    /// Both CPUs are full.
    Both,
    /// Neither: waiting for locks, timers, or each other.
    Neither,
}

impl Limit {
    const ALL: [Self; 4] = [Self::Client, Self::Server, Self::Both, Self::Neither];

    fn label(self) -> &'static str {
        match self {
            Self::Client => "the load generator's CPU is full, the subject could do more",
            Self::Server => "the serving side's CPU is full",
            Self::Both => "both CPUs are full",
            Self::Neither => "no CPU is full",
        }
    }
}

impl Report {
    /// Makes the report of all samples.
    pub fn new(
        setting: Setting,
        samples: Vec<Sample>,
        watchers: Vec<WatchersSample>,
        skipped: Vec<Skipped>,
        failures: Vec<Failure>,
    ) -> Self {
        let kind = |sample: &Sample| (sample.page, sample.edits_per_s, sample.subject);
        let mut kinds: Vec<_> = samples.iter().map(kind).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let cells = kinds.into_iter().filter_map(|wanted| {
            let of: Vec<&Sample> = samples.iter().filter(|sample| kind(sample) == wanted).collect();
            Cell::of(&of)
        });
        Self { setting, cells: cells.collect(), skipped, failures, samples, watchers }
    }

    /// The cell of a kind.
    pub fn cell(&self, page: Page, edits_per_s: u32, subject: Subject) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            (cell.page, cell.edits_per_s, cell.subject) == (page, edits_per_s, subject)
        })
    }

    /// Pages that were measured.
    pub fn pages(&self) -> Vec<Page> {
        Page::ALL
            .into_iter()
            .filter(|page| self.cells.iter().any(|cell| cell.page == *page))
            .collect()
    }

    /// Subjects that were measured.
    pub fn subjects(&self) -> Vec<Subject> {
        Subject::ALL
            .into_iter()
            .filter(|subject| self.cells.iter().any(|cell| cell.subject == *subject))
            .collect()
    }

    /// Edits per second, few to many.
    pub fn rates(&self) -> Vec<u32> {
        let mut rates: Vec<u32> = self.cells.iter().map(|cell| cell.edits_per_s).collect();
        rates.sort_unstable();
        rates.dedup();
        rates
    }

    /// Whether everything was measured as planned, and nobody saw what cannot be.
    pub fn is_complete(&self) -> bool {
        self.failures.is_empty()
            && !self.setting.stopped
            && self.cells.iter().all(|cell| cell.impossible == 0)
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        for page in self.pages() {
            self.write_page(&mut text, page);
        }
        self.write_watchers(&mut text);
        self.write_notes(&mut text);
        text
    }

    fn write_page(&self, text: &mut String, page: Page) {
        let _ = writeln!(
            text,
            "{} ({}), {} connections",
            page.label(),
            page.path(),
            page.connections()
        );
        let _ = writeln!(
            text,
            "  {:>7}  {:<18}{:>27}{:>9}{:>9}{:>9}{:>9}{:>11}{:>12}{:>10}  {:>15}{:>10}",
            "edits/s",
            "answered by",
            "requests/s (min..max)",
            "server=",
            "p50 us",
            "p99 us",
            "PHP/s",
            "server us",
            "machine us",
            "busy c/s",
            "stale/checked",
            "worst ms"
        );
        for rate in self.rates() {
            let server =
                self.cell(page, rate, Subject::Server).map(|cell| cell.requests_per_s.median);
            for (number, subject) in self.subjects().into_iter().enumerate() {
                let Some(cell) = self.cell(page, rate, subject) else { continue };
                let rate = if number == 0 { rate.to_string() } else { String::new() };
                let ratio = server.map_or_else(
                    || "-".to_owned(),
                    |server| format!("{:.1}", cell.requests_per_s.median / server),
                );
                let speed = &cell.requests_per_s;
                let speed = format!(
                    "{} ({}..{})",
                    grouped(speed.median),
                    grouped(speed.min),
                    grouped(speed.max)
                );
                let busy = format!(
                    "{:.0}/{:.0}%",
                    cell.client_busy.median * 100.0,
                    cell.server_busy.median * 100.0
                );
                let stale = format!("{}/{}", cell.stale, cell.checked);
                let worst = if cell.stale > 0 {
                    format!("{:.0}", cell.worst_stale_ms)
                } else {
                    "-".to_owned()
                };
                let _ = writeln!(
                    text,
                    "  {rate:>7}  {:<18}{speed:>27}{ratio:>9}{:>9.0}{:>9.0}{:>9.1}{:>11.1}{:>12.1}{busy:>10}  {stale:>15}{worst:>10}",
                    subject.label(),
                    cell.p50_us.median,
                    cell.p99_us.median,
                    cell.executions_per_s.median,
                    cell.server_cpu_us.median,
                    cell.machine_cpu_us.median,
                );
            }
        }
        for limit in Limit::ALL {
            let of: Vec<&str> = self
                .subjects()
                .into_iter()
                .filter(|subject| {
                    self.cell(page, 0, *subject).is_some_and(|cell| cell.limit() == limit)
                })
                .map(Subject::label)
                .collect();
            if !of.is_empty() {
                let _ = writeln!(text, "  Without edits, {}: {}.", limit.label(), of.join("; "));
            }
        }
        self.write_card(text, page);
        text.push('\n');
    }

    /// What the card answered, and why not the rest.
    fn write_card(&self, text: &mut String, page: Page) {
        let cells =
            self.rates().into_iter().filter_map(|rate| self.cell(page, rate, Subject::Nicache));
        for cell in cells.filter(|cell| cell.hit_share.max > 0.0 || cell.executions_per_s.max > 0.0)
        {
            let of = |sample: &&Sample| {
                (sample.page, sample.edits_per_s, sample.subject)
                    == (page, cell.edits_per_s, Subject::Nicache)
            };
            let last = self.samples.iter().rfind(of);
            let reasons = last.map(|sample| &sample.card_reasons[..]).unwrap_or_default();
            let reasons =
                reasons.iter().take(REASONS_MAX).map(|(name, count)| format!("{name} {count}"));
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            let _ = writeln!(
                text,
                "  nicache, {} edits/s: the card answered {:.2} % of the requests; last round: {}",
                cell.edits_per_s,
                cell.hit_share.median * 100.0,
                if reasons.is_empty() { "nothing refused" } else { &reasons }
            );
        }
        let measured = |sample: &&Sample| (sample.page, sample.subject) == (page, Subject::Nicache);
        let pairs: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter(measured)
            .filter_map(|sample| Some((sample.requests_per_s, sample.file_requests_per_s?)))
            .collect();
        if !pairs.is_empty() {
            let file = Summary::of(pairs.iter().map(|(_, file)| *file));
            let share = Summary::of(pairs.iter().map(|(page, file)| page / file));
            let _ = writeln!(
                text,
                "  nicache, a file with the same bytes instead: {} requests/s ({}..{}); the page: {:.2} of that ({:.2}..{:.2})",
                grouped(file.median),
                grouped(file.min),
                grouped(file.max),
                share.median,
                share.min,
                share.max
            );
        }
    }

    fn write_watchers(&self, text: &mut String) {
        for page in PAGES {
            self.write_watchers_of(page, text);
        }
    }

    fn write_watchers_of(&self, page: Page, text: &mut String) {
        let samples: Vec<&WatchersSample> =
            self.watchers.iter().filter(|sample| sample.page == page).collect();
        if samples.is_empty() {
            return;
        }
        let _ = writeln!(text, "What watching costs: {} through the card, bypassed", page.label());
        let _ = writeln!(
            text,
            "  {:>11}  {:<28}{:>27}{:>11}{:>13}",
            "connections", "", "requests/s (min..max)", "server us", "programs us"
        );
        for connections in CONNECTIONS {
            for (number, subject) in Subject::WATCHERS.into_iter().enumerate() {
                let of = || {
                    samples.iter().filter(|sample| {
                        (sample.subject, sample.connections) == (subject, connections)
                    })
                };
                let summary = |value: fn(&WatchersSample) -> f64| {
                    Summary::of(of().map(|sample| value(sample)))
                };
                let speed = summary(|sample| sample.requests_per_s);
                let speed = format!(
                    "{} ({}..{})",
                    grouped(speed.median),
                    grouped(speed.min),
                    grouped(speed.max)
                );
                let number = if number == 0 { connections.to_string() } else { String::new() };
                let _ = writeln!(
                    text,
                    "  {number:>11}  {:<28}{speed:>27}{:>11.1}{:>13.1}",
                    subject.label(),
                    summary(|sample| sample.server_cpu_us).median,
                    summary(|sample| sample.programs_cpu_us).median,
                );
            }
            if let Some(cost) = Cost::of(&self.watchers, page, connections) {
                let share = |share: Summary| {
                    format!(
                        "{:+.1} % ({:+.1}..{:+.1})",
                        share.median * 100.0,
                        share.min * 100.0,
                        share.max * 100.0
                    )
                };
                let _ = writeln!(
                    text,
                    "  {connections} at a time, {} pairs: requests/s lost {}, CPU per request more: serving side {}, its programs {}: the aim \
                     (at most {:.0} %) is {}met",
                    cost.pairs,
                    share(cost.requests_lost),
                    share(cost.server_cpu_more),
                    share(cost.programs_cpu_more),
                    AIM * 100.0,
                    if cost.meets_aim() { "" } else { "not " }
                );
            }
        }
        text.push('\n');
    }

    fn write_notes(&self, text: &mut String) {
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "Medians of {} rounds of {} s; stale replies of all rounds together. Load (wrk), checking client and editor on cpu 0, the whole serving \
             side on cpu 1, in namespaces of their own; CUBIC.\nA reply is stale if the edit that replaced what it shows had been completed before \
             its request was sent; \"worst\" is how long before. \"PHP/s\" are the requests\nthat PHP executed. \"server us\" and \"machine us\" are CPU \
             time per request: of the serving side's processes with those of the application, and of the whole machine.\n\"busy\" is the share \
             of the client's and the serving side's CPU.\nServer: {}.\nnginx cache: {}.\nVarnish: {}.\nnicache: {}.\nLinux {}, {} CPUs; {}.",
            setting.rounds,
            setting.seconds,
            setting.server,
            setting.nginx_cache,
            setting.varnish,
            setting.nicache,
            setting.kernel,
            setting.cpus,
            setting.versions.join(", ")
        );
        if setting.busy {
            let _ = writeln!(
                text,
                "Warning: {:.0} % of the machine was busy before the run: these figures say little.",
                setting.load_before * 100.0
            );
        }
        if setting.other_nicache {
            let _ = writeln!(
                text,
                "Warning: another nicache runs: its watchers burden all subjects, and what watching costs cannot be told."
            );
        }
        if setting.stopped {
            let _ = writeln!(
                text,
                "Stopped before its end: some measurements are of fewer rounds, or missing."
            );
        }
        for cell in self.cells.iter().filter(|cell| cell.impossible > 0) {
            let (subject, page) = (cell.subject.label(), cell.page.label());
            let _ = writeln!(
                text,
                "Odd: {subject}, {page}, {} edits/s: {} replies showed no version, or one that nobody had written.",
                cell.edits_per_s, cell.impossible
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "Skipped: {}: {}", skipped.subject.label(), skipped.reason);
        }
        for failure in &self.failures {
            let page = failure.page.label();
            let rate = failure.edits_per_s.map_or_else(
                || ", cost of watching".to_owned(),
                |rate| format!(", {rate} edits/s"),
            );
            let (subject, round) = (failure.subject.label(), failure.round + 1);
            let _ = writeln!(
                text,
                "Failed: {subject}, {page}{rate}, round {round}: {}",
                failure.reason
            );
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn report() -> Report {
        let setting = Setting {
            rounds: 2,
            seconds: 1,
            cpus: 2,
            kernel: "6.18".into(),
            server: "1 worker".into(),
            nginx_cache: "lock on".into(),
            varnish: "grace 10s".into(),
            nicache: "--recheck 1s".into(),
            versions: vec!["nginx/1.22".into()],
            load_before: 0.5,
            busy: true,
            other_nicache: true,
            stopped: false,
        };
        let mut samples = Vec::new();
        for (number, subject) in Subject::ALL.into_iter().enumerate() {
            for page in Page::ALL {
                for edits_per_s in super::super::EDIT_RATES {
                    for round in [0, 1] {
                        samples.push(sample(subject, page, edits_per_s, round, number));
                    }
                }
            }
        }
        let watchers = vec![
            super::super::watchers::tests::sample(Subject::CardBypassedUnwatched, 0, 1000.0, 500.0),
            super::super::watchers::tests::sample(Subject::CardBypassed, 0, 970.0, 510.0),
        ];
        Report::new(setting, samples, watchers, Vec::new(), Vec::new())
    }

    fn sample(
        subject: Subject,
        page: Page,
        edits_per_s: u32,
        round: usize,
        number: usize,
    ) -> Sample {
        let stale = if subject == Subject::Nginx60 { u64::from(edits_per_s) * 10 } else { 0 };
        Sample {
            subject,
            page,
            edits_per_s,
            round,
            requests: 500,
            requests_per_s: 30.0 * 7_f64.powi(number as i32) * (1 + 2 * round) as f64,
            p50_us: 10.0,
            p99_us: 20.0,
            executions: 3,
            executions_per_s: 3.0,
            server_cpu_us: 4.0,
            machine_cpu_us: 8.0,
            client_busy: if number > 3 { 1.0 } else { 0.2 },
            server_busy: 0.99,
            edits: u64::from(edits_per_s),
            checked: 200,
            stale,
            worst_stale_ms: stale as f64 * (1 + round) as f64,
            impossible: 0,
            hit_share: (subject == Subject::Nicache).then_some(0.75),
            file_requests_per_s: (subject == Subject::Nicache && edits_per_s == 0).then_some(1e6),
            card_reasons: vec![("bypass_cookie".into(), 5)],
        }
    }

    #[test]
    fn speeds_are_medians_and_stale_replies_are_summed() {
        let report = report();
        assert_eq!(report.cells.len(), Subject::ALL.len() * Page::ALL.len() * 3);
        let cell = report.cell(Page::PhpItem, 10, Subject::Nginx60).unwrap();
        assert_eq!(
            (cell.samples, cell.checked, cell.stale, cell.worst_stale_ms),
            (2, 400, 200, 200.0)
        );
        assert_eq!(cell.requests_per_s, Summary { median: 420.0, min: 210.0, max: 630.0 });
        assert_eq!((cell.limit(), report.cells[5].limit()), (Limit::Server, Limit::Both));
    }

    #[test]
    fn the_table_tells_what_matters() {
        let table = report().table();
        for part in [
            "420 (210..630)",
            "200/400",
            "50 % of the machine was busy",
            "another nicache runs",
            "both CPUs are full: Varnish, 1 s; nicache.",
            "the card answered 75.00 % of the requests; last round: bypass_cookie 5",
            "a file with the same bytes instead: 1,000,000 requests/s",
            "8 at a time, 1 pairs: requests/s lost +3.0 %",
            "is met",
        ] {
            assert!(table.contains(part), "{part} is not in\n{table}");
        }
        assert!(!table.contains("Odd:") && !table.contains("Failed:"), "{table}");
    }

    #[test]
    fn a_saved_report_is_the_same() {
        let report = report();
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }

    #[test]
    fn failures_are_told() {
        let mut report = report();
        let error = anyhow::anyhow!("inner").context("outer");
        report.failures.push(Failure::new(Subject::Nicache, Page::PhpItem, Some(1), 0, &error));
        report.failures.push(Failure::new(Subject::CardBypassed, Page::PhpItem, None, 1, &error));
        let table = report.table();
        assert!(
            table.contains("Failed: nicache, PHP + MariaDB page, 1 edits/s, round 1: outer: inner"),
            "{table}"
        );
        assert!(
            table.contains(
                "Failed: card, bypassed, watchers, PHP + MariaDB page, cost of watching, round 2: outer: inner"
            ),
            "{table}"
        );
    }
}
