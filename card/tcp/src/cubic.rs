//! The CUBIC congestion window (RFC 9438), with slow start (RFC 5681 section 3.1).
//!
//! Windows are kept in bytes; the RFC's formulas count segments of the sender's maximum size. Times
//! are seconds of congestion avoidance in which the window was the limit: a sender that had nothing
//! to send does not move along the curve (RFC 9438 section 5.8, RFC 7661).

use core::time::Duration;

use crate::time::Time;

/// Multiplicative decrease (RFC 9438 section 4.6).
pub const BETA: f64 = 0.7;
/// Decrease for a mark instead of a loss (RFC 8511 section 3): marks come early, while the queue is
/// short.
pub const BETA_ECN: f64 = 0.85;
/// Aggressiveness, segments per cubic second (RFC 9438 section 5.1).
pub const C: f64 = 0.4;
/// Additive increase that matches Reno's rate with [`BETA`] (RFC 9438 section 4.3).
pub const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// Windows never grow beyond this: the largest that a header can announce (RFC 7323 section 2.3).
pub const WINDOW_BYTES_MAX: u32 = 1 << 30;

/// W_cubic(t) in segments (RFC 9438 section 4.2, figure 1).
#[must_use]
pub fn w_cubic(t: f64, k: f64, w_max: f64) -> f64 {
    let d = t - k;
    C * d * d * d + w_max
}

/// Congestion window, slow start threshold and the state of the cubic curve of one flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cubic {
    /// Congestion window in segments; fractions add up between acknowledgments.
    cwnd: f64,
    /// RFC 9438 W_max, in segments; 0 before the first congestion event.
    w_max: f64,
    /// RFC 9438 W_est, in segments.
    w_est: f64,
    /// RFC 9438 cwnd_prior, in segments.
    cwnd_prior: f64,
    /// RFC 9438 K, in seconds.
    k: f64,
    /// Start of the curve, moved forward by time that does not count; `None` before the first
    /// acknowledgment of a congestion avoidance stage.
    epoch: Option<Time>,
    /// Last growth, to find time in which the window was not the limit.
    last_growth: Time,
    /// Slow start threshold in segments.
    ssthresh: f64,
    /// Bytes per segment.
    mss: u32,
    /// The stage after a timeout starts its curve at the window it finds (RFC 9438 section 4.8).
    after_timeout: bool,
}

impl Cubic {
    /// A flow that may send `initial_segments` at first.
    #[must_use]
    pub fn new(mss: u32, initial_segments: u32) -> Self {
        Self {
            cwnd: f64::from(initial_segments.max(1)),
            w_max: 0.0,
            w_est: 0.0,
            cwnd_prior: 0.0,
            k: 0.0,
            epoch: None,
            last_growth: Time::ZERO,
            ssthresh: f64::INFINITY,
            mss: mss.max(1),
            after_timeout: false,
        }
    }

    /// The congestion window in bytes, at least one segment.
    #[must_use]
    pub fn window(&self) -> u32 {
        let bytes = self.cwnd * f64::from(self.mss);
        (bytes.min(f64::from(WINDOW_BYTES_MAX)) as u32).max(self.mss)
    }

