//! What could explain the oddities of koch2002's Table 1, tried by simulation.

use nicache_queueing::table1::{PAPER, seed};
use nicache_queueing::{Config, Drawn, Interval, Outcome, run};

fn paper(name: &str) -> (f64, f64) {
    let row = PAPER.iter().find(|row| row.name == name).unwrap();
    (row.throughput.unwrap_or(f64::NAN), row.traffic.unwrap_or(f64::NAN))
}

fn runs(config: &Config, seeds: std::ops::Range<u64>) -> Vec<Outcome> {
    seeds.map(|seed| run(config, seed).unwrap()).collect()
}

fn total(outcome: &Outcome) -> f64 {
    outcome.bus_bytes.total() as f64
}

fn decrease(to: f64, from: f64) -> f64 {
    100.0 * (1.0 - to / from)
}

/// Without memory there is nothing that could reduce traffic, yet the paper has 0.98 and 2.07 %.
/// Sizes drawn anew for each of 50,000 responses cannot do that: two runs differ by 0.3 %. Sizes
/// drawn once for each of 1000 identifiers do.
#[test]
fn traffic_without_a_memory_differs_by_the_sizes_of_the_identifiers() {
    let spread = |drawn| {
        let mut config = Config::named("ShortBaseline").unwrap();
        config.responses.drawn = drawn;
        let outcomes = runs(&config, 0..40);
        let pairs: Vec<f64> =
            outcomes.chunks(2).map(|pair| decrease(total(&pair[1]), total(&pair[0]))).collect();
        Interval::of(&pairs).deviation
    };
    let (per_response, per_identifier) = (spread(Drawn::PerResponse), spread(Drawn::PerIdentifier));
    let (low_latency, big_line) = (paper("ShortLowLatBase").1, paper("ShortBigLineSize").1);
    assert!(big_line > 5.0 * per_response, "{per_response}");
    assert!(low_latency > 2.0 * per_response, "{per_response}");
    assert!(big_line < 1.5 * per_identifier, "{per_identifier}");
}

/// The table says 512MB where the name and the text say 512KB.
#[test]
fn the_row_of_512_is_of_kilobytes() {
    let baseline = Config::named("ShortBaseline").unwrap();
    let without = total(&run(&baseline, seed("ShortBaseline", &baseline, 0).unwrap()).unwrap());
    let mut config = Config::named("Short512KB").unwrap();
    let kilobytes = decrease(total(&run(&config, 1).unwrap()), without);
    config.network_processor.memory_bytes = 512 << 20;
    let megabytes = decrease(total(&run(&config, 1).unwrap()), without);
    let printed = paper("Short512KB").1;
    assert!((kilobytes - printed).abs() < 4.0, "{kilobytes}");
    assert!(
        (megabytes - paper("Short16MB").1).abs() < 0.5 && megabytes - printed > 60.0,
        "{megabytes}"
    );
}

/// 16 and 32 MB both hold all 1000 data: the same run gives the same traffic and the same times.
/// The paper's times differ by 0.07 points, so something else that costs time, but no bytes,
/// differed in its two runs.
#[test]
fn beyond_what_all_data_need_memory_changes_nothing() {
    let with = |name| run(&Config::named(name).unwrap(), 9).unwrap();
    let (smaller, larger) = (with("Short16MB"), with("Short32MB"));
    assert_eq!((smaller.hits, &smaller.response), (larger.hits, &larger.response));
    assert_eq!(paper("Short16MB").1, paper("Short32MB").1);
    assert!((paper("Short16MB").0 - paper("Short32MB").0).abs() < 0.1);
}

/// Improvement as a share of the old time (1 - new / old) or of the new (old / new - 1)? The bus
/// alone decides: half its time saved 11.08 %, twice its time cost 21.87 %. With the first, both
/// say that it takes 22 % of the time; with the second, 20 % and 28 %.
#[test]
fn improvement_is_a_share_of_the_baselines_time() {
    let (fast, slow) = (paper("ShortFastBus").0 / 100.0, paper("ShortSlowBus").0 / 100.0);
    let (of_old_fast, of_old_slow) = (2.0 * fast, -slow);
    assert!((of_old_fast / of_old_slow - 1.0).abs() < 0.02);
    let (of_new_fast, of_new_slow) = (2.0 * (1.0 - 1.0 / (1.0 + fast)), 1.0 / (1.0 + slow) - 1.0);
    assert!((of_new_fast / of_new_slow - 1.0).abs() > 0.25);
}

/// Short8MB with a faster and a slower bus has the same traffic to four figures: the same requests
/// and sizes, so no chance is left between the three. A bus with one byte as its unit would
/// save as much as half of what it costs (3.6 against 7.3 points); the paper has 2.60 and 8.35.
/// Transfers of whole 1024 bytes do that: header and request cannot get faster.
#[test]
fn whole_transfers_of_1024_bytes_explain_the_rows_of_the_fast_and_the_slow_bus() {
    let printed_ratio = (paper("Short8MB").0 - paper("Short8MBSlowBus").0)
        / (paper("Short8MBFastBus").0 - paper("Short8MB").0);
    let ratio = |scale: u32| {
        let time = |name| {
            let mut config = Config::named(name).unwrap();
            config.requests.frequency_per_s = 10_000.0;
            // The same bytes per second in smaller units; lines stay.
            config.bus.clock_mhz *= f64::from(config.simulation.scale / scale);
            config.host.memory_line_bytes *= config.simulation.scale / scale;
            config.network_processor.memory_line_bytes *= config.simulation.scale / scale;
            config.simulation.scale = scale;
            run(&config, 3).unwrap().response.mean_ns
        };
        (time("Short8MBSlowBus") - time("Short8MB")) / (time("Short8MB") - time("Short8MBFastBus"))
    };
    let (whole, fine) = (ratio(128), ratio(1));
    assert!((printed_ratio - 3.21).abs() < 0.01, "{printed_ratio}");
    assert!((whole - printed_ratio).abs() < 0.4, "{whole}");
    assert!((fine - 2.0).abs() < 0.1, "{fine}");
}

/// Short8MB has 1.7 points less than expected, in all its variants. If its run drew the very sizes
/// that the baseline drew, which were larger than usual, that is gone.
#[test]
fn the_rows_of_8_mb_are_explained_by_the_baselines_own_sizes() {
    let (baseline, config) =
        (Config::named("ShortBaseline").unwrap(), Config::named("Short8MB").unwrap());
    let reductions: Vec<f64> = (0..20)
        .map(|repetition| {
            let seed = seed("ShortBaseline", &baseline, repetition).unwrap();
            decrease(total(&run(&config, seed).unwrap()), total(&run(&baseline, seed).unwrap()))
        })
        .collect();
    let interval = Interval::of(&reductions);
    assert!((interval.mean - paper("Short8MB").1).abs() < 0.4, "{interval:?}");
    assert!((paper("ShortLongNPLat").1 - paper("Short8MB").1).abs() < 0.1);
}
