//! LIRS against a stack and a queue that are searched, as Jiang and Zhang 2002, section 3, describe
//! them.

use std::collections::HashMap;

use nicache_policy::{
    Admission, Incoming, Key, Lirs, LirsConfig, Occupancy, Policy, Removal, TableFull,
};

use crate::twin::{calls, compare, endure_senseless_sizes, request};
use proptest::prelude::*;

/// S and Q.
pub(crate) struct Stack {
    /// S, from its top.
    stack: Vec<Key>,
    /// Q, from its front.
    queue: Vec<Key>,
    lirs: Vec<Key>,
    /// Objects of S that are not in memory, in the order of their eviction.
    ghosts: Vec<Key>,
    sizes: HashMap<Key, u64>,
    bytes_max: u64,
    objects_max: usize,
    lir_bytes_max: u128,
    sized_lir_bytes_max: u128,
    /// All sizes that have come.
    seen: Vec<u64>,
    lir_objects_max: usize,
}

fn take(keys: &mut Vec<Key>, key: Key) -> bool {
    let at = keys.iter().position(|&other| other == key);
    at.map(|at| keys.remove(at)).is_some()
}

impl Stack {
    pub(crate) fn new(
        bytes_max: u64,
        objects_max: usize,
        hir_share: f64,
        sized_hir_share: f64,
    ) -> Self {
        let hir_bytes = ((bytes_max as f64 * hir_share) as u64).max(1);
        let sized_hir_bytes = ((bytes_max as f64 * sized_hir_share) as u64).max(hir_bytes);
        let hir_objects = ((objects_max as f64 * hir_share) as usize).max(1);
        Self {
            stack: Vec::new(),
            queue: Vec::new(),
            lirs: Vec::new(),
            ghosts: Vec::new(),
            sizes: HashMap::new(),
            bytes_max,
            objects_max,
            lir_bytes_max: u128::from(bytes_max - hir_bytes),
            sized_lir_bytes_max: u128::from(bytes_max - sized_hir_bytes),
            seen: Vec::new(),
            lir_objects_max: objects_max - hir_objects,
        }
    }
    fn bytes<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> u128 {
        keys.into_iter().map(|key| u128::from(self.sizes[key])).sum()
    }
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.last().copied() {
            if self.lirs.is_empty() || self.lirs.contains(&bottom) {
                break;
            }
            self.stack.pop();
            take(&mut self.ghosts, bottom);
        }
    }
    fn demote(&mut self) {
        self.prune();
        while self.bytes(&self.lirs) > self.lir_bytes_max || self.lirs.len() > self.lir_objects_max
        {
            let bottom = self.stack.pop().unwrap();
            assert!(take(&mut self.lirs, bottom));
            self.queue.push(bottom);
            self.prune();
        }
    }
    fn bound(&mut self) {
        while (self.bytes(&self.stack) > 2 * u128::from(self.bytes_max)
            || self.stack.len() > 2 * self.objects_max)
            && !self.ghosts.is_empty()
        {
            let oldest = self.ghosts.remove(0);
            take(&mut self.stack, oldest);
        }
    }
    fn use_now(&mut self, key: Key) {
        let was_stacked = take(&mut self.stack, key);
        self.stack.insert(0, key);
        if !self.lirs.contains(&key) {
            take(&mut self.queue, key);
            take(&mut self.ghosts, key);
            let fits =
                u128::from(self.sizes[&key]) <= self.lir_bytes_max && self.lir_objects_max > 0;
            if was_stacked && fits {
                self.lirs.push(key);
            } else {
                self.queue.push(key);
            }
        }
        self.demote();
        self.bound();
    }
    fn forget(&mut self, key: Key) {
        for keys in [&mut self.stack, &mut self.queue, &mut self.lirs, &mut self.ghosts] {
            take(keys, key);
        }
        self.prune();
    }
}

