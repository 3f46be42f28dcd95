//! The commands `replay` and `trace site`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use nicache_trace::Format;

use crate::options::parse_rate;

const OF_CHANGES: &str = "Is a reply ever stale (without --target)";

const OF_SPEED: &str = "How fast is a server (with --target)";

pub(super) const REPLAY_EXAMPLES: &str = "Examples, is a reply ever stale:
  sudo nicache replay access.log.gz
  sudo nicache replay --synthetic --duration 30 --writers 4 -- --handshake card --memory 256M
  sudo nicache replay access.log --site /srv/empty --url http://10.77.0.2/ --writers 2

Without --url, nginx is started behind a nicache of its own, with a site that has the log's \
sizes. With --url, the server's document root must be the folder given with --site, and the \
server another user than root (it is shown files that it may not read). The status is 1 if a \
reply was stale, torn, corrupt or did not come.

Examples, how fast is a server:
  nicache trace site access.log.gz /srv/site      (and give a server /srv/site as document root)
  nicache replay access.log.gz --site /srv/site --target http://10.0.0.1/ --clients 256
  nicache replay access.log.gz --target http://10.0.0.1/ --target http://10.0.1.1/ --replayers 4
  nicache replay access.log.gz --target http://10.0.0.1/ --speed 20 --duration 60 --json

With --target, nothing is changed and nothing is started. Requests of a client less than 15 s \
apart are one connection, and those less than 5 s apart are sent at once (Kim et al. 2002, \
section 5.2). Replies of 200, 206 and 304 in the log are replayed as requests for whole files, \
other ones are not. The status is 1 if a reply was wrong or did not come.";

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Log, plain or packed by gzip or zstd
    #[arg(value_name = "LOG", required_unless_present = "synthetic", conflicts_with = "synthetic")]
    pub log: Option<PathBuf>,
    /// What the log is: common, json, tsv, worldcup, oracle-general, keys, csv, u32, u64; a table
    /// without a line of names with its columns: csv:time,key,size [default: as it looks]
    #[arg(long, value_name = "FORMAT", conflicts_with = "synthetic")]
    pub format: Option<Format>,
    /// Connections at once [default: 8 (each with a thread); with --target 64, of all replayers
    /// together; in open loop 1024 at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub clients: Option<u32>,
    /// Repeat the log for this many seconds [default: the log once]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub duration: Option<u64>,
    /// Requests per second, sent without waiting for replies as far as connections allow; with
    /// --target: sessions per second, which begin at random (Poisson) [default: as fast as replies
    /// come]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Equal seeds choose equal files, ways to change them, and random times
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Folder of the files. With --target: made by `nicache trace site`; the files' sizes are
    /// looked at. Otherwise: made now, must be empty or new, and is left there [default: a
    /// temporary folder; with --target not looked at]
    #[arg(long, value_name = "DIR")]
    pub site: Option<PathBuf>,
    /// Name of the running nicache whose counters are shown [default: the only one, if any; with
    /// --target none]
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
pub(crate) struct ReplayChangesArgs {
    /// No log, but requests by Zipf's law for 400 files
    #[arg(long, help_heading = OF_CHANGES, conflicts_with = "target")]
    pub synthetic: bool,
    /// A server that runs already, with --site as its document root
    #[arg(
        long,
        help_heading = OF_CHANGES,
        value_name = "http://ADDR[:PORT]/",
        requires = "site",
        conflicts_with = "target",
    )]
    pub url: Option<String>,
    /// Threads that change files; 0: nothing changes
    #[arg(
        long,
        help_heading = OF_CHANGES,
        value_name = "N",
        default_value_t = 2,
        conflicts_with = "target",
    )]
    pub writers: usize,
    /// Mean pause of a writer between two writes, in milliseconds
    #[arg(
        long,
        help_heading = OF_CHANGES,
        value_name = "MS",
        default_value_t = 5,
        conflicts_with = "target",
    )]
    pub write_pause: u64,
    /// Requests sent at once on a connection
    #[arg(long, help_heading = OF_CHANGES, value_name = "N", default_value_t = 1,
        conflicts_with = "target",
        value_parser = clap::value_parser!(u16).range(1..=64))]
    pub pipeline: u16,
    /// Requests of N kinds, as of N browsers; 0: each is different, which tells best what was
    /// kept
    #[arg(
        long,
        help_heading = OF_CHANGES,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "target",
    )]
    pub agents: u64,
    /// The server caches open files (nginx: open_file_cache), so it may give old replies itself;
    /// the card may not
    #[arg(long, help_heading = OF_CHANGES, conflicts_with = "target")]
    pub server_keeps_files_open: bool,
}

/// Arguments of `replay` with `--target`.
#[derive(Debug, Args)]
pub(crate) struct ReplaySpeedArgs {
    /// A server that runs already and whose document root is a site of the log. Repeatable (its
    /// other addresses); sessions take turns
    #[arg(long, help_heading = OF_SPEED, value_name = "http://ADDR[:PORT]/")]
    pub target: Vec<String>,
    /// Threads; sessions are dealt out to them in turn
    #[arg(long, help_heading = OF_SPEED, value_name = "N", default_value_t = 1, requires = "target",
        value_parser = clap::value_parser!(u16).range(1..=256))]
    pub replayers: u16,
    /// Begin sessions at their times in the log, which runs this many times as fast (open loop)
    /// [default: when another session ends]
    #[arg(
        long,
        help_heading = OF_SPEED,
        value_name = "N",
        requires = "target",
        conflicts_with = "rate",
        value_parser = parse_rate,
    )]
    pub speed: Option<f64>,
    /// Requests of a client that are fewer seconds apart share a connection; 0: each has its own
    #[arg(
        long,
        help_heading = OF_SPEED,
        value_name = "S",
        default_value_t = 15,
        requires = "target",
    )]
    pub connection_gap: u64,
    /// Requests of a connection that are fewer seconds apart are sent at once; 0: one by one
    #[arg(
        long,
        help_heading = OF_SPEED,
        value_name = "S",
        default_value_t = 5,
        requires = "target",
    )]
    pub pipeline_gap: u64,
    /// Local address to connect from. Repeatable; connections take turns, if one address has not
    /// enough ports
    #[arg(long, help_heading = OF_SPEED, value_name = "ADDR", requires = "target")]
    pub source: Vec<IpAddr>,
}

pub(super) const TRACE_SITE_EXAMPLES: &str = "Example: nicache trace site access.log.gz /srv/site

A file has as many bytes as the largest reply in the log, and is named by a number made of its \
target: DIR/ab/ab123456789abcde. Every server of files serves it as it is; `nicache replay LOG \
--target` asks for it.";

/// Arguments of `trace site`.
#[derive(Debug, Args)]
pub(crate) struct TraceSiteArgs {
    /// Log, plain or packed by gzip or zstd
    #[arg(value_name = "LOG")]
    pub log: PathBuf,
    /// The document root; empty or new
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// What the log is: common, json, tsv, worldcup, oracle-general, keys, csv, u32, u64; a table
    /// without a line of names with its columns: csv:time,key,size [default: as it looks]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Answer as one line of JSON
    #[arg(long)]
    pub json: bool,
}
