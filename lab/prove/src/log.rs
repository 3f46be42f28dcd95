//! A subject's history as its editor and all readers share it.
//!
//! The editor writes it down; a reader keeps a copy that it brings up to date before each verdict,
//! which is one load while nothing has changed. Whoever judges a reply knows every edit that had
//! ended before the request was sent: the change is announced before the clock is read, and the
//! history is locked until it is written down.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicache_clock::monotonic_ns;

use crate::history::History;

/// The history, written by one editor.
#[derive(Debug)]
pub(crate) struct Log {
    changes: AtomicU64,
    history: Mutex<History>,
}

impl Log {
    pub(crate) fn new(history: History) -> Self {
        Self { changes: AtomicU64::new(0), history: Mutex::new(history) }
    }

    /// An edit begins. To be called before anything is changed.
    pub(crate) fn begin(&self, version: u64) {
        let mut history = self.change();
        history.begin(version, monotonic_ns());
    }

    /// The last edit is over.
    pub(crate) fn end(&self, succeeded: bool) {
        let mut history = self.change();
        history.end(monotonic_ns(), succeeded);
    }

    fn change(&self) -> MutexGuard<'_, History> {
        let history = self.lock();
        self.changes.fetch_add(1, Ordering::SeqCst);
        history
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy of the history as it is now.
    pub(crate) fn copy(&self) -> LogCopy {
        let history = self.lock();
        LogCopy { changes: self.changes.load(Ordering::SeqCst), history: history.clone() }
    }
}

/// A reader's copy of a [`Log`].
#[derive(Debug)]
pub(crate) struct LogCopy {
    changes: u64,
    history: History,
}

impl LogCopy {
    /// The history as it is now.
    pub(crate) fn refreshed(&mut self, log: &Log) -> &History {
        if self.changes != log.changes.load(Ordering::SeqCst) {
            let history = log.lock();
            self.changes = log.changes.load(Ordering::SeqCst);
            self.history.catch_up(&history);
        }
        &self.history
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Verdict;

    #[test]
    fn a_copy_knows_every_edit_that_had_ended() {
        let log = Log::new(History::new(None));
        let edits = 20_000;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for version in 1..=edits {
                    log.begin(version);
                    log.end(true);
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut copy = log.copy();
                    let mut newest = 0;
                    while newest < edits {
                        let sent_ns = monotonic_ns();
                        let known = copy.refreshed(&log).possible(sent_ns, sent_ns);
                        assert!(known.oldest >= newest, "{known:?} after {newest}");
                        // The log itself says no more than the copy did about the time before
                        // `sent_ns`.
                        let whole = log.lock().possible(sent_ns, sent_ns);
                        assert_eq!(known, whole);
                        newest = known.oldest;
                    }
                    assert_eq!(
                        copy.refreshed(&log).judge(edits, monotonic_ns(), monotonic_ns()),
                        Verdict::Current
                    );
                });
            }
        });
    }
}
