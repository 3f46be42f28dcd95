//! An object is admitted at its second miss: an admission filter in front of any policy.
//!
//! Read first: Maggs and Sitaraman 2015, "Algorithmic nuggets in content delivery" (Computer
//! Communication Review 45(3)): about three quarters of the objects asked for at a proxy are asked
//! for once, and storing them costs room and work for nothing. There the memory is a Bloom filter;
//! here it is the last keys themselves, in the order of their first miss, so it forgets one by
//! one and never mistakes a key for another.
//!
//! A key leaves the memory when its object is inserted: after that object's eviction two misses are
//! wanted again. An insertion that does not follow an admission does not concern the filter. The
//! policy behind it sees every request all the same.
//!
//! Every operation is O(1) beyond the policy's.

use std::time::Duration;

use crate::{
    Admission, Incoming, Key, Linked, Links, List, Occupancy, Policy, Removal, Table, TableFull,
};

/// A policy that sees only objects inserted that were missed twice. It goes by the policy's name,
/// and its ghosts count the keys in memory, too (a key that the policy remembers as well counts
/// twice).
#[derive(Debug)]
pub struct SecondHit<P> {
    policy: P,
    /// Missed once or oftener and not inserted since.
    missed: Table<Missed>,
    /// Newest in front.
    order: List,
}

#[derive(Clone, Debug, Default)]
struct Missed(Links);

impl Linked for Missed {
    #[inline]
    fn links(&self) -> &Links {
        &self.0
    }
    #[inline]
    fn links_mut(&mut self) -> &mut Links {
        &mut self.0
    }
}

impl<P: Policy> SecondHit<P> {
    /// A policy that admits what is asked for again while it is among the last `keys_max` keys that
    /// were missed, 32 to 40 bytes each. One of 0 keys admits nothing.
    pub fn new(policy: P, keys_max: u32) -> Self {
        Self { policy, missed: Table::new(keys_max as usize), order: List::default() }
    }

    fn remember(&mut self, key: Key) {
        if self.missed.len() == self.missed.capacity() {
            let Some(oldest) = self.order.back() else {
                return;
            };
            self.order.remove(&mut self.missed, oldest);
            self.missed.remove(oldest);
        }
        if let Some(place) = self.missed.insert(key, Missed::default()) {
            self.order.push_front(&mut self.missed, place);
        }
    }
}

impl<P: Policy> Policy for SecondHit<P> {
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

    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        let admission = self.policy.handle_miss(key, bytes);
        if self.missed.find(key).is_some() {
            return admission;
        }
        self.remember(key);
        Admission::Reject
    }

    #[inline]
    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        self.policy.handle_reply(key, bytes)
    }

    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.policy.handle_insert(key, bytes)?;
        if let Some(place) = self.missed.find(key) {
            self.order.remove(&mut self.missed, place);
            self.missed.remove(place);
        }
        Ok(())
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
        let occupancy = self.policy.occupancy();
        Occupancy { ghosts: occupancy.ghosts + self.missed.len(), ..occupancy }
    }
}
