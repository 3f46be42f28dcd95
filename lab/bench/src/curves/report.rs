//! What is told of a run: a cell for each subject, object and load, as a table and as JSON.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::arrivals::Spacing;
use super::cell::{HITS_MIN, Load, Outcome, SUBJECTS, Sample};
use super::load::{AtFullSpeed, AtRate, WINDOW_NS};
use super::statistics::{Spread, TimeSummary};
use crate::Summary;
use crate::wire::{Object, Subject, grouped};

/// Everything about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How it was measured.
    pub setting: Setting,
    /// A connection for each request, at rates.
    pub rates: Vec<RateCell>,
    /// Connections that stay open, at full speed.
    pub connections: Vec<ConnectionsCell>,
    /// Measurements that failed.
    pub failures: Vec<Failure>,
    /// What the cells are made of.
    pub samples: Vec<Sample>,
}

/// How a run was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Times that everything was measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// How arrivals follow each other.
    pub spacing: Spacing,
    /// What chance follows from.
    pub seed: u64,
    /// Connections at a time at most; arrivals beyond are refused.
    pub connections_max: u32,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Settings of nginx.
    pub nginx: String,
    /// Versions of the programs.
    pub versions: Vec<String>,
    /// Share of the CPUs that was busy before the run, 0 to 1.
    pub load_before: f64,
    /// Whether that was too much for figures that mean something.
    pub busy: bool,
    /// Measurements that were made again because too many requests were not hits.
    pub repeated: u32,
}

/// A measurement that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// Who should have answered.
    pub subject: Subject,
    /// Bytes of the object.
    pub bytes: u64,
    /// What was offered.
    pub load: Load,
    /// When, from 0.
    pub round: u32,
    /// Why the measurement failed.
    pub reason: String,
}

/// All rounds of a subject, an object and a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RateCell {
    /// Who answered.
    pub subject: Subject,
    /// Bytes of the object.
    pub bytes: u64,
    /// Connections asked for per second.
    pub rate: u32,
    /// Completed handshakes per second, over windows of 100 ms of all rounds.
    pub connections_per_s: Spread,
    /// Replies per second, likewise.
    pub replies_per_s: Spread,
    /// From the connection's beginning to the last byte: medians of the rounds.
    pub time: TimeSummary,
    /// Share of the arrivals that were refused, because as many connections as are allowed were
    /// under way, 0 to 1.
    pub refused: f64,
    /// Connections that failed.
    pub failed: u64,
    /// The least share of hits of any round; `None`: there is no card.
    pub hits: Option<f64>,
    /// 99 % of the connections were begun at most so long after their time: the most of any round,
    /// in microseconds.
    pub late_p99_us: f64,
}

/// All rounds of a subject, an object and a number of connections.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConnectionsCell {
    /// Who answered.
    pub subject: Subject,
    /// Bytes of the object.
    pub bytes: u64,
    /// Connections that stay open.
    pub connections: u32,
    /// Replies per second, over windows of 100 ms of all rounds.
    pub replies_per_s: Spread,
    /// From the request to the last byte: medians of the rounds.
    pub time: TimeSummary,
    /// Connections that failed.
    pub failed: u64,
    /// The least share of hits of any round; `None`: there is no card.
    pub hits: Option<f64>,
}

