//! When SYNs are answered with cookies (RFC 4987 section 3.6): from the moment that many handshakes
//! are under way, and for as long as many are begun that nobody completes.
//!
//! The number alone would let places that have become free be taken by the flood again, each of
//! which has its SYN-ACK repeated to somebody who never asked. The rate alone would take a crowd of
//! clients for a flood: what counts is who does not answer.

use core::time::Duration;

use crate::time::Time;

/// Over which the rate is looked at.
const PERIOD: Duration = Duration::from_secs(1);
/// Handshakes of a period that nobody completes, as a share of the places (1/n), above which a
/// flood goes on.
const FLOOD_SHARE: usize = 16;

/// Whether there is a flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SynPressure {
    is_on: bool,
    /// Begin of the period under way.
    since: Time,
    /// Cookies that were not answered in it, so far, and in the one before.
    unanswered: usize,
    before: usize,
}

impl SynPressure {
    /// Whether a SYN that comes now is answered with a cookie; `open` handshakes of at most `limit`
    /// are under way.
    pub fn is_on(&mut self, open: usize, limit: usize, now: Time) -> bool {
        self.roll(now);
        if open * 2 > limit {
            self.is_on = true;
        } else if open * 4 <= limit && self.unanswered.max(self.before) * FLOOD_SHARE <= limit {
            self.is_on = false;
        }
        self.is_on
    }

    /// A cookie was sent.
    pub fn handle_sent(&mut self, now: Time) {
        self.roll(now);
        self.unanswered += 1;
    }

    /// A cookie was answered.
    pub fn handle_answered(&mut self, now: Time) {
        self.roll(now);
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    fn roll(&mut self, now: Time) {
        let time = now.since(self.since);
        if time < PERIOD {
            return;
        }
        self.before = if time < PERIOD * 2 { self.unanswered } else { 0 };
        (self.unanswered, self.since) = (0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 160;

    fn at(ms: u64) -> Time {
        Time::from_millis(10_000 + ms)
    }

    #[test]
    fn a_flood_is_one_until_its_syns_are_few() {
        let mut pressure = SynPressure::default();
        assert!(!pressure.is_on(80, LIMIT, at(0)));
        assert!(pressure.is_on(81, LIMIT, at(1)), "more than half of the places are taken");
        // 100 a second, while all handshakes that were under way are given up.
        for ms in (10..3_000).step_by(10) {
            let open = if ms < 1_100 { 41 } else { 0 };
            assert!(pressure.is_on(open, LIMIT, at(ms)), "at {ms}");
            pressure.handle_sent(at(ms));
        }
        assert!(pressure.is_on(0, LIMIT, at(3_500)), "half a second of quiet is no end");
        assert!(!pressure.is_on(0, LIMIT, at(5_500)));
    }

    #[test]
    fn who_answers_is_no_flood() {
        let mut pressure = SynPressure::default();
        pressure.is_on(81, LIMIT, at(0));
        for ms in 1..1_500 {
            pressure.handle_sent(at(ms));
            pressure.handle_answered(at(ms));
        }
        assert!(pressure.is_on(41, LIMIT, at(1_500)), "a quarter of the places is still taken");
        assert!(!pressure.is_on(40, LIMIT, at(1_500)));
    }
}
