//! What is asked for before a forwarder sleeps, so there is a bell for whatever it waits for.
//!
//! Whoever looks for room in the ring of commands also learns what the card is done with. It may
//! look after completions were taken, and no bell rings for what it has seen. So completions and
//! room are looked at once more after the bells were asked for.

use nicache_tcp::Time;

use super::{Engine, NEVER, ROOM};
use crate::backend::{Backend, Broken};
use crate::forwarder::Forwarder;

impl<B: Backend> Engine<B> {
    /// Asks for bells before it sleeps. False: there is something to do.
    ///
    /// # Errors
    /// The card is broken.
    pub fn prepare_sleep(&mut self, forwarder: &Forwarder) -> Result<bool, Broken> {
        let needed = self.room_needed(forwarder);
        let wants_done = needed.is_some() || !self.under_way.is_empty();
        let wants_posts = self.posted < self.config.posts && !self.free.is_empty();
        let is_quiet = self.backend.prepare_sleep(wants_done, wants_posts)?;
        let done = self.backend.done()?;
        let is_over = self.under_way.front().is_some_and(|first| first.done <= done);
        let has_room = match needed {
            Some(needed) => self.backend.room()? >= needed,
            None => false,
        };
        Ok(is_quiet && !is_over && !has_room)
    }

    /// When a frame is to be given up, if nothing comes before.
    pub fn next_due(&self) -> Option<Time> {
        // Those that wait for room are given up when there is some.
        self.waiting.next_due().filter(|_| self.learned != NEVER)
    }

    /// How many commands there must be room for, so something that waits for that can go on.
    fn room_needed(&self, forwarder: &Forwarder) -> Option<u64> {
        let waits = self.learned == NEVER && self.waiting.len() > 0 || !self.queue.is_empty();
        let looked_at = self.looking.front().and_then(|frame| {
            let mut away = frame.pieces.iter().filter(|piece| self.is_away(piece)).peekable();
            match away.peek() {
                None => Some(ROOM),
                // A fetch. Of one that is under way, the end is waited for.
                Some(_) => away.any(|piece| !self.is_fetched(piece)).then_some(1),
            }
        });
        let own = forwarder.has_own().then_some(1);
        [waits.then_some(ROOM), looked_at, own].into_iter().flatten().min()
    }
}
