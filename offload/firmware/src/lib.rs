//! The card where card memory is managed by the host: it executes what the host's descriptors say,
//! and knows nothing of files or TCP.
//!
//! Read first: Kim, Pai and Rixner 2002, section 4; `nicache_bus`, whose card side this is.
//!
//! ```text
//! commands ─▶ transmit.rs  a packet is gathered: headers copied from the window, content by reference from cache.rs, out through the port
//! ports ────▶ receive.rs   a frame is copied into buffers that the host posted, or its payload stays in cache.rs (split.rs: where that begins)
//! dma.rs      every copy over the bus: counted by class, and as slow as a modelled bus
//! ```
//!
//! What the host says may be anything: each descriptor that cannot be executed is refused with a
//! reason, its packet is dropped, and the card goes on. Only an index that cannot be ends the
//! attachment ([`Broken`]).
//!
//! Deliberately absent: any policy. Which block is where, and whether it is still right, is the
//! host's to know.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod cache;
mod counters;
mod dma;
mod firmware;
mod receive;
mod split;
mod transmit;

pub use counters::FirmwareCounters;
pub use firmware::{Broken, Firmware, Progress};
