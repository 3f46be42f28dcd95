//! Curves over the load: what a server behind a card, or without one, makes of more and more
//! connections.
//!
//! After Figures 6 and 7 of the CacheCard paper (Bos et al. 2009, section 3.3.2): one request on
//! each connection, at rates from little to beyond what can be served, by a client that never waits
//! for replies (open loop) and has at most 1024 connections at a time. Reported are completed
//! handshakes and replies per second, and how long connections take. And beside it what connections
//! that stay open get at full speed, by their number.
//!
//! ```text
//!  client namespace (own client, cpu 0)     server namespace (cpu 1)
//!  nginx             ──veth────────────────────────── nginx
//!  card              ──TAP─── nicache card ──TAP───── nginx       (nginx answers handshakes, or nobody but the card does)
//! ```
//!
//! Conditions are those of [`crate::wire`]: each measurement has a subject that was started for it,
//! and subjects take turns at each load, so a drift of the machine hits all alike. Replies are
//! checked (status, length), and the card's counters say how many of them were hits.

mod arrivals;
mod cell;
mod connections;
mod figure;
mod load;
mod reply;
mod report;
mod statistics;
mod sweep;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, getrlimit, setrlimit};

pub use arrivals::Spacing;
pub use cell::{Load, Outcome, SUBJECTS, Sample};
pub use figure::draw;
pub use report::{ConnectionsCell, RateCell, Report};
pub use statistics::{Spread, TimeSummary};

use cell::{AT_ONCE_MAX, HITS_MIN, Timing};
use report::{Failure, Setting};

use crate::progress::{Progress, Stop};
use crate::wire::process::machine_load;
use crate::wire::site::{NGINX_SETTINGS, OBJECTS, Site};
use crate::wire::subject::Running;
use crate::wire::{
    LOAD_MAX, Object, SERVER_CPU, Subject, check_namespaces, is_installed, kernel, versions,
};

/// Bytes of the objects.
const SIZES: [u64; 4] = [1, 10_000, 100_000, 1_000_000];
const SIZES_FEW: [u64; 2] = [1, 100_000];
/// Connections that stay open.
const CONNECTIONS: [u32; 6] = [1, 4, 16, 64, 256, AT_ONCE_MAX as u32];
const CONNECTIONS_FEW: [u32; 3] = [1, 64, AT_ONCE_MAX as u32];
/// How often a measurement with too few hits is made.
const TRIES: u32 = 3;
/// Descriptors that this process and the servers need: for connections on both sides of a proxy,
/// files and pipes.
const DESCRIPTORS: u64 = 8_192;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// How often everything is measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// How arrivals follow each other.
    pub spacing: Spacing,
    /// What chance follows from.
    pub seed: u64,
    /// Rates for all objects; empty: found out for each.
    pub rates: Vec<u32>,
    /// Where the files are put for the time of the run: on a file system that nicache can watch.
    pub folder: PathBuf,
    /// Two objects, few loads.
    pub quick: bool,
    /// Only what has this in its label `object, subject, load`.
    pub only: String,
    /// Ends it early.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something. A measurement that fails is told of in the report.
pub fn run(plan: &Plan) -> Result<Report> {
    check_namespaces("bench curves")?;
    ensure!(
        is_installed("nginx"),
        "nginx is not installed (Debian, Ubuntu: apt-get install nginx-light)"
    );
    ensure!(plan.rounds > 0 && plan.seconds > 0, "at least one round and one second are needed");
    ensure!(plan.rates.iter().all(|rate| *rate > 0), "a rate is at least one connection a second");
    raise_descriptors()?;
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let mut run = Run {
        plan,
        site: Site::create(&plan.folder)?,
        samples: Vec::new(),
        failures: Vec::new(),
        repeated: 0,
    };
    run.measure_all()?;
    if run.samples.is_empty() {
        let first = run.failures.first().map_or("no subject can run", |failure| &failure.reason);
        bail!("nothing could be measured: {first}");
    }
    let setting = Setting {
        rounds: plan.rounds,
        seconds: plan.seconds,
        spacing: plan.spacing,
        seed: plan.seed,
        connections_max: AT_ONCE_MAX as u32,
        cpus,
        kernel: kernel(),
        nginx: NGINX_SETTINGS.to_owned(),
        versions: versions(&[("nginx", "-v")]),
        load_before,
        busy: load_before > LOAD_MAX,
        repeated: run.repeated,
    };
    Ok(Report::new(setting, run.samples, run.failures))
}

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
    site: Site,
    samples: Vec<Sample>,
    failures: Vec<Failure>,
    repeated: u32,
}

