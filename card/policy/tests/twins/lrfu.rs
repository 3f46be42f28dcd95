//! LRFU against a vector whose values are worked out anew for each choice, as Lee et al. 2001
//! define them.

use nicache_policy::{
    Admission, Incoming, Key, Lfu, Lrfu, LrfuConfig, Lru, Occupancy, Policy, Removal, TableFull,
};

use crate::traces::simulate;
use crate::twin::{calls, compare, endure_senseless_sizes};
use proptest::prelude::*;

/// What is in memory.
pub(crate) struct Values {
    objects: Vec<Valued>,
    lambda: f64,
    now: u64,
    uses: u64,
    bytes_max: u64,
    objects_max: usize,
}

struct Valued {
    key: Key,
    bytes: u64,
    /// C at its last use.
    value: f64,
    last: u64,
    used: u64,
}

impl Values {
    pub(crate) fn new(bytes_max: u64, objects_max: usize, lambda: f64) -> Self {
        Self { objects: Vec::new(), lambda, now: 0, uses: 0, bytes_max, objects_max }
    }
    fn weight(&self, since: u64) -> f64 {
        0.5f64.powf(self.lambda * (self.now - since) as f64)
    }
    fn find(&mut self, key: Key) -> Option<&mut Valued> {
        self.objects.iter_mut().find(|object| object.key == key)
    }
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= self.bytes_max && self.objects_max > 0 {
            Admission::Admit
        } else {
            Admission::Reject
        }
    }
    fn note_use(&mut self, key: Key) {
        let Some(at) = self.objects.iter().position(|object| object.key == key) else { return };
        self.uses += 1;
        let value = 1.0 + self.weight(self.objects[at].last) * self.objects[at].value;
        let (now, uses) = (self.now, self.uses);
        let object = &mut self.objects[at];
        (object.value, object.last, object.used) = (value, now, uses);
    }
}

impl Policy for Values {
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
    fn handle_miss(&mut self, _: Key, bytes: Option<u64>) -> Admission {
        self.now += 1;
        self.admits(bytes.unwrap_or(0))
    }
    fn handle_reply(&mut self, _: Key, bytes: u64) -> Admission {
        self.admits(bytes)
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        if !self.contains(key) {
            if self.objects.len() == self.objects_max {
                return Err(TableFull);
            }
            self.objects.push(Valued { key, bytes, value: 0.0, last: self.now, used: 0 });
        }
        self.find(key).unwrap().bytes = bytes;
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
        let value = |object: &Valued| self.weight(object.last) * object.value;
        let victim = others.min_by(|a, b| value(a).total_cmp(&value(b)).then(a.used.cmp(&b.used)));
        victim.map(|object| object.key)
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().fold(0u64, |sum, object| sum.wrapping_add(object.bytes));
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

fn lrfu(bytes_max: u64, objects_max: u32, lambda: f64) -> Lrfu {
    Lrfu::with_config(&LrfuConfig { lambda, ..LrfuConfig::new(bytes_max, objects_max) })
}

proptest! {
    #[test]
    fn behaves_like_the_definition(
        objects_max in 1u32..12,
        // With 1, different uses have equal values (3/2 = 1 + 1/2), and logarithms do not tell that
        // they are: see below for that end.
        lambda in prop_oneof![Just(0.0), Just(0.001), Just(0.0371), Just(0.2713), Just(0.9713)],
        calls in calls(),
    ) {
        let mut model = Values::new(1000, objects_max as usize, lambda);
        compare(&mut lrfu(1000, objects_max, lambda), &mut model, 1000, 0, calls)?;
    }

    /// Lee et al. 2001, section 2: the ends of the spectrum are LFU and LRU.
    #[test]
    fn the_ends_are_lfu_and_lru(requests in prop::collection::vec((0u64..40, 1u64..9), 0..600)) {
        let lfu = simulate(Lfu::without_ageing(60, 12), 60, &requests);
        prop_assert_eq!(simulate(lrfu(60, 12, 0.0), 60, &requests), lfu);
        let lru = simulate(Lru::new(60, 12), 60, &requests);
        prop_assert_eq!(simulate(lrfu(60, 12, 1.0), 60, &requests), lru);
    }
}

#[test]
fn senseless_settings_do_not_panic() {
    endure_senseless_sizes(Lrfu::new);
    for lambda in [f64::NAN, f64::INFINITY, -1.0] {
        endure_senseless_sizes(|bytes_max, objects_max| lrfu(bytes_max, objects_max, lambda));
    }
}
