//! Belady's bound against a search of the future, against the optimum of small cases, and against
//! every other policy.

use std::collections::{BTreeSet, HashMap};

use nicache_policy::{
    Admission, Arc, Belady, Clock, Fifo, Gdsf, Incoming, Key, Lfu, Lirs, Lrfu, LrfuConfig, Lru,
    Mru, Occupancy, Policy, Popularity, PopularityConfig, Random, Removal, S3Fifo, SecondHit,
    Sieve, TableFull, TwoQ, WTinyLfu,
};

use crate::traces::simulate;
use crate::twin::{KEYS, calls, compare, endure_senseless_sizes};
use proptest::prelude::*;

struct Search {
    future: Vec<u64>,
    now: usize,
    objects: Vec<Object>,
    uses: u64,
    may_decline: bool,
    objects_max: usize,
}

struct Object {
    key: Key,
    bytes: u64,
    /// At its last use.
    next_use: usize,
    used: u64,
}

impl Search {
    fn next_use(&self, key: Key) -> usize {
        let rest = self.future.iter().enumerate().skip(self.now);
        rest.filter(|request| *request.1 == key.0)
            .map(|request| request.0)
            .next()
            .unwrap_or(usize::MAX)
    }
    fn note_use(&mut self, key: Key) {
        let next_use = self.next_use(key);
        if let Some(object) = self.objects.iter_mut().find(|object| object.key == key) {
            self.uses += 1;
            (object.next_use, object.used) = (next_use, self.uses);
        }
    }
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= 1000 && self.objects_max > 0 { Admission::Admit } else { Admission::Reject }
    }
}

