//! GDSF against a vector that is searched by the formula of Cherkasova 1998.

use nicache_policy::{
    Admission, Gdsf, GdsfConfig, GdsfCost, Incoming, Key, Lfu, Occupancy, Policy, Removal,
    TableFull,
};

use crate::traces::simulate;
use crate::twin::{calls, compare, endure_senseless_sizes};
use proptest::prelude::*;

struct Formula {
    objects: Vec<Object>,
    cost: fn(f64) -> f64,
    age: f64,
    uses: u64,
    objects_max: usize,
}

struct Object {
    key: Key,
    bytes: u64,
    frequency: f64,
    priority: f64,
    used: u64,
}

impl Formula {
    fn admits(&self, bytes: u64) -> Admission {
        if bytes <= 1000 && self.objects_max > 0 { Admission::Admit } else { Admission::Reject }
    }
}

impl Policy for Formula {
    fn name(&self) -> &'static str {
        "model"
    }
    fn contains(&self, key: Key) -> bool {
        self.objects.iter().any(|object| object.key == key)
    }
    fn handle_hit(&mut self, key: Key) {
        self.uses += 1;
        if let Some(object) = self.objects.iter_mut().find(|object| object.key == key) {
            object.frequency += 1.0;
            let size = object.bytes.max(1) as f64;
            object.priority = self.age + object.frequency * (self.cost)(size) / size;
            object.used = self.uses;
        }
    }
    fn handle_miss(&mut self, _: Key, bytes: Option<u64>) -> Admission {
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
            None => {
                self.objects.push(Object { key, bytes, frequency: 0.0, priority: 0.0, used: 0 });
            }
        }
        self.handle_hit(key);
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal == Removal::Evicted
            && let Some(object) = self.objects.iter().find(|object| object.key == key)
        {
            self.age = self.age.max(object.priority);
        }
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
            others.min_by(|a, b| a.priority.total_cmp(&b.priority).then(a.used.cmp(&b.used)));
        victim.map(|object| object.key)
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.iter().fold(0u64, |sum, object| sum.wrapping_add(object.bytes));
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

proptest! {
    #[test]
    fn behaves_like_the_formula(objects_max in 1u32..12, by_packets: bool, calls in calls()) {
        let (cost, formula): (_, fn(f64) -> f64) = if by_packets {
            (GdsfCost::Packets, |bytes| 2.0 + bytes / 536.0)
        } else {
            (GdsfCost::Request, |_| 1.0)
        };
        let mut model = Formula {
            objects: Vec::new(),
            cost: formula,
            age: 0.0,
            uses: 0,
            objects_max: objects_max as usize,
        };
        let mut policy =
            Gdsf::with_config(&GdsfConfig { cost, ..GdsfConfig::new(1000, objects_max) });
        compare(&mut policy, &mut model, 1000, 0, calls)?;
    }

    /// With one size it is LFU with dynamic ageing.
    #[test]
    fn of_one_size_it_is_lfu_da(requests in prop::collection::vec((0u64..40, Just(8u64)), 0..600)) {
        let lfu = simulate(Lfu::new(80, 12), 80, &requests);
        prop_assert_eq!(simulate(Gdsf::new(80, 12), 80, &requests), lfu);
    }
}

#[test]
fn senseless_sizes_do_not_panic() {
    endure_senseless_sizes(Gdsf::new);
}
