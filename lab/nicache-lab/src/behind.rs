//! A `nicache run` as a child process, for commands that need one of their own.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use nicache::control::Status;

use crate::card_program;

/// A server behind a card of its own, stopped when dropped.
#[derive(Debug)]
pub(crate) struct Behind {
    process: Child,
    /// What it said when it was ready.
    pub status: Status,
}

impl Behind {
    /// Starts `nicache run` with further options, programs beside the server, and the server, and
    /// waits until it is ready.
    pub(crate) fn start(
        run_options: &[String],
        with: &[Vec<String>],
        server: &[String],
    ) -> Result<Self> {
        // It ends when we do, however that happens, and Ctrl-C is for us: we ask it to end.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "--"]).arg(card_program::find()?).process_group(0);
        command.args(["run", "--json"]).args(run_options);
        for program in with {
            command.arg("--with").arg(shlex::try_join(program.iter().map(String::as_str))?);
        }
        let process =
            command.arg("--").args(server).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = process.context("cannot run `setpriv` (package util-linux)")?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        // What went wrong is on standard error already.
        let ready = || -> Option<Status> {
            let mut event: serde_json::Value = serde_json::from_str(&line).ok()?;
            serde_json::from_value(event["status"].take()).ok()
        };
        match ready() {
            Some(status) => Ok(Self { process, status }),
            None => {
                let _ = process.kill();
                let _ = process.wait();
                bail!("`nicache run` did not get ready");
            }
        }
    }

    /// Where the server is reached.
    pub(crate) fn server(&self) -> SocketAddr {
        let port = self.status.http_ports.first().copied().unwrap_or(80);
        SocketAddr::from((self.status.server_address, port))
    }

    /// The server's network namespace: there, its address is its own.
    pub(crate) fn namespace(&self) -> Result<File> {
        let path = format!("/proc/{}/ns/net", self.status.server_pid);
        File::open(&path).with_context(|| format!("cannot open {path}"))
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.process.try_wait()?)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(&self.process),
                rustix::process::Signal::TERM,
            );
        }
        let _ = self.process.wait();
    }
}
