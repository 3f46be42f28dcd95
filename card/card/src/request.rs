//! Requests: hit, miss or bypass, and what follows from it.
//!
//! Requests of one connection are answered in order (RFC 9112 section 9.3.2). Hits behind hits are
//! queued at once; the side that talks to the client changes only when everything sent before is
//! acknowledged, and until then the client's bytes are held.

use std::sync::Arc;

use nicache_cache::{
    AgeBounds, Awaited, Found, Lesson, Meaning, Miss, PathSettings, PutAside, host_of, target_of,
};
use nicache_http::{
    BypassReason, Extent, HeaderScratch, Method, Request, RequestOutcome, Resource, UriKey,
    Version, carries_expiry, client_class, parse_request, strangers,
};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::answer::{Hit, Recalled};
use crate::card::Card;
use crate::counters::CardBypass;
use crate::flow::changing::Changing;
use crate::flow::{Flow, Phase};
use crate::form::Form;
use crate::forward::{Forward, OpaqueExtent, Reason, StoreAs};
use crate::l0::Offer;
use crate::preface::Opening;

/// What a request at the front of the client's bytes leads to.
#[expect(
    clippy::large_enum_variant,
    reason = "it is made once for a request and taken apart at once"
)]
enum Decision {
    /// The head is not whole.
    Partial,
    /// Answered from card memory.
    Hit(Hit),
    /// Goes to the host.
    Forward(Forward),
    /// Waits for the reply to another request, or for the watcher.
    Wait(Awaited),
    /// Goes to the host, and the card no longer parses: for good, or until this many bytes have
    /// passed. With what the request may change.
    Opaque(Option<OpaqueExtent>, Option<Changing>),
}

impl<W: Port, H: Port> Card<W, H> {
    /// Answers hits at the start of `bytes` straight from the frame. Returns the bytes done with.
    #[inline]
    pub(crate) fn answer_hits(&mut self, flow: &mut Flow, bytes: &[u8], now: Time) -> usize {
        let mut at = 0;
        while at < bytes.len() && self.may_answer(flow) {
            let rest = &bytes[at..];
            match self.take_preface(flow, rest, now) {
                Opening::Taken(0) => {}
                Opening::Taken(taken) => {
                    at += taken;
                    continue;
                }
                Opening::Partial | Opening::Unclear => break,
            }
            if let Some(hit) = self.recall(flow, rest, now) {
                let done = self.answer(flow, &hit, rest, now);
                if self.first_level.is_some() && done == rest.len() && at == 0 && hit.is_offered() {
                    flow.may_be_lent =
                        self.offer(flow, &Offer { head: rest, entry: hit.entry }, now);
                }
                at += done;
                continue;
            }
            match self.decide(flow, rest, false, false, now) {
                Decision::Hit(hit) => {
                    if let Some(meaning) = hit.memorable
                        && hit.head_len == rest.len()
                    {
                        self.memo.note(rest, meaning);
                    }
                    at += self.answer(flow, &hit, rest, now);
                }
                _ => break,
            }
        }
        at
    }

    /// Works through the bytes that are held, as far as order allows.
    pub(crate) fn advance(&mut self, flow: &mut Flow, now: Time) {
        loop {
            if flow.phase != Phase::Requests || flow.forwarded > 0 || flow.host_replying() {
                return;
            }
            let Some(hold) = flow.hold.take() else { return };
            if hold.len() == 0 {
                self.holds.give(hold);
                return;
            }
            if !flow.card_fin && !flow.sender.all_sent() {
                // A request for the host may go when everything before it has been sent.
                self.pump_client(flow, now);
            }
            let mut hold = hold;
            match self.take_preface(flow, hold.bytes(), now) {
                Opening::Taken(0) => {}
                Opening::Taken(taken) => {
                    hold.consume(taken);
                    flow.hold = Some(hold);
                    continue;
                }
                Opening::Partial => {
                    flow.hold = Some(hold);
                    return;
                }
                Opening::Unclear => {
                    flow.hold = Some(hold);
                    self.make_opaque(flow, None, now);
                    return;
                }
            }
            let (may_answer, may_hand_over) = (self.may_answer(flow), flow.may_hand_over());
            if !may_answer && !may_hand_over {
                flow.hold = Some(hold);
                return;
            }
            let decision = self.decide(flow, hold.bytes(), may_hand_over, flow.output_idle(), now);
            match decision {
                Decision::Hit(_) if !may_answer && !flow.replies.is_empty() => {
                    flow.hold = Some(hold);
                    return;
                }
                Decision::Hit(hit) if !may_answer => {
                    // The client has yet to acknowledge bytes of the host, which may take a delayed
                    // acknowledgment; the host may speak again at once.
                    flow.hold = Some(hold);
                    self.counters.hits_handed_over += 1;
                    self.forward(flow, hit.into_forward(), now);
                    return;
                }
                Decision::Hit(hit) => {
                    let done = self.answer(flow, &hit, hold.bytes(), now);
                    hold.consume(done);
                    flow.hold = Some(hold);
                }
                Decision::Partial => {
                    flow.hold = Some(hold);
                    return;
                }
                Decision::Wait(awaited) => {
                    flow.hold = Some(hold);
                    self.wait(flow, awaited, now);
                    return;
                }
                Decision::Forward(_) if !may_hand_over => {
                    flow.hold = Some(hold);
                    return;
                }
                Decision::Opaque(..) if !flow.output_idle() => {
                    flow.hold = Some(hold);
                    return;
                }
                Decision::Forward(forward) => {
                    flow.hold = Some(hold);
                    self.forward(flow, forward, now);
                    return;
                }
                Decision::Opaque(extent, changing) => {
                    flow.hold = Some(hold);
                    self.make_opaque(flow, extent, now);
                    flow.changing = changing;
                    return;
                }
            }
        }
    }

