//! The command line: one variant per command. The settings of `run` are in [`crate::options`].

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
