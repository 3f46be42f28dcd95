//! CLOCK against a vector in the hand's order.

use nicache_policy::{Clock, Occupancy, Removal};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, Model, Naive, compare, endure_senseless_sizes, steps};

struct Ring {
    /// Key, bytes, uses; the hand is at the first.
    objects: Vec<(u64, u64, u32)>,
    uses_max: u32,
}

impl Ring {
    fn find(&mut self, key: u64) -> &mut (u64, u64, u32) {
        self.objects.iter_mut().find(|object| object.0 == key).unwrap()
    }
}

impl Model for Ring {
    fn contains(&self, key: u64) -> bool {
        self.objects.iter().any(|object| object.0 == key)
    }
    fn hit(&mut self, key: u64) {
        let uses_max = self.uses_max;
        let object = self.find(key);
        object.2 = uses_max.min(object.2 + 1);
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        self.objects.push((key, bytes, 0));
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        self.find(key).1 = bytes;
    }
    fn remove(&mut self, key: u64, _: Removal) {
        self.objects.retain(|object| object.0 != key);
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        if self.objects.iter().all(|object| Some(object.0) == but) {
            return None;
        }
        while self.objects[0].2 > 0 || Some(self.objects[0].0) == but {
            self.objects[0].2 = self.objects[0].2.saturating_sub(1);
            self.objects.rotate_left(1);
        }
        Some(self.objects[0].0)
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().map(|object| object.1).sum();
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

proptest! {
    #[test]
    fn behaves_like_a_ring(objects_max in 1usize..12, bits in 1u8..4, steps in steps()) {
        let ring = Ring { objects: Vec::new(), uses_max: (1 << bits) - 1 };
        let policy = Clock::with_bits(BYTES_MAX, objects_max as u32, bits);
        compare(policy, Naive::new(ring, BYTES_MAX, objects_max), steps)?;
    }

    #[test]
    fn has_one_bit_unless_told(steps in steps()) {
        compare(Clock::new(BYTES_MAX, 8), Clock::with_bits(BYTES_MAX, 8, 1), steps)?;
    }
}

#[test]
fn senseless_sizes_and_widths_do_not_panic() {
    endure_senseless_sizes(Clock::new);
    endure_senseless_sizes(|bytes_max, objects_max| Clock::with_bits(bytes_max, objects_max, 0));
    endure_senseless_sizes(|bytes_max, objects_max| {
        Clock::with_bits(bytes_max, objects_max, u8::MAX)
    });
}
