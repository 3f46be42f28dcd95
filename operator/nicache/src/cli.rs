//! The command line: one variant per command. The settings of `run` are in [`crate::options`].

mod bench;
mod study;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use nicache_applications::Application;
use nicache_trace::Format;

pub use bench::{
    BenchCommand, BenchCurvesArgs, BenchDynamicArgs, BenchImpairArgs, BenchKimArgs, BenchPipelineArgs, BenchSetsArgs,
    BenchSiegeArgs, BenchSimArgs, BenchWireArgs, BenchYocumArgs, DynamicPart, SiegeAttack,
};
pub use study::{
    ObjectiveOption, SimCommand, SimCurveArgs, SimReproduceArgs, SimServerArgs, StudyOption, TraceAdviseArgs,
    TraceCommand, TraceConvertArgs, TraceInfoArgs,
};

use crate::options::{BusAddress, LogFormat, Milliseconds, Protocol, RunOptions, ServeOptions};

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
    /// Stand between two interfaces, in front of a server that runs already
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach(Box<RunOptions>),
    /// Serve the files of a folder from memory of the card, which this machine's own TCP manages
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeOptions>),
    /// Stand in front of a database, and tell the machines that keep its pages what it receives
    #[command(after_help = RELAY_EXAMPLES)]
    Relay(RelayArgs),
    /// Say what this machine's kernel lets nicache do, and why not the rest
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Show what a running nicache does
    #[command(after_help = "Example: nicache status --json")]
    Status(StatusArgs),
    /// Watch what a running nicache does: rates, hottest objects, what crosses the bus
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Say what the card has of a page: its class, what it depends on, for how long, or why it is not there
    #[command(after_help = WHY_EXAMPLES)]
    Why(WhyArgs),
    /// Say which pages a change of a file, a directory or a table would purge
    #[command(after_help = WHO_EXAMPLES)]
    Who(WhoArgs),
    /// Drop cached replies from the card
    #[command(after_help = "Examples:\n  nicache purge --all\n  nicache purge http://www.example.com/style.css")]
    Purge(PurgeArgs),
    /// Switch the card's caching off (everything passes to the server) and on again
    #[command(after_help = "Example: nicache bypass on")]
    Bypass(BypassArgs),
    /// Have a card of another nicache take the place of the one at work; connections go on
    #[command(after_help = UPGRADE_EXAMPLES)]
    Upgrade(UpgradeArgs),
    /// Replay a web log and check every byte of every reply: while files are changed in every way, or (--target) as fast as a server can
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(Box<ReplayArgs>),
    /// Find out what a card would do: cache sizes and policies for a trace, a simulated server, the papers' studies
    #[command(subcommand)]
    Sim(SimCommand),
    /// Look at a trace of requests: what is in it, which memory and policy suit it, a document root for it, other formats
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Prepare a real web application, run it behind the card, measure it, change it
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Read pages of a site while your own command edits them, and find out whether any reply was older than an edit
    #[command(after_help = PROVE_EXAMPLES)]
    Prove(Box<ProveArgs>),
    /// Measure how fast nicache is on this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Run a command whose changes of files are seen at once, also by a nicache that watches with --watch preload
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(FollowArgs),
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
    /// The watcher process (started by run)
    #[command(hide = true)]
    Watch,
    /// The first process of the server's PID namespace (started by run)
    #[command(hide = true)]
    Server,
    /// The parent of a program that runs beside the server (started by the server's first process)
    #[command(hide = true)]
    Companion(CompanionArgs),
}

const RUN_EXAMPLES: &str = "Examples:
  sudo nicache run
  sudo nicache run --memory 1G --publish 0.0.0.0:80 -- nginx -g 'daemon off;'
  sudo nicache run --wire eth0 --address 192.0.2.10/24 --gateway 192.0.2.1 -- nginx -g 'daemon off;'
  sudo nicache run --config nicache.toml --share 5432 -- php -S 0.0.0.0:80 -t /srv/site
  sudo nicache run --with mariadbd-safe --with 'php-fpm8.2 --nodaemonize' -- nginx -g 'daemon off;'

