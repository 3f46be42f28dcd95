//! Numbers for names: FNV-1a (Fowler, Noll, Vo; RFC 9923), scrambled, because its low bits alone
//! depend on few bytes.

pub use nicache_random::mix;

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The number of an object or a client with this name.
pub fn id_of(name: &[u8]) -> u64 {
    mix(fnv(FNV_OFFSET, name))
}

/// The number of what is named by both together, as if one followed the other.
pub(crate) fn id_of_both(first: &[u8], second: &[u8]) -> u64 {
    mix(fnv(fnv(FNV_OFFSET, first), second))
}

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_numbers() {
        // The published FNV-1a of "a" and "foobar".
        assert_eq!(fnv(FNV_OFFSET, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(id_of(b"foobar"), mix(0x8594_4171_f739_67e8));
        assert_eq!(id_of_both(b"foo", b"bar"), id_of(b"foobar"));
    }
}
