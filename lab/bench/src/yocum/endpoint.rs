//! The ends of a TCP stream of the paper's time, as far as Figure 7 needs them: NewReno (RFC 5681,
//! RFC 6582), delayed acknowledgments, windows of 64 KB.
//!
//! Sequence numbers are bytes since the beginning, and do not wrap.

use std::collections::BTreeMap;

/// The window that a receiver offers: without scaling it is never more (RFC 7323).
const WINDOW_BYTES: u64 = 65_535;
/// Least timeout before everything is sent again.
pub(super) const TIMEOUT_NS: u64 = 1_000_000_000;
/// An acknowledgment waits for a second segment so long at most.
pub(super) const DELAYED_NS: u64 = 200_000_000;

/// Who sends, without end.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    mss: u64,
    acked: u64,
    next: u64,
    /// Sent for the first time up to here.
    top: u64,
    window: f64,
    threshold: f64,
    duplicates: u32,
    /// In recovery until this is acknowledged.
    recover: Option<u64>,
    /// A segment to be sent before others.
    again: Option<u64>,
}

impl Sender {
    /// An end that sends segments of so many bytes.
    pub(super) fn new(mss: u64) -> Self {
        Self {
            mss,
            acked: 0,
            next: 0,
            top: 0,
            window: 2.0 * mss as f64,
            threshold: WINDOW_BYTES as f64,
            duplicates: 0,
            recover: None,
            again: None,
        }
    }

    /// The first byte of a segment that may go now.
    pub(super) fn poll(&mut self) -> Option<u64> {
        if let Some(again) = self.again.take() {
            return Some(again);
        }
        let allowed = (self.window as u64).min(WINDOW_BYTES).max(self.mss);
        // A window that is not a multiple of a segment is used up by FreeBSD's short segments;
        // these here are whole, so the last one counts when half of it fits.
        if self.next - self.acked + self.mss > allowed + self.mss / 2 {
            return None;
        }
        let at = self.next;
        self.next += self.mss;
        self.top = self.top.max(self.next);
        Some(at)
    }

    /// Bytes that are not acknowledged.
    pub(super) fn flight(&self) -> u64 {
        self.next - self.acked
    }

    /// An acknowledgment has come. True: it acknowledges something new.
    pub(super) fn handle(&mut self, ack: u64) -> bool {
        let mss = self.mss as f64;
        if ack > self.acked {
            let gained = (ack - self.acked) as f64;
            self.acked = ack;
            self.next = self.next.max(ack);
            self.duplicates = 0;
            match self.recover {
                Some(recover) if ack < recover => {
                    self.again = Some(ack);
                    self.window = (self.window - gained + mss).max(mss);
                }
                Some(_) => {
                    self.recover = None;
                    self.window = self.threshold;
                }
                None if self.window < self.threshold => self.window += gained.min(mss),
                None => self.window += mss * mss / self.window,
            }
            self.window = self.window.min(2.0 * WINDOW_BYTES as f64);
            return true;
        }
        if ack == self.acked && self.flight() > 0 {
            self.duplicates += 1;
            if self.recover.is_some() {
                self.window += mss;
            } else if self.duplicates == 3 {
                self.threshold = (self.flight() as f64 / 2.0).max(2.0 * mss);
                self.window = self.threshold + 3.0 * mss;
                self.recover = Some(self.top);
                self.again = Some(self.acked);
            }
        }
        false
    }

    /// Nothing was acknowledged for too long.
    pub(super) fn time_out(&mut self) {
        self.threshold = (self.flight() as f64 / 2.0).max(2.0 * self.mss as f64);
        self.window = self.mss as f64;
        (self.next, self.duplicates, self.recover, self.again) = (self.acked, 0, None, None);
    }
}

/// Who receives.
#[derive(Debug, Clone, Default)]
pub(super) struct Receiver {
    next: u64,
    /// What came early: the first byte and the one behind the last.
    early: BTreeMap<u64, u64>,
    is_owing: bool,
}

impl Receiver {
    /// Bytes received in order.
    pub(super) fn received(&self) -> u64 {
        self.next
    }

    /// A segment has come. True: it is acknowledged at once.
    pub(super) fn handle(&mut self, at: u64, len: u64) -> bool {
        let had_gap = !self.early.is_empty();
        let is_next = at <= self.next && at + len > self.next;
        if is_next {
            self.next = at + len;
            while let Some(entry) =
                self.early.first_entry().filter(|entry| *entry.key() <= self.next)
            {
                self.next = self.next.max(entry.remove());
            }
        } else if at > self.next {
            self.early.insert(at, at + len);
        }
        let at_once = !is_next || had_gap || self.is_owing;
        self.is_owing = !at_once;
        at_once
    }

    /// The time for a second segment is over. True: an acknowledgment is owed.
    pub(super) fn time_out(&mut self) -> bool {
        std::mem::take(&mut self.is_owing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tenth segment is lost once: all arrives, in order.
    #[test]
    fn losses_are_repaired() {
        let (mut sender, mut receiver) = (Sender::new(1000), Receiver::default());
        let mut sent = 0u64;
        for _ in 0..20_000 {
            let mut acks = Vec::new();
            while let Some(at) = sender.poll() {
                sent += 1;
                if !sent.is_multiple_of(10) && receiver.handle(at, 1000) {
                    acks.push(receiver.received());
                }
            }
            if receiver.time_out() {
                acks.push(receiver.received());
            }
            if acks.is_empty() {
                sender.time_out();
            }
            for ack in acks {
                sender.handle(ack);
            }
        }
        assert!(
            receiver.received() > 10_000_000 && receiver.received() * 10 > sent * 1000 * 8,
            "{}",
            receiver.received()
        );
    }
}
