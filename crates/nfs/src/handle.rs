//! File handles of the protocol: an export, the kernel's handle, and a proof that this server made it.
//!
//! ```text
//! 0        1      2        3     4          8                  48 at most   64 at most
//! version  kind   bytes    0     export     kernel's handle    proof
//! ```
//!
//! The proof is a keyed hash of all before it. Without it a client could name any inode of the file system, of other exports and of none. With it a client has the handles that
//! it was given, and a handle lasts as long as the key does, whatever restarts in between.

use arrayvec::ArrayVec;
use nicache_payload::FileId;

use crate::kernel::{KERNEL_HANDLE_BYTES_MAX, KernelHandle};
use crate::limits::HANDLE_BYTES_MAX;

const VERSION: u8 = 1;
const FRONT_BYTES: usize = 8;
const PROOF_BYTES: usize = 16;

const _: () = assert!(FRONT_BYTES + KERNEL_HANDLE_BYTES_MAX + PROOF_BYTES <= HANDLE_BYTES_MAX);

/// The bytes of a handle.
pub type HandleBytes = ArrayVec<u8, HANDLE_BYTES_MAX>;

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
    /// From secret bytes that outlast restarts.
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
        bytes.try_extend_from_slice(&[VERSION, u8::try_from(handle.kind).ok()?, handle.bytes.len() as u8, 0]).ok()?;
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
        // All bytes are compared, so that the time tells nothing.
        let difference = self.proof(front).iter().zip(proof).fold(0, |sum, (a, b)| sum | (a ^ b));
        if difference != 0 {
            return None;
        }
        let (&[version, kind, len, _, e0, e1, e2, e3], handle) = front.split_first_chunk::<FRONT_BYTES>()?;
        if version != VERSION || handle.len() != usize::from(len) {
            return None;
        }
        let bytes = handle.try_into().ok()?;
        Some((ExportId(u32::from_be_bytes([e0, e1, e2, e3])), KernelHandle { kind: i32::from(kind), bytes }))
    }
}

/// What tells the file of a handle from all others: inode number and generation, where the kind of handle says them (`enum fid_type` of the kernel), else a hash of the handle
/// beside the inode number that the file's attributes say.
#[must_use]
pub fn file_id(handle: &KernelHandle, inode: u64) -> FileId {
    let word = |at: usize| {
        handle.bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk()).map(|bytes| u32::from_ne_bytes(*bytes))
    };
    // FILEID_INO32_GEN, with or without the parent; XFS' inode numbers of 64 bits; FILEID_BTRFS_WITHOUT_PARENT.
    let generation = match handle.kind {
        1 | 2 => word(4),
        0x81 | 0x82 => word(8),
        0x4d => word(16),
        _ => None,
    };
    let hashed = || u32::from_ne_bytes(*blake3::hash(&handle.bytes).as_bytes().first_chunk().expect("32 bytes"));
    FileId { inode, generation: generation.unwrap_or_else(hashed) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn only_what_was_sealed_opens(
            kind in 0..256i32, bytes in prop::collection::vec(any::<u8>(), 0..=KERNEL_HANDLE_BYTES_MAX), export: u32, flip in 0..512usize
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
