//! What came out, as data and as a table.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::cell::Sample;
use crate::Summary;
use crate::wire::grouped;

/// A row of the paper's Table 1: two cards, PCI of 64 bits at 33 MHz.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PaperRow {
    /// Trace.
    pub trace: &'static str,
    /// Megabytes per card; 0: none.
    pub memory_mb: u64,
    /// Content kept off the bus, in percent.
    pub content: f64,
    /// Overhead kept off the bus, in percent.
    pub overhead: f64,
    /// Content in Mb/s.
    pub mbit_per_s: f64,
    /// Replies per second.
    pub requests_per_s: f64,
}

const fn paper(
    trace: &'static str,
    memory_mb: u64,
    content: f64,
    overhead: f64,
    mbit_per_s: f64,
    requests_per_s: f64,
) -> PaperRow {
    PaperRow { trace, memory_mb, content, overhead, mbit_per_s, requests_per_s }
}

/// Kim et al. 2002, Table 1.
pub const PAPER: [PaperRow; 20] = [
    paper("Berkeley", 0, 0.0, 0.0, 161.0, 828.0),
    paper("Berkeley", 4, 4.0, 2.0, 160.0, 822.0),
    paper("Berkeley", 8, 6.0, 2.0, 160.0, 821.0),
    paper("Berkeley", 16, 9.0, 3.0, 160.0, 820.0),
    paper("IBM", 0, 0.0, 0.0, 502.0, 22777.0),
    paper("IBM", 4, 44.0, 15.0, 500.0, 22691.0),
    paper("IBM", 8, 52.0, 17.0, 501.0, 22743.0),
    paper("IBM", 16, 60.0, 20.0, 501.0, 22726.0),
    paper("NASA", 0, 0.0, 0.0, 1198.0, 2755.0),
    paper("NASA", 4, 13.0, 8.0, 1294.0, 2978.0),
    paper("NASA", 8, 51.0, 28.0, 1509.0, 3472.0),
    paper("NASA", 16, 70.0, 38.0, 1571.0, 3614.0),
    paper("Rice", 0, 0.0, 0.0, 1126.0, 4361.0),
    paper("Rice", 4, 27.0, 17.0, 1253.0, 4869.0),
    paper("Rice", 8, 40.0, 23.0, 1287.0, 5021.0),
    paper("Rice", 16, 51.0, 28.0, 1322.0, 5152.0),
    paper("World Cup", 0, 0.0, 0.0, 794.0, 15190.0),
    paper("World Cup", 4, 49.0, 21.0, 813.0, 15545.0),
    paper("World Cup", 8, 66.0, 27.0, 830.0, 15889.0),
    paper("World Cup", 16, 83.0, 34.0, 849.0, 16246.0),
];

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// How often everything was measured.
    pub rounds: u32,
    /// Sessions at once.
    pub clients: usize,
    /// Of the machine.
    pub cpus: usize,
    /// Version of the kernel.
    pub kernel: String,
    /// Share of the machine that others used before the run.
    pub load_before: f64,
    /// Others used so much of the machine before the run that figures may be wrong.
    pub busy: bool,
    /// The logs.
    pub traces: Vec<TraceFacts>,
}

/// What a log is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceFacts {
    /// Its name.
    pub name: String,
    /// Requests that were replayed.
    pub requests: usize,
    /// Requests that it has.
    pub requests_of_log: usize,
    /// Bytes of all replies.
    pub content_bytes: u64,
    /// Bytes of all files that are asked for.
    pub footprint_bytes: u64,
}

