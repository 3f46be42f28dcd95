//! The impairment benchmark: the goodput of the card's sender beside that of Linux, over a path
//! that loses, reorders, duplicates and delays packets.
//!
//! ```text
//!  client namespace                                server namespace
//!  Linux ──TAP── forwarder with faults ──TAP── nginx                       Linux' sender, CUBIC
//!  Linux ──TAP── forwarder with faults ──TAP── bridge ── card ── nginx     the card's sender
//! ```
//!
//! The receiver is Linux in all cases, and fetches over a new connection each time. It has a CPU
//! together with the forwarder, the serving side has the other. All subjects run at once and take
//! turns: for each condition and each repetition every subject is measured in turn, beginning with
//! another one each time, so what is compared was measured within seconds. The n-th packet of
//! a transfer meets the same fate whoever answers. A transfer that takes too long is cut off, and
//! counts with what has come of it. Bodies are compared. Reported are medians with quartiles, and
//! geometric means of the shares of pairs: with losses, single transfers differ by orders of
//! magnitude, and neither the fastest nor the slowest shall decide alone.

mod condition;
mod figure;
mod lane;
mod path;
mod report;
pub(crate) mod site;
mod spread;
mod subject;
mod transfer;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub use condition::Condition;
pub use figure::draw;
pub use report::{Cell, Report};
pub use subject::Subject;

use report::{Failure, Sample, Setting};
use site::Site;
use subject::Running;

use crate::progress::{Progress, Stop};
use crate::wire::process::machine_load;
use crate::wire::{LOAD_MAX, SERVER_CPU, check_machine, kernel, versions};

/// How long one transfer may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How often a repetition that the card did not see through is tried: writers elsewhere on the
/// machine can purge by chance, because sources share slots.
const TRIES: usize = 3;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// What everything random follows from.
    pub seed: u64,
    /// How often everything is measured.
    pub rounds: u32,
    /// Where the files are put for the time of the run: on a file system that nicache can watch.
    pub folder: PathBuf,
    /// A few conditions.
    pub quick: bool,
    /// Only conditions that have this in their label.
    pub only: String,
    /// Ends it early.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something. A condition that fails is told of in the report.
pub fn run(plan: &Plan) -> Result<Report> {
    check_machine("bench impair")?;
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let mut conditions = Condition::matrix(plan.quick);
    conditions.retain(|condition| condition.label().contains(&plan.only));
    ensure!(!conditions.is_empty(), "no condition has `{}` in its label", plan.only);
    // Those of one MTU follow each other, and sizes are innermost.
    conditions.sort_by_key(|condition| {
        (std::cmp::Reverse(condition.mtu), condition.path(), condition.bytes)
    });
    let mut sizes: Vec<u64> = conditions.iter().map(|condition| condition.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let site = Site::create(&plan.folder, &sizes)?;
    let mut runnings = Vec::new();
    for subject in Subject::ALL {
        let running = Running::start(subject, &site, &plan.nicache, SERVER_CPU);
        runnings.push((
            subject,
            running.with_context(|| format!("{} does not start", subject.label()))?,
        ));
    }
    let mut progress = Progress::new(conditions.len() * plan.rounds as usize, &plan.stop);
    let (mut samples, mut failures) = (Vec::new(), Vec::new());
    let mut bench = Bench { plan, site, runnings, transfers: 0 };
    let mut measured = 0;
    'conditions: for (number, condition) in conditions.iter().enumerate() {
        for (_, running) in &bench.runnings {
            running.set_mtu(condition.mtu)?;
        }
        let mut gathered: Vec<Sample> =
            Subject::ALL.iter().map(|subject| Sample::new(*subject, *condition)).collect();
        for round in 0..plan.rounds {
            let begun = progress.begin(&format!("{}, round {}", condition.label(), round + 1));
            if begun.is_err() && measured > 0 {
                // What was measured is worth telling.
                break 'conditions;
            }
            begun?;
            match bench.measure(condition, round, number + round as usize) {
                Ok(all) => {
                    gathered.iter_mut().zip(all).for_each(|(sum, sample)| sum.append(sample));
                }
                Err(failure) => failures.push(failure),
            }
        }
        samples.extend(gathered.into_iter().filter(|sample| !sample.mbit_per_s.is_empty()));
        measured += 1;
    }
    progress.end();
    if samples.is_empty() {
        bail!(
            "nothing could be measured: {}",
            failures.first().map_or("no condition", |failure| &failure.reason)
        );
    }
    let setting = Setting {
        seed: plan.seed,
        rounds: plan.rounds,
        cpus,
        kernel: kernel(),
        versions: versions(&[("nginx", "-v")]),
        load_before,
        busy: load_before > LOAD_MAX,
        left_out: (conditions.len() - measured) as u32,
    };
    Ok(Report::new(setting, samples, failures))
}

