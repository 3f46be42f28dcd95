//! Hold buffers: client bytes that the card has acknowledged and must still answer or hand to the
//! host.

use crate::limits::{HOLD_BYTES, PREFACE_ROOM_BYTES};

/// One buffer, moved in and out of the pool.
pub(crate) struct Hold {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Hold {
    /// The bytes held.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Bytes held.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Takes as many of `bytes` as fit behind what is held; returns how many.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> usize {
        if self.end + bytes.len() > self.bytes.len() && self.start > 0 {
            self.move_to(0);
        }
        let take =
            bytes.len().min(HOLD_BYTES.saturating_sub(self.len())).min(self.bytes.len() - self.end);
        self.bytes[self.end..self.end + take].copy_from_slice(&bytes[..take]);
        self.end += take;
        take
    }

    /// Puts bytes in front of what is held, all or none: false if there is no room.
    pub(crate) fn prepend(&mut self, bytes: &[u8]) -> bool {
        if self.len() + bytes.len() > self.bytes.len() {
            return false;
        }
        if self.start < bytes.len() {
            self.move_to(bytes.len());
        }
        self.start -= bytes.len();
        self.bytes[self.start..self.start + bytes.len()].copy_from_slice(bytes);
        true
    }

    /// Forgets all but the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.end = self.end.min(self.start + len);
    }

    fn move_to(&mut self, start: usize) {
        self.bytes.copy_within(self.start..self.end, start);
        (self.start, self.end) = (start, start + self.len());
    }

    /// Forgets the first `count` bytes (all of them, if fewer are held).
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }
}

/// A fixed number of hold buffers.
pub(crate) struct HoldPool {
    free: Vec<Hold>,
    lent: usize,
}

impl HoldPool {
    /// Allocates `count` buffers.
    pub(crate) fn new(count: usize) -> Self {
        let free = (0..count)
            .map(|_| Hold {
                bytes: vec![0; HOLD_BYTES + PREFACE_ROOM_BYTES].into_boxed_slice(),
                start: 0,
                end: 0,
            })
            .collect();
        Self { free, lent: 0 }
    }

    /// An empty buffer, if one is left.
    pub(crate) fn take(&mut self) -> Option<Hold> {
        let hold = self.free.pop()?;
        self.lent += 1;
        Some(hold)
    }

    /// An empty buffer, if more are left than are lent.
    pub(crate) fn take_one_of_many(&mut self) -> Option<Hold> {
        if self.free.len() > self.lent { self.take() } else { None }
    }

    /// Gives a buffer back.
    pub(crate) fn give(&mut self, mut hold: Hold) {
        hold.start = 0;
        hold.end = 0;
        self.lent -= 1;
        self.free.push(hold);
    }

    /// Is none left?
    pub(crate) fn is_empty(&self) -> bool {
        self.free.is_empty()
    }

    /// Buffers that were taken and not given back.
    pub(crate) fn lent(&self) -> usize {
        self.lent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn append_and_consume_keep_the_order_and_the_bound() {
        let mut pool = HoldPool::new(1);
        let mut hold = pool.take().expect("one buffer");
        assert!(pool.take().is_none());
        assert_eq!(hold.append(&[1; HOLD_BYTES - 10]), HOLD_BYTES - 10);
        hold.consume(HOLD_BYTES - 20);
        assert_eq!(hold.append(&[2; 100]), 100);
        assert_eq!(hold.bytes()[..10], [1; 10]);
        assert_eq!(hold.bytes()[10..], [2; 100]);
        assert_eq!(hold.append(&[3; HOLD_BYTES]), HOLD_BYTES - 110);
        assert!(hold.prepend(&[4; PREFACE_ROOM_BYTES]) && !hold.prepend(&[5; 1]));
        assert_eq!(hold.bytes()[..PREFACE_ROOM_BYTES], [4; PREFACE_ROOM_BYTES]);
        assert_eq!(hold.bytes()[PREFACE_ROOM_BYTES..PREFACE_ROOM_BYTES + 10], [1; 10]);
        assert_eq!(hold.len(), HOLD_BYTES + PREFACE_ROOM_BYTES);
        hold.consume(usize::MAX / 2);
        assert_eq!(hold.len(), 0);
        pool.give(hold);
        assert!(pool.take().is_some());
    }
}
