//! The paper's trace replayer: measures a server of files with the sessions of a log, and checks
//! every byte.
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
//! Read first: Kim et al. (2002), section 5.2; then `sessions.rs` (what a connection and a batch
//! are), `schedule.rs` (infinite demand and open loop), `conversation.rs` (one session), `part.rs`
//! (the event loop).
//!
//! It is to cost much less than the server, so: a replayer is one thread with one buffer, however
//! many connections; bodies are compared where they were received; a batch is one write; and a
//! socket is registered once (edge-triggered).
//!
//! Deliberately absent: files that change meanwhile (that is [`crate::replay()`], whose clients are
//! threads); conditional and range requests; TLS.

mod config;
mod conversation;
mod expected;
mod latency;
mod part;
mod plan;
mod reply;
mod report;
mod schedule;
mod socket;
mod watch;

pub use config::{ReplayerConfig, ReplayerError, ServerAddress};
pub use latency::LatencySummary;
pub use part::run_part;
pub use plan::Plan;
pub use report::{ErrorCounts, ReplayerReport};
pub use schedule::Demand;
pub use watch::Watch;

/// Replays with all replayers: the first one on this thread, so with one replayer every socket
/// is made by it, the others on threads of their own. For other threads (in other network
/// namespaces, say) see [`run_part`]. `progress` is called a few times a second.
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
        let others = others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        for part in std::iter::once(first).chain(others).collect::<Vec<_>>() {
            report.merge(part?);
        }
        Ok(report)
    })
}

#[cfg(test)]
mod tests;
