//! The study of Peng et al. 2005 on this machine: an NFS server on an iSCSI unit in three
//! configurations, and NFS-Ganesha beside them (their Figures 4, 5 and 7, and Table 2).
//!
//! ```text
//!  clients (cpu 0) ── loopback ── server: nicache nfs --copy ..., or Ganesha (cpu 1) ── iSCSI ── tgtd over a file
//! ```
//!
//! All of it is in the network namespace of the target. Each round starts each subject once, in
//! another order, with cold caches; so what needs those comes first. The same files on the same
//! ext4 are asked for.

mod load;
pub mod peer;
mod report;
mod subject;
mod workload;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nicache_gateway::{CopyMode, Figures};
use nicache_target::{Target, TargetOptions};

use crate::progress::{Progress, Stop};
use crate::wire::{LOAD_MAX, kernel, process};
pub use report::{Report, Row, Sample, Setting, read_report};
pub use subject::Subject;
use subject::{Ground, Running};
pub use workload::Workload;

/// Free room on the unit beside the files, in bytes.
const ROOM_BYTES: u64 = 256 << 20;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// This program, which has the peer as a command.
    pub laboratory: PathBuf,
    /// How often everything is measured.
    pub rounds: u32,
    /// How long a measurement takes that does not end by itself.
    pub time: Duration,
    /// Bytes of each file that is read once.
    pub cold_bytes: u64,
    /// Bytes of nicache's cache. Less than a cold file.
    pub memory_bytes: u64,
    /// Few sizes.
    pub is_quick: bool,
    /// Only workloads whose names contain this.
    pub only: String,
    /// Where the file of the unit is put.
    pub folder: PathBuf,
    /// Ends it early.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something, or an answer was wrong.
pub fn run(plan: &Plan) -> Result<Report> {
    match nicache_gateway::Demo::missing() {
        None => {}
        Some("root") => bail!("`nicache bench nfs` needs root: try `sudo nicache bench nfs`"),
        Some(missing) => {
            bail!("this machine has no {missing} (tools/setup bench installs what is missing)")
        }
    }
    ensure!(plan.rounds > 0, "at least one round is needed");
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = process::machine_load(Duration::from_secs(1), cpus)?;
    let workloads: Vec<Workload> = Workload::all(plan.is_quick)
        .into_iter()
        .filter(|workload| workload.name().contains(&plan.only))
        .collect();
    ensure!(!workloads.is_empty(), "no workload has `{}` in its name", plan.only);
    let mut subjects: Vec<Subject> = CopyMode::ALL.map(Subject::Nicache).to_vec();
    let mut missing = Vec::new();
    match peer::missing() {
        None => subjects.push(Subject::Ganesha),
        Some(program) => {
            missing
                .push(format!("Ganesha, because {program} is not installed (packages nfs-ganesha, nfs-ganesha-vfs)"));
        }
    }
    let cold_sizes: Vec<u32> = workloads
        .iter()
        .filter_map(
            |workload| if let Workload::AllMiss { bytes } = workload { Some(*bytes) } else { None },
        )
        .collect();
    let folder = tempfile::Builder::new().prefix("nicache-bench-nfs-").tempdir_in(&plan.folder)?;
    let image = folder.path().join("unit");
    std::fs::File::create(&image)?
        .set_len(ROOM_BYTES + cold_sizes.len() as u64 * plan.cold_bytes)?;
    let target = Target::start(&image, &TargetOptions::default()).context("cannot start tgtd")?;
    // All that is done from here on is in the target's network; this thread's own network is left
    // alone.
    let (samples, failures) = std::thread::scope(|scope| {
        let (target, folder) = (&target, folder.path());
        let measure = || -> Result<(Vec<Sample>, Vec<String>)> {
            target.enter()?;
            let ground = Ground {
                nicache: &plan.nicache,
                laboratory: &plan.laboratory,
                url: target.url(),
                folder: folder.to_owned(),
                memory_bytes: plan.memory_bytes,
                cpu: cpus.saturating_sub(1).min(1),
            };
            measure_all(plan, &ground, &workloads, &subjects, &cold_sizes)
        };
        scope.spawn(measure).join().unwrap_or_else(|_| bail!("the measuring thread ended"))
    })?;
    missing.extend(failures);
    let setting = Setting {
        rounds: plan.rounds,
        cpus,
        kernel: kernel(),
        load_before,
        busy: load_before > LOAD_MAX,
        memory_bytes: plan.memory_bytes,
        cold_bytes: plan.cold_bytes,
        missing,
    };
    Ok(Report::new(setting, &samples))
}

fn measure_all(
    plan: &Plan,
    ground: &Ground<'_>,
    workloads: &[Workload],
    subjects: &[Subject],
    cold_sizes: &[u32],
) -> Result<(Vec<Sample>, Vec<String>)> {
    let mut progress =
        Progress::new(1 + subjects.len() * workloads.len() * plan.rounds as usize, &plan.stop);
    progress.begin("making the files")?;
    let first = Running::start(Subject::Nicache(CopyMode::Nicache), ground, true)?;
    load::prepare(first.nfs, cold_sizes, plan.cold_bytes)?;
    first.stop()?;
    let (mut samples, mut failures) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds as usize {
        for turn in 0..subjects.len() {
            let subject = subjects[(round + turn) % subjects.len()];
            let running = Running::start(subject, ground, false)?;
            let files = load::find(
                running.nfs,
                running.mount,
                running.export,
                cold_sizes,
                plan.cold_bytes,
            )?;
            for &workload in workloads {
                progress.begin(&format!(
                    "round {}: {}, {}",
                    round + 1,
                    subject.name(),
                    workload.name()
                ))?;
                let sample = measure(&running, subject, &files, workload, plan.time)
                    .with_context(|| format!("{}, {}", subject.name(), workload.name()))?;
                samples.push(sample);
            }
            // What was measured is worth telling nevertheless.
            if let Err(error) = running.stop() {
                failures.push(format!(
                    "the end of {} in round {}: {error:#}",
                    subject.name(),
                    round + 1
                ));
            }
        }
    }
    progress.end();
    Ok((samples, failures))
}

fn measure(
    running: &Running,
    subject: Subject,
    files: &load::Files,
    workload: Workload,
    time: Duration,
) -> Result<Sample> {
    load::warm(running.nfs, files, workload)?;
    let (before, cpu_before) = (running.figures(), running.cpu_time()?);
    let answers = load::ask(running.nfs, files, workload, time)?;
    let (cpu, after) = (running.cpu_time()?.saturating_sub(cpu_before), running.figures());
    let (calls, bytes) = (answers.calls.max(1) as f64, answers.payload_bytes as f64);
    let seconds = answers.elapsed.as_secs_f64().max(1e-9);
    let copied = |figures: &Figures| figures.copies.iter().map(|copy| copy.bytes).sum::<u64>();
    let us = |quantile| answers.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Sample {
        workload,
        subject,
        calls: answers.calls,
        calls_per_s: answers.calls as f64 / seconds,
        mb_per_s: bytes / 1e6 / seconds,
        cpu_us_per_call: cpu.as_secs_f64() * 1e6 / calls,
        cpu_ns_per_byte: if bytes > 0.0 { cpu.as_secs_f64() * 1e9 / bytes } else { 0.0 },
        p50_us: us(0.5),
        p99_us: us(0.99),
        copied_per_byte: before
            .zip(after)
            .filter(|_| bytes > 0.0)
            .map(|(before, after)| copied(&after).saturating_sub(copied(&before)) as f64 / bytes),
    })
}
