//! `nicache server`, process 1 of the server's PID namespace: starts the server, hands signals on, collects orphans.
//!
//! When it ends, the kernel kills whatever is left in the namespace. It ends when the server does; a server that puts itself in the background
//! (its first process ends with status 0, others go on) is followed until its last process is gone.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::setup::{ServerSetup, child_start};

/// Runs the server to its end.
pub fn execute() -> Result<ExitCode> {
    let (setup, _, supervisor) = child_start::<ServerSetup>(c"nicache-server")?;
    let signals = Signals::catch()?;
    // The server reads nothing; its standard input is not the supervisor's socket.
    let mut command = Command::new(&setup.argv[0]);
    command.args(&setup.argv[1..]).stdin(Stdio::null());
    let server = command.spawn().with_context(|| format!("cannot start the server `{}`", setup.argv[0]))?;
    follow(Pid::from_child(&server), &signals, &supervisor)
}

struct Signals {
    pipes: Vec<(Option<Signal>, UnixStream)>,
}

impl Signals {
    /// Handed on: all but SIGCHLD.
    fn catch() -> Result<Signals> {
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
        Ok(Signals { pipes })
    }
}

fn follow(server: Pid, signals: &Signals, supervisor: &OwnedFd) -> Result<ExitCode> {
    let mut main_process = Some(server);
    loop {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(None) => break,
                Ok(Some((pid, status))) if main_process == Some(pid) => {
                    let code = shell_status(status);
                    if code != 0 {
                        return Ok(ExitCode::from(code));
                    }
                    main_process = None;
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CHILD) => return Ok(ExitCode::SUCCESS),
                Err(error) => return Err(error.into()),
            }
        }
        let mut fds: Vec<PollFd<'_>> = signals.pipes.iter().map(|(_, pipe)| PollFd::new(pipe, PollFlags::IN)).collect();
        fds.push(PollFd::from_borrowed_fd(supervisor.as_fd(), PollFlags::IN));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        // The supervisor sends nothing after the setup: readable means that it is gone.
        if !fds.last().is_none_or(|fd| fd.revents().is_empty()) {
            return Ok(ExitCode::FAILURE);
        }
        drop(fds);
        for (passed, pipe) in &signals.pipes {
            let mut reader: &UnixStream = pipe;
            let arrived = matches!(reader.read(&mut [0; 64]), Ok(count) if count > 0);
            if let (true, Some(signal)) = (arrived, passed) {
                pass_on(main_process, *signal);
            }
        }
    }
}

/// To the server's first process or, after it went to the background, to the processes that it left to us: one of them leads.
fn pass_on(main_process: Option<Pid>, signal: Signal) {
    match main_process {
        Some(pid) => {
            let _ = kill_process(pid, signal);
        }
        None => own_children().unwrap_or_default().into_iter().for_each(|pid| {
            let _ = kill_process(pid, signal);
        }),
    }
}

/// Children of this process, by the kernel's list. `/proc` may be that of an outer PID namespace, whose numbers would mean other processes
/// here; then each is looked up by its innermost number.
fn own_children() -> io::Result<Vec<Pid>> {
    let list = std::fs::read_to_string("/proc/thread-self/children")?;
    let innermost = |outer: &str| {
        let status = std::fs::read_to_string(format!("/proc/{outer}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        Pid::from_raw(line.split_ascii_whitespace().last()?.parse().ok()?)
    };
    Ok(list.split_ascii_whitespace().filter_map(innermost).collect())
}

/// As a shell reports it: the exit status, or 128 plus the signal.
fn shell_status(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
