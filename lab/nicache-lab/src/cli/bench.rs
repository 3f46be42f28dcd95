//! The command `bench`.

mod curves;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use nicache_bench::dynamic::{EDIT_RATES, Page, Subject};

pub(crate) use curves::BenchCurvesArgs;

use crate::options::{Milliseconds, parse_rate};

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// A client against nginx and Apache alone, through the card, and with Varnish or HAProxy in
    /// the card's place
    #[command(
        after_help = "Example: sudo nicache bench wire --figure wire.svg\n\nNeeds root, two CPUs, a quiet machine and wrk; takes about 55 minutes \
        in full, 4 minutes with --quick."
    )]
    Wire(BenchWireArgs),
    /// What `bench wire` compares a card with: a program at a TAP that answers everything with the
    /// bytes of an object
    #[command(hide = true)]
    Floor {
        /// Bytes of the object
        bytes: u64,
    },
    /// More and more connections, to nginx alone and through the card: replies per second and
    /// connection times at rising rates
    #[command(after_help = curves::EXAMPLES)]
    Curves(BenchCurvesArgs),
    /// Dynamic pages that change (PHP with MariaDB, WordPress, DokuWiki): the server alone, behind
    /// caches, behind the card; speed and stale replies
    #[command(after_help = BENCH_DYNAMIC_EXAMPLES)]
    Dynamic(BenchDynamicArgs),
    /// Which files a page is made of: the CacheCard paper's method and nicache's, on the same
    /// requests, and what edits then purge
    #[command(after_help = BENCH_SETS_EXAMPLES)]
    Sets(BenchSetsArgs),
    /// What card memory keeps off a bus, and what that is worth: `nicache serve` under web logs on
    /// the bus of Kim et al. 2002
    #[command(after_help = BENCH_KIM_EXAMPLES)]
    Kim(BenchKimArgs),
    /// An NFS server on an iSCSI unit: payload copied, by reference, and left out, and NFS-Ganesha
    /// beside it; the study of Peng et al. 2005
    #[command(after_help = BENCH_NFS_EXAMPLES)]
    Nfs(BenchNfsArgs),
    /// What `bench nfs` compares with: NFS-Ganesha on the unit
    #[command(hide = true)]
    NfsPeer {
        /// The unit
        unit: String,
        /// For configuration and logs
        folder: PathBuf,
        /// The nicache program, which owns the mount
        nicache: PathBuf,
    },
    /// A path that loses, reorders, duplicates and delays packets: the goodput of the card's TCP
    /// beside that of Linux
    #[command(
        after_help = "Example: sudo nicache bench impair --figure impair.svg\n\nNeeds root and two CPUs; takes about 40 minutes in full, a minute with \
        --quick."
    )]
    Impair(BenchImpairArgs),
    /// The card under attack: SYN floods, slow readers and senders, idle connections, mutated
    /// frames; fails if a client that behaves is not served, or the card's memory grows, or
    /// something of the attack stays
    #[command(after_help = BENCH_SIEGE_EXAMPLES)]
    Siege(BenchSiegeArgs),
    /// Simulations: how fast traces are played back against each policy, and the curve of LRU is
    /// made, beside libCacheSim
    #[command(after_help = BENCH_SIM_EXAMPLES)]
    Sim(BenchSimArgs),
    /// The card alone: nanoseconds per request of each kind
    #[command(after_help = "Example: nicache bench pipeline --only hit")]
    Pipeline(BenchPipelineArgs),
    /// What it costs to forward: CPU for each gigabyte and Gb/s of `nicache forward`, beside the
    /// kernel, nftables, a tc-BPF balancer and HAProxy
    #[command(
        after_help = "Example: sudo nicache bench forward --rounds 3\n\nNeeds root, nft, tc, clang and haproxy, and a quiet machine."
    )]
    Forward(BenchForwardArgs),
    /// What payload caching is worth to a forwarder: the tables of Yocum and Chase 2001, from a
    /// model of their machine and nicache's payload cache
    #[command(after_help = "Example: nicache bench yocum --json > yocum.json")]
    Yocum(BenchYocumArgs),
}

const BENCH_KIM_EXAMPLES: &str = "Examples:
  sudo nicache bench kim --quick access.log.gz
  sudo nicache bench kim --save kim.json --figure kim.svg \\
    epa-http.txt.zst nasa.txt.zst blog.tsv.zst

