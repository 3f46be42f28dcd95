//! Frames all of whose bytes are wanted: what only the card has is fetched, and they are looked at
//! in the order in which they came.

use nicache_tcp::Time;

use super::{Engine, LOOKING_MAX, ROOM};
use crate::backend::{Backend, Broken};
use crate::decision::{Incoming, Moment};
use crate::forwarder::Forwarder;
use crate::frame::{Frame, Piece};
use crate::waiting::WAITING_FOR;

impl<B: Backend> Engine<B> {
    /// All bytes of a frame are wanted.
    pub(super) fn look_at(&mut self, frame: Box<Frame>) -> Result<(), Broken> {
        if self.looking.len() >= LOOKING_MAX {
            self.counters.looked_in_vain += 1;
            self.finish(frame);
            return Ok(());
        }
        self.fetch_all(&frame)?;
        self.looking.push_back(frame);
        Ok(())
    }

    /// Whether only the card has the bytes of a part.
    pub(super) fn is_away(&self, piece: &Piece) -> bool {
        piece.is_split && !self.buffers[piece.buffer.0 as usize].in_memory
    }

    /// Whether it is on its way to main memory.
    pub(super) fn is_fetched(&self, piece: &Piece) -> bool {
        self.buffers[piece.buffer.0 as usize].is_fetched
    }

    /// Fetches what is not in main memory. False: some of it is lost.
    fn fetch_all(&mut self, frame: &Frame) -> Result<bool, Broken> {
        for piece in
            frame.pieces.iter().filter(|piece| self.is_away(piece)).copied().collect::<Vec<_>>()
        {
            if !self.is_fetched(&piece) {
                if self.pcache.cached(piece.buffer).is_none() {
                    return Ok(false);
                }
                self.spill(piece.buffer)?;
            }
        }
        Ok(true)
    }

    /// Forwards those whose bytes are there. Returns how many that were.
    pub(super) fn pass_whole(
        &mut self,
        forwarder: &mut Forwarder,
        now: Time,
        random: &mut impl FnMut() -> u32,
    ) -> Result<usize, Broken> {
        let mut count = 0;
        while let Some(frame) = self.looking.pop_front() {
            if frame.pieces.iter().any(|piece| self.is_away(piece)) {
                if self.fetch_all(&frame)? {
                    self.looking.push_front(frame);
                    break;
                }
                self.counters.looked_in_vain += 1;
                self.finish(frame);
                continue;
            }
            if self.backend.room()? < ROOM {
                self.looking.push_front(frame);
                break;
            }
            let mut bytes = vec![0; frame.len];
            for Piece { buffer, frame_at, len, at, .. } in frame.pieces.iter().copied() {
                self.backend.read(buffer, at, &mut bytes[frame_at..frame_at + len])?;
            }
            self.counters.looked_at += 1;
            count += 1;
            let mut head = std::mem::take(&mut self.head);
            let incoming =
                Incoming { look: &bytes, len: frame.len, port: frame.port, offload: frame.offload };
            let moment = Moment { now, random: random() };
            let decision = forwarder.handle_whole(&incoming, &mut head, moment);
            if let Some(frame) = self.act(forwarder, frame, decision, head, moment)? {
                self.wait_again(forwarder, frame, now + WAITING_FOR, now);
            }
        }
        Ok(count)
    }
}