impl Policy for Search {
    fn name(&self) -> &'static str {
        "model"
    }
    fn contains(&self, key: Key) -> bool {
        self.objects.iter().any(|object| object.key == key)
    }
    fn handle_hit(&mut self, key: Key) {
        self.now += 1;
        self.note_use(key);
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        self.handle_hit(key);
        self.admits(bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        let is_full = self.objects.len() == self.objects_max;
        match self.objects.iter_mut().find(|object| object.key == key) {
            Some(object) => object.bytes = bytes,
            None if is_full => return Err(TableFull),
            None => self.objects.push(Object { key, bytes, next_use: 0, used: 0 }),
        }
        self.note_use(key);
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused {
            self.objects.retain(|object| object.key != key);
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let others = self
            .objects
            .iter()
            .filter(|object| Some(object.key) != incoming.map(|incoming| incoming.key));
        let victim =
            others.min_by_key(|object| (std::cmp::Reverse(object.next_use), object.used))?;
        let declines = self.may_decline
            && incoming.is_some_and(|incoming| self.next_use(incoming.key) >= victim.next_use);
        (!declines).then_some(victim.key)
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().fold(0u64, |sum, object| sum.wrapping_add(object.bytes));
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

fn new(bytes_max: u64, objects_max: u32, future: &[u64], may_decline: bool) -> Belady {
    let future = future.iter().map(|&key| Key(key));
    let new = if may_decline { Belady::new } else { Belady::storing_all };
    new(bytes_max, objects_max, future)
}

/// The fewest misses: for each set of objects that may be in memory, the fewest that lead there.
fn fewest_misses(requests: &[u64], objects_max: usize, may_decline: bool) -> u64 {
    let mut states = HashMap::from([(BTreeSet::new(), 0u64)]);
    for key in requests {
        let mut next: HashMap<BTreeSet<u64>, u64> = HashMap::new();
        let mut reach = |state: BTreeSet<u64>, misses: u64| {
            let least = next.entry(state).or_insert(misses);
            *least = misses.min(*least);
        };
        for (state, misses) in states {
            if state.contains(key) {
                reach(state, misses);
                continue;
            }
            let mut stored = state.clone();
            stored.insert(*key);
            if may_decline {
                reach(state.clone(), misses + 1);
            }
            if stored.len() <= objects_max {
                reach(stored, misses + 1);
            } else {
                for victim in &state {
                    let mut rest = stored.clone();
                    rest.remove(victim);
                    reach(rest, misses + 1);
                }
            }
        }
        states = next;
    }
    states.into_values().min().unwrap_or(0)
}

proptest! {
    #[test]
    fn behaves_like_a_search(
        objects_max in 1u32..12,
        may_decline: bool,
        future in prop::collection::vec(0..KEYS - 2, 0..500),
        calls in calls(),
    ) {
        let model_max = objects_max as usize;
        let mut policy = new(1000, objects_max, &future, may_decline);
        let mut model = Search {
            future,
            now: 0,
            objects: Vec::new(),
            uses: 0,
            may_decline,
            objects_max: model_max,
        };
        // Calls that are not the foretold ones.
        compare(&mut policy, &mut model, 1000, 0, calls)?;
    }

    #[test]
    fn follows_its_future(
        objects_max in 1u32..12,
        may_decline: bool,
        requests in prop::collection::vec((0u64..40, 1u64..300), 0..400),
    ) {
        let future: Vec<u64> = requests.iter().map(|request| request.0).collect();
        let mut policy = new(1000, objects_max, &future, may_decline);
        let objects_max = objects_max as usize;
        let mut model =
            Search { future, now: 0, objects: Vec::new(), uses: 0, may_decline, objects_max };
        for (key, bytes) in requests {
            prop_assert_eq!(
                crate::twin::request(&mut policy, key, bytes, 1000),
                crate::twin::request(&mut model, key, bytes, 1000)
            );
            prop_assert_eq!(policy.occupancy(), model.occupancy());
        }
    }

    #[test]
    fn is_the_optimum(
        objects_max in 1u32..5,
        may_decline: bool,
        requests in prop::collection::vec((0u64..7, Just(1u64)), 0..40),
    ) {
        let future: Vec<u64> = requests.iter().map(|request| request.0).collect();
        let policy = new(u64::from(objects_max), objects_max, &future, may_decline);
        let (misses, _) = simulate(policy, u64::from(objects_max), &requests);
        prop_assert_eq!(misses, fewest_misses(&future, objects_max as usize, may_decline));
    }

    #[test]
    fn no_policy_beats_it(
        objects_max in 1u32..30,
        requests in prop::collection::vec((prop_oneof![0u64..8, 0u64..60], Just(1u64)), 0..600),
    ) {
        let bytes_max = u64::from(objects_max);
        let future: Vec<u64> = requests.iter().map(|request| request.0).collect();
        let misses = |may_decline| {
            simulate(new(bytes_max, objects_max, &future, may_decline), bytes_max, &requests).0
        };
        let (bound, min) = (misses(true), misses(false));
        prop_assert!(bound <= min);
        macro_rules! check {
            ($least:expr, $($policy:expr),* $(,)?) => {
                $(
                    let policy = $policy;
                    let name = policy.name();
                    let (misses, _) = simulate(policy, bytes_max, &requests);
                    prop_assert!(misses >= $least, "{} has {} misses, the bound is {}", name, misses, $least);
                )*
            };
        }
        check!(
            min,
            Fifo::new(bytes_max, objects_max),
            Lru::new(bytes_max, objects_max),
            Mru::new(bytes_max, objects_max),
            Random::new(bytes_max, objects_max, 1),
            Clock::new(bytes_max, objects_max),
            Sieve::new(bytes_max, objects_max),
            S3Fifo::new(bytes_max, objects_max),
            TwoQ::new(bytes_max, objects_max),
            Lfu::new(bytes_max, objects_max),
            Lfu::without_ageing(bytes_max, objects_max),
            Lrfu::new(bytes_max, objects_max),
            Lrfu::with_config(&LrfuConfig {
                lambda: 0.1,
                ..LrfuConfig::new(bytes_max, objects_max)
            }),
            Arc::new(bytes_max, objects_max),
            Lirs::new(bytes_max, objects_max),
            Gdsf::new(bytes_max, objects_max),
        );
        check!(
            bound,
            WTinyLfu::new(bytes_max, objects_max),
            SecondHit::new(Lru::new(bytes_max, objects_max), 64),
            Popularity::new(&PopularityConfig::new(bytes_max, objects_max)),
        );
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(|bytes_max, objects_max| {
        Belady::storing_all(bytes_max, objects_max, [Key(1), Key(2)])
    });
    endure_senseless_sizes(|bytes_max, objects_max| Belady::new(bytes_max, objects_max, []));
}

#[test]
fn both_have_names() {
    assert_eq!(
        (Belady::new(1, 1, []).name(), Belady::storing_all(1, 1, []).name()),
        ("belady", "min")
    );
}
