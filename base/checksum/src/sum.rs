//! Sums of bytes in one piece.

/// Folded sum of `bytes`, as if they began at an even offset; an odd last byte is padded with zero.
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    // Words are added in native order and swapped once at the end (RFC 1071 section 2 B), eight
    // bytes at a time, so the loop is four instructions per eight bytes.
    let mut acc: u64 = 0;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_ne_bytes([
            chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7],
        ]);
        let (total, carry) = acc.overflowing_add(word);
        acc = total + u64::from(carry);
    }
    let rest = chunks.remainder();
    let mut tail = [0u8; 8];
    tail[..rest.len()].copy_from_slice(rest);
    let (total, carry) = acc.overflowing_add(u64::from_ne_bytes(tail));
    acc = total + u64::from(carry);
    u16::from_be(fold(acc))
}

/// Folds a wide accumulator of 16-bit words into a sum.
#[inline]
#[must_use]
pub const fn fold(mut acc: u64) -> u16 {
    acc = (acc & 0xffff_ffff) + (acc >> 32);
    acc = (acc & 0xffff) + ((acc >> 16) & 0xffff) + (acc >> 32);
    acc = (acc & 0xffff) + (acc >> 16);
    acc = (acc & 0xffff) + (acc >> 16);
    acc as u16
}

/// The sum of the two halves of a word, for the ones'-complement sum of a few.
#[inline]
#[must_use]
pub const fn halves(word: u32) -> u32 {
    (word >> 16) + (word & 0xffff)
}

/// The ones'-complement sum of at most some thousand halves.
#[inline]
#[must_use]
pub const fn fold_halves(sum: u32) -> u16 {
    let once = halves(sum);
    halves(once) as u16
}

/// Sum of two parts, the second of which begins at an even offset.
#[inline]
#[must_use]
pub const fn add(a: u16, b: u16) -> u16 {
    let (total, carry) = a.overflowing_add(b);
    total + carry as u16
}

/// Sum of what remains when a part with sum `b` is taken from a whole with sum `a`.
#[inline]
#[must_use]
pub const fn sub(a: u16, b: u16) -> u16 {
    add(a, !b)
}

/// Sum of two adjacent parts, of which the first has `first_len` bytes (RFC 1071 section 2 A:
/// a part at an odd offset has its bytes swapped).
#[inline]
#[must_use]
pub const fn concat(first: u16, first_len: usize, second: u16) -> u16 {
    if first_len.is_multiple_of(2) { add(first, second) } else { add(first, second.swap_bytes()) }
}

/// The value of a checksum field whose packet (with a zero field) has this sum.
#[inline]
#[must_use]
pub const fn finish(sum: u16) -> u16 {
    !sum
}

/// True if both values stand for the same sum, counting 0 and 0xffff as one.
#[inline]
#[must_use]
pub const fn same(a: u16, b: u16) -> bool {
    a == b || (a == 0 && b == 0xffff) || (a == 0xffff && b == 0)
}

/// A new checksum field after a word of the packet changed from `old` to `new`
/// (RFC 1624 section 3, equation 3: HC' = ~(~HC + ~m + m')).
///
/// `old` and `new` may equally be the sums of a changed range that starts at an even offset.
#[inline]
#[must_use]
pub const fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !add(add(!checksum, !old), new)
}

/// Sum of the IPv4 pseudo-header of TCP (RFC 9293 section 3.1); `tcp_len` counts header and
/// payload.
#[must_use]
pub fn pseudo_header_v4(src: [u8; 4], dst: [u8; 4], tcp_len: u32) -> u16 {
    pseudo(sum(&src), sum(&dst), tcp_len)
}

/// Sum of the IPv6 pseudo-header of TCP (RFC 8200 section 8.1); `tcp_len` counts header and
/// payload.
#[must_use]
pub fn pseudo_header_v6(src: [u8; 16], dst: [u8; 16], tcp_len: u32) -> u16 {
    pseudo(sum(&src), sum(&dst), tcp_len)
}

const fn pseudo(src: u16, dst: u16, tcp_len: u32) -> u16 {
    const PROTOCOL_TCP: u64 = 6;
    fold(
        src as u64 + dst as u64 + (tcp_len >> 16) as u64 + (tcp_len & 0xffff) as u64 + PROTOCOL_TCP,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 1, word by word.
    fn naive(bytes: &[u8]) -> u16 {
        let mut acc = 0u64;
        for pair in bytes.chunks(2) {
            acc += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
        }
        while acc > 0xffff {
            acc = (acc & 0xffff) + (acc >> 16);
        }
        acc as u16
    }

    #[test]
    fn rfc1071_example() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn rfc1624_example() {
        // Section 4: HC = 0xDD2F, m = 0x5555, m' = 0x3285 gives 0x0000, not 0xFFFF.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn pseudo_header_agrees_with_smoltcp() {
        let (src, dst) = ([10, 0, 0, 1], [192, 168, 255, 254]);
        let oracle = |len| {
            let mut bytes = [0u8; 12];
            bytes[..4].copy_from_slice(&src);
            bytes[4..8].copy_from_slice(&dst);
            bytes[9] = 6;
            bytes[10..].copy_from_slice(&(len as u16).to_be_bytes());
            naive(&bytes)
        };
        for len in [20u32, 1460, 65_515] {
            assert!(same(pseudo_header_v4(src, dst, len), oracle(len)));
        }
        let mut bytes = [0xabu8; 40];
        bytes[32..36].copy_from_slice(&70_000u32.to_be_bytes());
        bytes[36..].copy_from_slice(&[0, 0, 0, 6]);
        assert!(same(pseudo_header_v6([0xab; 16], [0xab; 16], 70_000), naive(&bytes)));
    }

    proptest! {
        #[test]
        fn sum_equals_word_by_word(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(same(sum(&bytes), naive(&bytes)));
        }

        #[test]
        fn parts_combine(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            at in 0usize..200,
        ) {
            let at = at.min(bytes.len());
            let (a, b) = bytes.split_at(at);
            prop_assert!(same(concat(sum(a), a.len(), sum(b)), sum(&bytes)));
            if at % 2 == 0 {
                prop_assert!(same(sub(sum(&bytes), sum(a)), sum(b)));
            }
        }

        #[test]
        fn incremental_equals_full(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..64),
            at in 0usize..62,
            word: [u8; 2],
        ) {
            let at = (at & !1).min((bytes.len() - 2) & !1);
            let before = finish(sum(&bytes));
            let old = sum(&bytes[at..at + 2]);
            bytes[at..at + 2].copy_from_slice(&word);
            let after = update(before, old, sum(&word));
            prop_assert!(same(after, finish(sum(&bytes))));
        }
    }
}
