//! What a naive model is, and the comparison of a policy with one.

use std::ops::Range;

use nicache_policy::{Admission, Incoming, Key, Occupancy, Policy, Removal, TableFull};
use proptest::prelude::*;

pub(crate) const BYTES_MAX: u64 = 1000;

/// What is in memory, found by search.
pub(crate) trait Model: Send {
    fn contains(&self, key: u64) -> bool;
    /// An object that is there is used.
    fn hit(&mut self, key: u64);
    /// One that is not there comes.
    fn insert(&mut self, key: u64, bytes: u64);
    /// One that is there has a new size and stays where it is.
    fn resize(&mut self, key: u64, bytes: u64);
    /// One that is there goes.
    fn remove(&mut self, key: u64, removal: Removal);
    /// Who goes next, except one.
    fn victim(&mut self, but: Option<u64>) -> Option<u64>;
    fn occupancy(&self) -> Occupancy;
}

/// A model as a policy that admits everything that fits.
pub(crate) struct Naive<M> {
    pub model: M,
    pub bytes_max: u64,
    pub objects_max: usize,
    /// Whether a new size is a use.
    pub resize_is_use: bool,
}

impl<M: Model> Naive<M> {
    pub(crate) fn new(model: M, bytes_max: u64, objects_max: usize) -> Self {
        Self { model, bytes_max, objects_max, resize_is_use: true }
    }
}

