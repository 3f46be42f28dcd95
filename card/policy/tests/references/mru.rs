//! MRU against a vector in order of use.

use nicache_policy::{Mru, Occupancy, Removal};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};
use crate::traces::simulate;

/// Most recently used last.
struct Uses(Vec<(u64, u64)>);

impl Model for Uses {
    fn contains(&self, key: u64) -> bool {
        self.0.iter().any(|object| object.0 == key)
    }
    fn hit(&mut self, key: u64) {
        self.0.sort_by_key(|object| object.0 == key);
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        self.0.push((key, bytes));
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        self.0.iter_mut().find(|object| object.0 == key).unwrap().1 = bytes;
    }
    fn remove(&mut self, key: u64, _: Removal) {
        self.0.retain(|object| object.0 != key);
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        self.0.iter().rev().map(|object| object.0).find(|&key| Some(key) != but)
    }
    fn occupancy(&self) -> Occupancy {
        Occupancy {
            objects: self.0.len(),
            bytes: self.0.iter().map(|object| object.1).sum(),
            ghosts: 0,
        }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_vector(objects_max in 1usize..12, steps in steps()) {
        let model = Naive::new(Uses(Vec::new()), BYTES_MAX, objects_max);
        compare(Mru::new(BYTES_MAX, objects_max as u32), model, steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Mru::new);
}

/// Yocum and Chase 2001, section 5.3: of payloads that are sent on in the order in which they came,
/// as many are hit as fit, whatever else waits.
#[test]
fn of_a_queue_that_is_forwarded_as_much_is_hit_as_fits() {
    let queue: Vec<(u64, u64)> = (0..100).chain(0..100).map(|payload| (payload, 1)).collect();
    assert_eq!(simulate(Mru::new(40, 40), 40, &queue), (160, 160));
}
