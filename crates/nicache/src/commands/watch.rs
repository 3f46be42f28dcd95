//! `nicache watch`, the watcher process.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use nicache_watch::{KernelWatcher, LookupRing, Registrar, run_watcher};

use crate::logs;
use crate::setup::{WatchReport, WatchSetup, child_start, receive_message, send_message};

/// Watches until the supervisor or the card is gone.
pub fn execute() -> Result<ExitCode> {
    let (setup, files, supervisor) = child_start::<WatchSetup>(c"nicache-watch")?;
    logs::start(setup.log_format);
    let card = files.into_iter().next().context("no socket to the card came with the setup")?;
    let server_netns = u32::try_from(setup.server_netns).context("the number of the server's network namespace")?;
    let watcher = match KernelWatcher::load(server_netns) {
        Ok(watcher) => watcher,
        Err(error) => {
            let report = WatchReport { files: 0, unavailable: Some(format!("{:#}", anyhow::Error::new(error))) };
            send_message(&supervisor, &report, &[])?;
            while receive_message::<serde_json::Value>(&supervisor)?.is_some() {}
            return Ok(ExitCode::FAILURE);
        }
    };
    let coverage = watcher.coverage().clone();
    if !coverage.missing.is_empty() {
        tracing::info!(missing = ?coverage.missing, ext4 = coverage.ext4, "some tracepoints are missing on this kernel");
    }
    // In this order the card takes them: the two maps, then the links.
    let witness: Vec<BorrowedFd<'_>> =
        [watcher.control_fd(), watcher.revisions_fd()].into_iter().chain(watcher.link_fds()).collect();
    let report = WatchReport { files: witness.len(), unavailable: None };
    let table = Arc::new(watcher.table().context("mapping the revision table")?);
    table.set_service_ports(&setup.http_ports);
    let ring = LookupRing::map(watcher.ring_fd()).context("mapping the ring of look-ups")?;
    let mut registrar = Registrar::new(table, ring, coverage);
    registrar.follow_databases(watcher.databases());
    registrar.handle_time();
    send_message(&supervisor, &report, &witness)?;
    run_watcher(&mut registrar, card.as_fd()).context("the card sent what no card sends, or its socket broke")?;
    Ok(ExitCode::FAILURE)
}
