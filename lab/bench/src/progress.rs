//! How far a run is, on standard error, and whether it goes on.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};

/// Asks a run to end early. What it has made, processes, namespaces and files, is gone then.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// One that is asked by way of `flag`, such as a signal handler's.
    #[must_use]
    pub fn new(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Has somebody asked?
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if somebody has.
    ///
    /// # Errors
    /// Somebody has.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.is_asked(), "stopped before the end; nothing is left behind");
        Ok(())
    }
}

/// A count of steps: a line that is overwritten on a terminal, a line each elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    done: usize,
    all: usize,
    terminal: bool,
    stop: Stop,
}

impl Progress {
    pub(crate) fn new(all: usize, stop: &Stop) -> Self {
        Self { done: 0, all, terminal: std::io::stderr().is_terminal(), stop: stop.clone() }
    }

    /// Begins the next step, if the run goes on.
    ///
    /// # Errors
    /// Somebody has asked for its end.
    pub(crate) fn begin(&mut self, what: &str) -> Result<()> {
        if self.stop.is_asked() {
            self.end();
        }
        self.stop.check()?;
        self.step(what);
        Ok(())
    }

    /// Tells of the next step.
    pub(crate) fn step(&mut self, what: &str) {
        self.done += 1;
        let (start, end) = if self.terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        let _ = write!(std::io::stderr(), "{start}{}/{} {what}{end}", self.done, self.all);
        let _ = std::io::stderr().flush();
    }

    pub(crate) fn end(&self) {
        if self.terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
