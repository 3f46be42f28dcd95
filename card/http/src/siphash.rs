//! SipHash-2-4 with 128 bits of output (Aumasson and Bernstein 2012, and the reference code's 128-bit variant),
//! over whole 64-bit words.
//!
//! A keyed pseudo-random function: who does not know the key cannot find two inputs with one output, nor steer
//! entries to one place of a table. Taking words instead of bytes spares the handling of partial words between
//! fields; the caller's encoding must say how long each field is.

/// Hash state after some words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SipHash {
    v: [u64; 4],
    words: u64,
}

impl SipHash {
    /// A state keyed by 16 secret bytes.
    pub(crate) const fn new(secret: &[u8; 16]) -> SipHash {
        let secret = u128::from_le_bytes(*secret);
        let (k0, k1) = (secret as u64, (secret >> 64) as u64);
        SipHash {
            v: [
                k0 ^ 0x736f_6d65_7073_6575,
                k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
                k0 ^ 0x6c79_6765_6e65_7261,
                k1 ^ 0x7465_6462_7974_6573,
            ],
            words: 0,
        }
    }

    #[inline]
    pub(crate) fn word(&mut self, word: u64) {
        self.v[3] ^= word;
        round(&mut self.v);
        round(&mut self.v);
        self.v[0] ^= word;
        self.words += 1;
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
            self.word(u64::from_le_bytes(partial_word(rest).to_le_bytes().to_ascii_lowercase_array()));
        }
    }

    #[inline]
    pub(crate) fn finish(mut self) -> [u8; 16] {
        self.word((self.words * 8) << 56);
        self.v[2] ^= 0xee;
        for _ in 0..4 {
            round(&mut self.v);
        }
        let low = self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3];
        self.v[1] ^= 0xdd;
        for _ in 0..4 {
            round(&mut self.v);
        }
        let high = self.v[0] ^ self.v[1] ^ self.v[2] ^ self.v[3];
        (u128::from(low) | u128::from(high) << 64).to_le_bytes()
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

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher24};
    use std::hash::Hasher;

    #[test]
    fn reference_vectors() {
        let secret: [u8; 16] = core::array::from_fn(|i| i as u8);
        // vectors_sip128 of the reference code: the empty input and 00 01 .. 07.
        let empty = 0x9302_55c7_1472_f66d_e6a8_25ba_047f_81a3_u128.to_le_bytes();
        assert_eq!(SipHash::new(&secret).finish(), empty);
    }

    proptest! {
        #[test]
        fn equals_an_independent_implementation(secret: [u8; 16], bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
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
