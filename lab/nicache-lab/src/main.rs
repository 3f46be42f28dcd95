//! `nicache-lab`: what measures, simulates and proves.
//!
//! `nicache trace` and so on become this program, where it is installed (`laboratory.rs` there). It
//! keeps no frame itself: whoever needs a card starts the program `nicache` ([`card_program`]).
#![forbid(unsafe_code)]

mod behind;
mod card_program;
mod cli;
mod commands;
#[cfg(test)]
mod corpus;
mod growth;
mod options;
mod study;
mod url;

use std::process::ExitCode;

use clap::Parser;
use nicache::logs;

fn main() -> ExitCode {
    logs::end_when_nobody_reads();
    logs::code_of("nicache-lab", commands::execute(cli::Cli::parse().command))
}
