//! The entries that the watcher is asked about, and the questions that it has not answered.

use std::collections::VecDeque;
use std::time::Duration;

use nicache_coherence::Stamp;
use nicache_tcp::Time;

use super::entry::EntryId;
use crate::limits::SUSPECTS_MAX;

/// A verdict that has not come after this long will not come.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);
/// Questions of so long a time are waited for together.
const ROUND: Duration = Duration::from_millis(500);
/// So many rounds there can be: those that are waited for, one that has just begun, and one that is
/// about to be given up.
const ROUNDS_MAX: usize = 12;

/// The entries that the watcher is to be asked about, or was.
#[derive(Debug)]
pub(super) struct Suspects {
    pub(super) to_ask: Vec<EntryId>,
    /// The last one is the latest.
    rounds: VecDeque<Round>,
}

/// Questions with these stamps.
#[derive(Debug)]
struct Round {
    first: Stamp,
    last: Stamp,
    begun: Time,
    asked_last: Time,
    /// Not answered.
    open: usize,
}

impl Suspects {
    /// A list without entries.
    pub(super) fn new() -> Self {
        Self {
            to_ask: Vec::with_capacity(SUSPECTS_MAX),
            rounds: VecDeque::with_capacity(ROUNDS_MAX),
        }
    }

    /// Does the watcher owe no answer?
    pub(super) fn owes_nothing(&self) -> bool {
        self.rounds.is_empty()
    }

    /// A question with this stamp, which is not lower than any before, has been asked.
    pub(super) fn note_question(&mut self, stamp: Stamp, now: Time) {
        let is_full = self.rounds.len() == ROUNDS_MAX;
        match self.rounds.back_mut() {
            Some(round) if now < round.begun + ROUND || is_full => {
                (round.last, round.asked_last) = (stamp, now);
                round.open += 1;
            }
            _ => {
                self.rounds.push_back(Round {
                    first: stamp,
                    last: stamp,
                    begun: now,
                    asked_last: now,
                    open: 1,
                });
            }
        }
    }

    /// The watcher has answered a question with this stamp. Late answers count for nothing.
    pub(super) fn note_answer(&mut self, stamp: Stamp) {
        let has_it = |round: &Round| (round.first..=round.last).contains(&stamp);
        if let Some(at) = self.rounds.iter().position(has_it) {
            self.rounds[at].open -= 1;
            if self.rounds[at].open == 0 {
                self.rounds.remove(at);
            }
        }
    }

    /// Questions that were asked with the stamp that is returned, or with an earlier one, are no
    /// longer waited for; `None`: with each there may still be an answer.
    pub(super) fn give_up(&mut self, now: Time) -> Option<Stamp> {
        let is_late = |round: &Round| now > round.asked_last + VERDICT_PATIENCE;
        let mut given_up = None;
        while let Some(round) = self.rounds.front().filter(|round| is_late(round)) {
            given_up = Some(round.last);
            self.rounds.pop_front();
        }
        given_up
    }
}
