//! What is wrong with a script.

/// Where and why a script cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}\n    {text}")]
pub struct ParseError {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// What is wrong with it, and what is expected instead.
    pub reason: String,
}
