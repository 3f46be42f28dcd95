//! What the fuzz targets do with an input.

use nicache_ncache::{BlockContent, KEY_BYTES, Keyring};

/// The secrets of these mounts. The corpus knows them, so it gets behind the tag.
const SECRETS: [u8; 48] = *b"tag of 16 bytes!and 32 bytes of a MAC's key.....";

/// A block that comes to the device: only what was sealed here opens, byte for byte.
pub(crate) fn block(bytes: &[u8]) {
    let keyring = Keyring::from_secrets(&SECRETS);
    match keyring.open(bytes) {
        BlockContent::Literal => {
            assert!(bytes.len() < KEY_BYTES || !bytes.starts_with(keyring.tag()));
        }
        BlockContent::Forged => assert!(bytes.starts_with(keyring.tag())),
        BlockContent::Key { sequence, valid_bytes } => {
            assert!(valid_bytes <= 4096);
            let sealed = keyring.seal(sequence, valid_bytes);
            // What is between the numbers and the MAC is zeroes in every key that was made.
            assert_eq!(bytes[..KEY_BYTES], sealed);
        }
    }
}
