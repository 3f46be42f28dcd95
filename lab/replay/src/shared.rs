//! How to replay, and what the threads of a replay share.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicache_clock::monotonic_ns;
use nicache_random::SplitMix64 as Random;

use crate::oracle::History;
use crate::site::Site;
use crate::trace::Trace;

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayConfig {
    /// Where the server is.
    pub server: SocketAddr,
    /// Client connections, a thread each.
    pub clients: usize,
    /// Requests sent at once on a connection.
    pub pipeline: usize,
    /// Writer threads; 0: nothing changes.
    pub writers: usize,
    /// Mean pause of a writer between two writes.
    pub write_pause: Duration,
    /// How long the trace is repeated; `None`: once.
    pub duration: Option<Duration>,
    /// Requests per second of all clients together, sent whether replies come or not as far as
    /// connections allow (open loop); `None`: each client sends as soon as it has its replies
    /// (closed loop).
    pub rate: Option<f64>,
    /// The server keeps files open between requests, so it may itself give old replies; only kept
    /// replies must be fresh.
    pub server_keeps_files_open: bool,
    /// Requests of so many kinds, told apart by their User-Agent, as by so many browsers: with few
    /// of them, equal requests come again, and now and then a kept reply looks like one of the
    /// server's own. 0: all differ.
    pub agents: u64,
    /// Equal seeds choose equal files and methods.
    pub seed: u64,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// Nobody answers.
    #[error("no connection to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// A file could not be changed as intended, so nothing is known about it any longer.
    #[error("a writer failed ({method} of {path}): {source}")]
    Write {
        /// What was tried.
        method: crate::Method,
        /// Of which file.
        path: std::path::PathBuf,
        /// Why the change failed.
        source: io::Error,
    },
}

/// What all threads share.
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a ReplayConfig,
    pub(crate) trace: &'a Trace,
    pub(crate) site: &'a Site,
    pub(crate) histories: Vec<Mutex<History>>,
    /// Next request of the trace, counted over all repetitions.
    pub(crate) next: AtomicU64,
    pub(crate) next_number: AtomicU64,
    pub(crate) replies: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) stop: AtomicBool,
    pub(crate) start_ns: u64,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(config: &'a ReplayConfig, trace: &'a Trace, site: &'a Site) -> Self {
        Shared {
            config,
            trace,
            site,
            histories: (0..site.len())
                .map(|file| Mutex::new(History::new(site.id(file), site.initial(file))))
                .collect(),
            next: AtomicU64::new(0),
            next_number: AtomicU64::new(1),
            replies: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            start_ns: monotonic_ns(),
        }
    }

    pub(crate) fn history(&self, file: usize) -> MutexGuard<'_, History> {
        self.histories[file].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn count_write(&self) {
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// The next request and when it is due.
    pub(crate) fn take(&self) -> Option<(usize, bool, u64)> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let requests = &self.trace.requests;
        let is_past = match self.config.duration {
            Some(duration) => monotonic_ns() - self.start_ns >= duration.as_nanos() as u64,
            None => index >= requests.len() as u64,
        };
        if is_past || self.is_over() {
            return None;
        }
        let request = requests[(index % requests.len() as u64) as usize];
        let due =
            self.config.rate.map_or(0, |rate| self.start_ns + (index as f64 / rate * 1e9) as u64);
        Some((request.object as usize, request.head, due))
    }
}

/// A generator for thread `number`.
pub(crate) fn random_for(config: &ReplayConfig, number: usize) -> Random {
    Random::new(config.seed ^ nicache_trace::mix(number as u64 + 1))
}
