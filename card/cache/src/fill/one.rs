//! One fill: what is known of its request, and what has come of its reply.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use nicache_coherence::{BODY_HASH_BYTES, RecordNumber, SourceSet, SourceSlot};
use nicache_http::{ClientClass, Framing, HeadTemplate, Key, ProxyVersion, Tokens, UriKey};
use nicache_memory::BodyId;
use nicache_tcp::Time;

use super::words::{host_of, target_of};
use crate::counters::{Counters, FillAbort};
use crate::digests::{Digests, WholeReply};
use crate::earned::AgeBounds;
use crate::path::PathSettings;
use crate::recheck::Recheck;
use crate::store::{Execution, Executor, NewEntry, Proxy, Store, Who};

/// Bytes of a request head that a fill keeps, to apply `Vary` and to name the target.
pub(super) const REQUEST_BYTES: usize = 2048;
/// A verdict that has not come after this long will not come.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);

/// By how much the room for a reply of unknown length grows when it is full.
const GROWTH: u64 = 4;

/// Names a fill; a name outlives its fill harmlessly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl FillId {
    pub(super) fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(super) fn from_wire(id: u64) -> Self {
        Self { index: id as u32, generation: (id >> 32) as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    /// The request is on the way; no reply head yet.
    Forwarded,
    /// Body bytes are copied.
    Receiving,
    /// Whole; the question goes out with the next poll.
    Whole,
    /// The watcher was asked.
    Asked,
}

pub(super) struct Fill {
    pub(super) state: State,
    pub(super) generation: u32,
    pub(super) base: Key,
    pub(super) key: Key,
    pub(super) by: Who,
    pub(super) client: SocketAddrV4,
    pub(super) settings: Arc<PathSettings>,
    pub(super) ages: AgeBounds,
    pub(super) class: ClientClass,
    pub(super) port: u16,
    pub(super) preface: Option<ProxyVersion>,
    /// The card's own request for the same.
    pub(super) recheck: Option<Box<[u8]>>,
    /// It is made when this one has its reply, or when another visitor waits for that.
    pub(super) next: Option<Recheck>,
    pub(super) may_be_static: bool,
    /// May it be a dynamic reply?
    pub(super) may_be_dynamic: bool,
    pub(super) body_hash: [u8; BODY_HASH_BYTES],
    /// The clock when the watcher was asked.
    pub(super) asked: nicache_coherence::Stamp,
    /// The earlier reply that it was asked about, too.
    pub(super) previous: Option<RecordNumber>,
    pub(super) request: Box<[u8]>,
    pub(super) request_len: usize,
    pub(super) stamp: nicache_coherence::Stamp,
    pub(super) page: UriKey,
    pub(super) resource: SourceSlot,
    pub(super) refuses_ranges: bool,
    pub(super) unsafe_requests: u64,
    pub(super) lost: u64,
    pub(super) forwarded: Time,
    /// Somebody has waited for the reply as long as is allowed.
    pub(super) waited_in_vain: bool,
    /// When the watcher was first to be asked.
    pub(super) finished: Option<Time>,
    pub(super) body: Option<BodyId>,
    /// Bytes that the body has room for.
    pub(super) body_len: u64,
    pub(super) framing: Framing,
    pub(super) closes: bool,
    pub(super) received: u64,
    pub(super) template: Option<HeadTemplate>,
    /// What stands between head and content: the chunk-size line.
    pub(super) prefix: Box<[u8]>,
    pub(super) etag: Option<Box<[u8]>>,
    pub(super) last_modified: Option<Box<[u8]>>,
}

impl Fill {
    /// A place for one.
    pub(super) fn vacant() -> Self {
        Self {
            state: State::Free,
            generation: 0,
            base: Key([0; 16]),
            key: Key([0; 16]),
            by: Who { by: Executor::Card, tokens: Tokens::default(), proxy: Proxy::Absent },
            client: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
            settings: Arc::default(),
            ages: AgeBounds::default(),
            class: ClientClass::default(),
            port: 0,
            preface: None,
            recheck: None,
            next: None,
            may_be_static: true,
            may_be_dynamic: false,
            body_hash: [0; BODY_HASH_BYTES],
            asked: Default::default(),
            previous: None,
            request: vec![0; REQUEST_BYTES].into_boxed_slice(),
            request_len: 0,
            stamp: Default::default(),
            page: UriKey::default(),
            resource: SourceSlot::EVERYTHING,
            refuses_ranges: false,
            unsafe_requests: 0,
            lost: 0,
            forwarded: Time(0),
            waited_in_vain: false,
            finished: None,
            body: None,
            body_len: 0,
            framing: Framing::None,
            closes: false,
            received: 0,
            template: None,
            prefix: Box::default(),
            etag: None,
            last_modified: None,
        }
    }

    pub(super) fn is_overdue(&self, now: Time) -> bool {
        self.finished.is_some_and(|finished| now > finished + VERDICT_PATIENCE)
    }

    /// Takes the whole reply; `None` if it was taken before.
    pub(super) fn take_reply(&mut self) -> Option<(HeadTemplate, BodyId)> {
        Some((self.template.take()?, self.body.take()?))
    }

    /// What is compared with other executions. To be called once: it takes the card's own request
    /// with it.
    pub(super) fn execution(
        &mut self,
        template: &HeadTemplate,
        body: BodyId,
        previous_unchanged: bool,
        store: &Store,
    ) -> Execution {
        Execution {
            by: self.by,
            class: self.class,
            base: self.base,
            forwarded: self.forwarded,
            finished: self.finished.unwrap_or(self.forwarded),
            digests: digests(template, self, body, store),
            ages: self.ages,
            unchanged_since: self.previous.filter(|_| previous_unchanged),
            recheck: self
                .recheck
                .take()
                .filter(|_| !store.is_of_proxy_alone(&self.base, &self.by))
                .map(|head| Recheck {
                    port: self.port,
                    preface: self.preface,
                    is_as_proxy: self.by.proxy == Proxy::Here,
                    head,
                }),
        }
    }

    /// The entry that the reply makes, valid since the watcher was asked. Once.
    pub(super) fn new_entry(
        &mut self,
        template: HeadTemplate,
        body: BodyId,
        sources: SourceSet,
        record: RecordNumber,
    ) -> NewEntry {
        let request = &self.request[..self.request_len];
        NewEntry {
            key: self.key,
            target: target_of(request).into(),
            host: host_of(request).into(),
            template,
            prefix: std::mem::take(&mut self.prefix),
            framing: self.framing,
            closes: self.closes,
            body,
            body_len: self.body_len,
            etag: self.etag.take(),
            last_modified: self.last_modified.take(),
            refuses_ranges: self.refuses_ranges,
            stamp: self.asked,
            resource: self.resource,
            forwarded: self.stamp,
            sources,
            record,
            unsafe_requests: self.unsafe_requests,
        }
    }

    /// Moves to a body with room for `needed` bytes or more.
    pub(super) fn grow(
        &mut self,
        needed: u64,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Result<(), FillAbort> {
        let max = store.object_bytes_max();
        if needed > max {
            return Err(FillAbort::TooLarge);
        }
        let room = (self.body_len * GROWTH).clamp(needed, max);
        self.move_to(room, store, counters)
    }

    pub(super) fn move_to(
        &mut self,
        room: u64,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Result<(), FillAbort> {
        let old = self.body.ok_or(FillAbort::Incomplete)?;
        let new = store.allocate(&self.key, room, counters).ok_or(FillAbort::NoRoom)?;
        let copied = store.memory_mut().append_from(new, old);
        store.release(if copied.is_ok() { old } else { new });
        copied.map_err(|_| FillAbort::Incomplete)?;
        self.body = Some(new);
        self.body_len = room;
        Ok(())
    }

    /// All bytes are in.
    pub(super) fn seal(
        &mut self,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Result<(), FillAbort> {
        let mut tail: &[u8] = b"";
        if !matches!(self.framing, Framing::Length(_)) {
            if self.framing == Framing::Chunked && self.received > 0 {
                self.prefix = format!("{:x}\r\n", self.received).into_bytes().into();
                tail = b"\r\n0\r\n\r\n";
            } else if self.framing == Framing::Chunked {
                tail = b"0\r\n\r\n";
            }
            let room = self.received + tail.len() as u64;
            if !store.admit_reply(&self.key, room) {
                return Err(FillAbort::NotAdmitted);
            }
            self.move_to(room, store, counters)?;
        }
        let body = self.body.ok_or(FillAbort::Incomplete)?;
        store.memory_mut().seal_with(body, tail).map_err(|_| FillAbort::Incomplete)
    }
}

fn digests(template: &HeadTemplate, fill: &Fill, body: BodyId, store: &Store) -> Digests {
    // Without the end of chunks, which is kept behind the content.
    let len = fill.received;
    let whole =
        WholeReply { template, closes: fill.closes, body_len: len, body_hash: fill.body_hash };
    whole.digests(&fill.settings, || {
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        for extent in store.memory().extents(body, 0..len).ok()? {
            bytes.extend_from_slice(extent);
        }
        Some(bytes)
    })
}