impl<M: Model> Policy for Naive<M> {
    fn name(&self) -> &'static str {
        "naive"
    }
    fn contains(&self, key: Key) -> bool {
        self.model.contains(key.0)
    }
    fn handle_hit(&mut self, key: Key) {
        if self.model.contains(key.0) {
            self.model.hit(key.0);
        }
    }
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        self.handle_reply(key, bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        if self.model.contains(key.0) {
            self.model.resize(key.0, bytes);
            if self.resize_is_use {
                self.model.hit(key.0);
            }
        } else if self.model.occupancy().objects < self.objects_max {
            self.model.insert(key.0, bytes);
        } else {
            return Err(TableFull);
        }
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if self.model.contains(key.0) && removal != Removal::Refused {
            self.model.remove(key.0, removal);
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        self.model.victim(incoming.map(|incoming| incoming.key.0)).map(Key)
    }
    fn occupancy(&self) -> Occupancy {
        self.model.occupancy()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Request(u64),
    Hit(u64),
    Miss(u64, Option<u64>),
    Insert(u64, u64),
    Remove(u64, Removal),
    Victim(Option<u64>),
    /// Asks for a victim, then removes it, as the card does.
    EvictByTwoCalls(Option<u64>),
    /// Evicts with one call, as a simulation does.
    Evict(Option<u64>),
    /// A request of a simulation, with all that follows.
    Simulate(u64, u64),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    const KEYS: Range<u64> = 0..24;
    let removal =
        prop_oneof![Just(Removal::Evicted), Just(Removal::Purged), Just(Removal::Refused)];
    // Multiples make limits be met exactly.
    let bytes = (0u64..20).prop_map(|tens| tens * 25);
    let step = prop_oneof![
        3 => KEYS.prop_map(Step::Request),
        1 => KEYS.prop_map(Step::Hit),
        1 => (KEYS, prop::option::of(0u64..2000)).prop_map(|(key, bytes)| Step::Miss(key, bytes)),
        3 => (KEYS, bytes.clone()).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        1 => (KEYS, removal).prop_map(|(key, removal)| Step::Remove(key, removal)),
        1 => prop::option::of(KEYS).prop_map(Step::Victim),
        1 => prop::option::of(KEYS).prop_map(Step::EvictByTwoCalls),
        1 => prop::option::of(KEYS).prop_map(Step::Evict),
        8 => (KEYS, bytes).prop_map(|(key, bytes)| Step::Simulate(key, bytes)),
    ];
    prop::collection::vec(step, 0..400)
}

/// Whether both answer alike, whatever is asked.
pub(crate) fn compare<P: Policy, Q: Policy>(
    mut policy: P,
    mut model: Q,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    for step in steps {
        let incoming = |but: Option<u64>| but.map(|key| Incoming { key: Key(key), bytes: 1 });
        match step {
            Step::Request(key) => {
                prop_assert_eq!(policy.handle_request(Key(key)), model.handle_request(Key(key)));
            }
            Step::Hit(key) => {
                policy.handle_hit(Key(key));
                model.handle_hit(Key(key));
            }
            Step::Miss(key, bytes) => {
                prop_assert_eq!(
                    policy.handle_miss(Key(key), bytes),
                    model.handle_miss(Key(key), bytes)
                );
                let bytes = bytes.unwrap_or(1);
                prop_assert_eq!(
                    policy.handle_reply(Key(key), bytes),
                    model.handle_reply(Key(key), bytes)
                );
            }
            Step::Insert(key, bytes) => {
                prop_assert_eq!(
                    policy.handle_insert(Key(key), bytes),
                    model.handle_insert(Key(key), bytes)
                );
            }
            Step::Remove(key, removal) => {
                policy.handle_remove(Key(key), removal);
                model.handle_remove(Key(key), removal);
            }
            Step::Victim(but) => {
                let victim = policy.poll_victim(incoming(but));
                prop_assert_eq!(victim, model.poll_victim(incoming(but)));
                // Nobody goes by a poll, and another poll is the same.
                prop_assert!(
                    victim.is_none_or(|victim| policy.contains(victim) && Some(victim.0) != but)
                );
                prop_assert_eq!(victim, policy.poll_victim(incoming(but)));
            }
            Step::EvictByTwoCalls(but) => {
                let victim = policy.poll_victim(incoming(but));
                prop_assert_eq!(victim, model.poll_victim(incoming(but)));
                if let Some(victim) = victim {
                    policy.handle_remove(victim, Removal::Evicted);
                    model.handle_remove(victim, Removal::Evicted);
                }
            }
            Step::Evict(but) => {
                prop_assert_eq!(policy.evict(incoming(but)), model.evict(incoming(but)));
            }
            Step::Simulate(key, bytes) => {
                prop_assert_eq!(
                    simulate_one(&mut policy, key, bytes),
                    simulate_one(&mut model, key, bytes)
                );
            }
        }
        prop_assert_eq!(policy.occupancy(), model.occupancy());
        for key in 0..24 {
            prop_assert_eq!(policy.contains(Key(key)), model.contains(Key(key)), "key {}", key);
        }
    }
    Ok(())
}

/// Whether it was a hit, and who had to go.
fn simulate_one<P: Policy>(policy: &mut P, key: u64, bytes: u64) -> (bool, Vec<Key>) {
    let incoming = Incoming { key: Key(key), bytes };
    let mut victims = Vec::new();
    if policy.handle_request(incoming.key) {
        return (true, victims);
    }
    let admissions =
        (policy.handle_miss(incoming.key, Some(bytes)), policy.handle_reply(incoming.key, bytes));
    if admissions == (Admission::Admit, Admission::Admit) {
        while policy.occupancy().bytes.saturating_add(bytes) > BYTES_MAX
            || policy.handle_insert(incoming.key, bytes).is_err()
        {
            match policy.evict(Some(incoming)) {
                Some(victim) => victims.push(victim),
                None => break,
            }
        }
    }
    (false, victims)
}

/// One step for the sake of the step.
pub(crate) fn endure_step<P: Policy>(policy: &mut P, step: &Step, stretch: impl Fn(u64) -> u64) {
    let incoming =
        |but: Option<u64>| but.map(|key| Incoming { key: Key(key), bytes: stretch(key) });
    match *step {
        Step::Request(key) => _ = policy.handle_request(Key(key)),
        Step::Hit(key) => policy.handle_hit(Key(key)),
        Step::Miss(key, bytes) => {
            policy.handle_miss(Key(key), bytes.map(&stretch));
            policy.handle_reply(Key(key), stretch(bytes.unwrap_or(1)));
        }
        Step::Insert(key, bytes) => _ = policy.handle_insert(Key(key), stretch(bytes)),
        Step::Remove(key, removal) => policy.handle_remove(Key(key), removal),
        Step::Victim(but) => _ = policy.poll_victim(incoming(but)),
        Step::EvictByTwoCalls(but) => {
            if let Some(victim) = policy.poll_victim(incoming(but)) {
                assert!(Some(victim.0) != but && policy.contains(victim));
                policy.handle_remove(victim, Removal::Evicted);
            }
        }
        Step::Evict(but) => {
            if let Some(victim) = policy.evict(incoming(but)) {
                assert!(Some(victim.0) != but && !policy.contains(victim));
            }
        }
        Step::Simulate(key, bytes) => _ = simulate_one(policy, key, stretch(bytes)),
    }
}

/// Sizes beyond all memory, and a policy of no objects.
pub(crate) fn endure_senseless_sizes<P: Policy>(new: impl Fn(u64, u32) -> P) {
    for bytes_max in [0, 1, u64::MAX] {
        let mut policy = new(bytes_max, 4);
        for key in 0..4 {
            assert!(!policy.handle_request(Key(key)));
            policy.handle_insert(Key(key), u64::MAX - key % 2).unwrap();
            policy.handle_request(Key(key));
        }
        policy.handle_insert(Key(1), 5).unwrap();
        for key in 10..20 {
            let incoming = Some(Incoming { key: Key(key), bytes: u64::MAX });
            assert!(policy.poll_victim(incoming).is_some());
            assert!(policy.evict(incoming).is_some());
            policy.handle_insert(Key(key), u64::MAX).unwrap();
        }
        while policy.evict(None).is_some() {}
        assert_eq!((policy.occupancy().objects, policy.occupancy().bytes), (0, 0));
    }
    let mut policy = new(u64::MAX, 2);
    for bytes in [u64::from(u32::MAX), 5 << 40 | 3] {
        policy.handle_insert(Key(1), bytes).unwrap();
        assert_eq!(policy.occupancy().bytes, bytes);
    }
    policy.handle_insert(Key(2), 1 << 63).unwrap();
    assert_eq!(policy.occupancy().bytes, 1 << 63 | 5 << 40 | 3);
    let mut nothing = new(10, 0);
    assert_eq!(nothing.handle_miss(Key(1), None), Admission::Reject);
    assert_eq!(nothing.handle_insert(Key(1), 1), Err(TableFull));
    assert_eq!((nothing.poll_victim(None), nothing.evict(None)), (None, None));
}