Needs root, two CPUs and a quiet machine; takes about 3 minutes a log in full.";

const BENCH_SIM_EXAMPLES: &str = "Examples:
  nicache bench sim
  nicache bench sim --peer ~/libCacheSim/build/bin/cachesim --figure sim.svg

The peer is built by you (docs/bench tells how). Takes about 3 minutes a round with it, and 250 \
MB of disk.";

const BENCH_NFS_EXAMPLES: &str = "Examples:
  sudo nicache bench nfs --quick
  sudo nicache bench nfs --save nfs.json --rounds 5
  sudo nicache bench nfs --only all-hit --seconds 10

Needs root, two CPUs, a quiet machine and tgtd; takes about 4 minutes a round in full, one \
minute with --quick.";

/// Arguments of `bench nfs`.
#[derive(Debug, Args)]
pub(crate) struct BenchNfsArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["save", "rounds", "seconds", "quick", "only"],
    )]
    pub from: Option<PathBuf>,
    /// How often everything is measured [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of one measurement; an all-miss one takes as long as its file [default: 3]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Megabytes of each file that is read once, by an all-miss measurement [default: 512]
    #[arg(long, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub megabytes: Option<u64>,
    /// Only workloads whose names contain this, such as all-hit, GETATTR, SPECsfs
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Put the file of the unit into this folder while measuring. It must be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub folder: PathBuf,
    /// One round of one second, few sizes: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `bench impair`.
#[derive(Debug, Args)]
pub(crate) struct BenchImpairArgs {
    /// Print the result as JSON, every single transfer included
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "rounds", "quick", "seed"])]
    pub from: Option<PathBuf>,
    /// What losses and all else that is random follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// How often everything is measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub rounds: u32,
    /// Only conditions whose name contains this, such as "50 ms" or "10 % lost"
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Put the files to serve into this folder while measuring. It must be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/lib")]
    pub folder: PathBuf,
    /// A few conditions: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
}

const BENCH_SIEGE_EXAMPLES: &str = "Examples:
  sudo nicache bench siege
  sudo nicache bench siege --attack idle --idle 100000 -- --handshake card --connections 131072
  sudo nicache bench siege --attack mutants --seconds 300 --seed 7

Needs root and two CPUs. Everything happens in network namespaces of its own. Takes a minute an \
attack, and as long as the card's patience with its clients after it: about 10 minutes.";

/// Arguments of `bench siege`.
#[derive(Debug, Args)]
pub(crate) struct BenchSiegeArgs {
    /// Only this attack. Repeatable [default: all]
    #[arg(long = "attack", value_enum, value_name = "ATTACK")]
    pub attacks: Vec<SiegeAttack>,
    /// Seconds of each attack
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=86_400),
    )]
    pub seconds: u32,
    /// Seconds of quiet before each attack and after it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 8,
        value_parser = clap::value_parser!(u32).range(1..=3_600),
    )]
    pub quiet: u32,
    /// Seconds after an attack within which the card must have got rid of it
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 400,
        value_parser = clap::value_parser!(u32).range(1..=86_400),
    )]
    pub r#return: u32,
    /// Pause of the client after each reply while the card gets rid of an attack
    #[arg(long, value_name = "TIME", default_value = "0")]
    pub pause: Milliseconds,
    /// SYNs a second of the flood
    #[arg(
        long,
        value_name = "N",
        default_value_t = 20_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub syns: u32,
    /// Slow readers, and slow senders
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    pub slow: u32,
    /// Idle connections
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub idle: u32,
    /// Slow and idle connections opened in a second
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub opened: u32,
    /// Steps of mutated conversations in a second; half as many random frames
    #[arg(
        long,
        value_name = "N",
        default_value_t = 5_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub frames: u32,
    /// What sources, changes and all else that is random follow from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Attack nothing, show the results saved in this file. Repeatable: they are put together
    #[arg(long, value_name = "FILE", conflicts_with_all = ["attacks", "seconds", "seed"])]
    pub from: Vec<PathBuf>,
    /// Put the files to serve into this folder while measuring. It must be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/lib")]
    pub folder: PathBuf,
    /// Options of the card, as of `nicache run`
    #[arg(last = true, value_name = "OPTIONS")]
    pub options: Vec<String>,
}

