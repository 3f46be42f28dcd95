//! A site's programs without a card in front, for tests and comparisons.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Client;
use crate::program::killed_with_parent;
use crate::site::Site;

/// How long programs may take until the front page is there.
const START: Duration = Duration::from_secs(60);
/// How long a program may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(250);

/// The programs of a site, running in the calling thread's network namespace. Dropping it ends
/// them; so does the end of that thread.
#[derive(Debug)]
pub struct Running {
    programs: Vec<Child>,
    server: SocketAddr,
}

impl Running {
    /// Starts them and waits for the front page. Each program gets a PID namespace of its own, so
    /// its children end with it.
    pub fn start(site: &Site) -> Result<Self> {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, site.port()));
        let mut running = Self { programs: Vec::new(), server };
        for argv in site.with().iter().map(Vec::as_slice).chain([site.server()]) {
            let mut command = Command::new("setpriv");
            command.args([
                "--pdeathsig",
                "KILL",
                "--",
                "unshare",
                "--pid",
                "--fork",
                "--kill-child=KILL",
                "--",
            ]);
            // Apache sends its own end to its whole process group, from inside the namespace to
            // members outside, too.
            let program = command
                .args(killed_with_parent(argv))
                .stdin(Stdio::null())
                .process_group(0)
                .spawn();
            running.programs.push(program.context("cannot run `setpriv` (package util-linux)")?);
        }
        running.wait_for(&site.pages()[0].path, &site.pages()[0].shows)?;
        Ok(running)
    }

    /// Where the server is reached.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    fn wait_for(&mut self, path: &str, text: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let reply = Client::new(self.server).get(path);
            if reply.as_ref().is_ok_and(|reply| reply.status == 200 && reply.text().contains(text))
            {
                return Ok(());
            }
            for program in &mut self.programs {
                if let Some(status) = program.try_wait()? {
                    bail!(
                        "a program of the site {status} at its start; its own messages are above"
                    );
                }
            }
            if begun.elapsed() > START {
                bail!(
                    "`{path}` did not show `{text}` within {} s, but {}",
                    START.as_secs(),
                    shown(reply)
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

fn shown(reply: Result<crate::client::Reply>) -> String {
    match reply {
        Ok(reply) => format!("status {} and `{}`", reply.status, reply.text()),
        Err(error) => format!("{error:#}"),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The server first: then databases no longer have clients.
        while let Some(mut program) = self.programs.pop() {
            stop(&mut program);
        }
    }
}

/// Ends what `unshare` started, which is process 1 of its namespace, and waits for that: `unshare`
/// itself may not be killed, for it would leave before the others.
fn stop(program: &mut Child) {
    let list = format!("/proc/{0}/task/{0}/children", program.id());
    let child =
        |list: String| list.split_ascii_whitespace().next()?.parse().ok().and_then(Pid::from_raw);
    let first = std::fs::read_to_string(list).ok().and_then(child);
    let begun = Instant::now();
    while begun.elapsed() < 2 * GRACE {
        let signal = if begun.elapsed() < GRACE { Signal::TERM } else { Signal::KILL };
        if let Some(first) = first {
            // Again and again, because process 1 does not hear a signal before it has a handler.
            let _ = kill_process(first, signal);
        }
        let asked = Instant::now();
        while asked.elapsed() < ASK_EVERY {
            if !matches!(program.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let _ = program.kill();
    let _ = program.wait();
}
