//! `nicache companion`, the parent of a program that runs beside the server: starts it, hands signals on, collects its orphans.
//!
//! One for each `--with`. Since the program's orphans come here, process 1 can tell them from the server's, and a program that puts itself
//! in the background is still asked to end, and missed when it does.

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use anyhow::{Context, Result};
use rustix::process::set_child_subreaper;

use crate::cli::CompanionArgs;
use crate::following::{self, Collected, Recipient, Signals, collect, own_children};

/// Runs the program to its end. Standard input is a socket on which one byte says that it has been started.
pub fn execute(arguments: &CompanionArgs) -> Result<ExitCode> {
    rustix::thread::set_name(c"nicache-with")?;
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let signals = Signals::catch()?;
    let argv = &arguments.command;
    let variable = |set: &String| set.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let environment: Vec<(String, String)> = arguments.set.iter().filter_map(variable).collect();
    let program = following::start(argv, &environment).with_context(|| format!("cannot start `{}`", argv[0]))?;
    let mut recipient = Recipient::new(&program);
    let left = || own_children().unwrap_or_default();
    UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?).write_all(b".")?;
    loop {
        loop {
            match collect()? {
                Collected::Ended(pid, code) => {
                    if recipient.ended(pid, left) && code != 0 {
                        return Ok(ExitCode::from(code));
                    }
                }
                Collected::Running => break,
                Collected::None => return Ok(ExitCode::SUCCESS),
            }
        }
        signals.wait(None, None)?;
        for signal in signals.take() {
            recipient.pass_on(left, signal);
        }
    }
}
