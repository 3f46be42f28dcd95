//! The reply of a fill as it comes: may it be kept, and its bytes into card memory.

use std::sync::Arc;

use nicache_http::{
    Framing, HeadTemplate, HeaderScratch, Key, KeyConfig, Method, ReplyHead, ReplyOutcome,
    RequestOutcome, TEMPLATE_BYTES_MAX, Vary, VaryNames, parse_reply_with, parse_request,
    recheck_head, vary_key, without_own_fields,
};

use super::one::{FillId, State};
use super::table::Fills;
use crate::counters::{Counters, FillAbort};

use crate::outcomes::Outcome;
use crate::recheck::Recheck;
use crate::store::Store;

/// Room at first for a reply of unknown length.
const GROWING_BYTES: u64 = 64 * 1024;

/// The head of the reply.
#[derive(Clone, Copy)]
pub struct Answered<'a> {
    /// What it means.
    pub reply: &'a ReplyHead<'a>,
    /// The bytes of the head.
    pub head: &'a [u8],
    /// The server ends the connection although the client would go on.
    pub closes_once: bool,
}

impl Fills {
    /// The reply's head has come. Returns whether the fill goes on.
    pub fn handle_head(
        &mut self,
        id: FillId,
        answered: Answered<'_>,
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut Counters,
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

    pub(super) fn take_head(
        &mut self,
        id: FillId,
        answered: Answered<'_>,
        keys: &KeyConfig,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Result<(), Option<FillAbort>> {
        let Answered { closes_once, .. } = answered;
        let fill = self.get(id).ok_or(None)?;
        let settings = Arc::clone(&fill.settings);
        // The reply as it is to be stored, and as the operator reads it.
        let without_cookies = settings.dropped_cookies.removed_from(answered.head);
        let head = without_cookies.as_deref().unwrap_or(answered.head);
        let without_own = without_own_fields(answered.reply, head);
        let head = without_own.as_deref().unwrap_or(head);
        let ReplyOutcome::Complete(reply) = parse_reply_with(head, Method::Get, &settings.replies)
        else {
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
        if head.len() > TEMPLATE_BYTES_MAX {
            return Err(Some(FillAbort::HeadTooLarge));
        }
        let key = match &reply.vary {
            Vary::Names(names) if !names.is_empty() => {
                if !store.vary.note(&fill.base, names) {
                    return Err(Some(FillAbort::Resources));
                }
                variant(&fill.request[..fill.request_len], fill.base, names, keys)
                    .ok_or(Some(FillAbort::Resources))?
            }
            _ => fill.base,
        };
        fill.key = store.key_of_class(&fill.base, key, fill.class, keys);
        let names = if let Vary::Names(names) = &reply.vary { Some(names) } else { None };
        fill.recheck = recheck_head(&fill.request[..fill.request_len], names, keys);
        fill.may_be_dynamic = settings.wants_dynamic()
            && fill.recheck.is_some()
            && store.is_put_aside(&fill.key, fill.forwarded).is_none();
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
    pub fn handle_body(
        &mut self,
        id: FillId,
        bytes: &[u8],
        store: &mut Store,
        counters: &mut Counters,
    ) {
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

    /// The reply's last byte has come. `plain`: its chunks, if any, had neither extensions nor
    /// trailers. Returns what the card is to ask now ([`Fills::ask_next`]).
    pub fn finish(
        &mut self,
        id: FillId,
        plain: bool,
        store: &mut Store,
        counters: &mut Counters,
    ) -> Option<Recheck> {
        let fill = self.get(id)?;
        let outcome = match fill.state {
            State::Receiving if !plain => Err(FillAbort::ChunkExtras),
            State::Receiving => fill.seal(store, counters),
            _ => Err(FillAbort::Incomplete),
        };
        if let Err(reason) = outcome {
            self.abort(id, reason, store, counters);
            return None;
        }
        fill.state = State::Whole;
        let next = fill.next.take();
        self.whole.push(id.index);
        next
    }
}

fn variant(request_head: &[u8], base: Key, names: &VaryNames, keys: &KeyConfig) -> Option<Key> {
    let mut scratch = HeaderScratch::new();
    match parse_request(request_head, &mut scratch, keys) {
        RequestOutcome::Complete(request) => Some(vary_key(base, names, request.headers, keys)),
        _ => None,
    }
}
