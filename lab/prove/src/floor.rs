//! What the server itself has shown, if it is one that never goes back.
//!
//! A server may be behind the source (a cache of compiled scripts that looks for changes every 2
//! s), and then a reply is fresh if the server could have given it, though the source has moved on.
//! If all of the server's workers share what they keep, then a version that was read from the
//! server directly is a floor: whoever asks later gets that one or a newer one. So a cache in front
//! of it must not show less either.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Steps kept at most; a request is younger than the oldest of them, or is not judged by the floor.
const STEPS_MAX: usize = 4096;

/// The newest version of one subject that one page has shown directly, over time.
#[derive(Debug, Default)]
pub(crate) struct Floor {
    newest: AtomicU64,
    /// Reply's end and version, both rising.
    steps: Mutex<VecDeque<(u64, u64)>>,
}

impl Floor {
    /// The server itself has shown `version` in a reply that had ended by `ended_ns`.
    pub(crate) fn raise(&self, version: u64, ended_ns: u64) {
        if version <= self.newest.load(Ordering::Relaxed) {
            return;
        }
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        // Two readers may come in another order than their replies did.
        if steps.back().is_some_and(|&(_, newest)| version <= newest) {
            return;
        }
        let ended_ns = steps.back().map_or(ended_ns, |&(last_ns, _)| ended_ns.max(last_ns));
        if steps.len() == STEPS_MAX {
            steps.pop_front();
        }
        steps.push_back((ended_ns, version));
        self.newest.store(version, Ordering::Relaxed);
    }

    /// If the server had shown a newer version before `sent_ns`: when `version` was first known to
    /// be over.
    pub(crate) fn passed_ns(&self, version: u64, sent_ns: u64) -> Option<u64> {
        if version >= self.newest.load(Ordering::Relaxed) {
            return None;
        }
        let steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        let at = steps.partition_point(|&(_, shown)| shown <= version);
        steps.get(at).map(|&(ended_ns, _)| ended_ns).filter(|&ended_ns| ended_ns < sent_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_over_once_a_newer_one_was_shown() {
        let floor = Floor::default();
        assert_eq!(floor.passed_ns(1, 100), None);
        floor.raise(3, 50);
        floor.raise(2, 60);
        floor.raise(5, 80);
        assert_eq!(floor.passed_ns(5, 100), None);
        assert_eq!(floor.passed_ns(4, 100), Some(80));
        assert_eq!(floor.passed_ns(4, 80), None);
        assert_eq!(floor.passed_ns(2, 51), Some(50));
        assert_eq!(floor.passed_ns(2, 50), None);
    }
}
