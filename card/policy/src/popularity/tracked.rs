//! What is known of one key: its popularity, brought up to date only when looked at, and its place
//! in the ranking.

use std::cmp::Ordering;

use crate::{Key, Linked, Links, Place};

/// A popularity below this (2^-20) is 0: ten periods after a single request with the default alpha.
pub const FORGOTTEN: f32 = 1.0 / (1 << 20) as f32;
/// `popular_at` of a key that is not popular.
pub(super) const NOT_POPULAR: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Tracked {
    pub(super) links: Links,
    pub(super) bytes: u64,
    /// `p` at the end of the period before `settled`.
    pub(super) popularity: f32,
    /// Requests in the period `settled`.
    pub(super) count: u32,
    pub(super) settled: u32,
    /// Index in `popular`.
    pub(super) popular_at: u32,
    pub(super) barred_until: u32,
    pub(super) refusals: u8,
    pub(super) inserted: bool,
    pub(super) cacheable: bool,
    pub(super) home: Home,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    Nowhere,
    Idle,
    Unpopular,
    Surplus,
    Kept,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Ranked {
    pub(super) score: f32,
    pub(super) inserted: bool,
    pub(super) cacheable: bool,
    pub(super) key: Key,
    pub(super) place: Place,
}

impl Default for Tracked {
    fn default() -> Self {
        Self {
            links: Links::default(),
            bytes: 0,
            popularity: 0.0,
            count: 0,
            settled: 0,
            popular_at: NOT_POPULAR,
            barred_until: 0,
            refusals: 0,
            inserted: false,
            cacheable: false,
            home: Home::Nowhere,
        }
    }
}

impl Linked for Tracked {
    fn links(&self) -> &Links {
        &self.links
    }
    fn links_mut(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Tracked {
    pub(super) fn is_popular(&self) -> bool {
        self.popular_at != NOT_POPULAR
    }

    /// Popularity and running count as of `period`.
    pub(super) fn at(&self, period: u32, alpha: f32) -> (f32, u32) {
        let (mut popularity, mut count) = (self.popularity, self.count);
        let mut settled = self.settled;
        // Ends soon even after a long absence: with the least alpha 0.1, 2^32 requests are
        // forgotten after 350 periods.
        while settled < period && (popularity > 0.0 || count > 0) {
            popularity = moving_average(popularity, count, alpha);
            count = 0;
            settled += 1;
        }
        (popularity, count)
    }

    pub(super) fn score(&self, period: u32, alpha: f32) -> f32 {
        let (popularity, count) = self.at(period, alpha);
        popularity.max(moving_average(popularity, count, alpha))
    }
}

/// Bos et al. 2009, section 2.2.
fn moving_average(popularity: f32, count: u32, alpha: f32) -> f32 {
    let next = (1.0 - alpha) * popularity + alpha * count as f32;
    if next < FORGOTTEN { 0.0 } else { next }
}

impl Ranked {
    pub(super) fn order(&self, other: &Self) -> Ordering {
        (other.score.total_cmp(&self.score))
            .then(other.inserted.cmp(&self.inserted))
            .then(other.cacheable.cmp(&self.cacheable))
            .then(self.key.cmp(&other.key))
    }
}
