//! `nicache`: a network-interface data cache around an unmodified server.
//!
//! `nicache run` is the supervisor. It gives the server a network namespace of its own whose only
//! interface is the card, starts the card, the watcher and the server as child processes, and takes
//! everything down again.
//!
//! Where to look: [`cli`] lists the commands, [`options`] the settings of `run`, [`supervisor`]
//! what `run` does, [`control`] the two control protocols, [`setup`] what a child process is given
//! at its start.
//!
//! A library, so the second program, `nicache-lab`, speaks with a running nicache by the same
//! [`control`]; what it needs is public.
#![forbid(unsafe_code)]

mod access_log;
pub mod asking;
mod cli;
mod commands;
pub mod control;
#[cfg(test)]
mod corpus;
mod demo;
mod document_roots;
mod engine;
mod faults;
mod following;
mod forward;
pub mod generate;
mod inquiry;
mod laboratory;
mod live;
pub mod logs;
pub mod numbers;
mod options;
pub mod page;
mod policy;
mod privileges;
mod processes;
mod publish;
mod relay;
mod serve;
mod setup;
mod share;
mod stranger_report;
mod supervisor;
mod top;
mod vitals;
mod words;

pub use commands::why_not_kept;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::FromArgMatches;

pub use options::Milliseconds;

/// What the program does: the command that its arguments name.
pub fn main() -> ExitCode {
    logs::end_when_nobody_reads();
    let line: Vec<OsString> = std::env::args_os().collect();
    if let Some((command, arguments)) = laboratory::asked_for_help(&line) {
        return logs::code_of("nicache", laboratory::become_it(command, &arguments));
    }
    let cli = cli::Cli::from_arg_matches(&cli::command().get_matches())
        .unwrap_or_else(|error| error.exit());
    logs::code_of("nicache", commands::execute(cli.command))
}
