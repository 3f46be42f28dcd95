//! The way to the watcher: questions about fills and suspects out, answers in.

use std::time::Duration;

use nicache_coherence::{Answer, Question};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;

/// The way to the watcher. Implementations must not block.
pub trait CoherenceLink {
    /// Sends a question; false if it cannot be sent now.
    fn ask(&mut self, question: &Question<'_>) -> bool;
    /// The next answer that has come.
    fn poll_answer(&mut self) -> Option<Answer>;
}

/// Nobody to ask: nothing is ever stored.
pub struct NoWatcher;

impl CoherenceLink for NoWatcher {
    fn ask(&mut self, _: &Question<'_>) -> bool {
        false
    }
    fn poll_answer(&mut self) -> Option<Answer> {
        None
    }
}

/// How soon a watcher that was too busy for a question is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// How often the card looks whether the watcher owes it an answer for too long.
const REMINDER: Duration = Duration::from_millis(200);

impl<W: Port, H: Port> Card<W, H> {
    /// Is there nothing to ask the watcher, and no answer to wait for?
    pub(crate) fn has_no_questions(&self) -> bool {
        self.fills.is_idle() && self.store.has_no_suspects()
    }

    /// Takes the watcher's answers, then asks. `now` must have been read after the last frames were received.
    pub(crate) fn talk_to_watcher(&mut self, now: Time) {
        while let Some(answer) = self.link.poll_answer() {
            match answer {
                Answer::Fill(verdict) => self.fills.handle_verdict(&verdict, &mut self.store, &mut self.counters),
                Answer::Reinstate(verdict) => {
                    self.store.handle_reinstatement(verdict, &mut self.counters);
                    self.waiters.handle_answer();
                }
            }
        }
        self.fills.ask(&mut *self.link, &mut self.store, now, &mut self.counters);
        self.store.ask_about_suspects(&mut *self.link, now, &mut self.counters);
        let is_busy = self.fills.has_unasked() || self.store.has_unasked();
        self.watcher_due = Some(now + if is_busy { ASK_AGAIN_AFTER } else { REMINDER });
    }

    /// When the watcher is to be talked to, if it does not answer before; `Time(0)`: now.
    pub(crate) fn watcher_due(&self) -> Option<Time> {
        if self.has_no_questions() { None } else { Some(self.watcher_due.unwrap_or(Time(0))) }
    }
}
