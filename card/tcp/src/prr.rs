//! Proportional rate reduction (RFC 9937): how much may be sent for each acknowledgment while the
//! window is being reduced.
//!
//! The window shrinks to the threshold over about one round trip, in proportion to what arrives; if
//! losses have left less than the threshold on the path, it grows back to it no faster than slow
//! start would.
//!
//! Packets are conserved, not bytes: a segment that is shorter than others counts as a whole one,
//! whether it arrives or is sent. Otherwise the short end of a reply would let nothing go that was
//! lost before it.

/// One reduction of the window after a loss: how much may be sent for each acknowledgment until it
/// is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prr {
    /// RecoverFS: bytes on the path when it began.
    recover_flight: u32,
    /// Bytes that have arrived since.
    delivered: u64,
    /// Bytes sent since.
    out: u64,
    /// What may be on the path until the next acknowledgment.
    window: u32,
}

impl Prr {
    /// A reduction begins with `flight` bytes that were outstanding, less what has already arrived
    /// (RFC 9937 section 5, initialization).
    #[must_use]
    pub fn new(flight: u32, pipe: u32) -> Self {
        Self { recover_flight: flight.max(1), delivered: 0, out: 0, window: pipe }
    }

    /// Bytes that may be on the path.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// `delivered` bytes have newly arrived, `pipe` are on the path. `clean`: the acknowledgment
    /// advanced and brought no news of losses. (RFC 9937 section 5, on every acknowledgment.)
    pub fn handle_ack(&mut self, delivered: u32, pipe: u32, threshold: u32, mss: u32, clean: bool) {
        let delivered = delivered.next_multiple_of(mss);
        self.delivered += u64::from(delivered);
        let mut count = if pipe > threshold {
            // Proportional part.
            let target =
                (self.delivered * u64::from(threshold)).div_ceil(u64::from(self.recover_flight));
            target.saturating_sub(self.out)
        } else {
            // Conservative reduction bound, or slow start if all goes well.
            let mut count = self.delivered.saturating_sub(self.out).max(u64::from(delivered));
            if clean {
                count += u64::from(mss);
            }
            count.min(u64::from(threshold - pipe))
        };
        if self.out == 0 {
            // Something is sent at once.
            count = count.max(u64::from(mss));
        }
        self.window = pipe.saturating_add(count.min(u64::from(u32::MAX / 2)) as u32);
    }

    /// `bytes` were sent.
    pub fn handle_sent(&mut self, bytes: u32, mss: u32) {
        self.out += u64::from(bytes.next_multiple_of(mss));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    #[test]
    fn one_loss_of_twenty_sends_seven_for_ten() {
        // RFC 9937 section 6: with a factor of 0.7, about seven segments go out for ten that
        // arrive.
        let mut prr = Prr::new(20 * MSS, 16 * MSS);
        let (mut pipe, mut sent) = (19 * MSS, 0);
        for _ in 0..19 {
            pipe -= MSS;
            prr.handle_ack(MSS, pipe, 14 * MSS, MSS, false);
            while prr.window() >= pipe + MSS {
                pipe += MSS;
                sent += 1;
                prr.handle_sent(MSS, MSS);
            }
        }
        assert!((13..=14).contains(&sent), "{sent}");
        assert!((13 * MSS..=14 * MSS).contains(&pipe), "{pipe}");
    }

    #[test]
    fn heavy_losses_are_followed_by_slow_start_to_the_threshold() {
        // RFC 9937 section 6: fifteen of twenty are lost.
        let mut prr = Prr::new(20 * MSS, 2 * MSS);
        let mut pipe = 2 * MSS;
        for _ in 0..20 {
            let arrived = MSS.min(pipe);
            pipe -= arrived;
            prr.handle_ack(arrived, pipe, 14 * MSS, MSS, true);
            while prr.window() >= pipe + MSS {
                pipe += MSS;
                prr.handle_sent(MSS, MSS);
            }
        }
        assert_eq!(pipe, 14 * MSS);
    }

    #[test]
    fn a_short_segment_lets_a_whole_one_go() {
        // Two of eight are lost, and the last is short.
        let mut prr = Prr::new(8 * MSS, 0);
        prr.handle_ack(MSS, 0, 6 * MSS, MSS, false);
        assert_eq!(prr.window(), MSS);
        prr.handle_sent(MSS, MSS);
        prr.handle_ack(120, MSS, 6 * MSS, MSS, false);
        assert_eq!(prr.window(), 2 * MSS);
        prr.handle_sent(120, MSS);
        prr.handle_ack(0, MSS + 120, 6 * MSS, MSS, false);
        assert_eq!(prr.window(), MSS + 120, "the short one was the second");
    }

    proptest! {
        /// At the end of a reduction without further loss the path holds the threshold, within a
        /// segment; never more was sent than had arrived while the path held more than the
        /// threshold.
        #[test]
        fn it_ends_at_the_threshold(segments in 4u32..400, lost in 1u32..20) {
            let lost = lost.min(segments - 3);
            let threshold = segments * MSS * 7 / 10;
            let mut prr = Prr::new(segments * MSS, (segments - lost) * MSS);
            let mut pipe = (segments - lost) * MSS;
            let (mut arrived, mut sent) = (0u32, 0u32);
            for _ in 0..segments * 3 {
                pipe -= MSS;
                arrived += 1;
                prr.handle_ack(MSS, pipe, threshold, MSS, true);
                while prr.window() >= pipe + MSS {
                    pipe += MSS;
                    sent += 1;
                    prr.handle_sent(MSS, MSS);
                }
                prop_assert!(pipe <= threshold.max((segments - lost) * MSS));
                prop_assert!(pipe <= threshold || sent <= arrived);
                prop_assert!(pipe > 0, "the acknowledgments never stop");
            }
            prop_assert!(
                pipe + 2 * MSS > threshold && pipe <= threshold + MSS,
                "{pipe} {threshold}"
            );
        }
    }
}
