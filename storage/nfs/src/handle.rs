//! File handles of the protocol: an export, the kernel's handle, and a proof that this server made
//! it.
//!
//! ```text
//! 0        1      2        3     4          8                  48 at most   64 at most
//! version  kind   bytes    0     export     kernel's handle    proof
//! ```
//!
//! The proof is a keyed hash of all before it. Without it a client could name any inode of the file
//! system, of other exports and of none. With it a client has the handles that it was given, and a
//! handle lasts as long as the key does, whatever restarts in between.

use arrayvec::ArrayVec;
use nicache_payload::FileId;

use crate::kernel::{KERNEL_HANDLE_BYTES_MAX, KernelHandle};
use crate::limits::HANDLE_BYTES_MAX;

const VERSION: u8 = 1;
const FRONT_BYTES: usize = 8;
const PROOF_BYTES: usize = 16;

const _: () = assert!(FRONT_BYTES + KERNEL_HANDLE_BYTES_MAX + PROOF_BYTES <= HANDLE_BYTES_MAX);

/// The bytes of a handle.
pub(crate) type HandleBytes = ArrayVec<u8, HANDLE_BYTES_MAX>;

/// Which export a handle belongs to. The same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExportId(pub u32);

/// The secret that handles are proven with. Handles of another key are refused.
#[derive(Clone)]
pub struct HandleKey([u8; 32]);

impl std::fmt::Debug for HandleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HandleKey")
    }
}

impl HandleKey {
    /// A key from secret bytes that outlast restarts.
    #[must_use]
    pub const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    fn proof(&self, bytes: &[u8]) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(&blake3::keyed_hash(&self.0, bytes).as_bytes()[..PROOF_BYTES]);
        proof
    }

    /// The handle of a file. `None` if the file system's own handle has no place in it.
    #[must_use]
    pub fn seal(&self, export: ExportId, handle: &KernelHandle) -> Option<HandleBytes> {
        let mut bytes = HandleBytes::new();
        bytes
            .try_extend_from_slice(&[
                VERSION,
                u8::try_from(handle.kind).ok()?,
                handle.bytes.len() as u8,
                0,
            ])
            .ok()?;
        bytes.try_extend_from_slice(&export.0.to_be_bytes()).ok()?;
        bytes.try_extend_from_slice(&handle.bytes).ok()?;
        let proof = self.proof(&bytes);
        bytes.try_extend_from_slice(&proof).ok()?;
        Some(bytes)
    }

    /// What a handle leads to. `None` if this key did not make it.
    #[must_use]
    pub fn open(&self, bytes: &[u8]) -> Option<(ExportId, KernelHandle)> {
        let (front, proof) = bytes.split_last_chunk::<PROOF_BYTES>()?;
        // All bytes are compared, so the time tells nothing.
        let difference = self.proof(front).iter().zip(proof).fold(0, |sum, (a, b)| sum | (a ^ b));
        if difference != 0 {
            return None;
        }
        let (&[version, kind, len, _, e0, e1, e2, e3], handle) =
            front.split_first_chunk::<FRONT_BYTES>()?;
        if version != VERSION || handle.len() != usize::from(len) {
            return None;
        }
        let bytes = handle.try_into().ok()?;
        Some((
            ExportId(u32::from_be_bytes([e0, e1, e2, e3])),
            KernelHandle { kind: i32::from(kind), bytes },
        ))
    }
}

/// Where inode number and generation are in a handle (`enum fid_type` of the kernel, and what its
/// file systems put there).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Layout {
    /// 32 bits of the inode number, then the generation; perhaps the same of the parent. ext4 and
    /// most others.
    Inode32,
    /// The generation, then 64 bits of the inode number. tmpfs.
    Tmpfs,
    /// 64 bits of the inode number, then the generation. XFS.
    Xfs,
    /// Inode number and subvolume, 64 bits each, then the generation. Inode numbers are a
    /// subvolume's own.
    Btrfs,
    /// Something else.
    Other,
}