impl Run<'_> {
    fn measure_all(&mut self) -> Result<()> {
        let mut cells = Vec::new();
        let sizes: &[u64] = if self.plan.quick { &SIZES_FEW } else { &SIZES };
        for object in OBJECTS.into_iter().filter(|object| sizes.contains(&object.bytes)) {
            let loads = self.loads(&object)?;
            cells.extend(loads.into_iter().map(|load| (object, load)));
        }
        let rounds = self.plan.rounds;
        let chosen =
            cells.iter().map(|(object, load)| self.chosen(object, *load).len()).sum::<usize>();
        ensure!(chosen > 0, "nothing has `{}` in its label", self.plan.only);
        let mut progress = Progress::new(rounds as usize * chosen, &self.plan.stop);
        for round in 0..rounds {
            for (number, (object, load)) in cells.iter().enumerate() {
                let subjects = self.chosen(object, *load);
                for turn in 0..subjects.len() {
                    // Another one begins each time.
                    let subject = subjects[(round as usize + number + turn) % subjects.len()];
                    let what = label(object, subject, &load.label());
                    progress.begin(&format!("round {} of {rounds}: {what}", round + 1))?;
                    if let Err(error) = self.measure(subject, object, *load, round) {
                        let reason = format!("{error:#}");
                        self.failures.push(Failure {
                            subject,
                            bytes: object.bytes,
                            load: *load,
                            round,
                            reason,
                        });
                    }
                }
            }
        }
        progress.end();
        Ok(())
    }

    fn chosen(&self, object: &Object, load: Load) -> Vec<Subject> {
        let wanted =
            |subject: &Subject| label(object, *subject, &load.label()).contains(&self.plan.only);
        SUBJECTS.into_iter().filter(wanted).collect()
    }

    /// The loads of an object: rates up to beyond what the fastest subject can serve, and
    /// connections.
    fn loads(&self, object: &Object) -> Result<Vec<Load>> {
        let rates = if self.plan.rates.is_empty() {
            // Nothing is probed of which nothing is wanted.
            let wanted = |subject: &Subject| {
                let label = label(object, *subject, "");
                label.contains(&self.plan.only) || self.plan.only.starts_with(&label)
            };
            let wanted: Vec<Subject> = SUBJECTS.into_iter().filter(wanted).collect();
            let mut progress = Progress::new(wanted.len(), &self.plan.stop);
            let mut capacity = None;
            for subject in wanted {
                progress.begin(&format!("capacity: {}, {}", object.label(), subject.label()))?;
                match self.start(subject, object).and_then(|running| cell::probe(&running, object))
                {
                    Ok(found) => {
                        capacity = Some(capacity.map_or(found, |most: f64| most.max(found)));
                    }
                    // It will fail again, and is told of then.
                    Err(_) => continue,
                }
            }
            progress.end();
            capacity.map_or_else(Vec::new, |capacity| sweep::rates(capacity, self.plan.quick))
        } else {
            self.plan.rates.clone()
        };
        let connections: &[u32] = if self.plan.quick { &CONNECTIONS_FEW } else { &CONNECTIONS };
        let connections = connections.iter().map(|connections| Load::Connections(*connections));
        Ok(rates.into_iter().map(Load::Rate).chain(connections).collect())
    }

    fn start(&self, subject: Subject, object: &Object) -> Result<Running> {
        let running = Running::start(subject, object, &self.site, &self.plan.nicache, SERVER_CPU)?;
        running.prepare(object)?;
        Ok(running)
    }

    fn measure(&mut self, subject: Subject, object: &Object, load: Load, round: u32) -> Result<()> {
        let plan = self.plan;
        let timing = Timing {
            spacing: plan.spacing,
            seed: plan.seed.wrapping_add(u64::from(round)),
            seconds: plan.seconds,
        };
        let running = self.start(subject, object)?;
        let mut tries = 1;
        let (outcome, hits) = loop {
            let got = cell::measure(&running, object, load, &timing)?;
            // Writers elsewhere on the machine can purge by chance (sources share slots); then the
            // object is filled again.
            if tries == TRIES || got.1.is_none_or(|hits| hits >= HITS_MIN) {
                break got;
            }
            (tries, self.repeated) = (tries + 1, self.repeated + 1);
            running.prepare(object)?;
        };
        self.samples.push(Sample { subject, bytes: object.bytes, round, load, outcome, hits });
        Ok(())
    }
}

fn label(object: &Object, subject: Subject, load: &str) -> String {
    format!("{}, {}, {load}", object.label(), subject.label())
}

/// Has the kernel allow enough descriptors, also to what is started.
fn raise_descriptors() -> Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        most >= DESCRIPTORS,
        "{DESCRIPTORS} open files are needed and {most} are allowed: raise the limit with `ulimit -Hn {DESCRIPTORS}`"
    );
    if limit.current.is_some_and(|current| current < DESCRIPTORS) {
        limit.current = Some(DESCRIPTORS);
        setrlimit(Resource::Nofile, limit).context("cannot raise the number of open files")?;
    }
    Ok(())
}

/// Reads a report that was written before.
///
/// # Errors
/// It cannot be read.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
