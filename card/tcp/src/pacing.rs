//! Pacing: when the next frame may leave, so a window is spread over its round trip instead of
//! filling the queues of the path at once.
//!
//! The rate is that of Linux' sk_pacing: twice the window per round trip in slow start, 1.2 times
//! after it. A frame has an earliest departure time; who is woken late may catch up on a few
//! milliseconds. What a flow sends first after a pause is an initial window at once (RFC 6928), and
//! at the beginning of a round trip one super-frame: a reply of some 100 KB shall not wait for its
//! last segments, and paths carry bursts of that size for everybody.

use core::time::Duration;

use crate::time::{Time, nanos};

/// Percent of the window per round trip, in slow start and after it (Linux' tcp_pacing_ss_ratio,
/// tcp_pacing_ca_ratio).
const SLOW_START_PERCENT: u64 = 200;
const AVOIDANCE_PERCENT: u64 = 120;
/// What may be caught up on after a late wake-up.
const CATCH_UP: Duration = Duration::from_millis(2);
/// A frame has about as much as leaves in this time (Linux' tcp_tso_autosize), and at least
/// [`SEGMENTS_MIN`] segments.
const FRAME_TIME: Duration = Duration::from_millis(1);
const SEGMENTS_MIN: u32 = 2;

/// Bytes that may go at once at the beginning of a round trip: as much as a super-frame has, which
/// leaves at once anyway.
const ROUND_BYTES: u32 = 65_536;

/// When a flow may send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pacer {
    next: Time,
    /// Bytes that may go at once.
    free: u32,
    /// Bytes per second; zero: no pacing.
    rate: u64,
}

impl Pacer {
    /// The path as it is now: a window of `window` bytes, a round trip of `srtt`. Round trips
    /// shorter than `rtt_min` are not paced.
    pub fn set_path(
        &mut self,
        window: u32,
        slow_start: bool,
        srtt: Option<Duration>,
        rtt_min: Duration,
    ) {
        self.rate = match srtt {
            Some(srtt) if srtt >= rtt_min && !srtt.is_zero() => {
                let percent = if slow_start { SLOW_START_PERCENT } else { AVOIDANCE_PERCENT };
                let bytes =
                    u128::from(window) * u128::from(percent) * 10_000_000 / u128::from(nanos(srtt));
                u64::try_from(bytes).unwrap_or(u64::MAX).max(1)
            }
            _ => 0,
        };
    }

    /// Frames go at once, whatever the path.
    pub fn stop(&mut self) {
        self.rate = 0;
    }

    /// Bytes per second, if the flow is paced.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        (self.rate > 0).then_some(self.rate)
    }

    /// Nothing is outstanding: `bytes` may go at once.
    pub fn start(&mut self, bytes: u32) {
        self.free = self.free.max(bytes);
    }

    /// A round trip begins: what was sent at the beginning of the one before has been acknowledged.
    pub fn start_round(&mut self) {
        self.free = ROUND_BYTES;
    }

    /// When the next frame may leave, if not now.
    #[must_use]
    pub fn blocked_until(&self, now: Time) -> Option<Time> {
        (self.rate > 0 && self.free == 0 && self.next > now).then_some(self.next)
    }

    /// Payload bytes of one frame at most, for segments of `mss` bytes.
    #[must_use]
    pub fn frame_bytes_max(&self, mss: u32) -> u32 {
        if self.rate == 0 {
            return u32::MAX;
        }
        let bytes = u128::from(self.rate) * FRAME_TIME.as_nanos() / 1_000_000_000;
        let segments = (bytes / u128::from(mss.max(1))).min(u128::from(u16::MAX)) as u32;
        segments.max(SEGMENTS_MIN) * mss
    }

    /// A frame of `bytes` leaves.
    pub fn handle_sent(&mut self, bytes: u32, now: Time) {
        let paid = bytes.saturating_sub(self.free);
        self.free -= self.free.min(bytes);
        if self.rate > 0 {
            let takes = u128::from(paid) * 1_000_000_000 / u128::from(self.rate);
            let takes = Duration::from_nanos(u64::try_from(takes).unwrap_or(u64::MAX));
            self.next = self.next.max(now - CATCH_UP) + takes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    fn paced(window: u32) -> Pacer {
        let mut pacer = Pacer::default();
        pacer.set_path(window, false, Some(Duration::from_millis(100)), Duration::from_millis(5));
        pacer
    }

    #[test]
    fn rates_are_those_of_linux() {
        assert_eq!(paced(100_000).rate(), Some(1_200_000));
        let mut pacer = paced(100_000);
        pacer.set_path(100_000, true, Some(Duration::from_millis(100)), Duration::ZERO);
        assert_eq!(pacer.rate(), Some(2_000_000));
        pacer.set_path(100_000, true, Some(Duration::from_micros(50)), Duration::from_millis(5));
        assert_eq!(
            (pacer.rate(), pacer.frame_bytes_max(MSS)),
            (None, u32::MAX),
            "a short path is not paced"
        );
        assert_eq!(pacer.blocked_until(Time::ZERO), None);
    }

    #[test]
    fn an_initial_window_goes_at_once() {
        let mut pacer = paced(10_000);
        pacer.start(10_000);
        for _ in 0..10 {
            assert_eq!(pacer.blocked_until(Time::from_millis(100)), None);
            pacer.handle_sent(MSS, Time::from_millis(100));
        }
        pacer.handle_sent(MSS, Time::from_millis(100));
        pacer.handle_sent(MSS, Time::from_millis(100));
        assert!(pacer.blocked_until(Time::from_millis(100)).is_some());
    }

    #[test]
    fn frames_take_a_millisecond() {
        assert_eq!(paced(100_000).frame_bytes_max(MSS), 2 * MSS);
        assert_eq!(paced(10_000_000).frame_bytes_max(MSS), 120 * MSS);
    }

    proptest! {
        /// Whatever the wake-ups do, no more leaves than the rate allows with the catch-up and one
        /// frame, and with wake-ups in time nearly that.
        #[test]
        fn the_rate_is_kept(
            window in 20_000u32..5_000_000,
            late_us in proptest::collection::vec(0u64..1_500, 100),
        ) {
            let mut pacer = paced(window);
            let rate = pacer.rate().unwrap() as f64;
            let (mut now, mut sent) = (Time::from_millis(1_000), 0f64);
            let begun = now;
            for late in late_us {
                while pacer.blocked_until(now).is_none() {
                    let bytes = pacer.frame_bytes_max(MSS);
                    pacer.handle_sent(bytes, now);
                    sent += f64::from(bytes);
                }
                now = pacer.blocked_until(now).unwrap() + Duration::from_micros(late);
            }
            let seconds = (now - begun).as_secs_f64();
            let slack = 2.0 * f64::from(pacer.frame_bytes_max(MSS)) + rate * 0.004;
            prop_assert!(sent <= rate * seconds + slack, "{sent} in {seconds} s at {rate}");
            prop_assert!(sent >= rate * seconds * 0.95 - slack, "{sent} in {seconds} s at {rate}");
        }
    }
}