/// Everything that runs.
struct Bench<'a> {
    plan: &'a Plan,
    site: Site,
    runnings: Vec<(Subject, Running)>,
    /// Transfers so far: each has its number, and so its port.
    transfers: u32,
}

impl Bench<'_> {
    /// One repetition of a condition with all subjects, the one of number `turn` first; in the
    /// order of [`Subject::ALL`]. What fails is begun anew for all of them, with other ports and so
    /// with other fates.
    fn measure(
        &mut self,
        condition: &Condition,
        round: u32,
        turn: usize,
    ) -> Result<Vec<Sample>, Failure> {
        let seed = self.plan.seed.wrapping_add(u64::from(round));
        let mut tries = (0..TRIES).map(|_| {
            let numbers = self.transfers..self.transfers + condition.transfers();
            self.transfers = numbers.end;
            let order = (0..self.runnings.len()).map(|place| (turn + place) % self.runnings.len());
            let mut samples = order
                .map(|subject| {
                    self.measure_one(&self.runnings[subject], condition, seed, numbers.clone())
                })
                .collect::<Result<Vec<Sample>, Failure>>()?;
            samples.sort_by_key(|sample| sample.subject);
            Ok(samples)
        });
        let mut result = tries.next().unwrap_or_else(|| Ok(Vec::new()));
        while result.is_err()
            && let Some(again) = tries.next()
        {
            result = again;
        }
        result
    }

    fn measure_one(
        &self,
        (subject, running): &(Subject, Running),
        condition: &Condition,
        seed: u64,
        numbers: Range<u32>,
    ) -> Result<Sample, Failure> {
        self.fetch(*subject, running, condition, seed, numbers).map_err(|error| Failure {
            subject: *subject,
            condition: *condition,
            reason: format!("{error:#}"),
        })
    }

    fn fetch(
        &self,
        subject: Subject,
        running: &Running,
        condition: &Condition,
        seed: u64,
        numbers: Range<u32>,
    ) -> Result<Sample> {
        let (site, nicache) = (&self.site, &self.plan.nicache);
        running.prepare(condition, site, nicache)?;
        let hits = running.hits(nicache)?;
        running.path().set(condition.faults(seed));
        let server = running.address(condition.v6);
        let at_once = condition.at_once();
        let fetched =
            transfer::fetch_all(running.client(), server, condition.bytes, LIMIT, numbers, at_once);
        running.path().set(Condition::perfect());
        let fetched = fetched?;
        for transfer in &fetched {
            ensure!(
                site.is_body(condition.bytes, &transfer.body),
                "a body is not what the file holds"
            );
        }
        if subject != Subject::Linux {
            let (asked, answered) = (fetched.len() as u64, running.hits(nicache)? - hits);
            ensure!(answered >= asked, "of {asked} requests the card answered {answered}");
        }
        Ok(Sample {
            // What nothing has come of counts as a packet.
            mbit_per_s: fetched.iter().map(|transfer| transfer.mbit_per_s().max(0.001)).collect(),
            cut: fetched.iter().filter(|transfer| !transfer.is_whole).count() as u32,
            ..Sample::new(subject, *condition)
        })
    }
}

/// Reads a report that was written before.
///
/// # Errors
/// It cannot be read.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
