//! The programs that applications are made of, and how a program is run.

pub(crate) mod apache;
pub(crate) mod mariadb;
pub(crate) mod nginx;
pub(crate) mod php;
pub(crate) mod postgres;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to begin or to end its service.
const LIMIT: Duration = Duration::from_secs(60);
/// Most of a failed program's messages that an error repeats, in bytes.
const MESSAGE_BYTES_MAX: usize = 2000;

/// Text of words, for the tables of commands.
pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The command as another user runs it.
pub(crate) fn as_user(user: &str, argv: &[&str]) -> Vec<String> {
    [words(&["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]), words(argv)]
        .concat()
}

/// The command, killed by the kernel when the process that starts it dies. A change of the user
/// would void that, so it comes behind the one of [`as_user`].
pub(crate) fn killed_with_parent(argv: &[String]) -> Vec<String> {
    let (options, program) = match argv.iter().position(|word| word == "--") {
        Some(end) if argv[0] == "setpriv" => (&argv[1..end], &argv[end + 1..]),
        _ => (&[][..], argv),
    };
    [&words(&["setpriv"])[..], options, &words(&["--pdeathsig", "KILL", "--"]), program].concat()
}

/// Runs a program that must succeed, and returns its standard output.
pub(crate) fn succeed(command: &mut Command) -> Result<String> {
    succeed_with(command, "")
}

/// Runs a program with a text on its standard input. It must succeed; returns its standard output.
pub(crate) fn succeed_with(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // An unnamed file takes any length without another thread to feed a pipe.
    let mut file = tempfile::tempfile()?;
    std::io::Write::write_all(&mut file, input.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    let output = command
        .stdin(file)
        .output()
        .with_context(|| format!("cannot run `{program}`; is it installed?"))?;
    if !output.status.success() {
        let text = [output.stdout, b"\n".to_vec(), output.stderr].concat();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let mut from = text.len().saturating_sub(MESSAGE_BYTES_MAX);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let arguments: Vec<_> =
            command.get_args().map(|argument| argument.to_string_lossy()).collect();
        bail!("`{program} {}` {}: {}", arguments.join(" "), output.status, &text[from..]);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program that runs while a site is prepared. Dropping it kills it; so does the end of the
/// thread that started it.
#[derive(Debug)]
pub(crate) struct Service {
    process: Child,
    name: String,
}

impl Service {
    /// Starts it. `argv` is a command of [`as_user`] or begins with a plain program.
    pub(crate) fn start(argv: &[String]) -> Result<Self> {
        let mut command = Command::new("setpriv");
        command.args(&killed_with_parent(argv)[1..]);
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn();
        let process = process.context("cannot run `setpriv` (package util-linux)")?;
        Ok(Self { process, name: argv.join(" ") })
    }

    /// Waits until `is_ready` says so.
    pub(crate) fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
        let begun = Instant::now();
        while !is_ready() {
            if let Some(status) = self.process.try_wait()? {
                let mut text = String::new();
                if let Some(mut stderr) = self.process.stderr.take() {
                    let _ = stderr.read_to_string(&mut text);
                }
                bail!("`{}` {status} at its start: {}", self.name, text.trim());
            }
            if begun.elapsed() > LIMIT {
                bail!("`{}` was not ready within {} s", self.name, LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // Nobody reads its messages from here on; a full pipe shall not stop it.
        if let Some(mut stderr) = self.process.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        }
        Ok(())
    }

    /// Asks it to end and waits for that.
    pub(crate) fn stop(mut self, signal: Signal) -> Result<ExitStatus> {
        kill_process(Pid::from_child(&self.process), signal)?;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                return Ok(status);
            }
            if begun.elapsed() > LIMIT {
                bail!("`{}` did not end within {} s", self.name, LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks a database to end, which leaves its files as a copy of them needs it.
    pub(crate) fn stop_cleanly(self, signal: Signal) -> Result<()> {
        let name = self.name.clone();
        let status = self.stop(signal)?;
        ensure!(status.success(), "`{name}` {status} at its end");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_death_of_the_parent_is_asked_for_last() {
        let plain = killed_with_parent(&words(&["a", "--", "b"]));
        assert_eq!(plain, ["setpriv", "--pdeathsig", "KILL", "--", "a", "--", "b"]);
        let other = killed_with_parent(&as_user("x", &["a", "b"])).join(" ");
        assert_eq!(other, "setpriv --reuid x --regid x --clear-groups --pdeathsig KILL -- a b");
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error =
            succeed_with(Command::new("sh").args(["-c", "cat; echo wrong >&2; exit 3"]), "input")
                .unwrap_err();
        let text = format!("{error:#}");
        assert!(
            text.contains("input") && text.contains("wrong") && text.contains("exit status: 3"),
            "{text}"
        );
        assert!(succeed(&mut Command::new("no-such-program")).is_err());
    }

    #[test]
    fn a_service_ends_when_asked_or_dropped() {
        let mut service = Service::start(&words(&["sleep", "60"])).unwrap();
        service.wait_until(|| true).unwrap();
        service.stop(Signal::TERM).unwrap();
        let mut failing = Service::start(&words(&["sh", "-c", "echo broken >&2; exit 1"])).unwrap();
        let error = failing.wait_until(|| false).unwrap_err().to_string();
        assert!(error.contains("broken"), "{error}");
    }
}
