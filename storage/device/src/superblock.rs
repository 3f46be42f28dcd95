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
    #[error(
        "there is no ext4 on it (a new file system is made only with --mkfs, and only on an empty unit)"
    )]
    NotExt4,
    /// The file system's blocks are not as large as pages.
    #[error("the ext4 on it has blocks of {0} bytes; only 4096 are supported")]
    BlockBytes(u64),
    /// The file system has no journal, so a crash could show other files' bytes.
    #[error("the ext4 on it has no journal")]
    NoJournal,
    /// The unit is the journal of another file system.
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
    /// Its own mount options would take a commit for durable before its blocks are.
    #[error("the mount options in the ext4 on it have journal_async_commit (see tune2fs -E)")]
    AsyncCommit,
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
    has_async_commit: bool,
}

impl Superblock {
    /// Parses the beginning of a unit, of which at least 2048 bytes are needed.
    pub fn parse(head: &[u8]) -> Result<Self, Unsuitable> {
        let u16_at =
            |at: usize| head.get(AT + at..)?.first_chunk().copied().map(u16::from_le_bytes);
        let u32_at =
            |at: usize| head.get(AT + at..)?.first_chunk().copied().map(u32::from_le_bytes);
        let parse = || {
            let log = u32_at(0x18)?;
            let blocks = u64::from(u32_at(0x4)?) | u64::from(u32_at(0x150)?) << 32;
            let is_ext4 = u16_at(0x38)? == MAGIC && log <= 6 && blocks > 0;
            let (compat, incompat, ro_compat) = (u32_at(0x5C)?, u32_at(0x60)?, u32_at(0x64)?);
            let options = head.get(AT + 0x200..AT + 0x240)?.split(|byte| *byte == 0).next()?;
            let has_async_commit =
                options.split(|byte| *byte == b',').any(|option| option == b"journal_async_commit");
            is_ext4.then(|| Self {
                block_bytes: 1024 << log,
                blocks,
                compat,
                incompat,
                ro_compat,
                has_async_commit,
            })
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
            (self.has_async_commit, Unsuitable::AsyncCommit),
            (
                self.blocks
                    .checked_mul(self.block_bytes)
                    .is_none_or(|bytes| bytes > capacity_bytes),
                Unsuitable::TooLong,
            ),
        ];
        refusals.into_iter().find(|(applies, _)| *applies).map_or(Ok(()), |(_, reason)| Err(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A superblock as mkfs.ext4 makes it, with some fields set.
    fn head(fields: &[(usize, u32)]) -> Vec<u8> {
        let mut head = vec![0; 2048];
        let usual = [
            (0x4, 1000),
            (0x18, 2),
            (0x38, u32::from(MAGIC)),
            (0x5C, COMPAT_HAS_JOURNAL),
            (0x60, 0x40),
        ];
        for (at, value) in usual.iter().chain(fields) {
            head[AT + at..AT + at + 4].copy_from_slice(&value.to_le_bytes());
        }
        head
    }

    fn check(fields: &[(usize, u32)]) -> Result<(), Unsuitable> {
        Superblock::parse(&head(fields))?.check(4096 * 1000)
    }

    #[test]
    fn each_reason_is_found() {
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[(0x38, 0)]), Err(Unsuitable::NotExt4));
        assert_eq!(check(&[(0x18, 7)]), Err(Unsuitable::NotExt4));
        assert_eq!(check(&[(0x18, 0)]), Err(Unsuitable::BlockBytes(1024)));
        assert_eq!(check(&[(0x5C, 0)]), Err(Unsuitable::NoJournal));
        assert_eq!(check(&[(0x60, INCOMPAT_JOURNAL_DEV)]), Err(Unsuitable::JournalDevice));
        assert_eq!(check(&[(0x60, INCOMPAT_INLINE_DATA)]), Err(Unsuitable::InlineData));
        assert_eq!(check(&[(0x60, INCOMPAT_ENCRYPT)]), Err(Unsuitable::Encrypt));
        assert_eq!(check(&[(0x64, RO_COMPAT_VERITY)]), Err(Unsuitable::Verity));
        assert_eq!(check(&[(0x4, 1001)]), Err(Unsuitable::TooLong));
        assert_eq!(check(&[(0x150, u32::MAX)]), Err(Unsuitable::TooLong));
        assert_eq!(Superblock::parse(&[]), Err(Unsuitable::NotExt4));
        let with_options = |options: &[u8]| {
            let mut head = head(&[]);
            head[AT + 0x200..AT + 0x200 + options.len()].copy_from_slice(options);
            Superblock::parse(&head)?.check(4096 * 1000)
        };
        let refused = Err(Unsuitable::AsyncCommit);
        assert_eq!(with_options(b"commit=5,journal_async_commit"), refused);
        assert_eq!(with_options(b"journal_async_commit,nodelalloc"), refused);
        assert_eq!(with_options(b"commit=5\0journal_async_commit"), Ok(()));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..2048),
            capacity: u64,
        ) {
            let _ = Superblock::parse(&bytes).and_then(|superblock| superblock.check(capacity));
        }
    }
}
