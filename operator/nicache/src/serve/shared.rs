//! What `nicache serve` knows of its processes, for whoever asks.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nicache_bus::Doorbell;

use super::report::ServeStatus;

/// How long the host may take to say what it has done.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// What the supervisor's loop and the thread of the control socket share.
#[derive(Debug)]
pub(crate) struct Shared {
    status: Mutex<ServeStatus>,
    answered: Condvar,
    number: AtomicU64,
    restarts: AtomicU64,
    wanted: AtomicBool,
    bell: Doorbell,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
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
    pub(crate) fn get(&self, started: Instant) -> ServeStatus {
        let mut status = self.status.lock().expect("no holder of this lock panics").clone();
        status.uptime_s = started.elapsed().as_secs();
        status.restarts = self.restarts.load(Ordering::Relaxed);
        status
    }

    /// What does not change.
    pub(crate) fn set(&self, status: ServeStatus) {
        *self.status.lock().expect("no holder of this lock panics") = status;
    }

    /// The host has answered.
    pub(crate) fn answer(&self, status: ServeStatus) {
        self.set(status);
        self.number.fetch_add(1, Ordering::Release);
        self.answered.notify_all();
    }

    /// Something was started again.
    pub(crate) fn count_restart(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether somebody wants to know, once.
    pub(crate) fn is_wanted(&self) -> bool {
        self.bell.hear();
        self.wanted.swap(false, Ordering::AcqRel)
    }

    /// Asks the host, and waits for its answer.
    ///
    /// # Errors
    /// There is none in time.
    pub(crate) fn ask(&self, started: Instant) -> Result<ServeStatus> {
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
            // Looked at often, because the answer is not counted under the lock.
            let slice = left.min(Duration::from_millis(20));
            status =
                self.answered.wait_timeout(status, slice).expect("no holder of this lock panics").0;
        }
        drop(status);
        Ok(self.get(started))
    }
}
