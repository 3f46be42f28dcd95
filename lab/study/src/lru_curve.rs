//! The miss-ratio curve of LRU, exact, for any number of cache sizes in one pass.
//!
//! Read first: Mattson et al. 1970, "Evaluation techniques for storage hierarchies" (IBM Systems
//! Journal 9(2)). The objects in an LRU cache are the first ones of a stack in order of last use,
//! as many as fit. So an access is a hit in every cache that is at least as large as its object's
//! *stack distance*: the room of all objects used since, and its own. The room used since a time is
//! summed up in a [`Recency`].
//!
//! With sizes there is one thing more. A cache that is smaller than an object does not store it, so
//! it is not in that cache's stack. For each size asked for that is smaller than the largest
//! object, the objects that do not fit are summed up apart ([`Oversize`]) and taken off the
//! distance.
//!
//! What it gives is equal to a simulation at each size, unless
//! * a reply cannot become an entry ([`Access::fills`]): the larger caches have the object, and use
//!   it; the smaller ones do not;
//! * an object shrinks, or grows beyond a cache and leaves it: what fits now has left already;
//! * its size changes, but what is cached of it is not out of date: it may have either size.
//!
//! [`is_exact`] tells; here such a reply becomes an entry, and what fits is there.

mod oversize;

use oversize::Oversize;

use crate::recency::{Before, Ones, Recency, Slots, Sums};
use crate::{Access, Counts, Room, Workload};

/// Whether the curve at these sizes is what simulations give.
pub fn is_exact(workload: &Workload, sizes: &[u64]) -> bool {
    if workload.room == Room::One {
        return workload.accesses.iter().all(|access| access.fills());
    }
    let least = sizes.iter().copied().min().unwrap_or(0);
    let mut rooms = vec![0; workload.objects as usize];
    workload.accesses.iter().all(|access| {
        let room = workload.room.of(access.bytes());
        let before = std::mem::replace(&mut rooms[access.object() as usize], room);
        let grows = access.is_changed() && room > before && room <= least;
        access.fills() && (room == before || before == 0 || grows)
    })
}

/// What LRU caches of these sizes do for a workload, in the sizes' order. `progress` hears of every
/// few thousand accesses. Memory: 24 to 40 bytes per object, and for each size that is smaller than
/// the largest object 16 more per object that is larger.
pub fn lru_curve(workload: &Workload, sizes: &[u64], progress: impl FnMut(u64)) -> Vec<Counts> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&at| sizes[at]);
    let ascending: Vec<u64> = order.iter().map(|&at| sizes[at]).collect();
    let curve = match workload.room {
        Room::One => pass(
            workload,
            Room::One,
            &ascending,
            Recency::new(workload.objects, Ones::default()),
            progress,
        ),
        // Every object has one slot: blocks.
        Room::Slots(slot)
            if workload.accesses.iter().all(|access| access.bytes() <= u64::from(slot.max(1))) =>
        {
            let slots: Vec<u64> =
                ascending.iter().map(|size| size / u64::from(slot.max(1))).collect();
            pass(
                workload,
                Room::One,
                &slots,
                Recency::new(workload.objects, Ones::default()),
                progress,
            )
        }
        Room::Bytes | Room::Slots(_) => pass(
            workload,
            workload.room,
            &ascending,
            Recency::new(workload.objects, Sums::default()),
            progress,
        ),
    };
    let mut result = vec![Counts::default(); sizes.len()];
    for (&at, counts) in order.iter().zip(curve) {
        result[at] = counts;
    }
    result
}

/// What was found: in this cache, or in this one and all larger ones and in no smaller one.
#[derive(Clone, Copy, Default)]
struct Step {
    hits: u64,
    hit_bytes: u64,
    request_hits: u64,
    purged: u64,
}

fn pass<S: Slots>(
    workload: &Workload,
    room: Room,
    sizes: &[u64],
    mut recency: Recency<S>,
    mut progress: impl FnMut(u64),
) -> Vec<Counts> {
    const STEP: usize = 1 << 14;
    let mut oversize = Oversize::new(sizes, &workload.rooms(room));
    let apart = oversize.sizes();
    // Of the caches that are smaller than the largest object.
    let mut small = vec![Step::default(); apart];
    // Of the others: what is found in one is found in all larger ones.
    let mut steps = vec![Step::default(); sizes.len() + 1 - apart];
    let mut request = Request { small: vec![true; apart], first: 0 };
    let mut total = Counts::default();
    for (at, accesses) in workload.accesses.chunks(STEP).enumerate() {
        for (at, &access) in accesses.iter().enumerate().map(|(n, access)| (at * STEP + n, access))
        {
            if at == workload.warm_up {
                total = Counts::default();
                small.fill(Step::default());
                steps.fill(Step::default());
            }
            let room = room.of(access.bytes());
            let before = recency.access(access.object(), room);
            let not_stored = oversize.access(access.object(), room);
            total.accesses += 1;
            total.bytes += access.bytes();
            let is_hit = !access.is_changed();
            match before {
                Some(Before { since, room }) => {
                    let distance = since + room;
                    let first = sizes[apart..].partition_point(|&size| size < distance);
                    steps[first].find(access);
                    request.first =
                        request.first.max(if is_hit { first } else { sizes.len() - apart });
                    for at in 0..apart {
                        let not_stored = not_stored.map_or(0, |rooms| rooms[at]);
                        let is_there = room <= sizes[at] && distance <= sizes[at] + not_stored;
                        if is_there {
                            small[at].find(access);
                        }
                        request.small[at] &= is_there && is_hit;
                    }
                }
                None => {
                    request.first = sizes.len() - apart;
                    request.small.fill(false);
                }
            }
            if access.ends_request() {
                total.requests += 1;
                request.end(&mut small, &mut steps);
            }
        }
        progress(accesses.len() as u64);
    }
    if workload.warm_up > 0 && workload.warm_up >= workload.accesses.len() {
        return vec![Counts::default(); sizes.len()];
    }
    let mut sum = Step::default();
    let large = steps.iter().take(sizes.len() - apart).map(|step| {
        sum.add(step);
        sum
    });
    small.into_iter().chain(large).map(|step| step.counts(&total)).collect()
}

