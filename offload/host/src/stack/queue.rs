//! What is to be sent on a connection, as buffers. Nothing is copied for a transmission, nor for a
//! retransmission.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use nicache_tcp::Seq;

use crate::mbuf::Mbuf;

/// Most places of one packet's bytes, so its descriptors and the card's gather list have room
/// for them.
pub const PACKET_PARTS_MAX: usize = 48;

/// What is to be sent on a connection, as buffers. Nothing is copied for a transmission, nor for a
/// retransmission.
#[derive(Debug)]
pub struct SendQueue {
    buffers: VecDeque<Mbuf>,
    /// Sequence number of the first byte of the first buffer.
    start: Seq,
    bytes: u32,
}

impl SendQueue {
    /// Nothing yet; the first byte will be `start`.
    pub fn new(start: Seq) -> Self {
        Self { buffers: VecDeque::new(), start, bytes: 0 }
    }

    /// Adds a buffer behind the others.
    pub fn push(&mut self, buffer: Mbuf) {
        if !buffer.is_empty() {
            self.bytes += buffer.len();
            self.buffers.push_back(buffer);
        }
    }

    /// Bytes in it that are not acknowledged.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// The buffers of `len` bytes from a sequence number on: as many as one packet can have.
    /// Returns the bytes that they have.
    pub fn gather(&self, seq: Seq, len: u32, into: &mut ArrayVec<Mbuf, PACKET_PARTS_MAX>) -> u32 {
        into.clear();
        let (mut skip, mut left) = (seq.since(self.start), len);
        let mut places = PACKET_PARTS_MAX as u32;
        for buffer in &self.buffers {
            if skip >= buffer.len() {
                skip -= buffer.len();
                continue;
            }
            if left == 0 || places == 0 {
                break;
            }
            let part = buffer.part(skip, left, places);
            let is_cut = part.len() < left && part.len() < buffer.len() - skip;
            (skip, left, places) = (0, left - part.len(), places - part.places());
            into.push(part);
            if is_cut {
                break;
            }
        }
        len - left
    }

    /// Everything before `una` is acknowledged: hands out the buffers that nobody needs any longer.
    pub fn release(&mut self, una: Seq, mut free: impl FnMut(Mbuf)) {
        while let Some(first) = self.buffers.front()
            && (self.start + first.len()).le(una)
        {
            self.start += first.len();
            self.bytes -= first.len();
            free(*first);
            self.buffers.pop_front();
        }
    }

    /// The connection is over: hands out all buffers.
    pub fn clear(&mut self, free: impl FnMut(Mbuf)) {
        self.bytes = 0;
        self.buffers.drain(..).for_each(free);
    }
}

#[cfg(test)]
mod tests {
    use nicache_bus::BusClass;

    use super::*;
    use crate::mbuf::Owner;

    fn bytes(mmaddr: u64, len: u32) -> Mbuf {
        Mbuf::Bytes { mmaddr, len, class: BusClass::Other, owner: Owner::Nobody }
    }

    #[test]
    fn parts_by_sequence_number() {
        let start = Seq(u32::MAX - 5);
        let mut queue = SendQueue::new(start);
        for number in 0..4 {
            queue.push(bytes(1000 * number, 10));
        }
        queue.push(bytes(1, 0));
        let mut parts = ArrayVec::new();
        assert_eq!(queue.gather(start + 15, 12, &mut parts), 12);
        assert_eq!(parts.as_slice(), [bytes(1005, 5), bytes(2000, 7)]);
        assert_eq!(queue.gather(start + 35, 100, &mut parts), 5, "there are no more");
        let mut freed = Vec::new();
        queue.release(start + 29, |buffer| freed.push(buffer));
        assert_eq!(
            (freed.as_slice(), queue.bytes()),
            ([bytes(0, 10), bytes(1000, 10)].as_slice(), 20)
        );
        assert_eq!(queue.gather(start + 29, 2, &mut parts), 2);
        assert_eq!(parts.as_slice(), [bytes(2009, 1), bytes(3000, 1)]);
        queue.clear(|buffer| freed.push(buffer));
        assert_eq!((freed.len(), queue.bytes()), (4, 0));
    }

    #[test]
    fn a_packet_has_so_many_parts() {
        let mut queue = SendQueue::new(Seq(0));
        for number in 0..100 {
            queue.push(bytes(number, 1));
        }
        let mut parts = ArrayVec::new();
        assert_eq!(queue.gather(Seq(0), 100, &mut parts), PACKET_PARTS_MAX as u32);
    }
}
