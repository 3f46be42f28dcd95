//! What stands for a block's payload in the file system.
//!
//! ```text
//!  0      16        24      28       32     48
//!  | tag  | sequence | valid | zeroes | MAC |  zeroes to the end of the block
//! ```
//!
//! The tag is a secret of the mount, 128 random bits, so no content that a client chooses
//! begins with it. The MAC (BLAKE3, keyed, the first 128 bits) covers the 32 bytes before it: what
//! has the tag and is not a key that was made here is refused, and never reaches the logical unit.
//! Numbers are little-endian.

use nicache_initiator::BLOCK_BYTES;
use nicache_secret::random_bytes;

/// The length of a key. A part of a block that is shorter goes through the file system as it is.
pub const KEY_BYTES: usize = 48;
const TAG_BYTES: usize = 16;
const MAC_AT: usize = 32;

/// Names a key and the payload that it stands for; never used twice in a mount.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sequence(pub u64);

/// What a block of the device is, by its first bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockContent {
    /// Bytes as they are.
    Literal,
    /// A key that was made here.
    Key {
        /// Which key it is.
        sequence: Sequence,
        /// Bytes of the block that are the file's; the rest is zeroes.
        valid_bytes: u32,
    },
    /// The tag without a valid key.
    Forged,
}

/// The secrets of a mount. They are in no file and die with the process.
#[derive(Clone)]
pub struct Keyring {
    tag: [u8; TAG_BYTES],
    mac_key: [u8; 32],
}

impl Keyring {
    /// New secrets from the kernel.
    pub fn random() -> std::io::Result<Self> {
        Ok(Self::from_secrets(&random_bytes()?))
    }

    /// Makes keys from given secrets, for tests.
    pub fn from_secrets(secrets: &[u8; TAG_BYTES + 32]) -> Self {
        let (mut tag, mut mac_key) = ([0; TAG_BYTES], [0; 32]);
        tag.copy_from_slice(&secrets[..TAG_BYTES]);
        mac_key.copy_from_slice(&secrets[TAG_BYTES..]);
        Self { tag, mac_key }
    }

    /// The secret tag, for those who look for it where it must not be.
    pub fn tag(&self) -> &[u8; TAG_BYTES] {
        &self.tag
    }

    /// Makes a key.
    pub fn seal(&self, sequence: Sequence, valid_bytes: u32) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        key[..TAG_BYTES].copy_from_slice(&self.tag);
        key[16..24].copy_from_slice(&sequence.0.to_le_bytes());
        key[24..28].copy_from_slice(&valid_bytes.to_le_bytes());
        let mac = self.mac(&key[..MAC_AT]);
        key[MAC_AT..].copy_from_slice(&mac);
        key
    }

    /// What a block is. Anything may be in it.
    pub fn open(&self, block: &[u8]) -> BlockContent {
        let Some(key) = block.first_chunk::<KEY_BYTES>() else { return BlockContent::Literal };
        if key[..TAG_BYTES] != self.tag {
            return BlockContent::Literal;
        }
        // A client cannot measure this: whoever has the tag is inside already.
        if key[MAC_AT..] != self.mac(&key[..MAC_AT]) {
            return BlockContent::Forged;
        }
        let number = |at: usize| {
            key[at..].first_chunk().copied().map(u32::from_le_bytes).unwrap_or_default()
        };
        let sequence = Sequence(u64::from(number(16)) | u64::from(number(20)) << 32);
        let valid_bytes = number(24);
        if valid_bytes as usize > BLOCK_BYTES {
            return BlockContent::Forged;
        }
        BlockContent::Key { sequence, valid_bytes }
    }

    fn mac(&self, bytes: &[u8]) -> [u8; KEY_BYTES - MAC_AT] {
        let hash = blake3::keyed_hash(&self.mac_key, bytes);
        let mut mac = [0; KEY_BYTES - MAC_AT];
        mac.copy_from_slice(&hash.as_bytes()[..KEY_BYTES - MAC_AT]);
        mac
    }
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keyring(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyring() -> Keyring {
        Keyring::from_secrets(&[7; 48])
    }

    proptest::proptest! {
        #[test]
        fn what_is_sealed_opens(sequence: u64, valid_bytes in 0..=4096_u32, rest: Vec<u8>) {
            let sequence = Sequence(sequence);
            let block = [&keyring().seal(sequence, valid_bytes)[..], &rest].concat();
            proptest::prop_assert_eq!(
                keyring().open(&block),
                BlockContent::Key { sequence, valid_bytes }
            );
        }

        #[test]
        fn a_changed_bit_is_no_key(
            sequence: u64,
            valid_bytes in 0..=4096_u32,
            bit in 0..KEY_BYTES * 8,
        ) {
            let mut block = keyring().seal(Sequence(sequence), valid_bytes);
            block[bit / 8] ^= 1 << (bit % 8);
            let expected =
                if bit / 8 < TAG_BYTES { BlockContent::Literal } else { BlockContent::Forged };
            proptest::prop_assert_eq!(keyring().open(&block), expected);
        }

        #[test]
        fn arbitrary_bytes_are_literal(block: Vec<u8>) {
            proptest::prop_assert_eq!(keyring().open(&block), BlockContent::Literal);
        }
    }

    #[test]
    fn a_key_of_another_mount_is_literal_and_a_part_of_a_key_is_too() {
        let other = Keyring::from_secrets(&[8; 48]);
        assert_eq!(keyring().open(&other.seal(Sequence(1), 4096)), BlockContent::Literal);
        assert_eq!(
            keyring().open(&keyring().seal(Sequence(1), 4096)[..KEY_BYTES - 1]),
            BlockContent::Literal
        );
        assert_eq!(keyring().open(&keyring().seal(Sequence(1), 4097)), BlockContent::Forged);
        assert_ne!(Keyring::random().unwrap().tag(), Keyring::random().unwrap().tag());
    }
}
