//! Initial sequence numbers (RFC 6528): ISN = M + F(four-tuple, secret), where M is a clock of 4
//! microseconds and F is SipHash-2-4 (Aumasson and Bernstein, 2012) under a key drawn at start.

use siphasher::sip::SipHasher24;

use crate::seq::Seq;
use crate::time::Time;

/// A random key, drawn once per process by the caller.
#[derive(Clone, Copy)]
pub struct IsnKey(pub [u8; 16]);

impl core::fmt::Debug for IsnKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("IsnKey(..)")
    }
}

/// The initial sequence number of a connection (RFC 6528 section 3). `tuple` is any fixed encoding
/// of addresses and ports that tells connections apart; more than 40 bytes are not needed for IPv6.
#[must_use]
pub fn initial(key: &IsnKey, tuple: &[u8], now: Time) -> Seq {
    let ticks = (now.0 / 4_000) as u32;
    Seq(siphash24(&key.0, tuple) as u32) + ticks
}

/// A random-looking offset for the timestamps of a connection (RFC 7323 section 7.1), constant per
/// four-tuple.
#[must_use]
pub fn timestamp_offset(key: &IsnKey, tuple: &[u8]) -> u32 {
    (siphash24(&key.0, tuple) >> 32) as u32
}

/// SipHash-2-4 of `bytes`.
#[must_use]
pub fn siphash24(key: &[u8; 16], bytes: &[u8]) -> u64 {
    SipHasher24::new_with_key(key).hash(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siphash_reference_vectors() {
        // SipHash paper, appendix A: key 00..0f, input 00..0e; and the first of the reference
        // vectors.
        let key: [u8; 16] = core::array::from_fn(|i| i as u8);
        let input: Vec<u8> = (0..15).collect();
        assert_eq!(siphash24(&key, &input), 0xa129_ca61_49be_45e5);
        assert_eq!(siphash24(&key, &[]), 0x726f_db47_dd0e_0e31);
    }

    #[test]
    fn numbers_of_one_tuple_move_with_the_clock() {
        // RFC 6528 section 3: one tick in 4 microseconds.
        let key = IsnKey([7; 16]);
        let a = initial(&key, b"tuple", Time::ZERO);
        let b = initial(&key, b"tuple", Time(4_000_000));
        assert_eq!(b.since(a), 1_000);
        assert_ne!(initial(&key, b"other", Time::ZERO), a);
        assert_ne!(initial(&IsnKey([8; 16]), b"tuple", Time::ZERO), a);
    }
}
