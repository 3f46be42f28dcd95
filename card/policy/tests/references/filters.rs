//! The admission filters in front of LRU, against LRU and a list of what the filter knows.

use nicache_policy::{
    Admission, Incoming, Key, Lru, Occupancy, Policy, Removal, S3Fifo, SecondHit, SizeLimit,
    TableFull,
};
use proptest::prelude::*;

use crate::naive::{BYTES_MAX, compare, endure_senseless_sizes, steps};
use crate::traces::simulate;

/// The limit, said in another way: what is too large has no size that fits.
struct Limited(Lru, u64);

impl Policy for Limited {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn contains(&self, key: Key) -> bool {
        self.0.contains(key)
    }
    fn handle_hit(&mut self, key: Key) {
        self.0.handle_hit(key);
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        self.0.handle_miss(key, bytes.map(|bytes| if bytes > self.1 { u64::MAX } else { bytes }))
    }
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        self.0.handle_reply(key, if bytes > self.1 { u64::MAX } else { bytes })
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.0.handle_insert(key, bytes)
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        self.0.handle_remove(key, removal);
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.0.poll_victim(incoming)
    }
    fn occupancy(&self) -> Occupancy {
        self.0.occupancy()
    }
}

/// Keys in the order of their first miss.
struct Twice {
    policy: Lru,
    missed: Vec<Key>,
    keys_max: usize,
}

impl Policy for Twice {
    fn name(&self) -> &'static str {
        self.policy.name()
    }
    fn contains(&self, key: Key) -> bool {
        self.policy.contains(key)
    }
    fn handle_hit(&mut self, key: Key) {
        self.policy.handle_hit(key);
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        if self.missed.contains(&key) {
            return self.policy.handle_miss(key, bytes);
        }
        self.missed.push(key);
        if self.missed.len() > self.keys_max {
            self.missed.remove(0);
        }
        Admission::Reject
    }
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        self.policy.handle_reply(key, bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.policy
            .handle_insert(key, bytes)
            .inspect(|()| self.missed.retain(|&missed| missed != key))
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        self.policy.handle_remove(key, removal);
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.policy.poll_victim(incoming)
    }
    fn occupancy(&self) -> Occupancy {
        Occupancy { ghosts: self.missed.len(), ..self.policy.occupancy() }
    }
}

proptest! {
    #[test]
    fn the_size_limit_rejects_and_delegates(
        objects_max in 1u32..12,
        limit in 0u64..600,
        steps in steps(),
    ) {
        let policy = SizeLimit::new(Lru::new(BYTES_MAX, objects_max), limit);
        compare(policy, Limited(Lru::new(BYTES_MAX, objects_max), limit), steps)?;
    }

    #[test]
    fn the_second_hit_behaves_like_a_vector(
        objects_max in 1u32..12,
        keys_max in 0u32..16,
        steps in steps(),
    ) {
        let policy = SecondHit::new(Lru::new(BYTES_MAX, objects_max), keys_max);
        let model = Twice {
            policy: Lru::new(BYTES_MAX, objects_max),
            missed: Vec::new(),
            keys_max: keys_max as usize,
        };
        compare(policy, model, steps)?;
    }

    /// A filter that lets all pass is not there.
    #[test]
    fn a_limit_of_everything_changes_nothing(objects_max in 1u32..12, steps in steps()) {
        let policy = SizeLimit::new(S3Fifo::new(BYTES_MAX, objects_max), u64::MAX);
        compare(policy, S3Fifo::new(BYTES_MAX, objects_max), steps)?;
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(|bytes_max, objects_max| {
        SizeLimit::new(Lru::new(bytes_max, objects_max), 0)
    });
    endure_senseless_sizes(|bytes_max, objects_max| {
        SecondHit::new(Lru::new(bytes_max, objects_max), objects_max)
    });
}

/// A scan of objects asked for once displaces nothing.
#[test]
fn what_is_asked_for_once_does_not_come_in() {
    let popular = (0..10).flat_map(|_| 0..10u64);
    let scan = 1000..2000;
    let requests: Vec<(u64, u64)> =
        popular.clone().chain(scan).chain(popular).map(|key| (key, 1)).collect();
    assert_eq!(simulate(Lru::new(10, 10), 10, &requests).0, 10 + 1000 + 10);
    assert_eq!(simulate(SecondHit::new(Lru::new(10, 10), 100), 10, &requests).0, 20 + 1000);
}

#[test]
fn both_go_by_the_policys_name() {
    let both = SecondHit::new(SizeLimit::new(Lru::new(1, 1), 1), 1);
    assert_eq!((both.name(), both.period()), ("lru", None));
}
