//! Nanoseconds per operation of each policy, and the length of a period's end.
//!
//! `cargo bench -p nicache-policy`. Times are CPU time of the thread, the least of several batches,
//! so other work on the machine disturbs them little.

use std::hint::black_box;

use nicache_policy::{
    Arc, Belady, Clock, Fifo, Gdsf, Incoming, Key, Lfu, Lirs, Lrfu, Lru, Mru, Policy, Popularity,
    PopularityConfig, Random, Removal, S3Fifo, Sieve, TwoQ, WTinyLfu,
};

const ROUNDS: u64 = 200_000;
const BATCHES: u64 = 15;

fn main() {
    for objects in [1_000u32, 32_768, 262_144] {
        let bytes_max = u64::from(objects) * 2048;
        measure(Fifo::new(bytes_max, objects), objects);
        measure(Lru::new(bytes_max, objects), objects);
        measure(Mru::new(bytes_max, objects), objects);
        measure(Random::new(bytes_max, objects, 1), objects);
        measure(Clock::new(bytes_max, objects), objects);
        measure(Sieve::new(bytes_max, objects), objects);
        measure(S3Fifo::new(bytes_max, objects), objects);
        measure(TwoQ::new(bytes_max, objects), objects);
        measure(Lfu::new(bytes_max, objects), objects);
        measure(Lfu::without_ageing(bytes_max, objects), objects);
        measure(Lrfu::new(bytes_max, objects), objects);
        measure(Gdsf::new(bytes_max, objects), objects);
        measure(Arc::new(bytes_max, objects), objects);
        measure(Lirs::new(bytes_max, objects), objects);
        measure(WTinyLfu::new(bytes_max, objects), objects);
        // Of a future in which each object is used once more.
        let future = (0..2 * u64::from(objects)).map(|at| Key(scatter(at % u64::from(objects))));
        measure(Belady::new(bytes_max, objects, future), objects);
        measure(Popularity::new(&PopularityConfig::new(bytes_max, objects)), objects);
    }
}

fn measure<P: Policy>(mut policy: P, objects: u32) {
    let name = policy.name();
    for key in 0..u64::from(objects) {
        policy.handle_miss(Key(scatter(key)), Some(2048));
        policy.handle_miss(Key(scatter(key)), Some(2048));
        policy.handle_insert(Key(scatter(key)), 2048).unwrap();
    }
    let hit = per_operation(|at| policy.handle_hit(Key(scatter(mix(at) % u64::from(objects)))));
    let miss = per_operation(|at| {
        black_box(policy.handle_miss(Key(scatter(u64::from(objects) + at)), None));
    });
    let replace = per_operation(|at| {
        let incoming = Incoming { key: Key(scatter(1 << 40 | at)), bytes: 2048 };
        policy.handle_miss(incoming.key, Some(2048));
        if let Some(victim) = policy.poll_victim(None) {
            policy.handle_remove(victim, Removal::Evicted);
            let _ = policy.handle_insert(incoming.key, 2048);
        }
    });
    let mut period_end = f64::INFINITY;
    for round in 0..15 {
        for at in 0..1_000_000 {
            let rank = (f64::from(objects) * 2.0).powf(mix(at) as f64 / u64::MAX as f64) as u64;
            policy.handle_miss(Key(scatter(rank)), Some(2048));
        }
        let start = cpu_ns();
        policy.handle_period_end();
        // The first ones sort less.
        if round >= 5 {
            period_end = period_end.min(cpu_ns() - start);
        }
    }
    println!(
        "{name}, {objects} objects: hit {hit:.0} ns, miss of a new key {miss:.0} ns, \
         miss + victim + removal + insertion {replace:.0} ns, period end {:.0} us",
        period_end / 1e3
    );
}

fn per_operation(mut operation: impl FnMut(u64)) -> f64 {
    let mut least = f64::INFINITY;
    for batch in 0..BATCHES {
        let start = cpu_ns();
        for at in batch * ROUNDS..(batch + 1) * ROUNDS {
            operation(at);
        }
        least = least.min((cpu_ns() - start) / ROUNDS as f64);
    }
    least
}

fn cpu_ns() -> f64 {
    nicache_clock::thread_cpu_ns() as f64
}

fn mix(at: u64) -> u64 {
    let hash =
        (at ^ (at >> 30)).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (hash >> 29)
}

fn scatter(key: u64) -> u64 {
    key.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
