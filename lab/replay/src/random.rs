//! SplitMix64 (Steele, Lea, Flood 2014): small, fast, and the same on every machine.

use nicache_trace::mix;

/// A generator; equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator for `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// In [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}
