//! Who answers a device's reads and writes.

use std::os::fd::RawFd;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use nicache_initiator::{BLOCK_BYTES, Lun, LunError};

/// The content of a block device. Calls come from several threads; every offset and length is made
/// of whole blocks of [`BLOCK_BYTES`].
pub trait Blocks: Send + Sync {
    /// How messages name it.
    fn name(&self) -> &str;

    /// Its size in bytes.
    fn capacity_bytes(&self) -> u64;

    /// Fills `into` with what is at `offset`.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), LunError>;

    /// Writes `data` at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), LunError>;

    /// Makes completed writes durable.
    fn flush(&self) -> Result<(), LunError>;

    /// The descriptors that the calls above use: the threads of a device have no others
    /// ([`Lun::descriptors`]).
    fn descriptors(&self) -> Vec<RawFd>;
}

/// Whether a request is for whole blocks that the device has. The kernel makes no others.
pub(crate) fn is_whole(blocks: &dyn Blocks, offset: u64, bytes: usize) -> bool {
    let end = offset.checked_add(bytes as u64);
    offset.is_multiple_of(BLOCK_BYTES as u64)
        && bytes.is_multiple_of(BLOCK_BYTES)
        && end.is_some_and(|end| end <= blocks.capacity_bytes())
}

/// What the kernel is told of an error (errno(3)).
pub(crate) fn error_number(error: &LunError) -> i32 {
    match error {
        LunError::Full { .. } => libc::ENOSPC,
        LunError::OutOfRange { .. } => libc::EINVAL,
        LunError::Changed { .. }
        | LunError::Failed { .. }
        | LunError::Lost { .. }
        | LunError::Taken { .. }
        | LunError::Refused { .. } => libc::EIO,
    }
}

/// A logical unit as it is.
pub struct Plain(pub Arc<dyn Lun>);

impl Blocks for Plain {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), LunError> {
        let mut buffers = vec![BytesMut::zeroed(into.len())];
        self.0.read(offset, &mut buffers)?;
        let mut rest = into;
        for buffer in &buffers {
            let (target, after) = rest.split_at_mut(buffer.len().min(rest.len()));
            target.copy_from_slice(&buffer[..target.len()]);
            rest = after;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), LunError> {
        self.0.write(offset, &[Bytes::copy_from_slice(data)])
    }

    fn flush(&self) -> Result<(), LunError> {
        self.0.flush()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.0.descriptors()
    }
}
