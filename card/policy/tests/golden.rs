//! Exact misses and victims of each simple policy on short sequences, worked out by hand.
//!
//! Three objects fit. For LFU-DA each victim's `K` is the memory's age from then on.

mod cache;

use cache::Cache;
use nicache_policy::{Fifo, Lfu, Lru, Policy};

fn run<P: Policy>(policy: P, requests: &[u64]) -> (u64, Vec<u64>) {
    let mut cache = Cache::new(policy, 300);
    for &key in requests {
        cache.request(key, 100);
    }
    assert_eq!(cache.hits + cache.misses, requests.len() as u64);
    (cache.misses, cache.evicted)
}

/// Object 1 is popular at the beginning, then the interest shifts.
const SHIFT: [u64; 18] = [1, 1, 1, 2, 2, 3, 4, 3, 5, 3, 6, 3, 4, 5, 4, 5, 4, 1];

#[test]
fn a_shift_of_interest() {
    assert_eq!(run(Fifo::new(300, 3), &SHIFT), (10, vec![1, 2, 3, 4, 5, 6, 3]));
    assert_eq!(run(Lru::new(300, 3), &SHIFT), (9, vec![1, 2, 4, 5, 6, 3]));
    // 1 and 2 stay for ever; all others take turns in the third place.
    assert_eq!(
        run(Lfu::without_ageing(300, 3), &SHIFT),
        (14, vec![3, 4, 3, 5, 3, 6, 3, 4, 5, 4, 5])
    );
    // K of the victims: 3 has 1, 2 has 2 (as 4, used later), 4 has 2, 1 has 3 (as 5, used later), 5
    // has 3, 6 has 4 (as 4, used later), 3 has 6 (as 5, used later).
    assert_eq!(run(Lfu::new(300, 3), &SHIFT), (10, vec![3, 2, 4, 1, 5, 6, 3]));
}

/// Objects 1 and 2 are popular all the time, between ones that are asked for once.
const SCAN: [u64; 12] = [1, 1, 2, 2, 3, 1, 4, 2, 5, 1, 6, 2];

#[test]
fn a_scan() {
    assert_eq!(run(Fifo::new(300, 3), &SCAN), (8, vec![1, 2, 3, 4, 5]));
    assert_eq!(run(Lru::new(300, 3), &SCAN), (9, vec![2, 3, 1, 4, 2, 5]));
    assert_eq!(run(Lfu::without_ageing(300, 3), &SCAN), (6, vec![3, 4, 5]));
    // K of the victims: 1, 2, 3.
    assert_eq!(run(Lfu::new(300, 3), &SCAN), (6, vec![3, 4, 5]));
}

/// The budget counts bytes: a large object takes the places of two.
#[test]
fn a_large_object() {
    fn evicted<P: Policy>(policy: P) -> Vec<u64> {
        let mut cache = Cache::new(policy, 300);
        for key in [1, 2, 2, 3, 1] {
            cache.request(key, 100);
        }
        cache.request(4, 200);
        cache.evicted
    }
    assert_eq!(evicted(Fifo::new(300, 3)), [1, 2]);
    assert_eq!(evicted(Lru::new(300, 3)), [2, 3]);
    assert_eq!(evicted(Lfu::without_ageing(300, 3)), [3, 2]);
    assert_eq!(evicted(Lfu::new(300, 3)), [3, 2]);
}
