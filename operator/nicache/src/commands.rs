//! The commands, one file each.

mod attach;
mod bypass;
mod card;
mod check;
mod companion;
mod follow;
mod forward;
mod guard;
mod nfs;
mod purge;
mod relay;
mod run;
mod serve;
mod server;
mod status;
mod top;
mod upgrade;
mod watch;
mod who;
mod why;

pub use why::reason as why_not_kept;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::{self, Command};
use crate::{generate, laboratory};

/// Does what the command says.
pub(crate) fn execute(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(options) => run::execute(*options),
        Command::Attach(options) => attach::execute(*options),
        Command::Serve(options) => serve::execute(*options),
        Command::Nfs(options) => nfs::execute(&options),
        Command::Forward(arguments) => forward::execute(arguments),
        Command::Relay(arguments) => relay::execute(&arguments),
        Command::Check(arguments) => check::execute(&arguments),
        Command::Status(arguments) => status::execute(&arguments),
        Command::Top(arguments) => top::execute(&arguments),
        Command::Purge(arguments) => purge::execute(&arguments),
        Command::Why(arguments) => why::execute(&arguments),
        Command::Who(arguments) => who::execute(&arguments),
        Command::Upgrade(arguments) => upgrade::execute(&arguments),
        Command::Bypass(arguments) => bypass::execute(&arguments),
        Command::Follow(arguments) => follow::execute(&arguments),
        Command::Bench(rest) => laboratory::become_it("bench", &rest.arguments),
        Command::Demo(rest) => laboratory::become_it("demo", &rest.arguments),
        Command::Prove(rest) => laboratory::become_it("prove", &rest.arguments),
        Command::Replay(rest) => laboratory::become_it("replay", &rest.arguments),
        Command::Sim(rest) => laboratory::become_it("sim", &rest.arguments),
        Command::Trace(rest) => laboratory::become_it("trace", &rest.arguments),
        Command::Generate(arguments) => generate::execute(cli::command(), &arguments),
        Command::Card => card::execute(),
        Command::Firmware => crate::serve::firmware::execute(),
        Command::Host => crate::serve::host::execute(),
        Command::MountOwner => nfs::own_mount(),
        Command::Forwarder => crate::forward::process::execute(),
        Command::Watch => watch::execute(),
        Command::Server => server::execute(),
        Command::Guard => guard::execute(),
        Command::Companion(arguments) => companion::execute(&arguments),
    }
}
