//! The command line: one variant per command. The settings of `run` are in [`crate::options`].

mod forward;
mod target;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use forward::{FastPathArg, ForwardArgs, ForwardCommand};
pub(crate) use target::Target;

use crate::generate::GenerateArgs;
use crate::options::{
    BusAddress, LogFormat, Milliseconds, NfsOptions, Protocol, RunOptions, ServeOptions,
};

/// A network-interface data cache: serves a server's hot content from the card, never stale.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, after_help = EXAMPLE)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a server behind the card; with no server: nginx with a small demonstration site
    #[command(after_help = RUN_EXAMPLES)]
    Run(Box<RunOptions>),
    /// Put a card in front of a server that is already running, between two interfaces
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(Box<RunOptions>),
    /// Serve a folder's files from card memory that this machine's own TCP manages
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Serve a logical unit of an iSCSI target over NFS, from a cache that copies no bytes between
    /// layers
    #[command(after_help = crate::options::NFS_EXAMPLES)]
    Nfs(Box<NfsOptions>),
    /// Forward packets between interfaces, with NAT and load balancing; payload stays on the card
    #[command(after_help = forward::EXAMPLES)]
    Forward(ForwardArgs),
    /// Put a proxy in front of a database, and tell the machines that keep its pages what changes
    #[command(after_help = RELAY_EXAMPLES)]
    Relay(RelayArgs),
    /// Show what nicache can do on this kernel, and what is missing; or check a configuration file,
    /// and show what it would do
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show what a running nicache is doing
    #[command(after_help = "Example: sudo nicache status --json")]
    Status(StatusArgs),
    /// Watch a running nicache: rates, hottest objects, what crosses the bus
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Explain whether a page is cached, and why: its class, what it depends on, for how long; with
    /// `nicache nfs`, what the cache holds of a file
    #[command(after_help = WHY_EXAMPLES)]
    Why(WhyArgs),
    /// List the pages that a change of a file, a folder or a table would purge
    #[command(after_help = WHO_EXAMPLES)]
    Who(WhoArgs),
    /// Drop cached replies from the card
    #[command(
        after_help = "Examples:\n  sudo nicache purge --all\n  sudo nicache purge https://www.example.com/style.css\n  sudo nicache purge 'https://www.example.com/blog/*'"
    )]
    Purge(PurgeArgs),
    /// Switch the card's caching off (everything passes to the server) and on again
    #[command(after_help = "Example: sudo nicache bypass on")]
    Bypass(BypassArgs),
    /// Replace the running card with that of another version, without dropping connections
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),
    /// Run a command so its file changes show at once under --watch preload
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(FollowArgs),
    /// Measure, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Bench(LaboratoryArgs),
    /// Show an application, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Demo(LaboratoryArgs),
    /// Prove a site, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Prove(LaboratoryArgs),
    /// Replay a log, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Replay(LaboratoryArgs),
    /// Simulate, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Sim(LaboratoryArgs),
    /// Look at a trace, in the laboratory
    #[command(hide = true, disable_help_flag = true)]
    Trace(LaboratoryArgs),
    /// Write manual pages or completions for shells, made from what --help says
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// The card process (started by run)
    #[command(hide = true)]
    Card,
    /// The card process (started by serve)
    #[command(hide = true)]
    Firmware,
    /// The host process (started by serve)
    #[command(hide = true)]
    Host,
    /// The process that owns device and mount (started by nfs)
    #[command(hide = true)]
    MountOwner,
    /// The forwarder process (started by forward)
    #[command(hide = true)]
    Forwarder,
    /// The watcher process (started by run)
    #[command(hide = true)]
    Watch,
    /// The parent of the server (started by run)
    #[command(hide = true)]
    Server,
    /// The process that ends what is left of the server (started by run)
    #[command(hide = true)]
    Guard,
    /// The parent of a program that runs beside the server (started by the server's parent)
    #[command(hide = true)]
    Companion(CompanionArgs),
}

