//! What the demo prints: what to try, a live line, and a line of figures for each mode.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nicache_forward::modes::Mode;
use nicache_router::demo::{Load, Stage};
use nicache_router::report::Report;

use super::messages::Answer;
use super::orders::Asked;
use crate::cli::ForwardArgs;
use crate::logs;

const TICK: Duration = Duration::from_secs(1);
/// How long a turn waits for figures, beyond its end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the supervisor's loop is to do.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing, until [`Show::due`].
    Wait,
    /// Ask for a report.
    Ask(Sender<Asked>),
    /// Go on in this mode.
    Mode(Mode),
    /// All is shown.
    End,
}

/// What the demo prints: what to try, a live line, and a line of figures for each mode.
#[derive(Debug)]
pub(super) struct Show {
    load: Load,
    modes: Vec<Mode>,
    /// Which of them it is.
    turn: usize,
    turn_ends: Instant,
    turn_began: Instant,
    length: Duration,
    next_tick: Instant,
    answer: Option<Receiver<Asked>>,
    last: Option<Asked>,
    /// There is a report of this turn that has payload in it.
    has_figures: bool,
    before: Counted,
    is_once: bool,
    is_json: bool,
    is_terminal: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    bytes: u64,
    files: u64,
    failed: u64,
    wrong: u64,
    cpu_s: f64,
}

impl Show {
    /// Starts the clients.
    pub(super) fn start(stage: &Stage, arguments: &ForwardArgs) -> Result<Self> {
        let service: SocketAddr =
            format!("{}:80", stage.service()).parse().context("the service's address")?;
        let rate = arguments.rate.0.max(1024);
        let modes = arguments.mode.map_or_else(|| Mode::ALL.to_vec(), |mode| vec![mode]);
        let (now, length) = (Instant::now(), Duration::from_secs(arguments.seconds.into()));
        Ok(Self {
            load: Load::start(&stage.clients, service, rate),
            modes,
            turn: 0,
            turn_ends: now + length,
            turn_began: now,
            length,
            next_tick: now + TICK,
            answer: None,
            last: None,
            has_figures: false,
            before: Counted::default(),
            is_once: arguments.once,
            is_json: arguments.json,
            is_terminal: std::io::IsTerminal::is_terminal(&std::io::stderr()),
        })
    }

    /// What to try, from another shell.
    pub(super) fn introduce(&self, stage: &Stage, name: &str) {
        let (service, pid) = (stage.service(), std::process::id());
        let client = &stage.clients[0];
        let lines = [
            format!(
                "{name} forwards between this machine, three clients and three nginx servers. Try, from another shell:"
            ),
            format!(
                "  curl http://{service}/                                   one of three back ends answers"
            ),
            format!("  for i in 1 2 3 4 5 6; do curl -s http://{service}/who; done"),
            format!(
                "  curl -o /dev/null http://{service}/file                  4 MB through the forwarder"
            ),
            format!(
                "  sudo nsenter --net=/proc/{pid}/task/{}/ns/net curl http://{service}/    as a client",
                client.thread_id()
            ),
            format!("  sudo nicache status --name {name}"),
            format!("  sudo nicache forward why {service}:80 --name {name}"),
            "Clients download a file over and over, and look at each byte. Ctrl-C ends all of it."
                .to_owned(),
            String::new(),
            format!(
                "{:<9} {:>7} {:>10} {:>14} {:>8} {:>6} {:>9} {:>6} {:>6} {:>6}",
                "mode",
                "Mb/s",
                "from card",
                "bus per byte",
                "spilled",
                "lost",
                "CPU s/GB",
                "files",
                "failed",
                "wrong"
            ),
        ];
        lines.iter().for_each(|line| logs::print(line));
    }

    /// When it has something to do.
    pub(super) fn due(&self) -> Instant {
        if self.has_figures { self.next_tick.min(self.turn_ends) } else { self.next_tick }
    }

