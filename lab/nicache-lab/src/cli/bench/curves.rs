//! The command `bench curves`.

use std::path::PathBuf;

use clap::Args;
use nicache_bench::curves::Spacing;

/// Below the arguments' help.
pub(super) const EXAMPLES: &str = "Examples:
  sudo nicache bench curves --quick
  sudo nicache bench curves --save curves.json --figure curves.svg
  sudo nicache bench curves --only \"1 B, card, hits\" --rates 5000,10000,20000,40000 --seconds 10
  nicache bench curves --from curves.json --figure curves.svg

Needs root, two CPUs, a quiet machine and nginx; takes about 35 minutes in full, 5 minutes with \
--quick.";

/// Arguments of `bench curves`.
#[derive(Debug, Args)]
pub(crate) struct BenchCurvesArgs {
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
        conflicts_with_all = ["save", "rounds", "seconds", "rates", "quick"],
    )]
    pub from: Option<PathBuf>,
    /// How often everything is measured
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000),
    )]
    pub rounds: u32,
    /// Seconds of one measurement [default: 4]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: Option<u32>,
    /// Connections per second to offer [default: for each object up to beyond what the fastest can
    /// serve, which is found out first]
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub rates: Vec<u32>,
    /// How connections follow each other: fixed (always after the same time) or poisson (by chance)
    #[arg(long, value_name = "HOW", default_value_t = Spacing::Poisson)]
    pub arrivals: Spacing,
    /// What chance follows from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Put the files to serve into this folder while measuring. It must be on a disk, and nobody
    /// may make files right in it meanwhile (that would purge what is below)
    #[arg(long, value_name = "DIR", default_value = "/var/lib")]
    pub folder: PathBuf,
    /// Measure only what has this in its label, which is like `10 KB, card, hits, 6000/s` or `1 B,
    /// nginx, 64 connections`
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub only: String,
    /// Measurements of one second, two sizes of objects, few rates: to see whether it works, not
    /// for figures
    #[arg(long)]
    pub quick: bool,
}
