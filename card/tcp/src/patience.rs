//! How long a connection may take its time: peers that are gone, that read too slowly, that never
//! finish asking.
//!
//! Each is a small state machine without a timer of its own: events are told to it, it tells when
//! to look again and what has become of the peer then.

use core::time::Duration;

use crate::time::{Time, earliest};

/// Why a connection was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impatience {
    /// The connection was idle, and probes were not answered (RFC 9293 section 3.8.4).
    Gone,
    /// The peer acknowledges less than it must ([`ReadRules::bytes_per_second`]), with bytes
    /// outstanding.
    SlowReader,
    /// The peer keeps its window closed ([`ReadRules::closed_window`]).
    ClosedWindow,
    /// A request's head did not come whole in time.
    SlowHead,
}

/// Settings of keep-alive (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveRules {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without answer after which the peer is gone.
    pub probes: u8,
}

impl Default for KeepAliveRules {
    /// Two hours, as RFC 9293 section 3.8.4 (MUST-28) asks at least, and Linux' 75 s and 9 probes.
    fn default() -> Self {
        Self { idle: Duration::from_secs(7_200), interval: Duration::from_secs(75), probes: 9 }
    }
}

/// What to do about an idle peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveStep {
    /// Nothing yet.
    Wait,
    /// Send a segment that the peer has to answer: one number before the next, without bytes.
    Probe,
    /// The peer is gone.
    Gone,
}

/// Keep-alive of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    heard: Time,
    probes: u8,
}

impl KeepAlive {
    /// The peer was heard at `now`.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self { heard: now, probes: 0 }
    }

    /// The peer was heard.
    pub fn handle_segment(&mut self, now: Time) {
        *self = Self::new(now);
    }

    /// When the peer was heard last.
    #[must_use]
    pub fn heard(&self) -> Time {
        self.heard
    }

    /// Is an answer to a probe due?
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.probes > 0
    }

    /// When to look again.
    #[must_use]
    pub fn next_timeout(&self, rules: &KeepAliveRules) -> Time {
        self.heard + rules.idle + rules.interval * u32::from(self.probes)
    }

    /// Time has come to `now`.
    pub fn handle_timeout(&mut self, rules: &KeepAliveRules, now: Time) -> KeepAliveStep {
        if now < self.next_timeout(rules) {
            return KeepAliveStep::Wait;
        }
        if self.probes >= rules.probes {
            return KeepAliveStep::Gone;
        }
        self.probes += 1;
        KeepAliveStep::Probe
    }
}

/// Settings for readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRules {
    /// Bytes that a reader must acknowledge in a second, averaged over [`ReadRules::period`], while
    /// anything is outstanding (default 100; 0: no limit). It is too slow when it has been so in
    /// two periods, with none between them in which it was not.
    pub bytes_per_second: u32,
    /// Over which the rate is averaged (default 30 s: longer than most outages of a mobile
    /// network).
    pub period: Duration,
    /// How long a window may stay closed with something to send (default 120 s). RFC 9293 section
    /// 3.8.6.1 lets it for ever, RFC 6429 lets us not.
    pub closed_window: Duration,
}

impl Default for ReadRules {
    fn default() -> Self {
        Self {
            bytes_per_second: 100,
            period: Duration::from_secs(30),
            closed_window: Duration::from_secs(120),
        }
    }
}

/// How fast a peer reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Start of the period under way; `None` while nothing is outstanding.
    since: Option<Time>,
    acked: u32,
    /// It was too slow in an earlier period.
    was_slow: bool,
}

impl Reading {
    /// `acked` bytes were newly acknowledged, after which `outstanding` are sent or waiting to be.
    /// Zero: the peer has all, and time stops.
    pub fn handle_progress(&mut self, acked: u32, outstanding: u32, now: Time) {
        if outstanding == 0 {
            *self = Self::default();
            return;
        }
        self.since.get_or_insert(now);
        self.acked = self.acked.saturating_add(acked);
    }

