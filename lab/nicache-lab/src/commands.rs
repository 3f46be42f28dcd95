//! The commands, one file each.

mod bench;
mod demo;
mod prove;
mod replay;
mod sim;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;

use crate::cli::{Cli, Command};

/// Does what the command says.
pub(crate) fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Bench(command) => bench::execute(&command),
        Command::Demo(arguments) => demo::execute(&arguments),
        Command::Prove(arguments) => Ok(prove::execute(&arguments)),
        Command::Replay(arguments) => replay::execute(&arguments),
        Command::Sim(command) => sim::execute(&command),
        Command::Trace(command) => trace::execute(&command),
        Command::Generate(arguments) => nicache::generate::execute(Cli::command(), &arguments),
    }
}
