//! How often somebody comes to a page, told by how often somebody comes to the site: when a site's
//! visitors become five times as many, each of its pages has five times as many, too, and that is
//! known before somebody has come to the page again.
//!
//! Time is counted in *busy seconds*: those in which somebody comes. So a page and the scripts and
//! styles that it brings with it are one visit.

use std::time::Duration;

use nicache_tcp::Time;

use super::usual_time::{NEVER, usual_time};

const SECOND: Duration = Duration::from_secs(1);
/// By so many busy seconds it is told how often somebody comes to the site.
const SECONDS: usize = 16;
/// A [`Pause`] counts in so many parts of a busy second.
const PARTS: u32 = 16;
/// A page with fewer busy seconds than these from one visitor to the next is told by time alone.
const SECONDS_MIN: u32 = 2;

/// When somebody came to the site lately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Busy seconds so far, and visits.
    seconds: u32,
    visits: u32,
    /// When each of the last busy seconds began, and how many visits there had been.
    begun: [(Time, u32); SECONDS],
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { seconds: 0, visits: 0, begun: [(Time(0), 0); SECONDS] }
    }

    /// Somebody comes.
    #[inline]
    pub(super) fn note(&mut self, now: Time) {
        let (last, _) = self.begun[(self.seconds as usize).wrapping_sub(1) % SECONDS];
        if self.seconds == 0 || now >= last + SECOND {
            self.begun[self.seconds as usize % SECONDS] = (now, self.visits);
            self.seconds = self.seconds.wrapping_add(1);
        }
        self.visits = self.visits.wrapping_add(1);
    }

    /// Visits in the last busy seconds.
    pub(super) fn visits(&self) -> u32 {
        let (_, before) = self.oldest();
        self.visits.wrapping_sub(before)
    }

    /// The first of the busy seconds that are known.
    fn oldest(&self) -> (Time, u32) {
        let known = self.seconds.min(SECONDS as u32);
        self.begun[self.seconds.wrapping_sub(known) as usize % SECONDS]
    }

    /// From one busy second to the next, as it was lately.
    fn usual(&self, now: Time) -> Duration {
        let known = self.seconds.min(SECONDS as u32);
        if known == 0 {
            return SECOND;
        }
        (now.since(self.oldest().0) / known).max(SECOND)
    }
}

/// How long it usually is from one visitor of a page to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    usual: Duration,
    /// The same in parts of a busy second.
    parts: u32,
    /// The number of the busy second of the last visitor.
    second: u32,
}

impl Pause {
    /// Somebody has come for the first time.
    pub(super) fn unknown(pace: &Pace) -> Self {
        Self { usual: NEVER, parts: 0, second: pace.seconds }
    }

    /// Somebody has come, so long after the one before.
    #[inline]
    pub(super) fn note(&mut self, last: Duration, pace: &Pace) {
        let parts = pace.seconds.wrapping_sub(self.second).min(u16::MAX.into()) * PARTS;
        self.parts = if self.usual == NEVER { parts } else { (self.parts * 3 + parts) / 4 };
        self.usual = usual_time(self.usual, last);
        self.second = pace.seconds;
    }

    /// How long it is now; as good as never, if it is not known.
    #[inline]
    pub(super) fn now(&self, pace: &Pace, now: Time) -> Duration {
        if self.usual == NEVER || self.parts < SECONDS_MIN * PARTS {
            return self.usual;
        }
        pace.usual(now) * self.parts / PARTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that every third visit is of, at this pace, from `begun` on.
    fn visit(pace: &mut Pace, pause: &mut Pause, begun: Time, visits: u32, each: Duration) -> Time {
        for number in 1..=visits {
            let now = begun + each * number;
            pace.note(now);
            if number % 3 == 0 {
                pause.note(each * 3, pace);
            }
        }
        begun + each * visits
    }

    #[test]
    fn a_page_is_known_by_the_pace_of_its_site() {
        let mut pace = Pace::new();
        let mut pause = Pause::unknown(&pace);
        let second = Duration::from_secs(1);
        assert_eq!(pause.now(&pace, Time(0)), NEVER);
        let now = visit(&mut pace, &mut pause, Time(0), 60, second * 5);
        assert_eq!(pause.now(&pace, now).as_secs(), 14);
        // Five times as many come; nobody of them to the page yet.
        let mut then = now;
        for _ in 0..16 {
            then += second;
            pace.note(then);
        }
        assert!(pause.now(&pace, then) < second * 4, "{:?}", pause.now(&pace, then));
        // Nobody comes any longer.
        assert!(pause.now(&pace, then + second * 160) > second * 25);
        assert!(pause.usual >= second * 14);
    }

    #[test]
    fn a_page_with_all_that_it_brings_is_one_visit() {
        let (mut pace, second) = (Pace::new(), Duration::from_secs(1));
        let (mut page, mut style) = (Pause::unknown(&pace), Pause::unknown(&pace));
        for number in 0..40 {
            let now = Time(0) + second * 10 * number;
            for of_page in [&mut page, &mut style] {
                pace.note(now);
                of_page.note(second * 10, &pace);
            }
        }
        let now = Time(0) + second * 390;
        assert_eq!((page.now(&pace, now), page.now(&pace, now)), (second * 10, second * 10));
        assert_eq!(pace.seconds, 40);
    }

    #[test]
    fn a_page_that_many_come_to_is_known_by_time() {
        let mut pace = Pace::new();
        let mut pause = Pause::unknown(&pace);
        let each = Duration::from_millis(100);
        let now = visit(&mut pace, &mut pause, Time(0), 300, each);
        assert_eq!(pause.now(&pace, now), each * 3);
    }
}