    /// May a reply of the card come next?
    fn may_answer(&self, flow: &Flow) -> bool {
        flow.phase == Phase::Requests
            && flow.forwarded == 0
            && !flow.host_replying()
            && !flow.card_fin
            && !flow.replies.is_full()
            && if flow.replies.is_empty() {
                flow.client_acked.ge(flow.out_next)
            } else {
                // Not if the host has spoken since: its bytes come first.
                flow.sender.end() == flow.out_next
            }
    }

    /// A hit whose head was parsed before.
    #[inline]
    fn recall(&mut self, flow: &Flow, head: &[u8], now: Time) -> Option<Hit> {
        let recalled = self.recall_entry(flow, head, now)?;
        let found = self.store.get(recalled.entry)?;
        Some(recalled.into_hit(found.body_len, head.len(), self.status(flow)))
    }

    /// The entry for a head that was parsed before.
    #[inline]
    pub(crate) fn recall_entry(&mut self, flow: &Flow, head: &[u8], now: Time) -> Option<Recalled> {
        let meaning = self.memo.recall(head)?;
        if self.bypass
            || !self.lease
            || self.is_rechecker(flow)
            || self.store.has_variants(&meaning.key)
        {
            return None;
        }
        // As in `look_up`: the epoch is read when the request is in (I1).
        let epoch = self.store.revisions().epoch();
        let Found::Entry(entry) =
            self.store.find(&meaning.key, epoch, now, &mut self.counters.cache)
        else {
            return None;
        };
        let found = self.store.get(entry)?;
        let is_for_class =
            self.store.answers(entry, self.class_of(flow, meaning.class, meaning.signs), now);
        if !is_for_class || meaning.head_request && !found.has_length() {
            return None;
        }
        let Meaning { head_request, keep_alive, http10, .. } = meaning;
        let is_of_sender = meaning.signs.tells_sender() || flow.preface.header().is_some();
        Some(Recalled { entry, head_request, keep_alive, http10, is_of_sender })
    }

