//! Fills: replies that are copied into card memory as they pass, and become entries when the watcher agrees.
//!
//! A fill notes the clock before its request is forwarded (SYSTEM.md idea 4). It never holds a frame back: bytes are copied
//! after the frame was sent on. When the reply is whole, the watcher is asked for its sources; until the verdict comes, the
//! key misses.

use std::time::Duration;

use hashbrown::HashTable;
use nicache_coherence::{FillRequest, FillVerdict, Verdict};
use nicache_http::{
    Framing, HeadTemplate, HeaderScratch, Key, KeyConfig, ReplyHead, RequestOutcome, Vary, VaryNames,
    parse_imf_fixdate, parse_request, vary_key,
};
use nicache_memory::BodyId;
use nicache_tcp::Time;

use crate::counters::{Counters, FillAbort};
use crate::limits::{FILLS_MAX, OBJECT_SHARE, REPLY_HEAD_BYTES_MAX};
use crate::store::{NewEntry, NotInserted, Store};

/// Bytes of a request head that a fill keeps, to apply `Vary` and to name the target.
const REQUEST_BYTES: usize = 2048;
/// A verdict that has not come after this long will not come.
const VERDICT_PATIENCE: Duration = Duration::from_secs(5);

/// The way to the watcher. Implementations must not block.
pub trait CoherenceLink {
    /// Sends a question; false if it cannot be sent now.
    fn ask(&mut self, request: &FillRequest<'_>) -> bool;
    /// The next answer that has come.
    fn poll_verdict(&mut self) -> Option<FillVerdict>;
}

/// Nobody to ask: nothing is ever stored.
pub struct NoWatcher;

impl CoherenceLink for NoWatcher {
    fn ask(&mut self, _: &FillRequest<'_>) -> bool {
        false
    }
    fn poll_verdict(&mut self) -> Option<FillVerdict> {
        None
    }
}

/// Names a fill; a name outlives its fill harmlessly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillId {
    index: u32,
    generation: u32,
}