While it runs: SIGHUP, SIGUSR1 and SIGUSR2 are handed on to the server (SIGUSR1 also reopens the access log);
Ctrl-C or SIGTERM stops everything, the server first, then the programs beside it; a second one stops it without
waiting for them.";

const CHECK_EXAMPLES: &str = "Examples:
  sudo nicache check
  sudo nicache check --json

Loads every program that nicache may put into the kernel, and takes it out again; traffic is not touched. Exits with 1 if changes
cannot be watched, or if the kernel refuses a program that it should take.";

const ATTACH_EXAMPLES: &str = "Examples:
  sudo nicache attach --wire eth0 --host veth-web --memory 1G
  sudo nicache attach --wire eth0 --host veth-web --port xdp --handshake card
  sudo nicache attach --wire uplink --host tap3 --server-pid $(pidof -s nginx)

Frames of the service (--http-port) come to the card; all others go from one interface to the other in the kernel. If the card does not
show that it lives for 300 ms, these go there, too, so that the server is reached without it. Kept are files; pages that programs compute are
kept by `nicache run`, which sees a server from its start.";

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
pub fn command() -> clap::Command {
    let hide = |command: clap::Command, names: &[&'static str]| {
        names.iter().fold(command, |command, name| command.mut_arg(name, |argument| argument.hide(true)))
    };
    <Cli as clap::CommandFactory>::command()
        .mut_subcommand("run", |run| hide(run, &ATTACH_ONLY))
        .mut_subcommand("attach", |attach| hide(attach, &RUN_ONLY))
}

const UPGRADE_EXAMPLES: &str = "Example, after a new package has been installed:
  nicache upgrade

The new card takes all new connections at once, with an empty memory. The old one serves those that it has for up to two minutes, and ends. If the
new one does not start, nothing changes. Supervisor and watcher stay what they are until nicache is started again.";

