//! Finds what koch2002 leaves unsaid from a few rows of its Table 1:
//! `cargo run --release -p nicache-queueing --example fit [REPETITIONS]`.
//!
//! 1. Which bytes the paper counts, and how large the responses were that its short baseline drew:
//!    from the traffic of Short16MB, where everything fits and hardly any chance is left.
//! 2. The sizes of ShortSmallResp and ShortBigResp: from their traffic.
//! 3. The times: nothing queues in the paper (its response times are linear in the time of the
//!    bus), so a mean response time is a sum of counts (cycles of the bus, lines of memory, hits)
//!    times unknown costs, and the costs are a problem of linear least squares, with each row's
//!    weight from its own chance. The counts are simulated.
//!
//! The results go into `configurations/*.toml` by hand.

use std::error::Error;

use nicache_queueing::table1::{PAPER, PaperRow, SHORT_BASELINE_EXCESS, seed};
use nicache_queueing::{Config, Interval, Outcome, run};

type Failure = Box<dyn Error>;

/// Rows whose times are fitted; ShortLongNPLat gives its own factor afterwards.
const FITTED: [&str; 6] = [
    "Short16MB",
    "ShortLowLatBase",
    "ShortBest",
    "ShortFastBus",
    "ShortSlowBus",
    "Short8MBSlowBus",
];

fn main() -> Result<(), Failure> {
    let repetitions = std::env::args().nth(1).map_or(Ok(24), |argument| argument.parse())?;
    fit_accounting(repetitions)?;
    fit_sizes(repetitions)?;
    fit_times(repetitions)
}

fn paper(name: &str) -> PaperRow {
    PAPER.into_iter().find(|row| row.name == name).expect("a row of the table")
}

/// Runs of a row, changed by `change`, with the table's seeds.
fn runs(
    name: &str,
    repetitions: u64,
    change: &dyn Fn(&mut Config),
) -> Result<Vec<Outcome>, Failure> {
    let mut config = Config::named(name)?;
    let seeds: Result<Vec<u64>, _> =
        (0..repetitions).map(|repetition| seed(paper(name).name, &config, repetition)).collect();
    change(&mut config);
    Ok(seeds?.into_iter().map(|seed| run(&config, seed)).collect::<Result<_, _>>()?)
}

fn mean(outcomes: &[Outcome], figure: &dyn Fn(&Outcome) -> f64) -> Interval {
    Interval::of(&outcomes.iter().map(figure).collect::<Vec<_>>())
}

fn fit_accounting(repetitions: u64) -> Result<(), Failure> {
    let default = Config::default();
    let (least, most) =
        (f64::from(default.responses.min_bytes), f64::from(default.responses.max_bytes));
    let expected = (least + most) / 2.0;
    let spread =
        (most - least) / 12f64.sqrt() / f64::from(default.requests.different).sqrt() / expected;
    println!(
        "1. What counts as traffic. Relative spread of the mean size that a run draws: {:.2} %.",
        100.0 * spread
    );
    println!(
        "   z: of the excess alone; chi2: of it and of the rows of the short group with 1000 identifiers and a memory,"
    );
    println!("   but for those with responses of other sizes, in {repetitions} runs each.");
    let rows = ["Short512KB", "Short1MB", "Short8MB", "Short500MHzNP", "ShortLongNPLat"];
    let reference = runs("Short16MB", repetitions, &|_| ())?;
    let others: Vec<_> =
        rows.iter().map(|name| runs(name, repetitions, &|_| ())).collect::<Result<_, _>>()?;
    println!("   requests  location  baseline's excess      z   chi2");
    for requests in [0.0, 1.0, 2.0] {
        for location in [0.0, 512.0, 1024.0, 2048.0, 3072.0] {
            let traffic = |outcome: &Outcome| {
                let bytes = outcome.bus_bytes;
                let locations = outcome.hits as f64 * location;
                requests * bytes.requests as f64
                    + (bytes.responses + bytes.headers) as f64
                    + locations
            };
            let kept = |name: &str| 1.0 - paper(name).traffic.unwrap_or_default() / 100.0;
            let baseline = mean(&reference, &traffic).mean / kept("Short16MB");
            let per_request = baseline / default.requests.count as f64;
            let excess =
                (per_request - requests * f64::from(default.requests.size_bytes)) / expected - 1.0;
            let mut chi2 = (excess / spread).powi(2);
            for (name, outcomes) in rows.iter().zip(&others) {
                let ours = mean(outcomes, &traffic);
                chi2 += ((kept(name) * baseline - ours.mean) / ours.deviation).powi(2);
            }
            let z = excess / spread;
            println!("   {requests:8} {location:9} {:16.2} % {z:8.1} {chi2:6.0}", 100.0 * excess);
        }
    }
    println!("   in use: {:.2} %\n", 100.0 * SHORT_BASELINE_EXCESS);
    Ok(())
}

