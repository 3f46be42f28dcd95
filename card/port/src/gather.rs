//! Gather lists: one frame in several parts, and why one may not be sent.

use std::io::{self, IoSlice};

/// Most parts that the gather list of one frame may have.
///
/// Headers in one or two parts and 64 KiB of payload in 2048-byte slots that touch no neighbour: 2
/// + 33, with room to spare.
pub const PARTS_MAX: usize = 64;

/// Why a frame was not sent. It is dropped in every case, as a wire would drop it.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The queue toward the peer is full.
    #[error("the queue toward the peer is full")]
    Full,
    /// The frame is longer than the port takes.
    #[error("the frame is longer than the port takes")]
    TooLong,
    /// The gather list has more than [`PARTS_MAX`] parts.
    #[error("the gather list has more than {PARTS_MAX} parts")]
    TooManyParts,
    /// The port lacks the offload that the frame needs; see [`crate::send_with_fallback`].
    #[error("the port lacks the offload that the frame needs")]
    Unsupported,
    /// The frame or its metadata contradict themselves, e.g. a checksum position past the end of
    /// the frame.
    #[error("the frame contradicts its offload metadata")]
    Invalid,
    /// The kernel refused the frame, e.g. with `EIO` while the interface is down. The port remains
    /// usable.
    #[error("the kernel refused the frame: {0}")]
    Io(#[source] io::Error),
}

/// Bytes of a gather list.
pub(crate) fn parts_len(parts: &[IoSlice<'_>]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}
