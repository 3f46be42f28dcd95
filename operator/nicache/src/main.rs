//! `nicache`: a network-interface data cache around an unmodified server.
//!
//! `nicache run` is the supervisor. It gives the server a network namespace of its own whose only interface is the
//! card, starts the card, the watcher and the server as child processes, and takes everything down again.
//!
//! Where to look: [`cli`] lists the commands, [`options`] the settings of `run`, [`supervisor`] what `run` does,
//! [`control`] the two control protocols, [`setup`] what a child process is given at its start.
#![deny(unsafe_code)]

mod access_log;
mod behind;
mod cli;
mod commands;
mod control;
#[cfg(test)]
mod corpus;
mod demo;
mod engine;
mod following;
mod inquiry;
mod live;
mod logs;
mod options;
mod policy;
mod privileges;
mod publish;
mod relay;
mod serve;
mod setup;
mod share;
mod study;
mod supervisor;
mod top;
mod url;

use std::io::Write;
use std::process::ExitCode;

use clap::FromArgMatches;

fn main() -> ExitCode {
    logs::end_when_nobody_reads();
    let cli = cli::Cli::from_arg_matches(&cli::command().get_matches()).unwrap_or_else(|error| error.exit());
    match commands::execute(cli.command) {
        Ok(code) => code,
        Err(error) => {
            logs::clear_live_line();
            let _ = writeln!(std::io::stderr(), "nicache: {error:#}");
            ExitCode::FAILURE
        }
    }
}
