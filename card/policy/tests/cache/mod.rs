//! A cache of names and sizes, driven as the card drives it: what the policy says is done at once.

use std::collections::HashMap;

use nicache_policy::{Admission, Incoming, Key, Policy, Removal};

pub(crate) struct Cache<P> {
    pub policy: P,
    pub objects: HashMap<u64, u64>,
    pub bytes: u64,
    pub bytes_max: u64,
    pub hits: u64,
    pub misses: u64,
    pub evicted: Vec<u64>,
}

impl<P: Policy> Cache<P> {
    pub(crate) fn new(policy: P, bytes_max: u64) -> Self {
        Self {
            policy,
            objects: HashMap::new(),
            bytes: 0,
            bytes_max,
            hits: 0,
            misses: 0,
            evicted: Vec::new(),
        }
    }

    /// One request; true if it was a hit.
    pub(crate) fn request(&mut self, key: u64, bytes: u64) -> bool {
        if self.objects.contains_key(&key) {
            self.policy.handle_hit(Key(key));
            self.hits += 1;
            return true;
        }
        self.misses += 1;
        let admitted = self.policy.handle_miss(Key(key), None);
        let fits = self.policy.handle_reply(Key(key), bytes);
        if (admitted, fits) == (Admission::Admit, Admission::Admit) {
            self.store(key, bytes);
        }
        false
    }

    fn store(&mut self, key: u64, bytes: u64) {
        while self.bytes + bytes > self.bytes_max
            || self.policy.handle_insert(Key(key), bytes).is_err()
        {
            let Some(victim) = self.policy.poll_victim(Some(Incoming { key: Key(key), bytes }))
            else {
                return;
            };
            assert_ne!(victim, Key(key));
            self.evicted.push(victim.0);
            self.remove(victim.0, Removal::Evicted);
        }
        assert_eq!(self.objects.insert(key, bytes), None);
        self.bytes += bytes;
        let occupancy = self.policy.occupancy();
        assert_eq!((occupancy.objects, occupancy.bytes), (self.objects.len(), self.bytes));
    }

    pub(crate) fn remove(&mut self, key: u64, removal: Removal) {
        let bytes = self.objects.remove(&key).expect("only what is there is removed");
        self.bytes -= bytes;
        self.policy.handle_remove(Key(key), removal);
    }
}