    /// What is to be done now.
    pub(super) fn poll(&mut self, now: Instant) -> Step {
        if let Some(asked) = self.answer.as_ref().and_then(|answer| answer.try_recv().ok()) {
            self.answer = None;
            if self.last.is_none() {
                self.before = self.count(&asked);
            }
            self.last = Some(asked);
            let mode = self.modes[self.turn % self.modes.len()].to_string();
            self.has_figures |= self.report().is_some_and(|report| {
                report.mode == mode
                    && report.counter("card_bytes") + report.counter("memory_bytes") > 0
            });
            self.show_live();
        }
        // On a machine that is busy, a turn lasts until it has something to show.
        if now >= self.turn_ends && (self.has_figures || now >= self.turn_ends + PATIENCE) {
            self.has_figures = false;
            self.print_row(now);
            self.turn += 1;
            if self.is_once && self.turn >= self.modes.len() {
                return Step::End;
            }
            (self.turn_began, self.turn_ends) = (now, now + self.length);
            self.next_tick = now + TICK;
            if let Some(last) = &self.last {
                self.before = self.count(last);
            }
            if self.modes.len() > 1 {
                self.answer = None;
                return Step::Mode(self.modes[self.turn % self.modes.len()]);
            }
            return Step::Wait;
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            let (reply, answer) = channel();
            self.answer = Some(answer);
            return Step::Ask(reply);
        }
        Step::Wait
    }

    fn report(&self) -> Option<&Report> {
        match &self.last.as_ref()?.answer {
            Answer::Report(report) => Some(report),
            _ => None,
        }
    }

    fn count(&self, asked: &Asked) -> Counted {
        let loaded = self.load.loaded();
        let of = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        Counted {
            bytes: of(&loaded.bytes),
            files: of(&loaded.files),
            failed: of(&loaded.failed),
            wrong: of(&loaded.wrong),
            cpu_s: cpu_seconds(asked.about.card_pid) + cpu_seconds(asked.about.forwarder_pid),
        }
    }

    fn show_live(&self) {
        let Some(report) = self.report().filter(|_| self.is_terminal && !self.is_json) else {
            return;
        };
        let cache = &report.cache;
        logs::show_live_line(&format!(
            "{}: {:.0} Mb/s, {:.0} frames/s, {:.1} % from the card, cache {} unbound {} victim {} priority {} pending, {} queued",
            report.mode,
            report.rates.bits / 1e6,
            report.rates.frames,
            cache.hit_rate * 100.0,
            cache.unbound,
            cache.victim,
            cache.priority,
            cache.pending,
            report.counter("queued"),
        ));
    }

    /// What a mode came to.
    fn print_row(&self, now: Instant) {
        let (Some(report), Some(asked)) = (self.report(), &self.last) else { return };
        let (then, after) = (self.before, self.count(asked));
        let bytes = after.bytes - then.bytes;
        let seconds = now.duration_since(self.turn_began).as_secs_f64();
        let rate = bytes as f64 * 8.0 / 1e6 / seconds;
        let cpu = (after.cpu_s - then.cpu_s).max(0.0) / (bytes.max(1) as f64 / 1e9);
        let (files, failed, wrong) =
            (after.files - then.files, after.failed - then.failed, after.wrong - then.wrong);
        let (spilled, lost, per_byte) =
            (report.counter("spilled"), report.counter("lost"), report.bus_per_byte());
        if self.is_json {
            let row = serde_json::json!({
                "event": "mode", "mode": report.mode, "megabits_per_s": rate,
                "from_card": report.cache.hit_rate,
                "bus_bytes_per_byte": per_byte, "spilled": spilled, "lost": lost,
                "cpu_s_per_gb": cpu,
                "files": files, "failed": failed, "wrong_bytes": wrong,
            });
            return logs::print(&row.to_string());
        }
        logs::print(&format!(
            "{:<9} {rate:>7.1} {:>8.1} % {per_byte:>14.3} {spilled:>8} {lost:>6} {cpu:>9.2} {files:>6} {failed:>6} {wrong:>6}",
            report.mode,
            report.cache.hit_rate * 100.0,
        ));
    }
}

/// What a process has had of processors so far; 0 if it is gone.
fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may have spaces: the state is the first field, user and system time
    // the 12th and 13th.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64
}
