//! Ones'-complement sums over 64-byte lines, from which the sum of any range follows.
//!
//! Read first: RFC 1071 (sections 1 and 2: byte order independence, and sums of parts at odd
//! offsets).
//!
//! # The arithmetic
//!
//! A ones'-complement sum of 16-bit words is a sum modulo 65535. So for a body `b` let `P(x)` be
//! the sum of `b[0..x]` (a last odd byte is padded with a zero behind it); then the bytes `s..e`
//! weigh `P(e) - P(s)` modulo 65535, with each byte in the half of the word (high or low) that its
//! offset *in the body* gives it. If `s` is odd, every byte sits in the other half once the range
//! is laid at an even offset of a segment; exchanging the halves is a multiplication by 256 modulo
//! 65535, that is a byte swap of the sum.
//!
//! Subtraction cannot tell the two zeros of ones'-complement apart (0x0000: all bytes zero; 0xFFFF:
//! anything else that is a multiple of 65535). Here both are 0. That never shows in a TCP or UDP
//! checksum, because a pseudo-header with a protocol number is added and is not zero, so the sum
//! as a whole ends in the same representative either way.
//!
//! # The cost
//!
//! One `u16` per 64-byte line (3.1 % of the memory, one cache line per slot) holds `P` at the
//! line's start. `P` at another offset takes the sum of up to 64 bytes of one line more. A range
//! costs two of these whatever its length: two look-ups and two lines of data. One sum per slot
//! would take 1/32 of the space but up to 2 KiB of summing on either side, which gains nothing for
//! a segment of 1448 bytes.

/// Bytes per prefix sum.
pub(crate) const LINE_BYTES: usize = 64;
/// Prefix sums per slot.
pub(crate) const SLOT_LINES: usize = crate::SLOT_BYTES / LINE_BYTES;

/// 64 bytes of ones and then 64 of zeros: a window of it masks the tail of a line without a branch
/// per word.
static MASK: [u8; 2 * LINE_BYTES] = {
    let mut mask = [0; 2 * LINE_BYTES];
    let mut at = 0;
    while at < LINE_BYTES {
        mask[at] = 0xFF;
        at += 1;
    }
    mask
};

/// The ones'-complement sum of `bytes` as big-endian words, the first byte at an even offset:
/// 0..=0xFFFE, not complemented, both zeros as 0 (see the module's head). What
/// [`CardMemory::checksum`](crate::CardMemory::checksum) gives for a range, found by adding every
/// byte.
pub fn sum_directly(bytes: &[u8]) -> u16 {
    one_zero(nicache_checksum::sum(bytes))
}

/// The sum of two ranges of which the first has an even length: `a` over its bytes, `b` over the
/// following ones.
pub fn join(a: u16, b: u16) -> u16 {
    add(a, b)
}

/// Sum of a whole line, as little-endian words.
#[inline]
pub(crate) fn line_sum(line: &[u8; LINE_BYTES]) -> u16 {
    let (words, _) = line.as_chunks::<8>();
    let mut sum = 0u64;
    for word in words {
        let word = u64::from_le_bytes(*word);
        sum += (word & 0xFFFF_FFFF) + (word >> 32);
    }
    fold(sum)
}

/// Sum of the first `len` (0..=64) bytes of a line, as little-endian words; not folded, less than
/// 2^37.
#[inline]
pub(crate) fn line_head_sum(line: &[u8; LINE_BYTES], len: usize) -> u64 {
    let (words, _) = line.as_chunks::<8>();
    let (mask, _) = MASK[LINE_BYTES - len..2 * LINE_BYTES - len].as_chunks::<8>();
    let mut sum = 0u64;
    for (word, mask) in words.iter().zip(mask) {
        let word = u64::from_le_bytes(*word) & u64::from_le_bytes(*mask);
        sum += (word & 0xFFFF_FFFF) + (word >> 32);
    }
    sum
}

/// `a + b` modulo 65535, in 0..=0xFFFE for arguments in 0..=0xFFFF.
#[inline]
pub(crate) fn add(a: u16, b: u16) -> u16 {
    fold(u64::from(a) + u64::from(b))
}

/// `a - b` modulo 65535, in 0..=0xFFFE, for sums less than 2^38 that are not folded.
#[inline]
pub(crate) fn difference(a: u64, b: u64) -> u16 {
    const MULTIPLE: u64 = 0xFFFF << 24;
    fold(a + (MULTIPLE - b))
}

#[inline]
fn fold(sum: u64) -> u16 {
    one_zero(nicache_checksum::fold(sum))
}

/// Spells both zeros as 0.
#[inline]
fn one_zero(sum: u16) -> u16 {
    if sum == 0xFFFF { 0 } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071 section 1, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            sum = (sum & 0xFFFF) + (sum >> 16);
        }
        if sum == 0xFFFF { 0 } else { sum as u16 }
    }

    #[test]
    fn rfc_1071_section_3_example() {
        assert_eq!(sum_directly(&[0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7]), 0xDDF2);
    }

    #[test]
    fn a_swap_of_the_sum_is_a_shift_by_one_byte() {
        let bytes = [1, 2, 3, 250, 255, 9, 77];
        let shifted = [0, 1, 2, 3, 250, 255, 9, 77];
        assert_eq!(sum_directly(&bytes).swap_bytes(), sum_directly(&shifted));
    }

    #[test]
    fn heads_of_a_line() {
        let line: [u8; LINE_BYTES] = std::array::from_fn(|at| (at * 37 + 11) as u8);
        for len in 0..=LINE_BYTES {
            assert_eq!(fold(line_head_sum(&line, len)).swap_bytes(), naive(&line[..len]), "{len}");
        }
        assert_eq!(line_sum(&line).swap_bytes(), naive(&line));
        assert_eq!(line_sum(&[0xFF; LINE_BYTES]), 0);
        assert_eq!(fold(line_head_sum(&[0xFF; LINE_BYTES], 63)), 0x00FF);
        assert!(line_head_sum(&[0xFF; LINE_BYTES], 64) < 1 << 37);
    }

    #[test]
    fn extremes_of_folding() {
        assert_eq!(fold(u64::MAX), 0);
        assert_eq!(fold(0), 0);
        for sum in [
            1,
            0xFFFE,
            0xFFFF,
            0x1_0000,
            0xFFFF_FFFF,
            0x1_0000_0000,
            u64::MAX - 1,
            0x8000_0000_7FFF_FFFF,
        ] {
            assert_eq!(u64::from(fold(sum)), sum % 0xFFFF, "{sum:#x}");
        }
        for a in [0, 1, 0x7FFF, 0xFFFE, 0xFFFF] {
            for b in [0, 1, 0x7FFF, 0xFFFE, 0xFFFF] {
                let expected = (u32::from(a) + 0xFFFF - u32::from(b)) % 0xFFFF;
                assert_eq!(u32::from(difference(a.into(), b.into())), expected);
                assert_eq!(
                    u32::from(difference(u64::from(a) + ((1 << 38) - 0x1_0000), b.into())),
                    (expected + (((1u64 << 38) - 0x1_0000) % 0xFFFF) as u32) % 0xFFFF
                );
                let large = (1u64 << 38) - 1 - u64::from(b);
                assert_eq!(u64::from(difference(0, large)), (0xFFFF - large % 0xFFFF) % 0xFFFF);
                assert_eq!(u32::from(add(a, b)), (u32::from(a) + u32::from(b)) % 0xFFFF);
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn direct_sum_is_the_rfc_1071_sum(bytes: Vec<u8>) {
            assert_eq!(sum_directly(&bytes), naive(&bytes));
        }
    }
}