const EXAMPLE: &str = "Example: sudo nicache run -- nginx -g 'daemon off;'

With the package nicache-lab: trace, sim, demo, prove, replay, bench (nicache-lab --help).";

const RUN_EXAMPLES: &str = "Examples:
  sudo nicache run
  sudo nicache run --memory 1G --publish 0.0.0.0:80 -- nginx -g 'daemon off;'
  sudo nicache run --wire eth0 --address 192.0.2.10/24 --gateway 192.0.2.1 \\
    -- nginx -g 'daemon off;'
  sudo nicache run --config nicache.toml --share 5432 -- php -S 0.0.0.0:80 -t /srv/site
  sudo nicache run --with mariadbd-safe --with 'php-fpm8.2 --nodaemonize' \\
    -- nginx -g 'daemon off;'

While it runs: SIGHUP, SIGUSR1 and SIGUSR2 are handed on to the server (SIGUSR1 also reopens the \
access log). SIGHUP also has the programs beside it reload, those that know it or are PHP-FPM; \
SIGUSR1 has PHP-FPM reopen its log. `nginx -s reload` and the like work as without nicache. \
Ctrl-C or SIGTERM stops everything, the server first, then the programs beside it; a second one \
stops it without waiting for them.";

const CHECK_EXAMPLES: &str = "Examples:
  sudo nicache check
  sudo nicache check --json
  nicache check /etc/nicache/nicache.toml

Without a file it loads every program that nicache may put into the kernel, and takes it out \
again; traffic is not touched. Exits with 1 if changes cannot be watched, or if the kernel \
refuses a program that it should take. With a file: exits with 1 if nicache would not start with \
it.";

const ATTACH_EXAMPLES: &str = "Examples:
  sudo nicache attach --wire eth0 --host veth-web --memory 1G
  sudo nicache attach --wire eth0 --host veth-web --port xdp --handshake card
  sudo nicache attach --wire uplink --host tap3 --server-pid $(pidof -s nginx)

Frames of the service (--http-port) come to the card; all others go from one interface to the \
other in the kernel. If the card is silent for 300 ms, its frames pass in the kernel, too, and \
clients still reach the server. `attach` caches files only. For dynamic pages use `nicache run`, \
which sees a server from its start.";

/// Flags of `run` that mean nothing to `attach`, and the other way round.
const RUN_ONLY: [&str; 14] = [
    "follow_unit",
    "reload_php",
    "cards",
    "watch",
    "publish",
    "outgoing",
    "share",
    "remote_database",
    "with",
    "subnet",
    "recheck",
    "server",
    "address",
    "gateway",
];
const ATTACH_ONLY: [&str; 2] = ["host", "server_pid"];

/// The command line, with what each command shows of the settings that some share.
pub(crate) fn command() -> clap::Command {
    let hide = |command: clap::Command, names: &[&'static str]| {
        names
            .iter()
            .fold(command, |command, name| command.mut_arg(name, |argument| argument.hide(true)))
    };
    <Cli as clap::CommandFactory>::command()
        .mut_subcommand("run", |run| hide(run, &ATTACH_ONLY))
        .mut_subcommand("attach", |attach| hide(attach, &RUN_ONLY))
}

const UPGRADE_EXAMPLES: &str = "Example, after a new package has been installed:
  sudo nicache upgrade

The new card takes all new connections at once, with an empty memory. The old one serves those \
that it has for up to two minutes, and ends. If the new one does not start, nothing changes. \
Supervisor and watcher stay what they are until nicache is started again.";

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct UpgradeArgs {
    /// The program whose card is to serve [default: this one]
    #[arg(value_name = "PROGRAM")]
    pub program: Option<PathBuf>,

    #[command(flatten)]
    pub target: Target,
}