impl Report {
    /// Makes cells of samples.
    pub fn new(setting: Setting, samples: Vec<Sample>, failures: Vec<Failure>) -> Self {
        let mut kinds: Vec<(u64, Load, Subject)> =
            samples.iter().map(|s| (s.bytes, s.load, s.subject)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let (mut rates, mut connections) = (Vec::new(), Vec::new());
        for (bytes, load, subject) in kinds {
            let of: Vec<&Sample> = samples
                .iter()
                .filter(|s| (s.bytes, s.load, s.subject) == (bytes, load, subject))
                .collect();
            let hits = of.iter().filter_map(|sample| sample.hits).reduce(f64::min);
            match load {
                Load::Rate(rate) => rates.push(rate_cell(subject, bytes, rate, hits, &of)),
                Load::Connections(number) => {
                    connections.push(connections_cell(subject, bytes, number, hits, &of));
                }
            }
        }
        Self { setting, rates, connections, failures, samples }
    }

    /// Bytes of the objects that were measured, small to large.
    pub fn sizes(&self) -> Vec<u64> {
        let rates = self.rates.iter().map(|cell| cell.bytes);
        let mut sizes: Vec<u64> =
            rates.chain(self.connections.iter().map(|cell| cell.bytes)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }

    /// The most replies per second that a subject gave at any rate: that cell.
    pub fn best(&self, bytes: u64, subject: Subject) -> Option<&RateCell> {
        let cells = self.rates.iter().filter(|cell| (cell.bytes, cell.subject) == (bytes, subject));
        cells.max_by(|one, other| one.replies_per_s.mean.total_cmp(&other.replies_per_s.mean))
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.write_best(&mut text);
        for bytes in self.sizes() {
            self.write_rates(&mut text, bytes);
            self.write_connections(&mut text, bytes);
        }
        self.write_notes(&mut text);
        text
    }

    fn write_best(&self, text: &mut String) {
        if self.rates.is_empty() {
            return;
        }
        let _ = writeln!(text, "Most replies per second, a connection for each request");
        let _ = writeln!(
            text,
            "  {:<8}{:<27}{:>11}{:>12}{:>8}",
            "object", "answered by", "replies/s", "at offered", "nginx="
        );
        for bytes in self.sizes() {
            let nginx = self.best(bytes, Subject::Nginx).map(|cell| cell.replies_per_s.mean);
            let mut name = size_label(bytes);
            for cell in SUBJECTS.iter().filter_map(|subject| self.best(bytes, *subject)) {
                let replies = cell.replies_per_s.mean;
                let ratio =
                    nginx.map_or_else(|| "-".to_owned(), |nginx| format!("{:.2}", replies / nginx));
                let label = cell.subject.label();
                let (replies, rate) = (grouped(replies), grouped(f64::from(cell.rate)));
                let _ = writeln!(text, "  {name:<8}{label:<27}{replies:>11}{rate:>12}{ratio:>8}");
                name.clear();
            }
        }
        text.push('\n');
    }

    fn write_rates(&self, text: &mut String, bytes: u64) {
        let cells: Vec<&RateCell> = self.rates.iter().filter(|cell| cell.bytes == bytes).collect();
        if cells.is_empty() {
            return;
        }
        let _ = writeln!(text, "{}, a connection for each request", size_label(bytes));
        let _ = writeln!(
            text,
            "  {:>9}  {:<25}{:>13}{:>11}{:>8}{:>10}{:>10}{:>10}{:>10}{:>9}{:>8}",
            "offered/s",
            "answered by",
            "connections/s",
            "replies/s",
            "+-",
            "mean us",
            "p50 us",
            "p99 us",
            "+- us",
            "refused",
            "failed"
        );
        let mut before = 0;
        for cell in cells {
            let rate =
                if cell.rate == before { String::new() } else { grouped(f64::from(cell.rate)) };
            before = cell.rate;
            let _ = writeln!(
                text,
                "  {rate:>9}  {:<25}{:>13}{:>11}{:>8}{:>10}{:>10}{:>10}{:>10}{:>7.1} %{:>8}",
                cell.subject.label(),
                grouped(cell.connections_per_s.mean),
                grouped(cell.replies_per_s.mean),
                grouped(cell.replies_per_s.deviation),
                grouped(cell.time.mean_us),
                grouped(cell.time.median_us),
                grouped(cell.time.p99_us),
                grouped(cell.time.deviation_us),
                100.0 * cell.refused,
                cell.failed
            );
        }
        text.push('\n');
    }

    fn write_connections(&self, text: &mut String, bytes: u64) {
        let cells: Vec<&ConnectionsCell> =
            self.connections.iter().filter(|cell| cell.bytes == bytes).collect();
        if cells.is_empty() {
            return;
        }
        let _ = writeln!(text, "{}, connections that stay open, at full speed", size_label(bytes));
        let _ = writeln!(
            text,
            "  {:>11}  {:<25}{:>11}{:>8}{:>10}{:>10}{:>10}{:>8}",
            "connections",
            "answered by",
            "requests/s",
            "+-",
            "mean us",
            "p50 us",
            "p99 us",
            "failed"
        );
        let mut before = 0;
        for cell in cells {
            let connections = if cell.connections == before {
                String::new()
            } else {
                grouped(f64::from(cell.connections))
            };
            before = cell.connections;
            let _ = writeln!(
                text,
                "  {connections:>11}  {:<25}{:>11}{:>8}{:>10}{:>10}{:>10}{:>8}",
                cell.subject.label(),
                grouped(cell.replies_per_s.mean),
                grouped(cell.replies_per_s.deviation),
                grouped(cell.time.mean_us),
                grouped(cell.time.median_us),
                grouped(cell.time.p99_us),
                cell.failed
            );
        }
        text.push('\n');
    }

    fn write_notes(&self, text: &mut String) {
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "{} of {} s each, arrivals {} (seed {}), at most {} connections at a time: arrivals beyond are refused. Means and\n\
             standard deviations (+-) of rates are over windows of {} ms; times are from the connection's beginning, or the request\n\
             on one that stays open, to the last byte. Client (which never sleeps) on cpu 0, the whole serving side on cpu 1; CUBIC.\n\
             nginx: {}.\nLinux {}, {} CPUs; {}.",
            if setting.rounds == 1 {
                "1 round".to_owned()
            } else {
                format!("{} rounds", setting.rounds)
            },
            setting.seconds,
            setting.spacing,
            setting.seed,
            setting.connections_max,
            WINDOW_NS / 1_000_000,
            setting.nginx,
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
        if setting.repeated > 0 {
            let _ = writeln!(
                text,
                "{} measurements were made again, because the card had too few hits.",
                setting.repeated
            );
        }
        for sample in
            self.samples.iter().filter(|sample| sample.hits.is_some_and(|hits| hits < HITS_MIN))
        {
            let (subject, object, load) =
                (sample.subject.label(), size_label(sample.bytes), sample.load.label());
            let hits = 100.0 * sample.hits.unwrap_or(0.0);
            let round = sample.round + 1;
            let _ =
                writeln!(text, "Few hits: {object}, {subject}, {load}, round {round}: {hits:.1} %");
        }
        for failure in &self.failures {
            let (subject, object, load) =
                (failure.subject.label(), size_label(failure.bytes), failure.load.label());
            let _ = writeln!(
                text,
                "Failed: {object}, {subject}, {load}, round {}: {}",
                failure.round + 1,
                failure.reason
            );
        }
    }
}

/// A number of bytes as people say it, such as "10 KB".
pub(super) fn size_label(bytes: u64) -> String {
    Object { bytes, connections: 1 }.label()
}

fn rate_cell(
    subject: Subject,
    bytes: u64,
    rate: u32,
    hits: Option<f64>,
    of: &[&Sample],
) -> RateCell {
    let rounds: Vec<&AtRate> = of
        .iter()
        .filter_map(|sample| match &sample.outcome {
            Outcome::Rate(at_rate) => Some(at_rate),
            Outcome::Connections(_) => None,
        })
        .collect();
    let offered: u64 = rounds.iter().map(|round| round.offered).sum();
    let refused: u64 = rounds.iter().map(|round| round.refused).sum();
    RateCell {
        subject,
        bytes,
        rate,
        connections_per_s: per_second(rounds.iter().map(|round| &round.connected[..])),
        replies_per_s: per_second(rounds.iter().map(|round| &round.replied[..])),
        time: middle(rounds.iter().map(|round| round.time)),
        refused: refused as f64 / offered.max(1) as f64,
        failed: rounds.iter().map(|round| round.failures.total()).sum(),
        hits,
        late_p99_us: rounds.iter().map(|round| round.late_p99_us).fold(0.0, f64::max),
    }
}

fn connections_cell(
    subject: Subject,
    bytes: u64,
    connections: u32,
    hits: Option<f64>,
    of: &[&Sample],
) -> ConnectionsCell {
    let rounds: Vec<&AtFullSpeed> = of
        .iter()
        .filter_map(|sample| match &sample.outcome {
            Outcome::Connections(at_full_speed) => Some(at_full_speed),
            Outcome::Rate(_) => None,
        })
        .collect();
    ConnectionsCell {
        subject,
        bytes,
        connections,
        replies_per_s: per_second(rounds.iter().map(|round| &round.replied[..])),
        time: middle(rounds.iter().map(|round| round.time)),
        failed: rounds.iter().map(|round| round.failures.total()).sum(),
        hits,
    }
}

fn per_second<'a>(windows: impl Iterator<Item = &'a [u32]>) -> Spread {
    Spread::of(windows.flatten().map(|count| f64::from(*count) * 1e9 / WINDOW_NS as f64))
}

/// Medians of each figure.
fn middle(times: impl Iterator<Item = TimeSummary> + Clone) -> TimeSummary {
    let median =
        |value: fn(&TimeSummary) -> f64| Summary::of(times.clone().map(|time| value(&time))).median;
    TimeSummary {
        count: times.clone().map(|time| time.count).sum(),
        mean_us: median(|time| time.mean_us),
        median_us: median(|time| time.median_us),
        p99_us: median(|time| time.p99_us),
        deviation_us: median(|time| time.deviation_us),
    }
}

#[cfg(test)]
pub(super) mod tests;
