//! LFU, with and without ageing, against a vector that is sorted by the formula of Arlitt et al.
//! 2000.

mod cache;
mod model;

use cache::Cache;
use model::{BYTES_MAX, Model, compare, endure_senseless_sizes, steps};
use nicache_policy::{Lfu, Policy};
use proptest::prelude::*;

#[derive(Default)]
struct Counts {
    objects: Vec<Counted>,
    ages: bool,
    age: u64,
    now: u64,
}

struct Counted {
    key: u64,
    bytes: u64,
    uses: u64,
    priority: u64,
    used: u64,
}

impl Model for Counts {
    fn hit(&mut self, key: u64) {
        self.now += 1;
        let object = self.objects.iter_mut().find(|object| object.key == key).unwrap();
        object.uses += 1;
        object.priority = object.uses + self.age;
        object.used = self.now;
    }
    fn insert(&mut self, key: u64, bytes: u64) {
        if !self.objects.iter().any(|object| object.key == key) {
            self.objects.push(Counted { key, bytes, uses: 0, priority: 0, used: 0 });
        }
        self.hit(key);
        self.objects.iter_mut().find(|object| object.key == key).unwrap().bytes = bytes;
    }
    fn remove(&mut self, key: u64, is_victim: bool) {
        let at = self.objects.iter().position(|object| object.key == key).unwrap();
        let object = self.objects.remove(at);
        if is_victim && self.ages {
            self.age = self.age.max(object.priority);
        }
    }
    fn objects(&self) -> Vec<(u64, u64)> {
        let mut order: Vec<&Counted> = self.objects.iter().collect();
        order.sort_by_key(|object| (object.priority, object.used));
        order.iter().map(|object| (object.key, object.bytes)).collect()
    }
}

proptest! {
    #[test]
    fn behaves_like_the_formula(objects_max in 1usize..12, ages: bool, steps in steps()) {
        let new = if ages { Lfu::new } else { Lfu::without_ageing };
        let model = Counts { ages, ..Counts::default() };
        compare(new(BYTES_MAX, objects_max as u32), model, objects_max, steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Lfu::new);
    endure_senseless_sizes(Lfu::without_ageing);
}

/// Requests for one new object until the old one is gone; at most 1000.
fn requests_until_forgotten(policy: Lfu) -> u64 {
    let mut cache = Cache::new(policy, 200);
    for _ in 0..100 {
        cache.request(1, 100);
    }
    for request in 0..1000 {
        if !cache.objects.contains_key(&1) {
            return request;
        }
        cache.request(2 + request % 2, 100);
    }
    1000
}

/// Two objects take turns in the place beside one that was used 100 times before: by each eviction
/// the memory is one use older.
#[test]
fn with_ageing_what_was_popular_once_goes() {
    assert_eq!(requests_until_forgotten(Lfu::without_ageing(200, 2)), 1000);
    assert_eq!(requests_until_forgotten(Lfu::new(200, 2)), 101);
}

#[test]
fn both_have_names() {
    assert_eq!((Lfu::new(1, 1).name(), Lfu::without_ageing(1, 1).name()), ("lfu-da", "lfu"));
}
