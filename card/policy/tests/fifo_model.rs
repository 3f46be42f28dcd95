//! FIFO against a vector in order of insertion.

mod model;

use model::{BYTES_MAX, Model, compare, endure_senseless_sizes, steps};
use nicache_policy::Fifo;
use proptest::prelude::*;

/// Inserted last last.
struct Insertions(Vec<(u64, u64)>);

impl Model for Insertions {
    fn hit(&mut self, _: u64) {}
    fn insert(&mut self, key: u64, bytes: u64) {
        match self.0.iter_mut().find(|object| object.0 == key) {
            Some(object) => object.1 = bytes,
            None => self.0.push((key, bytes)),
        }
    }
    fn remove(&mut self, key: u64, _: bool) {
        self.0.retain(|object| object.0 != key);
    }
    fn objects(&self) -> Vec<(u64, u64)> {
        self.0.clone()
    }
}

proptest! {
    #[test]
    fn behaves_like_a_queue(objects_max in 1usize..12, steps in steps()) {
        compare(
            Fifo::new(BYTES_MAX, objects_max as u32),
            Insertions(Vec::new()),
            objects_max,
            steps,
        )?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Fifo::new);
}
