//! SYN cookies (RFC 4987 section 3.6): what a SYN asks for, kept in the numbers of the SYN-ACK
//! instead of in memory.
//!
//! ```text
//!  sequence number:  | 5 bits: tick mod 32 | 3 bits: segment size | 24 bits: keyed hash of connection, tick, size, client's number |
//!  TSval:            | 26 bits: our clock, cut down               | 6 bits: ECN, SACK, window scale (15: none)                   |
//! ```
//!
//! A tick is 64 s; a cookie is good for the tick it was made in and the next one. The key is that
//! of initial sequence numbers (SipHash-2-4). Options beyond the segment size survive only if the
//! client uses timestamps, as with Linux; without them the connection has none of the options. A
//! guess is right once in 2^24 tries for each of two ticks, and then has opened a connection whose
//! data the guesser does not see.

use crate::isn::{IsnKey, siphash24};
use crate::options::{SynOptions, Timestamps, WINDOW_SCALE_MAX};
use crate::seq::Seq;
use crate::time::Time;

/// Segment sizes that a cookie can tell (Linux' tables for IPv4 and IPv6, joined): the largest that
/// is not above the client's.
const SIZES: [u16; 8] = [216, 536, 964, 1_220, 1_300, 1_380, 1_440, 1_460];
const TICK_NS: u64 = 64_000_000_000;
const HASH_BITS: u32 = 24;
/// Low bits of TSval that carry options.
const OPTION_BITS: u32 = 6;
const SCALE_NONE: u32 = 15;

/// The numbers of a SYN-ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Our initial sequence number.
    pub seq: Seq,
    /// TSval, if the client uses timestamps.
    pub tsval: Option<u32>,
}

fn tick(now: Time) -> u64 {
    now.0 / TICK_NS
}

fn hash(
    key: &IsnKey,
    tuple: &[u8; TUPLE_BYTES_MAX],
    len: usize,
    client: Seq,
    tick: u64,
    size: u32,
) -> u32 {
    let mut bytes = [0; TUPLE_BYTES_MAX + 16];
    bytes[..len].copy_from_slice(&tuple[..len]);
    bytes[len..len + 4].copy_from_slice(&client.0.to_be_bytes());
    bytes[len + 4..len + 12].copy_from_slice(&tick.to_be_bytes());
    bytes[len + 12..len + 16].copy_from_slice(&size.to_be_bytes());
    // Another use of the key than that of initial sequence numbers has another length of input.
    siphash24(&key.0, &bytes[..len + 16]) as u32 & ((1 << HASH_BITS) - 1)
}

/// Bytes of the encoding of a connection's ends at most.
pub const TUPLE_BYTES_MAX: usize = 48;

fn padded(tuple: &[u8]) -> ([u8; TUPLE_BYTES_MAX], usize) {
    let mut bytes = [0; TUPLE_BYTES_MAX];
    let len = tuple.len().min(TUPLE_BYTES_MAX);
    bytes[..len].copy_from_slice(&tuple[..len]);
    (bytes, len)
}

/// Makes the cookie for a SYN with number `client` and `options`. `tuple` encodes the connection's
/// ends in up to [`TUPLE_BYTES_MAX`] bytes, `tsval` is our clock.
#[must_use]
pub fn make(
    key: &IsnKey,
    tuple: &[u8],
    client: Seq,
    options: &SynOptions,
    tsval: u32,
    now: Time,
) -> Cookie {
    let (tuple, len) = padded(tuple);
    let asked = options.mss.unwrap_or(SIZES[1]);
    let size = SIZES.iter().rposition(|size| *size <= asked).unwrap_or(0) as u32;
    let tick = tick(now);
    let seq =
        (tick as u32 & 31) << 27 | size << HASH_BITS | hash(key, &tuple, len, client, tick, size);
    let tsval = options.timestamps.map(|_| {
        let scale =
            options.window_scale.map_or(SCALE_NONE, |scale| u32::from(scale.min(WINDOW_SCALE_MAX)));
        let bits = u32::from(options.ecn) << 5 | u32::from(options.sack_permitted) << 4 | scale;
        let coded = tsval & !((1 << OPTION_BITS) - 1) | bits;
        // Never ahead of the clock: what follows must not look older (RFC 7323 section 5.3).
        if coded > tsval { coded.wrapping_sub(1 << OPTION_BITS) } else { coded }
    });
    Cookie { seq: Seq(seq), tsval }
}

