//! Answers from card memory: the reply is queued, counted and recorded.

use nicache_cache::{CacheStatus, EntryId, Meaning};
use nicache_http::ByteRange;
use nicache_port::Port;
use nicache_tcp::Time;

use crate::access::AccessRecord;
use crate::card::Card;
use crate::flow::Flow;
use crate::flow::parts::PartsId;
use crate::flow::preface::FlowPreface;
use crate::flow::reply::{Reply, ReplyKind};
use crate::forward::Forward;
use crate::payload;
use crate::transmit::segments;

/// The entry for a request whose head was read before, and what else the head says.
#[derive(Clone, Copy)]
pub(crate) struct Recalled {
    pub(crate) entry: EntryId,
    pub(crate) head_request: bool,
    pub(crate) keep_alive: bool,
    pub(crate) http10: bool,
    pub(crate) is_of_sender: bool,
}

impl Recalled {
    /// The hit, by the lengths of the entry's body and the request's head.
    #[inline]
    pub(crate) fn into_hit(self, body_len: u64, head_len: usize, status: CacheStatus) -> Hit {
        Hit {
            memorable: None,
            entry: self.entry,
            kind: if self.head_request { ReplyKind::HeadOnly } else { ReplyKind::Full },
            range: ByteRange { from: 0, to: if self.head_request { 0 } else { body_len } },
            status,
            head_len,
            head_request: self.head_request,
            keep_alive: self.keep_alive,
            http10: self.http10,
            is_of_sender: self.is_of_sender,
            is_shared: false,
        }
    }
}

/// An answer from card memory.
pub(crate) struct Hit {
    /// What the head means to anybody who sends it again.
    pub(crate) memorable: Option<Meaning>,
    pub(crate) entry: EntryId,
    pub(crate) kind: ReplyKind,
    /// What of the body, or of several parts, follows the head.
    pub(crate) range: ByteRange,
    pub(crate) status: CacheStatus,
    pub(crate) head_len: usize,
    pub(crate) head_request: bool,
    pub(crate) keep_alive: bool,
    pub(crate) http10: bool,
    /// Whether it may be given depends on who asks, beside what the request says.
    pub(crate) is_of_sender: bool,
    /// The entry is not valid, but what the server has said since the request came.
    pub(crate) is_shared: bool,
}

impl Hit {
    /// May L0 give the reply?
    pub(crate) fn is_offered(&self) -> bool {
        self.kind == ReplyKind::Full && self.keep_alive && !self.head_request && !self.is_of_sender
    }

    /// The host answers it instead.
    pub(crate) fn into_forward(self) -> Forward {
        Forward {
            head_len: self.head_len,
            head_request: self.head_request,
            keep_alive: self.keep_alive,
            store_as: None,
            was_held_up: false,
            next: None,
            goes_ahead: false,
            is_unsafe: false,
            changing: None,
            lesson: None,
            reason: None,
        }
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// What the card's reply says of itself.
    pub(crate) fn status(&self, flow: &Flow) -> CacheStatus {
        match flow.wait.and_then(|wait| wait.collapsed) {
            Some(miss) if self.config.cache_status => CacheStatus::Collapsed(miss),
            _ => self.hit_status(),
        }
    }

    /// What it says of itself if the request has waited for nobody.
    pub(crate) fn hit_status(&self) -> CacheStatus {
        if self.config.cache_status { CacheStatus::Hit } else { CacheStatus::Silent }
    }

    /// Queues the reply of a hit; returns the bytes of its request.
    pub(crate) fn answer(&mut self, flow: &mut Flow, hit: &Hit, bytes: &[u8], now: Time) -> usize {
        let Some(entry) = self.store.get(hit.entry) else { return hit.head_len };
        let (closes, is_dynamic) = (entry.closes, entry.is_dynamic());
        let body_len = hit.range.len();
        let Some(head_len) = payload::head_len(entry, hit.kind, hit.range, body_len) else {
            return hit.head_len;
        };
        let parts = match hit.kind {
            ReplyKind::Parts => match self.part_sets.take(&self.ranges) {
                Some(parts) => parts,
                None => return 0,
            },
            _ => PartsId::default(),
        };
        let reply = Reply {
            start: flow.out_next,
            head_len: (head_len + hit.status.line().len()) as u32,
            body_len: body_len as u32,
            from: hit.range.from,
            parts,
            status: hit.status,
            entry: hit.entry,
            kind: hit.kind,
            date: self.unix_s,
        };
        if flow.replies.is_empty() {
            // Everything before was acknowledged: the card speaks from here on.
            flow.resume_sender();
        }
        if !flow.replies.push(reply) {
            return 0;
        }
        // Whether L0 has this one is not known yet.
        flow.may_be_lent = false;
        self.store.pin_for_hit(hit.entry);
        self.counters.cache.waits_answered += u64::from(flow.wait.take().is_some());
        if hit.is_shared {
            self.counters.cache.waits_shared += 1;
        } else {
            self.recheck_if_due(hit.entry, now);
        }
        flow.sender.enqueue(reply.len());
        flow.out_next = reply.end();
        flow.last_hit = Some(now);
        if matches!(flow.preface, FlowPreface::Unread) {
            flow.preface = FlowPreface::Absent;
        }
        let counters = &mut self.counters;
        counters.hits += 1;
        counters.hits_dynamic += u64::from(is_dynamic);
        counters.hits_head += u64::from(hit.kind == ReplyKind::HeadOnly);
        counters.hits_range += u64::from(matches!(hit.kind, ReplyKind::Range | ReplyKind::Parts));
        counters.hits_ranges += u64::from(hit.kind == ReplyKind::Parts);
        counters.hits_not_modified += u64::from(hit.kind == ReplyKind::NotModified);
        counters.hit_bytes += u64::from(reply.len());
        let segments = 1 + u64::from(segments(reply.len(), flow.mss));
        counters.bus_bytes_saved += u64::from(reply.len()) + hit.head_len as u64 + segments * 66;
        let time = self.unix_s;
        let (prefaces, preface, peer) = (&self.prefaces, &flow.preface, flow.key.client);
        let recorded = self.access.record(|| {
            let client = prefaces.client(preface).map_or(peer, Into::into);
            AccessRecord::new(time, client, hit.kind, hit.http10, reply.body_len, bytes)
        });
        counters.access_lost += u64::from(!recorded);
        if !hit.keep_alive || closes {
            self.close_from_card(flow, now);
        }
        hit.head_len
    }
}
