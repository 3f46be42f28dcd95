//! SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012, and the reference code's
//! 128-bit variant), over whole 64-bit words.
//!
//! A keyed pseudo-random function: who does not know the key cannot find two inputs with one
//! output, nor steer entries to one place of a table. The arithmetic is the crate `siphasher`'s.
//! Taking words instead of bytes spares the handling of partial words between fields; the caller's
//! encoding must say how long each field is.

use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

/// Hash state after some words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHash(SipHasher24);

impl SipHash {
    /// A state keyed by 16 secret bytes.
    pub(crate) fn new(secret: &[u8; 16]) -> Self {
        Self(SipHasher24::new_with_key(secret))
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        // The hasher takes it in the order of this machine's bytes.
        self.0.write_u64(word.to_le());
    }

    /// Takes `bytes`, padded with zeros to whole words.
    #[inline]
    pub(crate) fn padded(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.word(u64::from_le_bytes(*chunk));
        }
        if !rest.is_empty() {
            self.word(partial_word(rest));
        }
    }

    /// Takes `bytes` in lower case (ASCII), padded with zeros to whole words.
    #[inline]
    pub(crate) fn padded_lower(&mut self, bytes: &[u8]) {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            self.word(u64::from_le_bytes(chunk.to_ascii_lowercase_array()));
        }
        if !rest.is_empty() {
            self.word(u64::from_le_bytes(
                partial_word(rest).to_le_bytes().to_ascii_lowercase_array(),
            ));
        }
    }

    #[inline]
    pub(crate) fn finish(self) -> [u8; 16] {
        self.0.finish128().as_bytes()
    }
}

#[inline]
fn partial_word(rest: &[u8]) -> u64 {
    rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

trait LowerArray {
    fn to_ascii_lowercase_array(self) -> [u8; 8];
}

impl LowerArray for [u8; 8] {
    #[inline]
    fn to_ascii_lowercase_array(mut self) -> [u8; 8] {
        self.make_ascii_lowercase();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reference_vectors() {
        let secret: [u8; 16] = core::array::from_fn(|i| i as u8);
        // vectors_sip128 of the reference code: the empty input and 00 01 .. 07.
        let empty = 0x9302_55c7_1472_f66d_e6a8_25ba_047f_81a3_u128.to_le_bytes();
        assert_eq!(SipHash::new(&secret).finish(), empty);
        let mut eight = SipHash::new(&secret);
        eight.word(u64::from_le_bytes(core::array::from_fn(|i| i as u8)));
        assert_eq!(
            eight.finish(),
            *b"\x3b\x62\xa9\xba\x62\x58\xf5\x61\x0f\x83\xe2\x64\xf3\x14\x97\xb4"
        );
    }

    proptest! {
        #[test]
        fn words_are_padded_bytes(
            secret: [u8; 16],
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut ours = SipHash::new(&secret);
            ours.padded(&bytes);
            let mut padded = bytes.clone();
            padded.resize(bytes.len().next_multiple_of(8), 0);
            let mut theirs = SipHasher24::new_with_key(&secret);
            theirs.write(&padded);
            prop_assert_eq!(ours.finish(), theirs.finish128().as_bytes());

            let mut ours = SipHash::new(&secret);
            ours.padded_lower(&bytes);
            let mut theirs = SipHasher24::new_with_key(&secret);
            theirs.write(&padded.to_ascii_lowercase());
            prop_assert_eq!(ours.finish(), theirs.finish128().as_bytes());
        }
    }
}