const SERVE_EXAMPLES: &str = "Examples:
  sudo nicache serve /srv/site
  sudo nicache serve /srv/site --memory 64M --publish 0.0.0.0:80
  sudo nicache serve /srv/site --cards 2 --route affinity --bus pci-64-33
  mkfifo /run/tv; sudo nicache serve /srv/site --live /tv.ts=/run/tv &
  ffmpeg -re -i film.mp4 -f mpegts - > /run/tv

Card and host are two processes that share rings of descriptors, doorbells and a window of host \
memory; either is started again if it ends. `nicache status` shows what has crossed the bus, by \
class.";

const RELAY_EXAMPLES: &str =
    "Example, as root on the database's machine 10.0.0.5, whose MariaDB listens at 127.0.0.1 only:
  openssl rand -hex 32 > /etc/nicache/relay.key; chmod 600 /etc/nicache/relay.key
  nicache relay --protocol mysql --listen 10.0.0.5:3306 --database 127.0.0.1:3306 \\
    --cards 10.0.0.5:7400 --key /etc/nicache/relay.key \\
    --client 'mariadb --defaults-extra-file=/etc/nicache/relay.cnf'
and on each machine that serves pages:
  nicache run --remote-database \\
    mysql://10.0.0.5:3306,relay=10.0.0.5:7400,key=/etc/nicache/relay.key -- ...

Every client must go through the relay: what reaches the database past it is not seen. To the \
database all connections come from the relay's machine; do not give that address extra \
rights there.";

const FOLLOW_EXAMPLES: &str = "Examples:
  sudo nicache follow -- vi /srv/site/index.php
  sudo nicache follow --name shop -- sh -c 'git -C /srv/site pull'
  env $(sudo nicache follow --print) ./deploy

With --watch preload, what other programs change shows after at most a second (--recheck), and \
what this command and the programs that it starts change shows at once. Statically linked and \
set-user-ID programs are others. With --watch kernel every program's changes show at once, and \
the command is just run.";

const TOP_EXAMPLES: &str = "Examples:
  sudo nicache top
  sudo nicache top --name shop --interval 5s
  sudo nicache top --once
  sudo nicache top --json | jq .change.hits_per_s

Keys: q ends, p pauses, s sorts the objects, arrow keys choose a list and move in it, ? \
explains. For a browser and for Prometheus: nicache run --admin.";

const WHY_EXAMPLES: &str = "Examples:
  sudo nicache why https://www.example.com/2024/05/hello-world/
  sudo nicache why '/item.php?id=1' --json
  sudo nicache why https://www.example.com/ -H 'Accept: application/json' -H 'Cookie: theme=dark'
  sudo nicache why http://www.example.com/ --http10 -H 'Connection: close'
  sudo nicache why https://www.example.com/contact/ --compare
  sudo nicache why /data/projects/report.odt --name nfs0

Without -H and --http10, it says what the requests of a browser and of curl would meet. For an \
https:// URL they have what the proxy in front adds.";

const WHO_EXAMPLES: &str = "Examples:
  sudo nicache who /var/www/html/wp-config.php
  sudo nicache who wordpress.wp_posts";

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// Protocol that the database speaks
    #[arg(long, value_enum)]
    pub protocol: Protocol,
    /// Where clients of the database connect
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// Where the database listens
    #[arg(long, value_name = "ADDR:PORT")]
    pub database: SocketAddr,
    /// Where the machines that keep pages connect
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "nats")]
    pub cards: Option<SocketAddr>,
    /// Meet the machines that keep pages on a bus, beside --cards or in its place: servers of NATS
    /// (with JetStream) and this relay's name there. What is sent is sealed with the key
    #[arg(long, value_name = "nats://HOST:PORT/NAME")]
    pub nats: Option<BusAddress>,
    /// File of the key that the machines that keep pages know, too: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Client program of the database with the arguments that let it in, to ask for the structure:
    /// views, triggers, keys. It may need a user that sees them all [default: mariadb or psql as
    /// the database's first user, without a password]
    #[arg(long, value_name = "COMMAND")]
    pub client: Option<String>,
    /// How long a change waits for a machine that does not answer, from its last sign of life: 1s
    /// to 60s. Such a machine stops serving pages of the database before that
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub lease: Milliseconds,
    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// Arguments of `follow`.
