//! The benchmark of source sets: Figure 5 of the CacheCard paper (section 3.2), and what its sets
//! lead to when files change.
//!
//! A thousand PHP scripts each read one file of their own, and include one of a few that many
//! share. Clients ask for them at random moments and do not wait, so many requests are in
//! flight at once; a *slow* script sleeps before it ends. Which files is each page made of? All
//! methods ([`Method`]) get the same events of the same run, from the kernel's witnesses; the truth
//! is known from how the scripts were written. Meanwhile files are edited at random, and each
//! method says which pages go.
//!
//! Deliberately absent: the card. What it would do follows from the sets.

mod figure;
mod load;
mod methods;
mod report;
mod site;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_coherence::RevisionTable;
use nicache_netns::Namespace;
use nicache_watch::{Attribution, Drained, EventKind, KernelWatcher, LookupEvent, LookupRing};

pub use figure::draw;
pub use methods::{Method, Purges, Sizes};
pub use report::{CaseReport, MethodReport, Point, Report, Setting, read_report};
pub use site::{Script, Source};

use load::{Answered, Random, Zipf};
use methods::{Knowledge, Seen};
use site::{INCLUDES, SCRIPTS, Site};

use crate::progress::{Progress, Stop};
use crate::wire::process::machine_load;
use crate::wire::{LOAD_MAX, check_machine, is_installed, kernel, versions};

/// Clients (section 3.2).
const CLIENTS: usize = 3;
/// Popularity falls with the rank to the power of this; the paper's own figure for Figure 4.
const ALPHA: f64 = 0.75;
/// Points of a curve.
const POINTS: usize = 240;
/// Look-ups are kept for longer than any request takes.
const KEPT_NS: u64 = 60_000_000_000;
/// Events come nearly in order of time.
const DISORDER_NS: u64 = 50_000_000;
/// Between two looks at the kernel's ring.
const PAUSE: Duration = Duration::from_millis(5);
/// One edit in so many is of a file that scripts include.
const INCLUDE_EDITS: u64 = 5;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Requests of each kind of script.
    pub requests: usize,
    /// Mean time between two requests of all clients together.
    pub interval: Duration,
    /// How long a slow script sleeps.
    pub sleep: Duration,
    /// Processes of PHP for slow scripts.
    pub workers: u32,
    /// Edits per second.
    pub edits: f64,
    /// Of the random numbers.
    pub seed: u64,
    /// Ends it early.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something that is needed, or the kernel lost events.
pub fn run(plan: &Plan) -> Result<Report> {
    ensure!(
        plan.requests > 0 && plan.edits > 0.0,
        "at least one request and some edits are needed"
    );
    check_machine("bench sets")?;
    for (program, package) in [("nginx", "nginx"), ("php-fpm8.2", "php8.2-fpm")] {
        ensure!(
            is_installed(program),
            "{program} is not installed (Debian, Ubuntu: apt-get install {package})"
        );
    }
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let mut progress = Progress::new(2 * Script::ALL.len(), &plan.stop);
    let mut cases = Vec::new();
    for script in Script::ALL {
        progress.begin(&format!("{}: starting nginx and PHP-FPM", script.label()))?;
        cases.push(measure(plan, script, &mut progress).with_context(|| script.label())?);
    }
    progress.end();
    let setting = Setting {
        scripts: SCRIPTS,
        includes: INCLUDES,
        requests: plan.requests,
        clients: CLIENTS,
        interval_ms: plan.interval.as_secs_f64() * 1e3,
        sleep_ms: plan.sleep.as_secs_f64() * 1e3,
        workers: plan.workers,
        alpha: ALPHA,
        edits_per_s: plan.edits,
        kernel: kernel(),
        versions: versions(&[("nginx", "-v"), ("php-fpm8.2", "-v")]),
        cpus,
        busy: load_before > LOAD_MAX,
    };
    Ok(Report { setting, cases })
}