fn layout(handle: &KernelHandle) -> Layout {
    match (handle.kind, handle.bytes.len()) {
        (1, 8) | (2, 16) => Layout::Inode32,
        (1, 12) => Layout::Tmpfs,
        (0x81 | 0x82, _) => Layout::Xfs,
        (0x4d, _) => Layout::Btrfs,
        _ => Layout::Other,
    }
}

fn word(handle: &KernelHandle, at: usize) -> Option<u32> {
    handle
        .bytes
        .get(at..at + 4)
        .and_then(|bytes| bytes.first_chunk())
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Whether a handle is of the file with an inode number; `None` if inode numbers of that file
/// system, or its handles, do not say so.
#[must_use]
pub(crate) fn is_of_inode(handle: &KernelHandle, inode: u64) -> Option<bool> {
    let at = |at: usize| word(handle, at).map(u64::from);
    match layout(handle) {
        Layout::Inode32 => Some(at(0)? == inode & 0xffff_ffff),
        Layout::Tmpfs => Some(at(4)? | at(8)? << 32 == inode),
        Layout::Xfs => Some(at(0)? | at(4)? << 32 == inode),
        Layout::Btrfs | Layout::Other => None,
    }
}

/// What tells the file of a handle from all others: inode number and generation, where the handle
/// says them, else a hash of the handle beside the inode number that the file's attributes say.
#[must_use]
pub(crate) fn file_id(handle: &KernelHandle, inode: u64) -> FileId {
    let generation = match layout(handle) {
        Layout::Inode32 => word(handle, 4),
        Layout::Tmpfs => word(handle, 0),
        Layout::Xfs => word(handle, 8),
        // The inode number alone does not say which subvolume's it is.
        Layout::Btrfs | Layout::Other => None,
    };
    let hashed = || {
        u32::from_ne_bytes(*blake3::hash(&handle.bytes).as_bytes().first_chunk().expect("32 bytes"))
    };
    FileId { inode, generation: generation.unwrap_or_else(hashed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_layout_tells_files_apart() {
        let handle = |kind, words: &[u32]| KernelHandle {
            kind,
            bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        };
        let id = |inode, generation| FileId { inode, generation };
        for (handle, inode, generation) in [
            (handle(1, &[7, 9]), 7, 9),
            (handle(2, &[7, 9, 1, 2]), 7, 9),
            (handle(1, &[9, 7, 1]), 7 | 1 << 32, 9),
            (handle(0x81, &[7, 1, 9]), 7 | 1 << 32, 9),
        ] {
            assert_eq!(file_id(&handle, inode), id(inode, generation));
            assert_eq!(is_of_inode(&handle, inode), Some(true));
            assert_eq!(is_of_inode(&handle, inode + 1), Some(false));
        }
        let (one, other) = (handle(0x4d, &[7, 0, 5, 0, 9]), handle(0x4d, &[7, 0, 6, 0, 9]));
        assert_ne!(file_id(&one, 7), file_id(&other, 7), "two subvolumes");
        assert_eq!(is_of_inode(&one, 7), None);
        assert_ne!(file_id(&handle(0x99, &[1]), 7), file_id(&handle(0x99, &[2]), 7));
    }

    proptest! {
        #[test]
        fn only_what_was_sealed_opens(
            kind in 0..256i32,
            bytes in prop::collection::vec(any::<u8>(), 0..=KERNEL_HANDLE_BYTES_MAX),
            export: u32,
            flip in 0..512usize,
        ) {
            let key = HandleKey::new([3; 32]);
            let handle = KernelHandle { kind, bytes: bytes.iter().copied().collect() };
            let sealed = key.seal(ExportId(export), &handle).unwrap();
            prop_assert_eq!(key.open(&sealed), Some((ExportId(export), handle)));
            prop_assert_eq!(HandleKey::new([4; 32]).open(&sealed), None);
            let mut forged = sealed.clone();
            let bit = flip % (8 * forged.len());
            forged[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(key.open(&forged), None);
            for len in 0..sealed.len() {
                prop_assert_eq!(key.open(&sealed[..len]), None);
            }
        }
    }
}
