//! The siege: a card with a real server behind it is attacked, and a client that behaves keeps
//! asking.
//!
//! Each attack meets a card of its own, so what one leaves behind does not burden another.
//! Before, during and after it the client's replies are timed and compared with the files; the
//! card's gauges and its process's memory are looked at twice a second. When the attack is over
//! nothing more comes of it, not even a reset: the card has to get rid of it by itself, and the run
//! waits until it has, or has not in time.
//!
//! Everything happens in network namespaces that the run makes, with attackers' addresses of the
//! range that is set aside for measurements (RFC 2544).

mod address;
mod attack;
mod client;
mod crowd;
mod figure;
mod flood;
mod gauges;
mod generator;
mod ground;
mod mutants;
mod peer;
mod report;
mod tamper;
mod wire;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

pub use attack::{AttackKind, Strength};
pub use client::Seen;
pub use figure::draw;
pub use gauges::Gauges;
pub use report::{Moment, Outcome, RETURNING, Report, Setting, Verdict};

use crate::impair::site::Site;
use crate::progress::{Progress, Stop};
use crate::wire::process::machine_load;
use crate::wire::{CLIENT_CPU, LOAD_MAX, Object, SERVER_CPU, check_machine, kernel, versions};
use client::Client;
use generator::Generator;
use ground::Ground;

/// How long the card may take to store a file.
const FILL: Duration = Duration::from_secs(30);
/// Time between two looks at the card.
const LOOK: Duration = Duration::from_millis(500);
/// How far above its level before the attack a gauge may be to count as returned: the client opens
/// and closes connections all the time.
const SLACK: u64 = 40;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// Which attacks.
    pub attacks: Vec<AttackKind>,
    /// How hard.
    pub strength: Strength,
    /// Seconds of the quiet before an attack, and after it.
    pub quiet_s: u32,
    /// Seconds of an attack.
    pub seconds: u32,
    /// Seconds that the card may take to get rid of an attack.
    pub return_s: u32,
    /// How long the client pauses after each reply while the card gets rid of an attack.
    pub pause: Duration,
    /// What all that is random follows from.
    pub seed: u64,
    /// Where the files are put for the time of the run: on a file system that nicache can watch.
    pub folder: PathBuf,
    /// Options of `nicache run`.
    pub options: Vec<String>,
    /// Ends it early.
    pub stop: Stop,
}

/// Attacks, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something, or the card ends. That it does worse than it should is told of in
/// the report.
pub fn run(plan: &Plan) -> Result<Report> {
    check_machine("bench siege")?;
    ensure!(plan.seconds > 0 && plan.quiet_s > 0, "an attack takes at least a second");
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let site = Site::create(&plan.folder, &[100, 10_000, 100_000, 1_000_000])?;
    let mut progress = Progress::new(plan.attacks.len(), &plan.stop);
    let mut outcomes = Vec::new();
    for &kind in &plan.attacks {
        progress.begin(kind.label())?;
        outcomes.push(besiege(plan, kind, &site).with_context(|| kind.label())?);
    }
    progress.end();
    let setting = Setting {
        seconds: plan.seconds,
        pause_ms: plan.pause.as_millis() as u64,
        seed: plan.seed,
        strength: plan.strength,
        options: plan.options.clone(),
        cpus,
        kernel: kernel(),
        versions: versions(&[("nginx", "-v")]),
        load_before,
        busy: load_before > LOAD_MAX,
    };
    Ok(Report { setting, outcomes })
}