#[derive(Debug, Args)]
pub(crate) struct FollowArgs {
    /// Name of the running nicache; needed only when several run
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print what the command's environment must contain, and run nothing
    #[arg(long, conflicts_with = "command")]
    pub print: bool,
    /// The command and its arguments
    #[arg(last = true, required_unless_present = "print", value_name = "COMMAND ARGS")]
    pub command: Vec<String>,
}

/// Arguments of `companion`.
#[derive(Debug, Args)]
pub(crate) struct CompanionArgs {
    /// Variable of the program's environment. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND ARGS")]
    pub command: Vec<String>,
}

/// Arguments of a command that the program `nicache-lab` has ([`crate::laboratory`]).
#[derive(Debug, Args)]
pub(crate) struct LaboratoryArgs {
    /// All of them, as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub arguments: Vec<OsString>,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// A configuration file of `nicache run` or `attach`: name each fault in it, and say what would
    /// be done. Without one, say what this machine's kernel has
    #[arg(value_name = "CONFIG")]
    pub config: Option<PathBuf>,
    /// Print JSON for programs
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Which running nicache is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Name of the running nicache; needed only when several run
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub interval: Milliseconds,
    /// Look for one interval, print what has happened in it, and end
    #[arg(long)]
    pub once: bool,
    /// Print a line of JSON for each interval: what has happened in it, and all counters
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `why`.
#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The page: a URL as clients ask for it (http:// or https://), or its path (beginning with /)
    /// whatever the host name. Of a `nicache nfs`, a file: the export's name and the path below it
    #[arg(value_name = "URL")]
    pub url: String,
    /// Ask what a request with this header would meet, as `curl -H` sends it. Repeatable; with any,
    /// nothing but these headers is sent
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// Ask what a request in HTTP/1.0 would meet
    #[arg(long)]
    pub http10: bool,
    /// Show every source, or every range of a file's blocks, instead of the first ones
    #[arg(long)]
    pub all: bool,
    /// Also request the page twice, as curl does or with the headers of --header, and show where
    /// the two replies differ. The server executes the page for that
    #[arg(long)]
    pub compare: bool,
    /// Where the requests of --compare go, if not to the address of the server behind nicache
    #[arg(long, value_name = "ADDRESS:PORT", requires = "compare")]
    pub server: Option<String>,
    /// Which running nicache is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `who`.
#[derive(Debug, Args)]
pub(crate) struct WhoArgs {
    /// A path, or a table: TABLE, SCHEMA.TABLE or DATABASE:SCHEMA.TABLE
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Which running nicache is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `purge`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").args(["url", "all"]).required(true))]
pub(crate) struct PurgeArgs {
    /// Drop every cached reply
    #[arg(long)]
    pub all: bool,
    /// Drop the replies kept for this URL (http:// and https:// mean the same), or for this path
    /// (beginning with /) whatever the host name; with a final *, for all that begin so
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// Which running nicache is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `bypass`.
#[derive(Debug, Args)]
pub(crate) struct BypassArgs {
    /// on: the card answers nothing and stores nothing; off: back to caching
    #[arg(value_enum)]
    pub state: Switch,
    /// Which running nicache is asked.
    #[command(flatten)]
    pub target: Target,
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

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
        look(&super::command());
    }

    #[test]
    fn purge_needs_a_url_or_all() {
        let parsed = |arguments: &[&str]| super::Cli::try_parse_from(arguments);
        let error = parsed(&["nicache", "purge"]).unwrap_err().to_string();
        assert!(error.contains("<URL|--all>"), "{error}");
        assert!(parsed(&["nicache", "purge", "/page", "--all"]).is_err());
        assert!(parsed(&["nicache", "purge", "/page"]).is_ok());
        assert!(parsed(&["nicache", "purge", "--all"]).is_ok());
    }
}
