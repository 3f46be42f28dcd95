//! The command line: one variant per command. The settings of `run` are in [`crate::options`].

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::options::RunOptions;

/// A network-interface data cache: serves a server's hot content from the card, never stale.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = "Example: sudo nicache run -- nginx -g 'daemon off;'")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server behind the card; with no server: nginx with a small demonstration site
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunOptions>),
    /// Show what a running nicache does
    #[command(after_help = "Example: nicache status --json")]
    Status(StatusArgs),
    /// Drop cached replies from the card
    #[command(after_help = "Examples:\n  nicache purge --all\n  nicache purge http://www.example.com/style.css")]
    Purge(PurgeArgs),
    /// Switch the card's caching off (everything passes to the server) and on again
    #[command(after_help = "Example: nicache bypass on")]
    Bypass(BypassArgs),
    /// Measure how fast nicache is on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// The card process (started by run)
    #[command(hide = true)]
    Card,
    /// The watcher process (started by run)
    #[command(hide = true)]
    Watch,
    /// The first process of the server's PID namespace (started by run)
    #[command(hide = true)]
    Server,
}

const RUN_EXAMPLES: &str = "Examples:
  sudo nicache run
  sudo nicache run --memory 1G --publish 0.0.0.0:80 -- nginx -g 'daemon off;'
  sudo nicache run --config nicache.toml --share 5432 -- php -S 0.0.0.0:80 -t /srv/site

While it runs: SIGHUP, SIGUSR1 and SIGUSR2 are handed on to the server (SIGUSR1 also reopens the access log);
Ctrl-C or SIGTERM stops everything, a second one without waiting for the server.";

/// Which running nicache a command means.
#[derive(Debug, Args)]
pub struct Target {
    /// Name of the running nicache; needed only when several run
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Which one.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `purge`.
#[derive(Debug, Args)]
pub struct PurgeArgs {
    /// Drop every cached reply
    #[arg(long, conflicts_with = "url", required_unless_present = "url")]
    pub all: bool,
    /// Drop the replies cached for this URL, or for this path (beginning with /) whatever the host name
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Which one.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `bypass`.
#[derive(Debug, Args)]
pub struct BypassArgs {
    /// on: the card answers nothing and stores nothing; off: back to caching
    #[arg(value_enum)]
    pub state: Switch,
    /// Which one.
    #[command(flatten)]
    pub target: Target,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// A client against nginx alone, through the card, and with Varnish in the card's place
    #[command(
        after_help = "Example: sudo nicache bench wire --figure wire.svg\n\nNeeds root, two CPUs, a quiet machine and wrk; takes about an hour \
        in full, 3 minutes with --quick."
    )]
    Wire(BenchWireArgs),
    /// The card alone: nanoseconds per request of each kind
    #[command(after_help = "Example: nicache bench pipeline --only hit")]
    Pipeline(BenchPipelineArgs),
}

/// Arguments of `bench wire`.
#[derive(Debug, Args)]
pub struct BenchWireArgs {
    /// Print the result as JSON, every single measurement included
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "rounds", "seconds", "quick"])]
    pub from: Option<PathBuf>,
    /// How often everything is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of one measurement [default: 3]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// One round of one second, three sizes of objects: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `bench pipeline`.
#[derive(Debug, Args)]
pub struct BenchPipelineArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// How often everything is measured
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds of one measurement
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub time: u64,
    /// Only kinds of requests whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
