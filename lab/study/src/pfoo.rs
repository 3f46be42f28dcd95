//! A bound for caches of objects of different sizes: what no policy can surpass.
//!
//! Read first: Berger, Beckmann and Harchol-Balter 2018, "Practical bounds on optimal caching with
//! variable object sizes" (Proceedings of the ACM on Measurement and Analysis of Computing Systems
//! 2(2)), section 5: PFOO-L, a lower bound for misses. Between two requests for an object a cache
//! either has it all the time, and the second one is a hit, or not. To have it takes so much *room*
//! for so many *steps*. In all, a cache has its memory times the steps of the trace; the cheapest
//! of these intervals that fit into that are as many hits as there can be. Nothing asks at which
//! times they fit, so no cache may reach it; the paper finds it within a few percent of the optimum
//! for long traces and small caches.
//!
//! The bound for bytes takes the intervals that give the most bytes for their cost; that for
//! requests of several blocks takes each request with the intervals of all its blocks. What is
//! cached of an object takes at least the least room that a reply has had since the object last
//! changed. So it holds for every policy that this crate plays back, also one that knows the
//! future, whatever it admits. Each of the three figures is a bound for itself; no policy may reach
//! two of them at once.

use crate::{Counts, Workload};

/// The intervals of a workload, sorted by what they cost.
#[derive(Debug)]
pub struct Bound {
    /// Nothing found.
    total: Counts,
    /// Steps of the part that is counted.
    steps: u64,
    accesses: Vec<Item>,
    /// Empty if each request is one access.
    requests: Vec<Item>,
    bytes: Vec<(Item, u64)>,
}

/// What one hit, or all hits of a request, cost.
#[derive(Clone, Copy, Debug, Default)]
struct Item {
    /// Room times steps.
    cost: u64,
    /// The most room of one of the objects: a smaller cache does not have it.
    room: u64,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug)]
struct Object {
    last: usize,
    /// The least room since it changed; `u64::MAX` if no reply filled.
    room: u64,
}

