//! The benchmark of dynamic pages: a page that changes now and then, and what stands between it
//! and its readers.
//!
//! ```text
//!  client namespace (cpu 0)                       serving side (cpu 1)
//!  server alone   wrk, checker ──veth──────────── nginx, PHP-FPM, MariaDB
//!  nginx cache    wrk, checker ──veth──────────── nginx with fastcgi_cache, PHP-FPM, MariaDB
//!  Varnish        wrk, checker ──veth── varnishd ──veth── nginx, PHP-FPM, MariaDB
//!  nicache        wrk, checker ──TAP─── card ──TAP─────── nginx, PHP-FPM, MariaDB
//!  editor         changes the page 0, 1 or 10 times per second, by SQL or by renaming a file
//! ```
//!
//! A cache that does not know of changes can be fast or right. So the same run measures both: the
//! load tells requests per second, and a client beside it reads what it gets and holds it against
//! the log of edits ([`oracle`]).
//!
//! All subjects run the same programs with the same settings on the same data, each started anew in
//! each round, one at a time, and in another order in each round. [`watchers`] is a measurement of
//! its own: what watching costs where nothing is cached.
//!
//! Deliberately absent: caches that the application purges itself (plugins); they are the
//! application's, not a server's operator's.

mod cell;
mod checker;
mod configuration;
mod cores;
mod editor;
mod figure;
mod fpm;
mod oracle;
mod page;
mod report;
mod site;
mod store;
mod subject;
mod watchers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use nicache_applications::Application;
use tempfile::TempDir;

pub use cell::Sample;
pub use figure::draw;
pub use page::Page;
pub use report::Report;
pub use subject::Subject;
pub use watchers::WatchersSample;

use cell::Bench;
use oracle::{Clock, Log};
use report::{Failure, Setting, Skipped};
use site::Site;
use subject::Running;

use crate::progress::{Progress, Stop};
use crate::wire::load::Client;
use crate::wire::process::machine_load;
use crate::wire::{
    CLIENT_CPU, LOAD_MAX, SERVER_CPU, check_machine, is_installed, kernel, versions,
};

/// How often pages change, per second.
pub const EDIT_RATES: [u32; 3] = [0, 1, 10];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The nicache program.
    pub nicache: PathBuf,
    /// How often everything is measured.
    pub rounds: u32,
    /// Seconds of one measurement.
    pub seconds: u32,
    /// Which pages; none: only the watchers' cost.
    pub pages: Vec<Page>,
    /// Which subjects.
    pub subjects: Vec<Subject>,
    /// Edits per second. They come in ascending order, so what an earlier measurement has left
    /// stale is in no one without edits.
    pub edits: Vec<u32>,
    /// Whether the watchers' cost is measured, too.
    pub watchers: bool,
    /// Set by somebody who does not want to wait for the end: what has been measured is reported.
    pub stop: Stop,
}

/// Measures everything, telling of progress on standard error.
///
/// # Errors
/// The machine lacks something that is needed, or nothing could be measured. A subject that fails
/// is told of in the report.
pub fn run(plan: &Plan) -> Result<Report> {
    ensure!(plan.rounds > 0 && plan.seconds > 0, "at least one round and one second are needed");
    check_machine("bench dynamic")?;
    let applications = applications(plan);
    check_packages(&applications)?;
    let cpus = std::thread::available_parallelism()?.get();
    let load_before = machine_load(Duration::from_secs(1), cpus)?;
    let other_nicache = std::fs::read_dir("/run/nicache").is_ok_and(|names| {
        let is_socket = |name: &std::fs::DirEntry| {
            name.path().extension().is_some_and(|extension| extension == "sock")
        };
        names
            .flatten()
            .filter(is_socket)
            .any(|name| std::os::unix::net::UnixStream::connect(name.path()).is_ok())
    });
    let mut skipped = Vec::new();
    let mut subjects = plan.subjects.clone();
    subjects.retain(|subject| {
        match subject.programs().iter().find(|(program, _)| !is_installed(program)) {
            Some((program, package)) => {
                let reason = format!(
                    "{program} is not installed (Debian, Ubuntu: apt-get install {package})"
                );
                skipped.push(Skipped { subject: *subject, reason });
                false
            }
            None => true,
        }
    });
    let mut run = Run::new(plan, subjects)?;
    run.measure_all(&applications)?;
    if run.samples.is_empty() && run.watchers.is_empty() {
        let first = run.failures.first().map_or("no subject can run", |failure| &failure.reason);
        bail!("nothing could be measured: {first}");
    }
    let setting = Setting {
        rounds: plan.rounds,
        seconds: plan.seconds,
        cpus,
        kernel: kernel(),
        server: configuration::SERVER_SETTINGS.to_owned(),
        nginx_cache: configuration::NGINX_CACHE_SETTINGS.to_owned(),
        varnish: configuration::VARNISH_SETTINGS.to_owned(),
        nicache:
            "no settings (--recheck 1s is the default), but for DokuWiki those of docs/applications"
                .to_owned(),
        versions: short_versions(),
        load_before,
        busy: load_before > LOAD_MAX,
        other_nicache,
        stopped: plan.is_stopped(),
    };
    Ok(Report::new(setting, run.samples, run.watchers, skipped, run.failures))
}

