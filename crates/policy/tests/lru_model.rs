//! LRU against a vector in order of use.

use nicache_policy::{Admission, Incoming, Key, Lru, Policy, Removal, TableFull};
use proptest::prelude::*;

const BYTES_MAX: u64 = 1000;

#[derive(Clone, Debug)]
enum Step {
    Hit(u64),
    Miss(u64, Option<u64>),
    Insert(u64, u64),
    Remove(u64, Removal),
    Victim(Option<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u64..16;
    let removal = prop_oneof![Just(Removal::Evicted), Just(Removal::Purged), Just(Removal::Refused)];
    prop_oneof![
        3 => key.clone().prop_map(Step::Hit),
        1 => (key.clone(), prop::option::of(0u64..2000)).prop_map(|(key, bytes)| Step::Miss(key, bytes)),
        3 => (key.clone(), 0u64..500).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        1 => (key.clone(), removal).prop_map(|(key, removal)| Step::Remove(key, removal)),
        2 => prop::option::of(key).prop_map(Step::Victim),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_vector(objects_max in 1usize..12, steps in prop::collection::vec(step(), 0..400)) {
        let mut lru = Lru::new(BYTES_MAX, objects_max as u32);
        // Most recently used last.
        let mut model: Vec<(u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Hit(key) => {
                    lru.handle_hit(Key(key));
                    if let Some(at) = model.iter().position(|object| object.0 == key) {
                        let object = model.remove(at);
                        model.push(object);
                    }
                }
                Step::Miss(key, bytes) => {
                    let fits = bytes.is_none_or(|bytes| bytes <= BYTES_MAX);
                    prop_assert_eq!(lru.handle_miss(Key(key), bytes) == Admission::Admit, fits);
                    if let Some(bytes) = bytes {
                        prop_assert_eq!(lru.handle_reply(Key(key), bytes) == Admission::Admit, fits);
                    }
                }
                Step::Insert(key, bytes) => {
                    let known = model.iter().position(|object| object.0 == key);
                    let expected = if known.is_none() && model.len() == objects_max { Err(TableFull) } else { Ok(()) };
                    prop_assert_eq!(lru.handle_insert(Key(key), bytes), expected);
                    if expected.is_ok() {
                        if let Some(at) = known {
                            model.remove(at);
                        }
                        model.push((key, bytes));
                    }
                }
                Step::Remove(key, removal) => {
                    lru.handle_remove(Key(key), removal);
                    if removal != Removal::Refused {
                        model.retain(|object| object.0 != key);
                    }
                }
                Step::Victim(incoming) => {
                    let expected = model.iter().map(|object| object.0).find(|&key| Some(key) != incoming);
                    let incoming = incoming.map(|key| Incoming { key: Key(key), bytes: 1 });
                    prop_assert_eq!(lru.poll_victim(incoming), expected.map(Key));
                }
            }
            prop_assert_eq!(lru.occupancy().objects, model.len());
            prop_assert_eq!(lru.occupancy().bytes, model.iter().map(|object| object.1).sum::<u64>());
        }
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    let mut lru = Lru::new(0, 4);
    for key in 0..4 {
        lru.handle_insert(Key(key), u64::MAX).unwrap();
    }
    lru.handle_insert(Key(1), 5).unwrap();
    for key in 0..4 {
        lru.handle_remove(Key(key), Removal::Evicted);
    }
    assert_eq!(lru.occupancy().bytes, 0);
    assert_eq!(Lru::new(10, 0).handle_miss(Key(1), None), Admission::Reject);
}
