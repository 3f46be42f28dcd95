//! The rules of the popularity policy one by one, and patterns meant to defeat it.

mod cache;

use cache::Cache;
use nicache_policy::{Admission, Key, Lru, Policy, Popularity, PopularityConfig, Removal};

fn popularity(bytes_max: u64, objects_max: u32, low: u32, high: u32) -> Cache<Popularity> {
    let config = PopularityConfig {
        popular_low: low,
        popular_high: high,
        keys_max: 0,
        ..PopularityConfig::new(bytes_max, objects_max)
    };
    Cache::new(Popularity::new(&config), bytes_max)
}

impl<P: Policy> Cache<P> {
    fn requests(&mut self, key: u64, bytes: u64, times: u32) {
        for _ in 0..times {
            self.request(key, bytes);
        }
    }

    fn purge(&mut self, key: u64) {
        self.remove(key, Removal::Purged);
    }
}

/// A generator for tests: xorshift64.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Zipf-like (exponent 1) over 1..=max.
    fn zipf(&mut self, max: u64) -> u64 {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (max as f64).powf(unit) as u64
    }
}

#[test]
fn cold_start_stores_at_the_second_request_without_a_period_end() {
    let mut cache = popularity(1000, 10, 4, 8);
    assert!(!cache.request(1, 100));
    assert!(cache.objects.is_empty(), "the first request only counts");
    assert!(!cache.request(1, 100));
    assert!(cache.objects.contains_key(&1), "the next time it is stored");
    assert!(cache.request(1, 100));
}

#[test]
fn popularity_is_the_papers_moving_average() {
    let mut cache = popularity(1000, 10, 4, 8);
    cache.requests(1, 100, 8);
    cache.policy.handle_period_end();
    assert_eq!(cache.policy.popularity(Key(1)), Some(6.0));
    cache.requests(1, 100, 2);
    assert_eq!(cache.policy.popularity(Key(1)), Some(6.0), "as of the last period's end");
    cache.policy.handle_period_end();
    assert_eq!(cache.policy.popularity(Key(1)), Some(0.25 * 6.0 + 0.75 * 2.0));
    cache.policy.handle_period_end();
    assert_eq!(cache.policy.popularity(Key(1)), Some(0.75));
}

#[test]
fn a_full_memory_of_equally_popular_objects_keeps_what_it_has() {
    let mut cache = popularity(300, 10, 4, 20);
    for _ in 0..5 {
        for key in 0..10 {
            cache.requests(key, 100, 3);
        }
        cache.policy.handle_period_end();
    }
    let mut kept: Vec<u64> = cache.objects.keys().copied().collect();
    kept.sort_unstable();
    assert_eq!((kept, cache.evicted.len()), (vec![0, 1, 2], 0));
}

#[test]
fn a_more_popular_object_displaces_a_less_popular_one_after_the_period_end_only() {
    let mut cache = popularity(300, 10, 4, 20);
    for key in 0..3 {
        cache.requests(key, 100, 3 + key as u32);
    }
    cache.requests(9, 100, 20);
    assert!(
        !cache.objects.contains_key(&9),
        "the memory is full, and ranks are given at the period's end"
    );
    cache.policy.handle_period_end();
    assert!(cache.policy.is_cacheable(Key(9)));
    cache.request(9, 100);
    assert!(cache.objects.contains_key(&9));
    assert_eq!(cache.evicted, [0], "the least popular one went");
    for _ in 0..30 {
        cache.request(0, 100);
    }
    assert_eq!(cache.evicted, [0], "and does not come back within the period");
}

#[test]
fn only_what_fits_in_rank_order_is_cacheable() {
    let mut cache = popularity(250, 10, 4, 20);
    cache.requests(1, 100, 9);
    cache.requests(2, 200, 8);
    cache.requests(3, 100, 7);
    cache.requests(4, 60, 6);
    cache.policy.handle_period_end();
    let cacheable: Vec<bool> = (1..=4).map(|key| cache.policy.is_cacheable(Key(key))).collect();
    assert_eq!(cacheable, [true, false, true, false]);
    cache.requests(5, 251, 100);
    cache.policy.handle_period_end();
    assert!(!cache.policy.is_cacheable(Key(5)), "larger than the memory");
}

#[test]
fn a_purged_popular_object_is_stored_again_at_once() {
    let mut cache = popularity(300, 10, 4, 20);
    for key in 0..3 {
        cache.requests(key, 100, 5);
    }
    cache.policy.handle_period_end();
    cache.purge(1);
    assert!(!cache.request(1, 100));
    assert!(cache.request(1, 100));
}

#[test]
fn what_is_always_refused_loses_its_place() {
    let mut cache = popularity(100, 10, 4, 20);
    let mut admitted = Vec::new();
    for period in 0..40 {
        for _ in 0..50 {
            if cache.policy.handle_miss(Key(7), Some(100)) == Admission::Admit {
                admitted.push(period);
                cache.policy.handle_remove(Key(7), Removal::Refused);
            }
        }
        cache.requests(8, 100, 3);
        cache.policy.handle_period_end();
    }
    assert!(cache.objects.contains_key(&8), "a less popular one has it");
    admitted.dedup();
    assert!(admitted.len() <= 6, "{admitted:?}");
}

