//! The settings of `nicache sim` and `nicache trace`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use nicache_study::{
    Changes, Choice, Replies, Room, Size, SplitBy, Unit, Variants, Writes, sizes_between,
};
use nicache_trace::Format;

/// Which trace, and what of it counts.
#[derive(Debug, Clone, Args)]
pub(crate) struct TraceOptions {
    /// Traces, plain or packed by gzip or zstd, in order (rotated logs: the oldest first); -:
    /// standard input
    #[arg(value_name = "TRACE", required = true)]
    pub traces: Vec<PathBuf>,

    /// What they are: common, json, tsv, worldcup, nfs, vscsi, oracle-general, keys, csv, lis, u32,
    /// u64; a table without a line of names with its columns: csv:time,key,size [default: as they
    /// look; u32 and u64 must be named]
    #[arg(long, value_name = "FORMAT", help_heading = "Trace")]
    pub format: Option<Format>,

    /// Stop after this many requests
    #[arg(long, value_name = "N", help_heading = "Trace")]
    pub first: Option<u64>,

    /// Leave out what programs make: targets with a query, .php, .cgi and the like. A card caches
    /// such pages too, because it sees when they change
    #[arg(long, help_heading = "Trace")]
    pub static_only: bool,
}

/// How requests become accesses of a cache.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkloadOptions {
    /// What is cached: whole objects, as by a transparent card; or blocks of 4 KB, as where a host
    /// manages the card's memory [default: blocks for disks and file servers, else objects]
    #[arg(long, value_enum, value_name = "UNIT", help_heading = "Workload")]
    pub unit: Option<UnitOption>,

    /// What an object is charged: its bytes; whole slots (slots:1600); or one, whatever its size:
    /// sizes are numbers of objects then
    #[arg(long, value_name = "ROOM", default_value = "bytes", help_heading = "Workload")]
    pub room: RoomOption,

    /// What a logged reply is: what was sent (a 304 is not an object); or a request for the whole
    /// object, as where a log is replayed
    #[arg(
        long,
        value_enum,
        value_name = "KIND",
        default_value = "as-logged",
        help_heading = "Workload"
    )]
    pub replies: RepliesOption,

    /// When an object of another size has changed: never; if it grew or shrank by less than 5 %
    /// (else the client had left); always [default: small for web logs, never for lists of keys]
    #[arg(long, value_enum, value_name = "WHEN", help_heading = "Workload")]
    pub changes: Option<ChangesOption>,

    /// What tells the variants of a target apart, which are objects of their own (a script sent
    /// gzipped and plain): its coding where the log has it, else sizes that come back (auto); one
    /// of these; or nothing (none)
    #[arg(long, value_enum, value_name = "BY", default_value = "auto", help_heading = "Workload")]
    pub variants: VariantsOption,

    /// What a write does: invalidate what is cached, or the same as a read [default: as-reads for
    /// disks, else invalidate]
    #[arg(long, value_enum, value_name = "EFFECT", help_heading = "Workload")]
    pub writes: Option<WritesOption>,

    /// Do not count the first part of the trace, which fills the caches: 10%
    #[arg(
        long,
        value_name = "PERCENT",
        default_value = "0%",
        value_parser = parse_percent,
        help_heading = "Workload",
    )]
    pub warm_up: f64,
}

