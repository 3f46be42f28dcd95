//! The commands `sim` and `trace`: what caches would do for a trace.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nicache_trace::Format;

use super::{TRACE_SITE_EXAMPLES, TraceSiteArgs};
use crate::options::study::{CacheOptions, OutputOptions, TraceOptions, WorkloadOptions};

/// What to do with a trace.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Show what is in a trace: requests, clients, popularity, sizes, reuse, what cannot be cached
    #[command(after_help = TRACE_INFO_EXAMPLES)]
    Info(Box<TraceInfoArgs>),
    /// Say which memory and which policy to take for this traffic
    #[command(after_help = TRACE_ADVISE_EXAMPLES)]
    Advise(Box<TraceAdviseArgs>),
    /// Make a document root with a file of the right size for everything that the log has
    #[command(after_help = TRACE_SITE_EXAMPLES)]
    Site(TraceSiteArgs),
    /// Write a trace in another format: for other simulators, or smaller
    #[command(after_help = TRACE_CONVERT_EXAMPLES)]
    Convert(Box<TraceConvertArgs>),
}

const TRACE_INFO_EXAMPLES: &str = "Examples:
  nicache trace info /var/log/nginx/access.log
  nicache trace info --report info.html access.log.2.gz access.log.1 access.log
  nicache trace info --sample 100000 huge.log.zst
  zcat old.gz | nicache trace info --json -";

const TRACE_ADVISE_EXAMPLES: &str = "Examples:
  nicache trace advise /var/log/nginx/access.log
  nicache trace advise --report advice.html --for bytes --cards 2 access.log.1 access.log
  nicache trace advise --sample 100000 huge.log.zst
  nicache trace advise --format csv:time,key,size --policies lru,lirs,lirs:hir=5% cache.csv";

const TRACE_CONVERT_EXAMPLES: &str = "Examples:
  nicache trace convert access.log blog.oracleGeneral
  nicache trace convert --to tsv access.json - | zstd > access.tsv.zst
  nicache trace convert --to keys --unit blocks disk.vscsi blocks.csv";

/// Arguments of `trace info`.
#[derive(Debug, Args)]
pub(crate) struct TraceInfoArgs {
    /// Which trace.
    #[command(flatten)]
    pub trace: TraceOptions,
    /// Follow a sample of this many objects, so only their requests take memory; advice says
    /// within how many points it is right
    #[arg(
        long,
        value_name = "OBJECTS",
        value_parser = clap::value_parser!(u32).range(128..),
        help_heading = "Trace",
    )]
    pub sample: Option<u32>,
    /// What is cached.
    #[command(flatten)]
    pub workload: WorkloadOptions,
    /// Where results go.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Arguments of `trace advise`.
#[derive(Debug, Args)]
pub(crate) struct TraceAdviseArgs {
    /// Which trace.
    #[command(flatten)]
    pub trace: TraceOptions,
    /// Follow a sample of this many objects, so only their requests take memory; advice says
    /// within how many points it is right
    #[arg(
        long,
        value_name = "OBJECTS",
        value_parser = clap::value_parser!(u32).range(128..),
        help_heading = "Trace",
    )]
    pub sample: Option<u32>,
    /// What counts: requests that the server does not see, or bytes that do not cross the bus
    #[arg(long = "for", value_enum, value_name = "WHAT", default_value = "requests")]
    pub objective: ObjectiveOption,
    /// What is cached.
    #[command(flatten)]
    pub workload: WorkloadOptions,
    /// Which caches.
    #[command(flatten)]
    pub caches: CacheOptions,
    /// Where results go.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// What counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ObjectiveOption {
    /// Requests that the server does not see
    Requests,
    /// Bytes that do not cross the bus
    Bytes,
}

/// Arguments of `trace convert`.
#[derive(Debug, Args)]
pub(crate) struct TraceConvertArgs {
    /// Which trace.
    #[command(flatten)]
    pub trace: TraceOptions,
    /// The new file, or - for standard output
    #[arg(value_name = "OUTPUT")]
    pub output: PathBuf,
    /// What to write: oracle-general (libCacheSim's), tsv, or keys (key,size in each line)
    #[arg(long, value_name = "FORMAT", default_value = "oracle-general")]
    pub to: Format,
    /// What is cached.
    #[command(flatten)]
    pub workload: WorkloadOptions,
}

