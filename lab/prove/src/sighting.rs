//! What the server itself still shows, if it may be behind for any time.
//!
//! An application may keep an old page by mistake of its own: a wiki that compares its cache with
//! its text by whole seconds takes what a slow execution wrote from the old text for new, until the
//! next edit. No cache in front of it can know better. So a reply that shows a version that is over
//! is held back, and at the end of the run it is the server's own if the server, asked directly
//! after that reply's request was sent, still gave that version; or if it gave that version earlier
//! and had not yet given a newer one directly. It is a violation if not.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Versions kept at most, of one subject on one page. What is beyond them excuses nobody.
const VERSIONS_MAX: usize = 1 << 16;

/// Versions that were over when the server itself showed them on one page.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    /// By version: when the last request was sent whose reply showed it.
    last_sent_ns: Mutex<BTreeMap<u64, u64>>,
}

impl Sightings {
    /// The server itself showed `version` in reply to a request that was sent at `sent_ns`.
    pub(crate) fn add(&self, version: u64, sent_ns: u64) {
        let mut all = self.last_sent_ns.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() < VERSIONS_MAX || all.contains_key(&version) {
            let last_ns = all.entry(version).or_default();
            *last_ns = sent_ns.max(*last_ns);
        }
    }

    /// Was it shown in reply to a request that was sent at `sent_ns` or later?
    pub(crate) fn has(&self, version: u64, sent_ns: u64) -> bool {
        let all = self.last_sent_ns.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&version).is_some_and(|&last_ns| last_ns >= sent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_sighting_counts() {
        let sightings = Sightings::default();
        assert!(!sightings.has(3, 0));
        sightings.add(3, 50);
        sightings.add(3, 40);
        assert!(sightings.has(3, 50) && sightings.has(3, 10));
        assert!(!sightings.has(3, 51) && !sightings.has(2, 10) && !sightings.has(4, 10));
    }

    #[test]
    fn it_does_not_grow_without_bound() {
        let sightings = Sightings::default();
        (0..VERSIONS_MAX as u64 + 9).for_each(|version| sightings.add(version, 1));
        assert!(!sightings.has(VERSIONS_MAX as u64, 1));
        sightings.add(7, 5);
        assert!(sightings.has(7, 5));
    }
}