impl Plan {
    fn is_stopped(&self) -> bool {
        self.stop.is_asked()
    }
}

/// Name and number of each program, without where and when it was built.
fn short_versions() -> Vec<String> {
    let programs = [
        ("nginx", "-v"),
        ("php-fpm8.2", "-v"),
        ("mariadbd", "--version"),
        ("varnishd", "-V"),
        ("wrk", "-v"),
    ];
    let ends = [" (fpm", " for ", " revision", " [epoll"];
    let shortened = |said: String| {
        let at = ends.iter().filter_map(|end| said.find(end)).min().unwrap_or(said.len());
        said[..at].replace("varnishd (", "").replace("  Ver", "").trim().to_owned()
    };
    versions(&programs).into_iter().map(shortened).collect()
}

/// What serves the pages, each once.
fn applications(plan: &Plan) -> Vec<Application> {
    let mut applications: Vec<Application> = Vec::new();
    let watched: &[Page] = if plan.watchers { &watchers::PAGES } else { &[] };
    for page in plan.pages.iter().chain(watched) {
        if !applications.contains(&page.application()) {
            applications.push(page.application());
        }
    }
    applications
}

fn check_packages(applications: &[Application]) -> Result<()> {
    let mut missing: Vec<&str> =
        applications.iter().flat_map(|application| application.missing_packages()).collect();
    missing.sort_unstable();
    missing.dedup();
    ensure!(
        missing.is_empty(),
        "the pages need packages that are not installed: apt-get install --no-install-recommends {}",
        missing.join(" ")
    );
    Ok(())
}

/// A run under way.
struct Run<'a> {
    plan: &'a Plan,
    subjects: Vec<Subject>,
    load: Client,
    clock: Clock,
    /// The edits of each page, by the page's place in [`Page::ALL`].
    logs: [Log; Page::ALL.len()],
    samples: Vec<Sample>,
    watchers: Vec<WatchersSample>,
    failures: Vec<Failure>,
    folder: TempDir,
}

/// A site with the texts of its pages' files.
struct Prepared {
    application: Application,
    site: Site,
    pages: Vec<(Page, String)>,
}