    /// The slow start threshold in bytes; `u32::MAX` before the first congestion event.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        (self.ssthresh * f64::from(self.mss)).min(f64::from(u32::MAX)) as u32
    }

    /// The window is below the threshold (RFC 5681 section 3.1).
    #[must_use]
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Another segment size; the window keeps its bytes.
    pub fn set_mss(&mut self, mss: u32) {
        let mss = mss.max(1);
        let factor = f64::from(self.mss) / f64::from(mss);
        self.mss = mss;
        for w in [
            &mut self.cwnd,
            &mut self.w_max,
            &mut self.w_est,
            &mut self.cwnd_prior,
            &mut self.ssthresh,
        ] {
            *w *= factor;
        }
    }

    /// `acked` bytes have newly arrived outside loss recovery while the window was the limit.
    /// `divisor` slows slow start down ([`crate::hystart::GROWTH_DIVISOR`]); usually 1.
    pub fn grow(&mut self, acked: u32, divisor: f64, srtt: Duration, now: Time) {
        let mut acked = f64::from(acked) / f64::from(self.mss);
        let cap = f64::from(WINDOW_BYTES_MAX) / f64::from(self.mss);
        if self.in_slow_start() {
            // RFC 5681 section 3.1 with appropriate byte counting: every acknowledged segment opens
            // the window by one, up to the threshold; what is left goes to congestion avoidance.
            let step = (acked / divisor).min(self.ssthresh - self.cwnd);
            self.cwnd = (self.cwnd + step).min(cap);
            acked -= step * divisor;
            self.last_growth = now;
            if acked <= 0.0 {
                return;
            }
        }
        self.avoid_congestion(acked, srtt, now);
        self.cwnd = self.cwnd.min(cap);
    }

    fn avoid_congestion(&mut self, acked: f64, srtt: Duration, now: Time) {
        let epoch = match self.epoch {
            Some(epoch) => {
                // RFC 9438 section 5.8: time in which the application was the limit does not
                // count. Growth comes at least once per round trip while the window is the limit.
                let idle = now.since(self.last_growth).saturating_sub(srtt);
                epoch + idle
            }
            None => {
                self.begin_epoch();
                now
            }
        };
        self.epoch = Some(epoch);
        self.last_growth = now;
        let t = now.since(epoch).as_secs_f64();

        // RFC 9438 section 4.3, figure 4; section 4.3: alpha is 1 once W_est reached cwnd_prior.
        let alpha = if self.w_est >= self.cwnd_prior { 1.0 } else { ALPHA };
        self.w_est += alpha * acked / self.cwnd;

        if w_cubic(t, self.k, self.w_max) < self.w_est {
            // RFC 9438 section 4.3: Reno-friendly region.
            self.cwnd = self.cwnd.max(self.w_est);
        } else {
            // RFC 9438 section 4.2: target = W_cubic(t + RTT) within [cwnd, 1.5 cwnd];
            // sections 4.4 and 4.5: every acknowledged segment adds (target - cwnd) / cwnd.
            let target = w_cubic(t + srtt.as_secs_f64(), self.k, self.w_max)
                .clamp(self.cwnd, 1.5 * self.cwnd);
            self.cwnd += (target - self.cwnd) / self.cwnd * acked;
        }
    }

    fn begin_epoch(&mut self) {
        self.w_est = self.cwnd;
        if self.after_timeout || self.w_max < self.cwnd {
            // RFC 9438 section 4.8 (first stage after a timeout) and section 4.10 (slow start ended
            // without a congestion event): K = 0 and W_max = the window at the start.
            self.k = 0.0;
            self.w_max = self.cwnd;
        } else {
            // RFC 9438 section 4.2, figure 2.
            self.k = ((self.w_max - self.cwnd) / C).cbrt();
        }
        self.after_timeout = false;
    }

    /// A loss was detected by acknowledgments. The window itself counts, not what is outstanding
    /// (RFC 9438 section 4.6 leaves the choice to a sender whose window grows only when it is
    /// used).
    pub fn handle_loss(&mut self) {
        self.reduce(BETA);
        // RFC 9438 section 4.6: cwnd = max(ssthresh, 2).
        self.cwnd = self.ssthresh;
    }

    /// A router has marked a packet (RFC 3168 section 6.1.2, RFC 8511).
    pub fn handle_mark(&mut self) {
        self.reduce(BETA_ECN);
        self.cwnd = self.ssthresh;
    }

    /// The retransmission timer expired with `flight` bytes thought to be on the path. `again` says
    /// that the window was reduced before for the same data: the threshold then stays (RFC 5681
    /// section 3.1, equation 4).
    pub fn handle_timeout(&mut self, flight: u32, again: bool) {
        if !again {
            self.reduce(BETA);
        }
        // RFC 5681 section 3.1: the loss window is one segment, beside what is still on its way.
        self.cwnd = 1.0 + f64::from(flight) / f64::from(self.mss);
        self.after_timeout = true;
    }

    /// The threshold becomes the window: slow start ends without a loss (RFC 9406 section 4.2).
    pub fn end_slow_start(&mut self) {
        self.ssthresh = self.ssthresh.min(self.cwnd);
    }

    /// This state, with a window at least as large as that of `other`.
    #[must_use]
    pub fn at_least(&self, other: &Self) -> Self {
        Self { cwnd: self.cwnd.max(other.cwnd), epoch: None, ..*self }
    }

    fn reduce(&mut self, beta: f64) {
        self.cwnd_prior = self.cwnd;
        // RFC 9438 section 4.7: fast convergence.
        self.w_max =
            if self.cwnd < self.w_max { self.cwnd * (1.0 + BETA) / 2.0 } else { self.cwnd };
        self.epoch = None;
        self.after_timeout = false;
        // RFC 9438 section 4.6: ssthresh = max(cwnd * beta, 2).
        self.ssthresh = (self.cwnd * beta).max(2.0);
    }

    /// The flow was idle for `idle`, more than a timeout of `rto` (RFC 5681 section 4.1, RFC 2861
    /// section 2): the window is halved for each timeout, down to the initial one; the threshold
    /// remembers what was reached.
    pub fn restart(&mut self, initial_segments: u32, idle: Duration, rto: Duration) {
        let initial = f64::from(initial_segments.max(1));
        if self.cwnd > initial {
            if self.ssthresh.is_finite() {
                self.ssthresh = self.ssthresh.max(self.cwnd * 0.75);
            }
            let timeouts = idle.as_nanos() / rto.as_nanos().max(1);
            self.cwnd = (self.cwnd / 2f64.powi(timeouts.min(64) as i32)).max(initial);
        }
        self.epoch = None;
        self.w_max = self.w_max.max(self.cwnd);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    /// Runs a flow at a fixed round-trip time, acknowledging segment by segment, and returns the
    /// window at the end of each round.
    fn rounds(cubic: &mut Cubic, now: &mut Time, rtt: Duration, count: usize) -> Vec<f64> {
        (0..count)
            .map(|_| {
                let segments = cubic.window() / MSS;
                for i in 0..segments {
                    cubic.grow(MSS, 1.0, rtt, *now + rtt * i / segments);
                }
                *now += rtt;
                f64::from(cubic.window()) / f64::from(MSS)
            })
            .collect()
    }

    #[test]
    fn slow_start_doubles_per_round_and_stops_at_the_threshold() {
        // RFC 5681 section 3.1.
        let mut cubic = Cubic::new(MSS, 10);
        let mut now = Time::ZERO;
        assert_eq!(rounds(&mut cubic, &mut now, Duration::from_millis(50), 3), [20.0, 40.0, 80.0]);
        cubic.handle_timeout(0, false);
        assert_eq!((cubic.window(), cubic.threshold()), (MSS, 56 * MSS));
        let grown = rounds(&mut cubic, &mut now, Duration::from_millis(50), 6);
        assert_eq!(grown[..5], [2.0, 4.0, 8.0, 16.0, 32.0]);
        assert!(grown[5] >= 56.0 && grown[5] < 58.0, "{grown:?}");
    }

    #[test]
    fn the_curve_follows_the_formula() {
        // RFC 9438 section 4.2, figures 1 and 2: after a loss at 1000 segments the window goes from
        // 700 back to 1000 in K = cbrt(300 / 0.4) = 9.0856 s, and beyond. At 100 ms the cubic
        // region holds all along (section 4.3: Reno would add about 0.53 segments a round).
        let rtt = Duration::from_millis(100);
        let mut cubic = Cubic::new(MSS, 1_000);
        cubic.handle_loss();
        assert_eq!(cubic.window(), 700 * MSS);
        let mut now = Time::from_millis(5_000);
        let k = (300.0f64 / 0.4).cbrt();
        assert!((k - 9.0856).abs() < 1e-3);
        for (round, window) in rounds(&mut cubic, &mut now, rtt, 150).into_iter().enumerate() {
            let t = (round + 1) as f64 * 0.1;
            let expected = w_cubic(t, k, 1_000.0);
            assert!(
                (window - expected).abs() < expected * 0.01,
                "t {t}: {window} against {expected}"
            );
        }
    }

    #[test]
    fn the_reno_friendly_region() {
        // RFC 9438 section 4.3: with a small window and a short round trip W_est leads; it grows by
        // alpha segments per round up to cwnd_prior, then by one.
        let rtt = Duration::from_millis(5);
        let mut cubic = Cubic::new(MSS, 20);
        cubic.handle_loss();
        assert_eq!(cubic.window(), 14 * MSS);
        let mut now = Time::from_millis(1_000);
        let grown = rounds(&mut cubic, &mut now, rtt, 40);
        // Window counts of whole segments per round make the step a little less than alpha.
        let slope = (grown[9] - grown[0]) / 9.0;
        assert!((slope - ALPHA).abs() < 0.06, "{slope}");
        let slope = (grown[39] - grown[19]) / 20.0;
        assert!((slope - 1.0).abs() < 0.06, "{slope}");
    }

    #[test]
    fn decrease_and_fast_convergence() {
        // RFC 9438 sections 4.6 and 4.7.
        let mut cubic = Cubic::new(MSS, 100);
        cubic.handle_loss();
        assert_eq!((cubic.window(), cubic.w_max), (70 * MSS, 100.0));
        cubic.handle_loss();
        assert_eq!(cubic.window(), 49 * MSS);
        assert!((cubic.w_max - 70.0 * 0.85).abs() < 1e-9);
        let mut small = Cubic::new(MSS, 2);
        small.handle_loss();
        assert_eq!(small.window(), 2 * MSS);
    }

    #[test]
    fn the_stage_after_a_timeout() {
        // RFC 9438 section 4.8: K = 0, W_max = the window at its start.
        let rtt = Duration::from_millis(100);
        let mut cubic = Cubic::new(MSS, 100);
        cubic.handle_timeout(0, false);
        let mut now = Time::from_millis(1);
        rounds(&mut cubic, &mut now, rtt, 8);
        assert_eq!(cubic.k, 0.0);
        assert!((cubic.w_max - 70.0).abs() < 1.0);
        // RFC 5681 section 3.1: a second expiry for the same data leaves the threshold.
        cubic.handle_timeout(2 * MSS, true);
        assert_eq!((cubic.threshold(), cubic.window()), (70 * MSS, 3 * MSS));
    }

    #[test]
    fn idle_time_does_not_move_the_curve() {
        // RFC 9438 section 5.8.
        let rtt = Duration::from_millis(100);
        let mut busy = Cubic::new(MSS, 1_000);
        busy.handle_loss();
        let mut now = Time::from_millis(1);
        rounds(&mut busy, &mut now, rtt, 10);
        let mut paused = busy;
        let mut later = now + Duration::from_secs(30);
        let a = rounds(&mut busy, &mut now, rtt, 5);
        let b = rounds(&mut paused, &mut later, rtt, 5);
        assert!((a[4] - b[4]).abs() < 10.0, "{a:?} {b:?}");
    }

    #[test]
    fn a_restart_after_idle_is_at_most_the_initial_window() {
        // RFC 5681 section 4.1, RFC 2861 section 2.
        let mut cubic = Cubic::new(MSS, 10);
        let mut now = Time::ZERO;
        rounds(&mut cubic, &mut now, Duration::from_millis(10), 4);
        let rto = Duration::from_millis(300);
        assert_eq!(cubic.window(), 160 * MSS);
        cubic.restart(10, rto * 5 / 2, rto);
        assert_eq!(cubic.window(), 40 * MSS, "halved for each timeout");
        cubic.restart(10, rto * 100, rto);
        assert_eq!(cubic.window(), 10 * MSS);
        assert!(cubic.in_slow_start());
    }

    #[test]
    fn a_mark_costs_less_than_a_loss() {
        // RFC 8511 section 3.
        let mut cubic = Cubic::new(MSS, 100);
        cubic.handle_mark();
        assert_eq!((cubic.window(), cubic.threshold()), (85 * MSS, 85 * MSS));
    }

    #[test]
    fn a_state_taken_back_keeps_what_has_grown_since() {
        let saved = Cubic::new(MSS, 100);
        let mut now = saved;
        now.handle_loss();
        assert_eq!(
            (saved.at_least(&now).window(), saved.at_least(&now).threshold()),
            (100 * MSS, u32::MAX)
        );
        assert_eq!(Cubic::new(MSS, 10).at_least(&now).window(), 70 * MSS);
    }

    #[test]
    fn another_segment_size_keeps_the_bytes() {
        let mut cubic = Cubic::new(1_400, 10);
        cubic.set_mss(700);
        assert_eq!(cubic.window(), 14_000);
    }
}