fn fit_sizes(repetitions: u64) -> Result<(), Failure> {
    println!("2. Largest responses: traffic reduction in %.");
    let baseline = runs("ShortBaseline", repetitions, &|_| ())?;
    let total = |outcome: &Outcome| outcome.bus_bytes.total() as f64;
    let without = mean(&baseline, &total).mean;
    for (name, kilobytes) in
        [("ShortSmallResp", [6, 8, 10, 12, 15]), ("ShortBigResp", [30, 40, 50, 60, 80])]
    {
        println!("   {name}: paper {}", paper(name).traffic.unwrap_or_default());
        for most in kilobytes {
            let outcomes =
                runs(name, repetitions, &|config| config.responses.max_bytes = most * 1024)?;
            let reduction = mean(&outcomes, &|outcome| 100.0 * (1.0 - total(outcome) / without));
            println!("   {most:9} KB {:8.2}, one run ± {:.2}", reduction.mean, reduction.deviation);
        }
    }
    println!();
    Ok(())
}

/// Counts of a run per request: cycles of the bus, lines of host memory, lines of the network
/// processor's memory, hits.
type Counts = [f64; 4];

/// Counted in the default's latencies: a row with half the latency has half the lines.
fn counts(outcome: &Outcome, default: &Config, clocks: &Config) -> Result<Counts, Failure> {
    if outcome.path.waiting_ns.abs() > 1e-6 {
        return Err("something queues: lower requests.frequency_per_s".into());
    }
    let nanoseconds = |cycles: f64, mhz: f64| cycles * 1e3 / mhz;
    Ok([
        outcome.path.bus_ns / nanoseconds(1.0, clocks.bus.clock_mhz),
        outcome.path.host_memory_ns
            / nanoseconds(default.host.memory_latency_cycles, clocks.host.clock_mhz),
        outcome.path.network_processor_memory_ns
            / nanoseconds(
                default.network_processor.memory_latency_cycles,
                default.network_processor.clock_mhz,
            ),
        outcome.hit_ratio,
    ])
}

fn row_counts(name: &str, scale: u32, repetitions: u64) -> Result<Vec<Counts>, Failure> {
    let default = Config::default();
    let change = |config: &mut Config| {
        // The scale that is sought is the bus's; that of the lines stays.
        config.host.memory_line_bytes *= config.simulation.scale;
        config.network_processor.memory_line_bytes *= config.simulation.scale;
        config.bus.width_bytes *= scale;
        config.simulation.scale = 1;
        config.requests.frequency_per_s = 10_000.0;
    };
    runs(name, repetitions, &change)?
        .iter()
        .map(|outcome| counts(outcome, &default, &Config::named(name)?))
        .collect()
}

/// Costs in percent of the baseline's response time, and how well they do.
struct Fit {
    costs: Counts,
    chi2: f64,
    constant: f64,
}

fn fit_times(repetitions: u64) -> Result<(), Failure> {
    println!(
        "3. Times, in % of the mean response time without chance and without memory. Rows: {}.",
        FITTED.join(", ")
    );
    println!(
        "   bytes/cycle  hit time    chi2   bus cycle  host line    NP line       hit  processing"
    );
    let mut best: Option<(Fit, u32)> = None;
    for scale in [8, 16, 32, 64, 128, 256] {
        let baseline = row_counts("ShortBaseline", scale, repetitions)?;
        let expected = expected_baseline(scale);
        let rows: Vec<(f64, Vec<Counts>)> = FITTED
            .iter()
            .map(|name| {
                Ok((
                    paper(name).throughput.unwrap_or_default(),
                    row_counts(name, scale, repetitions)?,
                ))
            })
            .collect::<Result<_, Failure>>()?;
        for (said, unknowns) in [("none", &[0, 1, 2][..]), ("fitted", &[0, 1, 2, 3][..])] {
            let fit = least_squares(&baseline, &rows, unknowns, expected)?;
            let [bus, host, card, hit] = fit.costs;
            let width = 8 * scale;
            print!("   {width:11}  {said:>8} {:7.1}", fit.chi2);
            println!("  {bus:10.3} {host:10.3} {card:10.3} {hit:9.3} {:11.2}", fit.constant);
            if best.as_ref().is_none_or(|(best, _)| fit.chi2 < best.chi2) {
                best = Some((fit, scale));
            }
        }
    }
    let Some((fit, scale)) = best else { return Ok(()) };
    report(&fit, scale, repetitions)
}

/// Of a baseline without chance: all responses have sizes uniform in their range.
fn expected_baseline(scale: u32) -> Counts {
    let config = Config::default();
    let sizes = config.responses.min_bytes..=config.responses.max_bytes;
    let units = |bytes: u32| {
        let sum: f64 = sizes.clone().map(|size| f64::from(size.div_ceil(bytes))).sum();
        sum / f64::from(config.responses.max_bytes - config.responses.min_bytes + 1)
    };
    let width = config.bus.width_bytes * scale;
    let request = f64::from(config.requests.size_bytes.div_ceil(width));
    [
        request + units(width),
        units(config.host.memory_line_bytes * config.simulation.scale),
        0.0,
        0.0,
    ]
}

