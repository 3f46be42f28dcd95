//! Tail loss probes (RFC 8985 section 7): when nothing is heard for two round trips, one segment
//! more, or the last one again, makes the receiver tell what it has; so the end of a burst is
//! repaired without waiting for the retransmission timer.

use core::time::Duration;

use crate::seq::Seq;
use crate::time::nanos;

/// Added to two round trips, for the clocks of both ends (Linux' TCP_TIMEOUT_MIN).
const SLACK: Duration = Duration::from_millis(2);
/// What a receiver may wait with the acknowledgment of a lone segment (TLP.max_ack_delay).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

/// How long to wait for an acknowledgment before probing, in nanoseconds, for a smoothed round trip
/// of `srtt_ns` (RFC 8985 section 7.2). `lone`: not more than one segment is outstanding.
#[inline]
#[must_use]
pub fn wait_ns(srtt_ns: u64, lone: bool) -> u64 {
    2 * srtt_ns + if lone { nanos(ACK_DELAY_MAX) } else { nanos(SLACK) }
}

/// What the acknowledgments say about a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Open,
    /// Nothing was lost, or the ordinary means will find it.
    Done,
    /// The probe repaired a loss that nothing else has shown: the window has to be reduced (section
    /// 7.4.2).
    Repaired,
}

/// A probe under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailProbe {
    /// TLP.end_seq: SND.NXT behind the probe.
    end: Seq,
    /// TLP.is_retrans.
    again: bool,
}

/// What an acknowledgment says.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// The number that is acknowledged.
    pub ack: Seq,
    /// Something new is acknowledged or reported.
    pub is_progress: bool,
    /// Behind the bytes that it reports as arrived twice.
    pub duplicate_end: Option<Seq>,
    /// The timestamp echoed is from before the probe.
    pub echo_is_older: bool,
}

impl TailProbe {
    /// A probe was sent; `end` is SND.NXT behind it. `again`: it repeated old bytes.
    #[must_use]
    pub fn new(end: Seq, again: bool) -> Self {
        Self { end, again }
    }

    /// Looks at an acknowledgment (section 7.4.2).
    #[must_use]
    pub fn judge(&self, told: &Told) -> Verdict {
        if told.ack.lt(self.end) {
            return Verdict::Open;
        }
        if !self.again || told.duplicate_end == Some(self.end) || told.echo_is_older {
            return Verdict::Done;
        }
        if told.ack.gt(self.end) {
            return Verdict::Repaired;
        }
        // Twice the same number without news: both copies have arrived.
        if told.is_progress { Verdict::Open } else { Verdict::Done }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(ack: u32, is_progress: bool) -> Told {
        Told { ack: Seq(ack), is_progress, duplicate_end: None, echo_is_older: false }
    }

    #[test]
    fn new_data_as_a_probe_repairs_nothing() {
        let probe = TailProbe::new(Seq(500), false);
        assert_eq!(probe.judge(&told(400, true)), Verdict::Open);
        assert_eq!(probe.judge(&told(500, true)), Verdict::Done);
    }

    #[test]
    fn a_repetition_that_arrived_twice_was_not_needed() {
        // RFC 8985 section 7.4.2.
        let probe = TailProbe::new(Seq(500), true);
        assert_eq!(probe.judge(&told(500, true)), Verdict::Open);
        assert_eq!(probe.judge(&told(500, false)), Verdict::Done);
        assert_eq!(
            probe.judge(&Told { duplicate_end: Some(Seq(500)), ..told(500, false) }),
            Verdict::Done
        );
        assert_eq!(probe.judge(&Told { echo_is_older: true, ..told(500, true) }), Verdict::Done);
        assert_eq!(probe.judge(&told(600, true)), Verdict::Repaired);
    }

    #[test]
    fn a_lone_segment_waits_for_a_delayed_acknowledgment() {
        assert_eq!(
            (wait_ns(50_000_000, false), wait_ns(50_000_000, true)),
            (102_000_000, 300_000_000)
        );
    }
}
