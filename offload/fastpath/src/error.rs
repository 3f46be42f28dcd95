//! Why the fast path cannot be used.

use std::io;

/// Why the fast path cannot be used. The forwarder does all of its work without it.
#[derive(Debug, thiserror::Error)]
pub enum FastPathError {
    /// The kernel refuses a program.
    #[error("the kernel refused a program of the fast path: {0}")]
    Refused(String),
    /// A program cannot be at an interface.
    #[error("the program for interface number {interface} cannot be attached: {error}")]
    Attach {
        /// The interface's number.
        interface: u32,
        /// What the system says.
        #[source]
        error: io::Error,
    },
    /// The supervisor has loaded programs of another nicache.
    #[error(
        "the programs at the interfaces are of another version of nicache: start `nicache forward` anew"
    )]
    Layout,
    /// A system call failed, with what was being done.
    #[error("{step}: {error}")]
    Io {
        /// What was being done.
        step: &'static str,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}
