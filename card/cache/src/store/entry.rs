//! One entry: a reply in network-ready form, with the sources that it depends on.

use std::time::Duration;

use nicache_coherence::{Class, Epoch, RecordNumber, SourceSet, SourceSlot, Stamp};
use nicache_http::{ClientClass, Framing, HeadTemplate, Key, Trait};
use nicache_memory::BodyId;
use nicache_tcp::Time;

use super::agreement::Age;
use super::learned::Learned;
use super::seen::Traits;
use super::standing::Standing;
use crate::digests::Digests;

/// Names an entry. A name outlives its entry harmlessly: the generation tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl EntryId {
    /// The name as a number, for messages and for programs that hand it back.
    #[inline]
    pub fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The name that [`EntryId::to_wire`] made a number of. From any other number comes a name that
    /// no entry has, or another entry's.
    #[inline]
    pub fn from_wire(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }
}

/// May an entry be served?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryState {
    /// Yes.
    Good,
    /// Something that it may depend on has changed: not before the watcher has looked.
    Suspect,
    /// A source has changed, or its time is over: not before the server has said the same again.
    Lapsed,
}

impl EntryState {
    /// The name for programs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Suspect => "suspect",
            Self::Lapsed => "lapsed",
        }
    }
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
    /// The server's own other replies for it, once they were seen.
    pub learned: Learned,
    /// The server says that it serves no ranges of it.
    pub refuses_ranges: bool,
    /// How the reply ends. One of unknown length serves no HEAD: servers say other things there.
    pub framing: Framing,
    /// The connection ends after it, whatever the client wants.
    pub closes: bool,
    /// What stands between head and content: the chunk-size line.
    pub prefix: Box<[u8]>,
    /// The body in card memory: content, and the end of a chunked one.
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
    /// The resource itself as a source: what requests change.
    pub(super) resource: SourceSlot,
    /// Clock before the request was forwarded that the server last answered with these bytes: the
    /// resource must have changed before.
    pub(super) forwarded: Stamp,
    /// What the watcher remembers of the look-ups.
    pub(super) record: RecordNumber,
    /// At this epoch the sources were last compared.
    pub(super) checked: Epoch,
    /// May it be served?
    pub(super) standing: Standing,
    /// When it lapsed last because a source had changed.
    pub(super) lapsed: Time,
    /// Until when it is served, and how it is renewed.
    pub(super) age: Age,
    /// When the request was last forwarded that the server answered with these bytes, current or
    /// not.
    pub(super) said: Time,
    /// How many requests that may change something had come when its own was forwarded.
    pub(super) unsafe_requests: u64,
    /// Hits since the server last said it under changed sources.
    pub(super) hits: u32,
    /// Hits since it is there, modulo 2^32.
    pub(super) uses: u32,
    /// `uses` when an operator last looked.
    pub(super) uses_seen: u32,
    /// L0 has, or had, its reply.
    pub(super) is_published: bool,
    /// Replies that still need its bytes.
    pub(super) pins: u32,
    /// Out of the index; freed with the last pin.
    pub(super) dead: bool,
}

impl Entry {
    /// Can it answer a HEAD?
    #[inline]
    pub fn has_length(&self) -> bool {
        matches!(self.framing, Framing::Length(_))
    }

    /// Can it answer a request for a range, if the server does?
    pub fn may_have_ranges(&self) -> bool {
        self.has_length() && !self.refuses_ranges
    }

    /// Is the entry dynamic?
    #[inline]
    pub fn is_dynamic(&self) -> bool {
        self.age.class == Class::Dynamic
    }

    /// Do the entry's own replies say what one of the server's with these digests does?
    pub(super) fn says(&self, digests: &Digests) -> bool {
        let own = &self.age.digests;
        if self.template.moves_expires() {
            own.exact == digests.exact
        } else {
            own.pinned == digests.pinned
        }
    }

    /// Did the server answer without a database? Then what it knows is in files or in its own
    /// memory.
    pub(super) fn rests_on_memory(&self) -> bool {
        !self.sources.as_slice().contains(&SourceSlot::DATABASES)
    }

    /// The watcher's number for what it was judged by.
    pub fn record(&self) -> RecordNumber {
        self.record
    }

    /// From then on it is not served.
    pub fn expires(&self) -> Time {
        self.age.expires
    }

    /// Classes of clients that the server has given it to, in all traits together.
    pub fn classes(&self) -> usize {
        self.age.seen.len()
    }

    /// The traits in which the server has answered nobody of this class with it lately. With
    /// `has_proxy`, not that of the proxy, which the class does not say.
    pub fn missing(&self, class: ClientClass, has_proxy: bool, now: Time) -> Traits {
        if self.age.answers(class, now) {
            return Traits::default();
        }
        self.age.missing(class, now, |of| has_proxy && of == Trait::Proxy)
    }

    /// The head of the request that it is the answer to, as far as that chooses among replies;
    /// empty if it is not remembered.
    pub fn request(&self) -> &[u8] {
        self.age.recheck.as_ref().map_or(&[], |recheck| &recheck.head)
    }

    /// T, as it has earned it: how old what nobody can see may be in it.
    pub fn earned(&self) -> Duration {
        self.age.earned
    }

    /// The epoch at which its sources were last compared.
    pub fn checked(&self) -> Epoch {
        self.checked
    }

    /// What the entry depends on.
    pub fn sources(&self) -> &SourceSet {
        &self.sources
    }
}
