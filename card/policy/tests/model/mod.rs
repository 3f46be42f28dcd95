//! A policy that admits everything that fits, against a naive model under random calls.

use nicache_policy::{Admission, Incoming, Key, Policy, Removal, TableFull};
use proptest::prelude::*;

pub(crate) const BYTES_MAX: u64 = 1000;

/// What is in memory, found by search.
pub(crate) trait Model {
    /// An object that is there is used.
    fn hit(&mut self, key: u64);
    /// One that is not there comes, for which there is room, or one that is there has a new size.
    fn insert(&mut self, key: u64, bytes: u64);
    /// One that is there goes.
    fn remove(&mut self, key: u64, is_victim: bool);
    /// Keys and bytes of all, the next victim first.
    fn objects(&self) -> Vec<(u64, u64)>;
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Hit(u64),
    Miss(u64, Option<u64>),
    Insert(u64, u64),
    Remove(u64, Removal),
    Victim(Option<u64>),
    Evict(Option<u64>),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0u64..16;
    let removal =
        prop_oneof![Just(Removal::Evicted), Just(Removal::Purged), Just(Removal::Refused)];
    let step = prop_oneof![
        3 => key.clone().prop_map(Step::Hit),
        1 => (key.clone(), prop::option::of(0u64..2000))
            .prop_map(|(key, bytes)| Step::Miss(key, bytes)),
        3 => (key.clone(), 0u64..500).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        1 => (key.clone(), removal).prop_map(|(key, removal)| Step::Remove(key, removal)),
        1 => prop::option::of(key.clone()).prop_map(Step::Victim),
        1 => prop::option::of(key).prop_map(Step::Evict),
    ];
    prop::collection::vec(step, 0..400)
}

pub(crate) fn compare<P: Policy, M: Model>(
    mut policy: P,
    mut model: M,
    objects_max: usize,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    for step in steps {
        let objects = model.objects();
        let has = |key: u64| objects.iter().any(|object| object.0 == key);
        match step {
            Step::Hit(key) => {
                policy.handle_hit(Key(key));
                if has(key) {
                    model.hit(key);
                }
            }
            Step::Miss(key, bytes) => {
                let fits = bytes.is_none_or(|bytes| bytes <= BYTES_MAX);
                prop_assert_eq!(policy.handle_miss(Key(key), bytes) == Admission::Admit, fits);
                if let Some(bytes) = bytes {
                    prop_assert_eq!(policy.handle_reply(Key(key), bytes) == Admission::Admit, fits);
                }
            }
            Step::Insert(key, bytes) => {
                let expected =
                    if !has(key) && objects.len() == objects_max { Err(TableFull) } else { Ok(()) };
                prop_assert_eq!(policy.handle_insert(Key(key), bytes), expected);
                if expected.is_ok() {
                    model.insert(key, bytes);
                }
            }
            Step::Remove(key, removal) => {
                policy.handle_remove(Key(key), removal);
                if has(key) && removal != Removal::Refused {
                    model.remove(key, removal == Removal::Evicted);
                }
            }
            Step::Victim(but) | Step::Evict(but) => {
                let expected = objects.iter().map(|object| object.0).find(|&key| Some(key) != but);
                let incoming = but.map(|key| Incoming { key: Key(key), bytes: 1 });
                prop_assert_eq!(policy.poll_victim(incoming), expected.map(Key));
                if let (Step::Evict(_), Some(victim)) = (step, expected) {
                    policy.handle_remove(Key(victim), Removal::Evicted);
                    model.remove(victim, true);
                }
            }
        }
        let objects = model.objects();
        prop_assert_eq!(policy.occupancy().objects, objects.len());
        prop_assert_eq!(
            policy.occupancy().bytes,
            objects.iter().map(|object| object.1).sum::<u64>()
        );
        prop_assert_eq!(policy.poll_victim(None), objects.first().map(|object| Key(object.0)));
    }
    Ok(())
}

/// Sizes beyond all memory, and a policy of no objects.
pub(crate) fn endure_senseless_sizes<P: Policy>(new: impl Fn(u64, u32) -> P) {
    let mut policy = new(0, 4);
    for key in 0..4 {
        policy.handle_insert(Key(key), u64::MAX).unwrap();
    }
    policy.handle_insert(Key(1), 5).unwrap();
    for key in 0..4 {
        policy.handle_remove(Key(key), Removal::Evicted);
    }
    assert_eq!(policy.occupancy().bytes, 0);
    let mut nothing = new(10, 0);
    assert_eq!(nothing.handle_miss(Key(1), None), Admission::Reject);
    assert_eq!(nothing.handle_insert(Key(1), 1), Err(TableFull));
    assert_eq!(nothing.poll_victim(None), None);
}
