//! What a web server counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::reply::Reply;

/// What has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WebCounters {
    /// Requests that were answered.
    pub requests: u64,
    /// Replies by the hundred of their status: 2xx, 3xx, 4xx, 5xx.
    pub statuses: [u64; 4],
    /// Bytes of content that were sent, by reference.
    pub content_bytes: u64,
    /// Replies that could not be completed, because their file changed while a client took it or could not be read.
    pub cut: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections that were ended at once because there were too many.
    pub refused: u64,
}

/// The same as they are counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) statuses: [AtomicU64; 4],
    pub(crate) content_bytes: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Counts {
    pub(crate) fn count(&self, reply: &Reply) {
        self.statuses[usize::from(reply.status / 100).clamp(2, 5) - 2].fetch_add(1, Ordering::Relaxed);
    }
}