/// Judges the segment that answers a SYN-ACK: `ack` is its acknowledgment number less one, `client`
/// its sequence number less one, `timestamps` its timestamps. Returns what the SYN had asked for,
/// as far as the cookie can tell.
#[must_use]
pub fn open(
    key: &IsnKey,
    tuple: &[u8],
    client: Seq,
    ack: Seq,
    timestamps: Option<Timestamps>,
    now: Time,
) -> Option<SynOptions> {
    let (tuple, len) = padded(tuple);
    let size = ack.0 >> HASH_BITS & 7;
    let present = tick(now);
    let made = [Some(present), present.checked_sub(1)]
        .into_iter()
        .flatten()
        .find(|tick| *tick as u32 & 31 == ack.0 >> 27)?;
    if hash(key, &tuple, len, client, made, size) != ack.0 & ((1 << HASH_BITS) - 1) {
        return None;
    }
    let mss = Some(SIZES[size as usize]);
    let Some(stamps) = timestamps else { return Some(SynOptions { mss, ..SynOptions::default() }) };
    let bits = stamps.ecr;
    let scale = bits & 15;
    Some(SynOptions {
        mss,
        window_scale: (scale != SCALE_NONE).then_some((scale as u8).min(WINDOW_SCALE_MAX)),
        sack_permitted: bits & 16 != 0,
        timestamps: Some(stamps),
        ecn: bits & 32 != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    const KEY: IsnKey = IsnKey([7; 16]);

    proptest! {
        /// What goes in comes out, for as long as it should, and for nobody else.
        #[test]
        fn a_cookie_tells_what_was_asked(
            tuple: [u8; 38],
            client: u32,
            mss in proptest::option::of(any::<u16>()),
            scale in proptest::option::of(0u8..=14),
            sack: bool,
            ecn: bool,
            stamped: bool,
            tsval: u32,
            age_s in 0u64..200,
            at_s in 0u64..100_000,
            other: u32,
        ) {
            let options = SynOptions {
                mss,
                window_scale: scale,
                sack_permitted: sack,
                ecn,
                timestamps: stamped.then_some(Timestamps { val: 5, ecr: 0 }),
            };
            let made = Time::from_millis(at_s * 1_000);
            let cookie = make(&KEY, &tuple, Seq(client), &options, tsval, made);
            prop_assert_eq!(cookie.tsval.is_some(), stamped);
            if let Some(sent) = cookie.tsval {
                prop_assert!(tsval.wrapping_sub(sent) < 64, "{} behind", tsval.wrapping_sub(sent));
            }
            let stamps = cookie.tsval.map(|ecr| Timestamps { val: 6, ecr });
            let now = made + Duration::from_secs(age_s);
            let opened = open(&KEY, &tuple, Seq(client), cookie.seq, stamps, now);
            let ticks = now.0 / TICK_NS - made.0 / TICK_NS;
            prop_assert_eq!(opened.is_some(), ticks < 2);
            if let Some(opened) = opened {
                let size = opened.mss.unwrap();
                prop_assert!(size <= mss.unwrap_or(536) || size == SIZES[0]);
                prop_assert!(
                    mss.unwrap_or(536) < size
                        || !SIZES.iter().any(|s| *s > size && *s <= mss.unwrap_or(536))
                );
                let expected = if stamped { (scale, sack, ecn) } else { (None, false, false) };
                prop_assert_eq!((opened.window_scale, opened.sack_permitted, opened.ecn), expected);
            }
            if other != client {
                prop_assert!(open(&KEY, &tuple, Seq(other), cookie.seq, stamps, made).is_none());
            }
            prop_assert!(
                open(&IsnKey([8; 16]), &tuple, Seq(client), cookie.seq, stamps, made).is_none()
            );
        }
    }

    #[test]
    fn guesses_are_wrong() {
        let mut right = 0;
        for guess in 0..200_000u32 {
            let ack = Seq(guess.wrapping_mul(0x9e37_79b9));
            right += u32::from(
                open(&KEY, b"tuple", Seq(1), ack, None, Time::from_millis(100_000)).is_some(),
            );
        }
        assert!(right <= 2, "{right}");
    }
}
