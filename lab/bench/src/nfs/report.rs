//! What came out, as data and as a table.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::subject::Subject;
use super::workload::Workload;
use crate::Summary;

/// One measurement of a subject with a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// What was asked for.
    pub workload: Workload,
    /// Who answered.
    pub subject: Subject,
    /// Calls.
    pub calls: u64,
    /// Calls per second.
    pub calls_per_s: f64,
    /// Payload, in 10^6 bytes per second.
    pub mb_per_s: f64,
    /// CPU time of the server for each call, in microseconds.
    pub cpu_us_per_call: f64,
    /// CPU time of the server for each byte of payload, in nanoseconds; 0 without payload.
    pub cpu_ns_per_byte: f64,
    /// Half of the calls took no longer, in microseconds.
    pub p50_us: f64,
    /// 99 of 100 calls took no longer, in microseconds.
    pub p99_us: f64,
    /// Bytes that nicache copied between its layers for each byte of payload.
    pub copied_per_byte: Option<f64>,
}

/// The conditions of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// How often everything was measured.
    pub rounds: u32,
    /// Of the machine.
    pub cpus: usize,
    /// Version of the kernel.
    pub kernel: String,
    /// Share of the machine that others used before the run.
    pub load_before: f64,
    /// Others used so much of the machine before the run that figures may be wrong.
    pub busy: bool,
    /// Bytes of nicache's cache.
    pub memory_bytes: u64,
    /// Bytes of each file that is read once.
    pub cold_bytes: u64,
    /// Who was left out, and why.
    pub missing: Vec<String>,
}

/// A workload and who answered, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// What was asked for.
    pub workload: Workload,
    /// Who answered.
    pub subject: Subject,
    /// Calls per second.
    pub calls_per_s: Summary,
    /// Payload, in 10^6 bytes per second.
    pub mb_per_s: Summary,
    /// CPU time of the server for each call, in microseconds.
    pub cpu_us_per_call: Summary,
    /// CPU time of the server for each byte of payload, in nanoseconds.
    pub cpu_ns_per_byte: Summary,
    /// Half of the calls took no longer, in microseconds.
    pub p50_us: Summary,
    /// 99 of 100 calls took no longer, in microseconds.
    pub p99_us: Summary,
    /// Copied bytes for each byte of payload.
    pub copied_per_byte: Option<f64>,
}

/// Everything that a run has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Under which conditions.
    pub setting: Setting,
    /// Workload by workload.
    pub rows: Vec<Row>,
}

