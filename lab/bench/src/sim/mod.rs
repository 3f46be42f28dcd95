//! The benchmark of simulations: how fast policies are played back, and curves made, beside
//! libCacheSim.
//!
//! One trace (Zipf's law, made here) is a file that both programs read. In each round each policy
//! is run by both, one after the other, as a user would run it: the whole process, reading
//! included, on one thread; what counts is processor time, which other work on the machine disturbs
//! little. Beside it the loop alone: ours is timed here, the peer's is what it says itself. Both
//! must find the same share of misses, to all digits that the peer prints; exact counts are
//! compared by the policies' tests.
//!
//! Memory per object is measured as the growth of the processes' memory from a small cache to a
//! large one, divided by the objects more.

mod child;
mod figure;
mod plan;
mod report;
mod trace;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_study::{Choice, PolicyName, Size, Workload, lru_curve, sizes_between};

pub use figure::draw;
pub use plan::Plan;
pub use report::{Curve, Report, Row, Setting, read_report};

use crate::Summary;
use crate::wire::process::machine_load;
use crate::wire::{LOAD_MAX, kernel};

/// The policies that are measured, and what the peer calls them, if it has the same.
pub const POLICIES: [(PolicyName, Option<&str>); 16] = [
    (PolicyName::Lru, Some("lru")),
    (PolicyName::Fifo, Some("fifo")),
    (PolicyName::S3Fifo, Some("s3fifo")),
    (PolicyName::Sieve, Some("sieve")),
    (PolicyName::Clock, Some("clock")),
    (PolicyName::Mru, None),
    (PolicyName::Lfu, Some("lfu")),
    (PolicyName::LfuDa, Some("lfuda")),
    (PolicyName::TwoQ, Some("twoq")),
    (PolicyName::Arc, Some("arc")),
    (PolicyName::Lirs, Some("lirs")),
    (PolicyName::WTinyLfu, Some("wtinylfu")),
    (PolicyName::Lrfu, None),
    (PolicyName::Gdsf, None),
    (PolicyName::Random, Some("random")),
    (PolicyName::Belady, Some("belady")),
];

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// A program cannot be run, or does not say what it found.
pub fn run(plan: &Plan) -> Result<Report> {
    ensure!(
        plan.requests > 0 && plan.objects > 0 && plan.cache_objects > 0,
        "requests, objects and a cache are needed"
    );
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let load = machine_load(Duration::from_secs(1), cpus)?;
    let folder = tempfile::Builder::new().prefix("nicache-bench-sim-").tempdir_in(&plan.folder);
    let folder =
        folder.with_context(|| format!("cannot make a folder in {}", plan.folder.display()))?;
    let path = folder.path().join("zipf.oracleGeneral");
    eprintln!("making a trace of {} requests", plan.requests);
    let workload = trace::make(plan, &path)?;
    let mut rows: Vec<Row> = Vec::new();
    let policies = POLICIES
        .iter()
        .filter(|(policy, _)| plan.policies.is_empty() || plan.policies.contains(policy));
    let mut measured: Vec<(PolicyName, Option<&str>, Measured)> = policies
        .map(|(policy, name)| (*policy, name.filter(|_| plan.peer.is_some()), Measured::default()))
        .collect();
    let mut curve = CurveMeasured::default();
    for round in 1..=plan.rounds {
        for (policy, peer_name, measured) in &mut measured {
            eprintln!("round {round} of {}: {}", plan.rounds, policy.name());
            measured.ours.push(run_ours(plan, *policy, &path, plan.cache_objects)?);
            measured.ours_loop.push(run_loop(plan, *policy, &workload));
            if let (Some(peer), Some(name)) = (&plan.peer, *peer_name) {
                measured.peer.push(run_peer(peer, name, &path, plan.cache_objects)?);
            }
        }
        eprintln!("round {round} of {}: the curve of LRU", plan.rounds);
        curve.measure(plan, &workload, &path)?;
    }
    for (policy, peer_name, measured) in measured {
        eprintln!("memory: {}", policy.name());
        rows.push(measured.row(plan, policy, peer_name, &path)?);
    }
    Ok(Report {
        setting: Setting {
            requests: plan.requests,
            objects: workload.objects,
            exponent: plan.exponent,
            cache_objects: plan.cache_objects,
            rounds: plan.rounds,
            peer: plan.peer.as_ref().map(|peer| peer.display().to_string()),
            kernel: kernel(),
            cpus,
            busy: load > LOAD_MAX,
        },
        rows,
        curve: curve.report(plan),
    })
}

