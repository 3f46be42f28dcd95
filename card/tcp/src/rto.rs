//! The retransmission timeout and its back-off (RFC 6298 sections 2 and 5).

use core::time::Duration;

use crate::rtt::Rtt;
use crate::time::nanos;

/// Timeout before the first round-trip sample (RFC 6298 (2.1)).
pub const RTO_INITIAL: Duration = Duration::from_secs(1);

/// The number of times the timer expired without progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff(u8);

impl Backoff {
    /// One more expiry (RFC 6298 (5.5)).
    pub fn increase(&mut self) {
        self.0 = self.0.saturating_add(1);
    }

    /// Progress: the next timeout is the plain one.
    pub fn reset(&mut self) {
        self.0 = 0;
    }

    /// Expiries without progress so far.
    #[must_use]
    pub fn count(self) -> u8 {
        self.0
    }

    /// `base` doubled for every expiry, at most `max` (RFC 6298 (2.5), (5.5)).
    #[must_use]
    #[inline]
    pub fn apply(self, base: Duration, max: Duration) -> Duration {
        if self.0 == 0 {
            return base.min(max);
        }
        base.checked_mul(1u32.checked_shl(u32::from(self.0)).unwrap_or(u32::MAX))
            .unwrap_or(max)
            .min(max)
    }
}

/// The timeout without back-off: SRTT + max(4 * RTTVAR, `rto_min`).
///
/// RFC 6298 (2.3) takes max(G, 4 * RTTVAR) and (2.4) rounds the sum up to a minimum. Linux instead
/// puts the minimum under the variation, so a delayed acknowledgment (RFC 9293 section
/// 3.8.6.3: up to 500 ms, 40 to 200 ms in practice) on a long path does not look like a loss; the
/// result is never smaller.
#[inline]
#[must_use]
pub fn timeout(rtt: &Rtt, rto_min: Duration, rto_max: Duration) -> Duration {
    match rtt.smoothed_ns() {
        0 => RTO_INITIAL.min(rto_max),
        srtt => Duration::from_nanos(
            (srtt + (4 * rtt.variation_ns()).max(nanos(rto_min))).min(nanos(rto_max)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn before_a_sample_it_is_a_second() {
        // RFC 6298 (2.1).
        assert_eq!(timeout(&Rtt::default(), 200 * MS, 60_000 * MS), 1_000 * MS);
    }

    #[test]
    fn srtt_plus_four_variations_with_a_floor() {
        // RFC 6298 (2.2), (2.3).
        let mut rtt = Rtt::default();
        rtt.sample(100 * MS, 1);
        assert_eq!(timeout(&rtt, 200 * MS, 60_000 * MS), 300 * MS);
        let mut rtt = Rtt::default();
        rtt.sample(400 * MS, 1);
        assert_eq!(timeout(&rtt, 200 * MS, 60_000 * MS), 1_200 * MS);
    }

    #[test]
    fn doubling_is_capped() {
        // RFC 6298 (5.5), (2.5).
        let mut backoff = Backoff::default();
        let mut seen = Vec::new();
        for _ in 0..9 {
            seen.push(backoff.apply(300 * MS, 60_000 * MS).as_millis());
            backoff.increase();
        }
        assert_eq!(seen, [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 38_400, 60_000]);
        for _ in 0..300 {
            backoff.increase();
        }
        assert_eq!(backoff.apply(300 * MS, 60_000 * MS), 60_000 * MS);
    }
}
