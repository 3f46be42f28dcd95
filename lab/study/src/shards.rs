//! The miss-ratio curve of LRU for traces of any length, by spatial sampling in bounded memory.
//!
//! Read first: Waldspurger, Park, Garthwaite and Ahmad 2015, "Efficient MRC construction with
//! SHARDS" (FAST), sections 3 and 4. Of all objects those are followed whose hash is below a
//! threshold: a share `R` of them, with all their uses. A stack distance among these is about `R`
//! of the one among all. When more than `objects_max` are followed, the one of the largest hash is
//! dropped and the threshold lowered to it; what was counted until then counts for less (4.2).
//!
//! Here the objects fall in [`GROUPS`] groups by other bits of the hash, and each is sampled for
//! itself. So there are as many independent curves, whose mean is the result and whose spread gives
//! its interval. As in the paper's `SHARDS_adj`, a group that got more or fewer requests than its
//! share is put right at the shortest distance, because it is a few very popular objects that make
//! the difference.

mod group;

use group::Group;
use nicache_random::SplitMix64;
use serde::Serialize;

use crate::{Room, Size};

/// Independent samples that are taken, to know how far their mean can be believed.
pub const GROUPS: usize = 8;
/// 97.5 % quantile of Student's t with `GROUPS - 1` degrees of freedom.
pub(crate) const STUDENT_T: f64 = 2.365;

/// Settings of [`Shards`].
#[derive(Clone, Copy, Debug)]
pub struct ShardsConfig {
    /// Objects followed at once in all groups together; about 140 bytes each. Default: 131,072.
    pub objects_max: u32,
    /// What an entry is charged.
    pub room: Room,
    /// Which objects are in the sample.
    pub seed: u64,
}

impl Default for ShardsConfig {
    fn default() -> Self {
        Self { objects_max: 1 << 17, room: Room::Bytes, seed: 1 }
    }
}

/// An estimate at one cache size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The cache's size.
    pub size: Size,
    /// Share of requests that are misses, 0 to 1.
    pub miss_ratio: f64,
    /// Half of its 95 % interval.
    pub miss_ratio_error: f64,
    /// Share of bytes that are not from the cache, 0 to 1.
    pub byte_miss_ratio: f64,
    /// Half of its 95 % interval.
    pub byte_miss_ratio_error: f64,
}

/// Follows samples of a workload's objects for the miss ratios of LRU caches of all sizes.
#[derive(Debug)]
pub struct Shards {
    groups: Vec<Group>,
    room: Room,
    seed: u64,
    requests: u64,
    bytes: u128,
}

impl Shards {
    /// Nothing has been asked for.
    pub fn new(config: &ShardsConfig) -> Self {
        let each = (config.objects_max as usize / GROUPS).max(16) as u32;
        Self {
            groups: (0..GROUPS).map(|_| Group::new(each, 1.0 / GROUPS as f64)).collect(),
            room: config.room,
            seed: config.seed,
            requests: 0,
            bytes: 0,
        }
    }

