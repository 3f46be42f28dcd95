//! The study of Kim et al. 2002 on this machine: what card memory keeps off the bus, and what that
//! is worth (its Figures 4 and 7 and Table 1).
//!
//! ```text
//!  client namespace
//!  trace replayer (cpu 0) ──TAP── nicache serve: card, bus, host (cpu 1)
//! ```
//!
//! Each cell starts `nicache serve` anew and replays the trace once, with infinite demand, from a
//! cold cache; every body is compared. The bus is the paper's, modelled
//! (`nicache_bus::BusModel::PCI_64_33`), or this machine's own. Beside what was measured stands
//! what a simulation of the caches predicts that plays back the trace in order, as in the paper's
//! section 3.

mod cell;
mod figure;
mod predict;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nicache_replay::replayer::Plan as ReplayPlan;
use nicache_replay::{SessionConfig, StaticSite, SyntheticConfig, Trace, synthetic};

use crate::progress::{Progress, Stop};
use crate::wire::{LOAD_MAX, check_machine, kernel, process};
pub use cell::Sample;
pub use figure::draw;
pub use report::{PAPER, PaperRow, Report, Row, read_report};
use report::{Prediction, Setting, TraceFacts};

/// Files that were just written are not looked at for so long: the file system is still finding
/// places for them.
const SETTLE: Duration = Duration::from_secs(3);

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// Logs; none: requests by Zipf's law.
    pub traces: Vec<PathBuf>,
    /// How often everything is measured.
    pub rounds: u32,
    /// A log is cut where its replies have so many megabytes (10^6).
    pub megabytes: u64,
    /// Bytes of each card's memory.
    pub memories: Vec<u64>,
    /// Numbers of cards.
    pub cards: Vec<u32>,
    /// Sessions at once.
    pub clients: usize,
    /// Where the files are put.
    pub folder: PathBuf,
    /// Ends it early.
    pub stop: Stop,
}

/// A log that is ready to be replayed.
struct Prepared {
    facts: TraceFacts,
    trace: Trace,
    plan: ReplayPlan,
    folder: tempfile::TempDir,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something, or a reply was wrong.
pub fn run(plan: &Plan) -> Result<Report> {
    check_machine("bench kim")?;
    ensure!(plan.rounds > 0, "at least one round is needed");
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = process::machine_load(Duration::from_secs(1), cpus)?;
    let mut prepared: Vec<Prepared> =
        plan.traces.iter().map(|path| open(path, plan)).collect::<Result<_>>()?;
    if prepared.is_empty() {
        prepared.push(prepare(synthetic(&SyntheticConfig::default()), "synthetic", plan)?);
    }
    rustix::fs::sync();
    std::thread::sleep(SETTLE);
    let mut cells = Vec::new();
    for trace in 0..prepared.len() {
        for &cards in &plan.cards {
            for &memory_bytes in &plan.memories {
                cells.push((trace, cell::Setup { cards, memory_bytes, is_modelled: true }));
            }
            for memory_bytes in
                [plan.memories.first(), plan.memories.last()].into_iter().flatten().copied()
            {
                cells.push((trace, cell::Setup { cards, memory_bytes, is_modelled: false }));
            }
        }
    }
    let mut samples = Vec::new();
    let mut progress = Progress::new(cells.len() * plan.rounds as usize, &plan.stop);
    for round in 0..plan.rounds as usize {
        // Another one begins in each round.
        for turn in 0..cells.len() {
            let (trace, setup) = cells[(round * 5 + turn) % cells.len()];
            let prepared = &prepared[trace];
            progress.begin(&format!(
                "round {}: {}, {}",
                round + 1,
                prepared.facts.name,
                setup.label()
            ))?;
            let site = prepared.folder.path().join("site");
            let sample = cell::measure(
                &plan.nicache,
                &site,
                &prepared.facts.name,
                &prepared.plan,
                setup,
                plan.clients,
            )
            .with_context(|| format!("{}, {}", prepared.facts.name, setup.label()))?;
            samples.push(sample);
        }
    }
    progress.end();
    let mut predictions = Vec::new();
    for prepared in &prepared {
        for &cards in &plan.cards {
            for &memory_bytes in &plan.memories {
                let (trace, sessions) = (&prepared.trace, prepared.plan.sessions());
                predictions.push(Prediction {
                    trace: prepared.facts.name.clone(),
                    cards,
                    memory_bytes,
                    in_order: predict::share_in_order(trace, sessions, cards, memory_bytes),
                    at_once: predict::share_at_once(
                        trace,
                        sessions,
                        cards,
                        memory_bytes,
                        plan.clients,
                    ),
                });
            }
        }
    }
    let setting = Setting {
        rounds: plan.rounds,
        clients: plan.clients,
        cpus,
        kernel: kernel(),
        load_before,
        busy: load_before > LOAD_MAX,
        traces: prepared.iter().map(|prepared| prepared.facts.clone()).collect(),
    };
    Ok(Report::new(setting, &samples, &predictions))
}

fn open(path: &Path, plan: &Plan) -> Result<Prepared> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    prepare(Trace::open(path, None)?, name.split('.').next().unwrap_or_default(), plan)
}

fn prepare(mut trace: Trace, name: &str, plan: &Plan) -> Result<Prepared> {
    let name = name.to_owned();
    let requests_of_log = trace.requests.len();
    let mut bytes = 0;
    let count = trace.requests.iter().take_while(|request| {
        bytes += if request.head { 0 } else { trace.objects[request.object as usize].bytes };
        bytes <= plan.megabytes * 1_000_000
    });
    let count = count.count().max(1);
    trace.requests.truncate(count);
    let mut is_asked = vec![false; trace.objects.len()];
    let mut content_bytes = 0;
    for request in &trace.requests {
        is_asked[request.object as usize] = true;
        content_bytes +=
            if request.head { 0 } else { trace.objects[request.object as usize].bytes };
    }
    let asked = trace.objects.iter().zip(&is_asked).filter(|(_, is_asked)| **is_asked);
    let footprint_bytes = asked.map(|(object, _)| object.bytes).sum();
    let facts =
        TraceFacts { name, requests: count, requests_of_log, content_bytes, footprint_bytes };
    let folder = tempfile::Builder::new().prefix("nicache-kim-").tempdir_in(&plan.folder)?;
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    StaticSite::create(&folder.path().join("site"), &trace)?;
    let replay = ReplayPlan::new(&trace, &SessionConfig::default());
    Ok(Prepared { facts, trace, plan: replay, folder })
}
