//! Random replacement against a vector and the same source of numbers.

use nicache_policy::{Fifo, Occupancy, Random, Removal};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};
use crate::traces::simulate;

pub(crate) struct Bag {
    objects: Vec<(u64, u64)>,
    state: u64,
}

impl Bag {
    pub(crate) fn new(seed: u64) -> Self {
        Self { objects: Vec::new(), state: seed.wrapping_add(0x9E37_79B9_7F4A_7C15) }
    }

    /// The output of SplitMix64 for the present state.
    fn number(&self) -> u64 {
        let mut number = self.state;
        for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB), (31, 1)] {
            number = (number ^ (number >> shift)).wrapping_mul(factor);
        }
        number
    }
}

impl Model for Bag {
    fn contains(&self, key: u64) -> bool {
        self.objects.iter().any(|object| object.0 == key)
    }
    fn hit(&mut self, _: u64) {}
    fn insert(&mut self, key: u64, bytes: u64) {
        self.objects.push((key, bytes));
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        self.objects.iter_mut().find(|object| object.0 == key).unwrap().1 = bytes;
    }
    fn remove(&mut self, key: u64, _: Removal) {
        let at = self.objects.iter().position(|object| object.0 == key).unwrap();
        let last = self.objects.pop().unwrap();
        if at < self.objects.len() {
            self.objects[at] = last;
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        let len = self.objects.len();
        let first = (u128::from(self.number()) * len as u128 / (1 << 64)) as usize;
        (first..first + 2).map(|at| self.objects.get(at % len.max(1))).find_map(|object| {
            let key = object?.0;
            (Some(key) != but).then_some(key)
        })
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().map(|object| object.1).sum();
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_vector(objects_max in 1usize..12, seed: u64, steps in steps()) {
        let model = Naive::new(Bag::new(seed), BYTES_MAX, objects_max);
        compare(Random::new(BYTES_MAX, objects_max as u32, seed), model, steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(|bytes_max, objects_max| Random::new(bytes_max, objects_max, 0));
}

/// Requests without memory are hit as often as objects fit, by any policy.
#[test]
fn of_uniform_requests_the_share_that_fits_is_hit() {
    let mut state = 7u64;
    let requests: Vec<(u64, u64)> = std::iter::repeat_with(|| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % 1000, 1)
    })
    .take(200_000)
    .collect();
    let hit_ratio = 1.0 - simulate(Random::new(300, 300, 5), 300, &requests).0 as f64 / 200_000.0;
    assert!((0.29..0.31).contains(&hit_ratio), "{hit_ratio}");
}

/// Round and round over one more than fits, FIFO never hits; at random, a miss costs another object
/// only with a chance of one in a hundred.
#[test]
fn a_loop_that_does_not_fit_is_hit_all_the_same() {
    let requests: Vec<(u64, u64)> = (0..100_000).map(|request| (request % 101, 1)).collect();
    assert_eq!(simulate(Fifo::new(100, 100), 100, &requests).0, 100_000);
    let misses = simulate(Random::new(100, 100, 1), 100, &requests).0;
    assert!(misses < 20_000, "{misses}");
}

#[test]
fn one_seed_is_one_course() {
    let requests: Vec<(u64, u64)> =
        (0..10_000u64).map(|request| (request * request % 997, 1)).collect();
    let misses = |seed| simulate(Random::new(100, 100, seed), 100, &requests);
    assert_eq!(misses(1), misses(1));
    assert_ne!(misses(1), misses(2));
}