/// What to simulate.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Caches of many sizes and policies under a trace: shares of requests and bytes that they
    /// answer
    #[command(after_help = SIM_CURVE_EXAMPLES)]
    Curve(Box<SimCurveArgs>),
    /// A server with a network processor, host, bus, memories and disk, as a queueing network (Koch
    /// 2002)
    #[command(after_help = SIM_SERVER_EXAMPLES)]
    Server(Box<SimServerArgs>),
    /// The papers' own studies, beside the papers' figures
    #[command(after_help = SIM_REPRODUCE_EXAMPLES)]
    Reproduce(Box<SimReproduceArgs>),
}

const SIM_CURVE_EXAMPLES: &str = "Examples:
  nicache sim curve --report curve.html access.log
  nicache sim curve --policies lru,s3-fifo,sieve,w-tinylfu,belady --sizes 1M..256M access.log.gz
  nicache sim curve --policies lirs,lirs:hir=5%,2q:in=10%,pfoo-l --format u64 keys.bin
  nicache sim curve --variants none access.log
  nicache sim curve --unit blocks --replies whole --cards 2 --sizes 64K..16M/1 epa-http.txt.zst
  nicache sim curve --sample 131072 --room one --csv curve.csv huge.oracleGeneral.zst";

const SIM_SERVER_EXAMPLES: &str = "Examples:
  nicache sim server Short8MB
  nicache sim server --seeds 20 my-server.toml other-server.toml
  nicache sim server --list";

const SIM_REPRODUCE_EXAMPLES: &str = "Examples:
  nicache sim reproduce koch-table1
  nicache sim reproduce kim-fig3 --report fig3.html epa-http.txt.zst nasa.txt.zst
  nicache sim reproduce bos-fig4 epa-http.txt.zst";

/// Arguments of `sim curve`.
#[derive(Debug, Args)]
pub(crate) struct SimCurveArgs {
    /// Which trace.
    #[command(flatten)]
    pub trace: TraceOptions,
    /// What is cached.
    #[command(flatten)]
    pub workload: WorkloadOptions,
    /// Which caches.
    #[command(flatten)]
    pub caches: CacheOptions,
    /// Follow a sample of this many objects: the curve of LRU with its 95 % interval, in bounded
    /// memory (SHARDS); of other policies, small caches for the sample, in the memory that its
    /// requests take
    #[arg(
        long,
        value_name = "OBJECTS",
        value_parser = clap::value_parser!(u32).range(128..),
        help_heading = "Caches",
    )]
    pub sample: Option<u32>,
    /// Where results go.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Arguments of `sim reproduce`.
#[derive(Debug, Args)]
pub(crate) struct SimReproduceArgs {
    /// Which study
    #[arg(value_enum)]
    pub study: StudyOption,
    /// Web logs; each is a curve of its own. Table 1 needs none
    #[arg(value_name = "TRACE", required_if_eq_any([("study", "kim-fig3"), ("study", "bos-fig4")]))]
    pub traces: Vec<PathBuf>,
    /// Runs of each configuration of Table 1, each with a seed of its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(2..=1000),
    )]
    pub seeds: u32,
    /// Where results go.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// A paper's study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StudyOption {
    /// Kim et al. 2002, figure 3: content that stays off the bus, by size, with one cache and with
    /// two
    KimFig3,
    /// Bos et al. 2009, figure 4: hit rates by number of slots
    BosFig4,
    /// Koch and Doughty 2002, table 1: throughput and bus traffic of 23 configurations
    KochTable1,
}

/// Arguments of `sim server`.
#[derive(Debug, Args)]
pub(crate) struct SimServerArgs {
    /// Configurations: files (TOML), or names of the paper's
    #[arg(value_name = "CONFIG", required_unless_present = "list")]
    pub configurations: Vec<String>,
    /// List the paper's configurations
    #[arg(long)]
    pub list: bool,
    /// Print a configuration with all its parameters
    #[arg(long, conflicts_with = "list")]
    pub show: bool,
    /// Runs, each with a seed of its own, for confidence intervals
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub seeds: u32,
    /// The first seed
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub seed: u64,
    /// Requests of a trace instead of drawn ones: its times, objects and sizes
    #[arg(long, value_name = "TRACE")]
    pub trace: Option<PathBuf>,
    /// Write the components' states of one run into this file, as the configuration's `[debug]`
    /// says
    #[arg(long, value_name = "FILE")]
    pub dump: Option<PathBuf>,
    /// Where results go.
    #[command(flatten)]
    pub output: OutputOptions,
}
