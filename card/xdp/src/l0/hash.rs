//! Where connections and requests are, as `ebpf/l0.bpf.c` computes it.

use super::layout::{OBJECTS, PLACES};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 32
}

/// Which of `count` places, a power of two; all bits of the hash have a say.
fn index_of(hash: u64, count: usize) -> usize {
    (hash.wrapping_mul(MULTIPLIER) >> (u64::BITS - count.ilog2())) as usize
}

/// The places that a connection can have: the client's address as four words in memory order, and
/// both ports as on the wire.
pub(super) fn places_of(
    seed: u64,
    client: [u32; 4],
    client_port: u16,
    server_port: u16,
) -> [usize; 2] {
    let doubled = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let hash = mixed(seed, doubled(client[0], client[1]));
    let hash = mixed(hash, doubled(client[2], client[3]));
    let hash = mixed(hash, doubled(client_port.into(), server_port.into()));
    let first = index_of(hash, PLACES);
    [first, first ^ 1]
}

/// The place of a reply: its request as words in memory order, zeros behind it.
pub(super) fn object_of(seed: u64, len: usize, words: impl Iterator<Item = u64>) -> usize {
    index_of(words.fold(mixed(seed, len as u64), mixed), OBJECTS)
}

const _: () = assert!(PLACES.is_power_of_two() && OBJECTS.is_power_of_two());

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The kernel gives connections ports one after the other, every second one.
    #[test]
    fn ports_in_a_row_have_places_of_their_own() {
        for seed in 1..50u64 {
            let seed = seed.wrapping_mul(MULTIPLIER);
            let mut taken = HashSet::new();
            let lent = (0..1024u16).filter(|connection| {
                let port = (32768 + 2 * connection).to_be();
                places_of(seed, [0, 0, 0xffff_0000, 0x0a00_000a], port, 80u16.to_be())
                    .into_iter()
                    .any(|at| taken.insert(at))
            });
            // By chance some 5 of 1024 find neither place.
            assert!(lent.count() > 1000, "seed {seed:#x}");
        }
    }

    #[test]
    fn requests_that_differ_in_their_last_bytes_have_places_of_their_own() {
        for seed in 1..50u64 {
            let last = |number: u64| [u64::from_ne_bytes(*b"GET /ab "), number << 48].into_iter();
            let places: HashSet<usize> =
                (0..64).map(|number| object_of(seed, 16, last(number))).collect();
            // By chance some 4 of 64 share one.
            assert!(places.len() > 48, "seed {seed:#x}: {}", places.len());
        }
    }
}
