//! LRU against a vector in order of use.

mod model;

use model::{BYTES_MAX, Model, compare, endure_senseless_sizes, steps};
use nicache_policy::Lru;
use proptest::prelude::*;

/// Most recently used last.
struct Uses(Vec<(u64, u64)>);

impl Model for Uses {
    fn hit(&mut self, key: u64) {
        let at = self.0.iter().position(|object| object.0 == key).unwrap();
        let object = self.0.remove(at);
        self.0.push(object);
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        self.0.retain(|object| object.0 != key);
        self.0.push((key, bytes));
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
    fn behaves_like_a_vector(objects_max in 1usize..12, steps in steps()) {
        compare(Lru::new(BYTES_MAX, objects_max as u32), Uses(Vec::new()), objects_max, steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Lru::new);
}
