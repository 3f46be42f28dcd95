//! Requests that go to the host: a fill begins, the streams are spliced, and what the card no
//! longer follows passes.

use std::sync::Arc;

use nicache_cache::{AgeBounds, Asked, Example, Lesson, PathSettings, Recheck, Who};
use nicache_http::{ClientClass, Key, UriKey};
use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::Card;
use crate::counters::CardBypass;
use crate::flow::changing::Changing;
use crate::flow::{Flow, HostPhase, Phase, ReplyTracking};
use crate::waiting::client_end;

/// A request that goes to the host, and what becomes of its reply.
pub(crate) struct Forward {
    pub(crate) head_len: usize,
    pub(crate) head_request: bool,
    pub(crate) keep_alive: bool,
    /// How the reply may be stored.
    pub(crate) store_as: Option<StoreAs>,
    /// It has waited for another one's reply, and the server said nothing.
    pub(crate) was_held_up: bool,
    /// It has waited in vain: its reply is to be had instead of one for another client that the
    /// server has not said anything of yet.
    pub(crate) goes_ahead: bool,
    /// What the card asks the server when that has replied.
    pub(crate) next: Option<Box<Recheck>>,
    /// It may change something.
    pub(crate) is_unsafe: bool,
    /// What it may change.
    pub(crate) changing: Option<Changing>,
    /// What is to be learned from the reply.
    pub(crate) lesson: Option<Lesson>,
    pub(crate) reason: Option<Reason>,
}

/// How a reply may be stored.
pub(crate) struct StoreAs {
    /// The key without what `Vary` says, and with it.
    pub(crate) base: Key,
    pub(crate) key: Key,
    pub(crate) by: Who,
    pub(crate) settings: Arc<PathSettings>,
    pub(crate) ages: AgeBounds,
    pub(crate) class: ClientClass,
    pub(crate) page: UriKey,
}

/// A request whose end is known although the card does not take its bytes.
pub(crate) struct OpaqueExtent {
    pub(crate) bytes: u64,
    pub(crate) head_request: bool,
    pub(crate) keep_alive: bool,
    pub(crate) expects_continue: bool,
}

/// Why it is not a miss.
pub(crate) enum Reason {
    Request,
    Card(CardBypass),
}

impl<W: Port, H: Port> Card<W, H> {
    /// Hands the request at the start of `hold` to the host.
    pub(crate) fn forward(&mut self, flow: &mut Flow, forward: Forward, now: Time) {
        match forward.reason {
            None => self.counters.misses += 1,
            Some(Reason::Card(reason)) => self.counters.bypasses_by_card[reason.index()] += 1,
            Some(Reason::Request) => {}
        }
        flow.fill = None;
        if let Some(wait) = flow.wait.take() {
            self.waiters.leave(&flow.key, wait.since, now);
        }
        if let (true, Some(store_as)) = (forward.was_held_up, &forward.store_as) {
            let first = self.fills.unanswered(&store_as.base);
            self.waiters.release(flow.key, first, now);
        }
        let is_own = self.is_rechecker(flow);
        self.counters.recheck_requests += u64::from(is_own);
        if let (Some(StoreAs { base, key, by, settings, ages, class, page }), Some(hold)) =
            (forward.store_as, &flow.hold)
        {
            let head = &hold.bytes()[..forward.head_len];
            let client = client_end(&flow.key);
            let (port, goes_ahead) = (flow.key.server_port, forward.goes_ahead);
            let preface = flow.preface.header().map(|kept| kept.version);
            let asked = Asked {
                base,
                key,
                by,
                client,
                settings,
                ages,
                class,
                page,
                port,
                preface,
                head,
                goes_ahead,
            };
            flow.fill = self.fills.begin(asked, &mut self.store, now, &mut self.counters.cache);
            flow.fill_looked_at = (now, flow.host.rcv_nxt);
            let may_ask = !is_own
                && flow.fill.is_some()
                && self.config.rechecker.is_some()
                && !self.store.is_of_proxy_alone(&base, &by);
            if may_ask
                && self.store.take_second(&key, &by)
                && let Some(fill) = flow.fill
            {
                let names = self.store.vary.names(&base);
                let example = Example { port, preface, proxy: by.proxy, head };
                if let Some(next) = self.rechecks.of(&base, &example, names, &self.config.keys) {
                    self.fills.ask_next(fill, next);
                }
            }
        }
        if forward.is_unsafe {
            self.begin_unsafe_request(flow);
        }
        flow.next = forward.next;
        flow.changing = forward.changing;
        flow.lesson = forward.lesson;
        flow.reply =
            ReplyTracking::Head { head_request: forward.head_request, last: !forward.keep_alive };
        self.hand_to_host(flow, forward.head_len, now);
    }