/// Arguments of `upgrade`.
#[derive(Debug, Args)]
pub struct UpgradeArgs {
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
  mkfifo /run/tv; sudo nicache serve /srv/site --live /tv.ts=/run/tv & ffmpeg -re -i film.mp4 -f mpegts - > /run/tv

Card and host are two processes that share rings of descriptors, doorbells and a window of host memory; either is started again
if it ends. `nicache status` shows what has crossed the bus, by class.";

const RELAY_EXAMPLES: &str = "Example, on the database's machine 10.0.0.5, whose MariaDB listens at 127.0.0.1 only:
  openssl rand -hex 32 > /etc/nicache/relay.key; chmod 600 /etc/nicache/relay.key
  nicache relay --protocol mysql --listen 10.0.0.5:3306 --database 127.0.0.1:3306 --cards 10.0.0.5:7400 \\
    --key /etc/nicache/relay.key --client 'mariadb --defaults-extra-file=/etc/nicache/relay.cnf'
and on each machine that serves pages:
  nicache run --remote-database mysql://10.0.0.5:3306,relay=10.0.0.5:7400,key=/etc/nicache/relay.key -- ...

Every client must go through the relay: what reaches the database past it is not seen. To the database all
connections come from the relay's machine; let no rule of it trust that address more than others.";

const FOLLOW_EXAMPLES: &str = "Examples:
  nicache follow -- vi /srv/site/index.php
  nicache follow --name shop -- sh -c 'git -C /srv/site pull'
  env $(nicache follow --print) ./deploy

With --watch preload, what other programs change shows after at most a second (--recheck), and what this command and the
programs that it starts change shows at once. Statically linked and set-user-ID programs are others. With --watch kernel
every program's changes show at once, and the command is just run.";

const DEMO_EXAMPLES: &str = "Examples:
  sudo nicache demo wordpress
  sudo nicache demo flask --once --json
  sudo nicache demo dokuwiki --once --prove 60s
  sudo nicache demo mediawiki -- --publish 127.0.0.1:8080 --memory 256M

Packages of Debian that are missing are installed. The application gets a folder of its own below /var/lib, which is
removed at the end, with its own database and configuration; nothing else of the machine is changed.";

const REPLAY_EXAMPLES: &str = "Examples, is a reply ever stale:
  sudo nicache replay access.log.gz
  sudo nicache replay --synthetic --duration 30 --writers 4 -- --handshake card --memory 256M
  sudo nicache replay access.log --site /srv/empty --url http://10.77.0.2/ --writers 2

Without --url, nginx is started behind a nicache of its own, with a site that has the log's sizes.
With --url, the server's document root must be the folder given with --site, and the server another
user than root (it is shown files that it may not read). The status is 1 if a reply was stale, torn,
corrupt or did not come.

Examples, how fast is a server:
  nicache trace site access.log.gz /srv/site      (and give a server /srv/site as document root)
  nicache replay access.log.gz --site /srv/site --target http://10.0.0.1/ --clients 256
  nicache replay access.log.gz --target http://10.0.0.1/ --target http://10.0.1.1/ --replayers 4
  nicache replay access.log.gz --target http://10.0.0.1/ --speed 20 --duration 60 --json

With --target, nothing is changed and nothing is started. Requests of a client less than 15 s apart
are one connection, and those less than 5 s apart are sent at once (Kim et al. 2002, section 5.2).
Replies of 200, 206 and 304 in the log are replayed as requests for whole files, other ones are not.
The status is 1 if a reply was wrong or did not come.";

const TRACE_SITE_EXAMPLES: &str = "Example: nicache trace site access.log.gz /srv/site

A file has as many bytes as the largest reply in the log, and is named by a number made of its target:
DIR/ab/ab123456789abcde. Every server of files serves it as it is; `nicache replay LOG --target` asks
for it.";

const TOP_EXAMPLES: &str = "Examples:
  nicache top
  nicache top --name shop --interval 5s
  nicache top --once
  nicache top --json | jq .change.hits_per_s

Keys: q ends, p pauses, s sorts the objects, arrow keys choose a list and move in it, ? explains. For a
browser and for Prometheus: nicache run --admin.";

const WHY_EXAMPLES: &str = "Examples:
  nicache why http://www.example.com/2024/05/hello-world/
  nicache why '/item.php?id=1' --json";

const WHO_EXAMPLES: &str = "Examples:
  nicache who /var/www/html/wp-config.php
  nicache who wordpress.wp_posts";

const PROVE_EXAMPLES: &str = r#"Examples:
  nicache prove --url http://10.77.0.2/ --pages /,/about.html --name nic0 \
    --edit 'version: echo "<p>version=$NICACHE_VERSION</p>" > /srv/site/new && mv /srv/site/new /srv/site/part.html'
  nicache prove --url http://10.77.0.2/ --pages /news --expect-hits \
    --edit 'title: mariadb shop -e "UPDATE posts SET title = \"title=$NICACHE_VERSION\" WHERE id = 1"'

Each edit command sets its subject to the number in $NICACHE_VERSION (and finds the subject's name in $NICACHE_SUBJECT);
status 0 says that the change is complete. Pages show the number, as `NAME=NUMBER` unless --marker says otherwise. A reply
must show a version that was there at some moment between the sending of its request and its last byte.

In the end, after a rest, every page must show the last version on every connection.

The status is 0 if all replies were right, 1 if one was not, and 2 if nothing is proven: too few replies or edits, no hits
with --expect-hits, or no run at all."#;

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

/// Arguments of `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Which application
    #[arg(value_name = "APP", value_parser = application())]
    pub application: Application,
    /// End after the measurement, instead of serving until Ctrl-C
    #[arg(long)]
    pub once: bool,
    /// Then read its pages for so long while everything that they show is changed, in every way that the application has, and judge each
    /// reply; as `nicache prove` does
    #[arg(long, value_name = "TIME")]
    pub prove: Option<Milliseconds>,
    /// Edits per second in all, with --prove
    #[arg(long, value_name = "N", default_value_t = 2.0)]
    pub edits_per_second: f64,
    /// Seconds of each of the four measurements
    #[arg(long, value_name = "S", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Settings for the `nicache run` that is started
    #[arg(last = true, value_name = "RUN OPTIONS")]
    pub run: Vec<String>,
}

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub struct RelayArgs {
    /// What the database speaks
    #[arg(long, value_enum)]
    pub protocol: Protocol,
    /// Where clients of the database connect
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: SocketAddr,
    /// The database
    #[arg(long, value_name = "ADDR:PORT")]
    pub database: SocketAddr,
    /// Where the machines that keep pages connect
    #[arg(long, value_name = "ADDR:PORT", required_unless_present = "nats")]
    pub cards: Option<SocketAddr>,
    /// Meet them on a bus, too: servers of NATS (with JetStream) and this relay's name there. What is sent is sealed with the key
    #[arg(long, value_name = "nats://HOST:PORT/NAME")]
    pub nats: Option<BusAddress>,
    /// File of the key that these machines know, too: 64 hexadecimal digits
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Client program of the database with the arguments that let it in, to ask for the structure: views, triggers, keys. It may need a
    /// user that sees them all [default: mariadb or psql as the database's first user, without a password]
    #[arg(long, value_name = "COMMAND")]
    pub client: Option<String>,
    /// How long a change waits for a machine that does not answer, from its last sign of life. Such a machine stops serving
    /// pages of the database before that
    #[arg(long, value_name = "TIME", default_value = "2s")]
    pub lease: Milliseconds,
    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// The applications by name, with what they are.
fn application() -> impl TypedValueParser<Value = Application> {
    let values =
        Application::ALL.map(|application| PossibleValue::new(application.name()).help(application.description()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Application>())
}

/// Arguments of `follow`.
#[derive(Debug, Args)]
pub struct FollowArgs {
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
pub struct CompanionArgs {
    /// Variable of the program's environment. Repeatable
    #[arg(long, value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND ARGS")]
    pub command: Vec<String>,
}

const OF_CHANGES: &str = "Is a reply ever stale (without --target)";
const OF_SPEED: &str = "How fast is a server (with --target)";

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Log, plain or packed by gzip or zstd
    #[arg(value_name = "LOG", required_unless_present = "synthetic", conflicts_with = "synthetic")]
    pub log: Option<PathBuf>,
    /// What the log is: common, json, tsv, worldcup, oracle-general, keys, csv, u32, u64; a table without a line of names with its columns:
    /// csv:time,key,size [default: as it looks]
    #[arg(long, value_name = "FORMAT", conflicts_with = "synthetic")]
    pub format: Option<Format>,
    /// Connections at once [default: 8 (each with a thread); with --target 64, of all replayers together; in open loop 1024 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: Option<u32>,
    /// Repeat the log for so many seconds [default: the log once]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub duration: Option<u64>,
    /// Requests per second, sent without waiting for replies as far as connections allow; with --target: sessions per second, which
    /// begin at random (Poisson) [default: as fast as replies come]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Equal seeds choose equal files, ways to change them, and random times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Folder of the files. With --target: made by `nicache trace site`; the files' sizes are looked at. Otherwise: made now, must be
    /// empty or new, and is left there [default: a temporary folder; with --target not looked at]
    #[arg(long, value_name = "DIR")]
    pub site: Option<PathBuf>,
    /// Name of the running nicache whose counters are shown [default: the only one, if any; with --target none]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Replays that change files.
    #[command(flatten)]
    pub changes: ReplayChangesArgs,
    /// Replays that measure a server.
    #[command(flatten)]
    pub speed: ReplaySpeedArgs,
    /// Settings for the `nicache run` that is started
    #[arg(last = true, value_name = "RUN OPTIONS", conflicts_with_all = ["url", "target"])]
    pub run: Vec<String>,
}

/// Arguments of `replay` while files are changed.
#[derive(Debug, Args)]
pub struct ReplayChangesArgs {
    /// No log, but requests by Zipf's law for 400 files
    #[arg(long, help_heading = OF_CHANGES, conflicts_with = "target")]
    pub synthetic: bool,
    /// A server that runs already, with --site as its document root
    #[arg(long, help_heading = OF_CHANGES, value_name = "http://ADDR[:PORT]/", requires = "site", conflicts_with = "target")]
    pub url: Option<String>,
    /// Threads that change files; 0: nothing changes
    #[arg(long, help_heading = OF_CHANGES, value_name = "N", default_value_t = 2, conflicts_with = "target")]
    pub writers: usize,
    /// Mean pause of a writer between two writes, in milliseconds
    #[arg(long, help_heading = OF_CHANGES, value_name = "MS", default_value_t = 5, conflicts_with = "target")]
    pub write_pause: u64,
    /// Requests sent at once on a connection
    #[arg(long, help_heading = OF_CHANGES, value_name = "N", default_value_t = 1, conflicts_with = "target",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pipeline: u16,
    /// Requests of N kinds, as of so many browsers; 0: each is different, which tells best what was kept
    #[arg(long, help_heading = OF_CHANGES, value_name = "N", default_value_t = 0, conflicts_with = "target")]
    pub agents: u64,
    /// The server caches open files (nginx: open_file_cache), so it may give old replies itself; the card may not
    #[arg(long, help_heading = OF_CHANGES, conflicts_with = "target")]
    pub server_keeps_files_open: bool,
}

/// Arguments of `replay` with `--target`.
#[derive(Debug, Args)]
pub struct ReplaySpeedArgs {
    /// A server that runs already and whose document root is a site of the log. Repeatable (its other addresses); sessions take turns
    #[arg(long, help_heading = OF_SPEED, value_name = "http://ADDR[:PORT]/")]
    pub target: Vec<String>,
    /// Threads; sessions are dealt out to them in turn
    #[arg(long, help_heading = OF_SPEED, value_name = "N", default_value_t = 1, requires = "target",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub replayers: u16,
    /// Begin sessions at their times in the log, which runs so many times as fast (open loop) [default: when another session ends]
    #[arg(long, help_heading = OF_SPEED, value_name = "N", requires = "target", conflicts_with = "rate", value_parser = parse_rate)]
    pub speed: Option<f64>,
    /// Requests of a client that are fewer seconds apart share a connection; 0: each has its own
    #[arg(long, help_heading = OF_SPEED, value_name = "S", default_value_t = 15, requires = "target")]
    pub connection_gap: u64,
    /// Requests of a connection that are fewer seconds apart are sent at once; 0: one by one
    #[arg(long, help_heading = OF_SPEED, value_name = "S", default_value_t = 5, requires = "target")]
    pub pipeline_gap: u64,
    /// Local address to connect from. Repeatable; connections take turns, if one address has not enough ports
    #[arg(long, help_heading = OF_SPEED, value_name = "ADDR", requires = "target")]
    pub source: Vec<IpAddr>,
}

/// Arguments of `trace site`.
#[derive(Debug, Args)]
pub struct TraceSiteArgs {
    /// Log, plain or packed by gzip or zstd
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The document root; empty or new
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// What the log is: common, json, tsv, worldcup, oracle-general, keys, csv, u32, u64; a table without a line of names with its columns:
    /// csv:time,key,size [default: as it looks]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `prove`.
#[derive(Debug, Args)]
pub struct ProveArgs {
    /// The server that is to be proved
    #[arg(long, value_name = "http://HOST[:PORT]/")]
    pub url: String,
    /// The same server past the card. What it shows there tells how far it is behind its edits itself
    #[arg(long, value_name = "http://HOST[:PORT]/")]
    pub direct: Option<String>,
    /// Pages to read, separated by commas
    #[arg(long, value_name = "/PATH,...", value_delimiter = ',', default_value = "/")]
    pub pages: Vec<String>,
    /// Read pages by Zipf's law with this exponent, the first one most [default: all alike]
    #[arg(long, value_name = "EXPONENT")]
    pub zipf: Option<f64>,
    /// Shell command that changes a subject; the name is `version` unless given. Several commands for one subject take turns at
    /// random. Repeatable
    #[arg(long, value_name = "[NAME:] COMMAND", required = true)]
    pub edit: Vec<String>,
    /// Regular expression for the version of a subject, whose first group is the number; with one subject its name may be left out.
    /// Repeatable [default: \bNAME=(\d+)]
    #[arg(long, value_name = "[NAME:] REGEX")]
    pub marker: Vec<String>,
    /// An edit command that takes longer is killed, and has failed
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub edit_timeout: Milliseconds,
    /// Edits per second of each subject, at random times
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub edits_per_second: f64,
    /// Least time between two edits of a subject: some servers compare times in seconds
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub least_gap: Milliseconds,
    /// Now and then, up to so many edits come at once
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub burst: u32,
    /// Page whose markers of one subject may differ in one reply, because the server itself puts it together while the subject changes.
    /// Repeatable
    #[arg(long, value_name = "/PATH")]
    pub non_atomic: Vec<String>,
    /// Page that the server itself gives without its content for moments. Repeatable
    #[arg(long, value_name = "/PATH")]
    pub unsteady: Vec<String>,
    /// Page that prints the UNIX time in seconds or milliseconds, which may be so old at most when the request is sent. Repeatable
    #[arg(long, value_name = "/PATH=TIME")]
    pub within: Vec<String>,
    /// A kind of client that one of the pages answers in words of its own: it is read by such clients, too, and each must be told the text.
    /// Repeatable
    #[arg(long = "client", value_name = "/PATH NAME: VALUE => TEXT")]
    pub clients: Vec<String>,
    /// Regular expression for the time on pages of --within
    #[arg(long, value_name = "REGEX", default_value = r"\btime=(\d+)")]
    pub clock: String,
    /// How far the printed time may be from the server's execution of the request, besides
    #[arg(long, value_name = "TIME", default_value = "100ms")]
    pub clock_slack: Milliseconds,
    /// How far the server itself may be behind the edits of a subject: a cache of its own, like PHP's opcache.revalidate_freq, or a
    /// source that nobody can watch. Repeatable
    #[arg(long, value_name = "NAME=TIME")]
    pub server_lag: Vec<String>,
    /// The server's workers are behind alike (they share what they keep, as with PHP's opcache): what a page has shown directly, no
    /// later request may get older
    #[arg(long, requires = "direct")]
    pub one_state: bool,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub readers: u16,
    /// Connections to --direct
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub direct_readers: u16,
    /// Threads that work the connections
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub threads: u16,
    /// Requests sent at once on a connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pipeline: u16,
    /// Addresses of this machine that connections come from in turns, separated by commas [default: the kernel's choice]
    #[arg(long, value_name = "ADDR,...", value_delimiter = ',')]
    pub from: Vec<IpAddr>,
    /// Further request header. Repeatable
    #[arg(long, value_name = "NAME: VALUE")]
    pub header: Vec<String>,
    /// A reply that takes longer is a violation
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub timeout: Milliseconds,
    /// Status besides 200 that is no violation. Repeatable
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..=599))]
    pub allow_status: Vec<u16>,
    /// Version of the first edit [default: one more than the pages show]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    pub first_version: Option<u64>,
    /// End after this [default: 10s, or when --replies and --edits are reached if one of them is given]
    #[arg(long, value_name = "TIME")]
    pub duration: Option<Milliseconds>,
    /// With fewer replies, nothing is proven
    #[arg(long, value_name = "N")]
    pub replies: Option<u64>,
    /// With fewer edits, nothing is proven
    #[arg(long, value_name = "N")]
    pub edits: Option<u64>,
    /// Rest before the last look, besides the longest --server-lag or --within; at least the --recheck of the card
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub quiet: Milliseconds,
    /// Equal seeds choose equal pages and times of edits
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Name of the running nicache whose counters are shown
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Without hits of this kind, nothing is proven; by the counters of --name, or of the only nicache that runs [default if given: dynamic]
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "dynamic", value_name = "KIND")]
    pub expect_hits: Option<HitKind>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Kinds of hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HitKind {
    /// Of pages that the server computed.
    Dynamic,
    /// Of files, too.
    Any,
}

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Print JSON for programs.
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

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
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

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write
    #[arg(value_enum)]
    pub what: Generated,
    /// The folder for it; made if it is not there
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
}

/// What is made from the definition of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// Manual pages: nicache.1, nicache-run.1, ...
    Man,
    /// Completions for bash, zsh and fish
    Completions,
}

/// Arguments of `why`.
#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The page: a URL as clients ask for it, or its path (beginning with /) whatever the host name
    #[arg(value_name = "URL")]
    pub url: String,
    /// Show every source instead of the first ones
    #[arg(long)]
    pub all: bool,
    /// Which one.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `who`.
#[derive(Debug, Args)]
pub struct WhoArgs {
    /// A path, or a table: TABLE, SCHEMA.TABLE or DATABASE:SCHEMA.TABLE
    #[arg(value_name = "SOURCE")]
    pub source: String,
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

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.001..=10_000_000.0).contains(rate));
    rate.ok_or_else(|| "a number from 0.001 to 10000000".to_owned())
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
