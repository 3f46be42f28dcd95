//! Popularity over time with hysteresis: the replacement of Bos et al. 2009, section 2.2.
//!
//! # The paper's rules
//!
//! * Time is divided in periods (the paper's epochs; 30 s). At the end of each, a file's popularity
//!   becomes `p = (1 - alpha) p + alpha * count`, where `count` is the number of its requests in
//!   the period, hits and misses alike.
//! * A file whose estimate is below the threshold tau is unpopular. tau is 0 at first; it rises
//!   when the popular files become more than a high watermark and falls when they are fewer than a
//!   low one. Serving a request checks only whether the file crosses tau; only the popular ones are
//!   sorted, at the end of the period.
//! * The popular files that fit in the memory, in the order of their rank, are marked cacheable. A
//!   reply is stored the next time that a cacheable file is asked for.
//! * A miss of a file that is not popular replaces nothing.
//!
//! # Where the paper leaves room, it is done so
//!
//! *Score.* Within a period a key's score is the larger of its `p` and of what `p` would become if
//! the period ended now. So a key that was popular at the last period's end is not demoted because
//! the new period is young, and a key whose running count alone lifts it over tau is promoted at
//! that request, without waiting for the period's end. A popularity below [`FORGOTTEN`] is taken
//! for 0, and a score of 0 is not popular even if tau is 0.
//!
//! *Room.* The rank decides who must give way, and where nobody must, none is needed. So while the
//! objects in memory and the incoming one together fit the budget, a reply is stored the second
//! time that its object is asked for, popular or not; and a popular one is stored without waiting
//! for its rank if it fits beside the popular ones in memory, because then only unpopular ones give
//! way. Cold start is thus: the first request of an object is counted, its second one is admitted
//! ("next time"). Once the memory is full of popular objects, only the ranking of the last period's
//! end makes a key cacheable.
//!
//! *Rank.* By popularity; among equals those in memory before the others, then those that were
//! cacheable before, then by key. So a full memory of equally popular objects keeps what it has. In
//! rank order each key that fits what is left of the budget is marked; one that is too large for
//! the rest is passed over for smaller ones behind it. A key whose size is not known yet counts as
//! 0 bytes.
//!
//! *Victims.* An object goes only for one with a strictly higher score: first the unpopular ones,
//! longest unused first, then the popular but not cacheable, then the cacheable, from the lowest
//! rank up. Of each kind the least popular of the last [`VICTIM_LOOKS`] is taken, so the
//! choice is O(1); if it is not less popular than the incoming object, the next kind is tried, and
//! in the end nothing is evicted.
//!
//! *tau up.* When a promotion makes the popular keys one more than the high watermark, tau becomes
//! the least value that leaves at most (low + high) / 2 of them. That is found by selection, not by
//! sorting, and is paid for by the (high - low) / 2 promotions before it. All keys of one score
//! fall together. A scan of any number of keys asked for once can therefore raise tau above the
//! score of one request (alpha), after which it promotes none.
//!
//! *tau down.* At a period's end with fewer popular keys than the low watermark tau is halved (0
//! when that is less than half of one request); if moreover an eighth of the memory is free, it
//! goes back to its initial 0. Keys that the lower tau makes popular are promoted at their next
//! request.
//!
//! *Refusals.* A popular reply that can never be stored would keep its place in the ranking. After
//! [`REFUSALS_FREE`] refusals without an insertion a key is not cacheable for 1, 2, 4 ... 64
//! periods.
//!
//! *Bounds.* Unpopular keys not in memory are forgotten, longest unused first, when the table is
//! full; popular ones and those in memory never are. Popularity of keys not asked for is brought up
//! to date when next looked at, so a period's end costs O(popular log popular) and does not depend
//! on the number of keys followed.

mod tracked;

use std::time::Duration;

use crate::{Admission, Incoming, Key, List, Occupancy, Place, Policy, Removal, Table, TableFull};
pub use tracked::FORGOTTEN;
use tracked::{Home, NOT_POPULAR, Ranked, Tracked};

/// Objects compared per kind when a victim is wanted.
pub const VICTIM_LOOKS: usize = 8;
/// Refusals in a row without consequence.
pub const REFUSALS_FREE: u8 = 3;

