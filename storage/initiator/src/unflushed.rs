//! What the target has acknowledged but need not have made durable.
//!
//! A target that loses its power forgets completed writes up to the last SYNCHRONIZE CACHE (SBC-3,
//! section 4.15), and a later one that succeeds says nothing about them. An initiator cannot tell
//! such a target from one whose connection broke. So the bytes of completed writes stay here until
//! a flush covers them, and are written again in a new session.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::lun::{BLOCK_BYTES, blocks};

/// Counts flushes; a write belongs to the one that will cover it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Generation(u64);

/// The blocks of completed writes that no flush has covered.
#[derive(Debug)]
pub(crate) struct Unflushed {
    blocks: BTreeMap<u64, (Generation, Bytes)>,
    current: Generation,
}

impl Unflushed {
    pub(crate) fn new() -> Self {
        Self { blocks: BTreeMap::new(), current: Generation(0) }
    }

    /// A write is complete.
    pub(crate) fn handle_written(&mut self, offset: u64, data: &[Bytes]) {
        for (at, block) in blocks(offset, data) {
            self.blocks.insert(at, (self.current, block));
        }
    }

    /// A flush is about to be sent: it will cover what is complete now.
    pub(crate) fn begin_flush(&mut self) -> Generation {
        let covered = self.current;
        self.current.0 += 1;
        covered
    }

    /// A flush that covers these writes succeeded.
    pub(crate) fn handle_flushed(&mut self, covered: Generation) {
        self.blocks.retain(|_, (generation, _)| *generation > covered);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
    }

    /// The writes that bring a target that lost them up to date, none longer than `bytes_max`.
    pub(crate) fn writes(&self, bytes_max: usize) -> Vec<(u64, Vec<Bytes>)> {
        let mut writes: Vec<(u64, Vec<Bytes>)> = Vec::new();
        for (&at, (_, block)) in &self.blocks {
            match writes.last_mut() {
                Some((start, data))
                    if *start + (data.len() * BLOCK_BYTES) as u64 == at
                        && (data.len() + 1) * BLOCK_BYTES <= bytes_max =>
                {
                    data.push(block.clone());
                }
                _ => writes.push((at, vec![block.clone()])),
            }
        }
        writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(byte: u8) -> Bytes {
        Bytes::from(vec![byte; BLOCK_BYTES])
    }

    #[test]
    fn a_flush_covers_only_what_was_complete_when_it_was_sent() {
        let mut unflushed = Unflushed::new();
        unflushed.handle_written(0, &[block(1), block(2)]);
        let covered = unflushed.begin_flush();
        unflushed.handle_written(4096, &[block(3)]);
        unflushed.handle_flushed(covered);
        assert_eq!(unflushed.writes(1 << 20), vec![(4096, vec![block(3)])]);
    }

    #[test]
    fn a_flush_that_failed_covers_nothing() {
        let mut unflushed = Unflushed::new();
        unflushed.handle_written(0, &[block(1)]);
        unflushed.begin_flush();
        let covered = unflushed.begin_flush();
        assert_eq!(unflushed.bytes(), BLOCK_BYTES);
        unflushed.handle_flushed(covered);
        assert_eq!(unflushed.bytes(), 0);
    }

    #[test]
    fn neighbours_become_one_write_up_to_the_limit() {
        let mut unflushed = Unflushed::new();
        for i in [2_u64, 0, 1, 5] {
            unflushed.handle_written(i * 4096, &[block(i as u8)]);
        }
        let writes = unflushed.writes(2 * BLOCK_BYTES);
        let shape: Vec<(u64, usize)> = writes.iter().map(|(at, data)| (*at, data.len())).collect();
        assert_eq!(shape, [(0, 2), (8192, 1), (20480, 1)]);
    }
}
