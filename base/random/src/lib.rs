//! Random numbers that follow from a seed: a run can be repeated on any machine. Not for secrets.
//!
//! Read first: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
//! (SplitMix64).
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

/// What the state grows by with each number: 2^64 divided by the golden ratio, made odd.
const GROWTH: u64 = 0x9e37_79b9_7f4a_7c15;

/// A generator; equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GROWTH);
        mix(self.0)
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        below(self.next_u64(), bound)
    }

    /// A number from 0 to 1, without 1.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }
}

/// Scrambles a number until each bit depends on every bit: the generator's last step. Invertible; 0
/// stays 0.
#[inline]
#[must_use]
pub const fn mix(number: u64) -> u64 {
    let a = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ (a >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ (b >> 31)
}

/// Maps a random word to `0..bound` by its high bits (the bias of `bound / 2^64` does not matter
/// here). 0 if `bound` is 0.
#[inline]
#[must_use]
pub const fn below(word: u64, bound: u64) -> u64 {
    ((word as u128 * bound as u128) >> 64) as u64
}

/// Maps a random word to 0 to 1, without 1, by its high 53 bits.
#[inline]
#[must_use]
pub const fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // First outputs for seed 0 of the reference implementation.
        let mut random = SplitMix64::new(0);
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn ranges() {
        assert_eq!((below(u64::MAX, 10), below(0, 10), below(u64::MAX, 0)), (9, 0, 0));
        assert!(unit(u64::MAX) < 1.0 && unit(0) == 0.0);
        assert_eq!(mix(0), 0);
    }
}
