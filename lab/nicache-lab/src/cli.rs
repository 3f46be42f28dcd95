//! The command line: one variant per command.

mod bench;
mod demo;
mod prove;
mod replay;
mod study;

use clap::{Parser, Subcommand};
use nicache::generate::GenerateArgs;

pub(crate) use bench::{
    BenchCommand, BenchCurvesArgs, BenchDynamicArgs, BenchForwardArgs, BenchImpairArgs,
    BenchKimArgs, BenchNfsArgs, BenchPipelineArgs, BenchSetsArgs, BenchSiegeArgs, BenchSimArgs,
    BenchWireArgs, BenchYocumArgs, DynamicPart, SiegeAttack,
};
pub(crate) use demo::DemoArgs;
pub(crate) use prove::{HitKind, ProveArgs};
pub(crate) use replay::{ReplayArgs, TraceSiteArgs};
pub(crate) use study::{
    ObjectiveOption, SimCommand, SimCurveArgs, SimReproduceArgs, SimServerArgs, StudyOption,
    TraceAdviseArgs, TraceCommand, TraceConvertArgs, TraceInfoArgs,
};

use demo::DEMO_EXAMPLES;
use prove::PROVE_EXAMPLES;
use replay::{REPLAY_EXAMPLES, TRACE_SITE_EXAMPLES};

/// The laboratory of nicache: measures, simulates and proves what a card does, for your traces,
/// applications and servers.
#[derive(Debug, Parser)]
#[command(
    name = "nicache-lab",
    version,
    max_term_width = 100,
    after_help = "Example: nicache-lab trace advise access.log.gz\n\n`nicache trace` and so on do the same. Commands that need a card start \
    the program `nicache` beside this one, or else the one in PATH."
)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Look at a trace of requests: what is in it, which memory and policy suit it, a document root
    /// for it, other formats
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Find out what a card would do: cache sizes and policies for a trace, a simulated server, the
    /// papers' studies
    #[command(subcommand)]
    Sim(SimCommand),
    /// Prepare a real web application, run it behind the card, measure it, change it
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Read pages of a site while your own command edits them, and find out whether any reply was
    /// older than an edit
    #[command(after_help = PROVE_EXAMPLES)]
    Prove(Box<ProveArgs>),
    /// Replay a web log and check every byte of every reply: while files are changed in every way,
    /// or (--target) as fast as a server can
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Measure how fast nicache is on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Write manual pages or completions for shells, made from what --help says
    #[command(hide = true)]
    Generate(GenerateArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }

    /// Help is wrapped at 100 columns. A command that is cut there cannot be copied.
    #[test]
    fn examples_are_not_wrapped() {
        fn look(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ") || is_example(line)) {
                assert!(line.chars().count() <= 98, "{}: {line}", command.get_name());
            }
            command.get_subcommands().for_each(look);
        }
        fn is_example(line: &str) -> bool {
            line.starts_with("Example: ")
        }
        look(&super::Cli::command());
    }
}
