//! A view of replayers that run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What can be seen of running replayers, and how they are stopped.
#[derive(Debug, Default)]
pub struct Watch {
    pub(super) replies: AtomicU64,
    pub(super) body_bytes: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) stop: AtomicBool,
}

impl Watch {
    /// Replies so far.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Bytes of their bodies.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes.load(Ordering::Relaxed)
    }

    /// Errors so far.
    pub fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Ends the replay; what is not finished is not counted.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
