//! `nicache bench forward`: what it costs to forward, beside the kernel, nftables and HAProxy.
//!
//! All subjects stand between the same two namespaces, one after the other, in every round anew.
//! Everything of the kernel's that helps is on (super-frames, GRO), for all of them alike. CPU is
//! that of the whole machine, client and server included, because what the kernel does for a packet
//! is charged to whoever runs; so other work on the machine is charged, too, and the share of the
//! processes that take part is told beside it.

mod balancer;
mod ground;
mod subject;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::progress::Progress;
use crate::{Stop, Summary};
use ground::{Ground, Load, Moved};
use subject::Subject;

const LOADS: [Load; 3] = [Load::Tcp(1), Load::Tcp(16), Load::Udp];

/// What to measure.
pub struct Plan {
    /// The program.
    pub nicache: PathBuf,
    /// How often everything is measured, interleaved.
    pub rounds: u32,
    /// For how long each time.
    pub length: Duration,
    /// Only subjects whose name contains this.
    pub only: String,
    /// To end early.
    pub stop: Stop,
}

/// One subject under one load, over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The subject.
    pub subject: String,
    /// The load.
    pub load: String,
    /// Bits of payload per second, in billions.
    pub gigabits_per_s: Summary,
    /// Seconds of processors for each billion bytes of payload.
    pub cpu_s_per_gb: Summary,
    /// Of these, those of client, server and what is between them: other work on the machine is not
    /// in it, but nor is what the kernel did in threads of its own.
    pub processes_cpu_s_per_gb: Summary,
}

/// What came out.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// How often everything was measured.
    pub rounds: u32,
    /// The figures.
    pub rows: Vec<Row>,
}

/// Measures.
///
/// # Errors
/// Something is missing, or a subject does not forward.
pub fn run(plan: &Plan) -> Result<Report> {
    let ground = Ground::build()?;
    let folder = tempfile::tempdir()?;
    let subjects: Vec<Subject> =
        Subject::all().into_iter().filter(|subject| subject.label().contains(&plan.only)).collect();
    let cells: Vec<(Subject, Load)> = subjects
        .iter()
        .flat_map(|subject| {
            LOADS.into_iter().filter(|load| subject.carries(*load)).map(|load| (*subject, load))
        })
        .collect();
    let mut figures = vec![Vec::<[f64; 3]>::new(); cells.len()];
    let mut progress = Progress::new(cells.len() * plan.rounds as usize, &plan.stop);
    for _ in 0..plan.rounds {
        for ((subject, load), figures) in cells.iter().zip(&mut figures) {
            progress.begin(&format!("{}, {}", subject.label(), load.label()))?;
            let standing = subject.start(&ground, &plan.nicache, folder.path())?;
            let measured = ground.run(*load, subject.target(), plan.length, standing.pid());
            standing.stop(&ground)?;
            let Moved { bytes, seconds, busy_s, ours_s } =
                measured.with_context(|| format!("{}, {}", subject.label(), load.label()))?;
            let gigabytes = bytes as f64 / 1e9;
            figures.push([gigabytes * 8.0 / seconds, busy_s / gigabytes, ours_s / gigabytes]);
        }
    }
    progress.end();
    let rows = cells.iter().zip(figures).filter(|(_, figures)| !figures.is_empty()).map(
        |((subject, load), figures)| Row {
            subject: subject.label(),
            load: load.label(),
            gigabits_per_s: Summary::of(figures.iter().map(|[rate, ..]| *rate)),
            cpu_s_per_gb: Summary::of(figures.iter().map(|[_, busy, _]| *busy)),
            processes_cpu_s_per_gb: Summary::of(figures.iter().map(|[.., ours]| *ours)),
        },
    );
    Ok(Report { rounds: plan.rounds, rows: rows.collect() })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "CPU s/GB: of the whole machine, and of client, server and subject; least to most of {} rounds",
            self.rounds
        )?;
        writeln!(
            f,
            "{:<18} {:<15} {:>7} {:>9} {:>9}",
            "subject", "load", "Gb/s", "machine", "processes"
        )?;
        for Row {
            subject,
            load,
            gigabits_per_s: rate,
            cpu_s_per_gb: cpu,
            processes_cpu_s_per_gb: ours,
        } in &self.rows
        {
            let Summary { median, min, max } = ours;
            let (rate, cpu) = (rate.median, cpu.median);
            writeln!(
                f,
                "{subject:<18} {load:<15} {rate:>7.2} {cpu:>9.2} {median:>9.2}  {min:.2} to {max:.2}"
            )?;
        }
        Ok(())
    }
}
