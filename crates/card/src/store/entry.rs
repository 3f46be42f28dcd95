//! One entry: a reply in network-ready form, with the sources that it depends on.

use nicache_coherence::{Epoch, SourceSet, Stamp};
use nicache_http::{HeadTemplate, Key};
use nicache_memory::BodyId;

/// Names an entry. A name outlives its entry harmlessly: the generation tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// A reply in card memory.
pub struct Entry {
    /// Under what it is found.
    pub key: Key,
    /// The request target that filled it.
    pub target: Box<[u8]>,
    /// The host that the request named.
    pub host: Box<[u8]>,
    /// Head of the 200 reply.
    pub template: HeadTemplate,
    /// Head of the server's own 304 for it, once one was seen.
    pub not_modified: Option<HeadTemplate>,
    /// The body in card memory.
    pub body: BodyId,
    /// Bytes of the body.
    pub body_len: u64,
    /// Validator, as the server writes it.
    pub etag: Option<Box<[u8]>>,
    /// Last-Modified, as the server writes it.
    pub last_modified: Option<Box<[u8]>>,
    /// Clock before the request was forwarded: all sources must have changed before.
    pub(super) stamp: Stamp,
    /// What it depends on.
    pub(super) sources: SourceSet,
    /// At this epoch the sources were last compared.
    pub(super) checked: Epoch,
    /// Replies that still need its bytes.
    pub(super) pins: u32,
    /// Out of the index; freed with the last pin.
    pub(super) dead: bool,
}

impl Entry {
    /// What the entry depends on.
    pub fn sources(&self) -> &SourceSet {
        &self.sources
    }
}
