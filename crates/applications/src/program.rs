//! The programs that applications are made of, and how a program is run.

pub mod apache;
pub mod mariadb;
pub mod nginx;
pub mod php;
pub mod postgres;

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program may take to begin or to end its service.
const LIMIT: Duration = Duration::from_secs(60);
/// Most of a failed program's messages that an error repeats, in bytes.
const MESSAGE_BYTES_MAX: usize = 2000;

/// Text of words, for the tables of commands.
pub fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The command as another user runs it.
pub fn as_user(user: &str, argv: &[&str]) -> Vec<String> {
    [words(&["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]), words(argv)].concat()
}

/// Runs a program that must succeed, and returns its standard output.
pub fn succeed(command: &mut Command) -> Result<String> {
    succeed_with(command, "")
}

/// Same, with a text on its standard input.
pub fn succeed_with(command: &mut Command, input: &str) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    // An unnamed file takes any length without another thread to feed a pipe.
    let mut file = tempfile::tempfile()?;
    std::io::Write::write_all(&mut file, input.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    let output = command.stdin(file).output().with_context(|| format!("cannot run `{program}`; is it installed?"))?;
    if !output.status.success() {
        let text = [output.stdout, b"\n".to_vec(), output.stderr].concat();
        let text = String::from_utf8_lossy(&text).trim().to_owned();
        let mut from = text.len().saturating_sub(MESSAGE_BYTES_MAX);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        bail!("`{program} {}` {}: {}", arguments.join(" "), output.status, &text[from..]);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A program that runs while a site is prepared. Dropping it kills it; so does the end of the thread that started it.
#[derive(Debug)]
pub struct Service {
    process: Child,
    name: String,
}

impl Service {
    /// Starts it. `argv` is a command of [`as_user`] or begins with a plain program.
    pub fn start(argv: &[String]) -> Result<Service> {
        let mut command = Command::new("setpriv");
        // The request to be killed is lost when a process changes its user, so it comes second.
        let (user, program) = argv.iter().position(|word| word == "--").map_or((&[][..], argv), |at| {
            if argv[0] == "setpriv" { (&argv[1..at], &argv[at + 1..]) } else { (&[][..], argv) }
        });
        command.args(user).args(["--pdeathsig", "KILL", "--"]).args(program);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let process = process.context("cannot run `setpriv` (package util-linux)")?;
        Ok(Service { process, name: program[0].clone() })
    }

    /// Waits until `is_ready` says so.
    pub fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<()> {
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
    pub fn stop(mut self, signal: Signal) -> Result<()> {
        kill_process(Pid::from_child(&self.process), signal)?;
        let begun = Instant::now();
        while self.process.try_wait()?.is_none() {
            if begun.elapsed() > LIMIT {
                bail!("`{}` did not end within {} s", self.name, LIMIT.as_secs());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