impl Report {
    /// Makes the report of all samples.
    pub fn new(setting: Setting, samples: &[Sample]) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for sample in samples {
            if rows
                .iter()
                .any(|row| (row.workload, row.subject) == (sample.workload, sample.subject))
            {
                continue;
            }
            let same = || {
                samples.iter().filter(|other| {
                    (other.workload, other.subject) == (sample.workload, sample.subject)
                })
            };
            let of = |value: fn(&Sample) -> f64| Summary::of(same().map(value));
            rows.push(Row {
                workload: sample.workload,
                subject: sample.subject,
                calls_per_s: of(|sample| sample.calls_per_s),
                mb_per_s: of(|sample| sample.mb_per_s),
                cpu_us_per_call: of(|sample| sample.cpu_us_per_call),
                cpu_ns_per_byte: of(|sample| sample.cpu_ns_per_byte),
                p50_us: of(|sample| sample.p50_us),
                p99_us: of(|sample| sample.p99_us),
                copied_per_byte: sample
                    .copied_per_byte
                    .map(|_| Summary::of(same().filter_map(|one| one.copied_per_byte)).median),
            });
        }
        let mut workloads: Vec<Workload> = Vec::new();
        for row in &rows {
            if !workloads.contains(&row.workload) {
                workloads.push(row.workload);
            }
        }
        rows.sort_by_key(|row| workloads.iter().position(|workload| *workload == row.workload));
        Self { setting, rows }
    }

    /// The row of the paper's *original* for the same workload.
    fn original(&self, workload: Workload) -> Option<&Row> {
        let is = |row: &&Row| row.workload == workload && row.subject.name() == "original";
        self.rows.iter().find(is)
    }

    /// The report as a table for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let setting = &self.setting;
        let _ = writeln!(
            text,
            "{} CPUs, Linux {}, {} rounds; server on one CPU, clients on another; cache {} MB, cold files of {} MB{}",
            setting.cpus,
            setting.kernel,
            setting.rounds,
            setting.memory_bytes >> 20,
            setting.cold_bytes >> 20,
            if setting.busy { "; THE MACHINE WAS BUSY" } else { "" }
        );
        for missing in &setting.missing {
            let _ = writeln!(text, "not measured: {missing}");
        }
        let _ = writeln!(
            text,
            "\n{:<26} {:<9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9} {:>8} {:>8}",
            "",
            "",
            "calls/s",
            "against",
            "MB/s",
            "CPU us",
            "CPU ns/KB",
            "CPU",
            "p50 us",
            "p99 us",
            "copied"
        );
        let mut last = None;
        for row in &self.rows {
            let is_first = last != Some(row.workload);
            last = Some(row.workload);
            let original = self.original(row.workload);
            let more = |value: f64, base: Option<f64>| {
                base.filter(|base| *base > 0.0).map_or_else(String::new, |base| {
                    format!("{:+.0} %", 100.0 * (value / base - 1.0))
                })
            };
            let rate = row.calls_per_s.median;
            let cpu = row.cpu_us_per_call.median;
            let _ = writeln!(
                text,
                "{:<26} {:<9} {:>9.0} {:>9} {:>9.1} {:>10.1} {:>10.0} {:>9} {:>9.0} {:>8.0} {:>8}",
                if is_first { row.workload.name() } else { String::new() },
                row.subject.name(),
                rate,
                more(rate, original.map(|row| row.calls_per_s.median)),
                row.mb_per_s.median,
                cpu,
                row.cpu_ns_per_byte.median * 1024.0,
                more(cpu, original.map(|row| row.cpu_us_per_call.median)),
                row.p50_us.median,
                row.p99_us.median,
                row.copied_per_byte.map_or_else(String::new, |copied| format!("{copied:.2}"))
            );
            let is_last = !self
                .rows
                .iter()
                .skip_while(|other| *other != row)
                .skip(1)
                .any(|other| other.workload == row.workload);
            if let Some(paper) = row.workload.paper().filter(|_| is_last) {
                let _ = writeln!(text, "{:<26} the paper: {paper}", "");
            }
        }
        text.push_str(
            "\nPercentages are against original. CPU is of the server's processes; the kernel's threads for the loop device are in none of them. Copied: bytes that\n\
             nicache copies between its layers for each byte of payload (sockets and FUSE add copies of their own in all ways alike).\n",
        );
        text
    }
}

/// Reads a report that was saved.
///
/// # Errors
/// It is not there, or none.
pub fn read_report(path: &Path) -> Result<Report> {
    serde_json::from_slice(&std::fs::read(path)?).context("this is not a result of bench nfs")
}

#[cfg(test)]
mod tests {
    use nicache_gateway::CopyMode;

    use super::*;

    #[test]
    fn a_table_compares_with_original() {
        let workload = Workload::AllHit { bytes: 32 << 10 };
        let sample = |subject, calls_per_s| Sample {
            workload,
            subject,
            calls: 1,
            calls_per_s,
            mb_per_s: 1.0,
            cpu_us_per_call: 2.0,
            cpu_ns_per_byte: 0.1,
            p50_us: 1.0,
            p99_us: 2.0,
            copied_per_byte: Some(0.0),
        };
        let setting = Setting {
            rounds: 1,
            cpus: 2,
            kernel: "6".into(),
            load_before: 0.0,
            busy: false,
            memory_bytes: 1 << 20,
            cold_bytes: 1 << 20,
            missing: Vec::new(),
        };
        let samples = [
            sample(Subject::Nicache(CopyMode::Original), 100.0),
            sample(Subject::Nicache(CopyMode::Nicache), 192.0),
            sample(Subject::Ganesha, 50.0),
        ];
        let report = Report::new(setting, &samples);
        let table = report.table();
        assert!(
            table.contains("+92 %")
                && table.contains("-50 %")
                && table.contains("the paper: NCache +92 %"),
            "{table}"
        );
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
