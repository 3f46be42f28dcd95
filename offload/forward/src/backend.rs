//! What a card, or something like one, does for a forwarder.
//!
//! [`crate::bus`] is our own card. Others fit: NICs that split headers, device-memory TCP,
//! zero-copy receive of io_uring, AF_XDP. Some of these choose themselves where payload goes, and
//! then there is no order of eviction to choose ([`Capabilities::host_names_entries`]).

use nicache_bus::{Received, RingError, WindowError};
use nicache_port::Offload;

use crate::pcache::{BufferId, EntryId};

/// Bytes of payload that an entry has at most.
pub const ENTRY_BYTES: u32 = 4096;
/// Where a buffer has its payload: behind the place for headers.
pub const PAYLOAD_AT: u32 = 256;
/// Bytes of a buffer: a place for headers, and a page for payload.
pub const BUFFER_BYTES: u32 = PAYLOAD_AT + ENTRY_BYTES;

/// What a backend can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The host says which entry payload goes to.
    pub host_names_entries: bool,
    /// Payload can be fetched from an entry.
    pub fetch: bool,
    /// An entry can be sent several times.
    pub many_sends: bool,
    /// It completes checksums, and cuts super-frames.
    pub checksum: bool,
    /// Most parts of a packet behind its head.
    pub extents_max: usize,
}

/// Why a backend is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// The card wrote an index that cannot be.
    #[error("the card is broken: {0}")]
    Card(#[from] RingError),
    /// The window is smaller than it must be.
    #[error(transparent)]
    Window(#[from] WindowError),
}

/// An entry, and which load of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The entry.
    pub entry: EntryId,
    /// The number of the load.
    pub generation: u16,
}

/// A part of what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes of a buffer.
    Memory {
        /// The buffer.
        buffer: BufferId,
        /// From where in it.
        at: u32,
        /// How many bytes.
        len: u32,
    },
    /// Bytes of an entry.
    Card {
        /// The entry.
        loaded: Loaded,
        /// From where in it.
        at: u32,
        /// How many bytes.
        len: u32,
    },
}

/// A part of a frame that has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The buffer that was posted.
    pub buffer: BufferId,
    /// What is told of it.
    pub report: Received,
}

/// What a card, or something like one, does for a forwarder: receives, sends, and keeps payload in
/// entries. Whatever is told to the backend is on its way after [`flush`](Self::flush); it is done
/// in order.
pub trait Backend {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Posts a buffer for what is received, maybe with an entry for its payload, and whether that
    /// goes to the buffer, too. False: there is no room now.
    ///
    /// # Errors
    /// See [`Broken`].
    fn post(&mut self, buffer: BufferId, split: Option<(Loaded, bool)>) -> Result<bool, Broken>;

    /// What has come next. What it says is the card's word: it may be anything.
    ///
    /// # Errors
    /// See [`Broken`].
    fn poll_received(&mut self) -> Result<Option<Receipt>, Broken>;

    /// Reads bytes of a buffer.
    ///
    /// # Errors
    /// See [`Broken`].
    fn read(&self, buffer: BufferId, at: u32, into: &mut [u8]) -> Result<(), Broken>;

    /// Changes bytes of a buffer.
    ///
    /// # Errors
    /// See [`Broken`].
    fn write(&mut self, buffer: BufferId, at: u32, from: &[u8]) -> Result<(), Broken>;

    /// How many commands there is room for. A send takes one and one for each extent; an insertion
    /// and a fetch take one.
    ///
    /// # Errors
    /// See [`Broken`].
    fn room(&mut self) -> Result<u64, Broken>;

    /// Sends a head and what follows it, by a port. There must be room. Returns when it is done:
    /// see [`done`](Self::done).
    ///
    /// # Errors
    /// See [`Broken`].
    fn send(
        &mut self,
        port: u8,
        head: &[u8],
        extents: &[Extent],
        offload: Offload,
    ) -> Result<u64, Broken>;

    /// Loads an entry from a buffer's payload. There must be room.
    ///
    /// # Errors
    /// See [`Broken`].
    fn insert(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken>;

    /// Copies an entry to a buffer's payload. There must be room.
    ///
    /// # Errors
    /// See [`Broken`].
    fn fetch(&mut self, buffer: BufferId, loaded: Loaded, len: u32) -> Result<u64, Broken>;

    /// Everything up to this number is done: entries and buffers that it named are the host's
    /// again.
    ///
    /// # Errors
    /// See [`Broken`].
    fn done(&mut self) -> Result<u64, Broken>;

    /// How many commands were refused since the last call.
    ///
    /// # Errors
    /// See [`Broken`].
    fn poll_refused(&mut self) -> Result<u64, Broken>;

    /// Lets the card see what it was told.
    fn flush(&mut self);

    /// Asks for a bell at whatever comes next: a frame, a refusal, and if that is wanted a command
    /// that is done or a post that is taken. False: something of it has come already.
    ///
    /// # Errors
    /// See [`Broken`].
    fn prepare_sleep(&mut self, wants_done: bool, wants_posts: bool) -> Result<bool, Broken>;
}
