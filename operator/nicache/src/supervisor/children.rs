//! The child processes: how they are started, watched and ended.
//!
//! Every child is this same program with a hidden command, in a process group of its own (so
//! Ctrl-C reaches the supervisor only), asks the kernel to be killed when the thread that started
//! it dies, and hears from [`crate::setup`] what to do.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

use crate::setup::receive_message;
use crate::vitals::{LOOK_EVERY, Patience};

/// This very program, even if its file has been replaced.
pub(crate) const OWN_PROGRAM: &str = "/proc/self/exe";

/// A watcher that has been killed is waited for so long.
const DETACHING: Duration = Duration::from_secs(1);

/// What a child is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The card process.
    Card,
    /// The watcher process.
    Watch,
    /// The parent of the server.
    Server,
    /// Ends what is left of the server when the supervisor has ended.
    Guard,
    /// The card of `nicache serve`.
    Firmware,
    /// The host of `nicache serve`.
    Host,
    /// The forwarder of `nicache forward`.
    Forwarder,
}

impl Role {
    fn command(self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Watch => "watch",
            Self::Server => "server",
            Self::Guard => "guard",
            Self::Firmware => "firmware",
            Self::Host => "host",
            Self::Forwarder => "forwarder",
        }
    }

    /// Its own name, as others see it.
    fn name(self) -> &'static str {
        if self == Self::Guard { "server-guard" } else { "nicache" }
    }

    /// The child's name in messages.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Card | Self::Firmware => "the card process",
            Self::Watch => "the watcher process",
            Self::Server => "the server",
            Self::Guard => "the process that ends what is left of the server",
            Self::Host => "the host process",
            Self::Forwarder => "the forwarder process",
        }
    }
}

/// A running (or ended, not yet dropped) child. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Child {
    /// What it is.
    pub role: Role,
    /// What was started.
    pub program: PathBuf,
    /// The supervisor's end of its socket.
    pub channel: OwnedFd,
    process: std::process::Child,
    pidfd: OwnedFd,
}

impl Child {
    /// Starts a child from the calling thread, which must live at least as long as the child shall.
    pub(crate) fn start(role: Role) -> Result<Self> {
        Self::start_program(Path::new(OWN_PROGRAM), role)
    }

    /// Starts a child that runs `program`, which may be another nicache than this one, from the
    /// calling thread, which must live at least as long as the child shall.
    pub(crate) fn start_program(program: &Path, role: Role) -> Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let mut command = Command::new(program);
        command.arg0(role.name()).arg(role.command()).stdin(Stdio::from(theirs)).process_group(0);
        let process = command.spawn().with_context(|| format!("cannot start {}", role.title()))?;
        let pid = Pid::from_child(&process);
        let pidfd = pidfd_open(pid, PidfdFlags::empty())
            .context("cannot watch a child process (Linux 5.4 is needed)")?;
        Ok(Self { role, program: program.to_owned(), channel: ours, process, pidfd })
    }

    /// Process number as this process sees it.
    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Sends a signal; nothing happens if the child has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.pidfd, signal);
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits up to `limit` for its end.
    pub(crate) fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        wait_readable(self.pidfd.as_fd(), limit)?;
        self.try_wait()
    }
}

impl AsFd for Child {
    /// Readable once the child has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // The kernel takes a tenth of a second for each program that it detaches from a function,
        // and does so while the watcher ends.
        if self.role == Role::Watch
            && let Ok(false) = wait_readable(self.pidfd.as_fd(), DETACHING)
            && let Ok(pidfd) = self.pidfd.try_clone()
        {
            let reap = move || {
                retry_on_intr(|| waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED))
            };
            // If this process ends before, somebody else reaps it.
            if std::thread::Builder::new().name("reaper".into()).spawn(reap).is_ok() {
                return;
            }
        }
        let _ = self.process.wait();
    }
}

/// Waits until `fd` is readable or closed by the other side. False: the time is up.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = Timespec::try_from(deadline.saturating_duration_since(Instant::now()))
            .map_err(io::Error::other)?;
        match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&left)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// "ended with status 3", "was killed by signal 9".
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        // The server's parent reports a signal that ended the server as a shell does.
        (Some(code @ 129..=192), _) => format!("was ended by signal {}", code - 128),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Waits for the first message of a child, as long as that does not stand still for `limit`.
pub(crate) fn first_word<T: serde::de::DeserializeOwned>(
    child: &mut Child,
    limit: Duration,
) -> Result<(T, Vec<OwnedFd>)> {
    let title = child.role.title();
    let mut patience = Patience::with(child.pid(), limit);
    while !wait_readable(child.channel.as_fd(), LOOK_EVERY)? {
        if patience.is_over() {
            bail!("{title} did not start: it did nothing for {} s", limit.as_secs());
        }
    }
    match receive_message(&child.channel)? {
        Some(message) => Ok(message),
        None => {
            let status = child.wait(Duration::from_secs(1))?;
            bail!(
                "{title} {} at its start; its own message is above",
                status.map_or_else(|| "closed its socket".into(), describe)
            )
        }
    }
}