const BARRED_PERIODS_LOG2_MAX: u8 = 6;

/// Settings of [`Popularity`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PopularityConfig {
    /// Bytes of the memory.
    pub bytes_max: u64,
    /// Objects in memory at most.
    pub objects_max: u32,
    /// Keys followed at most, in memory or not; at least `objects_max + popular_high + 2`, and
    /// taken for that if less. 64 to 72 bytes each. An object is noticed as popular only if it is
    /// asked for again before this many other keys are. Default: `objects_max + 8 * popular_high`.
    pub keys_max: u32,
    /// Weight of the last period against all earlier ones; clamped to 0.1..=1. Default: 0.75 (the
    /// paper: 0.6 to 0.8).
    pub alpha: f32,
    /// Length of a period. Default: 30 s (the paper's).
    pub period: Duration,
    /// Fewer popular keys than this lower tau. Default: half of `popular_high`.
    pub popular_low: u32,
    /// More popular keys than this raise tau; at least 2 and more than `popular_low`. It bounds the
    /// sorting at a period's end and the number of objects that can be admitted by rank. Default:
    /// twice `objects_max`, within 64..=32768: with the low watermark at half of it, enough keys
    /// stay popular to fill the memory.
    pub popular_high: u32,
}

impl PopularityConfig {
    /// The defaults for a memory of `bytes_max` that holds at most `objects_max` objects.
    pub fn new(bytes_max: u64, objects_max: u32) -> Self {
        let popular_high = objects_max.saturating_mul(2).clamp(64, 32_768);
        Self {
            bytes_max,
            objects_max,
            keys_max: objects_max.saturating_add(8 * popular_high),
            alpha: 0.75,
            period: Duration::from_secs(30),
            popular_low: popular_high / 2,
            popular_high,
        }
    }
}

/// The policy. See the module's documentation for its rules.
#[derive(Debug)]
pub struct Popularity {
    config: PopularityConfig,
    table: Table<Tracked>,
    /// Popular keys in no order; after a period's end in rank order.
    popular: Vec<Place>,
    /// Scratch of the sort and of the selection.
    ranking: Vec<Ranked>,
    /// Neither popular nor in memory; most recently asked for in front.
    idle: List,
    /// In memory, not popular; most recently asked for in front.
    unpopular: List,
    /// In memory, popular, not cacheable; lower ranks behind.
    surplus: List,
    /// In memory and cacheable; lower ranks behind.
    kept: List,
    threshold: f32,
    period: u32,
    objects: u32,
    bytes: u64,
    unpopular_bytes: u64,
}

impl Popularity {
    /// Allocates everything. Settings out of their bounds are brought into them.
    pub fn new(config: &PopularityConfig) -> Self {
        let mut config = *config;
        config.alpha = if config.alpha.is_nan() { 0.75 } else { config.alpha.clamp(0.1, 1.0) };
        config.popular_high = config.popular_high.clamp(2, 1 << 24);
        config.popular_low = config.popular_low.min(config.popular_high - 1);
        config.objects_max = config.objects_max.min(1 << 30);
        config.keys_max =
            config.keys_max.clamp(config.objects_max + config.popular_high + 2, 1 << 31);
        let popular_max = config.popular_high as usize + 1;
        Self {
            table: Table::new(config.keys_max as usize),
            popular: Vec::with_capacity(popular_max),
            ranking: Vec::with_capacity(popular_max),
            idle: List::default(),
            unpopular: List::default(),
            surplus: List::default(),
            kept: List::default(),
            threshold: 0.0,
            period: 0,
            objects: 0,
            bytes: 0,
            unpopular_bytes: 0,
            config,
        }
    }

    /// tau: a key whose score is less is not popular. In requests per period.
    pub fn threshold(&self) -> f32 {
        self.threshold
    }

    /// Number of popular keys.
    pub fn popular(&self) -> usize {
        self.popular.len()
    }

    /// Popularity of a key at the last period's end, in requests per period; None if it is not
    /// followed.
    pub fn popularity(&self, key: Key) -> Option<f32> {
        let tracked = self.table.get(self.table.find(key)?);
        Some(tracked.at(self.period, self.config.alpha).0)
    }