/// Caches that are compared.
#[derive(Debug, Clone, Args)]
pub(crate) struct CacheOptions {
    /// Policies: fifo, lru, mru, lfu, lfu-da, clock, random, 2q, lrfu, arc, lirs, gdsf, w-tinylfu,
    /// s3-fifo, sieve, popularity; belady, which knows the future and is a bound for objects of one
    /// size only; and pfoo-l, a bound whatever the sizes. With settings: lirs:hir=5%,
    /// lrfu:lambda=0.01, 2q:in=10%:out=75%, gdsf:cost=packets, w-tinylfu:window=5%,
    /// s3-fifo:small=5%, popularity:alpha=0.6; with an admission filter: lru+second-hit,
    /// s3-fifo+size:1M; all: every one
    #[arg(
        long,
        value_name = "POLICY,...",
        value_delimiter = ',',
        value_parser = parse_choices,
        help_heading = "Caches",
    )]
    pub policies: Vec<Choices>,

    /// Sizes: 64K..16M (four to each doubling), 64K..16M/1, or 1M,2M,8M [default: up to all of the
    /// trace's objects]
    #[arg(long, value_name = "SIZES", help_heading = "Caches")]
    pub sizes: Option<SizesOption>,

    /// Cards that share the requests, each with a memory of this size
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64),
        help_heading = "Caches",
    )]
    pub cards: u16,

    /// How requests are given to cards: in turns, by client or by object
    #[arg(
        long,
        value_enum,
        value_name = "BY",
        default_value = "requests",
        help_heading = "Caches"
    )]
    pub split: SplitOption,

    /// Threads [default: one for each core]
    #[arg(long, value_name = "N", help_heading = "Caches")]
    pub threads: Option<usize>,
}

/// Where results go.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputOptions {
    /// Print JSON instead of tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,

    /// Write a report: one HTML page with interactive figures that needs nothing else
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub report: Option<PathBuf>,

    /// Write the figures' data as CSV; of several figures, each into a file of its own
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,

    /// Write the figures as SVG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub svg: Option<PathBuf>,

    /// Write the figures as PNG
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub png: Option<PathBuf>,
}

/// One or all policies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choices(pub Vec<Choice>);

fn parse_choices(text: &str) -> Result<Choices, String> {
    if text == "all" {
        return Ok(Choices(nicache_study::PolicyName::ALL.map(Choice::from).to_vec()));
    }
    text.parse()
        .map(|choice| Choices(vec![choice]))
        .map_err(|error: nicache_study::ChoiceError| error.to_string())
}

impl CacheOptions {
    /// The policies named, or these.
    pub(crate) fn choices(&self, default: &[Choice]) -> Vec<Choice> {
        if self.policies.is_empty() {
            return default.to_vec();
        }
        let mut choices: Vec<Choice> = Vec::new();
        for choice in self.policies.iter().flat_map(|choices| &choices.0) {
            if !choices.contains(choice) {
                choices.push(*choice);
            }
        }
        choices
    }
}

/// Sizes of caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SizesOption(pub Vec<Size>);

impl FromStr for SizesOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |text: &str| text.trim().parse::<Size>().map_err(|error| error.to_string());
        let mut sizes = match text.split_once("..") {
            Some((least, rest)) => {
                let (most, per_doubling) = match rest.split_once('/') {
                    Some((most, per)) => {
                        let per = per.trim().parse().ok().filter(|per| (1..=64).contains(per));
                        (
                            most,
                            per.ok_or_else(|| {
                                format!("{text}: write at most 64 sizes to each doubling, as in 1M..1G/8")
                            })?,
                        )
                    }
                    None => (rest, 4),
                };
                sizes_between(parse(least)?, parse(most)?, per_doubling)
            }
            None => text.split(',').map(parse).collect::<Result<Vec<Size>, String>>()?,
        };
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.iter().any(|size| size.0 == 0) {
            return Err(format!("{text}: a cache of no size finds nothing"));
        }
        Ok(Self(sizes))
    }
}

/// See [`Room`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RoomOption(pub Room);

impl FromStr for RoomOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.strip_prefix("slots:").map(str::parse)) {
            ("bytes", _) => Ok(Self(Room::Bytes)),
            ("one", _) => Ok(Self(Room::One)),
            (_, Some(Ok(bytes))) if bytes > 0 => Ok(Self(Room::Slots(bytes))),
            _ => Err(format!("invalid room `{text}`: use a number of bytes, slots:1600 or one")),
        }
    }
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let share = number.map(|percent| percent / 100.0).filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a part of a trace; write 10%"))
}