    /// Parses and looks up. With `commit`, misses are told to the policy and counted, because they
    /// will be forwarded; with `idle`, so are requests that make the connection opaque.
    fn decide(
        &mut self,
        flow: &Flow,
        bytes: &[u8],
        commit: bool,
        idle: bool,
        now: Time,
    ) -> Decision {
        let mut scratch = HeaderScratch::new();
        match parse_request(bytes, &mut scratch, &self.config.keys) {
            RequestOutcome::Partial => Decision::Partial,
            RequestOutcome::Complete(request) => self.look_up(flow, &request, commit, now),
            RequestOutcome::Bypass { reason, extent, changes } => {
                let changing = changes.map(|resource| self.changing(resource));
                let certain =
                    if matches!(extent, Extent::Head { body: 0, .. }) { commit } else { idle };
                if certain {
                    self.counters.bypasses_by_request[reason.index()] += 1;
                    if matches!(reason, BypassReason::UnknownHeader | BypassReason::Cookie) {
                        self.note_strangers(bytes);
                    }
                    if let Extent::Head { len, method: Method::Get | Method::Head, .. } = extent {
                        let page = self.page_of(host_of(&bytes[..len]), target_of(&bytes[..len]));
                        self.bypassed.note(page, reason, now);
                    }
                }
                match extent {
                    Extent::Head { len, body: 0, method, keep_alive, .. } => {
                        Decision::Forward(Forward {
                            head_len: len,
                            head_request: method == Method::Head,
                            keep_alive,
                            store_as: None,
                            was_held_up: false,
                            next: None,
                            goes_ahead: false,
                            is_unsafe: method == Method::Other,
                            changing,
                            lesson: None,
                            reason: Some(Reason::Request),
                        })
                    }
                    Extent::Head { len, body, method, keep_alive, expects_continue } => {
                        Decision::Opaque(
                            Some(OpaqueExtent {
                                bytes: len as u64 + body,
                                head_request: method == Method::Head,
                                keep_alive,
                                expects_continue,
                            }),
                            changing,
                        )
                    }
                    Extent::Unknown => Decision::Opaque(None, changing),
                }
            }
        }
    }

