//! W-TinyLFU against lists that are searched and exact counts, with a sketch that is so large that
//! no keys collide.

use std::collections::HashMap;

use nicache_policy::{
    Admission, Incoming, Key, Lru, Occupancy, Policy, Removal, TableFull, WTinyLfu, WTinyLfuConfig,
};

use crate::traces::simulate;
use crate::twin::{calls, compare, endure_senseless_sizes};
use proptest::prelude::*;

/// The parts of the memory.
pub(crate) struct Lists {
    /// Window, probation, protected; most recently used in front.
    lists: [Vec<(Key, u64)>; 3],
    counts: HashMap<Key, u32>,
    requests: usize,
    bytes_max: u64,
    objects_max: usize,
    /// Objects and bytes.
    window_max: (usize, u64),
    protected_max: (usize, u64),
}

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

impl Lists {
    pub(crate) fn new(
        bytes_max: u64,
        objects_max: usize,
        window_share: f64,
        protected_share: f64,
    ) -> Self {
        let share = |all: u64, share: f64| (all as f64 * share) as u64;
        let objects = objects_max as u64;
        let window_objects = share(objects, window_share).max(1);
        let window_bytes = share(bytes_max, window_share).max(bytes_max / objects);
        Self {
            lists: Default::default(),
            counts: HashMap::new(),
            requests: 0,
            bytes_max,
            objects_max,
            window_max: (window_objects as usize, window_bytes),
            protected_max: (
                share(objects - window_objects, protected_share) as usize,
                share(bytes_max - window_bytes, protected_share),
            ),
        }
    }
    fn find(&self, key: Key) -> Option<usize> {
        (0..3).find(|&list| self.lists[list].iter().any(|object| object.0 == key))
    }
    fn bytes(&self, list: usize) -> u128 {
        self.lists[list].iter().map(|object| u128::from(object.1)).sum()
    }
    fn objects(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }
    fn take(&mut self, key: Key) -> Option<(Key, u64)> {
        let list = self.find(key)?;
        let at = self.lists[list].iter().position(|object| object.0 == key)?;
        Some(self.lists[list].remove(at))
    }
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }
    fn count(&mut self, key: Key) {
        let count = self.counts.entry(key).or_default();
        *count = (*count + 1).min(15);
        self.requests += 1;
        if self.requests >= 10 * self.objects().max(1) {
            self.counts.values_mut().for_each(|count| *count /= 2);
            self.requests /= 2;
        }
    }
    fn frequency(&self, key: Key) -> u32 {
        self.counts.get(&key).copied().unwrap_or(0)
    }
    fn settle(&mut self) {
        for (list, (objects, bytes)) in [(WINDOW, self.window_max), (PROTECTED, self.protected_max)]
        {
            while self.lists[list].len() > objects || self.bytes(list) > u128::from(bytes) {
                let last = self.lists[list].pop().unwrap();
                self.lists[PROBATION].insert(0, last);
            }
        }
    }
}

impl Policy for Lists {
    fn name(&self) -> &'static str {
        "model"
    }
    fn contains(&self, key: Key) -> bool {
        self.find(key).is_some()
    }
    fn handle_hit(&mut self, key: Key) {
        self.count(key);
        if let Some(list) = self.find(key) {
            let object = self.take(key).unwrap();
            self.lists[if list == WINDOW { WINDOW } else { PROTECTED }].insert(0, object);
            self.settle();
        }
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        self.count(key);
        self.admits(bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        if let Some(list) = self.find(key) {
            self.take(key);
            self.lists[if list == WINDOW { WINDOW } else { PROTECTED }].insert(0, (key, bytes));
        } else if self.objects() == self.objects_max {
            return Err(TableFull);
        } else {
            self.lists[if bytes > self.window_max.1 { PROBATION } else { WINDOW }]
                .insert(0, (key, bytes));
        }
        self.settle();
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused {
            self.take(key);
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let key = incoming.map(|incoming| incoming.key);
        let last = |list: usize| {
            self.lists[list].iter().rev().map(|object| object.0).find(|&other| Some(other) != key)
        };
        let window = last(WINDOW);
        let main = last(PROBATION).or_else(|| last(PROTECTED));
        let Some((main, window)) = main.zip(window) else {
            let victim = main.or(window)?;
            let is_worth_it = incoming.is_none_or(|incoming| {
                incoming.bytes <= self.window_max.1
                    || self.frequency(incoming.key) > self.frequency(victim)
            });
            return is_worth_it.then_some(victim);
        };
        if let Some(incoming) = incoming {
            if incoming.bytes > self.window_max.1 {
                return (self.frequency(incoming.key) > self.frequency(main)).then_some(main);
            }
            let bytes = self.bytes(WINDOW) + u128::from(incoming.bytes);
            if self.lists[WINDOW].len() < self.window_max.0
                && bytes <= u128::from(self.window_max.1)
            {
                return Some(main);
            }
        }
        Some(if self.frequency(window) > self.frequency(main) { main } else { window })
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = (0..3).map(|list| self.bytes(list)).sum::<u128>() as u64;
        Occupancy { objects: self.objects(), bytes, ghosts: 0 }
    }
}

proptest! {
    #[test]
    fn behaves_like_searched_lists(objects_max in 1u32..12, of_four in 0u64..5, calls in calls()) {
        let mut model = Lists::new(1000, objects_max as usize, of_four as f64 / 4.0, 0.5);
        let mut policy = WTinyLfu::with_config(&WTinyLfuConfig {
            window_share: of_four as f64 / 4.0,
            protected_share: 0.5,
            counters: 1 << 20,
            ..WTinyLfuConfig::new(1000, objects_max)
        });
        compare(&mut policy, &mut model, 1000, 0, calls)?;
    }
}

/// Einziger et al. 2017, section 1: one-hit wonders do not drive the popular objects out.
#[test]
fn a_scan_does_not_drive_popular_objects_out() {
    let requests: Vec<(u64, u64)> = (0..50_000u64)
        .map(|at| if at % 2 == 0 { (at / 2 * 7 % 90, 1) } else { (1000 + at, 1) })
        .collect();
    let lru = simulate(Lru::new(100, 100), 100, &requests).0;
    let w_tiny_lfu = simulate(WTinyLfu::new(100, 100), 100, &requests).0;
    assert_eq!(lru, 50_000);
    assert!(w_tiny_lfu < 26_000, "{w_tiny_lfu}");
}

#[test]
fn senseless_settings_do_not_panic() {
    endure_senseless_sizes(WTinyLfu::new);
    for share in [f64::NAN, -1.0, 0.0, 0.5, 1e300] {
        endure_senseless_sizes(|bytes_max, objects_max| {
            WTinyLfu::with_config(&WTinyLfuConfig {
                window_share: share,
                protected_share: share,
                sample_per_object: 0,
                counters: 0,
                ..WTinyLfuConfig::new(bytes_max, objects_max)
            })
        });
    }
}
