//! Table 1 of koch2002: each row simulated and held against the paper's figures.
//!
//! # What is compared
//!
//! *Throughput improvement*: "throughput is measured as the amount of time it takes from the
//! initiation of a request until a response for the request is completed", so it is the decrease of
//! the mean response time as a share of the baseline's. *PCI traffic reduction*: the decrease of
//! the bytes in both directions, requests counted, as a share of the baseline's.
//!
//! # Chance
//!
//! The paper ran each configuration once. The sizes that a run happens to draw for its 1000
//! identifiers alone move its traffic by 1.5 %, which is why the paper has reductions of 0.98 and
//! 2.07 % for two configurations without any memory (ShortLowLatBase, ShortBigLineSize). All of its
//! short rows are held against one baseline, and that one drew large responses:
//! [`SHORT_BASELINE_EXCESS`]. Here, each repetition of the short baseline has a seed whose sizes
//! are that much larger; all other runs have seeds of their own, without any condition.
//!
//! # The band
//!
//! A figure is *within* if the paper's, which is of one run, is where one more run of ours would
//! be: Student's prediction interval for the spread of the repetitions. There are [`FIGURES`]
//! figures, and each band is so wide ([`BAND_CONFIDENCE`]) that all figures of one more table are
//! in theirs with a probability of 95 % at least (Bonferroni's inequality).

use serde::Serialize;
use thiserror::Error;

use crate::config::Config;
use crate::config_file::ConfigError;
use crate::interval::Interval;
use crate::model::{RunError, run};
use crate::parallel;
use crate::random::sizes;

/// How much larger than expected the mean size of the responses of the paper's short baseline is
/// (`examples/fit.rs`).
pub const SHORT_BASELINE_EXCESS: f64 = 0.0217;
/// How far from that the baseline's seeds may be.
const EXCESS_TOLERANCE: f64 = 0.001;
/// Figures of the paper's table.
pub const FIGURES: usize = 40;
/// Probability that one more run is in the band of a figure.
pub const BAND_CONFIDENCE: f64 = 1.0 - 0.05 / FIGURES as f64;
/// Seeds tried for a baseline; one in 40 will do.
const SEEDS_TRIED_MAX: u64 = 100_000;

/// A row as printed in the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperRow {
    /// The simulation's name.
    pub name: &'static str,
    /// The name of the one it is compared with.
    pub baseline: &'static str,
    /// Throughput improvement, in %.
    pub throughput: Option<f64>,
    /// PCI traffic reduction, in %.
    pub traffic: Option<f64>,
    /// Whether the model's constants were fitted to the former.
    pub throughput_fitted: bool,
    /// Whether they were fitted to the latter.
    pub traffic_fitted: bool,
}

/// A row: the paper's and ours.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The simulation's name.
    pub name: &'static str,
    /// Throughput improvement.
    pub throughput: Option<Comparison>,
    /// PCI traffic reduction.
    pub traffic: Option<Comparison>,
}

/// A figure: the paper's and ours, in %.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The paper's.
    pub paper: f64,
    /// Ours, the mean of the repetitions.
    pub ours: f64,
    /// The interval of 95 % confidence for ours.
    pub interval: Interval,
    /// How far from ours one more run is with a probability of [`BAND_CONFIDENCE`] at most.
    pub band: f64,
    /// Whether the paper's is.
    pub within: bool,
    /// Whether the model's constants were fitted to the paper's; if not, ours is a prediction.
    pub fitted: bool,
}

/// Why there is no table.
#[derive(Debug, Error)]
pub enum Table1Error {
    /// A configuration is not valid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A run did not come to its end.
    #[error("{name}: {reason}")]
    Run {
        /// Of which configuration.
        name: &'static str,
        /// Why the run did not come to its end.
        reason: RunError,
    },
    /// There are too few repetitions for a band.
    #[error("{0} repetitions give no band: ask for 2 to 100,000")]
    Repetitions(u32),
    /// No seed gives the short baseline the sizes it must have.
    #[error(
        "no seed gives {name} responses that are {SHORT_BASELINE_EXCESS} larger than expected: are there more than 1000 identifiers?"
    )]
    NoSeed {
        /// Of which configuration.
        name: &'static str,
    },
}