impl Run<'_> {
    fn new(plan: &Plan, subjects: Vec<Subject>) -> Result<Run<'_>> {
        let folder = tempfile::Builder::new().prefix("nicache-bench-").tempdir()?;
        let load = Client::new(folder.path(), CLIENT_CPU)?;
        let (clock, logs) = (Clock::start(), std::array::from_fn(|_| Log::default()));
        let (samples, watchers, failures) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Run { plan, subjects, load, clock, logs, samples, watchers, failures, folder })
    }

    fn measure_all(&mut self, applications: &[Application]) -> Result<()> {
        let mut progress = Progress::new(self.steps(applications), &self.plan.stop);
        let mut prepared = Vec::new();
        for application in applications {
            if self.plan.is_stopped() {
                return Ok(());
            }
            progress.step(&format!("preparing {application}: {}", application.description()));
            prepared.push(self.prepare(*application)?);
        }
        for round in 0..self.plan.rounds as usize {
            for prepared in &prepared {
                // Another one begins in each round.
                for turn in 0..self.subjects.len() {
                    let subject = self.subjects[(round + turn) % self.subjects.len()];
                    if !prepared.pages.is_empty() && !self.plan.is_stopped() {
                        self.measure(subject, prepared, round, &mut progress);
                    }
                }
                for page in watchers::PAGES {
                    if self.plan.watchers && prepared.application == page.application() {
                        self.measure_watchers(page, &prepared.site, round, &mut progress);
                    }
                }
            }
        }
        progress.end();
        Ok(())
    }

    fn steps(&self, applications: &[Application]) -> usize {
        let cells = self.plan.pages.len() * self.subjects.len() * self.plan.edits.len();
        let watchers =
            if self.plan.watchers { Subject::WATCHERS.len() * watchers::PAGES.len() } else { 0 };
        applications.len() + self.plan.rounds as usize * (cells + watchers)
    }

    fn prepare(&self, application: Application) -> Result<Prepared> {
        let site = Site::prepare(application, self.folder.path())?;
        let mut pages = Vec::new();
        for page in self.plan.pages.iter().copied().filter(|page| page.application() == application)
        {
            pages.push((page, editor::template(page, site.folder())?));
        }
        Ok(Prepared { application, site, pages })
    }

    /// Starts a subject and measures all pages of its site at every rate. What fails is noted.
    fn measure(
        &mut self,
        subject: Subject,
        prepared: &Prepared,
        round: usize,
        progress: &mut Progress,
    ) {
        let label = |what: &str| {
            format!("round {} of {}: {}, {what}", round + 1, self.plan.rounds, subject.label())
        };
        let mut running =
            match Running::start(subject, &prepared.site, &self.plan.nicache, SERVER_CPU) {
                Ok(running) => running,
                Err(_) if self.plan.is_stopped() => return,
                Err(error) => {
                    for (page, _) in &prepared.pages {
                        for rate in &self.plan.edits {
                            progress.step(&label(page.label()));
                            self.failures.push(Failure::new(
                                subject,
                                *page,
                                Some(*rate),
                                round,
                                &error,
                            ));
                        }
                    }
                    return;
                }
            };
        for (page, template) in &prepared.pages {
            let log = &mut self.logs[*page as usize];
            let (clock, site, load) = (self.clock, &prepared.site, &self.load);
            let mut bench = Bench { page: *page, template, log, clock, site, load, is_warm: false };
            let mut editor = bench.prepare(&mut running);
            for rate in self.plan.edits.iter().copied() {
                if self.plan.is_stopped() {
                    return;
                }
                progress.step(&label(&format!("{}, {rate} edits/s", page.label())));
                let sample = match &mut editor {
                    Ok(editor) => {
                        bench.measure(&running, subject, editor, rate, round, self.plan.seconds)
                    }
                    Err(error) => Err(anyhow::anyhow!("{error:#}")),
                };
                match sample {
                    Ok(sample) => self.samples.push(sample),
                    // Whoever stops the run stops its programs, too.
                    Err(_) if self.plan.is_stopped() => return,
                    Err(error) => {
                        let error = match site.last_words() {
                            Some(words) => {
                                anyhow::anyhow!("{error:#}; nginx's last words: `{words}`")
                            }
                            None => error,
                        };
                        self.failures.push(Failure::new(subject, *page, Some(rate), round, &error));
                    }
                }
            }
        }
    }

    fn measure_watchers(&mut self, page: Page, site: &Site, round: usize, progress: &mut Progress) {
        // Only neighbours are compared, and each of them is the first one in every other round.
        let mut subjects = Subject::WATCHERS;
        if round % 2 == 1 {
            subjects.swap(0, 1);
        }
        for subject in subjects {
            if self.plan.is_stopped() {
                return;
            }
            progress.step(&format!(
                "round {} of {}: cost of watching: {}, {}",
                round + 1,
                self.plan.rounds,
                page.label(),
                subject.label()
            ));
            match watchers::measure(
                subject,
                page,
                site,
                &self.plan.nicache,
                &self.load,
                round,
                self.plan.seconds,
            ) {
                Ok(samples) => self.watchers.extend(samples),
                Err(_) if self.plan.is_stopped() => return,
                Err(error) => self.failures.push(Failure::new(subject, page, None, round, &error)),
            }
        }
    }
}

/// Reads a report that was written before.
///
/// # Errors
/// It cannot be read.
pub fn read_report(path: &Path) -> Result<Report> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}
