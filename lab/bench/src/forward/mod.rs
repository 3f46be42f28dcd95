//! `nicache bench forward`: what it costs to forward, beside the kernel, nftables and HAProxy.
//!
//! All subjects stand between the same two namespaces, one after the other, in every round anew.
//! Everything of the kernel's that helps is on (super-frames, GRO), for all of them alike. CPU is
//! that of the whole machine, client and server included, because what the kernel does for a packet
//! is charged to whoever runs; so other work on the machine is charged, too, and the share of the
//! processes that take part is told beside it.

mod balancer;
mod figure;
mod ground;
mod report;
mod subject;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nicache_forward::modes::Mode;

use crate::progress::Progress;
use crate::wire::process::machine_load;
use crate::wire::{LOAD_MAX, check_namespaces, kernel};
use crate::{Stop, Summary};
pub use figure::draw;
use ground::{Ground, Load, Moved};
pub use report::{Ratio, Report, Row, Setting, read_report};
use subject::Subject;

const LOADS: [Load; 4] = [Load::Tcp(1), Load::Tcp(16), Load::Udp, Load::Requests];

/// Who is compared with whom, by CPU, and the most that the first should take of the second's.
const AIMS: [(Subject, Subject, f64); 3] = [
    (Subject::Nicache(Mode::Direct), Subject::Haproxy, 0.6),
    (Subject::NicacheFast, Subject::Balancer, 1.1),
    (Subject::NicacheFast, Subject::Nftables, 1.0),
];

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

/// One measurement.
#[derive(Debug, Clone, Copy)]
struct Figures {
    /// Gb/s, or replies per second.
    rate: f64,
    /// Seconds of processors for each billion bytes, or microseconds for each reply.
    cpu: f64,
    /// Of these, those of client, server and what is between them.
    processes_cpu: f64,
}

impl Figures {
    fn of(load: Load, moved: &Moved) -> Self {
        let Moved { count, seconds, busy_s, ours_s } = *moved;
        let count = count as f64;
        // For one unit: a billion bytes, or a reply.
        let (units, rate, cpu) = match load {
            Load::Requests => (count, count / seconds, 1e6),
            Load::Tcp(_) | Load::Udp => (count / 1e9, count * 8.0 / 1e9 / seconds, 1.0),
        };
        Self { rate, cpu: busy_s * cpu / units, processes_cpu: ours_s * cpu / units }
    }
}

/// Measures.
///
/// # Errors
/// Something is missing, or a subject does not forward.
pub fn run(plan: &Plan) -> Result<Report> {
    check_namespaces("bench forward")?;
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
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
    let mut figures = vec![Vec::<Figures>::new(); cells.len()];
    let mut progress = Progress::new(cells.len() * plan.rounds as usize, &plan.stop);
    for _ in 0..plan.rounds {
        for ((subject, load), figures) in cells.iter().zip(&mut figures) {
            progress.begin(&format!("{}, {}", subject.label(), load.label()))?;
            let standing = subject.start(&ground, &plan.nicache, folder.path())?;
            let measured = ground.run(*load, subject.target(), plan.length, standing.pid());
            standing.stop(&ground)?;
            let moved =
                measured.with_context(|| format!("{}, {}", subject.label(), load.label()))?;
            figures.push(Figures::of(*load, &moved));
        }
    }
    progress.end();
    let measured: Vec<(Subject, Load, Vec<Figures>)> = cells
        .into_iter()
        .zip(figures)
        .filter(|(_, figures)| !figures.is_empty())
        .map(|((subject, load), figures)| (subject, load, figures))
        .collect();
    let rows = measured.iter().map(|(subject, load, figures)| Row {
        subject: subject.label(),
        load: load.label(),
        by_request: *load == Load::Requests,
        rate: Summary::of(figures.iter().map(|figures| figures.rate)),
        cpu: Summary::of(figures.iter().map(|figures| figures.cpu)),
        processes_cpu: Summary::of(figures.iter().map(|figures| figures.processes_cpu)),
    });
    let setting = Setting {
        rounds: plan.rounds,
        seconds: plan.length.as_secs_f64(),
        cpus,
        kernel: kernel(),
        load_before,
        busy: load_before > LOAD_MAX,
    };
    Ok(Report { setting, rows: rows.collect(), ratios: ratios(&measured) })
}

/// The aims, by rounds: what is compared was measured shortly after one another.
fn ratios(measured: &[(Subject, Load, Vec<Figures>)]) -> Vec<Ratio> {
    let find = |subject: Subject, load: Load| {
        measured.iter().find(|(of, by, _)| (*of, *by) == (subject, load))
    };
    let mut ratios = Vec::new();
    for (subject, other, aim) in AIMS {
        for load in LOADS {
            if let (Some((.., ours)), Some((.., theirs))) = (find(subject, load), find(other, load))
            {
                let by_rounds = ours.iter().zip(theirs).map(|(ours, theirs)| ours.cpu / theirs.cpu);
                ratios.push(Ratio {
                    subject: subject.label(),
                    other: other.label(),
                    load: load.label(),
                    cpu: Summary::of(by_rounds),
                    aim,
                });
            }
        }
    }
    ratios
}