/// A cell over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Cards.
    pub cards: u32,
    /// Bytes of each card's memory.
    pub memory_bytes: u64,
    /// The bus is the paper's.
    pub is_modelled: bool,
    /// Share of content kept off the bus, against all content that was sent.
    pub content_kept: Summary,
    /// Share of content kept off the bus, predicted by playing back the trace with as many sessions
    /// at once.
    pub content_kept_predicted: Option<f64>,
    /// Share of content kept off the bus, predicted by playing back the trace one request after the
    /// other.
    pub content_kept_in_order: Option<f64>,
    /// Share of overhead kept off the bus, against no cache.
    pub overhead_kept: Option<f64>,
    /// Share of all traffic kept off the bus, against no cache.
    pub traffic_kept: Option<f64>,
    /// Content in 10^6 bits per second.
    pub mbit_per_s: Summary,
    /// Replies per second.
    pub requests_per_s: Summary,
    /// Throughput against no cache, minus 1.
    pub benefit: Option<f64>,
    /// Share of the time for which the modelled bus was taken.
    pub utilisation: Option<f64>,
    /// CPU time of the serving side per reply, in microseconds.
    pub server_cpu_us: Summary,
    /// Bytes (or bytes' time) over the bus for each byte of body: content, overhead, network
    /// headers, application headers, other.
    pub per_body_byte: [f64; 5],
}

impl Row {
    fn of(samples: &[&Sample], predicted: Option<&Prediction>) -> Self {
        let first = samples[0];
        let summary =
            |value: fn(&Sample) -> f64| Summary::of(samples.iter().map(|sample| value(sample)));
        let share = |value: fn(&Sample) -> u64| {
            Summary::of(
                samples.iter().map(|sample| value(sample) as f64 / sample.body_bytes.max(1) as f64),
            )
            .median
        };
        Self {
            trace: first.trace.clone(),
            cards: first.cards,
            memory_bytes: first.memory_bytes,
            is_modelled: first.is_modelled,
            content_kept: summary(|sample| {
                1.0 - sample.content as f64 / sample.body_bytes.max(1) as f64
            }),
            content_kept_predicted: predicted.map(|prediction| prediction.at_once),
            content_kept_in_order: predicted.map(|prediction| prediction.in_order),
            overhead_kept: None,
            traffic_kept: None,
            mbit_per_s: summary(|sample| sample.mbit_per_s),
            requests_per_s: summary(|sample| sample.requests_per_s),
            benefit: None,
            utilisation: first.utilisation.map(|_| {
                Summary::of(samples.iter().filter_map(|sample| sample.utilisation)).median
            }),
            server_cpu_us: summary(|sample| sample.server_cpu_us),
            per_body_byte: [
                share(|sample| sample.content),
                share(|sample| sample.overhead),
                share(|sample| sample.network_headers),
                share(|sample| sample.application_headers),
                share(|sample| sample.other),
            ],
        }
    }

    /// Everything over the bus for each byte of body.
    pub fn traffic(&self) -> f64 {
        self.per_body_byte.iter().sum()
    }
}

/// Everything that a run has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Under which conditions.
    pub setting: Setting,
    /// The cells.
    pub rows: Vec<Row>,
}

/// What playing back a log says of the share that is kept off the bus.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Name of the trace.
    pub trace: String,
    /// Cards.
    pub cards: u32,
    /// Bytes of each card's memory.
    pub memory_bytes: u64,
    /// Requests one after the other, as in the paper.
    pub in_order: f64,
    /// With as many sessions at once as were replayed.
    pub at_once: f64,
}

impl Report {
    /// Makes the report of all samples.
    pub fn new(setting: Setting, samples: &[Sample], predictions: &[Prediction]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for sample in samples {
            let key = |other: &Sample| {
                (other.trace.clone(), other.cards, other.memory_bytes, other.is_modelled)
            };
            let is_known = |row: &Row| {
                (row.trace.clone(), row.cards, row.memory_bytes, row.is_modelled) == key(sample)
            };
            if rows.iter().any(is_known) {
                continue;
            }
            let same: Vec<&Sample> =
                samples.iter().filter(|other| key(other) == key(sample)).collect();
            let predicted = predictions.iter().find(|prediction| {
                (&prediction.trace, prediction.cards, prediction.memory_bytes)
                    == (&sample.trace, sample.cards, sample.memory_bytes)
            });
            rows.push(Row::of(&same, predicted));
        }
        let order: Vec<&str> = setting.traces.iter().map(|trace| trace.name.as_str()).collect();
        let place = |row: &Row| order.iter().position(|name| *name == row.trace);
        rows.sort_by_key(|row| (place(row), !row.is_modelled, row.cards, row.memory_bytes));
        let without: Vec<Row> = rows.iter().filter(|row| row.memory_bytes == 0).cloned().collect();
        for row in &mut rows {
            let key = |other: &Row| (other.trace.clone(), other.cards, other.is_modelled);
            if let Some(base) = without.iter().find(|other| key(other) == key(row)) {
                row.overhead_kept = Some(1.0 - row.per_body_byte[1] / base.per_body_byte[1]);
                row.traffic_kept = Some(1.0 - row.traffic() / base.traffic());
                row.benefit = Some(row.mbit_per_s.median / base.mbit_per_s.median - 1.0);
            }
        }
        Self { setting, rows }
    }