    /// Whether a key has been marked by the last ranking.
    pub fn is_cacheable(&self, key: Key) -> bool {
        self.table.find(key).is_some_and(|place| self.table.get(place).cacheable)
    }

    /// Whether a key is popular now.
    pub fn is_popular(&self, key: Key) -> bool {
        self.table.find(key).is_some_and(|place| self.table.get(place).is_popular())
    }

    fn admits(&self, place: Place, bytes: u64) -> Admission {
        let tracked = self.table.get(place);
        let may = tracked.barred_until <= self.period && bytes <= self.config.bytes_max;
        let ranked =
            tracked.is_popular() && (tracked.cacheable || self.has_room_beside_popular(bytes));
        if may && (ranked || self.has_room(bytes)) { Admission::Admit } else { Admission::Reject }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.objects < self.config.objects_max
            && self.bytes.saturating_add(bytes) <= self.config.bytes_max
    }

    fn has_room_beside_popular(&self, bytes: u64) -> bool {
        let objects = self.surplus.len() + self.kept.len();
        let popular_bytes = self.bytes.wrapping_sub(self.unpopular_bytes);
        objects < self.config.objects_max as usize
            && popular_bytes.saturating_add(bytes) <= self.config.bytes_max
    }

    /// Starts to follow a key that is not followed; forgets the idle key longest unused if need be.
    fn track(&mut self, key: Key) -> Option<Place> {
        if self.table.len() == self.table.capacity() {
            let oldest = self.idle.back()?;
            self.idle.remove(&mut self.table, oldest);
            self.table.remove(oldest);
        }
        let place = self.table.insert(
            key,
            Tracked { settled: self.period, home: Home::Idle, ..Tracked::default() },
        )?;
        self.idle.push_front(&mut self.table, place);
        Some(place)
    }

    fn settle(&mut self, place: Place) {
        let tracked = self.table.get_mut(place);
        if tracked.settled != self.period {
            (tracked.popularity, tracked.count) = tracked.at(self.period, self.config.alpha);
            tracked.settled = self.period;
        }
    }

    /// Counts one request, and moves the key across tau if it has crossed it.
    fn count(&mut self, place: Place) {
        self.settle(place);
        let tracked = self.table.get_mut(place);
        tracked.count = tracked.count.saturating_add(1);
        let popular = tracked.score(self.period, self.config.alpha) >= self.threshold;
        match (tracked.is_popular(), popular) {
            (false, true) => self.promote(place),
            (true, false) => self.demote(place),
            _ => match tracked.home {
                Home::Idle => self.idle.move_to_front(&mut self.table, place),
                Home::Unpopular => self.unpopular.move_to_front(&mut self.table, place),
                Home::Nowhere | Home::Surplus | Home::Kept => {}
            },
        }
    }

    fn promote(&mut self, place: Place) {
        debug_assert!(self.popular.len() < self.popular.capacity(), "the popular keys are bounded");
        self.table.get_mut(place).popular_at = self.popular.len() as u32;
        self.popular.push(place);
        self.rehome(place);
        if self.popular.len() > self.config.popular_high as usize {
            self.raise_threshold();
        }
    }

    fn demote(&mut self, place: Place) {
        let tracked = self.table.get_mut(place);
        let at = std::mem::replace(&mut tracked.popular_at, NOT_POPULAR) as usize;
        tracked.cacheable = false;
        self.popular.swap_remove(at);
        if let Some(&moved) = self.popular.get(at) {
            self.table.get_mut(moved).popular_at = at as u32;
        }
        self.rehome(place);
    }

    /// Puts a key into the list that its state asks for.
    fn rehome(&mut self, place: Place) {
        let tracked = self.table.get(place);
        let home = match (tracked.inserted, tracked.is_popular(), tracked.cacheable) {
            (false, false, _) => Home::Idle,
            (false, true, _) => Home::Nowhere,
            (true, false, _) => Home::Unpopular,
            (true, true, false) => Home::Surplus,
            (true, true, true) => Home::Kept,
        };
        if tracked.home != home {
            self.leave_home(place);
            self.enter_home(place, home);
        }
    }

