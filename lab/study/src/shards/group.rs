//! One sample of objects, of bounded size.

use std::collections::BinaryHeap;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::recency::{Recency, Sums};

/// Steps of a histogram of distances between one power of two and the next.
const STEPS: f64 = 32.0;
/// Distances up to 2^64.
const BUCKETS: usize = 64 * STEPS as usize + 1;

/// The sample.
#[derive(Debug)]
pub(super) struct Group {
    /// Objects by hash.
    numbers: HashMap<u64, u32, FixedState>,
    free: Vec<u32>,
    /// The largest hash is dropped first.
    hashes: BinaryHeap<u64>,
    recency: Recency<Sums>,
    objects_max: u32,
    /// Share of all objects that is in this group.
    share: f64,
    /// Hashes below it are followed; hashes are less than 2^61.
    threshold: u64,
    /// Hits by distance among all objects: number and bytes.
    by_distance: Vec<(f64, f64)>,
    /// Requests and bytes of the objects followed, as by_distance is counted.
    followed: (f64, f64),
}

const HASH_MAX: u64 = 1 << 61;

impl Group {
    /// At most so many objects are followed, of a group that has this share of all.
    pub(super) fn new(objects_max: u32, share: f64) -> Self {
        Self {
            numbers: HashMap::with_capacity_and_hasher(
                objects_max as usize + 1,
                FixedState::default(),
            ),
            free: (0..=objects_max).rev().collect(),
            hashes: BinaryHeap::with_capacity(objects_max as usize + 1),
            recency: Recency::new(objects_max + 1, Sums::default()),
            objects_max,
            share,
            threshold: HASH_MAX,
            by_distance: vec![(0.0, 0.0); BUCKETS],
            followed: (0.0, 0.0),
        }
    }

    /// Share of the group's objects that is followed.
    pub(super) fn rate(&self) -> f64 {
        self.threshold as f64 / HASH_MAX as f64
    }

    /// A request for an object with this hash (less than 2^61).
    #[inline]
    pub(super) fn request(&mut self, hash: u64, room: u64, bytes: u64) {
        if hash < self.threshold {
            self.follow(hash, room, bytes);
        }
    }

    fn follow(&mut self, hash: u64, room: u64, bytes: u64) {
        let number = match self.numbers.get(&hash) {
            Some(&number) => number,
            None => {
                let Some(number) = self.free.pop() else { return };
                self.numbers.insert(hash, number);
                self.hashes.push(hash);
                number
            }
        };
        self.followed.0 += 1.0;
        self.followed.1 += bytes as f64;
        if let Some(before) = self.recency.access(number, room) {
            // Its own room is not a sample of anything.
            let distance = before.since as f64 / (self.share * self.rate()) + before.room as f64;
            let bucket = &mut self.by_distance[bucket_of(distance)];
            bucket.0 += 1.0;
            bucket.1 += bytes as f64;
        }
        if self.numbers.len() > self.objects_max as usize {
            self.lower_threshold();
        }
    }

    fn lower_threshold(&mut self) {
        let Some(hash) = self.hashes.pop() else { return };
        if let Some(number) = self.numbers.remove(&hash) {
            self.recency.forget(number);
            self.free.push(number);
        }
        let share = hash as f64 / self.threshold as f64;
        self.threshold = hash;
        for bucket in &mut self.by_distance {
            *bucket = (bucket.0 * share, bucket.1 * share);
        }
        self.followed = (self.followed.0 * share, self.followed.1 * share);
    }

    /// Share of requests that are misses of a cache of this size, if there were so many of all
    /// objects.
    pub(super) fn miss_ratio(&self, size: f64, requests: u64) -> f64 {
        let requests = requests as f64 * self.share;
        let hits: f64 = self.by_distance[..=bucket_of(size)].iter().map(|bucket| bucket.0).sum();
        (self.followed.0 - hits) / (requests * self.rate()).max(1.0)
    }

    /// Share of bytes that are misses of a cache of this size, if there were so many of all
    /// objects.
    pub(super) fn byte_miss_ratio(&self, size: f64, bytes: u128) -> f64 {
        let bytes = bytes as f64 * self.share;
        let hits: f64 = self.by_distance[..=bucket_of(size)].iter().map(|bucket| bucket.1).sum();
        (self.followed.1 - hits) / (bytes * self.rate()).max(1.0)
    }
}

fn bucket_of(distance: f64) -> usize {
    if distance < 1.0 { 0 } else { ((distance.log2() * STEPS) as usize + 1).min(BUCKETS - 1) }
}
