//! Exact misses on real traces.
//!
//! The table's origins: libCacheSim wherever it follows the same rules, and exhaustive models where
//! it does not:
//!
//! * LRFU is not in libCacheSim; with lambda 0 and 1 it is its LFU and LRU.
//! * ARC in bytes: libCacheSim moves `p` by the quotient of the ghost lists alone, which is a few
//!   bytes per request, so `p` stays where it is. With objects of one size it is the same.
//! * LIRS: at a hit of an HIR object that is not in the stack, libCacheSim demotes LIR objects
//!   until there would be room for it, as if it became LIR, which may evict that very object, and
//!   then puts it on the stack as being in memory. It stores no object larger than the HIR share.
//! * W-TinyLFU: libCacheSim counts no hits in the window, counts a candidate once more when it
//!   leaves the window, halves the counts after as many hits as 32 times the main part's *bytes*,
//!   and stores no object larger than the window.
//! * Belady's bound: libCacheSim has the one that stores every object, MIN.

use std::collections::HashMap;

use nicache_policy::{Arc, Belady, Gdsf, Key, Lirs, Lrfu, LrfuConfig, WTinyLfu, WTinyLfuConfig};

use crate::traces::{Requests, load, simulate};
use crate::{arc, lirs, lrfu, w_tiny_lfu};

const GOLDEN: &str = include_str!("../golden/twins.tsv");
/// Models search; they are run on what is not too large for that.
const MODEL_OBJECTS_MAX: u64 = 100;
const MODEL_BYTES_MAX: u64 = 8 << 20;

struct Row {
    trace: &'static str,
    unit: &'static str,
    size: u64,
    policy: &'static str,
    misses: (u64, u64),
    is_model: bool,
}

fn rows() -> Vec<Row> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [trace, unit, size, policy, misses, missed, origin] = fields[..] else {
            panic!("not seven columns: {line}");
        };
        Row {
            trace,
            unit,
            size: size.parse().unwrap(),
            policy,
            misses: (misses.parse().unwrap(), missed.parse().unwrap()),
            is_model: origin == "model",
        }
    });
    rows.collect()
}

/// The requests of each trace in each unit, and the number of different objects.
#[derive(Default)]
struct Traces(HashMap<(&'static str, &'static str), (Requests, u32)>);

impl Traces {
    fn of(&mut self, row: &Row) -> (&[(u64, u64)], u32) {
        let (requests, objects) = self.0.entry((row.trace, row.unit)).or_insert_with(|| {
            let mut requests = load(row.trace);
            if row.unit == "objects" {
                requests.iter_mut().for_each(|request| request.1 = 1);
            }
            let mut keys: Vec<u64> = requests.iter().map(|request| request.0).collect();
            keys.sort_unstable();
            keys.dedup();
            (requests, keys.len() as u32)
        });
        // In bytes, the number of objects is not a limit.
        let objects_max = if row.unit == "objects" { row.size as u32 } else { 2 * *objects };
        (requests, objects_max)
    }
}

#[test]
fn every_policy_misses_as_often_as_the_table_says() {
    let mut traces = Traces::default();
    for row in rows() {
        let (requests, objects_max) = traces.of(&row);
        let size = row.size;
        let lrfu = |lambda| {
            Lrfu::with_config(&LrfuConfig { lambda, ..LrfuConfig::new(size, objects_max) })
        };
        let future = requests.iter().map(|request| Key(request.0));
        let misses = match row.policy {
            "lrfu" => simulate(Lrfu::new(size, objects_max), size, requests),
            "lrfu, lambda 0" => simulate(lrfu(0.0), size, requests),
            "lrfu, lambda 1" => simulate(lrfu(1.0), size, requests),
            "arc" => simulate(Arc::new(size, objects_max), size, requests),
            "lirs" => simulate(Lirs::new(size, objects_max), size, requests),
            "gdsf" => simulate(Gdsf::new(size, objects_max), size, requests),
            "w-tinylfu" => simulate(with_exact_counts(size, objects_max), size, requests),
            "min" => simulate(Belady::storing_all(size, objects_max, future), size, requests),
            "belady" => simulate(Belady::new(size, objects_max, future), size, requests),
            policy => panic!("no policy is called {policy}"),
        };
        assert_eq!(
            misses, row.misses,
            "{} on {} ({} {})",
            row.policy, row.trace, row.size, row.unit
        );
    }
}

/// So many counters that no keys collide.
fn with_exact_counts(bytes_max: u64, objects_max: u32) -> WTinyLfu {
    WTinyLfu::with_config(&WTinyLfuConfig {
        counters: 1 << 24,
        ..WTinyLfuConfig::new(bytes_max, objects_max)
    })
}

/// The sketch of the default size costs or saves less than 1 % of the misses.
#[test]
fn counts_need_not_be_exact() {
    let mut traces = Traces::default();
    for row in rows().iter().filter(|row| row.policy == "w-tinylfu") {
        let (requests, objects_max) = traces.of(row);
        let (misses, _) = simulate(WTinyLfu::new(row.size, objects_max), row.size, requests);
        let difference = misses.abs_diff(row.misses.0);
        assert!(
            difference * 100 < misses,
            "{misses} and {} on {} ({})",
            row.misses.0,
            row.trace,
            row.size
        );
    }
}

#[test]
fn so_do_the_models() {
    let mut traces = Traces::default();
    let mut compared = 0;
    for row in rows() {
        let model_max = if row.unit == "objects" { MODEL_OBJECTS_MAX } else { MODEL_BYTES_MAX };
        // The optimum has models of its own.
        if !row.is_model || row.size > model_max || row.policy == "belady" {
            continue;
        }
        let (requests, objects_max) = traces.of(&row);
        let misses = model_misses(row.policy, row.size, objects_max as usize, requests);
        assert_eq!(
            misses, row.misses,
            "{} on {} ({} {})",
            row.policy, row.trace, row.size, row.unit
        );
        compared += 1;
    }
    assert!(compared > 20, "{compared}");
}

fn model_misses(
    policy: &str,
    size: u64,
    objects_max: usize,
    requests: &[(u64, u64)],
) -> (u64, u64) {
    match policy {
        "lrfu" => simulate(lrfu::Values::new(size, objects_max, 0.001), size, requests),
        "arc" => simulate(arc::Lists::new(size, objects_max), size, requests),
        "lirs" => simulate(lirs::Stack::new(size, objects_max, 0.01, 0.2), size, requests),
        "w-tinylfu" => {
            simulate(w_tiny_lfu::Lists::new(size, objects_max, 0.01, 0.8), size, requests)
        }
        policy => panic!("{policy} has no model here"),
    }
}
