//! What `nicache status` is told of a `nicache serve`.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_bus::Doorbell;
use serde::{Deserialize, Serialize};

use super::messages::HostReport;
use crate::control::{Request, Response, read_line, write_line};

const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the host may take to say what it has done.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running `nicache serve`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServeStatus {
    /// Its name.
    pub name: String,
    /// Process number of the supervisor.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// The folder.
    pub root: String,
    /// Where files are served, card by card.
    pub urls: Vec<String>,
    /// Process number of the host.
    pub host_pid: u32,
    /// Process numbers of the cards.
    pub card_pids: Vec<u32>,
    /// Interfaces of the cards.
    pub interfaces: Vec<String>,
    /// Published addresses.
    pub published: Vec<String>,
    /// Bytes of each card's cache.
    pub cache_bytes: u64,
    /// Why no file is kept, if none is.
    pub not_keeping: Option<String>,
    /// How often card or host were started again, or had a new attachment.
    pub restarts: u64,
    /// For how long a modelled bus has been taken, in nanoseconds.
    pub bus_busy_ns: Option<u64>,
    /// What of that was overhead, in bytes' time.
    pub bus_overhead_bytes: Option<u64>,
    /// What the host says.
    pub report: HostReport,
}

impl fmt::Display for ServeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |name: &str| self.report.counters.get(name).copied().unwrap_or(0);
        writeln!(f, "{} serves {} for {} s (process {})", self.name, self.root, self.uptime_s, self.pid)?;
        if let Some(reason) = &self.not_keeping {
            writeln!(f, "  NOTHING IS KEPT: {reason}")?;
        }
        writeln!(
            f,
            "  host process {}: {} requests, {} connections, {:.1} MB of content, {} pages, restarts {}",
            self.host_pid,
            of("requests"),
            of("connections"),
            of("content_bytes") as f64 / 1e6,
            of("pages"),
            self.restarts
        )?;
        for (number, url) in self.urls.iter().enumerate() {
            let pid = self.card_pids.get(number).copied().unwrap_or(0);
            writeln!(f, "  card {number} at {url} (process {pid}, {} KB of memory)", self.cache_bytes / 1024)?;
            let Some(card) = self.report.cards.get(number) else { continue };
            let of = |name: &str| card.counters.get(name).copied().unwrap_or(0);
            let sent = (of("cached_bytes") + of("copied_bytes")).max(1) as f64;
            let crossed = card.bus.get("content").copied().unwrap_or(0) as f64;
            writeln!(
                f,
                "    blocks {}: {} hits, {} inserted, {} evicted, {} invalidated; {:.1} % of content did not cross the bus",
                of("blocks"),
                of("block_hits"),
                of("blocks_inserted"),
                of("blocks_evicted"),
                of("blocks_invalidated"),
                100.0 * (1.0 - crossed / sent)
            )?;
            let classes: Vec<String> = card.bus.iter().map(|(class, bytes)| format!("{bytes} {class}")).collect();
            writeln!(f, "    bus bytes: {}; {} transfers", classes.join(", "), card.transfers)?;
        }
        Ok(())
    }
}

/// What the supervisor's loop and the thread of the control socket share.
#[derive(Debug)]
pub struct Shared {
    status: Mutex<ServeStatus>,
    answered: Condvar,
    number: AtomicU64,
    restarts: AtomicU64,
    wanted: AtomicBool,
    bell: Doorbell,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared {
            status: Mutex::default(),
            answered: Condvar::new(),
            number: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            bell: Doorbell::new().expect("a file for a bell"),
        }
    }
}

impl AsFd for Shared {
    /// Readable when somebody wants to know.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

impl Shared {
    /// What is known so far.
    pub fn get(&self, started: Instant) -> ServeStatus {
        let mut status = self.status.lock().expect("no holder of this lock panics").clone();
        status.uptime_s = started.elapsed().as_secs();
        status.restarts = self.restarts.load(Ordering::Relaxed);
        status
    }

    /// What does not change.
    pub fn set(&self, status: ServeStatus) {
        *self.status.lock().expect("no holder of this lock panics") = status;
    }

    /// The host has answered.
    pub fn answer(&self, status: ServeStatus) {
        self.set(status);
        self.number.fetch_add(1, Ordering::Release);
        self.answered.notify_all();
    }

    /// Something was started again.
    pub fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether somebody wants to know, once.
    pub fn is_wanted(&self) -> bool {
        self.bell.hear();
        self.wanted.swap(false, Ordering::AcqRel)
    }

    fn ask(&self, started: Instant) -> Result<ServeStatus> {
        let before = self.number.load(Ordering::Acquire);
        self.wanted.store(true, Ordering::Release);
        self.bell.ring();
        let deadline = Instant::now() + REPORT_TIMEOUT;
        let mut status = self.status.lock().expect("no holder of this lock panics");
        while self.number.load(Ordering::Acquire) == before {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("the host process does not answer");
            }
            // Looked at often, as the answer is not counted under the lock.
            let slice = left.min(Duration::from_millis(20));
            status = self.answered.wait_timeout(status, slice).expect("no holder of this lock panics").0;
        }
        drop(status);
        Ok(self.get(started))
    }
}

/// A bound control socket; its file goes with it.
#[derive(Debug)]
pub struct StatusServer {
    path: PathBuf,
    listener: UnixListener,
}

impl StatusServer {
    /// Binds the path, replacing what a killed nicache left there.
    ///
    /// # Errors
    /// What the system says.
    pub fn bind(path: &Path) -> Result<StatusServer> {
        let _ = std::fs::remove_file(path);
        let listener =
            UnixListener::bind(path).with_context(|| format!("cannot make the control socket {}", path.display()))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(StatusServer { path: path.to_owned(), listener })
    }

    /// Answers from a thread until the process ends, one client at a time.
    ///
    /// # Errors
    /// What the system says.
    pub fn serve(&self, shared: Arc<Shared>, started: Instant) -> Result<()> {
        let listener = self.listener.try_clone()?;
        let body = move || {
            for mut client in listener.incoming().flatten() {
                let answered = (|| -> Result<()> {
                    client.set_read_timeout(Some(CLIENT_TIMEOUT))?;
                    client.set_write_timeout(Some(CLIENT_TIMEOUT))?;
                    let response = match read_line(&client) {
                        Ok(Request::Status) => shared.ask(started).map(|status| Response::Serve(Box::new(status))),
                        Ok(_) => Err(anyhow::anyhow!("`nicache serve` answers `nicache status` only")),
                        Err(error) => Err(error),
                    };
                    let response = response.unwrap_or_else(|error| Response::Error { reason: format!("{error:#}") });
                    write_line(&mut client, &response)
                })();
                if let Err(error) = answered {
                    tracing::debug!("control socket: {error:#}");
                }
            }
        };
        std::thread::Builder::new().name("control".into()).spawn(body)?;
        Ok(())
    }
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
