//! The bus between a card and its host, where card memory is managed by the host.
//!
//! Read first: Kim, Pai and Rixner 2002, section 4.3 ("Cache Interface").
//!
//! Card and host are two processes. They share an [`attachment`] (four rings and what the card says
//! of itself), two [`doorbell`]s, and the [`window`]: host memory, from which and into which the
//! card copies, as a device does by DMA. Nothing else.
//!
//! ```text
//!            host                                                card
//!   commands    ──▶ ring of descriptors ──▶  insert, fetch, append_mm, append_cache     16 bytes each, see descriptor.rs
//!   done        ◀── ring of completions ◀──  size of the cache, errors
//!   free        ──▶ ring of buffers     ──▶  where received frames may go
//!   received    ◀── ring of buffers     ◀──  where one is, and how long
//!   window      ═══ copied by the card, counted by class (base/crossing), maybe slowed down (model.rs) ═══
//! ```
//!
//! Both sides check whatever they read of the other: an index, an address or a command that cannot
//! be is an error with a name ([`RingError`], [`DescriptorError`], [`WindowError`]), after which
//! the attachment is of no further use and a new one begins. So either side may crash and be
//! started again without the other.
//!
//! Deliberately absent: what the commands mean for packets (the card's firmware), and which block
//! is where (the host's directory).

#![deny(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod attachment;
pub mod descriptor;
pub mod doorbell;
pub mod model;
pub mod presence;
pub mod ring;
#[allow(unsafe_code)]
pub mod window;

pub use attachment::{Attachment, CardSide, Counted, HostSide};
pub use descriptor::{
    CachePlace, Command, Completion, DescriptorError, Flags, Post, Received, ReceivedChecksum,
    ReceivedGso, Segmentation,
};
pub use doorbell::Doorbell;
pub use model::{BusModel, Meter};
pub use nicache_crossing::{BusClass, BusCounters};
pub use presence::{Peer, Presence};
pub use ring::{Consumer, Producer, PushError, RingError, RingMemory};
pub use window::{Window, WindowError};