    /// A request for an object, by any number of its own, and how large it is.
    #[inline]
    pub fn request(&mut self, object: u64, bytes: u64) {
        // As in a simulation's accesses; and no sum of rooms passes 2^64.
        let bytes = bytes.min(u64::from(u32::MAX));
        self.requests += 1;
        self.bytes += u128::from(bytes);
        let hash = mix(object ^ self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let group = &mut self.groups[hash as usize % GROUPS];
        // The group's bits must not decide on the threshold, too.
        group.request(hash >> GROUPS.ilog2(), self.room.of(bytes), bytes);
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Share of the objects that is followed now, 0 to 1.
    pub fn rate(&self) -> f64 {
        self.groups.iter().map(Group::rate).sum::<f64>() / GROUPS as f64
    }

    /// The curve at these sizes.
    pub fn curve(&self, sizes: &[Size]) -> Vec<Estimate> {
        let estimate = |&size: &Size| {
            let ratios =
                |ratio: &dyn Fn(&Group) -> f64| mean_and_error(self.groups.iter().map(ratio));
            let (miss_ratio, miss_ratio_error) =
                ratios(&|group| group.miss_ratio(size.0 as f64, self.requests));
            let (byte_miss_ratio, byte_miss_ratio_error) =
                ratios(&|group| group.byte_miss_ratio(size.0 as f64, self.bytes));
            Estimate { size, miss_ratio, miss_ratio_error, byte_miss_ratio, byte_miss_ratio_error }
        };
        sizes.iter().map(estimate).collect()
    }
}

/// The mean of a value over the groups, and half of its 95 % interval.
fn mean_and_error(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
    // A group that has more than its share of requests may be above one.
    (mean.clamp(0.0, 1.0), STUDENT_T * (variance / count).sqrt())
}

/// The first number of SplitMix64 from a seed.
fn mix(number: u64) -> u64 {
    SplitMix64::new(number).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Workload, lru_curve};

    /// Requests of Zipf's kind for `objects` objects, of sizes between 1 and 4096.
    fn requests(count: usize, objects: f64) -> Vec<(u32, u64)> {
        let mut state = 7u64;
        let draw = |_| {
            state = mix(state);
            let object = objects.powf((state >> 11) as f64 / (1u64 << 53) as f64) as u32;
            (object, 1 + mix(u64::from(object)) % 4096)
        };
        (0..count).map(draw).collect()
    }

    fn compare(room: Room, sizes: &[u64], objects_max: u32) {
        let requests = requests(400_000, 200_000.0);
        let mut shards = Shards::new(&ShardsConfig { objects_max, room, seed: 3 });
        for &(object, bytes) in &requests {
            shards.request(u64::from(object), bytes);
        }
        let accesses =
            requests.iter().map(|&(object, bytes)| Access::new(object, bytes).ending(true));
        let exact = lru_curve(&Workload::of(accesses.collect(), room), sizes, |_| {});
        assert!(shards.rate() < 0.3, "{}", shards.rate());
        for (estimate, exact) in
            shards.curve(&sizes.iter().copied().map(Size).collect::<Vec<_>>()).iter().zip(exact)
        {
            let difference = (estimate.miss_ratio - exact.miss_ratio()).abs();
            // Eight groups: five halves of the interval are beyond all doubt.
            assert!(
                difference < 2.5 * estimate.miss_ratio_error + 0.002,
                "{estimate:?} {}",
                exact.miss_ratio()
            );
            assert!(estimate.miss_ratio_error < 0.05, "{estimate:?}");
            let difference = (estimate.byte_miss_ratio - exact.byte_miss_ratio()).abs();
            assert!(
                difference < 2.5 * estimate.byte_miss_ratio_error + 0.005,
                "{estimate:?} {}",
                exact.byte_miss_ratio()
            );
        }
    }

    #[test]
    fn estimates_agree_with_the_exact_curve() {
        compare(Room::One, &[2_000, 5_000, 20_000, 80_000], 4096);
        compare(Room::Bytes, &[4 << 20, 16 << 20, 64 << 20, 256 << 20], 4096);
        compare(Room::Slots(1600), &[4 << 20, 64 << 20], 8192);
    }

    #[test]
    fn few_objects_are_all_followed() {
        let mut shards =
            Shards::new(&ShardsConfig { objects_max: 1 << 12, room: Room::One, seed: 1 });
        for request in 0..30_000u64 {
            shards.request(request % 1000, 1);
        }
        assert_eq!(shards.rate(), 1.0);
        let [all, none] = shards.curve(&[Size(3000), Size(10)])[..] else { panic!() };
        assert!((all.miss_ratio - 1.0 / 30.0).abs() < 1e-9, "{all:?}");
        assert!(none.miss_ratio > 0.99, "{none:?}");
    }

    #[test]
    fn an_empty_trace_has_a_curve() {
        let shards = Shards::new(&ShardsConfig::default());
        assert!(shards.curve(&[Size(5)])[0].miss_ratio.is_finite());
    }
}
