//! Sums of bytes in several pieces.

use crate::sum::fold;

/// A ones'-complement sum that bytes are added to piece by piece; pieces may have odd lengths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sum {
    sum: u64,
    /// Whether an odd number of bytes was added: the next byte is the low half of a 16-bit word.
    odd: bool,
}

impl Sum {
    /// Adds bytes at the present position.
    pub fn add(&mut self, bytes: &[u8]) {
        let mut bytes = bytes;
        if self.odd
            && let Some((first, rest)) = bytes.split_first()
        {
            self.sum += u64::from(*first);
            self.odd = false;
            bytes = rest;
        }
        let (pairs, tail) = bytes.as_chunks::<2>();
        // Words are summed in the machine's byte order and the sum is swapped (RFC 1071, section
        // 2(B)): the compiler vectorises this loop, but not one that swaps each word. Blocks bound
        // its 32-bit lanes: 2^15 words of 2^16 fit 2^31.
        for block in pairs.chunks(1 << 15) {
            let sum: u32 = block.iter().map(|pair| u32::from(u16::from_ne_bytes(*pair))).sum();
            self.sum += u64::from(u16::from_be(fold(u64::from(sum))));
        }
        if let [last] = tail {
            self.sum += u64::from(*last) << 8;
            self.odd = true;
        }
    }

    /// Adds a 16-bit value at an even position.
    pub fn add_u16(&mut self, value: u16) {
        debug_assert!(!self.odd, "a word at an odd position");
        self.sum += u64::from(value);
    }

    /// The sum folded to 16 bits, not complemented: what a partial checksum field holds.
    pub fn folded(self) -> u16 {
        fold(self.sum)
    }

    /// The checksum: the complement of the folded sum.
    pub fn complete(self) -> u16 {
        !self.folded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rfc_1071_section_3_example() {
        let mut sum = Sum::default();
        sum.add(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.folded(), 0xddf2);
        assert_eq!(sum.complete(), !0xddf2);
    }

    /// More than a super-frame has.
    const LONGEST: usize = 1 << 17;

    #[test]
    fn the_longest_frame_of_ones_does_not_overflow() {
        let mut sum = Sum::default();
        sum.add(&vec![0xff; LONGEST]);
        assert_eq!(sum.folded(), 0xffff);
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            bytes in proptest::collection::vec(any::<u8>(), 0..400),
            cuts in proptest::collection::vec(0usize..400, 0..6),
        ) {
            let mut whole: u32 = 0;
            for pair in bytes.chunks(2) {
                whole += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low));
                whole = (whole & 0xffff) + (whole >> 16);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.push(0);
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut sum = Sum::default();
            for cut in cuts.windows(2) {
                sum.add(&bytes[cut[0]..cut[1]]);
            }
            prop_assert_eq!(u32::from(sum.folded()), whole);
        }
    }
}
