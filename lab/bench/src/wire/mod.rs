//! The wire benchmark: the same client, files and nginx configuration, with different things in
//! between.
//!
//! ```text
//!  client namespace (wrk, cpu 0)          server namespace (cpu 1)
//!  nginx, Apache     wrk ──veth────────────────────────── nginx, Apache
//!  Varnish, HAProxy  wrk ──veth── varnishd, haproxy ──veth── nginx   (one more namespace)
//!  card              wrk ──TAP─── nicache card ──TAP───── nginx
//! ```
//!
//! The client has one CPU and the whole serving side another; in one kind of measurement both have
//! both, so what one side saves is the other's. Every subject runs alone: it is started anew
//! for every object of every round, so what one of them leaves behind (a kernel witness slows
//! down system calls of the whole machine) does not burden another. Rounds are interleaved, so
//! a drift of the machine hits all alike; reported are medians with the least and the most.
//!
//! What makes such measurements wrong, and is taken care of: the machine's default congestion
//! control (set to CUBIC by route on both sides), receive coalescing of veth (switched on), cold
//! caches (a warm-up precedes each measurement), a cache that does not answer although it should,
//! or the other way round (the card's counters are compared with the number of requests), failed
//! requests.

mod cell;
pub mod cpu;
mod figure;
pub mod floor;
pub(crate) mod load;
pub(crate) mod namespace;
mod peers;
pub(crate) mod process;
mod report;
pub(crate) mod site;
pub(crate) mod subject;

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::progress::{Progress, Stop};

use anyhow::{Result, bail, ensure};

pub use cell::{Mode, Sample};
pub use figure::draw;
pub use report::{Cell, Report};
pub use site::Object;
pub use subject::Subject;

pub(crate) use report::grouped;

use cpu::Cpus;
use load::Client;
use process::machine_load;
use report::{Failure, Setting, Skipped};
use site::{NGINX_SETTINGS, OBJECTS, Site};
use subject::{NotByCache, Running};

pub(crate) const CLIENT_CPU: usize = 0;
pub(crate) const SERVER_CPU: usize = 1;
/// How often a measurement that the cache did not see through is tried.
const TRIES: usize = 3;
/// Programs that tell their versions, and how.
const VERSIONS: [(&str, &str); 5] =
    [("nginx", "-v"), ("apache2", "-v"), ("varnishd", "-V"), ("haproxy", "-v"), ("wrk", "-v")];
/// Share of the machine that others may use before the report warns.
pub(crate) const LOAD_MAX: f64 = 0.05;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// How often everything is measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// Where the files are put for the time of the run: a folder whose own entries nobody changes
    /// meanwhile (that would purge what is below it), on a file system that nicache can watch.
    pub folder: PathBuf,
    /// Three objects instead of five.
    pub few_objects: bool,
    /// Only what has this in its label `object, subject, mode`.
    pub only: String,
    /// Ends it early.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something that every subject needs. A subject that fails is told of in the
/// report.
pub fn run(plan: &Plan) -> Result<Report> {
    check_machine("bench wire")?;
    ensure!(plan.rounds > 0 && plan.seconds > 0, "at least one round and one second are needed");
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let mut skipped = Vec::new();
    let mut subjects = Vec::new();
    for subject in Subject::ALL {
        match subject.programs().iter().find(|(program, _)| !is_installed(program)) {
            Some((program, package)) => skipped.push(Skipped {
                subject,
                reason: format!(
                    "{program} is not installed (Debian, Ubuntu: apt-get install {package})"
                ),
            }),
            None => subjects.push(subject),
        }
    }
    let objects: Vec<Object> = OBJECTS
        .into_iter()
        .filter(|object| !plan.few_objects || [100, 10_000, 1_000_000].contains(&object.bytes))
        .collect();
    let mut run = Run::new(plan)?;
    run.measure_all(&objects, &subjects)?;
    if run.samples.is_empty() {
        let first = run.failures.first().map_or("no subject can run", |failure| &failure.reason);
        bail!("nothing could be measured: {first}");
    }
    let setting = Setting {
        rounds: plan.rounds,
        seconds: plan.seconds,
        cpus,
        kernel: kernel(),
        nginx: NGINX_SETTINGS.to_owned(),
        others: subjects
            .iter()
            .filter_map(|subject| Some(format!("{}: {}", subject.label(), subject.settings()?)))
            .collect(),
        versions: versions(&VERSIONS),
        load_before,
        busy: load_before > LOAD_MAX,
        repeated: run.repeated,
    };
    Ok(Report::new(setting, run.samples, skipped, run.failures))
}

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
    site: Site,
    client: Client,
    sharing_client: Client,
    samples: Vec<Sample>,
    failures: Vec<Failure>,
    repeated: u32,
}

