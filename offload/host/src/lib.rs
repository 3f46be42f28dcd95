//! The host where card memory is managed by it: which blocks of files are in main memory, which of
//! them on a card, and what a packet is made of.
//!
//! Read first: Kim, Pai and Rixner 2002, sections 4.1 and 4.2, Figure 5.
//!
//! ```text
//! block.rs       a block of a file, its revision, and a page for it
//! page_cache.rs  blocks in the window, pinned while a connection may have to send them again
//! mbuf.rs        what a packet is made of: bytes, or bytes of pages with their file, offset and revision
//! directory.rs   which blocks are in a card's cache, and where; one for each card
//! stack/         TCP over such buffers
//! driver.rs      packets as descriptors: append_cache where the directory knows the block, insert or append_mm where not
//! ```
//!
//! Inclusion (invariant I8): what a directory knows is in the page cache. A page that goes takes
//! its directory entries with it.
//!
//! Deliberately absent: files and their watchers (the server's), and the cache's bytes (the
//! card's).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

pub mod block;
pub mod directory;
pub mod driver;
pub mod files;
pub mod mbuf;
pub mod page_cache;
pub mod places;
pub mod server;
pub mod stack;

pub use block::{BLOCK_BYTES, Block, FileNumber, PageNumber, Revision};
pub use directory::{Coherence, Directory, DirectoryCounters, Found};
pub use driver::{Driver, DriverCounters, TransmitError};
pub use mbuf::{Headers, Mbuf, Owner, PagePart};
pub use page_cache::{Lookup, Page, PageCache};
pub use places::Places;