    fn leave_home(&mut self, place: Place) {
        match self.table.get(place).home {
            Home::Nowhere => {}
            Home::Idle => self.idle.remove(&mut self.table, place),
            Home::Unpopular => {
                self.unpopular.remove(&mut self.table, place);
                self.unpopular_bytes =
                    self.unpopular_bytes.wrapping_sub(self.table.get(place).bytes);
            }
            Home::Surplus => self.surplus.remove(&mut self.table, place),
            Home::Kept => self.kept.remove(&mut self.table, place),
        }
        self.table.get_mut(place).home = Home::Nowhere;
    }

    fn enter_home(&mut self, place: Place, home: Home) {
        match home {
            Home::Nowhere => {}
            Home::Idle => self.idle.push_front(&mut self.table, place),
            Home::Unpopular => {
                self.unpopular.push_front(&mut self.table, place);
                self.unpopular_bytes =
                    self.unpopular_bytes.wrapping_add(self.table.get(place).bytes);
            }
            Home::Surplus => self.surplus.push_back(&mut self.table, place),
            Home::Kept => self.kept.push_back(&mut self.table, place),
        }
        self.table.get_mut(place).home = home;
    }

    fn collect_ranking(&mut self) {
        self.ranking.clear();
        for &place in &self.popular {
            let tracked = self.table.get(place);
            self.ranking.push(Ranked {
                score: tracked.score(self.period, self.config.alpha),
                inserted: tracked.inserted,
                cacheable: tracked.cacheable,
                key: self.table.key(place),
                place,
            });
        }
    }

    fn raise_threshold(&mut self) {
        self.collect_ranking();
        let target = (self.config.popular_low as usize + self.config.popular_high as usize) / 2;
        let (_, first_out, _) = self.ranking.select_nth_unstable_by(target, Ranked::order);
        self.threshold = first_out.score.next_up();
        for at in 0..self.ranking.len() {
            let Ranked { score, place, .. } = self.ranking[at];
            if score < self.threshold {
                self.demote(place);
            }
        }
    }

    fn lower_threshold(&mut self) {
        if self.popular.len() >= self.config.popular_low as usize {
            return;
        }
        let room = self.config.bytes_max / 8;
        self.threshold = if self.objects < self.config.objects_max && self.has_room(room) {
            0.0
        } else {
            self.threshold / 2.0
        };
        if self.threshold < self.config.alpha / 2.0 {
            self.threshold = 0.0;
        }
    }

    /// Sorts the popular keys, marks those that fit, and puts those in memory in rank order.
    fn rank(&mut self) {
        self.collect_ranking();
        self.ranking.sort_unstable_by(Ranked::order);
        let mut bytes_left = self.config.bytes_max;
        let mut objects_left = self.config.objects_max;
        self.popular.clear();
        for at in 0..self.ranking.len() {
            let place = self.ranking[at].place;
            self.leave_home(place);
            let tracked = self.table.get_mut(place);
            tracked.popular_at = at as u32;
            tracked.cacheable = tracked.barred_until <= self.period
                && objects_left > 0
                && tracked.bytes <= bytes_left;
            if tracked.cacheable {
                bytes_left -= tracked.bytes;
                objects_left -= 1;
            }
            self.popular.push(place);
            self.rehome(place);
        }
    }

    /// The least popular of the last few of a list, with its score.
    fn least_popular(&self, list: &List, but: Option<Key>) -> Option<(f32, Key)> {
        let mut least: Option<(f32, Key)> = None;
        let mut at = list.back();
        for _ in 0..VICTIM_LOOKS {
            let Some(place) = at else { break };
            let (key, score) = (
                self.table.key(place),
                self.table.get(place).score(self.period, self.config.alpha),
            );
            if Some(key) != but && least.is_none_or(|(lowest, _)| score < lowest) {
                least = Some((score, key));
            }
            at = List::before(&self.table, place);
        }
        least
    }
}

