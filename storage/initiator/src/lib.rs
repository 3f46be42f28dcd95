//! Logical units: where a gateway's bytes are kept.
//!
//! * [`Lun`] (`lun.rs`) is what the layers above see: reads, writes and flushes of whole blocks,
//!   from any thread.
//! * [`IscsiLun`] (`iscsi.rs`) is one on an iSCSI target (RFC 7143), through libiscsi. One thread
//!   owns the session (`session.rs`); `queue.rs` decides what is sent, sent again, or given up;
//!   `unflushed.rs` keeps what a target that lost its power would have lost; `proof.rs` knows
//!   whether a target proved who it is.
//! * [`ReservationOptions`] (`reservation.rs`) has the target refuse everybody else: persistent
//!   reservations.
//! * [`MemoryLun`] (`memory.rs`) is one in memory, with faults and power cuts, for tests.
//! * [`TargetUrl`] (`url.rs`) names a unit; [`discover`] (`discovery.rs`) asks a portal for its
//!   targets; `sense.rs` says what a target's answer means, and `capacity.rs` how large a unit is.
//!
//! Read first: RFC 7143, sections 4.4.3 and 7; SBC-3, section 4.15 (caches).
//!
//! Deliberately absent: multiple connections in a session, digests of data.

mod capacity;
mod discovery;
mod iscsi;
mod libiscsi;
mod lun;
mod memory;
mod proof;
mod queue;
mod reservation;
mod sense;
mod session;
mod unflushed;
mod url;

pub use capacity::{Capacity, parse_capacity};
pub use discovery::{DiscoveredTarget, discover};
pub use iscsi::{IscsiLun, IscsiOptions};
pub use lun::{BLOCK_BYTES, Lun, LunError, blocks};
pub use memory::{Fault, Kind, MemoryLun};
pub use reservation::{ReservationKey, ReservationOptions, Reserved, parse_reserved};
pub use sense::{Sense, Verdict, judge};
pub use url::{Credentials, TargetUrl, UrlError};