/// For which caches all accesses of a request have been hits so far.
struct Request {
    /// Each that is smaller than the largest object.
    small: Vec<bool>,
    /// The least one of the others.
    first: usize,
}

impl Request {
    fn end(&mut self, small: &mut [Step], steps: &mut [Step]) {
        for (step, is_hit) in small.iter_mut().zip(&mut self.small) {
            step.request_hits += u64::from(std::mem::replace(is_hit, true));
        }
        steps[std::mem::take(&mut self.first)].request_hits += 1;
    }
}

impl Step {
    /// The object of an access is there.
    #[inline]
    fn find(&mut self, access: Access) {
        if access.is_changed() {
            self.purged += 1;
        } else {
            self.hits += 1;
            self.hit_bytes += access.bytes();
        }
    }

    fn add(&mut self, other: &Self) {
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.request_hits += other.request_hits;
        self.purged += other.purged;
    }

    fn counts(self, total: &Counts) -> Counts {
        let Self { hits, hit_bytes, request_hits, purged } = self;
        Counts { hits, hit_bytes, request_hits, purged, ..*total }
    }
}

#[cfg(test)]
mod tests {
    use nicache_policy::Lru;
    use proptest::prelude::*;

    use super::*;
    use crate::simulate;

    /// Objects that change, and keep their sizes or grow.
    fn workloads(growth: u64) -> impl Strategy<Value = Workload> {
        let room =
            prop_oneof![Just(Room::One), Just(Room::Bytes), (1u32..40).prop_map(Room::Slots)];
        let steps = prop::collection::vec(
            (0u32..20, prop::bool::weighted(0.1), any::<bool>(), any::<bool>()),
            0..300,
        );
        let warm_up = prop_oneof![Just(0usize), 0usize..200];
        (room, prop::collection::vec(0u64..100, 20), steps, warm_up).prop_map(
            move |(room, mut bytes, steps, warm_up)| {
                let accesses = steps.into_iter().map(|(object, changed, grows, ends)| {
                    let bytes = &mut bytes[object as usize];
                    *bytes += if changed && grows { growth } else { 0 };
                    Access::new(object, *bytes).changed(changed).ending(ends)
                });
                Workload { warm_up, ..Workload::of(accesses.collect(), room) }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn is_what_simulations_give(
            workload in workloads(0),
            sizes in prop::collection::vec(0u64..1000, 0..12),
        ) {
            compare(&workload, &sizes)?;
        }

        #[test]
        fn is_what_simulations_give_with_objects_that_grow(
            workload in workloads(17),
            sizes in prop::collection::vec(600u64..2000, 0..9),
        ) {
            if is_exact(&workload, &sizes) {
                compare(&workload, &sizes)?;
            }
        }
    }

    fn compare(workload: &Workload, sizes: &[u64]) -> Result<(), TestCaseError> {
        prop_assert!(is_exact(workload, sizes));
        let curve = lru_curve(workload, sizes, |_| {});
        for (&size, counts) in sizes.iter().zip(curve) {
            let simulated = simulate(Lru::new(size, 20), workload, size, |_| {});
            prop_assert_eq!(counts, Counts { evicted: 0, ..simulated }, "size {}", size);
        }
        Ok(())
    }

    #[test]
    fn tells_what_it_cannot_give_exactly() {
        let of =
            |accesses: &[Access]| is_exact(&Workload::of(accesses.to_vec(), Room::Bytes), &[6, 9]);
        assert!(of(&[Access::new(0, 5), Access::new(0, 5), Access::new(0, 6).changed(true)]));
        assert!(!of(&[Access::new(0, 5), Access::new(0, 7).changed(true)]));
        assert!(!of(&[Access::new(0, 5), Access::new(0, 4).changed(true)]));
        assert!(!of(&[Access::new(0, 5), Access::new(0, 6)]));
        assert!(!of(&[Access::new(0, 5).without_fill(true)]));
    }
}
