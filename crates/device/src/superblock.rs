//! What is on a unit: ext4's superblock, as far as it decides whether the unit can be served.
//!
//! Read first: Documentation/filesystems/ext4/super.rst.

use thiserror::Error;

/// Where the superblock begins, in bytes.
const AT: usize = 1024;
const MAGIC: u16 = 0xEF53;
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
const INCOMPAT_ENCRYPT: u32 = 0x1_0000;
const INCOMPAT_INLINE_DATA: u32 = 0x8000;
const COMPAT_HAS_JOURNAL: u32 = 0x4;
const RO_COMPAT_VERITY: u32 = 0x8000;

/// Why a unit cannot be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Unsuitable {
    /// There is no ext4.
    #[error("there is no ext4 on it (a new file system is made only with --mkfs, and only on an empty unit)")]
    NotExt4,
    /// Its blocks are not the pages.
    #[error("the ext4 on it has blocks of {0} bytes; only 4096 are supported")]
    BlockBytes(u64),
    /// It has no journal, so a crash could show other files' bytes.
    #[error("the ext4 on it has no journal")]
    NoJournal,
    /// It is the journal of another file system.
    #[error("it is the journal of another ext4")]
    JournalDevice,
    /// Small files would be in inodes, where keys are not seen.
    #[error("the ext4 on it keeps data in inodes (inline_data)")]
    InlineData,
    /// The kernel would encrypt keys.
    #[error("the ext4 on it may have encrypted files (encrypt)")]
    Encrypt,
    /// The kernel would verify keys.
    #[error("the ext4 on it may have verified files (verity)")]
    Verity,
    /// The unit is smaller than its file system.
    #[error("the ext4 on it is longer than the unit")]
    TooLong,
}

/// An ext4's superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Superblock {
    block_bytes: u64,
    blocks: u64,
    compat: u32,
    incompat: u32,
    ro_compat: u32,
}

impl Superblock {
    /// Parses the beginning of a unit, of which at least 2048 bytes are needed.
    pub fn parse(head: &[u8]) -> Result<Superblock, Unsuitable> {
        let u16_at = |at: usize| head.get(AT + at..)?.first_chunk().copied().map(u16::from_le_bytes);
        let u32_at = |at: usize| head.get(AT + at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let parse = || {
            let log = u32_at(0x18)?;
            let blocks = u64::from(u32_at(0x4)?) | u64::from(u32_at(0x150)?) << 32;
            let is_ext4 = u16_at(0x38)? == MAGIC && log <= 6;
            let (compat, incompat, ro_compat) = (u32_at(0x5C)?, u32_at(0x60)?, u32_at(0x64)?);
            is_ext4.then_some(Superblock { block_bytes: 1024 << log, blocks, compat, incompat, ro_compat })
        };
        parse().ok_or(Unsuitable::NotExt4)
    }

    /// Whether a unit of this size with it can be served.
    pub fn check(&self, capacity_bytes: u64) -> Result<(), Unsuitable> {
        let refusals = [
            (self.incompat & INCOMPAT_JOURNAL_DEV != 0, Unsuitable::JournalDevice),
            (self.block_bytes != 4096, Unsuitable::BlockBytes(self.block_bytes)),
            (self.compat & COMPAT_HAS_JOURNAL == 0, Unsuitable::NoJournal),
            (self.incompat & INCOMPAT_INLINE_DATA != 0, Unsuitable::InlineData),
            (self.incompat & INCOMPAT_ENCRYPT != 0, Unsuitable::Encrypt),
            (self.ro_compat & RO_COMPAT_VERITY != 0, Unsuitable::Verity),
            (self.blocks.checked_mul(self.block_bytes).is_none_or(|bytes| bytes > capacity_bytes), Unsuitable::TooLong),
        ];
        refusals.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, reason)| Err(reason))
    }
}
