//! What came out, as data and as a table.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::Summary;

/// The conditions of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// How often everything was measured.
    pub rounds: u32,
    /// For how long each time, in seconds.
    pub seconds: f64,
    /// Of the machine.
    pub cpus: usize,
    /// Version of the kernel.
    pub kernel: String,
    /// Share of the machine that others used before the run.
    pub load_before: f64,
    /// Others used so much of the machine before the run that figures may be wrong.
    pub busy: bool,
}

/// One subject under one load, over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The load.
    pub load: String,
    /// The figures are by replies, not by bytes.
    pub by_request: bool,
    /// Billions of bits of payload per second, or replies per second.
    pub rate: Summary,
    /// Seconds of processors for each billion bytes of payload, or microseconds for each reply.
    pub cpu: Summary,
    /// Of these, those of client, server and what is between them: other work on the machine is not
    /// in it, but nor is what the kernel did in threads of its own.
    pub processes_cpu: Summary,
}

/// The CPU of one subject beside another's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Who.
    pub subject: String,
    /// Beside whom.
    pub other: String,
    /// The load.
    pub load: String,
    /// CPU of the whole machine for the same work, of the first in that of the second, by rounds.
    pub cpu: Summary,
    /// The most that it should be.
    pub aim: f64,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Under which conditions.
    pub setting: Setting,
    /// The figures.
    pub rows: Vec<Row>,
    /// The aims.
    pub ratios: Vec<Ratio>,
}

/// Reads a report that was saved.
///
/// # Errors
/// It is not there, or none.
pub fn read_report(path: &Path) -> Result<Report> {
    serde_json::from_slice(&std::fs::read(path)?).context("this is not a result of bench forward")
}

impl Report {
    fn write_rows(&self, f: &mut fmt::Formatter<'_>, by_request: bool) -> fmt::Result {
        let (rate, cpu) = if by_request { ("replies/s", "us") } else { ("Gb/s", "s/GB") };
        writeln!(
            f,
            "{:<18} {:<15} {rate:>9}  {:<15} {:>12}  {:<15} {:>14}",
            "subject",
            "load",
            "",
            format!("machine {cpu}"),
            "",
            format!("processes {cpu}")
        )?;
        for row in self.rows.iter().filter(|row| row.by_request == by_request) {
            let places = if by_request { 0 } else { 2 };
            let range = |of: &Summary| format!("{:.places$} to {:.places$}", of.min, of.max);
            writeln!(
                f,
                "{:<18} {:<15} {:>9.places$}  {:<15} {:>12.places$}  {:<15} {:>14.places$}",
                row.subject,
                row.load,
                row.rate.median,
                range(&row.rate),
                row.cpu.median,
                range(&row.cpu),
                row.processes_cpu.median,
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { rounds, seconds, cpus, kernel, load_before, busy } = &self.setting;
        writeln!(f, "{rounds} rounds of {seconds} s, {cpus} CPUs, Linux {kernel}")?;
        if *busy {
            let percent = load_before * 100.0;
            writeln!(f, "Others used {percent:.0} % of the machine before: figures may be wrong.")?;
        }
        writeln!(
            f,
            "CPU of the whole machine, and of client, server and subject alone; least to most of all rounds\n"
        )?;
        self.write_rows(f, false)?;
        writeln!(f)?;
        self.write_rows(f, true)?;
        if self.ratios.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nCPU of the machine for the same work:")?;
        for Ratio { subject, other, load, cpu, aim } in &self.ratios {
            let Summary { median, min, max } = cpu;
            writeln!(
                f,
                "{subject} beside {other}, {load}: {median:.2} ({min:.2} to {max:.2}), aim {aim}: {}",
                if median <= aim { "met" } else { "missed" }
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_both_units_and_the_aims() {
        let row = |by_request| Row {
            subject: "nftables".into(),
            load: if by_request { "connections" } else { "UDP" }.into(),
            by_request,
            rate: Summary::of([1.5]),
            cpu: Summary::of([2.25]),
            processes_cpu: Summary::of([1.0]),
        };
        let ratio = |median| Ratio {
            subject: "nicache, fast path".into(),
            other: "nftables".into(),
            load: "UDP".into(),
            cpu: Summary::of([median]),
            aim: 1.0,
        };
        let setting = Setting {
            rounds: 1,
            seconds: 3.0,
            cpus: 2,
            kernel: "6".into(),
            load_before: 0.5,
            busy: true,
        };
        let report = Report {
            setting,
            rows: vec![row(true), row(false)],
            ratios: vec![ratio(0.9), ratio(1.2)],
        };
        let text = report.to_string();
        for expected in
            ["50 % of the machine", "replies/s", "Gb/s", "0.90", "aim 1: met", "aim 1: missed"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let json = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    }
}
