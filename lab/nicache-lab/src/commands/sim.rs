//! `nicache sim`.

mod curve;
mod reproduce;
mod server;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::SimCommand;

pub(super) use curve::{
    figure_without, memory_fact, play, play_at, totals_table, varying_share, without_variants,
};

/// Simulates, and shows what came out.
pub(super) fn execute(command: &SimCommand) -> Result<ExitCode> {
    match command {
        SimCommand::Curve(arguments) => curve::execute(arguments),
        SimCommand::Server(arguments) => server::execute(arguments),
        SimCommand::Reproduce(arguments) => reproduce::execute(arguments),
    }
}
