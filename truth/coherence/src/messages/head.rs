//! What all messages have in common: kind, version, numbers, and what may be wrong with them.

/// Bytes of a BLAKE3 hash.
pub const BODY_HASH_BYTES: usize = 32;

/// First byte of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    FillRequest = 1,
    FillVerdict = 2,
    ReinstateRequest = 3,
    ReinstateVerdict = 4,
}

pub(super) const VERSION: u8 = 5;

/// What is wrong with a datagram. The peer's fault: count it and drop the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Shorter or longer than its head says.
    #[error("message of a wrong length")]
    Length,
    /// Another kind of message than expected here.
    #[error("unexpected kind of message")]
    Kind,
    /// Written by another version of this program.
    #[error("message of another version; run card and watcher from the same build")]
    Version,
    /// A flag, code or count that no version of the encoder writes.
    #[error("message with an invalid field")]
    Field,
}

pub(super) fn split_head<const HEAD: usize>(
    bytes: &[u8],
    kind: Kind,
) -> Result<(&[u8; HEAD], &[u8]), DecodeError> {
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or(DecodeError::Length)?;
    match (head[0] == kind as u8, head[1] == VERSION) {
        (true, true) => Ok((head, rest)),
        (false, _) => Err(DecodeError::Kind),
        (true, false) => Err(DecodeError::Version),
    }
}

/// `at` is a constant below the head's length at every caller.
pub(super) fn word_at(head: &[u8], at: usize) -> u64 {
    head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
}