/// An attack of `bench siege`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SiegeAttack {
    /// SYNs from random sources that never answer
    SynFlood,
    /// Connections that ask for 1 MB and hardly read
    SlowReaders,
    /// Requests that come byte by byte and never end
    SlowSenders,
    /// Connections without traffic
    Idle,
    /// Random frames, and frames of conversations changed on their way
    Mutants,
}

/// Arguments of `bench sim`.
#[derive(Debug, Args)]
pub(crate) struct BenchSimArgs {
    /// libCacheSim's program cachesim [default: nicache alone]
    #[arg(long, value_name = "FILE")]
    pub peer: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "rounds", "quick", "peer"])]
    pub from: Option<PathBuf>,
    /// How often everything is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Requests of the trace, in millions
    #[arg(
        long,
        value_name = "MILLIONS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub requests: u32,
    /// Objects that are asked for
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(100..=100_000_000),
    )]
    pub objects: u32,
    /// Objects that the caches hold
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(10..=100_000_000),
    )]
    pub cache: u32,
    /// Exponent of Zipf's law
    #[arg(long, value_name = "EXPONENT", default_value_t = 1.0, value_parser = parse_rate)]
    pub exponent: f64,
    /// Only these policies [default: all that read one trace]
    #[arg(long, value_name = "POLICY,...", value_delimiter = ',')]
    pub policies: Vec<nicache_study::Choice>,
    /// Put the trace into this folder while measuring
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub folder: PathBuf,
    /// One round with a million requests: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `bench kim`.
#[derive(Debug, Args)]
pub(crate) struct BenchKimArgs {
    /// Web logs in any format that `nicache replay` reads [default: requests by Zipf's law for 400
    /// files]
    #[arg(value_name = "LOG")]
    pub logs: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "rounds", "quick", "logs"])]
    pub from: Option<PathBuf>,
    /// How often everything is measured [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Cut a log where its replies come to this many megabytes
    #[arg(long, value_name = "MB", default_value_t = 500)]
    pub megabytes: u64,
    /// Memory of each card, in megabytes
    #[arg(long, value_name = "MB,...", value_delimiter = ',', default_value = "0,4,8,16")]
    pub memory: Vec<u64>,
    /// Numbers of cards
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1,2")]
    pub cards: Vec<u32>,
    /// Sessions at once
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub clients: usize,
    /// Put the files to serve into this folder while measuring. It must be on a disk
    #[arg(long, value_name = "DIR", default_value = "/var/lib")]
    pub folder: PathBuf,
    /// One round, no cache and the largest, one number of cards, 100 megabytes: to see whether it
    /// works, not for figures
    #[arg(long)]
    pub quick: bool,
}

/// Arguments of `bench wire`.
#[derive(Debug, Args)]
pub(crate) struct BenchWireArgs {
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
    /// Put the files to serve into this folder while measuring. It must be on a disk, and nobody
    /// may make files right in it meanwhile (that would purge what is below)
    #[arg(long, value_name = "DIR", default_value = "/var/lib")]
    pub folder: PathBuf,
    /// Measure only what has this in its label, which is like `10 KB, card, hits, connections kept
    /// open`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// One round of one second, three sizes of objects: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
}

const BENCH_DYNAMIC_EXAMPLES: &str = "Examples:
  sudo nicache bench dynamic --quick
  sudo nicache bench dynamic --save dynamic.json --figure dynamic.svg
  sudo nicache bench dynamic --pages php --subjects server,nicache --edits 0,10
  sudo nicache bench dynamic --only watchers --rounds 20

Needs root, two CPUs, a quiet machine, wrk, varnish and the packages of the applications (it \
says which are missing); takes about 50 minutes in full, 8 minutes with --quick. Ctrl-C reports \
what has been measured so far.";