/// A row with improvement p satisfies, in percent of R = constant + costs * expected:
/// baseline - row = p * (R + costs * (baseline - expected)) / 100.
fn least_squares(
    baseline: &[Counts],
    rows: &[(f64, Vec<Counts>)],
    unknowns: &[usize],
    expected: Counts,
) -> Result<Fit, Failure> {
    let mut weights = vec![1.0; rows.len()];
    let mut fit = Fit { costs: [0.0; 4], chi2: f64::INFINITY, constant: 0.0 };
    for _ in 0..6 {
        let size = unknowns.len();
        let mut equations = vec![vec![0.0; size + 1]; size];
        for ((improvement, row), weight) in rows.iter().zip(&weights) {
            let share = improvement / 100.0;
            let coefficient = |kind: usize| {
                let (without, with) = (average(baseline, kind), average(row, kind));
                without - with - share * (without - expected[kind])
            };
            for (at, &kind) in unknowns.iter().enumerate() {
                for (other, &other_kind) in unknowns.iter().enumerate() {
                    equations[at][other] += weight * coefficient(kind) * coefficient(other_kind);
                }
                equations[at][size] += weight * coefficient(kind) * improvement;
            }
        }
        let solution = solve(equations).ok_or("the rows do not determine the costs")?;
        fit.costs = [0.0; 4];
        for (&kind, cost) in unknowns.iter().zip(solution) {
            fit.costs[kind] = cost;
        }
        fit.constant = 100.0 - dot(&fit.costs, &expected);
        fit.chi2 = 0.0;
        for ((improvement, row), weight) in rows.iter().zip(&mut weights) {
            let ours = improvements(&fit, baseline, row);
            *weight = ours.deviation.powi(-2);
            fit.chi2 += (improvement - ours.mean).powi(2) * *weight;
        }
    }
    Ok(fit)
}

fn improvements(fit: &Fit, baseline: &[Counts], row: &[Counts]) -> Interval {
    let time = |counts: &Counts| fit.constant + dot(&fit.costs, counts);
    let pairs = baseline.iter().zip(row);
    Interval::of(
        &pairs
            .map(|(without, with)| 100.0 * (1.0 - time(with) / time(without)))
            .collect::<Vec<_>>(),
    )
}

fn average(rows: &[Counts], kind: usize) -> f64 {
    rows.iter().map(|counts| counts[kind]).sum::<f64>() / rows.len() as f64
}

fn dot(costs: &Counts, counts: &Counts) -> f64 {
    costs.iter().zip(counts).map(|(cost, count)| cost * count).sum()
}

/// Gauss' elimination with pivots; the last column is the right side.
fn solve(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = rows.len();
    for at in 0..size {
        let pivot = (at..size)
            .max_by(|&left, &right| rows[left][at].abs().total_cmp(&rows[right][at].abs()))?;
        rows.swap(at, pivot);
        if rows[at][at].abs() < 1e-12 {
            return None;
        }
        let pivot = rows[at].clone();
        for (other, row) in rows.iter_mut().enumerate() {
            if other != at {
                let factor = row[at] / pivot[at];
                row.iter_mut().zip(&pivot).for_each(|(value, pivot)| *value -= factor * pivot);
            }
        }
    }
    Some((0..size).map(|at| rows[at][size] / rows[at][at]).collect())
}

fn report(fit: &Fit, scale: u32, repetitions: u64) -> Result<(), Failure> {
    let config = Config::default();
    let cycle_ns = 1e3 / config.bus.clock_mhz;
    let percent_ns = cycle_ns / fit.costs[0];
    let host = |percent: f64| percent * percent_ns * config.host.clock_mhz / 1e3;
    let card = |percent: f64| percent * percent_ns * config.network_processor.clock_mhz / 1e3;
    println!(
        "\n   With a bus of {} MHz and processors of {} and {} MHz:",
        config.bus.clock_mhz, config.host.clock_mhz, config.network_processor.clock_mhz
    );
    let rows = [
        ("simulation.scale", f64::from(scale), f64::from(config.simulation.scale)),
        ("host.processing_cycles", host(fit.constant), config.host.processing_cycles),
        ("host.hit_processing_cycles", host(fit.costs[3]), config.host.hit_processing_cycles),
        ("host.memory_latency_cycles", host(fit.costs[1]), config.host.memory_latency_cycles),
        (
            "network_processor.memory_latency_cycles",
            card(fit.costs[2]),
            config.network_processor.memory_latency_cycles,
        ),
    ];
    for (name, found, used) in rows {
        println!("   {name:<42} {found:9.3}   in use: {used}");
    }
    let baseline = row_counts("ShortBaseline", scale, repetitions)?;
    let mut slow = row_counts("ShortLongNPLat", scale, repetitions)?;
    let used = Config::named("ShortLongNPLat")?.network_processor.memory_latency_cycles
        / config.network_processor.memory_latency_cycles;
    slow.iter_mut().for_each(|counts| counts[2] /= used);
    let missing = improvements(fit, &baseline, &slow).mean
        - paper("ShortLongNPLat").throughput.unwrap_or_default();
    let reading = fit.costs[2] * average(&slow, 2);
    println!("   ShortLongNPLat: latency times {:.1}   in use: {used:.1}", 1.0 + missing / reading);
    Ok(())
}
