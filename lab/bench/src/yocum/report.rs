//! The report as text, and read again.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::{FIGURE_7, How, Latency, Peak, Queued, Report, Streamed};

/// Reads a report that was saved.
///
/// # Errors
/// It is not there, or none.
pub fn read_report(path: &Path) -> Result<Report> {
    serde_json::from_slice(&std::fs::read(path)?).context("this is not a result of bench yocum")
}

fn name(how: How) -> &'static str {
    match how {
        How::Copy => "copy",
        How::Pcache => "PCACHE",
        How::Direct => "DIRECT",
    }
}

fn percent(model: f64, paper: f64) -> String {
    format!("{:+.1} %", (model / paper - 1.0) * 100.0)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Table 2: latency of UDP through a forwarder, in microseconds\n")?;
        writeln!(f, "{:>8}  {:8} {:>9} {:>9} {:>9}", "bytes", "", "paper", "model", "")?;
        for Latency { bytes, how, paper_us, model_us } in &self.latencies {
            let off = percent(*model_us, *paper_us);
            writeln!(f, "{bytes:>8}  {:8} {paper_us:>9.2} {model_us:>9.2} {off:>9}", name(*how))?;
        }
        writeln!(f, "\nFigure 6: the most that is forwarded, in MB/s\n")?;
        writeln!(
            f,
            "{:>8}  {:8} {:>9} {:>9} {:>9} {:>7}",
            "bytes", "", "paper", "model", "", "CPU"
        )?;
        for Peak { bytes, how, paper_mb_per_s, model_mb_per_s, cpu } in &self.peaks {
            let paper = paper_mb_per_s.map_or("-".into(), |paper| format!("{paper:.0}"));
            let off = paper_mb_per_s.map_or(String::new(), |paper| percent(*model_mb_per_s, paper));
            let cpu = cpu * 100.0;
            writeln!(
                f,
                "{bytes:>8}  {:8} {paper:>9} {model_mb_per_s:>9.1} {off:>9} {cpu:>5.0} %",
                name(*how)
            )?;
        }
        writeln!(
            f,
            "\nFigure 5: 25 MB/s of packets of 4 KB, {} in each row, seed {}\n",
            self.packets, self.seed
        )?;
        writeln!(
            f,
            "{:>8} {:>9} {:>9} {:>9} {:>15} {:>9} {:>9} {:>7}",
            "entries", "demand us", "queue", "hits", "E[min(1,K/N)]", "K/mean N", "dropped", "CPU"
        )?;
        for Queued { entries, demand_us, outcome } in &self.queues {
            writeln!(
                f,
                "{entries:>8} {demand_us:>9.0} {:>9.1} {:>9.3} {:>15.3} {:>9.3} {:>9.3} {:>5.0} %",
                outcome.queue_mean,
                outcome.hit_rate,
                outcome.law,
                outcome.estimate,
                outcome.dropped,
                outcome.busy * 100.0
            )?;
        }
        writeln!(
            f,
            "\nFigure 7: 16 streams of TCP, in MB/s of payload; the gain over forwarding without a cache\n"
        )?;
        writeln!(
            f,
            "{:>8}  {:8} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7} {:>8}",
            "segment", "", "cache KB", "MB/s", "gain", "hits", "queue full", "lost", "spilled"
        )?;
        for (segment_bytes, [paper_base, paper_peak]) in FIGURE_7 {
            let cells: Vec<&Streamed> =
                self.streams.iter().filter(|cell| cell.segment_bytes == segment_bytes).collect();
            let base = cells
                .iter()
                .find(|cell| cell.mode == "copy")
                .map_or(f64::NAN, |cell| cell.outcome.mb_per_s);
            for Streamed { mode, cache_bytes, outcome, .. } in cells {
                writeln!(
                    f,
                    "{segment_bytes:>8}  {mode:8} {:>9} {:>9.1} {:>9} {:>9.3} {:>11} {:>7} {:>8}",
                    cache_bytes / 1024,
                    outcome.mb_per_s,
                    percent(outcome.mb_per_s, base),
                    outcome.hit_rate,
                    outcome.queue_full,
                    outcome.lost,
                    outcome.spilled
                )?;
            }
            writeln!(
                f,
                "{segment_bytes:>8}  paper: {paper_base:.0} without a cache, {paper_peak:.0} with PCACHE and 1.4 MB ({})",
                percent(paper_peak, paper_base)
            )?;
        }
        Ok(())
    }
}