/// [`Unit`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UnitOption {
    /// Whole objects
    Objects,
    /// Blocks of 4 KB
    Blocks,
}

impl From<UnitOption> for Unit {
    fn from(option: UnitOption) -> Self {
        match option {
            UnitOption::Objects => Self::Objects,
            UnitOption::Blocks => Self::Blocks,
        }
    }
}

/// [`Replies`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RepliesOption {
    /// What was sent
    AsLogged,
    /// Whole objects
    Whole,
}

impl From<RepliesOption> for Replies {
    fn from(option: RepliesOption) -> Self {
        match option {
            RepliesOption::AsLogged => Self::AsLogged,
            RepliesOption::Whole => Self::Whole,
        }
    }
}

/// [`Changes`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ChangesOption {
    /// Never
    Never,
    /// If it grew, or shrank by less than 5 %
    Small,
    /// Always
    Any,
}

impl From<ChangesOption> for Changes {
    fn from(option: ChangesOption) -> Self {
        match option {
            ChangesOption::Never => Self::Never,
            ChangesOption::Small => Self::Small,
            ChangesOption::Any => Self::Any,
        }
    }
}

/// [`Variants`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum VariantsOption {
    /// The coding where the log has it, else sizes that come back
    Auto,
    /// The coding
    Coding,
    /// Sizes that come back
    Sizes,
    /// Nothing: a target is one object
    None,
}

impl From<VariantsOption> for Variants {
    fn from(option: VariantsOption) -> Self {
        match option {
            VariantsOption::Auto => Self::Auto,
            VariantsOption::Coding => Self::Coding,
            VariantsOption::Sizes => Self::Sizes,
            VariantsOption::None => Self::None,
        }
    }
}

/// [`Writes`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WritesOption {
    /// What is cached is out of date
    Invalidate,
    /// A write counts as a read does
    AsReads,
}

impl From<WritesOption> for Writes {
    fn from(option: WritesOption) -> Self {
        match option {
            WritesOption::Invalidate => Self::Invalidate,
            WritesOption::AsReads => Self::AsReads,
        }
    }
}

/// [`SplitBy`] on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SplitOption {
    /// In turns
    Requests,
    /// By client
    Clients,
    /// By object
    Objects,
}

impl From<SplitOption> for SplitBy {
    fn from(option: SplitOption) -> Self {
        match option {
            SplitOption::Requests => Self::Requests,
            SplitOption::Clients => Self::Clients,
            SplitOption::Objects => Self::Objects,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_caches() {
        let sizes = |text: &str| {
            text.parse::<SizesOption>()
                .map(|sizes| sizes.0.iter().map(|size| size.0 >> 10).collect::<Vec<_>>())
        };
        assert_eq!(sizes("64K..256K/1"), Ok(vec![64, 128, 256]));
        assert_eq!(sizes("64K..128K"), Ok(vec![64, 80, 96, 112, 128]));
        assert_eq!(sizes("2M,1M,1M"), Ok(vec![1024, 2048]));
        for text in ["", "0", "1M..", "1M..2M/0", "1M..2M/x", "x"] {
            assert!(sizes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rooms_policies_and_parts() {
        assert_eq!("slots:1600".parse(), Ok(RoomOption(Room::Slots(1600))));
        assert!("slots:0".parse::<RoomOption>().is_err() && "slots".parse::<RoomOption>().is_err());
        assert_eq!(parse_choices("all").unwrap().0.len(), 18);
        assert!(
            parse_choices("lirs:hir=5%").is_ok()
                && parse_choices("lirs:x=1").unwrap_err().contains("hir")
        );
        assert!(
            parse_choices("lru+size:1M").is_ok()
                && parse_choices("x").unwrap_err().contains("there are fifo")
        );
        assert_eq!(parse_percent("10%"), Ok(0.1));
        assert!(parse_percent("100%").is_err() && parse_percent("-1").is_err());
    }
}
