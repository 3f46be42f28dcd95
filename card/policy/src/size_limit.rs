//! Large objects are not admitted: an admission filter in front of any policy.
//!
//! One large object takes the room of many small ones; where requests count and not bytes, that
//! seldom pays. Read first: Arlitt, Cherkasova, Dilley, Friedrich and Jin 2000, "Evaluating content
//! management techniques for web proxy caches" (hit rate against byte hit rate).
//!
//! The policy behind it sees every request all the same, for its ghosts and counts.

use std::time::Duration;

use crate::{Admission, Incoming, Key, Occupancy, Policy, Removal, TableFull};

/// A policy that does not see large objects inserted. It goes by the policy's name.
#[derive(Debug)]
pub struct SizeLimit<P> {
    policy: P,
    object_bytes_max: u64,
}

impl<P: Policy> SizeLimit<P> {
    /// Only objects of at most `object_bytes_max` are admitted, as far as `policy` does.
    pub fn new(policy: P, object_bytes_max: u64) -> Self {
        Self { policy, object_bytes_max }
    }
}

impl<P: Policy> Policy for SizeLimit<P> {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.policy.contains(key)
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        self.policy.handle_hit(key);
    }

    #[inline]
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        let admission = self.policy.handle_miss(key, bytes);
        if bytes.is_some_and(|bytes| bytes > self.object_bytes_max) {
            Admission::Reject
        } else {
            admission
        }
    }

    #[inline]
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        let admission = self.policy.handle_reply(key, bytes);
        if bytes > self.object_bytes_max { Admission::Reject } else { admission }
    }

    #[inline]
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.policy.handle_insert(key, bytes)
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        self.policy.handle_remove(key, removal);
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.policy.poll_victim(incoming)
    }

    #[inline]
    fn handle_request(&mut self, key: Key) -> bool {
        self.policy.handle_request(key)
    }

    #[inline]
    fn evict(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.policy.evict(incoming)
    }

    fn handle_period_end(&mut self) {
        self.policy.handle_period_end();
    }

    fn period(&self) -> Option<Duration> {
        self.policy.period()
    }

    fn occupancy(&self) -> Occupancy {
        self.policy.occupancy()
    }
}
