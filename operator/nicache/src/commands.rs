//! The commands, one file each.

mod attach;
mod bench;
mod bypass;
mod card;
mod check;
mod companion;
mod demo;
mod follow;
mod generate;
mod prove;
mod purge;
mod relay;
mod replay;
mod run;
mod serve;
mod server;
mod sim;
mod status;
mod top;
mod trace;
mod upgrade;
mod watch;
mod who;
mod why;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Command;

/// Does what the command says.
pub fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(options) => run::execute(*options),
        Command::Attach(options) => attach::execute(*options),
        Command::Serve(options) => serve::execute(*options),
        Command::Relay(arguments) => relay::execute(&arguments),
        Command::Check(arguments) => check::execute(&arguments),
        Command::Status(arguments) => status::execute(&arguments),
        Command::Top(arguments) => top::execute(&arguments),
        Command::Purge(arguments) => purge::execute(&arguments),
        Command::Why(arguments) => why::execute(&arguments),
        Command::Who(arguments) => who::execute(&arguments),
        Command::Upgrade(arguments) => upgrade::execute(&arguments),
        Command::Bypass(arguments) => bypass::execute(&arguments),
        Command::Bench(command) => bench::execute(&command),
        Command::Prove(arguments) => Ok(prove::execute(&arguments)),
        Command::Replay(arguments) => replay::execute(&arguments),
        Command::Sim(command) => sim::execute(&command),
        Command::Trace(command) => trace::execute(&command),
        Command::Follow(arguments) => follow::execute(&arguments),
        Command::Demo(arguments) => demo::execute(&arguments),
        Command::Generate(arguments) => generate::execute(&arguments),
        Command::Card => card::execute(),
        Command::Firmware => crate::serve::firmware::execute(),
        Command::Host => crate::serve::host::execute(),
        Command::Watch => watch::execute(),
        Command::Server => server::execute(),
        Command::Companion(arguments) => companion::execute(&arguments),
    }
}