/// Arguments of `bench dynamic`.
#[derive(Debug, Args)]
pub(crate) struct BenchDynamicArgs {
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
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all =
            ["save", "rounds", "seconds", "quick", "pages", "subjects", "edits", "only"],
    )]
    pub from: Option<PathBuf>,
    /// How often everything is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Seconds of one measurement [default: 5]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// One round of one second: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
    /// Which pages: php, wordpress-front, wordpress-post, dokuwiki
    #[arg(
        long,
        value_name = "PAGE,...",
        value_delimiter = ',',
        default_values = Page::ALL.map(Page::name),
    )]
    pub pages: Vec<Page>,
    /// Who answers: server, nginx-60s, nginx-1s, varnish-60s, varnish-1s, nicache
    #[arg(
        long,
        value_name = "SUBJECT,...",
        value_delimiter = ',',
        default_values = Subject::ALL.map(Subject::name),
    )]
    pub subjects: Vec<Subject>,
    /// How often a page is changed, per second
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = EDIT_RATES,
        value_parser = clap::value_parser!(u32).range(0..=200))]
    pub edits: Vec<u32>,
    /// Only the pages, or only what watching costs
    #[arg(long, value_enum)]
    pub only: Option<DynamicPart>,
}

/// A part of `bench dynamic`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DynamicPart {
    /// The pages behind each subject.
    Pages,
    /// What the watchers cost a page that is not cached.
    Watchers,
}

const BENCH_SETS_EXAMPLES: &str = "Examples:
  sudo nicache bench sets --quick
  sudo nicache bench sets --save sets.json --figure sets.svg
  sudo nicache bench sets --interval 1 --sleep 1000

Needs root, two CPUs, nginx, PHP-FPM and 8 GB of memory for the processes of PHP; takes about \
two minutes.";

/// Arguments of `bench sets`.
#[derive(Debug, Args)]
pub(crate) struct BenchSetsArgs {
    /// Print the result as JSON, with its course over time
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["save", "requests", "interval", "sleep", "workers", "quick"],
    )]
    pub from: Option<PathBuf>,
    /// Few requests and processes: to see whether it works, not for figures
    #[arg(long)]
    pub quick: bool,
    /// Requests of each kind of script [default: 6000]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub requests: Option<usize>,
    /// Milliseconds between two requests, on average [default: 2]
    #[arg(long, value_name = "MS", value_parser = parse_positive)]
    pub interval: Option<f64>,
    /// Milliseconds that a slow script sleeps [default: 2000]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=5000))]
    pub sleep: Option<u64>,
    /// Processes of PHP for slow scripts [default: 1300]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8000))]
    pub workers: Option<u32>,
    /// Edits of files per second
    #[arg(long, value_name = "N", default_value = "10", value_parser = parse_positive)]
    pub edits: f64,
    /// Seed of what is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|count| (1..=1_000_000).contains(count));
    count.ok_or_else(|| "a number from 1 to 1000000".to_owned())
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| "a number from 0.001 to 1000".to_owned())
}

/// Arguments of `bench pipeline`.
#[derive(Debug, Args)]
pub(crate) struct BenchPipelineArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// How often everything is measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 9,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub rounds: u32,
    /// Milliseconds of one measurement
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 300,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000),
    )]
    pub time: u64,
    /// Only kinds of requests whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}

/// Arguments of `bench forward`.
#[derive(Debug, Args)]
pub(crate) struct BenchForwardArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "rounds", "seconds", "only"])]
    pub from: Option<PathBuf>,
    /// How often everything is measured, in turn
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub rounds: u32,
    /// Seconds of each measurement
    #[arg(
        long,
        value_name = "S",
        default_value_t = 3,
        value_parser = clap::value_parser!(u32).range(1..=3600),
    )]
    pub seconds: u32,
    /// Only subjects whose name contains this, such as "nicache" or "HAProxy"
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
}

/// Arguments of `bench yocum`.
#[derive(Debug, Args)]
pub(crate) struct BenchYocumArgs {
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Draw the result into this file (SVG)
    #[arg(long, value_name = "FILE")]
    pub figure: Option<PathBuf>,
    /// Write the result into this file as JSON, too
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Measure nothing, show the result saved in this file
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["save", "packets", "seed", "milliseconds"],
    )]
    pub from: Option<PathBuf>,
    /// Packets of each cell of Figure 5
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200_000,
        value_parser = clap::value_parser!(u64).range(1000..=100_000_000),
    )]
    pub packets: u64,
    /// Seed of the arrivals
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Virtual milliseconds of each cell of Figure 7
    #[arg(
        long,
        value_name = "MS",
        default_value_t = 3000,
        value_parser = clap::value_parser!(u64).range(100..=1_000_000),
    )]
    pub milliseconds: u64,
}
