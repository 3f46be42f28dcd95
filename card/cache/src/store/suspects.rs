//! The entries that the watcher is asked about.

use nicache_coherence::Stamp;
use nicache_tcp::Time;

use super::entry::EntryId;
use crate::limits::SUSPECTS_MAX;

/// The entries that the watcher is to be asked about, or was.
#[derive(Debug)]
pub(super) struct Suspects {
    pub(super) to_ask: Vec<EntryId>,
    pub(super) asked: usize,
    pub(super) asked_last: Time,
    /// Answers to questions with this stamp and before are no longer waited for.
    pub(super) given_up: Stamp,
}

impl Suspects {
    /// A list without entries.
    pub(super) fn new() -> Self {
        Self {
            to_ask: Vec::with_capacity(SUSPECTS_MAX),
            asked: 0,
            asked_last: Time(0),
            given_up: Stamp(0),
        }
    }
}
