//! What is known of a page whether it has an entry or not: how long the server needs for it, and
//! whether it is worth an entry.

use std::time::Duration;

use nicache_coherence::{RecordNumber, Stamp};
use nicache_http::Key;
use nicache_tcp::Time;

use super::index::Store;

/// Why a page is left to the server for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutAside {
    /// The page's executions differ although nothing has changed.
    Differs,
    /// The page's entries are purged before they are used.
    NotWorth,
}

impl Store {
    /// What the watcher is to be asked about an earlier reply with this key, beside the new one.
    pub fn previous(&self, key: &Key) -> Option<(RecordNumber, Stamp)> {
        let entry = self.name_of(key).and_then(|id| self.get(id));
        entry.map(|entry| (entry.record, entry.stamp)).or_else(|| self.candidates.previous(key))
    }

    /// How long the server usually needs for a dynamic page: the least of the last few times, as
    /// far as that can be said. `None` for what is not known to be dynamic.
    pub fn usual(&self, key: &Key) -> Option<Duration> {
        let entry =
            self.name_of(key).and_then(|id| self.get(id)).filter(|entry| entry.is_dynamic());
        entry.map(|entry| entry.age.usual).or_else(|| self.candidates.usual(key))
    }

    /// Had the page an entry not long ago?
    pub fn was_popular(&self, key: &Key) -> bool {
        self.candidates.is_popular(key)
    }

    /// Is this a page whose executions differ although nothing has changed, or one that is purged
    /// before it is used?
    pub fn is_put_aside(&self, key: &Key, now: Time) -> Option<PutAside> {
        if self.candidates.is_put_aside(key, now) {
            return Some(PutAside::Differs);
        }
        self.worth.is_put_aside(key, now).then_some(PutAside::NotWorth)
    }

    /// Until when a page is put aside; may be over.
    pub fn put_aside_until(&self, key: &Key) -> Option<Time> {
        self.candidates.put_aside_until(key).max(self.worth.put_aside_until(key))
    }
}