    /// When to look again; `None` while nothing is outstanding.
    #[must_use]
    pub fn next_timeout(&self, rules: &ReadRules, closed_since: Option<Time>) -> Option<Time> {
        let rate =
            self.since.filter(|_| rules.bytes_per_second > 0).map(|since| since + rules.period);
        let window = closed_since.map(|since| since + rules.closed_window);
        earliest([rate, window])
    }

    /// Time has come to `now`; whether the peer is too slow. `closed_since`: its window is closed
    /// since then, which has a limit of its own.
    pub fn handle_timeout(
        &mut self,
        rules: &ReadRules,
        closed_since: Option<Time>,
        now: Time,
    ) -> Option<Impatience> {
        if closed_since.is_some_and(|since| now.since(since) >= rules.closed_window) {
            return Some(Impatience::ClosedWindow);
        }
        let since = self.since?;
        if now.since(since) < rules.period || rules.bytes_per_second == 0 {
            return None;
        }
        let wanted = f64::from(rules.bytes_per_second) * now.since(since).as_secs_f64();
        // A peer that acknowledges nothing at all is the retransmission timer's business. That may
        // have begun in this period: a network that fails before the last bytes of a short reply
        // makes nobody slow.
        let is_silent = self.acked == 0 || closed_since.is_some();
        let is_slow = !is_silent && f64::from(self.acked) < wanted;
        let is_too_slow = is_slow && self.was_slow;
        *self =
            Self { since: Some(now), acked: 0, was_slow: is_slow || is_silent && self.was_slow };
        is_too_slow.then_some(Impatience::SlowReader)
    }
}

/// The time that a request's head takes, from its first byte (or the connection's opening) to its
/// last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadTimer(Option<Time>);

impl HeadTimer {
    /// There is a part of a head, or not.
    pub fn handle_input(&mut self, is_partial: bool, now: Time) {
        if is_partial {
            self.0.get_or_insert(now);
        } else {
            self.0 = None;
        }
    }

    /// When the head must be whole.
    #[must_use]
    pub fn next_timeout(&self, limit: Duration) -> Option<Time> {
        self.0.map(|since| since + limit)
    }