    fn look_up(&mut self, flow: &Flow, request: &Request<'_>, commit: bool, now: Time) -> Decision {
        let mut forward = Forward {
            head_len: request.head_len,
            head_request: request.method == Method::Head,
            keep_alive: request.keep_alive,
            store_as: None,
            was_held_up: false,
            next: None,
            goes_ahead: false,
            is_unsafe: false,
            changing: None,
            lesson: None,
            reason: None,
        };
        if self.bypass || !self.lease {
            let reason = if self.bypass { CardBypass::Operator } else { CardBypass::Lease };
            forward.reason = Some(Reason::Card(reason));
            return Decision::Forward(forward);
        }
        let base = request.key;
        let said = client_class(request.headers, request.host, &self.config.keys);
        let class = self.class_of(flow, said, request.signs);
        let key = self.store.key_of(&base, request.headers, class, &self.config.keys);
        // The request is in: whatever a writer completed before is in the epoch that is read now
        // (I1).
        let epoch = self.store.revisions().epoch();
        let is_plain = !request.conditional.is_conditional() && request.range.is_none();
        let is_plain_get = request.method == Method::Get && is_plain;
        if self.is_rechecker(flow) {
            let settings = self.config.paths.of(&self.config.keys, request.host, request.target);
            if is_plain_get && !settings.is_excluded {
                let (settings, page) =
                    (Arc::clone(settings), self.page_of(request.host, request.target));
                let ages = self.ages(&settings, request);
                let by = self.who(flow, request.headers, false, class);
                forward.store_as = Some(StoreAs { base, key, by, settings, ages, class, page });
            }
            return Decision::Forward(forward);
        }
        let found = self.store.find(&key, epoch, now, &mut self.counters.cache);
        // Whoever has waited may have what the server began to make after they had asked, whatever
        // has changed since (rule 19).
        let shared = flow.wait.filter(|_| !matches!(found, Found::Entry(_)));
        let shared = shared.and_then(|wait| self.store.said_since(&key, class, wait.since));
        let is_shared = shared.is_some();
        let is_for_class = self.store.may_answer(&key, class, now);
        let id = match found {
            Found::Entry(id) if is_for_class => id,
            _ if let Some(id) = shared => id,
            // The answer is near, and cheaper than a fill.
            Found::Suspect if self.may_wait(flow, Awaited::Verdict, now) => {
                return Decision::Wait(Awaited::Verdict);
            }
            // A file is as near at the server.
            Found::Suspect if self.store.usual(&key).is_none() => {
                return Decision::Forward(forward);
            }
            Found::Entry(_) | Found::Suspect | Found::Lapsed | Found::Absent => {
                let settings = Arc::clone(self.config.paths.of(
                    &self.config.keys,
                    request.host,
                    request.target,
                ));
                if settings.is_excluded {
                    self.counters.misses_excluded += u64::from(commit);
                    return Decision::Forward(forward);
                }
                match self.store.is_put_aside(&key, now) {
                    None => {}
                    Some(PutAside::Differs) => {
                        self.counters.misses_differing += u64::from(commit);
                        return Decision::Forward(forward);
                    }
                    Some(PutAside::NotWorth) => {
                        self.counters.misses_not_worth += u64::from(commit);
                        return Decision::Forward(forward);
                    }
                }
                let was_there = found != Found::Absent || self.store.was_popular(&key);
                let usual = self.store.usual(&key);
                let miss = match found {
                    Found::Absent if self.store.has_variants(&base) => Miss::Vary,
                    Found::Entry(_) => Miss::Vary,
                    Found::Absent => Miss::Uri,
                    _ => Miss::Stale,
                };
                // A file is as near at the server: it is not worth a long wait.
                let (reply, may_wait) = match usual.filter(|_| was_there) {
                    // Of the replies that are on the way only one to the client's own class is for
                    // it; and it waits only if its class had the page before: a class that is
                    // refused it would have its requests answered one after the other.
                    Some(usual) => {
                        let reply = Awaited::Reply { usual, miss };
                        let is_near = match is_for_class {
                            true => self.fills.is_under_way(&base),
                            false => {
                                self.store.was_answered(&key, class)
                                    && self.fills.is_under_way_for(&base, class)
                            }
                        };
                        (reply, is_near && self.may_wait(flow, reply, now))
                    }
                    None if !is_for_class => (Awaited::First { miss }, false),
                    None => (Awaited::First { miss }, self.may_collapse(flow, &base, now)),
                };
                if may_wait {
                    if !self.is_held_up(flow, usual.unwrap_or_default(), now) {
                        if let Some(next) = self.fills.take_next(&base) {
                            self.rechecks.ask(next, &mut self.counters.cache);
                        }
                        return Decision::Wait(reply);
                    }
                    forward.was_held_up = true;
                    forward.goes_ahead = was_there;
                }
                self.counters.misses_class += u64::from(commit && !is_for_class);
                if commit
                    && !is_plain_get
                    && found == Found::Lapsed
                    && self.config.rechecker.is_some()
                    && let Some(recheck) = self.store.revive(&key, now)
                {
                    forward.next = Some(Box::new(recheck));
                }
                let admitted = was_there || commit && self.store.admit(&key);
                if admitted && is_plain_get {
                    let by = self.who(flow, request.headers, request.bears_cookies, class);
                    let page = self.page_of(request.host, request.target);
                    let ages = self.ages(&settings, request);
                    forward.store_as = Some(StoreAs { base, key, by, settings, ages, class, page });
                }
                return Decision::Forward(forward);
            }
        };
        let is_memorable = key == base && is_plain && !is_shared;
        let memorable = is_memorable.then_some(Meaning {
            key,
            class: said,
            signs: request.signs,
            head_request: request.method == Method::Head,
            keep_alive: request.keep_alive,
            http10: request.version == Version::Http10,
        });
        match self.form_of(id, request) {
            Form::Send(kind, range) => Decision::Hit(Hit {
                memorable,
                entry: id,
                kind,
                range,
                status: self.status(flow),
                head_len: request.head_len,
                head_request: request.method == Method::Head,
                keep_alive: request.keep_alive,
                http10: request.version == Version::Http10,
                is_of_sender: request.signs.tells_sender() || flow.preface.header().is_some(),
                is_shared,
            }),
            Form::Learn(form) => {
                forward.lesson = Some(Lesson { entry: id, form });
                Decision::Forward(forward)
            }
            Form::Pass => Decision::Forward(forward),
            Form::Ask(reason) => {
                forward.reason = Some(Reason::Card(reason));
                Decision::Forward(forward)
            }
        }
    }

    fn changing(&self, resource: Resource<'_>) -> Changing {
        let origin = self.config.keys.origin_of(resource.host);
        Changing { origin, uri: self.config.keys.uri_of(origin, resource.path) }
    }

    /// How old what nobody can see may be in the reply. A link with an end of its own is not
    /// trusted any further for the time that it was good.
    fn ages(&self, settings: &PathSettings, request: &Request<'_>) -> AgeBounds {
        if carries_expiry(request.target, self.unix_s) {
            settings.ages.unearned()
        } else {
            settings.ages
        }
    }

    /// The resource that a request names.
    pub(crate) fn page_of(&self, host: &[u8], target: &[u8]) -> UriKey {
        self.config.keys.uri_of(self.config.keys.origin_of(host), target)
    }

    /// Notes by what a request that begins `bytes` is kept from the card.
    #[cold]
    fn note_strangers(&mut self, bytes: &[u8]) {
        let Self { strangers: known, config, .. } = self;
        strangers(bytes, &config.keys, |resource, stranger| {
            let origin = config.keys.origin_of(resource.host);
            known.note(config.keys.uri_of(origin, resource.path), stranger);
        });
    }
}
