//! Messages on a bus that others use, too: sealed with the key that relay and card hosts share.
//!
//! XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha-03) with a random nonce of 24 bytes in front.
//! Whoever runs the bus can lose, delay, repeat and reorder messages, but neither read nor make
//! one. Against repetition the messages themselves are numbered.

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use nicache_secret::random_bytes;

use crate::key::Key;
use crate::message::Malformed;
use crate::publisher::CardId;

const NONCE_BYTES: usize = 24;

/// Seals and opens what goes one way.
#[derive(Clone)]
pub(crate) struct Envelope {
    cipher: XChaCha20Poly1305,
    way: Vec<u8>,
}

impl Envelope {
    /// `way` names the bus's channel and direction: a message of one is none of another.
    pub(crate) fn new(key: &Key, way: &str) -> Self {
        let key = blake3::derive_key("nicache relay 1 bus", &key.0);
        Self { cipher: XChaCha20Poly1305::new((&key).into()), way: way.as_bytes().to_vec() }
    }

    /// A message from or for a card host. `None`: there are no random numbers.
    pub(crate) fn seal(&self, card: CardId, message: &[u8]) -> Option<Vec<u8>> {
        let nonce = random_bytes::<NONCE_BYTES>().ok()?;
        let plain = [&card.to_le_bytes(), message].concat();
        let payload = Payload { msg: &plain, aad: &self.way };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload).ok()?;
        Some([&nonce, &*sealed].concat())
    }

    /// The card host and the message.
    pub(crate) fn open(&self, bytes: &[u8]) -> Result<(CardId, Vec<u8>), Malformed> {
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_BYTES>().ok_or(Malformed)?;
        let payload = Payload { msg: sealed, aad: &self.way };
        let plain =
            self.cipher.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| Malformed)?;
        let (card, message) = plain.split_first_chunk().ok_or(Malformed)?;
        Ok((CardId::from_le_bytes(*card), message.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn only_what_was_sealed_opens(
            message in prop::collection::vec(any::<u8>(), 0..200),
            at in any::<prop::sample::Index>(),
            bit in 0..8_u8,
        ) {
            let envelope = Envelope::new(&Key([1; 32]), "a");
            let sealed = envelope.seal(7, &message).unwrap();
            prop_assert_eq!(envelope.open(&sealed), Ok((7, message)));
            prop_assert!(Envelope::new(&Key([2; 32]), "a").open(&sealed).is_err());
            prop_assert!(Envelope::new(&Key([1; 32]), "b").open(&sealed).is_err());
            let mut other = sealed.clone();
            let at = at.index(other.len());
            other[at] ^= 1 << bit;
            prop_assert!(envelope.open(&other).is_err());
            prop_assert!(envelope.open(&sealed[..at]).is_err());
        }
    }
}
