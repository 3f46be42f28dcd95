//! Following a program to its end: signals are handed on to it, and what it leaves behind is
//! collected.
//!
//! A program that puts itself in the background (its first process ends with status 0, others go
//! on) is followed until its last process is gone. Its orphans come to the process that follows it,
//! which has asked to be a subreaper.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// The signals that are handed on, and SIGCHLD.
#[derive(Debug)]
pub(crate) struct Signals {
    pipes: Vec<(Option<Signal>, UnixStream)>,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch() -> Result<Self> {
        let wanted = [
            (SIGCHLD, None),
            (SIGTERM, Some(Signal::TERM)),
            (SIGQUIT, Some(Signal::QUIT)),
            (SIGHUP, Some(Signal::HUP)),
            (SIGUSR1, Some(Signal::USR1)),
            (SIGUSR2, Some(Signal::USR2)),
        ];
        let mut pipes = Vec::new();
        for (number, passed) in wanted {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(number, theirs)?;
            pipes.push((passed, ours));
        }
        Ok(Self { pipes })
    }

    /// Sleeps until a signal arrives, or `limit` is over, or `other` is readable or closed; true:
    /// the last.
    pub(crate) fn wait(&self, other: Option<&dyn AsFd>, limit: Option<Duration>) -> Result<bool> {
        let mut fds: Vec<PollFd<'_>> =
            self.pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
        fds.extend(other.map(|other| PollFd::from_borrowed_fd(other.as_fd(), PollFlags::IN)));
        match poll(&mut fds, limit.map(Timespec::try_from).transpose()?.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(other.is_some() && fds.last().is_some_and(|fd| !fd.revents().is_empty()))
    }

    /// Signals to hand on to the server that have arrived since the last call.
    pub(crate) fn take(&self) -> Vec<Signal> {
        let arrived = |pipe: &UnixStream| {
            let mut reader: &UnixStream = pipe;
            matches!(reader.read(&mut [0; 64]), Ok(count) if count > 0)
        };
        self.pipes
            .iter()
            .filter(|(_, pipe)| arrived(pipe))
            .filter_map(|(passed, _)| *passed)
            .collect()
    }
}

/// Starts a program that reads nothing; our standard input is a socket that is not for it. It leads
/// a process group of its own, for some (Apache) send signals to their whole group: those of others
/// shall not get them, and we would hand them on again.
///
/// `environment` is added to this process's own.
pub(crate) fn start(argv: &[String], environment: &[(String, String)]) -> io::Result<Child> {
    let variables = environment.iter().map(|(name, value)| (name, value));
    Command::new(&argv[0])
        .args(&argv[1..])
        .envs(variables)
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
}

/// What there is to learn of one's children at the moment.
#[derive(Debug)]
pub(crate) enum Collected {
    /// One has ended, with a status as a shell reports it.
    Ended(Pid, u8),
    /// Some run.
    Running,
    /// There are none.
    None,
}

/// Collects one child that has ended.
pub(crate) fn collect() -> Result<Collected> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(None) => return Ok(Collected::Running),
            Ok(Some((pid, status))) => return Ok(Collected::Ended(pid, shell_status(status))),
            Err(rustix::io::Errno::CHILD) => return Ok(Collected::None),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Where the signals for a program go: to its first process or, after it went to the background, to
/// the processes that it left, one of which leads.
#[derive(Debug)]
pub(crate) struct Recipient {
    main_process: Option<Pid>,
    /// The last signal to end that the first process was given.
    told_to_end: Option<Signal>,
}

impl Recipient {
    /// A program that was just started, to which signals are handed on.
    pub(crate) fn new(program: &Child) -> Self {
        Self { main_process: Some(Pid::from_child(program)), told_to_end: None }
    }

    /// Whether the first process has ended.
    pub(crate) fn is_in_background(&self) -> bool {
        self.main_process.is_none()
    }

    /// Takes notice that a child has ended; true: the first process. If that was told to end, then
    /// perhaps when it was about to end anyway, having left others in the background (`left`) which
    /// have not heard of it: they are told, too.
    pub(crate) fn ended(&mut self, pid: Pid, left: impl FnOnce() -> Vec<Pid>) -> bool {
        if self.main_process != Some(pid) {
            return false;
        }
        self.main_process = None;
        if let Some(signal) = self.told_to_end.take() {
            self.pass_on(left, signal);
        }
        true
    }

    /// Do all whom a signal is for catch or ignore it? Others would be ended by it.
    pub(crate) fn knows(&self, left: impl FnOnce() -> Vec<Pid>, signal: Signal) -> bool {
        let recipients = self.main_process.map_or_else(left, |pid| vec![pid]);
        !recipients.is_empty() && recipients.into_iter().all(|pid| handles(pid, signal))
    }

    /// Sends a signal to whom it is for.
    pub(crate) fn pass_on(&mut self, left: impl FnOnce() -> Vec<Pid>, signal: Signal) {
        if is_to_end(signal) {
            self.told_to_end = Some(signal);
        }
        for pid in self.main_process.map_or_else(left, |pid| vec![pid]) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Does a process catch or ignore a signal?
fn handles(pid: Pid, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()))
        .unwrap_or_default();
    let mask = |name: &str| {
        let value =
            status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
        u64::from_str_radix(value, 16).unwrap_or(0)
    };
    (mask("SigCgt:") | mask("SigIgn:")) >> (signal.as_raw() - 1) & 1 != 0
}

/// Whether a signal asks its receiver to end.
pub(crate) fn is_to_end(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::QUIT)
}

/// Children of this process, by the kernel's list. `/proc` may be that of an outer PID namespace
/// (of the machine, in a container), whose numbers would mean other processes here; then each is
/// looked up by its innermost number.
pub(crate) fn own_children() -> Result<Vec<Pid>> {
    let list = std::fs::read_to_string("/proc/thread-self/children")
        .context("the kernel does not list children (CONFIG_PROC_CHILDREN is needed)")?;
    let innermost = |outer: &str| {
        let status = std::fs::read_to_string(format!("/proc/{outer}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Pid::from_raw(line.split_ascii_whitespace().last()?.parse().ok()?)
    };
    Ok(list.split_ascii_whitespace().filter_map(innermost).collect())
}

/// The status that a shell reports of a process that has ended: its exit status, or 128 plus the
/// signal.
fn shell_status(status: WaitStatus) -> u8 {
    let code =
        status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
