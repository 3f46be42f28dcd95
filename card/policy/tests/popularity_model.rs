//! Popularity against a naive model: the formulas of Bos et al. 2009, section 2.2, worked out for
//! every key at every period's end, with sorting wherever the policy selects, and a plain map
//! wherever it links lists.

// Other tests use the rest of it.
#[allow(dead_code)]
mod traces;

use std::collections::BTreeMap;

use nicache_policy::{
    Admission, Incoming, Key, Policy, Popularity, PopularityConfig, Removal, TableFull,
};
use proptest::prelude::*;

const FORGOTTEN: f32 = 1.0 / 1_048_576.0;

#[derive(Clone, Debug, Default)]
struct Object {
    popularity: f32,
    count: u32,
    popular: bool,
    cacheable: bool,
    inserted: bool,
    bytes: u64,
    refusals: u32,
    barred_until: u32,
}

struct Model {
    config: PopularityConfig,
    objects: BTreeMap<u64, Object>,
    threshold: f32,
    period: u32,
}

impl Model {
    fn next(&self, object: &Object) -> f32 {
        let next =
            (1.0 - self.config.alpha) * object.popularity + self.config.alpha * object.count as f32;
        if next < FORGOTTEN { 0.0 } else { next }
    }

    fn score(&self, object: &Object) -> f32 {
        object.popularity.max(self.next(object))
    }

    fn bytes(&self) -> u64 {
        self.objects.values().filter(|object| object.inserted).map(|object| object.bytes).sum()
    }

    fn inserted(&self) -> usize {
        self.objects.values().filter(|object| object.inserted).count()
    }

    fn popular(&self) -> usize {
        self.objects.values().filter(|object| object.popular).count()
    }

    fn ranking(&self) -> Vec<(u64, f32)> {
        let mut ranking: Vec<_> =
            self.objects.iter().filter(|(_, object)| object.popular).collect();
        ranking.sort_by(|(a_key, a), (b_key, b)| {
            (self.score(b).total_cmp(&self.score(a)))
                .then(b.inserted.cmp(&a.inserted))
                .then(b.cacheable.cmp(&a.cacheable))
                .then(a_key.cmp(b_key))
        });
        ranking.into_iter().map(|(key, object)| (*key, self.score(object))).collect()
    }

    fn demote_below(&mut self, threshold: f32) {
        let low: Vec<u64> = self
            .ranking()
            .into_iter()
            .filter(|(_, score)| *score < threshold)
            .map(|(key, _)| key)
            .collect();
        for key in low {
            let object = self.objects.get_mut(&key).unwrap();
            (object.popular, object.cacheable) = (false, false);
        }
    }

    fn admits(&self, key: u64, bytes: u64) -> bool {
        let object = &self.objects[&key];
        let popular: Vec<_> =
            self.objects.values().filter(|object| object.inserted && object.popular).collect();
        let popular_bytes: u64 = popular.iter().map(|object| object.bytes).sum();
        let fits = |objects: usize, held: u64| {
            objects < self.config.objects_max as usize && held + bytes <= self.config.bytes_max
        };
        let anyhow = fits(self.inserted(), self.bytes());
        let as_popular = object.cacheable || fits(popular.len(), popular_bytes);
        object.barred_until <= self.period
            && bytes <= self.config.bytes_max
            && (anyhow || object.popular && as_popular)
    }

    fn count(&mut self, key: u64) {
        self.objects.get_mut(&key).unwrap().count += 1;
        let score = self.score(&self.objects[&key]);
        let popular = score > 0.0 && score >= self.threshold;
        let object = self.objects.get_mut(&key).unwrap();
        object.popular = popular;
        object.cacheable &= popular;
        if self.popular() > self.config.popular_high as usize {
            let target = (self.config.popular_low + self.config.popular_high) as usize / 2;
            self.threshold = self.ranking()[target].1.next_up();
            self.demote_below(self.threshold);
        }
    }