fn measure(plan: &Plan, script: Script, progress: &mut Progress) -> Result<CaseReport> {
    let logs = tempfile::Builder::new().prefix("nicache-bench-").tempdir()?;
    let (client, server) = site::namespaces()?;
    let watcher = KernelWatcher::load(u32::try_from(server.inode())?)?;
    let table = Arc::new(watcher.table()?);
    table.set_service_ports(&[site::server_address().port()]);
    let mut ring = LookupRing::map(watcher.ring_fd())?;
    let mut attribution = Attribution::default();
    // Connections that are accepted from here on are seen.
    let workers =
        if script == Script::Slow { plan.workers } else { plan.workers.min(FAST_WORKERS) };
    let site = Site::start(&server, script, plan.sleep, workers, logs.path(), || {
        let _ = ring.drain(|event| attribution.observe(&event));
    })?;
    progress.begin(&format!("{}: {} requests", script.label(), plan.requests))?;
    let mut observer = Observer::new(plan, &site, ring, table, attribution);
    let answers = send_requests(plan, &client);
    let outcome = observer.follow(&answers.0);
    for sender in answers.1 {
        sender.join().map_err(|_| anyhow::anyhow!("a client has panicked"))??;
    }
    outcome?;
    observer.report(script, workers)
}

/// Fast scripts need few processes.
const FAST_WORKERS: u32 = 32;

type Senders = Vec<std::thread::JoinHandle<Result<()>>>;

/// Starts the clients.
fn send_requests(plan: &Plan, client: &Namespace) -> (Receiver<Answered>, Senders) {
    let (tell, answers) = channel();
    let (mean, zipf) = (plan.interval * CLIENTS as u32, Zipf::new(SCRIPTS, ALPHA));
    let senders = (0..CLIENTS).map(|number| {
        let (tell, zipf, random) =
            (tell.clone(), zipf.clone(), Random::new(plan.seed + number as u64));
        let requests = plan.requests / CLIENTS + usize::from(number < plan.requests % CLIENTS);
        let ask = move || load::ask(site::server_address(), requests, mean, &zipf, random, &tell);
        // A thread is in the namespace of the one that starts it.
        client.run(move || std::thread::spawn(ask))
    });
    (answers, senders.collect())
}

/// Follows a run: the kernel's events, answers, and edits.
struct Observer<'a> {
    plan: &'a Plan,
    site: &'a Site,
    ring: LookupRing,
    table: Arc<RevisionTable>,
    attribution: Attribution,
    lookups: VecDeque<(Source, LookupEvent)>,
    knowledge: Vec<Knowledge>,
    edits: Vec<(u64, Source)>,
    random: Random,
    answered: usize,
    failed: usize,
    identified: usize,
    in_flight: f64,
    first_ns: u64,
    last_ns: u64,
    points: Vec<Point>,
}

impl<'a> Observer<'a> {
    fn new(
        plan: &'a Plan,
        site: &'a Site,
        ring: LookupRing,
        table: Arc<RevisionTable>,
        attribution: Attribution,
    ) -> Self {
        Observer {
            plan,
            site,
            ring,
            table,
            attribution,
            lookups: VecDeque::new(),
            knowledge: Method::ALL.map(Knowledge::new).into(),
            edits: Vec::new(),
            random: Random::new(plan.seed ^ 0xed17),
            answered: 0,
            failed: 0,
            identified: 0,
            in_flight: 0.0,
            first_ns: u64::MAX,
            last_ns: 0,
            points: Vec::new(),
        }
    }

    fn follow(&mut self, answers: &Receiver<Answered>) -> Result<()> {
        let mean = Duration::from_secs_f64(1.0 / self.plan.edits);
        let mut due = Instant::now() + self.random.wait(mean);
        loop {
            std::thread::sleep(PAUSE);
            // What was answered before the ring is emptied has all its events in it.
            let mut batch = Vec::new();
            let is_over = loop {
                match answers.try_recv() {
                    Ok(answered) => batch.push(answered),
                    Err(TryRecvError::Empty) => break false,
                    Err(TryRecvError::Disconnected) => break true,
                }
            };
            self.drain()?;
            batch.sort_by_key(|answered| answered.finished_ns);
            for answered in &batch {
                self.note(answered);
                self.drain()?;
            }
            if is_over {
                self.in_flight /= self.last_ns.saturating_sub(self.first_ns).max(1) as f64;
                return Ok(());
            }
            while Instant::now() >= due {
                due += self.random.wait(mean);
                self.edit()?;
            }
        }
    }

