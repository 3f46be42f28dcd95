//! Policies of other kinds behind the trait, written as another crate would: one that weighs sizes
//! (GDSF), one that compares the victim with the incoming object (TinyLFU's rule). They show that
//! the calls carry what such policies need; they are not tuned. And the order of the policies on
//! popular objects among ones asked for once.

mod cache;

use std::collections::{BTreeMap, HashMap, VecDeque};

use cache::Cache;
use nicache_policy::{
    Admission, Fifo, Incoming, Key, Lfu, Lru, Occupancy, Policy, Popularity, PopularityConfig,
    Removal, S3Fifo, Sieve, TableFull, TwoQ,
};

/// Cherkasova 1998: priority = age + uses / bytes. Naive: the victim is searched for.
#[derive(Default)]
struct Gdsf {
    objects: BTreeMap<Key, (f64, f64, u64)>,
    age: f64,
}

impl Policy for Gdsf {
    fn name(&self) -> &'static str {
        "gdsf"
    }
    fn contains(&self, key: Key) -> bool {
        self.objects.contains_key(&key)
    }
    fn handle_hit(&mut self, key: Key) {
        if let Some((priority, uses, bytes)) = self.objects.get_mut(&key) {
            *uses += 1.0;
            *priority = self.age + *uses / *bytes as f64;
        }
    }
    fn handle_miss(&mut self, _: Key, _: Option<u64>) -> Admission {
        Admission::Admit
    }
    fn handle_reply(&mut self, _: Key, _: u64) -> Admission {
        Admission::Admit
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.objects.insert(key, (self.age + 1.0 / bytes as f64, 1.0, bytes));
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal == Removal::Refused {
            return;
        }
        if let Some((priority, ..)) = self.objects.remove(&key)
            && removal == Removal::Evicted
        {
            self.age = priority;
        }
    }
    fn poll_victim(&mut self, _: Option<Incoming>) -> Option<Key> {
        self.objects.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(key, _)| *key)
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.objects.values().map(|object| object.2).sum();
        Occupancy { objects: self.objects.len(), bytes, ghosts: 0 }
    }
}

/// Einziger et al. 2017: the victim of a FIFO stays if it was asked for more often than the
/// incoming object.
#[derive(Default)]
struct TinyLfuFifo {
    order: VecDeque<(Key, u64)>,
    uses: HashMap<Key, u64>,
}

impl Policy for TinyLfuFifo {
    fn name(&self) -> &'static str {
        "tinylfu-fifo"
    }
    fn contains(&self, key: Key) -> bool {
        self.order.iter().any(|object| object.0 == key)
    }
    fn handle_hit(&mut self, key: Key) {
        *self.uses.entry(key).or_default() += 1;
    }
    fn handle_miss(&mut self, key: Key, _: Option<u64>) -> Admission {
        *self.uses.entry(key).or_default() += 1;
        Admission::Admit
    }
    fn handle_reply(&mut self, _: Key, _: u64) -> Admission {
        Admission::Admit
    }
    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        self.order.push_back((key, bytes));
        Ok(())
    }
    fn handle_remove(&mut self, key: Key, removal: Removal) {
        if removal != Removal::Refused {
            self.order.retain(|object| object.0 != key);
        }
    }
    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let victim = self.order.front()?.0;
        let uses = |key| self.uses.get(&key).copied().unwrap_or(0);
        match incoming {
            Some(incoming) if uses(incoming.key) <= uses(victim) => {
                self.order.rotate_left(1);
                None
            }
            _ => Some(victim),
        }
    }
    fn occupancy(&self) -> Occupancy {
        let bytes = self.order.iter().map(|object| object.1).sum();
        Occupancy { objects: self.order.len(), bytes, ghosts: self.uses.len() - self.order.len() }
    }
}

/// Popular objects of several sizes among ones asked for once.
fn share_of_hits<P: Policy>(policy: P) -> f64 {
    let mut cache = Cache::new(policy, 60_000);
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    for request in 0..60_000u64 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let popular = 400f64.powf((state >> 11) as f64 / (1u64 << 53) as f64) as u64;
        let key = if request % 3 == 0 { popular } else { 1000 + request };
        cache.request(key, 50 + key % 10 * 50);
    }
    cache.hits as f64 / 20_000.0
}

#[test]
fn ghosts_sizes_and_comparison_with_the_incoming_object() {
    let lru = share_of_hits(Lru::new(60_000, 1200));
    let popularity = share_of_hits(Popularity::new(&PopularityConfig::new(60_000, 1200)));
    let s3_fifo = share_of_hits(S3Fifo::new(60_000, 1200));
    let sieve = share_of_hits(Sieve::new(60_000, 1200));
    let two_q = share_of_hits(TwoQ::new(60_000, 1200));
    let gdsf = share_of_hits(Gdsf::default());
    let tiny = share_of_hits(TinyLfuFifo::default());
    let of_queues = [("s3-fifo", s3_fifo), ("sieve", sieve), ("2q", two_q)];
    for (name, share) in
        [("gdsf", gdsf), ("tinylfu", tiny), ("popularity", popularity)].into_iter().chain(of_queues)
    {
        assert!(share > lru, "{name} {share:.3}, lru {lru:.3}");
    }
}

/// Kim et al. 2002, section 3: LFU is slightly better than LRU, FIFO slightly worse.
#[test]
fn the_simple_policies_are_in_the_papers_order() {
    let fifo = share_of_hits(Fifo::new(60_000, 1200));
    let lru = share_of_hits(Lru::new(60_000, 1200));
    let lfu = share_of_hits(Lfu::without_ageing(60_000, 1200));
    let ageing = share_of_hits(Lfu::new(60_000, 1200));
    assert!(fifo < lru, "fifo {fifo:.3}, lru {lru:.3}");
    assert!(lru < lfu.min(ageing), "lru {lru:.3}, lfu {lfu:.3}, lfu-da {ageing:.3}");
}
