//! A policy and a naive model of it, which is a policy, too, under the same calls: every answer
//! must be the same.

use nicache_policy::{Admission, Incoming, Key, Policy, Removal};
use proptest::prelude::*;

pub(crate) const KEYS: u64 = 24;

#[derive(Clone, Debug)]
pub(crate) enum Call {
    /// What a simulator does for one request.
    Request(u64, u64),
    Hit(u64),
    Miss(u64, Option<u64>),
    Insert(u64, u64),
    Remove(u64, Removal),
    Evict(Option<u64>),
}

/// Calls in any order. Most are whole requests, so states come up as in a real cache.
pub(crate) fn calls() -> impl Strategy<Value = Vec<Call>> {
    let key = 0..KEYS;
    let bytes = prop_oneof![30 => 0u64..400, 1 => Just(u64::MAX), 1 => Just(1000u64)];
    let removal =
        prop_oneof![Just(Removal::Evicted), Just(Removal::Purged), Just(Removal::Refused)];
    let call = prop_oneof![
        12 => (key.clone(), bytes.clone()).prop_map(|(key, bytes)| Call::Request(key, bytes)),
        2 => key.clone().prop_map(Call::Hit),
        1 => (key.clone(), prop::option::of(bytes.clone()))
            .prop_map(|(key, bytes)| Call::Miss(key, bytes)),
        1 => (key.clone(), bytes).prop_map(|(key, bytes)| Call::Insert(key, bytes)),
        1 => (key.clone(), removal).prop_map(|(key, removal)| Call::Remove(key, removal)),
        1 => prop::option::of(key).prop_map(Call::Evict),
    ];
    prop::collection::vec(call, 0..400)
}

pub(crate) fn compare(
    policy: &mut impl Policy,
    model: &mut impl Policy,
    bytes_max: u64,
    ghosts_max: usize,
    calls: Vec<Call>,
) -> Result<(), TestCaseError> {
    for call in calls {
        match call.clone() {
            Call::Request(key, bytes) => {
                prop_assert_eq!(
                    request(policy, key, bytes, bytes_max),
                    request(model, key, bytes, bytes_max)
                );
            }
            Call::Hit(key) => {
                policy.handle_hit(Key(key));
                model.handle_hit(Key(key));
            }
            Call::Miss(key, bytes) => {
                prop_assert_eq!(
                    policy.handle_miss(Key(key), bytes),
                    model.handle_miss(Key(key), bytes)
                );
            }
            Call::Insert(key, bytes) => {
                prop_assert_eq!(
                    policy.handle_insert(Key(key), bytes),
                    model.handle_insert(Key(key), bytes)
                );
            }
            Call::Remove(key, removal) => {
                let ghosts = policy.occupancy().ghosts;
                policy.handle_remove(Key(key), removal);
                model.handle_remove(Key(key), removal);
                if removal == Removal::Purged {
                    prop_assert!(policy.occupancy().ghosts <= ghosts, "a purge leaves no ghost");
                }
            }
            Call::Evict(key) => {
                let incoming = key.map(|key| Incoming { key: Key(key), bytes: 1 + key * 17 });
                prop_assert_eq!(policy.evict(incoming), model.evict(incoming));
            }
        }
        prop_assert_eq!(policy.occupancy(), model.occupancy(), "after {:?}", call);
        prop_assert!(policy.occupancy().ghosts <= ghosts_max);
        for key in 0..KEYS {
            prop_assert_eq!(policy.contains(Key(key)), model.contains(Key(key)));
            let incoming = Some(Incoming { key: Key(key), bytes: key * 17 });
            let victim = policy.poll_victim(incoming);
            prop_assert_eq!(victim, model.poll_victim(incoming), "for {} after {:?}", key, call);
            prop_assert_ne!(victim, Some(Key(key)));
            prop_assert!(victim.is_none_or(|victim| policy.contains(victim)));
        }
        let victim = policy.poll_victim(None);
        prop_assert_eq!(victim, model.poll_victim(None));
        prop_assert_eq!(victim.is_some(), policy.occupancy().objects > 0);
    }
    Ok(())
}

/// One request of a simulator: whether it was a hit, and what it evicted.
pub(crate) fn request(
    policy: &mut impl Policy,
    key: u64,
    bytes: u64,
    bytes_max: u64,
) -> (bool, Vec<Key>) {
    let (key, mut evicted) = (Key(key), Vec::new());
    if policy.handle_request(key) {
        return (true, evicted);
    }
    let admissions = (policy.handle_miss(key, Some(bytes)), policy.handle_reply(key, bytes));
    if admissions != (Admission::Admit, Admission::Admit) {
        return (false, evicted);
    }
    let incoming = Some(Incoming { key, bytes });
    while u128::from(policy.occupancy().bytes) + u128::from(bytes) > u128::from(bytes_max)
        || policy.handle_insert(key, bytes).is_err()
    {
        match policy.evict(incoming) {
            Some(victim) => evicted.push(victim),
            None => break,
        }
    }
    (false, evicted)
}

/// Sizes beyond all memory, and a policy of no objects.
pub(crate) fn endure_senseless_sizes<P: Policy>(new: impl Fn(u64, u32) -> P) {
    let mut policy = new(0, 4);
    for key in 0..4 {
        policy.handle_insert(Key(key), u64::MAX).unwrap();
    }
    policy.handle_insert(Key(1), 5).unwrap();
    for key in 0..4 {
        policy.handle_hit(Key(key));
        policy.poll_victim(Some(Incoming { key: Key(key), bytes: u64::MAX }));
    }
    for key in 0..4 {
        policy.handle_remove(Key(key), Removal::Evicted);
        policy.handle_miss(Key(key), Some(u64::MAX));
    }
    assert_eq!((policy.occupancy().objects, policy.occupancy().bytes), (0, 0));
    let mut nothing = new(10, 0);
    assert_eq!(nothing.handle_miss(Key(1), None), Admission::Reject);
    assert!(nothing.handle_insert(Key(1), 1).is_err());
    assert_eq!(nothing.poll_victim(None), None);
    let mut large = new(u64::MAX, 4);
    for key in 0..40 {
        request(&mut large, key % 7, u64::MAX / (key % 5 + 1), u64::MAX);
    }
    assert!(large.occupancy().objects <= 4);
}
