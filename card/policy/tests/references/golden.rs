//! Exact misses on real traces.
//!
//! The table's origins: libCacheSim wherever it follows the same rules, and exhaustive models where
//! it does not:
//!
//! * S3-FIFO in bytes: libCacheSim stores no object as large as the small queue's share. With that
//!   as a size limit its count is met; without, the model's.
//! * 2Q in bytes: libCacheSim stores no object larger than `Kin`, and gives `Am` at most what `Kin`
//!   leaves even while `A1in` is smaller than that.
//! * Random: other numbers.
//! * LFU-DA: libCacheSim has no number of uses: at each use it adds the memory's age to the
//!   priority, whatever that is, which is nothing before the first victim went, and makes a use
//!   count for more the older the memory is.

use std::collections::HashMap;

use nicache_policy::{Clock, Fifo, Lfu, Lru, Mru, Policy, Random, S3Fifo, Sieve, SizeLimit, TwoQ};

use crate::naive::Naive;
use crate::traces::{Requests, load, simulate};
use crate::{lfu_da, random, s3_fifo, two_q};

const GOLDEN: &str = include_str!("../golden/misses.tsv");
/// Models search; they are run on what is not too large for that.
const MODEL_OBJECTS_MAX: u64 = 1000;
const MODEL_BYTES_MAX: u64 = 8 << 20;

const RANDOM_SEED: u64 = 1;

struct Row {
    trace: &'static str,
    unit: &'static str,
    size: u64,
    policy: &'static str,
    object_max: Option<u64>,
    misses: (u64, u64),
    is_model: bool,
}

fn rows() -> Vec<Row> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [trace, unit, size, policy, object_max, misses, missed, origin] = fields[..] else {
            panic!("not eight columns: {line}");
        };
        Row {
            trace,
            unit,
            size: size.parse().unwrap(),
            policy,
            object_max: object_max.parse().ok(),
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
        (requests, *objects)
    }
}

fn run<P: Policy>(row: &Row, requests: &[(u64, u64)], policy: P) -> (u64, u64) {
    match row.object_max {
        Some(object_max) => simulate(SizeLimit::new(policy, object_max), row.size, requests),
        None => simulate(policy, row.size, requests),
    }
}

#[test]
fn every_policy_misses_as_often_as_the_table_says() {
    let mut traces = Traces::default();
    for row in rows() {
        let (requests, objects) = traces.of(&row);
        let size = row.size;
        // In bytes, the number of objects is not a limit, nor is that of ghosts, which is a share
        // of it.
        let objects_max = if row.unit == "objects" { size as u32 } else { 2 * objects };
        let misses = match row.policy {
            "fifo" => run(&row, requests, Fifo::new(size, objects_max)),
            "lru" => run(&row, requests, Lru::new(size, objects_max)),
            "mru" => run(&row, requests, Mru::new(size, objects_max)),
            "lfu" => run(&row, requests, Lfu::without_ageing(size, objects_max)),
            "lfu-da" => run(&row, requests, Lfu::new(size, objects_max)),
            "clock" => run(&row, requests, Clock::new(size, objects_max)),
            "clock-2" => run(&row, requests, Clock::with_bits(size, objects_max, 2)),
            "sieve" => run(&row, requests, Sieve::new(size, objects_max)),
            "s3-fifo" => run(&row, requests, S3Fifo::new(size, objects_max)),
            "2q" => run(&row, requests, TwoQ::new(size, objects_max)),
            "random" => run(&row, requests, Random::new(size, objects_max, RANDOM_SEED)),
            policy => panic!("no policy is called {policy}"),
        };
        assert_eq!(
            misses, row.misses,
            "{} on {} ({} {})",
            row.policy, row.trace, row.size, row.unit
        );
    }
}

#[test]
fn so_do_the_models() {
    let mut traces = Traces::default();
    let mut compared = 0;
    for row in rows() {
        let model_max = if row.unit == "objects" { MODEL_OBJECTS_MAX } else { MODEL_BYTES_MAX };
        if !row.is_model || row.size > model_max {
            continue;
        }
        let (requests, objects) = traces.of(&row);
        let (size, objects_max) = (row.size, 2 * objects as usize);
        let misses = match row.policy {
            "lfu-da" => {
                simulate(Naive::new(lfu_da::Formula::default(), size, objects_max), size, requests)
            }
            "s3-fifo" => simulate(
                Naive::new(s3_fifo::Queues::new(size, objects_max, 1, 9, 2), size, objects_max),
                size,
                requests,
            ),
            "2q" => simulate(
                Naive::new(two_q::Queues::new(size, objects_max, 2, 4), size, objects_max),
                size,
                requests,
            ),
            "random" => simulate(
                Naive::new(random::Bag::new(RANDOM_SEED), size, objects_max),
                size,
                requests,
            ),
            policy => panic!("{policy} has no model here"),
        };
        assert_eq!(
            misses, row.misses,
            "{} on {} ({} {})",
            row.policy, row.trace, row.size, row.unit
        );
        compared += 1;
    }
    assert!(compared > 5, "{compared}");
}
