//! Processes of the benchmark: pinned to CPUs, killed with the benchmark, and their CPU time.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_netns::Namespace;
use rustix::process::{Pid, Signal, kill_process};

use super::cpu::Cpus;

/// Kernel clock ticks per second in `/proc/PID/stat` and `/proc/stat` (USER_HZ, 100 on every Linux
/// port that matters).
const TICKS_PER_SECOND: u64 = 100;
/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(8);

/// A process inside a namespace; dropping it ends it and all that it started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    enclosure: Enclosure,
    log: PathBuf,
    program: String,
}

/// How a process and what it starts are made to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Enclosure {
    /// By a PID namespace of their own: for a program whose children outlive it.
    PidNamespace,
    /// The program sees to it.
    None,
}

impl Process {
    /// Starts `argv` on `cpus`. What it writes to standard error goes to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(
        namespace: &Namespace,
        cpus: impl Into<Cpus>,
        enclosure: Enclosure,
        argv: &[String],
        log: &Path,
    ) -> Result<Self> {
        let stderr = File::create(log)?;
        // Should the benchmark be killed, the kernel kills the program.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if enclosure == Enclosure::PidNamespace {
            command.args(["unshare", "--pid", "--mount", "--fork", "--kill-child"]);
        }
        command.args(["taskset", "-c", &cpus.into().list()]).args(argv);
        // Ctrl-C is for the benchmark, which ends its programs.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).process_group(0);
        let child = namespace
            .run(move || command.spawn())
            .context("cannot start setpriv (package util-linux)")?;
        Ok(Self { child, enclosure, log: log.to_owned(), program: argv[0].clone() })
    }

    /// Who is asked to end: of an enclosed program the program itself, because `unshare` waits for
    /// it and does not hear.
    fn listener(&self) -> Pid {
        let list = format!("/proc/{0}/task/{0}/children", self.child.id());
        let first = || {
            std::fs::read_to_string(list)
                .ok()?
                .split_ascii_whitespace()
                .next()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        };
        let enclosed = if self.enclosure == Enclosure::PidNamespace { first() } else { None };
        enclosed.unwrap_or_else(|| Pid::from_child(&self.child))
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, once.
    pub(crate) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// An error with its last words if it has ended.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended ({status}): {}", self.program, self.last_words()),
        }
    }

    /// The end of what it wrote to standard error.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(6)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(self.listener(), Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time at one moment, in microseconds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CpuTime {
    /// Of a process and its descendants.
    pub processes_us: f64,
    /// Of the whole machine, interrupts and everybody else's processes included.
    pub machine_us: f64,
}

impl CpuTime {
    /// Now, for the process `root` and its descendants.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(crate) fn now(root: u32) -> Result<Self> {
        let processes_us = descendants(root)?.into_iter().map(process_us).sum();
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Ok(Self { processes_us, machine_us: machine_us(&stat).context("an odd /proc/stat")? })
    }

    /// What was used since an `earlier` moment.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            processes_us: (self.processes_us - earlier.processes_us).max(0.0),
            machine_us: (self.machine_us - earlier.machine_us).max(0.0),
        }
    }
}

/// Busy share of the machine's CPUs over `time`, 0 to 1.
///
/// # Errors
/// `/proc` cannot be read.
pub(crate) fn machine_load(time: Duration, cpus: usize) -> Result<f64> {
    let root = std::process::id();
    let before = CpuTime::now(root)?;
    std::thread::sleep(time);
    let used = CpuTime::now(root)?.since(&before).machine_us;
    Ok(used / (time.as_micros() as f64 * cpus as f64))
}

/// `root` and all that it or its children started, as `/proc` shows them now.
fn descendants(root: u32) -> Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if let Some(parent) =
            std::fs::read_to_string(entry.path().join("stat")).ok().and_then(|stat| field(&stat, 4))
        {
            children.entry(parent as u32).or_default().push(pid);
        }
    }
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        found.extend(children.remove(&found[at]).unwrap_or_default());
        at += 1;
    }
    Ok(found)
}

/// CPU time of one process with all its threads, living or not.
fn process_us(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let ticks = field(&stat, 14).unwrap_or(0) + field(&stat, 15).unwrap_or(0);
    let by_ticks = ticks as f64 * 1e6 / TICKS_PER_SECOND as f64;
    // The scheduler's own account is in nanoseconds, but per thread, and forgets threads that have
    // ended.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let exact: Option<u64> = threads
        .map(|thread| {
            let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
            text.split_ascii_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    match exact {
        Some(ns) if ns > 0 => ns as f64 / 1e3,
        _ => by_ticks,
    }
}

/// The number at a position of `/proc/PID/stat`, counted from 1 as in proc(5). The name in field 2
/// may contain blanks.
fn field(stat: &str, position: usize) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_ascii_whitespace().nth(position - 3)?.parse().ok()
}

/// Busy time of all CPUs: user, nice, system, irq, softirq. Idle, waiting and stolen time do not
/// count.
fn machine_us(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> =
        line.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].into_iter().filter_map(|at| fields.get(at)).sum();
    Some(busy as f64 * 1e6 / TICKS_PER_SECOND as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_blanks_and_brackets_do_not_shift_the_fields() {
        let stat = "12 (a ) b) S 7 1 1 0 -1 0 0 0 0 0 150 25 0 0 20 0 1 0 5 0 0";
        assert_eq!(field(stat, 4), Some(7));
        assert_eq!((field(stat, 14), field(stat, 15)), (Some(150), Some(25)));
        assert_eq!(field("", 4), None);
    }

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let stat = "cpu  100 1 20 9999 500 3 4 77 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(machine_us(stat), Some(1_280_000.0));
    }

    #[test]
    fn this_process_is_its_own_root() {
        assert!(descendants(std::process::id()).unwrap().contains(&std::process::id()));
        assert!(CpuTime::now(std::process::id()).unwrap().machine_us > 0.0);
    }
}
