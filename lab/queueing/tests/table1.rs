//! Table 1 of koch2002: sign, order and band of all rows, and traffic against a closed form.

mod common;

use nicache_queueing::table1::{
    Comparison, PAPER, Row, SHORT_BASELINE_EXCESS, Table1Error, reproduce,
};
use nicache_queueing::{Config, Interval, run};

type Figure = fn(&Row) -> Option<Comparison>;

const FIGURES: [(&str, Figure); 2] =
    [("throughput", |row| row.throughput), ("traffic", |row| row.traffic)];

#[test]
fn every_figure_has_the_papers_sign_and_is_in_its_band_and_their_order_is_the_papers() {
    let rows = reproduce(20, &|_, _| ()).unwrap();
    assert_eq!(rows.len(), PAPER.len());
    let mut figures = 0;
    for (kind, figure) in FIGURES {
        let compared: Vec<(&str, Comparison)> =
            rows.iter().filter_map(|row| figure(row).map(|figure| (row.name, figure))).collect();
        figures += compared.len();
        for (name, row) in &compared {
            assert!(row.within, "{name}, {kind}: {} ± {}, not {}", row.ours, row.band, row.paper);
            assert_eq!(row.ours.signum(), row.paper.signum(), "{name}, {kind}");
            let sharp = if kind == "throughput" {
                2.0 + 0.2 * row.paper.abs()
            } else {
                9.0 + 0.2 * row.paper.abs()
            };
            assert!(row.band < sharp, "{name}, {kind}: a band of {} says little", row.band);
        }
        // Two rows may be the other way round only if chance can do that: the paper has each of
        // them from one run.
        for (at, (name, row)) in compared.iter().enumerate() {
            for (other_name, other) in &compared[..at] {
                let chance = row.band.hypot(other.band);
                let same = (row.paper - other.paper) * (row.ours - other.ours) >= 0.0;
                let clear = (row.paper - other.paper).abs() > chance;
                assert!(same || !clear, "{name} and {other_name}, {kind}");
            }
        }
        assert!(concordance(&compared) > 0.9, "{kind}: {}", concordance(&compared));
    }
    assert_eq!(figures, nicache_queueing::table1::FIGURES);
    // Most are predicted, and these are off by what chance makes of one run, not by more.
    let all = rows.iter().flat_map(|row| [row.throughput, row.traffic]).flatten();
    let predicted: Vec<Comparison> = all.filter(|row| !row.fitted).collect();
    assert_eq!(predicted.len(), 30);
    let squares: f64 =
        predicted.iter().map(|row| ((row.paper - row.ours) / row.interval.deviation).powi(2)).sum();
    assert!(squares / 30.0 < 1.5, "{}", squares / 30.0);
}

/// Share of the pairs of rows with different figures that are in the paper's order.
fn concordance(rows: &[(&str, Comparison)]) -> f64 {
    let (mut same, mut pairs) = (0, 0);
    for (at, (_, row)) in rows.iter().enumerate() {
        for (_, other) in &rows[..at] {
            if row.paper != other.paper {
                pairs += 1;
                same += usize::from((row.paper - other.paper) * (row.ours - other.ours) > 0.0);
            }
        }
    }
    f64::from(same as u32) / f64::from(pairs)
}

#[test]
fn too_few_or_too_many_repetitions_are_refused() {
    for repetitions in [0, 1, 100_001] {
        assert!(matches!(reproduce(repetitions, &|_, _| ()), Err(Table1Error::Repetitions(_))));
    }
}

/// Hits of a least-recently-used memory under uniform identifiers, without simulation.
///
/// All identifiers are asked for alike, so the memory holds a random set of n data, and a request
/// hits with n / N. Until it is full, the n-th request finds N (1 - (1 - 1/N)^(n-1)) data. When
/// full, it holds as many as the renewals of a process with the sizes as its intervals: bytes /
/// mean + (variance / mean^2 - 1) / 2.
fn hit_ratio(config: &Config) -> f64 {
    let different = f64::from(config.requests.different);
    let (mean, variance) = size_moments(config);
    let renewals = config.network_processor.memory_bytes as f64 / mean
        + (variance / (mean * mean) - 1.0) / 2.0;
    let held = renewals.clamp(0.0, different);
    let mut hits = 0.0;
    let mut unseen = 1.0;
    for _ in 0..config.requests.count {
        hits += (different * (1.0 - unseen)).min(held) / different;
        unseen *= 1.0 - 1.0 / different;
    }
    hits / config.requests.count as f64
}

fn size_moments(config: &Config) -> (f64, f64) {
    let (least, most) =
        (f64::from(config.responses.min_bytes), f64::from(config.responses.max_bytes));
    ((least + most) / 2.0, ((most - least + 1.0).powi(2) - 1.0) / 12.0)
}

/// Bytes per request over the bus.
fn traffic(config: &Config) -> f64 {
    let hits = hit_ratio(config);
    let responses = &config.responses;
    let hit = f64::from(responses.in_np_memory_bytes) + f64::from(responses.location_bytes);
    f64::from(config.requests.size_bytes) + hits * hit + (1.0 - hits) * size_moments(config).0
}

#[test]
fn hits_and_traffic_follow_the_closed_form() {
    for row in PAPER.iter().filter(|row| row.traffic.is_some()) {
        let config = Config::named(row.name).unwrap();
        let seeds = if row.name.starts_with("Long") { 6 } else { 20 };
        let runs: Vec<_> = (0..seeds).map(|seed| run(&config, seed).unwrap()).collect();
        let total = |bytes: u64, count: u64| bytes as f64 / count as f64;
        let bytes =
            runs.iter().map(|run| total(run.bus_bytes.total(), run.requests)).collect::<Vec<_>>();
        common::assert_agrees(&format!("{}, traffic", row.name), &bytes, traffic(&config));
        if config.network_processor.memory_bytes > 0 {
            let hits = runs.iter().map(|run| run.hit_ratio).collect::<Vec<_>>();
            // Where everything fits, there is hardly any chance left: each identifier that comes
            // misses once.
            let spread = Interval::of(&hits).deviation;
            if spread > 1e-5 {
                common::assert_agrees(&format!("{}, hits", row.name), &hits, hit_ratio(&config));
            } else {
                assert!(
                    (Interval::of(&hits).mean - hit_ratio(&config)).abs() < 1e-5,
                    "{}",
                    row.name
                );
            }
        }
    }
}

/// The paper's traffic, from the closed form alone: no simulation, and nothing fitted but the
/// baseline's excess, the location's 1024 bytes and the two sizes.
#[test]
fn the_papers_traffic_follows_the_closed_form() {
    let mut worst: f64 = 0.0;
    for row in PAPER {
        let Some(paper) = row.traffic else { continue };
        let baseline = Config::named(row.baseline).unwrap();
        let excess = if row.baseline == "ShortBaseline" { SHORT_BASELINE_EXCESS } else { 0.0 };
        let without = traffic(&baseline) + excess * size_moments(&baseline).0;
        let ours = 100.0 * (1.0 - traffic(&Config::named(row.name).unwrap()) / without);
        worst = worst.max((ours - paper).abs());
        assert!((ours - paper).abs() < 3.0, "{}: {ours:.2}, not {paper}", row.name);
    }
    assert!(worst > 0.5, "chance is left out here, and the paper has it");
}
