//! No sequence of calls panics, whatever the sizes and limits, and all that came goes.

use nicache_policy::{
    Clock, Key, Lru, Mru, Occupancy, Policy, Random, Removal, S3Fifo, SecondHit, Sieve, SizeLimit,
    TwoQ,
};
use proptest::prelude::*;

use crate::naive::{Step, endure_step, steps};

/// Small, large, and beyond what sums can hold.
fn stretch(bytes: u64) -> u64 {
    if bytes % 2 == 1 { u64::MAX - bytes } else { bytes }
}

fn endure<P: Policy>(mut policy: P, ghosts_max: usize, steps: &[Step]) {
    for step in steps {
        endure_step(&mut policy, step, stretch);
        assert!(policy.occupancy().ghosts <= ghosts_max);
    }
    // Not a ghost comes of a purge.
    let ghosts = policy.occupancy().ghosts;
    for key in 0..24 {
        policy.handle_remove(Key(key), Removal::Purged);
    }
    assert_eq!(policy.occupancy(), Occupancy { objects: 0, bytes: 0, ghosts });
}

proptest! {
    #[test]
    fn no_calls_panic(
        bytes_max: u64,
        objects_max in 0u32..9,
        keys_max in 0u32..9,
        seed: u64,
        steps in steps(),
    ) {
        let (ghosts_max, keys) = (objects_max as usize + 1, keys_max as usize);
        endure(Mru::new(bytes_max, objects_max), 0, &steps);
        endure(Clock::with_bits(bytes_max, objects_max, seed as u8), 0, &steps);
        endure(Sieve::new(bytes_max, objects_max), 0, &steps);
        endure(Random::new(bytes_max, objects_max, seed), 0, &steps);
        endure(S3Fifo::new(bytes_max, objects_max), ghosts_max, &steps);
        endure(TwoQ::new(bytes_max, objects_max), ghosts_max, &steps);
        endure(SizeLimit::new(Lru::new(bytes_max, objects_max), seed), 0, &steps);
        endure(
            SecondHit::new(TwoQ::new(bytes_max, objects_max), keys_max),
            ghosts_max + keys,
            &steps,
        );
    }
}
