//! What a script runs against.

use std::io;
use std::time::Duration;

use crate::script::ServerAction;

/// Why a script cannot be run at all.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The process may not make a network namespace or a TAP interface.
    #[error("not permitted to make a network namespace with a TAP interface: run as root")]
    NotPermitted,
    /// The script asks for something that this side does not have.
    #[error("{0}")]
    Unsupported(String),
    /// Something did not work.
    #[error("{step}: {error}")]
    Io {
        /// What was being done.
        step: String,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// The object could not be put into the card's memory before the script began.
    #[error("the card does not keep `{0}`: {1}")]
    NotKept(String, String),
}

impl BackendError {
    /// An error of a step.
    pub fn io(step: impl Into<String>, error: impl Into<io::Error>) -> Self {
        Self::Io { step: step.into(), error: error.into() }
    }
}

/// A server behind a wire. Times are counted from the start of the script.
pub trait Backend {
    /// The present time.
    fn now(&self) -> Duration;

    /// Puts a frame on the wire toward the server, now.
    ///
    /// # Errors
    /// The wire is broken.
    fn send(&mut self, frame: &[u8]) -> Result<(), BackendError>;

    /// Waits for the next frame from the server, at most until `until`. With the time when it came.
    ///
    /// # Errors
    /// The wire is broken.
    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError>;

    /// Has the server's program do something.
    ///
    /// # Errors
    /// The program is gone, or this side has none.
    fn act(&mut self, action: ServerAction) -> Result<(), BackendError>;

    /// How much too early and too late a packet may come that is expected after `time`.
    fn tolerance(&self, time: Duration) -> (Duration, Duration);
}