    /// The largest difference between what was measured and what was predicted, in points.
    pub fn difference_max(&self) -> f64 {
        let difference = |row: &Row| {
            row.content_kept_predicted.map(|share| 100.0 * (row.content_kept.median - share).abs())
        };
        self.rows.iter().filter_map(difference).fold(0.0, f64::max)
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let setting = &self.setting;
        // Writing to a string cannot fail.
        let mut line = |words: String| {
            let _ = writeln!(text, "{words}");
        };
        line(format!(
            "{} CPUs, Linux {}, {} rounds, {} sessions at once{}",
            setting.cpus,
            setting.kernel,
            setting.rounds,
            setting.clients,
            if setting.busy { "; THE MACHINE WAS BUSY" } else { "" }
        ));
        for trace in &setting.traces {
            line(format!(
                "{}: {} of {} requests, {} MB in replies, {} MB in files",
                trace.name,
                grouped(trace.requests as f64),
                grouped(trace.requests_of_log as f64),
                trace.content_bytes / 1_000_000,
                trace.footprint_bytes / 1_000_000
            ));
        }
        line(String::new());
        line(format!(
            "{:<28} {:>5} {:>6} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9} {:>9} {:>8} {:>7} {:>8}",
            "trace, bus",
            "cards",
            "MB",
            "content",
            "predicted",
            "in order",
            "overhead",
            "traffic",
            "Mb/s",
            "req/s",
            "benefit",
            "bus",
            "CPU us"
        ));
        let percent = |share: Option<f64>| {
            share.map_or_else(String::new, |share| format!("{:.1} %", 100.0 * share))
        };
        for row in &self.rows {
            let bus = if row.is_modelled { "PCI 64/33" } else { "no model" };
            line(format!(
                "{:<28} {:>5} {:>6} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9.0} {:>9.0} {:>8} {:>7} {:>8.1}",
                format!("{}, {bus}", row.trace),
                row.cards,
                row.memory_bytes >> 20,
                percent(Some(row.content_kept.median)),
                percent(row.content_kept_predicted),
                percent(row.content_kept_in_order),
                percent(row.overhead_kept),
                percent(row.traffic_kept),
                row.mbit_per_s.median,
                row.requests_per_s.median,
                percent(row.benefit),
                percent(row.utilisation),
                row.server_cpu_us.median
            ));
        }
        line(String::new());
        line("The paper (Table 1): two cards, 64-bit PCI at 33 MHz".to_owned());
        for row in PAPER {
            let base = PAPER.iter().find(|other| other.trace == row.trace && other.memory_mb == 0);
            let benefit = base.map(|base| row.mbit_per_s / base.mbit_per_s - 1.0);
            line(format!(
                "{:<28} {:>5} {:>6} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9.0} {:>9.0} {:>8}",
                row.trace,
                2,
                row.memory_mb,
                format!("{:.0} %", row.content),
                "",
                "",
                format!("{:.0} %", row.overhead),
                "",
                row.mbit_per_s,
                row.requests_per_s,
                percent(benefit)
            ));
        }
        line(String::new());
        line(format!(
            "content kept off the bus differs from its prediction by {:.1} points at most (the paper: \"closely match\")",
            self.difference_max()
        ));
        text
    }
}

/// Reads a report that was saved.
///
/// # Errors
/// It is not there, or none.
pub fn read_report(path: &Path) -> Result<Report> {
    serde_json::from_slice(&std::fs::read(path)?).context("this is not a result of bench kim")
}
