//! What a web server counts.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::reply::Reply;

nicache_counters::counters! {
    /// What has happened.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub struct WebCounters {
        content_bytes as "http_content_bytes": "Content of files in replies by HTTP.",
        cut as "http_cut": "Replies by HTTP that were not completed because their file changed or could not be read.",
        connections as "http_connections": gauge "Connections of clients of HTTP.",
        refused as "http_refused": "Connections by HTTP that were ended at once because there were too many.",
    }
    beside {
        /// Requests that were answered.
        pub requests: u64,
        /// Replies by the hundred of their status: 2xx, 3xx, 4xx, 5xx.
        pub statuses: [u64; 4],
    }
}

impl WebCounters {
    /// Adds those of another server.
    pub fn add(&mut self, other: &Self) {
        self.add_each(other);
        self.requests += other.requests;
        self.statuses.iter_mut().zip(other.statuses).for_each(|(all, one)| *all += one);
    }
}

/// What a server counts of its replies while it runs; [`WebCounters`] is what it tells of them.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) statuses: [AtomicU64; 4],
    pub(crate) content_bytes: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Counts {
    pub(crate) fn count(&self, reply: &Reply) {
        self.statuses[usize::from(reply.status / 100).clamp(2, 5) - 2]
            .fetch_add(1, Ordering::Relaxed);
    }
}