/// What a run of a program was.
#[derive(Debug, Clone, Copy)]
struct Ran {
    cpu_s: f64,
    miss_ratio: f64,
    memory_bytes: u64,
    /// What it says of its loop, in requests per second.
    loop_per_s: Option<f64>,
}

#[derive(Debug, Default)]
struct Measured {
    ours: Vec<Ran>,
    ours_loop: Vec<f64>,
    peer: Vec<Ran>,
}

impl Measured {
    fn row(
        &self,
        plan: &Plan,
        policy: PolicyName,
        peer_name: Option<&str>,
        path: &Path,
    ) -> Result<Row> {
        let requests = f64::from(plan.requests);
        let rate = |runs: &[Ran]| Summary::of(runs.iter().map(|run| requests / run.cpu_s));
        let (few, many) = ((plan.cache_objects / 16).max(1), plan.objects / 3);
        // A program that gives memory back before its end cannot be measured so.
        let growth = |run: &dyn Fn(u32) -> Result<Ran>| -> Result<Option<f64>> {
            let (small, large) = (run(few)?, run(many)?);
            let more = f64::from(many.saturating_sub(few).max(1));
            let growth = (large.memory_bytes as f64 - small.memory_bytes as f64) / more;
            Ok(Some(growth).filter(|growth| *growth > 0.0))
        };
        let ours = growth(&|objects| run_ours(plan, policy, path, objects))?;
        let peer = match (&plan.peer, peer_name) {
            (Some(peer), Some(name)) => growth(&|objects| run_peer(peer, name, path, objects))?,
            _ => None,
        };
        let has_peer = !self.peer.is_empty();
        let pairs = self.ours.iter().zip(&self.peer);
        Ok(Row {
            policy: policy.name().to_owned(),
            ours_per_s: rate(&self.ours),
            peer_per_s: has_peer.then(|| rate(&self.peer)),
            ratio: has_peer.then(|| Summary::of(pairs.map(|(ours, peer)| peer.cpu_s / ours.cpu_s))),
            ours_loop_per_s: Summary::of(self.ours_loop.iter().copied()),
            peer_loop_per_s: has_peer
                .then(|| Summary::of(self.peer.iter().filter_map(|run| run.loop_per_s))),
            ours_miss_ratio: self.ours.first().map_or(0.0, |run| run.miss_ratio),
            peer_miss_ratio: self.peer.first().map(|run| run.miss_ratio),
            ours_object_bytes: ours,
            peer_object_bytes: peer,
        })
    }
}

/// `nicache sim curve` with one policy and one size.
fn run_ours(plan: &Plan, policy: PolicyName, path: &Path, objects: u32) -> Result<Ran> {
    let sizes = objects.to_string();
    let arguments = [
        "sim",
        "curve",
        "--json",
        "--room",
        "one",
        "--threads",
        "1",
        "--policies",
        policy.name(),
        "--sizes",
        &sizes,
    ];
    let (ended, json) = ours(plan, &arguments, path)?;
    let point = &json["curves"][0]["points"][0];
    let (Some(accesses), Some(hits)) = (point["accesses"].as_f64(), point["hits"].as_f64()) else {
        bail!("nicache sim curve did not tell its accesses and hits");
    };
    Ok(Ran {
        cpu_s: ended.cpu_s,
        miss_ratio: 1.0 - hits / accesses,
        memory_bytes: ended.memory_bytes,
        loop_per_s: None,
    })
}