impl FillId {
    fn send_to_wire(self) -> u64 {
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
    request: Box<[u8]>,
    request_len: usize,
    stamp: nicache_coherence::Stamp,
    lost: u64,
    forwarded: Time,
    finished: Time,
    body: Option<BodyId>,
    body_len: u64,
    received: u64,
    template: Option<HeadTemplate>,
    etag: Option<Box<[u8]>>,
    last_modified: Option<Box<[u8]>>,
}

/// All fills of a card.
pub struct Fills {
    fills: Box<[Fill]>,
    free: Vec<u32>,
    /// Keys with a fill under way: one is enough.
    keys: HashTable<u32>,
    whole: Vec<u32>,
    asked: usize,
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
                request: vec![0; REQUEST_BYTES].into_boxed_slice(),
                request_len: 0,
                stamp: Default::default(),
                lost: 0,
                forwarded: Time(0),
                finished: Time(0),
                body: None,
                body_len: 0,
                received: 0,
                template: None,
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
        }
    }

    /// Must be called before the request is forwarded: notes the clock. `None` if the key has a fill under way already,
    /// or nothing is free.
    pub fn begin(
        &mut self,
        base: Key,
        key: Key,
        request_head: &[u8],
        store: &Store,
        now: Time,
        counters: &mut Counters,
    ) -> Option<FillId> {
        let fills = &self.fills;
        if self.keys.find(base.low_u64(), |&index| fills[index as usize].base == base).is_some() {
            return None;
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
        fill.request[..request_head.len()].copy_from_slice(request_head);
        fill.request_len = request_head.len();
        fill.lost = store.revisions().lost();
        fill.stamp = store.revisions().advance_clock();
        fill.forwarded = now;
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
        reply: &ReplyHead<'_>,
        head: &[u8],
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut Counters,
    ) -> bool {
        match self.take_head(id, reply, head, keys, store, counters) {
            Ok(()) => true,
            Err(reason) => {
                if let Some(reason) = reason {
                    counters.count_abort(reason);
                }
                self.free(id, store);
                false
            }
        }
    }

    fn take_head(
        &mut self,
        id: FillId,
        reply: &ReplyHead<'_>,
        head: &[u8],
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Result<(), Option<FillAbort>> {
        let fill = self.get(id).ok_or(None)?;
        if let Err(reason) = reply.shareable {
            counters.fills_not_shared[reason.index()] += 1;
            return Err(None);
        }
        let Framing::Length(body_len) = reply.framing else {
            return Err(Some(FillAbort::NoLength));
        };
        if head.len() > REPLY_HEAD_BYTES_MAX {
            return Err(Some(FillAbort::HeadTooLarge));
        }
        fill.key = match &reply.vary {
            Vary::Names(names) if !names.is_empty() => {
                if !store.vary.note(&fill.base, names) {
                    return Err(Some(FillAbort::Resources));
                }
                variant(&fill.request[..fill.request_len], fill.base, names, keys).ok_or(Some(FillAbort::Resources))?
            }
            _ => fill.base,
        };
        let capacity = store.capacity_bytes();
        if body_len > capacity / OBJECT_SHARE {
            return Err(Some(FillAbort::TooLarge));
        }
        fill.template = Some(HeadTemplate::new(head).map_err(|_| Some(FillAbort::HeadTooLarge))?);
        fill.etag = reply.etag.map(Box::from);
        fill.last_modified = reply.last_modified.map(Box::from);
        let key = fill.key;
        if !store.admit_reply(&key, body_len) {
            return Err(Some(FillAbort::NotAdmitted));
        }
        fill.body = Some(store.allocate(&key, body_len, counters).ok_or(Some(FillAbort::NoRoom))?);
        fill.body_len = body_len;
        fill.received = 0;
        fill.state = State::Receiving;
        Ok(())
    }

    /// Body bytes, in order. Call [`Fills::finish`] when the reply is whole.
    pub fn handle_body(&mut self, id: FillId, bytes: &[u8], store: &mut Store) {
        let Some(fill) = self.get(id) else { return };
        let Some(body) = fill.body else { return };
        if fill.state != State::Receiving || store.memory_mut().append(body, bytes).is_err() {
            return;
        }
        fill.received += bytes.len() as u64;
    }

    /// The reply's last byte has come.
    pub fn finish(&mut self, id: FillId, store: &mut Store, counters: &mut Counters) {
        let Some(fill) = self.get(id) else { return };
        let whole = fill.state == State::Receiving && fill.received == fill.body_len;
        let sealed = whole && fill.body.is_some_and(|body| store.memory_mut().seal(body).is_ok());
        if !sealed {
            self.abort(id, FillAbort::Incomplete, store, counters);
            return;
        }
        fill.state = State::Whole;
        self.whole.push(id.index);
    }

    /// Gives a fill up.
    pub fn abort(&mut self, id: FillId, reason: FillAbort, store: &mut Store, counters: &mut Counters) {
        if self.get(id).is_some_and(|fill| matches!(fill.state, State::Forwarded | State::Receiving)) {
            counters.count_abort(reason);
            self.free(id, store);
        }
    }

    /// Is anybody waited for?
    pub fn is_idle(&self) -> bool {
        self.asked == 0 && self.whole.is_empty()
    }

    /// Fills under way, from the forwarded request to the verdict.
    pub fn in_use(&self) -> usize {
        self.fills.len() - self.free.len()
    }

    /// Asks the watcher about whole replies and takes its verdicts. Call with a `now` that was read after the frames which
    /// made the replies whole had been received, since the watcher looks at what happened up to then.
    pub fn poll(&mut self, link: &mut dyn CoherenceLink, store: &mut Store, now: Time, counters: &mut Counters) {
        while let Some(index) = self.whole.pop() {
            let fill = &mut self.fills[index as usize];
            let id = FillId { index, generation: fill.generation };
            fill.finished = now;
            let request = FillRequest {
                id: id.send_to_wire(),
                stamp: fill.stamp,
                forwarded_ns: fill.forwarded.0,
                finished_ns: now.0,
                lost: fill.lost,
                body_len: fill.body_len,
                body_hash: fill.body.and_then(|body| store.memory().hash(body)).unwrap_or_default(),
                last_modified: fill.last_modified.as_deref().and_then(parse_imf_fixdate),
                target: target_of(&fill.request[..fill.request_len]),
            };
            if link.ask(&request) {
                fill.state = State::Asked;
                self.asked += 1;
            } else {
                counters.count_abort(FillAbort::NoVerdict);
                self.free(id, store);
            }
        }
        if self.asked == 0 {
            return;
        }
        while let Some(verdict) = link.poll_verdict() {
            self.handle_verdict(&verdict, store, counters);
        }
        for index in 0..self.fills.len() as u32 {
            let fill = &self.fills[index as usize];
            if fill.state == State::Asked && now > fill.finished + VERDICT_PATIENCE {
                let id = FillId { index, generation: fill.generation };
                counters.count_abort(FillAbort::NoVerdict);
                self.asked -= 1;
                self.free(id, store);
            }
        }
    }

    fn handle_verdict(&mut self, verdict: &FillVerdict, store: &mut Store, counters: &mut Counters) {
        let id = FillId::from_wire(verdict.id);
        let Some(fill) = self.get(id) else { return };
        if fill.state != State::Asked {
            return;
        }
        match &verdict.verdict {
            Verdict::Refused(reason) => counters.fills_refused[reason.index()] += 1,
            Verdict::Stored { sources } => {
                let taken = (fill.template.take(), fill.body.take());
                if let (Some(template), Some(body)) = taken {
                    let request = &fill.request[..fill.request_len];
                    let new = NewEntry {
                        key: fill.key,
                        target: target_of(request).into(),
                        host: host_of(request).into(),
                        template,
                        body,
                        body_len: fill.body_len,
                        etag: fill.etag.take(),
                        last_modified: fill.last_modified.take(),
                        stamp: fill.stamp,
                        sources: *sources,
                    };
                    if fill.lost != store.revisions().lost() {
                        store.release(new.body);
                        counters.count_abort(FillAbort::ChangedAtInsert);
                    } else {
                        match store.insert(new, counters) {
                            Ok(_) => counters.fills_stored += 1,
                            Err(NotInserted::Changed) => counters.count_abort(FillAbort::ChangedAtInsert),
                            Err(NotInserted::NoPlace) => counters.count_abort(FillAbort::Resources),
                        }
                    }
                }
            }
        }
        self.asked -= 1;
        self.free(id, store);
    }

    fn get(&mut self, id: FillId) -> Option<&mut Fill> {
        let fill = self.fills.get_mut(id.index as usize)?;
        (fill.generation == id.generation && fill.state != State::Free).then_some(fill)
    }

    fn free(&mut self, id: FillId, store: &mut Store) {
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
        self.free.push(id.index);
    }
}

impl Default for Fills {
    fn default() -> Self {
        Fills::new()
    }
}

/// The request target, for logs.
fn target_of(head: &[u8]) -> &[u8] {
    let mut words = head.split(|&byte| byte == b' ');
    words.next();
    words.next().unwrap_or_default()
}

/// The host that the request names, as spelled; empty if none.
fn host_of(head: &[u8]) -> &[u8] {
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
