//! Fills: replies that are copied into card memory as they pass, and become entries when the watcher agrees.
//!
//! A reply whose length is not known before its end (chunked, or ended by the connection's end) is collected in a body that grows,
//! and copied once more into one that fits. A chunked one is kept as one chunk.
//!
//! What the operator has set for its path is looked up before it begins.
//!
//! A fill notes the clock before its request is forwarded. It never holds a frame back: bytes are copied
//! after the frame was sent on. When the reply is whole, the watcher is asked for its sources; until the verdict comes, the
//! key misses.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashTable;
use nicache_coherence::{
    BODY_HASH_BYTES, Class, FillRequest, FillVerdict, Question, RecordNumber, RefusalReason, SourceSet, SourceSlot,
    Verdict,
};
use nicache_http::{
    ClientClass, Framing, HeadTemplate, HeaderScratch, Key, KeyConfig, Method, ProxyVersion, ReplyHead, ReplyOutcome,
    RequestOutcome, Tokens, UriKey, Vary, VaryNames, parse_imf_fixdate, parse_reply_with, parse_request, recheck_head,
    vary_key,
};
use nicache_memory::BodyId;
use nicache_tcp::Time;

use crate::cache_counters::{CacheCounters, FillAbort};
use crate::cache_limits::{FILLS_MAX, REPLY_HEAD_BYTES_MAX};
use crate::earned::AgeBounds;
use crate::link::CoherenceLink;
use crate::outcomes::{LastReply, Outcome, Outcomes};
use crate::path::{Digests, PathSettings, WholeReply};
use crate::recheck::Recheck;
use crate::store::{Execution, Executor, Inserted, NewEntry, NotInserted, Store, Who, source_of};

/// Bytes of a request head that a fill keeps, to apply `Vary` and to name the target.
const REQUEST_BYTES: usize = 2048;
/// A verdict that has not come after this long will not come.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);

/// Room at first for a reply of unknown length, and by how much it grows when that is full.
const GROWING_BYTES: u64 = 64 * 1024;
const GROWTH: u64 = 4;

/// Names a fill; a name outlives its fill harmlessly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillId {
    index: u32,
    generation: u32,
}