    /// Makes the first `bytes` of `hold` the host's, and sends them.
    pub(crate) fn hand_to_host(&mut self, flow: &mut Flow, bytes: usize, now: Time) {
        if flow.forwarded > 0 && flow.host.phase == HostPhase::Open {
            // The host has not taken all of an earlier request: the numbers stay, only more
            // follows.
            let more = bytes.saturating_sub(flow.forwarded);
            flow.host.sender.enqueue(more as u32);
            flow.forwarded += more;
            self.hand_fin_to_host(flow);
            self.pump_host(flow, now);
            return;
        }
        flow.forwarded = bytes;
        match flow.host.phase {
            HostPhase::Open => {
                flow.forwarded += self.prepend_preface(flow);
                self.splice_at_hold(flow, now);
            }
            HostPhase::Absent => self.open_host(flow, now),
            HostPhase::SynSent | HostPhase::Closing => {}
        }
    }

    /// Sets the deltas so the first byte held and the next byte out are the host's next ones,
    /// and sends.
    pub(crate) fn splice_at_hold(&mut self, flow: &mut Flow, now: Time) {
        let first = flow.first_held();
        flow.splice.in_delta = flow.host.sender.end().since(first);
        flow.splice.out_delta = flow.out_next.since(flow.host.rcv_nxt);
        flow.host_base = flow.host.acked;
        if flow.forwarded > 0 {
            flow.host.sender.enqueue(flow.forwarded as u32);
        }
        self.hand_fin_to_host(flow);
        self.pump_host(flow, now);
    }

    /// The client's FIN follows its last byte to the host at once, also while the host owes a
    /// reply: a server may stop working for a client that has gone.
    pub(crate) fn hand_fin_to_host(&self, flow: &mut Flow) {
        let is_last = match flow.phase {
            Phase::Opaque(None) => true,
            Phase::Requests => {
                flow.host_replying() && flow.replies.is_empty() && flow.forwarded >= flow.held()
            }
            Phase::Opaque(Some(_)) | Phase::HostHandshake | Phase::CardHandshake => false,
        };
        if flow.client_fin && is_last {
            flow.host.sender.enqueue_fin();
        }
    }

    /// What goes to the host now may change something.
    pub(crate) fn begin_unsafe_request(&mut self, flow: &mut Flow) {
        self.store.note_unsafe_request();
        self.sync_l0();
        flow.unsafe_request = true;
    }

    /// The host has answered.
    pub(crate) fn end_unsafe_request(&mut self, flow: &mut Flow) {
        if std::mem::take(&mut flow.unsafe_request) {
            self.store.note_unsafe_request();
        }
        self.invalidate_at_end(flow);
    }

    /// The card stops parsing: what is held goes to the host, what follows passes.
    pub(crate) fn make_opaque(&mut self, flow: &mut Flow, extent: Option<OpaqueExtent>, now: Time) {
        self.forget_reply_head(flow);
        let first = flow.first_held();
        let held = flow.held();
        let until = extent.as_ref().filter(|until| {
            until.bytes >= held as u64 && until.bytes < 1 << 30 && !flow.client_fin
        });
        flow.phase = match until {
            Some(until) => {
                flow.reply = ReplyTracking::Head {
                    head_request: until.head_request,
                    last: !until.keep_alive,
                };
                Phase::Opaque(Some(first + until.bytes as u32))
            }
            None => {
                flow.reply = ReplyTracking::Idle;
                self.counters.flows_opaque += 1;
                Phase::Opaque(None)
            }
        };
        flow.fill = None;
        flow.lesson = None;
        if let Some(until) = extent {
            flow.expects_continue = until.expects_continue;
        }
        if held > 0 {
            self.begin_unsafe_request(flow);
        }
        self.hand_to_host(flow, held, now);
    }
}
