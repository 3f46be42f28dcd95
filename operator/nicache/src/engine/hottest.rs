//! What is used most, of late: an average of hits per second in which the past fades.
//!
//! The cards count uses and nothing else ([`nicache_cache::MostUsed`]); whoever asks here pays for
//! the look. One look has the card pause for a part of its places at a time, so frames wait
//! for a tenth of a millisecond at most. What a look has no time for is looked at by the next one.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use nicache_admin::HotObject;
use nicache_cache::{MostUsed, Used};
use nicache_http::Key;
use nicache_port::Port;
use nicache_tcp::Time;

use super::clock::monotonic;
use super::shard::Shard;
use crate::control::HOTTEST_MAX;
use crate::inquiry;

/// After so long, a rate counts a third.
const FADES_IN: Duration = Duration::from_secs(10);
/// A look sooner after another one tells what that one told.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Places that a card looks at without a pause.
const PART_PLACES: usize = 2048;
/// One look takes no longer, so other questions are answered in time: the supervisor takes a
/// card that does not answer for a dead one.
const LOOK_TIME: Duration = Duration::from_millis(80);
/// Objects that are taken from a part.
const USED_MAX: usize = 32;
/// Objects whose rates are remembered.
const WARM_MAX: usize = 256;
/// Hits per second that are not worth remembering.
const COLD: f64 = 0.01;

/// Some of the places of a card.
#[derive(Debug)]
struct Part {
    shard: usize,
    from: usize,
    looked: Time,
}

/// What is used most, of late: an average of hits per second in which the past fades. Whoever asks
/// pays for the look.
#[derive(Debug)]
pub(crate) struct Hottest {
    started: Time,
    /// Empty before the first look.
    parts: Vec<Part>,
    /// The part that the next look begins with.
    next: usize,
    faded_at: Time,
    warm: HashMap<Key, HotObject>,
}

impl Hottest {
    /// Nothing is known of cards that have just begun.
    pub(crate) fn new(now: Time) -> Self {
        Self { started: now, parts: Vec::new(), next: 0, faded_at: now, warm: HashMap::new() }
    }

    /// Looks at the cards, and tells what is hottest, most first.
    ///
    /// # Errors
    /// A card's thread has ended or does not answer.
    pub(crate) fn look<W, H>(&mut self, shards: &[Shard<W, H>], now: Time) -> Result<Vec<HotObject>>
    where
        W: Port + Send + 'static,
        H: Port + Send + 'static,
    {
        if now.since(self.faded_at) < LOOK_INTERVAL {
            return Ok(self.first());
        }
        self.fade(now);
        if self.parts.is_empty() {
            for (shard, card) in shards.iter().enumerate() {
                let places = card.ask(|card| card.store().places())?;
                let parts = (0..places).step_by(PART_PLACES);
                self.parts.extend(parts.map(|from| Part { shard, from, looked: self.started }));
            }
        }
        for _ in 0..self.parts.len() {
            if monotonic().since(now) > LOOK_TIME {
                break;
            }
            let at = self.next;
            self.next = (at + 1) % self.parts.len();
            let part = &mut self.parts[at];
            let (from, during) = (part.from, now.since(part.looked));
            part.looked = now;
            let most = shards[part.shard].ask(move |card| {
                let mut most = MostUsed::new(USED_MAX);
                card.take_uses(from..from + PART_PLACES, &mut most);
                most
            })?;
            self.note(most.list(), during);
        }
        Ok(self.first())
    }

    /// Until `now` nobody has used anything, as far as is known.
    fn fade(&mut self, now: Time) {
        let keeps = (-now.since(self.faded_at).as_secs_f64() / FADES_IN.as_secs_f64()).exp();
        self.faded_at = now;
        self.warm.retain(|_, object| {
            object.hits_per_s *= keeps;
            object.hits_per_s >= COLD
        });
    }

    /// Counts uses of entries, which were spread evenly over the last `during`.
    fn note(&mut self, used: &[Used], during: Duration) {
        if during.is_zero() {
            return;
        }
        let weight = 1.0 - (-during.as_secs_f64() / FADES_IN.as_secs_f64()).exp();
        for one in used {
            let object = self.warm.entry(one.key).or_default();
            object.hits_per_s += weight * f64::from(one.uses) / during.as_secs_f64();
            object.body_bytes = one.body_len;
            object.is_dynamic = one.is_dynamic;
            if object.target.is_empty() {
                (object.host, object.target) =
                    (inquiry::text(&one.host), inquiry::text(&one.target));
            }
        }
        if self.warm.len() > WARM_MAX {
            let mut rates: Vec<f64> = self.warm.values().map(|object| object.hits_per_s).collect();
            let (_, least, _) = rates.select_nth_unstable_by(WARM_MAX - 1, |a, b| b.total_cmp(a));
            let least = *least;
            self.warm.retain(|_, object| object.hits_per_s >= least);
        }
    }

    fn first(&self) -> Vec<HotObject> {
        let mut objects: Vec<&HotObject> = self.warm.values().collect();
        objects.sort_by(|a, b| {
            b.hits_per_s.total_cmp(&a.hits_per_s).then_with(|| a.target.cmp(&b.target))
        });
        objects.into_iter().take(HOTTEST_MAX).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(number: u8, uses: u32) -> Used {
        let target = format!("/{number}").into_bytes().into();
        Used {
            key: Key([number; 16]),
            host: b"a"[..].into(),
            target,
            body_len: 1,
            is_dynamic: false,
            uses,
        }
    }

    fn second(number: u64) -> Time {
        Time(number * 1_000_000_000)
    }

    #[test]
    fn a_steady_rate_is_found_and_forgotten() {
        let mut hottest = Hottest::new(second(0));
        for now in 1..=60 {
            hottest.fade(second(now));
            hottest.note(&[used(1, 100), used(2, 10)], Duration::from_secs(1));
        }
        let first = hottest.first();
        assert_eq!((&*first[0].target, &*first[1].target), ("/1", "/2"));
        assert!(
            (first[0].hits_per_s - 100.0).abs() < 1.0 && (first[1].hits_per_s - 10.0).abs() < 0.1,
            "{first:?}"
        );
        // One that is used from now on passes the other one by.
        for now in 61..=90 {
            hottest.fade(second(now));
            hottest.note(&[used(2, 90)], Duration::from_secs(1));
        }
        assert_eq!(hottest.first()[0].target, "/2");
        hottest.fade(second(1000));
        assert!(hottest.first().is_empty());
    }

    #[test]
    fn a_look_after_a_long_time_says_what_frequent_looks_say() {
        let (mut often, mut once) = (Hottest::new(second(0)), Hottest::new(second(0)));
        for now in 1..=300 {
            often.fade(second(now));
            often.note(&[used(1, 7)], Duration::from_secs(1));
        }
        once.fade(second(300));
        once.note(&[used(1, 7 * 300)], Duration::from_secs(300));
        assert!((often.first()[0].hits_per_s - once.first()[0].hits_per_s).abs() < 0.01);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut hottest = Hottest::new(second(0));
        for round in 0..20u32 {
            let many: Vec<Used> = (0..64u32)
                .map(|one| {
                    let mut one_used = used(0, 10 + one);
                    one_used.key.0[..4].copy_from_slice(&(round * 64 + one).to_le_bytes());
                    one_used
                })
                .collect();
            hottest.note(&many, Duration::from_secs(1));
        }
        assert!(hottest.warm.len() <= WARM_MAX + 64 && hottest.first().len() == HOTTEST_MAX);
    }
}