    /// Time has come to `now`; whether the head has taken too long.
    #[must_use]
    pub fn handle_timeout(&self, limit: Duration, now: Time) -> Option<Impatience> {
        self.next_timeout(limit).is_some_and(|at| now >= at).then_some(Impatience::SlowHead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: Duration = Duration::from_secs(1);

    fn at(s: u64) -> Time {
        Time::from_millis(1_000 * s)
    }

    #[test]
    fn an_idle_peer_is_probed_and_then_gone() {
        // RFC 9293 section 3.8.4.
        let rules = KeepAliveRules { idle: 100 * S, interval: 10 * S, probes: 3 };
        let mut keep = KeepAlive::new(at(0));
        assert_eq!(keep.handle_timeout(&rules, at(99)), KeepAliveStep::Wait);
        let mut steps = Vec::new();
        while steps.last() != Some(&(130, KeepAliveStep::Gone)) && steps.len() < 9 {
            let now = keep.next_timeout(&rules);
            steps.push((now.as_millis() / 1_000, keep.handle_timeout(&rules, now)));
        }
        use KeepAliveStep::{Gone, Probe};
        assert_eq!(steps, [(100, Probe), (110, Probe), (120, Probe), (130, Gone)]);
        keep.handle_segment(at(125));
        assert_eq!(keep.next_timeout(&rules), at(225));
    }

    #[test]
    fn a_reader_that_crawls_is_too_slow() {
        let rules = ReadRules { bytes_per_second: 100, period: 10 * S, closed_window: 60 * S };
        let mut reading = Reading::default();
        reading.handle_progress(0, 50_000, at(0));
        reading.handle_progress(1_000, 49_000, at(5));
        assert_eq!(reading.handle_timeout(&rules, None, at(9)), None);
        assert_eq!(
            reading.handle_timeout(&rules, None, at(10)),
            None,
            "1000 bytes in 10 s are enough"
        );
        reading.handle_progress(999, 48_001, at(15));
        assert_eq!(reading.handle_timeout(&rules, None, at(20)), None);
        reading.handle_progress(999, 47_002, at(25));
        assert_eq!(reading.handle_timeout(&rules, None, at(30)), Some(Impatience::SlowReader));
    }

    #[test]
    fn a_network_that_fails_makes_nobody_slow() {
        let rules = ReadRules { bytes_per_second: 100, period: 10 * S, closed_window: 60 * S };
        let mut reading = Reading::default();
        reading.handle_progress(0, 1_500, at(0));
        reading.handle_progress(900, 600, at(1));
        for s in [10, 20, 30] {
            assert_eq!(reading.handle_timeout(&rules, None, at(s)), None, "{s}");
        }
        // Silence between two of them does not hide a slow reader, and a period in which it reads
        // makes good for one.
        let mut other = reading;
        reading.handle_progress(1, 599, at(35));
        assert_eq!(reading.handle_timeout(&rules, None, at(40)), Some(Impatience::SlowReader));
        other.handle_progress(1_000, 9_000, at(35));
        assert_eq!(other.handle_timeout(&rules, None, at(40)), None);
        other.handle_progress(1, 8_999, at(45));
        assert_eq!(other.handle_timeout(&rules, None, at(50)), None);
    }

    #[test]
    fn a_reader_that_has_everything_has_all_the_time() {
        let rules = ReadRules::default();
        let mut reading = Reading::default();
        reading.handle_progress(0, 500, at(0));
        reading.handle_progress(500, 0, at(1));
        assert_eq!(reading.next_timeout(&rules, None), None);
        reading.handle_progress(0, 500, at(1_000));
        assert_eq!(reading.handle_timeout(&rules, None, at(1_001)), None);
    }

    #[test]
    fn a_closed_window_has_a_limit_of_its_own() {
        let rules = ReadRules { bytes_per_second: 100, period: 10 * S, closed_window: 60 * S };
        let mut reading = Reading::default();
        reading.handle_progress(0, 500, at(0));
        assert_eq!(reading.handle_timeout(&rules, Some(at(5)), at(30)), None);
        assert_eq!(reading.next_timeout(&rules, Some(at(5))), Some(at(40)));
        assert_eq!(
            reading.handle_timeout(&rules, Some(at(5)), at(65)),
            Some(Impatience::ClosedWindow)
        );
    }

    #[test]
    fn a_head_that_trickles_in_runs_out_of_time() {
        let mut timer = HeadTimer::default();
        assert_eq!(timer.next_timeout(20 * S), None);
        for s in 0..19 {
            timer.handle_input(true, at(s));
            assert_eq!(timer.handle_timeout(20 * S, at(s)), None);
        }
        assert_eq!(timer.handle_timeout(20 * S, at(20)), Some(Impatience::SlowHead));
        timer.handle_input(false, at(21));
        assert_eq!(timer.handle_timeout(20 * S, at(99)), None);
    }

    proptest! {
        /// Whoever reads twice as fast as needed, in whatever pieces, is never too slow; whoever
        /// reads at half of it always is, within four periods.
        #[test]
        fn the_rate_decides(pieces in proptest::collection::vec(1u64..9_000, 30..60), fast: bool) {
            let rules =
                ReadRules { bytes_per_second: 1_000, period: 10 * S, closed_window: 60 * S };
            let rate = if fast { 2_000 } else { 500 };
            let mut reading = Reading::default();
            let (mut now, mut verdict) = (at(10), None);
            reading.handle_progress(0, 1 << 30, now);
            let mut owed = 0;
            for ms in pieces {
                owed += ms * rate / 1_000;
                now += Duration::from_millis(ms);
                // What was read before is acknowledged before the clock is looked at.
                reading.handle_progress(owed as u32, 1 << 30, now);
                owed = 0;
                let found = reading.handle_timeout(&rules, None, now);
                verdict = verdict.or(found);
            }
            let long_enough = now.since(at(10)) > 50 * S;
            prop_assert!(!fast || verdict.is_none());
            prop_assert!(fast || !long_enough || verdict == Some(Impatience::SlowReader));
        }
    }
}
