//! Pages that once came out different although nothing had changed: their T does not grow for a
//! while (docs/coherence.md).

use std::time::Duration;

use nicache_coherence::SourceSlot;
use nicache_tcp::Time;

use super::remembered::{Name, Remembered};

/// Pages remembered.
const PAGES_MAX: usize = 4096;
/// For how long after a difference. Twice as long, up to the maximum, if the last one was that long
/// ago, so it was trusted again in vain.
const FIRST: Duration = Duration::from_secs(600);
const DOUBLINGS_MAX: u32 = 7;
/// A page that was the same for so many times as long begins anew.
const FORGIVEN_AFTER: u32 = 4;

/// A path with its query, as a source. Two paths may share it, so one more is not trusted.
impl Name for SourceSlot {
    fn hash(&self) -> u64 {
        // The slot's number is a part of a keyed hash; its low bits choose the place.
        u64::from(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

struct Page {
    doublings: u32,
    until: Time,
}

impl Page {
    fn period(&self) -> Duration {
        FIRST * (1 << self.doublings)
    }
}

/// What is remembered of such pages, whatever cookies or headers they were asked for with.
pub(super) struct Distrust {
    pages: Remembered<SourceSlot, Page>,
}

impl Distrust {
    pub(super) fn new() -> Self {
        Self { pages: Remembered::new(PAGES_MAX) }
    }

    /// The page was different, and nothing had changed.
    pub(super) fn note(&mut self, page: SourceSlot, now: Time) {
        let known = self.pages.get_or_insert(page, || Page { doublings: 0, until: Time::MAX });
        if now >= known.until + known.period() * FORGIVEN_AFTER {
            known.doublings = 0;
        } else if now >= known.until {
            known.doublings = (known.doublings + 1).min(DOUBLINGS_MAX);
        }
        known.until = now + known.period();
    }

    /// Since when it counts that the page is the same, if it has been so since then.
    pub(super) fn same_since(&self, page: SourceSlot, since: Time) -> Time {
        self.pages.get(&page).map_or(since, |known| known.until.max(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_trusted_in_vain_is_distrusted_for_longer() {
        let mut distrust = Distrust::new();
        let (page, other) = (SourceSlot(7), SourceSlot(8));
        let mut now = Time::ZERO + Duration::from_secs(5);
        for doublings in 0..12 {
            let period = FIRST * (1 << doublings.min(DOUBLINGS_MAX));
            // Several at once are one.
            for _ in 0..3 {
                now += Duration::from_secs(60);
                distrust.note(page, now);
                assert_eq!(distrust.same_since(page, Time::ZERO), now + period);
            }
            assert_eq!(distrust.same_since(page, now + 2 * period), now + 2 * period);
            assert_eq!(distrust.same_since(other, now), now);
            now += period;
        }
        now += FIRST * (FORGIVEN_AFTER << DOUBLINGS_MAX);
        distrust.note(page, now);
        assert_eq!(distrust.same_since(page, Time::ZERO), now + FIRST);
    }
}