impl Bound {
    /// Finds and sorts the intervals. Memory: 24 bytes for each object, and 40 for each access that
    /// could be a hit; 16 more for each request of several accesses.
    pub fn new(workload: &Workload) -> Self {
        let warm_up = workload.warm_up.min(workload.accesses.len());
        let mut objects = vec![Object { last: 0, room: u64::MAX }; workload.objects as usize];
        let steps = (workload.accesses.len() - warm_up) as u64;
        let (mut accesses, mut requests, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        let mut total = Counts::default();
        let is_single = workload.accesses.iter().all(|access| access.ends_request());
        let mut request = Some(Item::default());
        for (at, access) in workload.accesses.iter().enumerate() {
            let object = &mut objects[access.object() as usize];
            if access.is_changed() {
                object.room = u64::MAX;
            }
            let length = (at - object.last.max(warm_up).min(at)) as u64;
            let item = Item { cost: object.room.saturating_mul(length), room: object.room };
            let item = (object.room != u64::MAX).then_some(item);
            if access.fills() {
                object.room = object.room.min(workload.room.of(access.bytes()));
            }
            object.last = at;
            request = request.zip(item).map(|(all, item)| Item {
                cost: all.cost.saturating_add(item.cost),
                room: all.room.max(item.room),
            });
            if at >= warm_up {
                total.accesses += 1;
                total.bytes += access.bytes();
                accesses.extend(item);
                bytes
                    .extend(item.filter(|_| access.bytes() > 0).map(|item| (item, access.bytes())));
            }
            if access.ends_request() {
                if at >= warm_up {
                    total.requests += 1;
                    requests.extend(request.filter(|_| !is_single));
                }
                request = Some(Item::default());
            }
        }
        accesses.sort_unstable_by_key(|item| item.cost);
        requests.sort_unstable_by_key(|item| item.cost);
        // The most bytes for the cost first.
        bytes.sort_unstable_by(|(a, a_bytes), (b, b_bytes)| {
            (u128::from(a.cost) * u128::from(*b_bytes))
                .cmp(&(u128::from(b.cost) * u128::from(*a_bytes)))
        });
        Self { total, steps, accesses, requests, bytes }
    }

    /// What no cache with so much memory can surpass: hits, hits of requests, and bytes.
    pub fn at(&self, memory: u64) -> Counts {
        let budget = u128::from(memory) * u128::from(self.steps);
        let hits = fit(&self.accesses, memory, budget);
        let request_hits = if self.requests.is_empty() && self.total.requests == self.total.accesses
        {
            hits
        } else {
            fit(&self.requests, memory, budget)
        };
        Counts { hits, request_hits, hit_bytes: self.bytes_that_fit(memory, budget), ..self.total }
    }

    fn bytes_that_fit(&self, memory: u64, budget: u128) -> u64 {
        let (mut left, mut sum) = (budget, 0);
        for (item, bytes) in self.bytes.iter().filter(|(item, _)| item.room <= memory) {
            let cost = u128::from(item.cost);
            if cost > left {
                // A part of the last one: less than that one has.
                return sum + (u128::from(*bytes) * left / cost.max(1)) as u64;
            }
            left -= cost;
            sum += bytes;
        }
        sum
    }
}

/// How many of the cheapest ones fit.
fn fit(items: &[Item], memory: u64, budget: u128) -> u64 {
    let mut left = budget;
    let fits = |item: &&Item| {
        let fits = u128::from(item.cost) <= left;
        left = left.saturating_sub(u128::from(item.cost));
        fits
    };
    items.iter().filter(|item| item.room <= memory).take_while(fits).count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::objects_max;
    use crate::{Access, Choice, PolicyName, Room};

    /// Objects of different sizes that change, whose replies may not fill, in requests of one or
    /// more.
    fn workloads() -> impl Strategy<Value = Workload> {
        let room =
            prop_oneof![Just(Room::One), Just(Room::Bytes), (1u32..40).prop_map(Room::Slots)];
        let step = (
            0u32..12,
            prop::bool::weighted(0.05),
            prop::bool::weighted(0.1),
            prop::bool::weighted(0.8),
            0u64..3,
        );
        let warm_up = prop_oneof![Just(0usize), 0usize..40];
        let steps = prop::collection::vec(step, 1..120);
        (room, prop::collection::vec(0u64..100, 12), steps, warm_up).prop_map(
            |(room, bytes, steps, warm_up)| {
                let accesses = steps.into_iter().map(|(object, changed, without, ends, more)| {
                    let bytes = bytes[object as usize] + 20 * more;
                    Access::new(object, bytes).changed(changed).without_fill(without).ending(ends)
                });
                Workload { warm_up, ..Workload::of(accesses.collect(), room) }
            },
        )
    }

    /// The most hits there can be: every set of objects that fits is a state.
    fn optimum(accesses: &[(usize, u64)], memory: u64) -> (u64, u64) {
        let objects = accesses.iter().map(|access| access.0 + 1).max().unwrap_or(0);
        let mut room = vec![0; objects];
        accesses.iter().for_each(|&(object, bytes)| room[object] = bytes);
        let fits = |set: usize| {
            (0..objects)
                .filter(|object| set >> object & 1 == 1)
                .map(|object| room[object])
                .sum::<u64>()
                <= memory
        };
        let best = |value: &dyn Fn(u64) -> u64| {
            let mut best: Vec<Option<u64>> = vec![None; 1 << objects];
            best[0] = Some(0);
            for &(object, bytes) in accesses {
                let mut next = vec![None; best.len()];
                for (set, score) in
                    best.iter().enumerate().filter_map(|(set, score)| Some((set, (*score)?)))
                {
                    let is_hit = set >> object & 1 == 1;
                    let score = score + if is_hit { value(bytes) } else { 0 };
                    let all = set | 1 << object;
                    // Any part of what is there stays.
                    let mut kept = all;
                    loop {
                        if fits(kept) {
                            next[kept] = next[kept].max(Some(score));
                        }
                        if kept == 0 {
                            break;
                        }
                        kept = (kept - 1) & all;
                    }
                }
                best = next;
            }
            best.into_iter().flatten().max().unwrap_or(0)
        };
        (best(&|_| 1), best(&|bytes| bytes))
    }

    proptest! {
        #[test]
        fn no_policy_surpasses_it(
            workload in workloads(),
            sizes in prop::collection::vec(0u64..900, 1..4),
        ) {
            let bound = Bound::new(&workload);
            let rooms = workload.least_rooms();
            for memory in sizes {
                let most = bound.at(memory);
                for policy in PolicyName::ALL {
                    let fit = objects_max(&rooms, memory);
                    let got = Choice::from(policy).simulate(&workload, memory, fit, |_| {});
                    prop_assert!(got.hits <= most.hits, "{}: {got:?} {most:?}", policy.name());
                    prop_assert!(
                        got.request_hits <= most.request_hits,
                        "{}: {got:?} {most:?}",
                        policy.name()
                    );
                    prop_assert!(
                        got.hit_bytes <= most.hit_bytes,
                        "{}: {got:?} {most:?}",
                        policy.name()
                    );
                    prop_assert_eq!(
                        (got.accesses, got.requests, got.bytes),
                        (most.accesses, most.requests, most.bytes)
                    );
                }
            }
        }

        #[test]
        fn the_optimum_does_not_surpass_it(
            accesses in prop::collection::vec(0usize..5, 1..14),
            rooms in prop::collection::vec(1u64..9, 5),
            memory in 1u64..20,
        ) {
            let accesses: Vec<(usize, u64)> =
                accesses.into_iter().map(|object| (object, rooms[object])).collect();
            let of = accesses
                .iter()
                .map(|&(object, bytes)| Access::new(object as u32, bytes).ending(true));
            let bound = Bound::new(&Workload::of(of.collect(), Room::Bytes)).at(memory);
            let (hits, bytes) = optimum(&accesses, memory);
            prop_assert!(
                hits <= bound.hits && bytes <= bound.hit_bytes,
                "{hits} {bytes} {bound:?}"
            );
        }
    }

    /// Belady's choice is not the best one with sizes, and here the bound is reached.
    #[test]
    fn with_sizes_it_is_more_than_belady() {
        // A large object that comes again soon, three small ones that come again a little later.
        let sequence = [(0, 9u64), (1, 3), (2, 3), (3, 3)].repeat(20);
        let accesses: Vec<Access> = sequence
            .iter()
            .map(|&(object, bytes)| Access::new(object, bytes).ending(true))
            .collect();
        let workload = Workload::of(accesses, Room::Bytes);
        let belady = Choice::from(PolicyName::Belady).simulate(&workload, 9, 3, |_| {});
        let bound = Bound::new(&workload).at(9);
        assert!((19 * 3..=19 * 3 + 1).contains(&bound.hits), "{bound:?}");
        assert!(belady.hits < bound.hits, "{belady:?}");
        assert!(!workload.has_optimum());
    }

    #[test]
    fn everything_that_comes_again_is_found_where_all_fits() {
        let accesses: Vec<Access> = [0, 1, 0, 1, 2]
            .iter()
            .map(|&object| Access::new(object, u64::MAX).ending(true))
            .collect();
        let bound = Bound::new(&Workload::of(accesses, Room::Bytes)).at(u64::MAX);
        assert_eq!((bound.hits, bound.hit_bytes), (2, 2 * u64::from(u32::MAX)));
    }
}