/// One attack, on a card of its own.
fn besiege(plan: &Plan, kind: AttackKind, site: &Site) -> Result<Outcome> {
    let (mut ground, wire) = Ground::start(site, &plan.nicache, &plan.options, SERVER_CPU)?;
    prepare(&mut ground, plan)?;
    let client = Client::start(ground.client(), ground.address(), CLIENT_CPU, plan.pause)?;
    let mut watch = Watch { plan, begun: Instant::now(), client, moments: Vec::new(), replies: 0 };
    let quiet = Duration::from_secs(plan.quiet_s.into());
    let before = watch.look_for(&mut ground, quiet)?;
    watch.client.enter(1);
    let attack_from_s = watch.begun.elapsed().as_secs_f64();
    let generator = Generator::start(wire, kind.begin(&plan.strength, plan.seed), CLIENT_CPU)?;
    let during = watch.look_for(&mut ground, Duration::from_secs(plan.seconds.into()))?;
    let (wire, told) = generator.end()?;
    watch.client.enter(2);
    let attack_to_s = watch.begun.elapsed().as_secs_f64();
    let returned_s = watch.wait_for_return(&mut ground, &before)?;
    watch.client.enter(3);
    let after = watch.look_for(&mut ground, quiet)?;
    let Watch { client, moments, .. } = watch;
    let seen = client.end()?;
    drop(wire);
    Ok(Outcome::new(
        kind,
        seen,
        [before, during, after],
        moments,
        [attack_from_s, attack_to_s],
        returned_s,
        &told,
    ))
}

/// Has the card store every file, and compares them.
fn prepare(ground: &mut Ground, plan: &Plan) -> Result<()> {
    let deadline = Instant::now() + FILL;
    for bytes in [100, 10_000, 100_000, 1_000_000] {
        let object = Object { bytes, connections: 1 };
        loop {
            let before = ground.gauges(&plan.nicache)?.of("hits");
            let (address, path) = (ground.address(), object.path());
            let body = ground.client().run(move || fetch(address, &path))?;
            ensure!(body.ends_with(&object.body()), "the body is not what the file holds");
            if ground.gauges(&plan.nicache)?.of("hits") > before {
                break;
            }
            ensure!(
                Instant::now() < deadline,
                "the card has not stored {path} after {} s",
                FILL.as_secs(),
                path = object.path()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

fn fetch(server: std::net::SocketAddr, path: &str) -> Result<Vec<u8>> {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect_timeout(&server, FILL)?;
    stream.set_read_timeout(Some(FILL))?;
    stream.write_all(
        format!("GET {path} HTTP/1.1\r\nHost: siege\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(reply)
}

/// Looks at the card while time passes.
struct Watch<'a> {
    plan: &'a Plan,
    begun: Instant,
    client: Client,
    moments: Vec<Moment>,
    replies: u64,
}

impl Watch<'_> {
    /// One look; also noted for the figure.
    fn look(&mut self, ground: &mut Ground) -> Result<Gauges> {
        self.plan.stop.check()?;
        let gauges = ground.gauges(&self.plan.nicache)?;
        let (at_s, replies) = (self.begun.elapsed().as_secs_f64(), self.client.replies());
        let last_s = self.moments.last().map_or(0.0, |moment| moment.at_s);
        self.moments.push(Moment {
            at_s,
            requests_per_s: (replies - self.replies) as f64 / (at_s - last_s).max(1e-3),
            resident_bytes: gauges.resident_bytes,
            flows: gauges.of("flows_now"),
            half_open: gauges.of("half_open_now"),
        });
        self.replies = replies;
        Ok(gauges)
    }

    /// Looks for so long; gives what was seen last, with the most of every gauge, and of the
    /// memory.
    fn look_for(&mut self, ground: &mut Ground, time: Duration) -> Result<[Gauges; 2]> {
        let end = Instant::now() + time;
        let mut most = Gauges::default();
        loop {
            std::thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
            let last = self.look(ground)?;
            most.raise(&last);
            if Instant::now() >= end {
                return Ok([last, most]);
            }
        }
    }

    /// Waits until the gauges are where they were; how many seconds that took, `None` if it takes
    /// too long.
    fn wait_for_return(
        &mut self,
        ground: &mut Ground,
        [_, before]: &[Gauges; 2],
    ) -> Result<Option<f64>> {
        let begun = Instant::now();
        loop {
            let now = self.look(ground)?;
            if RETURNING.iter().all(|name| has_returned(before.of(name), now.of(name))) {
                return Ok(Some(begun.elapsed().as_secs_f64()));
            }
            if begun.elapsed().as_secs() >= u64::from(self.plan.return_s) {
                return Ok(None);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Is a gauge where it was, at most, before?
fn has_returned(before: u64, now: u64) -> bool {
    now <= before + before / 4 + SLACK
}

/// Reads a report that was written before.
///
/// # Errors
/// It cannot be read.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
