//! What a cache did.

use serde::Serialize;

/// What a cache did for a workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Accesses of objects or blocks.
    pub accesses: u64,
    /// Accesses that found their object or block in the cache.
    pub hits: u64,
    /// Requests, each of one or more accesses.
    pub requests: u64,
    /// Requests of which all was found in the cache.
    pub request_hits: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Bytes sent that came from the cache.
    pub hit_bytes: u64,
    /// Entries that were out of date and went.
    pub purged: u64,
    /// Entries that made room.
    pub evicted: u64,
}

impl Counts {
    /// Adds what another cache did.
    pub fn add(&mut self, other: &Self) {
        self.accesses += other.accesses;
        self.hits += other.hits;
        self.requests += other.requests;
        self.request_hits += other.request_hits;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
        self.purged += other.purged;
        self.evicted += other.evicted;
    }

    /// Accesses that did not find their object.
    pub fn misses(&self) -> u64 {
        self.accesses - self.hits
    }

    /// Share of accesses that did not find their object, 0 to 1.
    pub fn miss_ratio(&self) -> f64 {
        self.misses() as f64 / self.accesses.max(1) as f64
    }

    /// Share of bytes that did not come from the cache, 0 to 1.
    pub fn byte_miss_ratio(&self) -> f64 {
        (self.bytes - self.hit_bytes) as f64 / self.bytes.max(1) as f64
    }
}