    fn drain(&mut self) -> Result<()> {
        let begun = Instant::now();
        loop {
            let (site, attribution, lookups) =
                (self.site, &mut self.attribution, &mut self.lookups);
            let drained = self.ring.drain(|event| {
                attribution.observe(&event);
                if event.kind == EventKind::Lookup
                    && let Some(source) = site.source(&event.path)
                {
                    lookups.push_back((source, LookupEvent { path: Box::default(), ..event }));
                }
            });
            match drained {
                Drained::All => break,
                Drained::Busy if begun.elapsed() < Duration::from_secs(1) => std::hint::spin_loop(),
                Drained::Busy | Drained::Corrupt => bail!("the kernel's events cannot be read"),
            }
        }
        ensure!(
            self.table.lost() == 0,
            "the kernel lost events: the machine is too slow for so many requests"
        );
        let old_ns = nicache_clock::monotonic_ns().saturating_sub(KEPT_NS);
        while self.lookups.front().is_some_and(|(_, event)| event.time_ns < old_ns) {
            self.lookups.pop_front();
        }
        Ok(())
    }

    fn note(&mut self, answered: &Answered) {
        let &Answered { script, client, forwarded_ns, finished_ns, ok } = answered;
        self.answered += 1;
        self.in_flight += (finished_ns - forwarded_ns) as f64;
        self.first_ns = self.first_ns.min(forwarded_ns);
        self.last_ns = self.last_ns.max(finished_ns);
        if !ok {
            self.failed += 1;
            return;
        }
        let others = self.attribution.others(client, forwarded_ns, finished_ns);
        self.identified += usize::from(others.is_some());
        let (mut opened, mut looked_at, mut own) =
            ([false; Source::COUNT], [false; Source::COUNT], [false; Source::COUNT]);
        for (source, event) in self.lookups.iter().rev() {
            if event.time_ns > finished_ns {
                continue;
            }
            if event.time_ns < forwarded_ns {
                // Nearly in order: two processors may read the clock the other way round.
                if event.time_ns + DISORDER_NS < forwarded_ns {
                    break;
                }
                continue;
            }
            let at = source.index();
            looked_at[at] = true;
            opened[at] |= event.inode.is_some();
            if !own[at] {
                own[at] = !others.as_ref().is_some_and(|others| others.has(event));
            }
        }
        let those = |flags: [bool; Source::COUNT]| {
            Source::all().filter(|source| flags[source.index()]).collect()
        };
        let seen = Seen { opened: those(opened), looked_at: those(looked_at), own: those(own) };
        let edited: BTreeSet<Source> = self
            .edits
            .iter()
            .rev()
            .take_while(|(at_ns, _)| *at_ns >= forwarded_ns)
            .map(|(_, source)| *source)
            .collect();
        let edited: Vec<Source> = edited.into_iter().collect();
        for known in &mut self.knowledge {
            known.note(script, &seen, &edited);
        }
        if self.answered.is_multiple_of((self.plan.requests / POINTS).max(1))
            || self.answered == self.plan.requests
        {
            let sizes = Method::DRAWN.map(|method| self.known(method).sizes());
            self.points.push(Point { requests: self.answered, sizes });
        }
    }

    fn known(&self, method: Method) -> &Knowledge {
        &self.knowledge[Method::ALL.iter().position(|other| *other == method).unwrap_or(0)]
    }

    fn edit(&mut self) -> Result<()> {
        let count = self.edits.len() as u64 + 1;
        let source = if count.is_multiple_of(INCLUDE_EDITS) {
            Source::Include((self.random.uniform() * INCLUDES as f64) as usize)
        } else {
            Source::Data((self.random.uniform() * SCRIPTS as f64) as usize)
        };
        self.site.edit(source, count)?;
        self.edits.push((nicache_clock::monotonic_ns(), source));
        for known in &mut self.knowledge {
            known.edit(source);
        }
        Ok(())
    }

    fn report(self, script: Script, workers: u32) -> Result<CaseReport> {
        ensure!(
            self.failed * 100 <= self.answered,
            "{} of {} requests have failed",
            self.failed,
            self.answered
        );
        let methods = self.knowledge.iter().zip(Method::ALL).map(|(known, method)| MethodReport {
            method,
            last: known.sizes(),
            purges: known.purges(),
        });
        Ok(CaseReport {
            script,
            workers,
            answered: self.answered,
            failed: self.failed,
            identified: self.identified,
            in_flight: self.in_flight,
            edits: self.edits.len(),
            methods: methods.collect(),
            points: self.points,
        })
    }
}
