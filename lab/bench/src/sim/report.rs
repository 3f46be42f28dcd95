//! What came out, as data and as a table.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Summary;

/// Everything that a run has found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Under which conditions.
    pub setting: Setting,
    /// One for each policy.
    pub rows: Vec<Row>,
    /// The curve of LRU in one pass.
    pub curve: Curve,
}

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// Requests of the trace.
    pub requests: u32,
    /// Objects that occur in it.
    pub objects: u32,
    /// Exponent of Zipf's law.
    pub exponent: f64,
    /// Objects that the caches hold.
    pub cache_objects: u32,
    /// How often everything was measured.
    pub rounds: u32,
    /// The peer's program.
    pub peer: Option<String>,
    /// Version of the kernel.
    pub kernel: String,
    /// Of the machine.
    pub cpus: usize,
    /// Something else used the machine before the run.
    pub busy: bool,
}

/// What was measured of a policy, beside the peer's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub policy: String,
    /// Requests per second of processor time, the whole program with reading.
    pub ours_per_s: Summary,
    /// Requests per second of processor time of the peer, the whole program with reading.
    pub peer_per_s: Option<Summary>,
    /// How many times faster, by rounds.
    pub ratio: Option<Summary>,
    /// Requests per second of the loop alone.
    pub ours_loop_per_s: Summary,
    /// Requests per second of the peer's loop as it tells it (its reading included).
    pub peer_loop_per_s: Option<Summary>,
    /// Share of misses.
    pub ours_miss_ratio: f64,
    /// Share of misses of the peer, to four digits.
    pub peer_miss_ratio: Option<f64>,
    /// Memory per object in the cache, in bytes, where it could be measured.
    pub ours_object_bytes: Option<f64>,
    /// The peer's memory per object in the cache, in bytes, where it could be measured.
    pub peer_object_bytes: Option<f64>,
}

impl Row {
    /// Whether both find the same, as far as the peer tells it.
    pub fn is_equal(&self) -> Option<bool> {
        Some((self.ours_miss_ratio - self.peer_miss_ratio?).abs() <= 0.000_051)
    }
}

/// The curve of LRU in one pass.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Sizes at which it is told.
    pub sizes: usize,
    /// Requests.
    pub requests: u32,
    /// Processor time of the pass, in seconds.
    pub loop_s: Summary,
    /// Processor time of the whole program, with reading.
    pub whole_s: Summary,
    /// Time of the whole program by the clock.
    pub wall_s: Summary,
}

impl Report {
    /// The report as a table for people.
    pub fn table(&self) -> String {
        let Setting { requests, objects, exponent, cache_objects, rounds, .. } = &self.setting;
        let mut text = format!(
            "{requests} requests for {objects} objects (Zipf, exponent {exponent}), caches of {cache_objects} objects; medians of {rounds} rounds\n\n\
             {:<11} {:>24} {:>24} {:>18}  {:>15}  {:>17}  {:>15}\n\
             {:<11} {:>24} {:>24} {:>18}  {:>15}  {:>17}  {:>15}\n",
            "",
            "whole program, M req/s",
            "",
            "",
            "loop, M req/s",
            "misses, %",
            "bytes/object",
            "policy",
            "nicache",
            "libCacheSim",
            "times faster",
            "nicache / peer",
            "nicache / peer",
            "nicache / peer",
        );
        let spread = |summary: &Summary| {
            format!(
                "{:.1} ({:.1}..{:.1})",
                summary.median / 1e6,
                summary.min / 1e6,
                summary.max / 1e6
            )
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{:<11} {:>24} {:>24} {:>18}  {:>15}  {:>17}  {:>15}{}",
                row.policy,
                spread(&row.ours_per_s),
                or_dash(row.peer_per_s.as_ref().map(spread)),
                or_dash(row.ratio.map(|ratio| format!(
                    "{:.2} ({:.2}..{:.2})",
                    ratio.median, ratio.min, ratio.max
                ))),
                format!(
                    "{:.1} / {}",
                    row.ours_loop_per_s.median / 1e6,
                    or_dash(row.peer_loop_per_s.map(|rate| format!("{:.1}", rate.median / 1e6)))
                ),
                format!(
                    "{:.2} / {}",
                    100.0 * row.ours_miss_ratio,
                    or_dash(row.peer_miss_ratio.map(|ratio| format!("{:.2}", 100.0 * ratio)))
                ),
                format!(
                    "{} / {}",
                    or_dash(row.ours_object_bytes.map(|bytes| format!("{bytes:.0}"))),
                    or_dash(row.peer_object_bytes.map(|bytes| format!("{bytes:.0}")))
                ),
                if row.is_equal() == Some(false) { "  not the same algorithm" } else { "" }
            );
        }
        let curve = &self.curve;
        let _ = writeln!(
            text,
            "\nExact curve of LRU in one pass, {} sizes: {:.2} s of processor time ({:.2}..{:.2}), {:.2} s with reading ({:.2} s by the clock)",
            curve.sizes,
            curve.loop_s.median,
            curve.loop_s.min,
            curve.loop_s.max,
            curve.whole_s.median,
            curve.wall_s.median
        );
        if self.setting.busy {
            text.push_str(
                "\nSomething else used the machine before the run: do not trust these figures.\n",
            );
        }
        text
    }
}

/// Reads a report that was saved as JSON.
///
/// # Errors
/// It cannot be read, or is none.
pub fn read_report(path: &Path) -> Result<Report> {
    let text = std::fs::read_to_string(path)?;
    serde_json::from_str(&text).context("it is not a result of bench sim")
}