impl Policy for Popularity {
    fn name(&self) -> &'static str {
        "popularity"
    }

    #[inline]
    fn contains(&self, key: Key) -> bool {
        self.table.find(key).is_some_and(|place| self.table.get(place).inserted)
    }

    #[inline]
    fn handle_hit(&mut self, key: Key) {
        if let Some(place) = self.table.find(key).or_else(|| self.track(key)) {
            self.count(place);
        }
    }

    #[inline]
    fn handle_miss(&mut self, key: Key, bytes: Option<u64>) -> Admission {
        let Some(place) = self.table.find(key) else {
            if let Some(place) = self.track(key) {
                self.table.get_mut(place).bytes = bytes.unwrap_or(0);
                self.count(place);
            }
            return Admission::Reject;
        };
        let tracked = self.table.get_mut(place);
        if let (Some(bytes), false) = (bytes, tracked.inserted) {
            tracked.bytes = bytes;
        }
        // Before this request counts: the paper stores the reply the next time that a cacheable
        // file is asked for.
        let bytes = bytes.unwrap_or(tracked.bytes);
        let admission = self.admits(place, bytes);
        self.count(place);
        admission
    }

    fn handle_reply(&mut self, key: Key, bytes: u64) -> Admission {
        let Some(place) = self.table.find(key) else {
            return Admission::Reject;
        };
        let tracked = self.table.get_mut(place);
        if !tracked.inserted {
            tracked.bytes = bytes;
        }
        self.admits(place, bytes)
    }

    fn handle_insert(&mut self, key: Key, bytes: u64) -> Result<(), TableFull> {
        let place = self.table.find(key).or_else(|| self.track(key)).ok_or(TableFull)?;
        if !self.table.get(place).inserted && self.objects >= self.config.objects_max {
            return Err(TableFull);
        }
        // Out of its list first, because that counts bytes.
        self.leave_home(place);
        let tracked = self.table.get_mut(place);
        if tracked.inserted {
            self.bytes = self.bytes.wrapping_sub(tracked.bytes);
        } else {
            self.objects += 1;
        }
        self.bytes = self.bytes.wrapping_add(bytes);
        tracked.bytes = bytes;
        tracked.inserted = true;
        tracked.refusals = 0;
        self.rehome(place);
        Ok(())
    }

    fn handle_remove(&mut self, key: Key, removal: Removal) {
        let Some(place) = self.table.find(key) else {
            return;
        };
        let tracked = self.table.get_mut(place);
        if removal == Removal::Refused {
            tracked.refusals = tracked.refusals.saturating_add(1);
            if tracked.refusals > REFUSALS_FREE {
                let doublings = (tracked.refusals - REFUSALS_FREE - 1).min(BARRED_PERIODS_LOG2_MAX);
                tracked.barred_until = self.period.saturating_add(1 << doublings);
                tracked.cacheable &= tracked.inserted;
            }
        } else if tracked.inserted {
            tracked.inserted = false;
            tracked.cacheable &= removal == Removal::Purged;
            self.objects -= 1;
            self.bytes = self.bytes.wrapping_sub(tracked.bytes);
        }
        self.rehome(place);
    }

    fn poll_victim(&mut self, incoming: Option<Incoming>) -> Option<Key> {
        let mut limit = f32::INFINITY;
        if let Some(incoming) = incoming {
            limit = self
                .table
                .get(self.table.find(incoming.key)?)
                .score(self.period, self.config.alpha);
        }
        let but = incoming.map(|incoming| incoming.key);
        [&self.unpopular, &self.surplus, &self.kept]
            .into_iter()
            .filter_map(|list| self.least_popular(list, but))
            .find(|&(score, _)| score < limit)
            .map(|(_, key)| key)
    }

    /// O(popular log popular); at most `popular_high` keys are sorted.
    fn handle_period_end(&mut self) {
        self.period = self.period.saturating_add(1);
        // From behind, because a demotion moves the last key into the gap.
        for at in (0..self.popular.len()).rev() {
            let place = self.popular[at];
            self.settle(place);
            let popularity = self.table.get(place).popularity;
            if popularity < self.threshold || popularity == 0.0 {
                self.demote(place);
            }
        }
        self.rank();
        self.lower_threshold();
    }

    fn period(&self) -> Option<Duration> {
        Some(self.config.period)
    }

    fn occupancy(&self) -> Occupancy {
        let objects = self.objects as usize;
        Occupancy { objects, bytes: self.bytes, ghosts: self.table.len() - objects }
    }
}