impl FillId {
    fn to_wire(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    fn from_wire(id: u64) -> FillId {
        FillId { index: id as u32, generation: (id >> 32) as u32 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Its request is on the way; no reply head yet.
    Forwarded,
    /// Body bytes are copied.
    Receiving,
    /// Whole; the question goes out with the next poll.
    Whole,
    /// The watcher was asked.
    Asked,
}

struct Fill {
    state: State,
    generation: u32,
    base: Key,
    key: Key,
    by: Who,
    client: SocketAddrV4,
    settings: Arc<PathSettings>,
    ages: AgeBounds,
    class: ClientClass,
    port: u16,
    preface: Option<ProxyVersion>,
    /// The card's own request for the same.
    recheck: Option<Box<[u8]>>,
    may_be_static: bool,
    /// May it be a reply that the server computed?
    may_be_dynamic: bool,
    body_hash: [u8; BODY_HASH_BYTES],
    /// The clock when the watcher was asked.
    asked: nicache_coherence::Stamp,
    /// The earlier reply that it was asked about, too.
    previous: Option<RecordNumber>,
    request: Box<[u8]>,
    request_len: usize,
    stamp: nicache_coherence::Stamp,
    page: UriKey,
    resource: SourceSlot,
    refuses_ranges: bool,
    unsafe_requests: u64,
    lost: u64,
    forwarded: Time,
    /// Somebody has waited for it as long as he may.
    waited_in_vain: bool,
    /// When the watcher was first to be asked.
    finished: Option<Time>,
    body: Option<BodyId>,
    /// Bytes that the body has room for.
    body_len: u64,
    framing: Framing,
    closes: bool,
    received: u64,
    template: Option<HeadTemplate>,
    /// What stands between head and content: the chunk-size line.
    prefix: Box<[u8]>,
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
}

impl Fill {
    fn is_overdue(&self, now: Time) -> bool {
        self.finished.is_some_and(|finished| now > finished + VERDICT_PATIENCE)
    }

    /// The whole reply; once.
    fn take_reply(&mut self) -> Option<(HeadTemplate, BodyId)> {
        Some((self.template.take()?, self.body.take()?))
    }

    /// What is compared with other executions. Once.
    fn execution(
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
                .map(|head| Recheck { port: self.port, preface: self.preface, head }),
        }
    }

    /// The entry that the reply makes, valid since the watcher was asked. Once.
    fn new_entry(
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
    fn grow(&mut self, needed: u64, store: &mut Store, counters: &mut CacheCounters) -> Result<(), FillAbort> {
        let max = store.object_bytes_max();
        if needed > max {
            return Err(FillAbort::TooLarge);
        }
        let room = (self.body_len * GROWTH).clamp(needed, max);
        self.move_to(room, store, counters)
    }

    fn move_to(&mut self, room: u64, store: &mut Store, counters: &mut CacheCounters) -> Result<(), FillAbort> {
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
    fn seal(&mut self, store: &mut Store, counters: &mut CacheCounters) -> Result<(), FillAbort> {
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

/// A request that the server has said nothing to.
#[derive(Clone, Copy, Debug)]
pub struct Unanswered {
    /// The client's end of its connection.
    pub client: SocketAddrV4,
    /// When it was forwarded.
    pub forwarded: Time,
}

/// A request whose reply is to be stored.
pub struct Asked<'a> {
    /// Its key without what `Vary` says.
    pub base: Key,
    /// Its key as far as `Vary` is known.
    pub key: Key,
    /// For whom the server works.
    pub by: Who,
    /// The client's end of the connection that it is forwarded on.
    pub client: SocketAddrV4,
    /// What is set for its path.
    pub settings: Arc<PathSettings>,
    /// How old what nobody can see may be in its reply.
    pub ages: AgeBounds,
    /// Of what class the client is.
    pub class: ClientClass,
    /// The resource that it names.
    pub page: UriKey,
    /// TCP port of the service.
    pub port: u16,
    /// The header of the PROXY protocol that the connection began with, if it did.
    pub preface: Option<ProxyVersion>,
    /// The whole request.
    pub head: &'a [u8],
    /// Its reply is to be had instead of one for another client that the server has not said anything of yet.
    pub goes_ahead: bool,
}

/// The head of the reply.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// What it means.
    pub reply: &'a ReplyHead<'a>,
    /// Its bytes.
    pub head: &'a [u8],
    /// The server ends the connection although the client would go on.
    pub closes_once: bool,
}

/// All fills of a card.
pub struct Fills {
    fills: Box<[Fill]>,
    free: Vec<u32>,
    /// Keys with a fill under way: one is enough.
    keys: HashTable<u32>,
    whole: Vec<u32>,
    asked: usize,
    /// Fills that have ended.
    ended: u64,
    outcomes: Outcomes,
}

impl Fills {
    /// No fill under way.
    pub fn new() -> Fills {
        let fills = (0..FILLS_MAX)
            .map(|_| Fill {
                state: State::Free,
                generation: 0,
                base: Key([0; 16]),
                key: Key([0; 16]),
                by: Who { by: Executor::Card, tokens: Tokens::default(), is_beyond: false },
                client: SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
                settings: Arc::default(),
                ages: AgeBounds::default(),
                class: ClientClass::default(),
                port: 0,
                preface: None,
                recheck: None,
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
            })
            .collect();
        Fills {
            fills,
            free: (0..FILLS_MAX as u32).rev().collect(),
            keys: HashTable::with_capacity(FILLS_MAX),
            whole: Vec::with_capacity(FILLS_MAX),
            asked: 0,
            ended: 0,
            outcomes: Outcomes::new(),
        }
    }

    /// Must be called before the request is forwarded: notes the clock. `None` if the key has a fill under way already (one for clients
    /// and one for the card itself are allowed), or nothing is free.
    pub fn begin(
        &mut self,
        asked: Asked<'_>,
        store: &mut Store,
        now: Time,
        counters: &mut CacheCounters,
    ) -> Option<FillId> {
        let Asked { base, key, by, client, settings, ages, class, page, port, preface, head: request_head, goes_ahead } =
            asked;
        let fills = &self.fills;
        let is_same = |fill: &Fill| fill.base == base && (fill.by.by == Executor::Card) == (by.by == Executor::Card);
        if let Some(&index) = self.keys.find(base.low_u64(), |&index| is_same(&fills[index as usize])) {
            let fill = &fills[index as usize];
            if !goes_ahead || fill.state != State::Forwarded {
                return None;
            }
            let id = FillId { index, generation: fill.generation };
            self.abort(id, FillAbort::Superseded, store, counters);
        }
        if request_head.len() > REQUEST_BYTES {
            counters.count_abort(FillAbort::Resources);
            return None;
        }
        let Some(index) = self.free.pop() else {
            counters.count_abort(FillAbort::Resources);
            return None;
        };
        let fill = &mut self.fills[index as usize];
        fill.state = State::Forwarded;
        fill.base = base;
        fill.key = key;
        fill.by = by;
        fill.client = client;
        fill.settings = settings;
        fill.ages = ages;
        fill.class = class;
        fill.port = port;
        fill.preface = preface;
        fill.recheck = None;
        fill.request[..request_head.len()].copy_from_slice(request_head);
        fill.request_len = request_head.len();
        fill.lost = store.revisions().lost();
        fill.unsafe_requests = store.unsafe_requests();
        fill.page = page;
        fill.resource = source_of(page);
        store.revisions().watch(fill.resource);
        fill.stamp = store.revisions().advance_clock();
        fill.forwarded = now;
        fill.waited_in_vain = false;
        fill.finished = None;
        let id = FillId { index, generation: fill.generation };
        let fills = &self.fills;
        self.keys.insert_unique(base.low_u64(), index, |&index| fills[index as usize].base.low_u64());
        counters.fills += 1;
        Some(id)
    }

    /// The reply's head has come. Returns whether the fill goes on.
    pub fn handle_head(
        &mut self,
        id: FillId,
        answered: Answered<'_>,
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut CacheCounters,
    ) -> bool {
        match self.take_head(id, answered, keys, store, counters) {
            Ok(()) => true,
            Err(reason) => {
                if let Some(reason) = reason {
                    counters.count_abort(reason);
                    self.note(id, Outcome::Aborted(reason));
                }
                self.free(id, store);
                false
            }
        }
    }

    fn take_head(
        &mut self,
        id: FillId,
        answered: Answered<'_>,
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut CacheCounters,
    ) -> Result<(), Option<FillAbort>> {
        let Answered { closes_once, .. } = answered;
        let fill = self.get(id).ok_or(None)?;
        let settings = Arc::clone(&fill.settings);
        // The reply as it is to be stored, and as the operator reads it.
        let without_cookies = settings.dropped_cookies.removed_from(answered.head);
        let head = without_cookies.as_deref().unwrap_or(answered.head);
        let ReplyOutcome::Complete(reply) = parse_reply_with(head, Method::Get, &settings.replies) else {
            return Err(Some(FillAbort::Incomplete));
        };
        let shareable = match answered.reply.framing {
            Framing::None => return Err(Some(FillAbort::NoBody)),
            _ if settings.wants_dynamic() => reply.shareable_if_agreed(),
            _ => reply.shareable,
        };
        if let Err(reason) = shareable {
            counters.fills_not_shared[reason.index()] += 1;
            // An error, or too many requests, says nothing about what others get.
            if answered.reply.status < 500 && answered.reply.status != 429 {
                store.refute(&fill.key, fill.class);
            }
            self.note(id, Outcome::NotShared(reason));
            return Err(None);
        }
        fill.may_be_static = answered.reply.shareable.is_ok() && !closes_once;
        if head.len() > REPLY_HEAD_BYTES_MAX {
            return Err(Some(FillAbort::HeadTooLarge));
        }
        let key = match &reply.vary {
            Vary::Names(names) if !names.is_empty() => {
                if !store.vary.note(&fill.base, names) {
                    return Err(Some(FillAbort::Resources));
                }
                variant(&fill.request[..fill.request_len], fill.base, names, keys).ok_or(Some(FillAbort::Resources))?
            }
            _ => fill.base,
        };
        fill.key = store.key_of_class(&fill.base, key, fill.class, keys);
        let names = if let Vary::Names(names) = &reply.vary { Some(names) } else { None };
        fill.recheck = recheck_head(&fill.request[..fill.request_len], names, keys);
        fill.may_be_dynamic = settings.wants_dynamic()
            && fill.recheck.is_some()
            && store.is_left_alone(&fill.key, fill.forwarded).is_none();
        if !fill.may_be_static && !fill.may_be_dynamic {
            return Err(Some(FillAbort::Volatile));
        }
        fill.template = Some(HeadTemplate::new(head).map_err(|_| Some(FillAbort::HeadTooLarge))?);
        fill.prefix = Box::default();
        fill.refuses_ranges = reply.refuses_ranges;
        fill.etag = reply.etag.map(Box::from);
        fill.last_modified = reply.last_modified.map(Box::from);
        fill.framing = reply.framing;
        fill.closes = closes_once || reply.always_closes();
        let room = match reply.framing {
            Framing::Length(len) => {
                if len > store.object_bytes_max() {
                    return Err(Some(FillAbort::TooLarge));
                }
                if !store.admit_reply(&fill.key, len) {
                    return Err(Some(FillAbort::NotAdmitted));
                }
                len
            }
            _ => GROWING_BYTES.min(store.object_bytes_max()),
        };
        fill.body = Some(store.allocate(&fill.key, room, counters).ok_or(Some(FillAbort::NoRoom))?);
        fill.body_len = room;
        fill.received = 0;
        fill.state = State::Receiving;
        Ok(())
    }

    /// Body bytes, in order. Call [`Fills::finish`] when the reply is whole.
    pub fn handle_body(&mut self, id: FillId, bytes: &[u8], store: &mut Store, counters: &mut CacheCounters) {
        let Some(fill) = self.get(id) else { return };
        if fill.state != State::Receiving {
            return;
        }
        let received = fill.received + bytes.len() as u64;
        if received > fill.body_len
            && !matches!(fill.framing, Framing::Length(_))
            && let Err(reason) = fill.grow(received, store, counters)
        {
            self.abort(id, reason, store, counters);
            return;
        }
        if let Some(body) = fill.body
            && store.memory_mut().append(body, bytes).is_ok()
        {
            fill.received = received;
        }
    }

    /// The reply's last byte has come. `plain`: its chunks, if any, had neither extensions nor trailers.
    pub fn finish(&mut self, id: FillId, plain: bool, store: &mut Store, counters: &mut CacheCounters) {
        let Some(fill) = self.get(id) else { return };
        if fill.state != State::Receiving {
            return self.abort(id, FillAbort::Incomplete, store, counters);
        }
        if !plain {
            return self.abort(id, FillAbort::ChunkExtras, store, counters);
        }
        if let Err(reason) = fill.seal(store, counters) {
            return self.abort(id, reason, store, counters);
        }
        fill.state = State::Whole;
        self.whole.push(id.index);
    }

    /// Gives a fill up.
    pub fn abort(&mut self, id: FillId, reason: FillAbort, store: &mut Store, counters: &mut CacheCounters) {
        if self.get(id).is_some_and(|fill| matches!(fill.state, State::Forwarded | State::Receiving)) {
            counters.count_abort(reason);
            self.note(id, Outcome::Aborted(reason));
            self.free(id, store);
        }
    }

    /// The key that the reply would be kept by.
    pub(crate) fn key_of(&mut self, id: FillId) -> Option<Key> {
        self.get(id).map(|fill| fill.key)
    }

    /// The request for this that the server has not said anything to yet.
    pub(crate) fn unanswered(&self, base: &Key) -> Option<Unanswered> {
        let is_silent = |fill: &Fill| fill.base == *base && fill.state == State::Forwarded;
        let found = self.keys.find(base.low_u64(), |&index| is_silent(&self.fills[index as usize]));
        let fill = found.map(|&index| &self.fills[index as usize]);
        fill.map(|fill| Unanswered { client: fill.client, forwarded: fill.forwarded })
    }

    /// What last became of a reply for the key, and when its request was forwarded.
    pub fn last_outcome(&self, base: &Key) -> Option<(Outcome, Time)> {
        self.outcomes.last(base)
    }

    /// What last became of a reply to a client for the page, whatever else his request said.
    pub fn last_of_page(&self, page: UriKey) -> Option<&LastReply> {
        self.outcomes.last_of_page(page)
    }

    fn note(&mut self, id: FillId, outcome: Outcome) {
        let fill = &self.fills[id.index as usize];
        let own = fill.by.by == Executor::Card;
        let request = (!own).then(|| (fill.page, &fill.request[..fill.request_len]));
        self.outcomes.note(&fill.base, request, outcome, fill.forwarded);
    }

    /// May the reply be kept although no file has its bytes?
    pub fn wants_dynamic(&self, id: FillId) -> bool {
        let fill = self.fills.get(id.index as usize).filter(|fill| fill.generation == id.generation);
        fill.is_some_and(|fill| fill.settings.wants_dynamic())
    }

    /// When the request was forwarded whose reply is on the way for the key, of the first that is found. `None` also if somebody has waited
    /// for it in vain.
    pub fn awaited_since(&self, base: &Key) -> Option<Time> {
        let found = self.keys.find(base.low_u64(), |&index| self.fills[index as usize].base == *base);
        found.map(|&index| &self.fills[index as usize]).filter(|fill| !fill.waited_in_vain).map(|fill| fill.forwarded)
    }

    /// Somebody has waited for the reply to a request for the key, that was forwarded before, as long as he may: others need not.
    pub fn handle_vain_wait(&mut self, base: &Key, since: Time) {
        let fills = &self.fills;
        let is_awaited = |&index: &u32| fills[index as usize].base == *base && fills[index as usize].forwarded <= since;
        if let Some(&index) = self.keys.find(base.low_u64(), is_awaited) {
            self.fills[index as usize].waited_in_vain = true;
        }
    }

    /// Is the server, or the watcher, working on a reply for the key?
    pub fn is_under_way(&self, base: &Key) -> bool {
        self.keys.find(base.low_u64(), |&index| self.fills[index as usize].base == *base).is_some()
    }

    /// How many fills have ended, one way or the other.
    pub fn ended(&self) -> u64 {
        self.ended
    }

    /// Is anybody waited for?
    pub fn is_idle(&self) -> bool {
        self.asked == 0 && self.whole.is_empty()
    }

    /// Is there a question that the watcher was too busy for?
    pub fn has_unasked(&self) -> bool {
        !self.whole.is_empty()
    }

    /// Fills under way, from the forwarded request to the verdict.
    pub fn in_use(&self) -> usize {
        self.fills.len() - self.free.len()
    }

    /// Asks the watcher about whole replies, and gives up those that it does not answer. Call with a `now` that was read after the
    /// frames which made the replies whole had been received, since the watcher looks at what happened up to then.
    pub fn ask(&mut self, link: &mut dyn CoherenceLink, store: &mut Store, now: Time, counters: &mut CacheCounters) {
        // One value for all: what the watcher looks at, it looks at after this.
        let asked = if self.whole.is_empty() { Default::default() } else { store.revisions().advance_clock() };
        while let Some(&index) = self.whole.last() {
            let fill = &mut self.fills[index as usize];
            let id = FillId { index, generation: fill.generation };
            fill.asked = asked;
            fill.previous = store.previous(&fill.key).map(|(record, _)| record);
            fill.body_hash = fill.body.and_then(|body| store.memory().hash(body)).unwrap_or_default();
            let request = FillRequest {
                id: id.to_wire(),
                stamp: fill.stamp,
                asked,
                forwarded_ns: fill.forwarded.0,
                finished_ns: fill.finished.get_or_insert(now).0,
                lost: fill.lost,
                body_len: fill.received,
                body_hash: fill.body_hash,
                may_be_static: fill.may_be_static,
                may_be_dynamic: fill.may_be_dynamic,
                previous: if fill.may_be_dynamic { store.previous(&fill.key) } else { None },
                last_modified: fill.last_modified.as_deref().and_then(parse_imf_fixdate),
                client: fill.client,
                target: target_of(&fill.request[..fill.request_len]),
            };
            if link.ask(&Question::Fill(request)) {
                fill.state = State::Asked;
                self.asked += 1;
            } else if fill.is_overdue(now) {
                counters.count_abort(FillAbort::NoVerdict);
                self.note(id, Outcome::Aborted(FillAbort::NoVerdict));
                self.free(id, store);
            } else {
                // It has enough to do.
                break;
            }
            self.whole.pop();
        }
        if self.asked == 0 {
            return;
        }
        for index in 0..self.fills.len() as u32 {
            let fill = &self.fills[index as usize];
            if fill.state == State::Asked && fill.is_overdue(now) {
                let id = FillId { index, generation: fill.generation };
                counters.count_abort(FillAbort::NoVerdict);
                self.note(id, Outcome::Aborted(FillAbort::NoVerdict));
                self.asked -= 1;
                self.free(id, store);
            }
        }
    }

    /// The watcher has answered.
    pub fn handle_verdict(&mut self, verdict: &FillVerdict, store: &mut Store, counters: &mut CacheCounters) {
        let id = FillId::from_wire(verdict.id);
        let Some(fill) = self.get(id) else { return };
        if fill.state != State::Asked {
            return;
        }
        let mut outcome = None;
        match &verdict.verdict {
            Verdict::Refused(reason) | Verdict::Outdated(reason) => {
                counters.fills_refused[reason.index()] += 1;
                outcome = Some(Outcome::Refused(*reason));
                if *reason == RefusalReason::Changed && fill.by.by != Executor::Card {
                    store.note_wasted(&fill.key, fill.forwarded, counters);
                }
                // Whether the file was looked up for this one is not known, but the server has said the same again.
                if matches!(verdict.verdict, Verdict::Refused(RefusalReason::NotLookedUp))
                    && fill.lost == store.revisions().lost()
                    && let Some((template, body)) = fill.take_reply()
                {
                    let execution = fill.execution(&template, body, false, store);
                    store.release(body);
                    if store.confirm(&fill.key, execution) {
                        counters.renewed += 1;
                        outcome = Some(Outcome::Stored);
                    }
                }
                // What was lost since might have spoken against sharing it.
                let may_be_shared = matches!(verdict.verdict, Verdict::Outdated(_))
                    && fill.may_be_dynamic
                    && fill.lost == store.revisions().lost();
                let taken = if may_be_shared { fill.take_reply() } else { None };
                if let Some((template, body)) = taken {
                    let execution = fill.execution(&template, body, false, store);
                    let new = fill.new_entry(template, body, SourceSet::new(), RecordNumber::default());
                    if store.insert_outdated(new, execution, counters).is_err() {
                        counters.count_abort(FillAbort::Resources);
                    }
                }
            }
            Verdict::Stored { class, sources, record, previous_unchanged } => {
                if let Some((template, body)) = fill.take_reply() {
                    store.note_costume(fill.class, &fill.request[..fill.request_len]);
                    let execution = fill.execution(&template, body, *previous_unchanged, store);
                    let mut new = fill.new_entry(template, body, *sources, *record);
                    if *class == Class::Static {
                        new.stamp = fill.stamp;
                    }
                    let inserted = if fill.lost != store.revisions().lost() {
                        store.release(new.body);
                        Err(NotInserted::Changed)
                    } else {
                        match class {
                            Class::Static => store.insert_static(new, execution, counters),
                            Class::Dynamic => store.insert_computed(new, execution, counters),
                        }
                    };
                    counters.fills_stored += u64::from(matches!(inserted, Ok(Inserted::Stored(_))));
                    outcome = Some(match inserted {
                        Ok(Inserted::Stored(_)) => Outcome::Stored,
                        Ok(Inserted::First) => Outcome::First,
                        Ok(Inserted::Differed) => Outcome::Differed,
                        Err(reason) => {
                            let reason = match reason {
                                NotInserted::Changed => FillAbort::ChangedAtInsert,
                                NotInserted::NoPlace => FillAbort::Resources,
                            };
                            counters.count_abort(reason);
                            Outcome::Aborted(reason)
                        }
                    });
                }
            }
        }
        if let Some(outcome) = outcome {
            self.note(id, outcome);
        }
        self.asked -= 1;
        self.free(id, store);
    }

    fn get(&mut self, id: FillId) -> Option<&mut Fill> {
        let fill = self.fills.get_mut(id.index as usize)?;
        (fill.generation == id.generation && fill.state != State::Free).then_some(fill)
    }

    /// Ends a fill, unless it has ended.
    fn free(&mut self, id: FillId, store: &mut Store) {
        if self.get(id).is_none() {
            return;
        }
        let fills = &self.fills;
        let base = fills[id.index as usize].base;
        if let Ok(found) = self.keys.find_entry(base.low_u64(), |&index| index == id.index) {
            found.remove();
        }
        let fill = &mut self.fills[id.index as usize];
        if let Some(body) = fill.body.take() {
            store.release(body);
            store.refused(&fill.key);
        }
        fill.state = State::Free;
        fill.generation = fill.generation.wrapping_add(1);
        fill.template = None;
        fill.etag = None;
        fill.last_modified = None;
        fill.recheck = None;
        self.ended += 1;
        self.free.push(id.index);
    }
}

impl Default for Fills {
    fn default() -> Self {
        Fills::new()
    }
}

fn digests(template: &HeadTemplate, fill: &Fill, body: BodyId, store: &Store) -> Digests {
    // Without the end of chunks, which is kept behind the content.
    let len = fill.received;
    let whole = WholeReply { template, closes: fill.closes, body_len: len, body_hash: fill.body_hash };
    whole.digests(&fill.settings, || {
        let mut bytes = Vec::with_capacity(usize::try_from(len).ok()?);
        for extent in store.memory().extents(body, 0..len).ok()? {
            bytes.extend_from_slice(extent);
        }
        Some(bytes)
    })
}

/// The request target, for logs.
pub(crate) fn target_of(head: &[u8]) -> &[u8] {
    let mut words = head.split(|&byte| byte == b' ');
    words.next();
    words.next().unwrap_or_default()
}

/// The host that the request names, as spelled; empty if none.
pub(crate) fn host_of(head: &[u8]) -> &[u8] {
    head.split(|&byte| byte == b'\n')
        .find_map(|line| {
            let (name, value) = line.split_at_checked(5)?;
            name.eq_ignore_ascii_case(b"host:").then(|| value.trim_ascii())
        })
        .unwrap_or_default()
}

fn variant(request_head: &[u8], base: Key, names: &VaryNames, keys: &KeyConfig) -> Option<Key> {
    let mut scratch = HeaderScratch::new();
    match parse_request(request_head, &mut scratch, keys) {
        RequestOutcome::Complete(request) => Some(vary_key(base, names, request.headers, keys)),
        _ => None,
    }
}
