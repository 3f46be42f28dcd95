//! The network-ready cache of a pass-through file server: payload stays here in chunks, and only
//! keys move through the file system.
//!
//! * [`Nicache`] (`nicache.rs`), [`Original`] (`original.rs`) and [`Baseline`] (`baseline.rs`) are
//!   the three ways of moving payload that the paper compares, behind
//!   [`Payload`](nicache_payload::Payload).
//! * [`BlockServer`] (`block_server.rs`) answers the block device below the file system: a block
//!   with a valid key becomes its payload on the way to the logical unit; reads always give true
//!   bytes.
//! * [`Cache`] (`cache.rs`) is what both share: the indexes by file and by block (`index.rs`),
//!   remapping from one to the other, eviction by a [`Policy`](nicache_policy::Policy), bounded
//!   memory (`budget.rs`).
//! * `key.rs` is what stands for a block's payload in the file system, and `keyed.rs` puts it
//!   there; `places.rs` is where a file's blocks are; `find.rs` looks blocks up, `ahead.rs` reads
//!   ahead, `flusher.rs` writes back under pressure; `copies.rs` counts what is copied.
//! * [`FileLook`] (`look.rs`) is what the cache has of a file, for operators, and `departures.rs`
//!   why not the rest.
//!
//! Read first: Peng, Sharma, Chiueh, "NCache: a network-centric buffer cache for pass-through
//! servers" (ICDCS 2005), section 3.
//!
//! Deliberately absent: the protocol (the front end's), and metadata, which the kernel's file
//! system alone knows.

#![forbid(unsafe_code)]

mod ahead;
mod baseline;
mod block_server;
mod block_state;
mod budget;
mod cache;
mod copies;
mod departures;
mod find;
mod flusher;
mod index;
mod key;
mod keyed;
mod locks;
mod look;
mod nicache;
mod original;
mod places;

pub use baseline::Baseline;
pub use block_server::BlockServer;
pub use block_state::BlockState;
pub use cache::{Cache, CacheOptions, Figures};
pub use copies::{Copies, CopyClass, Counted};
pub use key::{BlockContent, KEY_BYTES, Keyring, Sequence};
pub use look::{BlockRange, FileLook};
pub use nicache::Nicache;
pub use original::Original;
