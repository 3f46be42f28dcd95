//! Whether an entry may be served.

use nicache_coherence::Stamp;

/// May an entry be served?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// If its sources are unchanged.
    Good,
    /// No: a source has changed. The watcher is asked with the next poll.
    Suspect,
    /// No, until the watcher has answered; with the stamp that the entry has if it stays.
    Asked(Stamp),
    /// No, until the server says the same again.
    Lapsed,
}
