//! Runs clients and writers, and judges what the clients see.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nicache_clock::monotonic_ns;

use crate::client::Connection;
use crate::fetcher::Fetcher;
use crate::report::Report;
use crate::shared::{ReplayConfig, ReplayError, Shared};
use crate::site::Site;
use crate::trace::Trace;
use crate::writer::Writer;

/// How often progress is told.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Replays `trace` against a server whose document root is `site`. `progress` is called a few times
/// a second with the seconds, replies and writes so far.
///
/// # Errors
/// [`ReplayError`]. Violations of coherence are in the report, no error.
pub fn replay(
    config: &ReplayConfig,
    trace: &Trace,
    site: &Site,
    mut progress: impl FnMut(f64, u64, u64),
) -> Result<Report, ReplayError> {
    Connection::open(config.server).map_err(|error| ReplayError::Connect(config.server, error))?;
    let shared = &Shared::new(config, trace, site);
    let seconds = || (monotonic_ns() - shared.start_ns) as f64 / 1e9;
    let mut report = Report::default();
    let mut failure = None;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..config.writers)
            .map(|number| scope.spawn(move || Writer::new(shared, number).run()))
            .collect();
        let clients: Vec<_> =
            (0..config.clients).map(|_| scope.spawn(move || run_client(shared))).collect();
        while !clients.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(PROGRESS_INTERVAL);
            progress(
                seconds(),
                shared.replies.load(Ordering::Relaxed),
                shared.writes.load(Ordering::Relaxed),
            );
        }
        for client in clients {
            report.merge(joined(client));
        }
        report.seconds = seconds();
        shared.stop.store(true, Ordering::Relaxed);
        for writer in writers {
            match joined(writer) {
                Ok(written) => report.merge(written),
                Err(error) => failure = Some(error),
            }
        }
    });
    report.finish(report.seconds);
    failure.map_or(Ok(report), Err)
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn run_client(shared: &Shared<'_>) -> Report {
    let mut fetcher = Fetcher::new(shared);
    let mut batch = Vec::new();
    loop {
        batch.clear();
        while batch.len() < shared.config.pipeline.max(1)
            && let Some((file, head, due_ns)) = shared.take()
        {
            batch.push((file, head, due_ns));
        }
        let Some(&(_, _, due_ns)) = batch.last() else { break };
        let now = monotonic_ns();
        if due_ns > now {
            std::thread::sleep(Duration::from_nanos(due_ns - now));
        }
        fetcher.fetch(&batch);
    }
    fetcher.finish()
}
