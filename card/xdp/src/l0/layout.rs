//! The arrays, as `ebpf/l0.bpf.c` has them.

#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::mapping::Shared;

/// Connections that can be on loan.
pub(super) const PLACES: usize = 8192;
/// Replies of a shard that can be there.
pub(super) const OBJECTS: usize = 512;
/// Longest request, in bytes.
pub(super) const HEAD_BYTES: usize = 384;
/// Longest reply, in bytes.
pub(super) const REPLY_BYTES: usize = 12_288;

/// `struct desk`.
#[repr(C)]
pub(super) struct Desk {
    pub generation: AtomicU64,
    pub seed: AtomicU64,
    pub growth_max: AtomicU64,
}

/// States of a [`Place`].
pub(super) const FREE: u64 = 0;
pub(super) const LENT: u64 = 1;
pub(super) const BUSY: u64 = 2;
#[cfg(test)]
pub(super) const RETURNED: u64 = 3;

/// `struct place`. Addresses and ports are as on the wire, `window`, too.
#[repr(C)]
pub(super) struct Place {
    pub state: AtomicU64,
    pub client: [AtomicU32; 4],
    pub server: [AtomicU32; 4],
    pub client_port: AtomicU16,
    pub server_port: AtomicU16,
    pub rcv_nxt: AtomicU32,
    pub snd_una: AtomicU32,
    pub snd_nxt: AtomicU32,
    pub edge: AtomicU32,
    pub recent: AtomicU32,
    pub stamp: AtomicU32,
    pub stamp_sent: AtomicU32,
    pub window: AtomicU16,
    pub segment_bytes: AtomicU16,
    pub client_scale: AtomicU8,
    pub has_timestamps: AtomicU8,
    pub burst_bytes: AtomicU16,
    pub used_ns: AtomicU64,
    pub tag: AtomicU64,
    pub date: AtomicU64,
    pub shard: AtomicU64,
    pub unused: [AtomicU64; 2],
}

/// `struct object`.
#[repr(C)]
pub(super) struct Object {
    pub version: AtomicU64,
    pub generation: AtomicU64,
    pub epoch: AtomicU64,
    pub until_ns: AtomicU64,
    pub tag: AtomicU64,
    pub date: AtomicU64,
    pub served: AtomicU64,
    pub head_len: AtomicU32,
    pub reply_len: AtomicU32,
    pub sum: AtomicU64,
    pub unused: [AtomicU64; 3],
    pub head: [AtomicU64; HEAD_BYTES / 8],
    pub reply: [AtomicU64; REPLY_BYTES / 8],
}

// SAFETY: atomic integers in repr(C); the sizes below tell that there is no padding.
unsafe impl Shared for Desk {}
// SAFETY: as above.
unsafe impl Shared for Place {}
// SAFETY: as above.
unsafe impl Shared for Object {}

const _: () = assert!(size_of::<Desk>() == 24);
const _: () = assert!(size_of::<Place>() == 128);
const _: () = assert!(size_of::<Object>() == 96 + HEAD_BYTES + REPLY_BYTES);
