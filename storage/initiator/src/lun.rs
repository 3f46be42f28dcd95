//! What a logical unit is to the layers above it.

use std::io;
use std::os::fd::RawFd;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// The unit of every transfer: offsets and lengths are multiples of it. It is the page of the
/// kernel and the block of the file system; the target's own block may be smaller.
pub const BLOCK_BYTES: usize = 4096;

/// Why a command failed. Every message names the unit.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum LunError {
    /// The command ends outside the unit, or is not made of whole blocks.
    #[error("{lun}: {bytes} bytes at {offset} are not whole blocks inside the unit")]
    OutOfRange {
        /// The unit.
        lun: String,
        /// Where the command begins, in bytes.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// The target refused the command or could not execute it.
    #[error("{lun}: {command} failed: {reason}")]
    Failed {
        /// The unit.
        lun: String,
        /// "read", "write" or "flush".
        command: &'static str,
        /// What the target said.
        reason: String,
    },
    /// The target's storage is full (a thin unit).
    #[error("{lun}: the target has no space left: {reason}")]
    Full {
        /// The unit.
        lun: String,
        /// What the target said.
        reason: String,
    },
    /// The target did not answer for as long as commands wait for it. The unit takes no further
    /// commands.
    #[error("{lun}: gave up after {waited_s} s without the target: {reason}")]
    Lost {
        /// The unit.
        lun: String,
        /// How long commands waited, in seconds.
        waited_s: u64,
        /// The last error.
        reason: String,
    },
    /// Another gateway has the unit now. It takes no further commands.
    #[error(
        "{lun}: {reason}; what this gateway has not written is lost, and its clients are told so"
    )]
    Taken {
        /// The unit.
        lun: String,
        /// What was found.
        reason: String,
    },
    /// The unit is no longer what it was at the start. It takes no further commands.
    #[error("{lun}: {reason}")]
    Changed {
        /// The unit.
        lun: String,
        /// What was found.
        reason: String,
    },
    /// The unit could not be reached or taken at the start.
    #[error("{lun}: {reason}")]
    Refused {
        /// The unit.
        lun: String,
        /// Why it could not be reached or taken.
        reason: String,
    },
}

impl LunError {
    /// Whether the unit takes no further commands.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Taken { .. } | Self::Changed { .. })
    }
}

impl From<LunError> for io::Error {
    fn from(error: LunError) -> Self {
        let kind = match error {
            LunError::Full { .. } => io::ErrorKind::StorageFull,
            LunError::OutOfRange { .. } => io::ErrorKind::InvalidInput,
            LunError::Lost { .. } => io::ErrorKind::TimedOut,
            LunError::Changed { .. }
            | LunError::Failed { .. }
            | LunError::Refused { .. }
            | LunError::Taken { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A logical unit. Commands come from any thread and wait for the target.
///
/// Two commands that overlap in time and in blocks are executed in either order. What a completed
/// write wrote survives a power cut only after a [`Lun::flush`] that began later.
pub trait Lun: Send + Sync {
    /// How messages name it.
    fn name(&self) -> &str;

    /// Its size in bytes: a multiple of [`BLOCK_BYTES`].
    fn capacity_bytes(&self) -> u64;

    /// The target's own block, in bytes.
    fn block_bytes(&self) -> u32;

    /// Fills `buffers` one after the other with what is at `offset`. Each has the length of some
    /// whole blocks. On an error their content and length are undefined.
    fn read(&self, offset: u64, buffers: &mut Vec<BytesMut>) -> Result<(), LunError>;

    /// Writes `data`, piece after piece, at `offset`. Each piece is some whole blocks long. On an
    /// error any of the blocks may have been written.
    fn write(&self, offset: u64, data: &[Bytes]) -> Result<(), LunError>;

    /// SYNCHRONIZE CACHE: makes every write that was complete before durable.
    fn flush(&self) -> Result<(), LunError>;

    /// Why the unit takes no further commands, if that is so. It costs next to nothing to ask, and
    /// tells also those that give no commands.
    fn lost(&self) -> Option<LunError> {
        None
    }

    /// The descriptors that callers' threads use inside the calls above, for threads with a table
    /// of descriptors of their own.
    fn descriptors(&self) -> Vec<RawFd> {
        Vec::new()
    }

    /// Checks that a command is made of whole blocks inside the unit.
    fn check_range(&self, offset: u64, pieces: impl Iterator<Item = usize>) -> Result<u64, LunError>
    where
        Self: Sized,
    {
        let (mut bytes, mut whole) = (0_u64, offset.is_multiple_of(BLOCK_BYTES as u64));
        for piece in pieces {
            whole &= piece.is_multiple_of(BLOCK_BYTES);
            bytes = bytes.saturating_add(piece as u64);
        }
        if whole && offset.checked_add(bytes).is_some_and(|end| end <= self.capacity_bytes()) {
            return Ok(bytes);
        }
        Err(LunError::OutOfRange { lun: self.name().to_owned(), offset, bytes })
    }
}

/// A write's blocks: where each one goes, and its bytes.
pub fn blocks(offset: u64, data: &[Bytes]) -> impl Iterator<Item = (u64, Bytes)> + '_ {
    let mut next = offset;
    data.iter().flat_map(|piece| (0..piece.len() / BLOCK_BYTES).map(move |i| (piece, i))).map(
        move |(piece, i)| {
            let at = next;
            next += BLOCK_BYTES as u64;
            (at, piece.slice(i * BLOCK_BYTES..(i + 1) * BLOCK_BYTES))
        },
    )
}
