//! The round-trip time estimate (RFC 6298 section 2, RFC 7323 section 4 and appendix G).

use core::time::Duration;

use crate::time::{Time, nanos};

/// Smoothed round-trip time and its variation, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rtt {
    srtt_ns: u64,
    rttvar_ns: u64,
    min_ns: u64,
    min_at: Time,
}

/// A sample is cut to this, so a peer that echoes nonsense cannot freeze the flow.
const SAMPLE_NS_MAX: u64 = 120_000_000_000;
/// The least round trip is that of this time: a path may change (RFC 8985 section 6.2 step 1;
/// Linux' tcp_min_rtt_wlen).
const LEAST_OF_NS: u64 = 300_000_000_000;

impl Rtt {
    /// Takes a sample.
    ///
    /// `samples_per_round` is the number of samples expected per round trip: with timestamps there
    /// are many, and each then weighs less (RFC 7323 appendix G).
    pub fn sample(&mut self, rtt: Duration, samples_per_round: u32) {
        self.sample_ns(nanos(rtt), samples_per_round);
    }

    #[inline]
    fn sample_ns(&mut self, rtt_ns: u64, samples_per_round: u32) {
        let r = rtt_ns.clamp(1, SAMPLE_NS_MAX);
        if self.srtt_ns == 0 {
            // RFC 6298 (2.2): SRTT <- R, RTTVAR <- R/2.
            self.srtt_ns = r;
            self.rttvar_ns = r / 2;
            return;
        }
        let n = u64::from(samples_per_round.clamp(1, 1 << 16));
        // RFC 6298 (2.3), with alpha' = alpha/n and beta' = beta/n (RFC 7323 appendix G):
        // RTTVAR <- (1 - beta') * RTTVAR + beta' * |SRTT - R|, then
        // SRTT <- (1 - alpha') * SRTT + alpha' * R.
        let deviation = self.srtt_ns.abs_diff(r);
        if n == 1 {
            // Divisors that the compiler knows.
            self.rttvar_ns = approach(self.rttvar_ns, deviation, 4);
            self.srtt_ns = approach(self.srtt_ns, r, 8).max(1);
            return;
        }
        self.rttvar_ns = approach(self.rttvar_ns, deviation, 4 * n);
        self.srtt_ns = approach(self.srtt_ns, r, 8 * n).max(1);
    }

    /// What was acknowledged had been sent once, `us` microseconds before: a sample, and perhaps
    /// the least round trip.
    #[inline]
    pub fn observe_age(&mut self, us: u32, samples_per_round: u32, now: Time) {
        let rtt_ns = u64::from(us) * 1_000;
        self.observe_least_ns(rtt_ns, now);
        self.sample_ns(rtt_ns, samples_per_round);
    }

    /// Is the smoothed round trip shorter than `limit`, or not known? None is shorter than zero.
    #[must_use]
    pub fn is_below(&self, limit: Duration) -> bool {
        self.srtt_ns == 0 || self.srtt_ns < nanos(limit)
    }

    /// The smoothed round-trip time in nanoseconds, 0 before a sample.
    #[must_use]
    pub fn smoothed_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// The variation of the round-trip time in nanoseconds.
    #[must_use]
    pub fn variation_ns(&self) -> u64 {
        self.rttvar_ns
    }

    /// The smoothed round-trip time, once there was a sample.
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        (self.srtt_ns != 0).then(|| Duration::from_nanos(self.srtt_ns))
    }

    /// The variation (RTTVAR).
    #[must_use]
    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    /// Takes a round trip for the least one: that of the last segment acknowledged, without the
    /// receiver's delay for earlier ones.
    pub fn observe_least(&mut self, rtt: Duration, now: Time) {
        self.observe_least_ns(nanos(rtt), now);
    }

    #[inline]
    fn observe_least_ns(&mut self, rtt_ns: u64, now: Time) {
        let r = rtt_ns.clamp(1, SAMPLE_NS_MAX);
        if self.min_ns == 0 || r <= self.min_ns || now.0.saturating_sub(self.min_at.0) > LEAST_OF_NS
        {
            (self.min_ns, self.min_at) = (r, now);
        }
    }

    /// The least round trip of the last minutes.
    #[must_use]
    pub fn least(&self) -> Option<Duration> {
        (self.min_ns != 0).then(|| Duration::from_nanos(self.min_ns))
    }
}

/// Moves `from` by one `parts`-th of the way to `to`.
#[inline]
fn approach(from: u64, to: u64, parts: u64) -> u64 {
    if to >= from { from + (to - from) / parts } else { from - (from - to) / parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn first_sample() {
        // RFC 6298 (2.2).
        let mut rtt = Rtt::default();
        assert_eq!(rtt.smoothed(), None);
        rtt.sample(100 * MS, 1);
        assert_eq!(rtt.smoothed(), Some(100 * MS));
        assert_eq!(rtt.variation(), 50 * MS);
    }

    #[test]
    fn later_samples() {
        // RFC 6298 (2.3): alpha 1/8, beta 1/4, RTTVAR from the old SRTT.
        let mut rtt = Rtt::default();
        rtt.sample(100 * MS, 1);
        rtt.sample(180 * MS, 1);
        assert_eq!(rtt.variation(), Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), Some(110 * MS));
    }

    #[test]
    fn the_least_is_forgotten_when_the_path_has_changed() {
        let mut rtt = Rtt::default();
        rtt.observe_least(40 * MS, Time::ZERO);
        rtt.observe_least(70 * MS, Time::from_millis(299_000));
        assert_eq!(rtt.least(), Some(40 * MS));
        rtt.observe_least(70 * MS, Time::from_millis(301_000));
        assert_eq!(rtt.least(), Some(70 * MS));
    }

    #[test]
    fn many_samples_per_round_weigh_less() {
        // RFC 7323 appendix G.
        let mut rtt = Rtt::default();
        rtt.sample(100 * MS, 10);
        rtt.sample(180 * MS, 10);
        assert_eq!(rtt.smoothed(), Some(101 * MS));
        assert_eq!(rtt.variation(), Duration::from_micros(50_750));
    }
}