    fn end_period(&mut self) {
        self.period += 1;
        let keys: Vec<u64> = self.objects.keys().copied().collect();
        for key in keys {
            let next = self.next(&self.objects[&key]);
            let object = self.objects.get_mut(&key).unwrap();
            (object.popularity, object.count) = (next, 0);
        }
        self.demote_below(self.threshold.max(FORGOTTEN));
        let (mut bytes, mut objects) = (self.config.bytes_max, self.config.objects_max);
        for (key, _) in self.ranking() {
            let object = self.objects.get_mut(&key).unwrap();
            object.cacheable =
                object.barred_until <= self.period && object.bytes <= bytes && objects > 0;
            if object.cacheable {
                bytes -= object.bytes;
                objects -= 1;
            }
        }
        if self.popular() < self.config.popular_low as usize {
            let room = self.inserted() < self.config.objects_max as usize
                && self.bytes() + self.config.bytes_max / 8 <= self.config.bytes_max;
            self.threshold = if room { 0.0 } else { self.threshold / 2.0 };
            if self.threshold < self.config.alpha / 2.0 {
                self.threshold = 0.0;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hit(u64),
    Miss(u64, Option<u64>),
    Reply(u64, u64),
    Insert(u64, u64),
    Remove(u64, Removal),
    Victim(Option<u64>),
    PeriodEnd(u32),
}

fn step() -> impl Strategy<Value = Step> {
    // Low keys are asked for more often.
    let key = prop_oneof![0u64..4, 0u64..10, 0u64..30];
    let removal =
        prop_oneof![Just(Removal::Evicted), Just(Removal::Purged), Just(Removal::Refused)];
    prop_oneof![
        6 => key.clone().prop_map(Step::Hit),
        12 => (key.clone(), prop::option::of(0u64..400))
            .prop_map(|(key, bytes)| Step::Miss(key, bytes)),
        2 => (key.clone(), 0u64..400).prop_map(|(key, bytes)| Step::Reply(key, bytes)),
        4 => (key.clone(), 0u64..400).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        3 => (key.clone(), removal).prop_map(|(key, removal)| Step::Remove(key, removal)),
        3 => prop::option::of(key).prop_map(Step::Victim),
        2 => prop_oneof![4 => Just(1u32), 1 => 1u32..20].prop_map(Step::PeriodEnd),
    ]
}

fn config() -> impl Strategy<Value = PopularityConfig> {
    (100u64..2000, 1u32..8, 0u32..10, 2u32..12, prop_oneof![Just(0.75f32), 0.1f32..=1.0]).prop_map(
        |(bytes_max, objects_max, low, high, alpha)| PopularityConfig {
            popular_low: low.min(high - 1),
            popular_high: high,
            keys_max: 100,
            alpha,
            ..PopularityConfig::new(bytes_max, objects_max)
        },
    )
}

fn run(config: PopularityConfig, steps: Vec<Step>) {
    let mut policy = Popularity::new(&config);
    let mut model = Model { config, objects: BTreeMap::new(), threshold: 0.0, period: 0 };
    for step in steps {
        match step {
            Step::Hit(key) => {
                policy.handle_hit(Key(key));
                model.objects.entry(key).or_default();
                model.count(key);
            }
            Step::Miss(key, bytes) => {
                let asked_before = model.objects.contains_key(&key);
                let object = model.objects.entry(key).or_default();
                if let (Some(bytes), false) = (bytes, object.inserted) {
                    object.bytes = bytes;
                }
                let bytes_known = bytes.unwrap_or(object.bytes);
                let expected = asked_before && model.admits(key, bytes_known);
                model.count(key);
                assert_eq!(policy.handle_miss(Key(key), bytes) == Admission::Admit, expected);
            }
            Step::Reply(key, bytes) => {
                let mut expected = false;
                if let Some(object) = model.objects.get_mut(&key) {
                    if !object.inserted {
                        object.bytes = bytes;
                    }
                    expected = model.admits(key, bytes);
                }
                assert_eq!(policy.handle_reply(Key(key), bytes) == Admission::Admit, expected);
            }
            Step::Insert(key, bytes) => {
                let full = model.inserted() == config.objects_max as usize;
                let object = model.objects.entry(key).or_default();
                let expected = if full && !object.inserted { Err(TableFull) } else { Ok(()) };
                if expected.is_ok() {
                    (object.inserted, object.bytes, object.refusals) = (true, bytes, 0);
                }
                assert_eq!(policy.handle_insert(Key(key), bytes), expected);
            }
            Step::Remove(key, removal) => {
                policy.handle_remove(Key(key), removal);
                let period = model.period;
                if let Some(object) = model.objects.get_mut(&key) {
                    match removal {
                        Removal::Refused => {
                            object.refusals += 1;
                            if object.refusals > 3 {
                                object.barred_until = period + (1 << (object.refusals - 4).min(6));
                                object.cacheable &= object.inserted;
                            }
                        }
                        Removal::Evicted if object.inserted => {
                            (object.inserted, object.cacheable) = (false, false);
                        }
                        _ => object.inserted = false,
                    }
                }
            }
            Step::Victim(incoming) => {
                let victim =
                    policy.poll_victim(incoming.map(|key| Incoming { key: Key(key), bytes: 10 }));
                check_victim(&model, incoming, victim);
            }
            Step::PeriodEnd(times) => {
                for _ in 0..times {
                    policy.handle_period_end();
                    model.end_period();
                }
            }
        }
        assert_eq!(policy.threshold(), model.threshold);
        assert_eq!(policy.popular(), model.popular());
        assert!(policy.popular() <= config.popular_high as usize);
        for (key, object) in &model.objects {
            assert_eq!(
                policy.popularity(Key(*key)),
                Some(object.popularity),
                "popularity of {key}"
            );
            assert_eq!(policy.is_popular(Key(*key)), object.popular, "{key} popular");
            assert_eq!(policy.is_cacheable(Key(*key)), object.cacheable, "{key} cacheable");
        }
        let occupancy = policy.occupancy();
        assert_eq!((occupancy.objects, occupancy.bytes), (model.inserted(), model.bytes()));
        assert_eq!(occupancy.ghosts + occupancy.objects, model.objects.len());
    }
}

/// At most 7 objects are in memory, so the policy looks at all of them.
fn check_victim(model: &Model, incoming: Option<u64>, victim: Option<Key>) {
    let limit = match incoming {
        None => f32::INFINITY,
        Some(key) => model.objects.get(&key).map_or(0.0, |object| model.score(object)),
    };
    let class = |object: &Object| u8::from(object.popular) + u8::from(object.cacheable);
    let expected = (model.objects.iter())
        .filter(|(key, object)| {
            object.inserted && Some(**key) != incoming && model.score(object) < limit
        })
        .map(|(_, object)| (class(object), model.score(object)))
        .min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let got = victim.map(|key| &model.objects[&key.0]).map(|object| {
        assert!(object.inserted);
        (class(object), model.score(object))
    });
    assert_eq!(got, expected);
    assert!(victim.is_none() || victim.map(|key| key.0) != incoming);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_papers_formulas(
        config in config(),
        steps in prop::collection::vec(step(), 0..400),
    ) {
        run(config, steps);
    }
}

/// The calls of a cache that is driven by the first requests of a real log, with a period's end
/// after every 200, and how many of the requests were misses.
fn calls(config: PopularityConfig, requests: &[(u64, u64)]) -> (Vec<Step>, u64) {
    let mut policy = Popularity::new(&config);
    let (mut steps, mut misses) = (Vec::new(), 0);
    for (at, &(key, bytes)) in requests.iter().enumerate() {
        if at % 200 == 199 {
            policy.handle_period_end();
            steps.push(Step::PeriodEnd(1));
        }
        if policy.handle_request(Key(key)) {
            steps.push(Step::Hit(key));
            continue;
        }
        misses += 1;
        steps.push(Step::Miss(key, Some(bytes)));
        if policy.handle_miss(Key(key), Some(bytes)) == Admission::Reject {
            continue;
        }
        loop {
            let occupancy = policy.occupancy();
            if occupancy.bytes + bytes <= config.bytes_max
                && occupancy.objects < config.objects_max as usize
            {
                policy.handle_insert(Key(key), bytes).unwrap();
                steps.push(Step::Insert(key, bytes));
                break;
            }
            steps.push(Step::Victim(Some(key)));
            let Some(victim) = policy.evict(Some(Incoming { key: Key(key), bytes })) else {
                policy.handle_remove(Key(key), Removal::Refused);
                steps.push(Step::Remove(key, Removal::Refused));
                break;
            };
            steps.push(Step::Remove(victim.0, Removal::Evicted));
        }
    }
    (steps, misses)
}

/// Every call's outcome is the model's, so the misses are, too.
#[test]
fn a_real_log_is_played_back_as_by_the_model() {
    for (log, expected) in [("epa", EPA_MISSES), ("blog", BLOG_MISSES)] {
        let requests = &traces::load(log)[..4000];
        let config = PopularityConfig {
            popular_low: 10,
            popular_high: 24,
            keys_max: 4000,
            ..PopularityConfig::new(40_000, 7)
        };
        let (steps, misses) = calls(config, requests);
        assert!(steps.iter().any(|step| matches!(step, Step::Remove(_, Removal::Evicted))));
        run(config, steps);
        assert_eq!(misses, expected, "{log}");
    }
}

const EPA_MISSES: u64 = 2772;
const BLOG_MISSES: u64 = 3556;
