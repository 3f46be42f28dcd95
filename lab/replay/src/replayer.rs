//! The paper's trace replayer: measures a server of files with the sessions of a log, and checks every byte.
//!
//! ```text
//!  log ─▶ trace ─▶ sessions ─┐
//!            │               ├─▶ plan ─▶ part ──── epoll ──── server
//!            └─▶ expected ───┘            │ schedule: which session begins when
//!                                         │ conversation ◀─▶ one session on one connection
//!                                         │    └─ reply: finds replies, compares bodies
//!                                         ▼
//!                                      report
//! ```
//!
//! Read first: Kim et al. (2002), section 5.2; then `sessions.rs` (what a connection and a batch are), `schedule.rs`
//! (infinite demand and open loop), `conversation.rs` (one session), `part.rs` (the event loop).
//!
//! It is to cost much less than the server, so: a replayer is one thread with one buffer, however many connections; bodies
//! are compared where they were received; a batch is one write; and a socket is registered once (edge-triggered).
//!
//! Deliberately absent: files that change meanwhile (that is [`crate::replay()`], whose clients are threads); conditional
//! and range requests; TLS.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

mod conversation;
mod expected;
mod latency;
mod part;
mod plan;
mod reply;
mod report;
mod schedule;
mod socket;

pub use latency::LatencySummary;
pub use part::run_part;
pub use plan::Plan;
pub use report::{ErrorCounts, ReplayerReport};
pub use schedule::Demand;

/// Where to send requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// The `Host` field.
    pub host: String,
    /// Address and port.
    pub address: SocketAddr,
}

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayerConfig {
    /// The server's addresses; sessions take turns. At least one.
    pub targets: Vec<ServerAddress>,
    /// Local addresses; connections take turns. None: the kernel chooses one, and about 28,000 ports for each target. An
    /// address given here has so many for all targets together. A port is free again as soon as the server has closed,
    /// but a minute later if it lets the client close first.
    pub sources: Vec<IpAddr>,
    /// Most sessions at once, of all replayers together; infinite demand has always so many. 20 KB of memory each.
    pub clients: usize,
    /// Threads; sessions are dealt out to them in turn.
    pub replayers: usize,
    /// What makes a session begin.
    pub demand: Demand,
    /// The trace is repeated until this time is over, and what is not finished then is not counted; `None`: once.
    pub duration: Option<Duration>,
    /// Equal seeds draw equal times in [`Demand::Rate`].
    pub seed: u64,
}

/// Why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayerError {
    /// Nobody answers.
    #[error("no connection to {0}: {1}")]
    Connect(SocketAddr, io::Error),
    /// Epoll cannot be used.
    #[error("cannot wait for sockets: {0}")]
    Epoll(io::Error),
    /// There is nowhere to send requests to, or no connection or thread to send them.
    #[error("a replay needs at least one target, client and replayer")]
    Nothing,
}

/// What can be seen of running replayers, and how they are stopped.
#[derive(Debug, Default)]
pub struct Watch {
    replies: AtomicU64,
    body_bytes: AtomicU64,
    errors: AtomicU64,
    stop: AtomicBool,
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

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Replays with all replayers: the first one on this thread, so that with one replayer every socket is made by it, the
/// others on threads of their own. For other threads (in other network namespaces, say) see [`run_part`]. `progress` is
/// called a few times a second.
///
/// # Errors
/// [`ReplayerError`]. What goes wrong later is in the report, no error.
pub fn run(
    plan: &Plan,
    config: &ReplayerConfig,
    progress: &mut dyn FnMut(&Watch),
) -> Result<ReplayerReport, ReplayerError> {
    let (watch, replayers) = (&Watch::default(), config.replayers);
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..replayers)
            .map(|number| scope.spawn(move || run_part(plan, config, number, watch, &mut |_| {})))
            .collect();
        let first = run_part(plan, config, 0, watch, progress);
        let mut report = ReplayerReport::default();
        let others =
            others.into_iter().map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        for part in std::iter::once(first).chain(others).collect::<Vec<_>>() {
            report.merge(part?);
        }
        Ok(report)
    })
}

#[cfg(test)]
mod tests;
