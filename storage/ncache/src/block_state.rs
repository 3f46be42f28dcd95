//! What there is of a block of a file, as operators ask for it.

use crate::places::Lbn;

/// Where a block of a file is at the moment, and why it is not in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockState {
    /// In the cache by file and block (FHO): a key stands for it in the file system, and the device
    /// has not seen that yet.
    ByFile,
    /// In the cache by file and block (FHO), but shorter than a key, so the file system has its
    /// bytes in place of one.
    ByFileShort,
    /// In the cache by block of the device (LBN).
    ByBlock,
    /// Somebody reads it from the logical unit at the moment.
    Coming,
    /// The block was in the cache and gave way to others.
    Evicted,
    /// The kernel wrote the block last, without a key.
    Overwritten,
    /// Reads or writes of it overlapped, and what came was not kept.
    Contested,
    /// It came, and the policy held what was here for worth more.
    Declined,
    /// Nobody has read or written it, or it is not remembered.
    Unread,
    /// The block has a place on the device and no bytes there: zeroes.
    Reserved,
    /// The block has no place on the device: zeroes.
    Hole,
}

/// Where the file system has a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Nowhere,
    Reserved,
    At(Lbn),
}
