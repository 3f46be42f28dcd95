//! SIEVE against a vector in order of age and a hand that is a key.

use nicache_policy::{Occupancy, Removal, Sieve};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};

#[derive(Default)]
struct Ages {
    /// Key, bytes, whether used; the oldest first.
    objects: Vec<(u64, u64, bool)>,
    hand: Option<u64>,
}

impl Ages {
    fn at(&self, key: u64) -> usize {
        self.objects.iter().position(|object| object.0 == key).unwrap()
    }
}

impl Model for Ages {
    fn contains(&self, key: u64) -> bool {
        self.objects.iter().any(|object| object.0 == key)
    }
    fn hit(&mut self, key: u64) {
        let at = self.at(key);
        self.objects[at].2 = true;
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        self.objects.push((key, bytes, false));
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        let at = self.at(key);
        self.objects[at].1 = bytes;
    }
    fn remove(&mut self, key: u64, _: Removal) {
        let at = self.at(key);
        if self.hand == Some(key) {
            self.hand = self.objects.get(at + 1).map(|object| object.0);
        }
        self.objects.remove(at);
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        if self.objects.iter().all(|object| Some(object.0) == but) {
            return None;
        }
        let mut at = self.hand.map_or(0, |key| self.at(key));
        while self.objects[at].2 || Some(self.objects[at].0) == but {
            self.objects[at].2 = false;
            at = (at + 1) % self.objects.len();
        }
        self.hand = Some(self.objects[at].0);
        self.hand
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().map(|object| object.1).sum();
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_vector_with_a_hand(objects_max in 1usize..12, steps in steps()) {
        let model = Naive::new(Ages::default(), BYTES_MAX, objects_max);
        compare(Sieve::new(BYTES_MAX, objects_max as u32), model, steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Sieve::new);
}