fn ours(plan: &Plan, arguments: &[&str], path: &Path) -> Result<(child::Ended, serde_json::Value)> {
    let mut command = std::process::Command::new(&plan.nicache);
    command.args(arguments).arg(path);
    let ended = child::run(command)?;
    let json =
        serde_json::from_str(&ended.stdout).context("nicache sim curve did not answer in JSON")?;
    Ok((ended, json))
}

fn run_peer(peer: &Path, name: &str, path: &Path, objects: u32) -> Result<Ran> {
    let mut command = std::process::Command::new(peer);
    // It appends its result to a file in its folder.
    command.current_dir(path.parent().unwrap_or_else(|| Path::new("/")));
    command.arg(path).args(["oracleGeneral", name, &objects.to_string(), "--ignore-obj-size", "1"]);
    let ended = child::run(command)?;
    let number_after = |what: &str| -> Result<f64> {
        let rest = ended
            .stdout
            .rsplit_once(what)
            .with_context(|| format!("{} told no{what}", peer.display()))?
            .1;
        let word = rest.split_whitespace().next().unwrap_or_default().trim_end_matches(',');
        word.parse()
            .with_context(|| format!("{} told no number after{what}: {rest}", peer.display()))
    };
    Ok(Ran {
        cpu_s: ended.cpu_s,
        miss_ratio: number_after(" miss ratio ")?,
        memory_bytes: ended.memory_bytes,
        loop_per_s: Some(number_after(" throughput ")? * 1e6),
    })
}

/// Requests per second of the loop alone, the trace being in memory.
fn run_loop(plan: &Plan, policy: PolicyName, workload: &Workload) -> f64 {
    let begin = cpu_s();
    let objects = plan.cache_objects.min(workload.objects);
    let counts =
        Choice::from(policy).simulate(workload, u64::from(plan.cache_objects), objects, |_| {});
    counts.requests as f64 / (cpu_s() - begin)
}

#[derive(Debug, Default)]
struct CurveMeasured {
    sizes: usize,
    loop_s: Vec<f64>,
    whole_s: Vec<f64>,
    wall_s: Vec<f64>,
}

impl CurveMeasured {
    fn measure(&mut self, plan: &Plan, workload: &Workload, path: &Path) -> Result<()> {
        let sizes: Vec<u64> = sizes(workload).iter().map(|size| size.0).collect();
        self.sizes = sizes.len();
        let begin = cpu_s();
        let curve = lru_curve(workload, &sizes, |_| {});
        self.loop_s.push(cpu_s() - begin);
        ensure!(curve.len() == sizes.len(), "the curve has not all its sizes");
        let begin = Instant::now();
        let (ended, _) = ours(
            plan,
            &["sim", "curve", "--json", "--room", "one", "--threads", "1", "--policies", "lru"],
            path,
        )?;
        self.wall_s.push(begin.elapsed().as_secs_f64());
        self.whole_s.push(ended.cpu_s);
        Ok(())
    }

    fn report(self, plan: &Plan) -> Curve {
        Curve {
            sizes: self.sizes,
            requests: plan.requests,
            loop_s: Summary::of(self.loop_s),
            whole_s: Summary::of(self.whole_s),
            wall_s: Summary::of(self.wall_s),
        }
    }
}

/// Sizes of caches for the curve: those that `nicache-lab sim curve` takes by default.
fn sizes(workload: &Workload) -> Vec<Size> {
    let most = u64::from(workload.objects).next_power_of_two();
    sizes_between(Size((most >> 10).max(1)), Size(most), 4)
}

/// Processor time of this thread, in seconds.
fn cpu_s() -> f64 {
    nicache_clock::thread_cpu_ns() as f64 / 1e9
}