impl Run<'_> {
    fn new(plan: &Plan) -> Result<Run<'_>> {
        let site = Site::create(&plan.folder)?;
        let client = Client::new(site.folder(), CLIENT_CPU)?;
        let sharing_client = Client::new(site.folder(), Cpus::Shared)?;
        Ok(Run {
            plan,
            site,
            client,
            sharing_client,
            samples: Vec::new(),
            failures: Vec::new(),
            repeated: 0,
        })
    }

    fn measure_all(&mut self, objects: &[Object], subjects: &[Subject]) -> Result<()> {
        let label =
            |object: &Object, subject: Subject| format!("{}, {}", object.label(), subject.label());
        let chosen = |object: &Object, subject: Subject| {
            subject.takes(object)
                && Mode::ALL.iter().any(|mode| self.is_chosen(object, subject, *mode))
        };
        let kinds: Vec<(Object, Vec<Subject>)> = objects
            .iter()
            .map(|object| {
                (
                    *object,
                    subjects.iter().copied().filter(|subject| chosen(object, *subject)).collect(),
                )
            })
            .collect();
        let rounds = self.plan.rounds as usize;
        let mut progress = Progress::new(
            rounds * kinds.iter().map(|(_, subjects)| subjects.len()).sum::<usize>(),
            &self.plan.stop,
        );
        ensure!(
            kinds.iter().any(|(_, subjects)| !subjects.is_empty()),
            "nothing has `{}` in its label",
            self.plan.only
        );
        for round in 0..rounds {
            for (object, subjects) in &kinds {
                // Another one begins in each round.
                for turn in 0..subjects.len() {
                    let subject = subjects[(round + turn) % subjects.len()];
                    progress.begin(&format!(
                        "round {} of {rounds}: {}",
                        round + 1,
                        label(object, subject)
                    ))?;
                    if let Err(error) = self.measure(subject, object, round) {
                        self.note(subject, object, round, &error);
                    }
                }
            }
        }
        progress.end();
        Ok(())
    }

    fn is_chosen(&self, object: &Object, subject: Subject, mode: Mode) -> bool {
        format!("{}, {}, {}", object.label(), subject.label(), mode.label())
            .contains(&self.plan.only)
    }

    fn note(&mut self, subject: Subject, object: &Object, round: usize, error: &anyhow::Error) {
        self.failures.push(Failure {
            subject,
            object: *object,
            round,
            reason: format!("{error:#}"),
        });
    }

    /// Starts a subject, once on a CPU of its own and once on both, and measures one object in
    /// every mode.
    fn measure(&mut self, subject: Subject, object: &Object, round: usize) -> Result<()> {
        for is_shared in [false, true] {
            let is_due = |mode: &Mode| {
                mode.is_shared() == is_shared && self.is_chosen(object, subject, *mode)
            };
            let modes: Vec<Mode> = Mode::ALL.into_iter().filter(is_due).collect();
            if !modes.is_empty() {
                self.measure_on(
                    if is_shared { Cpus::Shared } else { SERVER_CPU.into() },
                    &modes,
                    subject,
                    object,
                    round,
                )?;
            }
        }
        Ok(())
    }

    fn measure_on(
        &mut self,
        cpus: Cpus,
        modes: &[Mode],
        subject: Subject,
        object: &Object,
        round: usize,
    ) -> Result<()> {
        let running = Running::start(subject, object, &self.site, &self.plan.nicache, cpus)?;
        for &mode in modes {
            let client = if mode.is_shared() { &self.sharing_client } else { &self.client };
            let mut tries = 0;
            loop {
                running.prepare(object)?;
                tries += 1;
                match cell::measure(&running, subject, object, mode, client, self.plan.seconds) {
                    Ok(sample) => break self.samples.push(sample),
                    // Writers elsewhere on the machine can purge by chance (sources share slots);
                    // then the object is filled again.
                    Err(error) if error.is::<NotByCache>() && tries < TRIES => self.repeated += 1,
                    Err(error) => {
                        let error = error.context(mode.label());
                        break self.note(subject, object, round, &error);
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the machine has what measurements with `wrk` between namespaces need. `command` is for
/// the message.
pub(crate) fn check_machine(command: &str) -> Result<()> {
    check_namespaces(command)?;
    ensure!(is_installed("wrk"), "wrk is not installed (Debian, Ubuntu: apt-get install wrk)");
    Ok(())
}

/// Whether the machine has what every measurement between namespaces needs. `command` is for the
/// message.
pub(crate) fn check_namespaces(command: &str) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "this benchmark makes network namespaces: run it as root, e.g. `sudo nicache {command}`"
    );
    let cpus = std::thread::available_parallelism()?.get();
    ensure!(
        cpus >= 2,
        "this benchmark needs two CPUs, one for the client and one for the server; this machine has {cpus}"
    );
    let needed = [
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
        ("taskset", "util-linux"),
        ("setpriv", "util-linux"),
        ("unshare", "util-linux"),
        ("nsenter", "util-linux"),
    ];
    for (program, package) in needed {
        ensure!(
            is_installed(program),
            "{program} is not installed (Debian, Ubuntu: apt-get install {package})"
        );
    }
    Ok(())
}

pub(crate) fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// First lines of what the programs say about themselves; each with the flag that makes it do so.
pub(crate) fn versions(programs: &[(&str, &str)]) -> Vec<String> {
    programs
        .iter()
        .filter_map(|(program, flag)| {
            let output = std::process::Command::new(program).arg(flag).output().ok()?;
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said).lines().next()?.to_owned();
            let said = [" Copyright", " - http"]
                .iter()
                .fold(&said[..], |said, end| said.split(end).next().unwrap_or(said));
            Some(
                said.trim_start_matches("nginx version: ")
                    .trim_start_matches("Server version: ")
                    .to_owned(),
            )
        })
        .collect()
}

/// Reads a report that was written before.
///
/// # Errors
/// It cannot be read.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
