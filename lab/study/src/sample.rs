//! Which objects are in a sample of bounded size.
//!
//! Read first: Waldspurger, Park, Garthwaite and Ahmad 2015, "Efficient MRC construction with
//! SHARDS" (FAST), section 3.2. Of all objects those are followed whose hash is below a threshold,
//! with all their uses; when there are too many, the threshold is lowered. A cache of `R` times the
//! size does for the share `R` of the objects what the cache does for all (Waldspurger,
//! Saemundsson, Ahmad and Park 2017, "Cache modeling and optimization using miniature simulations",
//! ATC, section 3).

use nicache_trace::mix;

/// Seed of the hash that decides: it must be none that other tables have.
const SEED: u64 = 0x6A09_E667_F3BC_C908;
/// The share of the objects that stays when the threshold is lowered.
const KEPT: f64 = 0.75;

/// A threshold for hashes of objects.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    threshold: u64,
    objects_max: usize,
}

impl Sampler {
    /// Everything is followed, until there are more objects than this.
    pub(crate) fn new(objects_max: u32) -> Self {
        Self { threshold: u64::MAX, objects_max: objects_max.max(1) as usize }
    }

    /// Whether an object is followed.
    #[inline]
    pub(crate) fn follows(&self, object: u64) -> bool {
        hash(object) <= self.threshold
    }

    /// Whether so many objects are too many.
    #[inline]
    pub(crate) fn is_full(&self, objects: usize) -> bool {
        objects > self.objects_max
    }

    /// Lowers the threshold, so it leaves three quarters of these objects.
    pub(crate) fn lower(&mut self, objects: impl Iterator<Item = u64>) {
        let mut hashes: Vec<u64> = objects.map(hash).collect();
        let kept = (hashes.len() as f64 * KEPT) as usize;
        if let Some(last) = kept.checked_sub(1) {
            self.threshold = *hashes.select_nth_unstable(last).1;
        }
    }

    /// The share of all objects that is followed, above 0 and at most 1.
    pub(crate) fn rate(&self) -> f64 {
        (self.threshold as f64 / u64::MAX as f64).max(f64::MIN_POSITIVE)
    }
}

fn hash(object: u64) -> u64 {
    mix(object ^ SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_share_that_is_followed() {
        let mut sampler = Sampler::new(1000);
        let mut followed: Vec<u64> = Vec::new();
        for object in 0..100_000 {
            if sampler.follows(object) {
                followed.push(object);
            }
            if sampler.is_full(followed.len()) {
                sampler.lower(followed.iter().copied());
                followed.retain(|object| sampler.follows(*object));
            }
        }
        assert!((700..=1000).contains(&followed.len()), "{}", followed.len());
        assert!(
            (sampler.rate() * 1e5 / followed.len() as f64 - 1.0).abs() < 0.15,
            "{}",
            sampler.rate()
        );
        assert_eq!(Sampler::new(5).rate(), 1.0);
    }
}
