//! `nicache server`, the parent of the server: starts the programs beside the server and the
//! server, hands signals on, collects orphans.
//!
//! When it ends, the supervisor kills whatever is left. It ends when the server does, or when a
//! program beside it fails. After the server's end the programs beside it are asked to end, too, in
//! the reverse order of their start.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};

use crate::following::{self, Collected, Recipient, Signals, collect, is_to_end, own_children};
use crate::setup::{CompanionFailure, GRACE, LastWord, ServerSetup, child_start, send_message};

/// Runs the server to its end.
pub(super) fn execute() -> Result<ExitCode> {
    let (setup, _, supervisor) = child_start::<ServerSetup>(c"nicache-server")?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = Signals::catch()?;
    append_output();
    let companions = setup
        .with
        .into_iter()
        .map(|argv| Companion::start(argv, &setup.environment))
        .collect::<Result<Vec<_>>>()?;
    let server = following::start(&setup.argv, &setup.environment)
        .with_context(|| format!("cannot start the server `{}`", setup.argv[0]))?;
    let recipient = Recipient::new(&server);
    let mut all = Parent { recipient, failed: None, companions, stopping: false, supervisor };
    all.follow(&signals).map(ExitCode::from)
}

/// What the server says on its standard output and error is a log. A shell's `> FILE` does not open
/// it as one: then each line would be a change that a request makes, and no page could be kept.
fn append_output() {
    for output in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
        let is_file = rustix::fs::fstat(output)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
        if let (true, Ok(flags)) = (is_file, fcntl_getfl(output)) {
            // Whoever forbids it (a sealed file) has no log there.
            let _ = fcntl_setfl(output, flags | OFlags::APPEND);
        }
    }
}

/// A program beside the server.
#[derive(Debug)]
struct Companion {
    argv: Vec<String>,
    /// Its parent, a `nicache companion`.
    parent: Pid,
}

impl Companion {
    /// Returns once the program has been started, or could not be: then its parent's end tells.
    fn start(argv: Vec<String>, environment: &[(String, String)]) -> Result<Self> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("nicache").arg("companion");
        // For the program alone, and not for its parent.
        command.args(environment.iter().map(|(name, value)| format!("--set={name}={value}")));
        command.arg("--").args(&argv).stdin(Stdio::from(OwnedFd::from(theirs)));
        let process =
            command.spawn().with_context(|| format!("cannot start a process for `{}`", argv[0]))?;
        // Its end of the socket is closed with it, so this does not wait for ever.
        drop(command);
        let _ = ours.read_exact(&mut [0]);
        Ok(Self { argv, parent: Pid::from_child(&process) })
    }
}

struct Parent {
    /// Whose the server's signals are.
    recipient: Recipient,
    /// Status of the server's first process, if it was not 0.
    failed: Option<u8>,
    companions: Vec<Companion>,
    /// Whether the end was asked for, or the server has ended.
    stopping: bool,
    supervisor: OwnedFd,
}

impl Parent {
    fn follow(&mut self, signals: &Signals) -> Result<u8> {
        let mut asked = None;
        let mut deadline = None;
        loop {
            if let Some(status) = self.collect_all()? {
                return Ok(status);
            }
            if self.server_is_gone()? {
                self.stopping = true;
                let Some(last) = self.companions.last() else {
                    return Ok(self.failed.unwrap_or(0));
                };
                let now = Instant::now();
                if now >= *deadline.get_or_insert(now + GRACE) {
                    let _ = send_message(
                        self.supervisor.as_fd(),
                        &LastWord::CompanionStays(last.argv.clone()),
                        &[],
                    );
                    return Ok(self.failed.unwrap_or(0));
                }
                if asked.replace(last.parent) != Some(last.parent) {
                    let _ = kill_process(last.parent, Signal::TERM);
                }
            }
            // The supervisor sends nothing after the setup: readable means that it is gone.
            let limit = deadline
                .map(|deadline: Instant| deadline.saturating_duration_since(Instant::now()));
            if signals.wait(Some(&self.supervisor), limit)? {
                return Ok(1);
            }
            for signal in signals.take() {
                self.stopping |= is_to_end(signal);
                self.recipient.pass_on(|| orphans(&self.companions).unwrap_or_default(), signal);
                if !is_to_end(signal) {
                    // They decide themselves whether it is for them.
                    for companion in &self.companions {
                        let _ = kill_process(companion.parent, signal);
                    }
                }
            }
        }
    }

    /// Collects what has ended; some status: everything shall end at once.
    fn collect_all(&mut self) -> Result<Option<u8>> {
        while let Collected::Ended(pid, status) = collect()? {
            if self.recipient.ended(pid, || orphans(&self.companions).unwrap_or_default()) {
                self.failed = (status != 0).then_some(status);
                if status != 0 && !self.stopping {
                    return Ok(Some(status));
                }
            } else if let Some(index) =
                self.companions.iter().position(|companion| companion.parent == pid)
            {
                let companion = self.companions.remove(index);
                if status != 0 && !self.stopping {
                    let failure = CompanionFailure { argv: companion.argv, status };
                    let _ = send_message(
                        self.supervisor.as_fd(),
                        &LastWord::CompanionFailed(failure),
                        &[],
                    );
                    return Ok(Some(status));
                }
            }
        }
        Ok(None)
    }

    fn server_is_gone(&self) -> Result<bool> {
        Ok(self.recipient.is_in_background()
            && (self.failed.is_some() || orphans(&self.companions)?.is_empty()))
    }
}

/// What the server left in the background: all other children are parents of companions, which keep
/// theirs.
fn orphans(companions: &[Companion]) -> Result<Vec<Pid>> {
    let mut children = own_children()?;
    children.retain(|pid| companions.iter().all(|companion| companion.parent != *pid));
    Ok(children)
}
