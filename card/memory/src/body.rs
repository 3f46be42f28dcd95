//! Names of bodies, and what can go wrong with them.

use thiserror::Error;

/// Names one body of one [`CardMemory`](crate::CardMemory): a place in its table and the serial
/// number of the allocation. Serial numbers are never used twice (64 bits), so the id of a freed
/// body is detected for ever and never leads to another body's bytes. An id means nothing to
/// another memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BodyId {
    pub(crate) index: u32,
    pub(crate) serial: u64,
}

/// Why no body was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AllocateError {
    /// the body is longer than the whole memory
    #[error("the body is longer than the whole memory")]
    TooLong,
    /// not enough free slots: evict something and try again
    #[error("not enough free slots ({missing} more are needed)")]
    NoSpace {
        /// Slots that must become free.
        missing: u32,
    },
    /// the table of bodies is full: evict something and try again
    #[error("the table of bodies is full")]
    NoBodies,
    /// too many bodies are being filled at once
    #[error("too many bodies are being filled at once")]
    TooManyFills,
}

/// Why bytes were not appended; nothing of them was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AppendError {
    /// the body is gone or was never here
    #[error("the body is gone")]
    Stale,
    /// the body is sealed or released
    #[error("the body is not being filled")]
    NotFilling,
    /// more bytes than the body was allocated for
    #[error("more bytes than the body was allocated for")]
    Overrun,
}

/// Why a body was not sealed; it can still be appended to or released.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SealError {
    /// the body is gone or was never here
    #[error("the body is gone")]
    Stale,
    /// the body is sealed or released
    #[error("the body is not being filled")]
    NotFilling,
    /// bytes are missing
    #[error("{missing} bytes are missing")]
    Incomplete {
        /// Bytes not yet appended.
        missing: u64,
    },
}

/// Why a body could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AccessError {
    /// the body is gone or was never here
    #[error("the body is gone")]
    Stale,
    /// the range ends beyond the bytes appended so far, or before it begins
    #[error("the range is not within the bytes appended so far")]
    Range,
}

/// Why a pin was not set or taken away.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PinError {
    /// the body is gone or was never here
    #[error("the body is gone")]
    Stale,
    /// the body has been released: what still holds a pin may finish, nothing new may begin
    #[error("the body has been released")]
    Released,
    /// more unpins than pins, or 2^32 pins
    #[error("pins and unpins do not balance")]
    Unbalanced,
}
