//! Zero-window probes (RFC 9293 section 3.8.6.1).
//!
//! The first probe comes one retransmission timeout after the window closed, the following at
//! doubling intervals. A peer that answers may keep its window closed as long as it likes
//! (MUST-37); how long such a flow is worth its memory is for the owner of the flow table to decide
//! (RFC 6429).

use core::time::Duration;

use crate::rto::Backoff;
use crate::time::Time;

/// State of probing a closed window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Persist {
    backoff: Backoff,
    unanswered: u8,
    since: Option<Time>,
}

impl Persist {
    /// Time from now to the next probe.
    #[must_use]
    pub fn interval(&self, rto: Duration, max: Duration) -> Duration {
        self.backoff.apply(rto, max)
    }

    /// The window was found closed, with something to send.
    pub fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// A probe goes out.
    pub fn probe(&mut self) {
        self.backoff.increase();
        self.unanswered = self.unanswered.saturating_add(1);
    }

    /// The peer sent an acceptable acknowledgment.
    pub fn answered(&mut self) {
        self.unanswered = 0;
    }

    /// The window is open.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    /// Probes without any answer.
    #[must_use]
    pub fn unanswered(&self) -> u8 {
        self.unanswered
    }

    /// Since when the window is closed with something to send.
    #[must_use]
    pub fn since(&self) -> Option<Time> {
        self.since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_and_answers_keep_the_flow_alive() {
        // RFC 9293 section 3.8.6.1: SHLD-29, SHLD-30, MUST-37.
        let (rto, max) = (Duration::from_millis(300), Duration::from_secs(60));
        let mut p = Persist::default();
        p.begin(Time(7));
        p.begin(Time(9));
        assert_eq!(p.since(), Some(Time(7)));
        let mut seen = Vec::new();
        for _ in 0..10 {
            seen.push(p.interval(rto, max).as_millis());
            p.probe();
            p.answered();
        }
        assert_eq!(seen[..4], [300, 600, 1_200, 2_400]);
        assert_eq!(seen[9], 60_000);
        assert_eq!(p.unanswered(), 0);
        p.end();
        assert_eq!((p.since(), p.interval(rto, max)), (None, rto));
    }
}
