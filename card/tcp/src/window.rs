//! The peer's window (RFC 9293 sections 3.4 and 3.10.7.4).

use crate::seq::Seq;

/// The right edge of what the peer takes, with the segment that told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerWindow {
    edge: Seq,
    /// SND.WL1: sequence number of the segment that last updated the window; `None` when the next
    /// segment shall, whatever it is.
    wl1: Option<Seq>,
    /// SND.WL2: its acknowledgment number.
    wl2: Seq,
    /// Largest window seen, in bytes (MAX.SND.WND, RFC 5961 section 5.2).
    max: u32,
}

impl PeerWindow {
    /// `window` bytes are granted from `una` on.
    #[must_use]
    pub fn new(una: Seq, window: u32) -> Self {
        Self { edge: una + window, wl1: None, wl2: una, max: window }
    }

    /// The stream goes on at `seq`; the size of the window is kept until a segment tells better.
    pub fn move_to(&mut self, una: Seq, seq: Seq) {
        let size = self.edge.saturating_since(una);
        *self = Self { edge: seq + size, wl1: None, wl2: seq, max: self.max };
    }

    /// Takes the window of an acceptable segment; returns whether the right edge moved.
    ///
    /// RFC 9293 section 3.10.7.4: only if the segment is not older than the last that updated it
    /// (SND.WL1 < SEG.SEQ, or SND.WL1 = SEG.SEQ and SND.WL2 =< SEG.ACK).
    pub fn update(&mut self, seq: Seq, ack: Seq, window: u32) -> bool {
        let newer = match self.wl1 {
            None => true,
            Some(wl1) => wl1.lt(seq) || (wl1 == seq && self.wl2.le(ack)),
        };
        if !newer {
            return false;
        }
        self.wl1 = Some(seq);
        self.wl2 = ack;
        self.max = self.max.max(window);
        let edge = ack + window;
        let moved = edge != self.edge;
        self.edge = edge;
        moved
    }

    /// Behind the last byte that may be sent.
    #[must_use]
    pub fn edge(&self) -> Seq {
        self.edge
    }

    /// Largest window seen, in bytes.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_segment_does_not_update_the_window() {
        // RFC 9293 section 3.10.7.4.
        let mut w = PeerWindow::new(Seq(100), 1_000);
        assert!(w.update(Seq(5), Seq(200), 1_000));
        assert_eq!(w.edge(), Seq(1_200));
        assert!(!w.update(Seq(4), Seq(300), 5_000), "older sequence number");
        assert!(!w.update(Seq(5), Seq(150), 5_000), "older acknowledgment");
        assert!(w.update(Seq(5), Seq(200), 0), "a window may close");
        assert_eq!(w.edge(), Seq(200));
        assert!(w.update(Seq(6), Seq(200), 10));
        assert_eq!(w.largest(), 1_000);
    }

    #[test]
    fn moving_keeps_the_size() {
        let mut w = PeerWindow::new(Seq(100), 1_000);
        w.move_to(Seq(100), Seq(7_000));
        assert_eq!(w.edge(), Seq(8_000));
        assert!(w.update(Seq(1), Seq(7_000), 10), "any segment tells better");
    }
}
