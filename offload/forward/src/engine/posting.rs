//! Which entry a receive gets, by mode; and what is fetched so its entry can go (Yocum and
//! Chase 2001, section 4.2).

use super::{Buffer, Engine, UnderWay, Use};
use crate::backend::{Backend, Broken, Loaded};
use crate::modes::Mode;
use crate::pcache::{Bound, BufferId, SendBind};

impl<B: Backend> Engine<B> {
    pub(super) fn post(&mut self) -> Result<(), Broken> {
        while self.posted < self.config.posts
            && let Some(buffer) = self.free.pop()
        {
            // It is used for something else now.
            self.pcache.pc_invalidate_binding(buffer);
            let split = self.entry_for(buffer)?;
            let posted = split.map(|(bound, copy): (Bound, bool)| {
                (Loaded { entry: bound.entry, generation: bound.generation }, copy)
            });
            self.buffers[buffer.0 as usize] = Buffer {
                is_posted: true,
                with_entry: split.is_some(),
                with_copy: split.is_some_and(|(_, copy)| copy),
                ..Buffer::default()
            };
            self.posted += 1;
            if !self.backend.post(buffer, posted)? {
                // There are never more posts than the ring has places, unless the card holds them
                // back.
                if split.is_some() {
                    let _ = self.pcache.pc_receive_complete(buffer, false);
                }
                self.buffers[buffer.0 as usize] = Buffer::default();
                self.posted -= 1;
                self.free.push(buffer);
                break;
            }
        }
        Ok(())
    }

    /// An entry for a receive, and whether the payload is to be copied, too. `None`: the whole
    /// frame goes to main memory.
    fn entry_for(&mut self, buffer: BufferId) -> Result<Option<(Bound, bool)>, Broken> {
        if self.config.mode == Mode::Copy {
            return Ok(None);
        }
        let copy = match self.config.mode {
            Mode::Pcache => true,
            Mode::Adaptive => self.pressure.look(self.precious, self.pcache.entries()),
            _ => false,
        };
        match self.pcache.next_evicted() {
            Some(Some(old)) if self.is_precious(old) && self.config.mode != Mode::Direct => {
                self.spill(old)?;
                self.counters.posted_whole += 1;
                Ok(None)
            }
            Some(_) => {
                let bound = self.pcache.pc_receive_bind(buffer).ok().flatten();
                Ok(bound.map(|bound| (bound, copy)))
            }
            None => {
                self.counters.posted_whole += 1;
                Ok(None)
            }
        }
    }

    /// Fetches what would be lost, so its entry can go.
    pub(super) fn spill(&mut self, buffer: BufferId) -> Result<(), Broken> {
        if self.buffers[buffer.0 as usize].is_fetched || self.backend.room()? < 1 {
            return Ok(());
        }
        let Ok(SendBind::Hit(Bound { entry, generation, .. })) = self.pcache.pc_send_bind(buffer)
        else {
            return Ok(());
        };
        let len = self.buffers[buffer.0 as usize].len;
        let done = self.backend.fetch(buffer, Loaded { entry, generation }, len)?;
        let known = &mut self.buffers[buffer.0 as usize];
        known.is_fetched = true;
        known.under_way += 1;
        self.counters.spilled += 1;
        self.under_way.push_back(UnderWay { done, buffer, kind: Use::Fetch });
        Ok(())
    }
}
