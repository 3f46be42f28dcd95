//! The in-order receiver of request bytes (RFC 9293 section 3.10.7.4).
//!
//! Nothing out of order is kept: a request is a few segments at most, and the peer sends again what
//! is answered with a duplicate acknowledgment. Hence no SACK is ever generated here.

use crate::seq::Seq;

/// What became of a segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    /// Skip the first `skip` payload bytes (they are old), take the next `take`, ignore the rest
    /// (it is beyond the window); RCV.NXT has moved. `fin`: the peer's stream ends here. All zero
    /// and false for a segment without payload at RCV.NXT or within the window.
    InOrder {
        /// Old bytes.
        skip: u32,
        /// New bytes.
        take: u32,
        /// FIN was taken.
        fin: bool,
    },
    /// Nothing new: acknowledge at once (a retransmission or a keep-alive probe).
    Duplicate,
    /// Bytes are missing before it: acknowledge at once (RFC 5681 section 4.2).
    Gap,
    /// The segment lies wholly outside the window: acknowledge and drop the segment (RFC 9293
    /// section
    /// 3.10.7.4).
    OutOfWindow,
}

/// The receiving side of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiver {
    nxt: Seq,
    /// Behind the last byte promised to the peer; never moves back (RFC 9293 section 3.8.6).
    edge: Seq,
    /// Bytes that the caller can take beyond `nxt`.
    room: u32,
    capacity: u32,
    finished: bool,
}

impl Receiver {
    /// Expects `nxt`; the caller can hold `window` bytes.
    #[must_use]
    pub fn new(nxt: Seq, window: u32) -> Self {
        Self { nxt, edge: nxt + window, room: window, capacity: window, finished: false }
    }

    /// The next byte expected (RCV.NXT): the acknowledgment number to send.
    #[must_use]
    pub fn nxt(&self) -> Seq {
        self.nxt
    }

    /// The window to announce, in bytes (RCV.WND).
    #[must_use]
    pub fn window(&self) -> u32 {
        self.edge.saturating_since(self.nxt)
    }

    /// The peer's FIN was taken.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.finished
    }

    /// The stream goes on at `nxt`, whoever received what was before.
    pub fn resume_at(&mut self, nxt: Seq) {
        *self =
            Self { edge: self.edge.max(nxt + self.capacity), nxt, room: self.capacity, ..*self };
    }

    /// The caller has consumed `bytes` that it took before. The right edge follows only in steps
    /// worth announcing (RFC 9293 section 3.8.6.2.2: half of the buffer or more, or a segment of
    /// `mss`); returns whether it moved.
    pub fn release(&mut self, bytes: u32, mss: u32) -> bool {
        self.room = self.room.saturating_add(bytes).min(self.capacity);
        let reachable = self.nxt + self.room;
        let step = reachable.saturating_since(self.edge);
        if step > 0 && step >= mss.min(self.capacity / 2) {
            self.edge = reachable;
            return true;
        }
        false
    }

    /// Judges a segment's payload of `len` bytes at `seq` and moves RCV.NXT over what was taken.
    pub fn handle_data(&mut self, seq: Seq, len: u32, fin: bool) -> Accept {
        let window = self.window();
        let length = len.saturating_add(u32::from(fin));
        // RFC 9293 section 3.4, the four cases of segment acceptability.
        if length == 0 {
            return if seq == self.nxt || seq.within(self.nxt, window) {
                Accept::InOrder { skip: 0, take: 0, fin: false }
            } else if seq.lt(self.nxt) {
                Accept::Duplicate
            } else {
                Accept::OutOfWindow
            };
        }
        let end = seq + length;
        if end.le(self.nxt) {
            return Accept::Duplicate;
        }
        if self.finished {
            return Accept::OutOfWindow;
        }
        if window == 0 {
            return Accept::OutOfWindow;
        }
        if seq.gt(self.nxt) {
            return if seq.within(self.nxt, window) { Accept::Gap } else { Accept::OutOfWindow };
        }
        let skip = self.nxt.since(seq).min(len);
        let take = (len - skip).min(window).min(self.room);
        // FIN counts only when every byte before it was taken and it lies in the window.
        let fin = fin && skip + take == len && take < window;
        self.nxt += take + u32::from(fin);
        self.room -= take;
        self.finished |= fin;
        if take == 0 && !fin { Accept::OutOfWindow } else { Accept::InOrder { skip, take, fin } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn in_order_overlapping_old_and_beyond() {
        // RFC 9293 section 3.10.7.4: bytes outside the window are trimmed.
        let mut r = Receiver::new(Seq(u32::MAX - 9), 100);
        assert_eq!(
            r.handle_data(Seq(u32::MAX - 9), 20, false),
            Accept::InOrder { skip: 0, take: 20, fin: false }
        );
        assert_eq!((r.nxt(), r.window()), (Seq(10), 80));
        assert_eq!(r.handle_data(Seq(u32::MAX - 9), 20, false), Accept::Duplicate);
        assert_eq!(
            r.handle_data(Seq(5), 10, false),
            Accept::InOrder { skip: 5, take: 5, fin: false }
        );
        assert_eq!(r.handle_data(Seq(20), 5, false), Accept::Gap);
        assert_eq!(r.handle_data(Seq(90), 5, false), Accept::OutOfWindow);
        assert_eq!(
            r.handle_data(Seq(15), 100, true),
            Accept::InOrder { skip: 0, take: 75, fin: false }
        );
        assert_eq!(r.window(), 0);
        assert_eq!(r.handle_data(Seq(90), 1, false), Accept::OutOfWindow, "zero window");
        assert_eq!(
            r.handle_data(Seq(90), 0, false),
            Accept::InOrder { skip: 0, take: 0, fin: false }
        );
    }

    #[test]
    fn fin_in_order_and_once() {
        let mut r = Receiver::new(Seq(0), 100);
        assert_eq!(r.handle_data(Seq(10), 0, true), Accept::Gap);
        assert_eq!(
            r.handle_data(Seq(0), 10, true),
            Accept::InOrder { skip: 0, take: 10, fin: true }
        );
        assert_eq!(r.nxt(), Seq(11));
        assert!(r.finished());
        assert_eq!(r.handle_data(Seq(0), 10, true), Accept::Duplicate);
        assert_eq!(r.handle_data(Seq(11), 1, false), Accept::OutOfWindow);
    }

    #[test]
    fn the_window_opens_in_steps() {
        // RFC 9293 section 3.8.6.2.2.
        let mut r = Receiver::new(Seq(0), 1_000);
        r.handle_data(Seq(0), 1_000, false);
        assert!(!r.release(100, 300));
        assert_eq!(r.window(), 0);
        assert!(r.release(200, 300));
        assert_eq!(r.window(), 300);
    }

    proptest! {
        #[test]
        fn any_segments_deliver_the_stream_once(
            start: u32,
            segments in proptest::collection::vec((0u32..300, 0u32..60), 0..200),
        ) {
            let base = Seq(start);
            let mut r = Receiver::new(base, 100);
            let mut delivered = 0u32;
            for (at, len) in segments {
                let at = at.min(delivered + 50);
                let edge = r.nxt() + r.window();
                if let Accept::InOrder { skip, take, .. } = r.handle_data(base + at, len, false) {
                    if take > 0 {
                        prop_assert_eq!(at + skip, delivered);
                    }
                    delivered += take;
                    prop_assert!((base + delivered).le(edge));
                    r.release(take, 20);
                }
                prop_assert_eq!(r.nxt(), base + delivered);
            }
        }
    }
}