impl Policy for Stack {
    fn name(&self) -> &'static str {
        "model"
    }
    fn contains(&self, key: Key) -> bool {
        self.lirs.contains(&key) || self.queue.contains(&key)
    }
    fn handle_hit(&mut self, key: Key) {
        if self.contains(key) {
            self.use_now(key);
        }
    }
    fn handle_miss(&mut self, _: Key, bytes: Option<u64>) -> Admission {
        self.admits(bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        if !self.contains(key) && self.occupancy().objects == self.objects_max {
            return Err(TableFull);
        }
        self.seen.push(bytes);
        if self.seen.iter().any(|&size| size != bytes)
            && self.lir_bytes_max != self.sized_lir_bytes_max
        {
            self.lir_bytes_max = self.sized_lir_bytes_max;
            self.demote();
        }
        self.seen.dedup();
        let lir_bytes = self.bytes(&self.lirs) + u128::from(bytes);
        let has_room = lir_bytes <= self.lir_bytes_max && self.lirs.len() < self.lir_objects_max;
        self.sizes.insert(key, bytes);
        let is_known = self.contains(key) || self.ghosts.contains(&key);
        if !is_known && self.queue.is_empty() && has_room {
            self.stack.insert(0, key);
            self.lirs.push(key);
            self.prune();
            self.bound();
        } else {
            self.use_now(key);
        }
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        match removal {
            Removal::Refused => {}
            Removal::Purged => self.forget(key),
            Removal::Evicted if self.queue.contains(&key) && self.stack.contains(&key) => {
                take(&mut self.queue, key);
                self.ghosts.push(key);
                self.bound();
            }
            Removal::Evicted if self.contains(key) => self.forget(key),
            Removal::Evicted => {}
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let bottom_lirs = self.stack.iter().rev().filter(|key| self.lirs.contains(key));
        let mut order = self.queue.iter().chain(bottom_lirs).copied();
        order.find(|&key| Some(key) != incoming.map(|incoming| incoming.key))
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.bytes(self.lirs.iter().chain(&self.queue)) as u64;
        Occupancy { objects: self.lirs.len() + self.queue.len(), bytes, ghosts: self.ghosts.len() }
    }
}

fn lirs(bytes_max: u64, objects_max: u32, hir_share: f64, sized_hir_share: f64) -> Lirs {
    Lirs::with_config(&LirsConfig {
        hir_share,
        sized_hir_share,
        ..LirsConfig::new(bytes_max, objects_max)
    })
}

proptest! {
    #[test]
    fn behaves_like_a_searched_stack(
        objects_max in 1u32..12,
        of_four in 0u64..5,
        sized in 0u64..5,
        calls in calls(),
    ) {
        let mut model =
            Stack::new(1000, objects_max as usize, of_four as f64 / 4.0, sized as f64 / 4.0);
        let mut policy = lirs(1000, objects_max, of_four as f64 / 4.0, sized as f64 / 4.0);
        compare(&mut policy, &mut model, 1000, 2 * objects_max as usize, calls)?;
    }

    #[test]
    fn of_one_size_it_behaves_like_a_searched_stack(
        objects_max in 2u64..12,
        pages in prop::collection::vec(prop_oneof![0u64..6, 0u64..30], 0..600),
    ) {
        let mut model = Stack::new(objects_max, objects_max as usize, 0.01, 0.2);
        let mut policy = Lirs::new(objects_max, objects_max as u32);
        for page in pages {
            let both = (
                request(&mut policy, page, 1, objects_max),
                request(&mut model, page, 1, objects_max),
            );
            prop_assert_eq!(both.0, both.1);
            prop_assert_eq!(policy.occupancy(), model.occupancy());
        }
    }
}

/// Jiang and Zhang 2002, section 1: LRU has no hit in a loop that is a little larger than the
/// memory.
#[test]
fn a_loop_has_hits() {
    let mut policy = Lirs::new(100, 100);
    let hits = (0..10_000u64).filter(|at| request(&mut policy, at % 110, 1, 100).0).count();
    assert!(hits > 8_000, "{hits}");
}

#[test]
fn senseless_settings_do_not_panic() {
    endure_senseless_sizes(Lirs::new);
    for share in [f64::NAN, -1.0, 0.0, 0.5, 1e300] {
        endure_senseless_sizes(|bytes_max, objects_max| {
            let config = LirsConfig {
                hir_share: share,
                sized_hir_share: share,
                stack_share: share,
                ..LirsConfig::new(bytes_max, objects_max)
            };
            Lirs::with_config(&config)
        });
    }
}