/// 1000 objects asked for in turn, with ten times as many others between one request of an object
/// and the next.
#[test]
fn scans_of_millions_neither_flush_nor_grow() {
    let config = PopularityConfig::new(100_000, 1000);
    let mut cache = Cache::new(Popularity::new(&config), 100_000);
    let mut next = 1_000_000u64;
    for period in 0..6 {
        for round in 0..40 {
            for key in 0..1000 {
                let hit = cache.request(key, 100);
                assert!(
                    hit || (period, round) < (0, 4),
                    "key {key} is missing in period {period}, round {round}"
                );
            }
            for _ in 0..10_000 {
                next += 1;
                assert!(!cache.request(next, 100));
            }
        }
        cache.policy.handle_period_end();
        assert!(cache.policy.popular() <= config.popular_high as usize);
        let occupancy = cache.policy.occupancy();
        assert!(occupancy.objects + occupancy.ghosts <= config.keys_max as usize);
    }
    assert!(cache.evicted.is_empty());
}

/// The attacker fills the empty memory first, but five requests in a row are less than twenty in a
/// period.
#[test]
fn an_attacker_who_repeats_each_key_a_few_times_does_not_flush_either() {
    let mut cache = Cache::new(Popularity::new(&PopularityConfig::new(100_000, 1000)), 100_000);
    let mut next = 1_000_000u64;
    for period in 0..6 {
        for round in 0..20 {
            for key in 0..1000 {
                let hit = cache.request(key, 100);
                assert!(
                    hit || (period, round) <= (1, 0),
                    "key {key} is missing in period {period}, round {round}"
                );
            }
            for _ in 0..5000 {
                next += 1;
                cache.requests(next, 100, 5);
            }
        }
        cache.policy.handle_period_end();
    }
    assert!(cache.evicted.iter().all(|&key| key >= 1000));
}

#[test]
fn the_threshold_comes_down_when_the_load_falls() {
    let mut cache = popularity(10_000, 100, 16, 32);
    for key in 0..200 {
        cache.requests(key, 100, 50 + key as u32);
    }
    let busy = cache.policy.threshold();
    assert!(busy > 30.0, "{busy}");
    let keys: Vec<u64> = cache.objects.keys().copied().collect();
    for key in keys {
        cache.purge(key);
    }
    for _ in 0..4 {
        cache.policy.handle_period_end();
    }
    assert_eq!(cache.policy.threshold(), 0.0, "an empty memory is a cold start again");
    cache.requests(5000, 100, 2);
    assert!(cache.objects.contains_key(&5000));
}

#[test]
fn a_shift_of_interest_is_followed_within_a_few_periods() {
    let mut cache = Cache::new(Popularity::new(&PopularityConfig::new(100_000, 1000)), 100_000);
    let mut noise = Noise(99);
    let mut shares = Vec::new();
    for period in 0..12 {
        let base = if period < 6 { 0 } else { 1_000_000 };
        (cache.hits, cache.misses) = (0, 0);
        for _ in 0..50_000 {
            cache.request(base + noise.zipf(20_000), 100);
        }
        shares.push(cache.hits as f64 / 50_000.0);
        cache.policy.handle_period_end();
    }
    assert!(shares[5] > 0.6, "{shares:?}");
    assert!(shares[8] > 0.9 * shares[5], "{shares:?}");
}

/// Bos et al. 2009, section 2.2: LRU suffers where the locality distance exceeds its stack.
#[test]
fn better_than_lru_where_the_locality_distance_exceeds_the_stack() {
    fn hits<P: Policy>(policy: P) -> u64 {
        let mut cache = Cache::new(policy, 100_000);
        let mut noise = Noise(7);
        let mut scanned = 1u64 << 40;
        for request in 0..600_000u32 {
            if request % 3 == 0 {
                cache.request(noise.zipf(20_000), 100);
            } else {
                scanned += 1;
                cache.request(scanned, 100);
            }
            if request % 50_000 == 49_999 {
                cache.policy.handle_period_end();
            }
        }
        cache.hits
    }
    let lru = hits(Lru::new(100_000, 1000));
    let popularity = hits(Popularity::new(&PopularityConfig::new(100_000, 1000)));
    assert!(popularity as f64 > 1.2 * lru as f64, "popularity {popularity}, lru {lru}");
}

#[test]
fn senseless_settings_and_calls_do_not_panic() {
    for alpha in [f32::NAN, f32::INFINITY, -1.0, 0.0] {
        let config = PopularityConfig {
            alpha,
            keys_max: 0,
            popular_low: u32::MAX,
            popular_high: 0,
            ..PopularityConfig::new(0, 0)
        };
        let mut policy = Popularity::new(&config);
        for key in 0..100 {
            policy.handle_hit(Key(key));
            policy.handle_remove(Key(key), Removal::Evicted);
            assert!(policy.handle_insert(Key(key), u64::MAX).is_err());
            assert_eq!(policy.handle_miss(Key(key), Some(u64::MAX)), Admission::Reject);
            assert_eq!(policy.handle_reply(Key(key + 1000), 0), Admission::Reject);
            policy.handle_period_end();
        }
        assert_eq!(policy.poll_victim(None), None);
    }
}

#[test]
fn with_room_what_is_asked_for_again_is_stored_however_late_and_gives_way_first() {
    let mut cache = popularity(300, 10, 4, 20);
    for key in 0..3 {
        cache.request(key, 100);
        for _ in 0..100 {
            cache.policy.handle_period_end();
        }
        assert!(!cache.policy.is_popular(Key(key)));
        cache.request(key, 100);
        assert!(cache.objects.contains_key(&key), "the second request, long after the first");
    }
    for _ in 0..100 {
        cache.policy.handle_period_end();
    }
    cache.requests(9, 100, 2);
    assert_eq!(
        cache.evicted,
        [0],
        "the unpopular one longest unused gives way to a popular one within the period"
    );
    assert!(cache.request(9, 100));
}
