//! Where connections and requests are, as `ebpf/l0.bpf.c` computes it.

use super::layout::{OBJECTS, PLACES};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 32
}

/// The place of a connection: the client's address as four words in memory order, and both ports as on the wire.
pub(super) fn place_of(seed: u64, client: [u32; 4], client_port: u16, server_port: u16) -> usize {
    let doubled = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let hash = mixed(seed, doubled(client[0], client[1]));
    let hash = mixed(hash, doubled(client[2], client[3]));
    let hash = mixed(hash, doubled(client_port.into(), server_port.into()));
    (hash % PLACES as u64) as usize
}

/// The place of a reply: its request as words in memory order, zeros behind it.
pub(super) fn object_of(seed: u64, len: usize, words: impl Iterator<Item = u64>) -> usize {
    (words.fold(mixed(seed, len as u64), mixed) % OBJECTS as u64) as usize
}
