//! Timestamps (RFC 7323 sections 3 to 5): our clock, and protection against old segments.

use crate::options::Timestamps;
use crate::seq::Seq;
use crate::time::Time;

/// The clock of one flow's TSval: milliseconds of the card's time plus an offset. A tick of 1 ms is
/// within the range of RFC 7323 section 5.4 and what Linux uses, so a flow taken over in
/// mid-connection goes on at the same pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TsClock {
    offset: u32,
}

impl TsClock {
    /// A clock with an offset of its own; choose it at random per flow (RFC 7323 section 7.1).
    #[must_use]
    pub fn new(offset: u32) -> Self {
        Self { offset }
    }

    /// The TSval of a segment sent at `now`.
    #[must_use]
    pub fn at(&self, now: Time) -> u32 {
        (now.as_millis() as u32).wrapping_add(self.offset)
    }

    /// Somebody else sent `tsval` on this flow at `now`: from now on this clock is not behind it,
    /// so the receiver's PAWS check (RFC 7323 section 5) passes what we send next. A clock
    /// that is ahead stays.
    pub fn learn(&mut self, tsval: u32, now: Time) {
        if ahead(tsval, self.at(now)) {
            self.set(tsval, now);
        }
    }

    /// Shows `tsval` at `now`.
    pub fn set(&mut self, tsval: u32, now: Time) {
        self.offset = tsval.wrapping_sub(now.as_millis() as u32);
    }

    /// A received TSecr in ticks of the card's time, for [`crate::AckInfo::ts_ecr`].
    #[must_use]
    pub fn ticks(&self, ecr: u32) -> u32 {
        ecr.wrapping_sub(self.offset)
    }

    /// What has to be added to another's TSval at `now` to make it this clock's
    /// ([`crate::Splice::ts_delta`]).
    #[must_use]
    pub fn delta_from(&self, tsval: u32, now: Time) -> u32 {
        self.at(now).wrapping_sub(tsval)
    }
}

fn ahead(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) > 0
}

/// An idle connection's TS.Recent is void after 24 days (RFC 7323 section 5.5): by then the clock
/// of the peer may have wrapped.
const VALID_MS: u64 = 24 * 86_400 * 1_000;

/// TS.Recent and the PAWS check (RFC 7323 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paws {
    recent: u32,
    updated: Time,
}

impl Paws {
    /// `tsval` came with the peer's SYN.
    #[must_use]
    pub fn new(tsval: u32, now: Time) -> Self {
        Self { recent: tsval, updated: now }
    }

    /// TS.Recent: what to echo.
    #[must_use]
    pub fn recent(&self) -> u32 {
        self.recent
    }

    /// RFC 7323 section 5.3, R1: the segment is not from the past. A segment that fails is answered
    /// with an acknowledgment and dropped; RST is not subject to the check. Section 3.2: once
    /// agreed, a segment without timestamps (other than RST) is dropped.
    #[must_use]
    pub fn accepts(&self, timestamps: Option<Timestamps>, rst: bool, now: Time) -> bool {
        if rst {
            return true;
        }
        let Some(ts) = timestamps else { return false };
        !ahead(self.recent, ts.val) || now.since(self.updated).as_millis() as u64 > VALID_MS
    }

    /// RFC 7323 section 4.3 (2): takes the TSval of an accepted segment, unless the segment begins
    /// beyond the last acknowledgment sent.
    pub fn update(&mut self, ts: Timestamps, seq: Seq, last_ack_sent: Seq, now: Time) {
        if seq.le(last_ack_sent)
            && (!ahead(self.recent, ts.val)
                || now.since(self.updated).as_millis() as u64 > VALID_MS)
        {
            self.recent = ts.val;
            self.updated = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn a_taken_over_clock_goes_on() {
        let now = Time::from_millis(5_000);
        let mut clock = TsClock::new(u32::MAX - 4_990);
        assert_eq!(clock.at(now), 9);
        clock.learn(1_000, now);
        assert_eq!(clock.at(now + Duration::from_millis(3)), 1_003);
        clock.learn(500, now);
        assert_eq!(clock.at(now), 1_000, "never back");
        assert_eq!(clock.ticks(1_000), 5_000);
        assert_eq!(clock.delta_from(u32::MAX, now), 1_001);
    }

    #[test]
    fn paws() {
        // RFC 7323 section 5.3.
        let t0 = Time::ZERO;
        let ts = |val| Timestamps { val, ecr: 0 };
        let mut paws = Paws::new(u32::MAX - 1, t0);
        assert!(paws.accepts(Some(ts(u32::MAX - 1)), false, t0));
        assert!(paws.accepts(Some(ts(3)), false, t0), "across the wrap");
        assert!(!paws.accepts(Some(ts(u32::MAX - 2)), false, t0));
        assert!(!paws.accepts(None, false, t0), "section 3.2");
        assert!(paws.accepts(Some(ts(u32::MAX - 2)), true, t0), "RST");
        // Section 4.3 (2).
        paws.update(ts(3), Seq(11), Seq(10), t0);
        assert_eq!(paws.recent(), u32::MAX - 1, "beyond the last acknowledgment");
        paws.update(ts(3), Seq(10), Seq(10), t0);
        assert_eq!(paws.recent(), 3);
        // Section 5.5.
        assert!(!paws.accepts(Some(ts(1)), false, t0 + Duration::from_secs(23 * 86_400)));
        assert!(paws.accepts(Some(ts(1)), false, t0 + Duration::from_secs(25 * 86_400)));
    }
}
