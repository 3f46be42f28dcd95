//! Questions to the watcher about fills and suspects: when they are asked, and who hears the
//! answers.

use std::time::Duration;

use nicache_coherence::Answer;
use nicache_tcp::Time;

use crate::counters::Counters;
use crate::fill::Fills;
use crate::link::CoherenceLink;
use crate::store::Store;
use crate::wait::Waiters;

/// How soon a watcher that was too busy for a question is asked again.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// How often it is looked whether the watcher owes an answer for too long.
const REMINDER: Duration = Duration::from_millis(200);

/// The talk with the watcher.
pub struct Questions {
    link: Box<dyn CoherenceLink + Send>,
    /// When the watcher is talked to at the latest; not set for a question that is new.
    due: Option<Time>,
}

impl Questions {
    /// A talk over that link.
    pub fn new(link: Box<dyn CoherenceLink + Send>) -> Self {
        Self { link, due: None }
    }

    /// Takes the watcher's answers, then asks, and returns true; false if there is nothing to ask,
    /// and no answer to wait for. `now` must have been read after the last bytes of replies were
    /// received.
    pub fn talk<Id: Copy + PartialEq>(
        &mut self,
        fills: &mut Fills,
        store: &mut Store,
        waiters: &mut Waiters<Id>,
        counters: &mut Counters,
        now: Time,
    ) -> bool {
        if are_none(fills, store) {
            self.due = None;
            return false;
        }
        while let Some(answer) = self.link.poll_answer() {
            match answer {
                Answer::Fill(verdict) => fills.handle_verdict(&verdict, store, counters),
                Answer::Reinstate(verdict) => {
                    store.handle_reinstatement(verdict, counters);
                    waiters.handle_change();
                }
            }
        }
        fills.ask(&mut *self.link, store, now, counters);
        store.ask_about_suspects(&mut *self.link, now, counters);
        let is_busy = fills.has_unasked() || store.has_unasked();
        self.due = Some(now + if is_busy { ASK_AGAIN_AFTER } else { REMINDER });
        true
    }

    /// When the watcher is to be talked to, if it does not answer before; `Time(0)`: now.
    pub fn due(&self, fills: &Fills, store: &Store) -> Option<Time> {
        if are_none(fills, store) { None } else { Some(self.due.unwrap_or(Time(0))) }
    }
}

/// Is there nothing to ask the watcher, and no answer to wait for?
fn are_none(fills: &Fills, store: &Store) -> bool {
    fills.is_idle() && store.has_no_suspects()
}
