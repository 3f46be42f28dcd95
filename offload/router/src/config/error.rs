//! What is wrong with a file: every error names the line, shows it, and says what to do.

use std::fmt;
use std::ops::Range;

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
    pub(super) fn at(source: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let line = line_of(source, span.start);
        let text =
            source.lines().nth(line - 1).unwrap_or_default().trim().chars().take(120).collect();
        Self { line, text, message: message.into() }
    }
}

/// The line of a byte, counted from 1.
pub(super) fn line_of(source: &str, at: usize) -> usize {
    let before = &source.as_bytes()[..at.min(source.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}
