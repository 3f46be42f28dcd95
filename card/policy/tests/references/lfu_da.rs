//! LFU-DA as the formula of Arlitt et al. 2000 has it, for whole traces. `lfu_model.rs` compares
//! single calls.

use std::collections::HashMap;

use nicache_policy::{Occupancy, Removal};

use crate::naive::Model;

#[derive(Default)]
pub(crate) struct Formula {
    /// Bytes, uses, `K`, time of the last use.
    objects: HashMap<u64, [u64; 4]>,
    bytes: u64,
    age: u64,
    now: u64,
}

impl Model for Formula {
    fn contains(&self, key: u64) -> bool {
        self.objects.contains_key(&key)
    }
    fn hit(&mut self, key: u64) {
        self.now += 1;
        let [_, uses, priority, used] = self.objects.get_mut(&key).unwrap();
        *uses += 1;
        *priority = *uses + self.age;
        *used = self.now;
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        self.objects.insert(key, [bytes, 0, 0, 0]);
        self.bytes += bytes;
        self.hit(key);
    }
    fn resize(&mut self, key: u64, bytes: u64) {
        let object = self.objects.get_mut(&key).unwrap();
        self.bytes = self.bytes - object[0] + bytes;
        object[0] = bytes;
    }
    fn remove(&mut self, key: u64, removal: Removal) {
        let [bytes, _, priority, _] = self.objects.remove(&key).unwrap();
        self.bytes -= bytes;
        if removal == Removal::Evicted {
            self.age = priority;
        }
    }
    fn victim(&mut self, but: Option<u64>) -> Option<u64> {
        let others = self.objects.iter().filter(|(key, _)| Some(**key) != but);
        others.min_by_key(|(_, [_, _, priority, used])| (*priority, *used)).map(|(key, _)| *key)
    }
    fn occupancy(&self) -> Occupancy {
        Occupancy { objects: self.objects.len(), bytes: self.bytes, ghosts: 0 }
    }
}
