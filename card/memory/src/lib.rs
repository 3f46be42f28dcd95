//! Card memory: the store of reply bodies from which hits are answered.
//!
//! Read first: Bos et al. 2009, section 2.4.1 ("Mapping on memories"). As there, the memory is cut
//! at start into slots of one size, so there is no allocation at run time and no external
//! fragmentation, and the bytes lie there ready for the network with their partial checksums. Three
//! things differ from the paper:
//!
//! * A body is not a linked list of packets but an array of bytes over slots, contiguous where
//!   possible and otherwise found through an index kept in slots of its own, so any offset is
//!   reached in constant time. A body can then be cut at whatever segment size the client asks for.
//! * For the same reason there is not one partial checksum per packet but a prefix sum per 64-byte
//!   line (see [`checksum`]); the sum of any range is the difference of two of them.
//! * Headers are not stored: they are made by the sender in front of the extents.
//!
//! ```text
//! arena   | slot 0 (2048 bytes) | slot 1 | slot 2 | ...     data, or 512 slot numbers of an index
//! sums    | 32 x u16            | 32 x u16        | ...     prefix sum at the start of each line of that slot
//! bodies  | serial, length, first slot or index root, pins, state | ...
//! ```
//!
//! Order of calls: [`CardMemory::allocate`], [`CardMemory::append`] until complete,
//! [`CardMemory::seal`]; then [`CardMemory::pin`] per reply being sent, [`CardMemory::extents`] and
//! [`CardMemory::checksum`] per segment, [`CardMemory::unpin`] when the last byte is acknowledged;
//! [`CardMemory::release`] on eviction or purge.
//!
//! Deliberately absent: names of bodies and their validity (the card's directory), which body to
//! evict (nicache-policy), and locks (one owner; share it by owning it).

#![deny(unsafe_code)]
#![deny(clippy::disallowed_methods)]

#[allow(unsafe_code)]
mod arena;
mod body;
mod card_memory;
pub mod checksum;
mod extents;
mod size;
mod slots;

pub use arena::{Arena, HugePages, Pages};
pub use body::{AccessError, AllocateError, AppendError, BodyId, PinError, SealError};
pub use card_memory::{CardMemory, MemoryConfig};
pub use extents::Extents;
pub use size::{Size, SizeError};

/// Bytes of one slot. A body takes whole slots; every slot but its last is full.
pub const SLOT_BYTES: usize = 2048;
