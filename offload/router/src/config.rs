//! `forward.toml`: read, checked against the interfaces that there are, and made into what [`nicache_forward`] takes.
//!
//! Every error names the line, shows it, and says what to do.

mod file;
mod plan;
mod values;

use std::fmt;
use std::ops::{Range, RangeInclusive};

pub use file::File;
pub use plan::{Check, CheckWay, Interfaced, Plan};
pub use values::{Kept, Socket, Span};

/// Source ports of the health checks, which no connection through the forwarder gets.
pub const OWN_PORTS: RangeInclusive<u16> = 900..=999;
/// Bytes of a file at most: it is handed to a process in one message.
pub const FILE_BYTES_MAX: usize = 96 * 1024;

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Its line, counted from 1.
    pub line: usize,
    /// What is written there.
    pub text: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, text, message } = self;
        if text.is_empty() {
            write!(f, "line {line}: {message}")
        } else {
            write!(f, "line {line}, `{text}`: {message}")
        }
    }
}

impl std::error::Error for ConfigError {}

impl ConfigError {
    fn at(source: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let start = span.start.min(source.len());
        let before = &source.as_bytes()[..start];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let text = source.lines().nth(line - 1).unwrap_or_default().trim().chars().take(120).collect();
        Self { line, text, message: message.into() }
    }
}

/// Reads a file, without a look at the machine.
///
/// # Errors
/// It is not TOML, has keys that are none, or values that say nothing.
pub fn parse(source: &str) -> Result<File, ConfigError> {
    if source.len() > FILE_BYTES_MAX {
        let message = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::at(source, 0..0, message));
    }
    toml::from_str(source)
        .map_err(|error: toml::de::Error| ConfigError::at(source, error.span().unwrap_or(0..0), error.message()))
}

#[cfg(test)]
mod tests;
