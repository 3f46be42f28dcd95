//! Edits by a command of the user's.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nicache_clock::monotonic_ns;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use rustix::time::Timespec;

use crate::editor::{EditError, Editor};

/// Bytes of standard error that an error message repeats.
const SAID_BYTES_MAX: usize = 300;
/// Longest kind, in characters.
const KIND_CHARS_MAX: usize = 50;

/// A shell command that changes a subject. It finds the version in `NICACHE_VERSION` and the
/// subject's name in `NICACHE_SUBJECT`; status 0 says that the change is complete.
#[derive(Debug)]
pub struct CommandEditor {
    name: String,
    kind: String,
    command: String,
    timeout: Duration,
}

/// How a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error("cannot start `sh`: {0}")]
    Start(io::Error),
    #[error("cannot wait for the edit command: {0}")]
    Wait(io::Error),
    #[error("the edit command ended with {0}: {1}")]
    Status(ExitStatus, String),
    #[error(
        "the edit command took longer than {} s and was killed; should it go on in the background, let it say so by `&`",
        .0.as_secs_f64()
    )]
    Timeout(Duration),
}

impl CommandEditor {
    /// An editor that has `sh -c COMMAND` change subject `name`. A command that takes longer than
    /// `timeout` is killed.
    pub fn new(name: &str, command: &str, timeout: Duration) -> Self {
        let mut kind: String = command.trim().chars().take(KIND_CHARS_MAX).collect();
        if kind.len() < command.trim().len() {
            kind.push_str("...");
        }
        Self { name: name.to_owned(), kind, command: command.to_owned(), timeout }
    }

    fn run(&self, version: u64) -> Result<(), CommandError> {
        // A file, not a pipe: whatever the command leaves running may hold it open.
        let said: OwnedFd = memfd_create("edit-stderr", MemfdFlags::CLOEXEC)
            .map_err(|error| CommandError::Start(error.into()))?;
        let said = File::from(said);
        let mut child = Command::new("sh")
            .args(["-c", &self.command])
            .env("NICACHE_VERSION", version.to_string())
            .env("NICACHE_SUBJECT", &self.name)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said.try_clone().map_err(CommandError::Start)?)
            .process_group(0)
            .spawn()
            .map_err(CommandError::Start)?;
        let status = match wait(&mut child, self.timeout) {
            Ok(Some(status)) => status,
            other => {
                // The child is not collected yet, so its number is still its own, and its group's.
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                return Err(other
                    .err()
                    .map_or(CommandError::Timeout(self.timeout), CommandError::Wait));
            }
        };
        if status.success() {
            return Ok(());
        }
        let mut text = vec![0; SAID_BYTES_MAX];
        let length = said.read_at(&mut text, 0).unwrap_or(0);
        let text = String::from_utf8_lossy(&text[..length]).trim().to_owned();
        Err(CommandError::Status(
            status,
            if text.is_empty() { "it said nothing".to_owned() } else { text },
        ))
    }
}

impl Editor for CommandEditor {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &str {
        &self.kind
    }

    fn edit(&mut self, version: u64) -> Result<(), EditError> {
        Ok(self.run(version)?)
    }
}

/// Waits at most so long. `None`: it still runs.
fn wait(child: &mut Child, timeout: Duration) -> io::Result<Option<ExitStatus>> {
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline_ns = monotonic_ns().saturating_add(timeout.as_nanos() as u64);
    loop {
        let left = Duration::from_nanos(deadline_ns.saturating_sub(monotonic_ns()));
        if left.is_zero() {
            return child.try_wait();
        }
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return child.wait().map(Some),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_command_knows_the_version_and_the_subject() {
        let mut editor =
            CommandEditor::new("title", "test $NICACHE_SUBJECT-$NICACHE_VERSION = title-7", LONG);
        assert_eq!(editor.name(), "title");
        editor.edit(7).unwrap();
        assert!(editor.edit(8).unwrap_err().to_string().contains("it said nothing"));
    }

    #[test]
    fn a_failure_says_what_the_command_said() {
        let error = CommandEditor::new("x", "echo no such table >&2; exit 3", LONG)
            .edit(1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such table"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_what_it_started() {
        let folder = std::env::temp_dir().join(format!("nicache-prove-{}", std::process::id()));
        let command = format!("sleep 1000 & echo $! > {}; wait", folder.display());
        // A busy machine may need longer for what it does before it hangs.
        let pid = (0..6).find_map(|round| {
            let error = CommandEditor::new("x", &command, Duration::from_millis(300 << round))
                .edit(1)
                .unwrap_err()
                .to_string();
            assert!(error.contains("was killed"), "{error}");
            std::fs::read_to_string(&folder).ok().filter(|pid| pid.ends_with('\n'))
        });
        let pid = pid.expect("it says its number");
        std::fs::remove_file(&folder).unwrap();
        let state =
            || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        let is_gone = || state().is_empty() || state().contains(") Z");
        let deadline = monotonic_ns() + 10_000_000_000;
        while !is_gone() {
            assert!(monotonic_ns() < deadline, "{}", state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_command_that_leaves_something_running_ends_when_it_ends() {
        CommandEditor::new("x", "sleep 0.2 >&2 & exit 0", LONG).edit(1).unwrap();
    }
}
