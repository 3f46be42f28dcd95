//! Inputs that are made of others.

use fastrand::Rng;

/// Bytes of the longest input.
const INPUT_BYTES_MAX: usize = 65_536;
/// Values at which lengths, counts and signs turn over.
const BOUNDARIES: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX,
];
/// Bytes that mean something to readers of text.
const SIGNS: &[u8] = b"\r\n\t :;,=\"'\\/?&%#*-+.0129azAZ(){}[]<>\0";

/// Inputs without end: each is one of the seeds, changed in one to eight places.
pub(crate) struct Mutations {
    seeds: Vec<Vec<u8>>,
    random: Rng,
    bytes_max: usize,
}

impl Mutations {
    /// Of these seeds, at least one.
    pub(crate) fn new(seeds: Vec<Vec<u8>>, random: Rng) -> Self {
        let longest = seeds.iter().map(Vec::len).max().unwrap_or(0);
        Self { seeds, random, bytes_max: (2 * longest + 64).min(INPUT_BYTES_MAX) }
    }

    fn seed(&mut self) -> usize {
        self.random.usize(..self.seeds.len())
    }

    /// A range of at most `len` bytes; short ones are the most frequent.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.random.usize(..=len);
        let longest = (len - start).min(1 << self.random.u32(..12));
        start..start + self.random.usize(..=longest)
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let place = self.random.usize(..=input.len());
        match self.random.u8(..9) {
            0 => {
                if let Some(byte) = input.get_mut(place) {
                    *byte ^= 1 << self.random.u8(..8);
                }
            }
            1 => {
                if let Some(byte) = input.get_mut(place) {
                    *byte = self.random.u8(..);
                }
            }
            2 => {
                if let Some(byte) = input.get_mut(place) {
                    *byte = SIGNS[self.random.usize(..SIGNS.len())];
                }
            }
            3 => {
                let near = BOUNDARIES[self.random.usize(..BOUNDARIES.len())]
                    .wrapping_add(self.random.u64(..3))
                    .wrapping_sub(1);
                let (width, bytes) = (1 << self.random.u8(..4), near.to_be_bytes());
                let mut value = bytes[bytes.len() - width..].to_vec();
                if self.random.bool() {
                    value.reverse();
                }
                let end = (place + width).min(input.len());
                input[place..end].copy_from_slice(&value[..end - place]);
            }
            4 => {
                let gone = self.range(input.len());
                input.drain(gone);
            }
            5 => {
                let twice = self.range(input.len());
                let piece = input[twice].to_vec();
                input.splice(place..place, piece);
            }
            6 => {
                let piece: Vec<u8> =
                    (0..self.random.usize(1..=16)).map(|_| self.random.u8(..)).collect();
                input.splice(place..place, piece);
            }
            7 => {
                let other = self.seed();
                let from = self.range(self.seeds[other].len());
                let instead = self.range(input.len());
                let piece = self.seeds[other][from].to_vec();
                input.splice(instead, piece);
            }
            _ => input.truncate(place),
        }
    }
}

impl Iterator for Mutations {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let seed = self.seed();
        let mut input = self.seeds[seed].clone();
        for _ in 0..1 << self.random.u8(..4) {
            self.change(&mut input);
        }
        input.truncate(self.bytes_max);
        Some(input)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn some(seed: u64) -> Vec<Vec<u8>> {
        let seeds = vec![b"GET / HTTP/1.1\r\n\r\n".to_vec(), Vec::new(), vec![0; 100]];
        Mutations::new(seeds, Rng::with_seed(seed)).take(2_000).collect()
    }

    #[test]
    fn they_differ_and_stay_short() {
        let inputs = some(1);
        assert!(inputs.iter().all(|input| input.len() <= 264));
        assert!(inputs.iter().collect::<HashSet<_>>().len() > 1_000);
        assert!(
            inputs.iter().any(|input| input.starts_with(b"GET "))
                && inputs.iter().any(Vec::is_empty)
        );
    }

    #[test]
    fn one_seed_makes_the_same_inputs() {
        assert_eq!(some(7), some(7));
        assert_ne!(some(7), some(8));
    }

    #[test]
    #[should_panic(expected = "found")]
    fn what_panics_is_found() {
        let wants =
            |input: &[u8]| assert!(input.is_empty() || input[0] == b'G' || input[0] == 0, "found");
        Mutations::new(vec![b"GET".to_vec()], Rng::with_seed(3))
            .take(10_000)
            .for_each(|input| wants(&input));
    }
}