/// The table as printed; `N/A` is None.
#[rustfmt::skip]
pub const PAPER: [PaperRow; 23] = [
    row("LongBaseline", None, None),
    row("Long1MB", Some(0.18), Some(1.18)),
    row("Long8MB", Some(2.71), Some(10.45)),
    row("Long32MB", Some(10.89), Some(45.93)),
    row("ShortBaseline", None, None),
    row("Short512KB", Some(1.41), Some(4.67)),
    row("Short1MB", Some(1.73), Some(9.10)),
    row("Short8MB", Some(14.12), Some(55.99)),
    row("Short16MB", Some(18.26), Some(72.97)).fitted(true, true),
    row("Short32MB", Some(18.19), Some(72.97)),
    row("ShortLowLatBase", Some(2.31), Some(0.981)).fitted(true, false),
    row("Short500MHzNP", Some(14.6), Some(54.97)),
    row("Short5000DiffReqs", Some(3.06), Some(12.68)),
    row("Short10000DiffReqs", Some(1.99), Some(5.91)),
    row("ShortLongNPLat", Some(-3.09), Some(55.90)).fitted(true, false),
    row("ShortSmallResp", Some(19.67), Some(73.79)).fitted(false, true),
    row("ShortBigResp", Some(-17.46), Some(-62.12)).fitted(false, true),
    row("ShortBigLineSize", Some(2.82), Some(2.07)),
    row("ShortBest", Some(19.45), Some(72.97)).fitted(true, false),
    row("ShortFastBus", Some(11.08), None).fitted(true, false),
    row("ShortSlowBus", Some(-21.87), None).fitted(true, false),
    row("Short8MBFastBus", Some(16.72), Some(55.99)),
    row("Short8MBSlowBus", Some(5.77), Some(55.99)).fitted(true, false),
];

const fn row(name: &'static str, throughput: Option<f64>, traffic: Option<f64>) -> PaperRow {
    let baseline = if name.as_bytes()[0] == b'L' { "LongBaseline" } else { "ShortBaseline" };
    PaperRow {
        name,
        baseline,
        throughput,
        traffic,
        throughput_fitted: false,
        traffic_fitted: false,
    }
}

impl PaperRow {
    const fn fitted(mut self, throughput: bool, traffic: bool) -> Self {
        (self.throughput_fitted, self.traffic_fitted) = (throughput, traffic);
        self
    }
}

/// Simulates the table with so many repetitions, on all processors. `progress` hears, from any
/// thread, how many runs are done of how many.
pub fn reproduce(
    repetitions: u32,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Row>, Table1Error> {
    if !(2..=100_000).contains(&repetitions) {
        return Err(Table1Error::Repetitions(repetitions));
    }
    let configs: Vec<Config> =
        PAPER.iter().map(|row| Config::named(row.name)).collect::<Result<_, _>>()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runs = PAPER.len() * repetitions as usize;
    let figures = parallel::map(runs, threads, progress, |at| {
        let (row, repetition) = (at % PAPER.len(), (at / PAPER.len()) as u64);
        let name = PAPER[row].name;
        let seed = seed(name, &configs[row], repetition)?;
        let outcome =
            run(&configs[row], seed).map_err(|reason| Table1Error::Run { name, reason })?;
        let traffic = (outcome.bus_to_host_bytes + outcome.bus_to_card_bytes) as f64;
        Ok::<_, Table1Error>((outcome.response.mean_ns, traffic))
    })?;
    Ok((0..PAPER.len()).map(|row| compare(row, &figures)).collect())
}

fn compare(row: usize, figures: &[(f64, f64)]) -> Row {
    let paper = &PAPER[row];
    let baseline = PAPER.iter().position(|other| other.name == paper.baseline).unwrap_or(row);
    let repetitions = figures.chunks(PAPER.len());
    let (throughputs, traffics): (Vec<f64>, Vec<f64>) = repetitions
        .map(|repetition| {
            let ((time, bytes), (time_without, bytes_without)) =
                (repetition[row], repetition[baseline]);
            (decrease(time, time_without), decrease(bytes, bytes_without))
        })
        .unzip();
    Row {
        name: paper.name,
        throughput: paper
            .throughput
            .map(|figure| Comparison::new(figure, &throughputs, paper.throughput_fitted)),
        traffic: paper
            .traffic
            .map(|figure| Comparison::new(figure, &traffics, paper.traffic_fitted)),
    }
}

fn decrease(to: f64, from: f64) -> f64 {
    100.0 * (1.0 - to / from)
}

impl Comparison {
    fn new(paper: f64, figures: &[f64], fitted: bool) -> Self {
        let interval = Interval::of(figures);
        let band = interval.prediction(BAND_CONFIDENCE);
        let within = (paper - interval.mean).abs() <= band;
        Self { paper, ours: interval.mean, interval, band, within, fitted }
    }
}

/// The seed of a repetition: no two rows share one, and the short baseline's sizes are as much
/// larger as the paper's.
pub fn seed(name: &'static str, config: &Config, repetition: u64) -> Result<u64, Table1Error> {
    let row = PAPER.iter().position(|row| row.name == name).unwrap_or(PAPER.len()) as u64;
    let first = (row << 48) | (repetition << 24);
    if name != "ShortBaseline" {
        return Ok(first);
    }
    let expected =
        (f64::from(config.responses.min_bytes) + f64::from(config.responses.max_bytes)) / 2.0;
    let wanted = |seed: &u64| {
        let sizes = sizes(*seed, &config.requests, &config.responses);
        let mean = sizes.iter().map(|&size| f64::from(size)).sum::<f64>() / sizes.len() as f64;
        (mean / expected - 1.0 - SHORT_BASELINE_EXCESS).abs() <= EXCESS_TOLERANCE
    };
    (first..first + SEEDS_TRIED_MAX).find(wanted).ok_or(Table1Error::NoSeed { name })
}
