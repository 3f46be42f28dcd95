//! Connections that are lent to L0 and taken back.
//!
//! A connection can be lent when the card has just sent a reply that L0 has, too, and nothing else
//! is under way; after a reply of several segments, which are acknowledged at once, when the
//! acknowledgment is here. From then on L0 has its numbers. It gives the connection back with the
//! first segment that it does not answer; the card takes it back for any other reason, too. There
//! is no timer on what L0 has sent: the client, whose request it acknowledges, sends the request
//! again if the reply was lost, and with that the connection comes back and the reply is repeated.

use nicache_cache::EntryId;
use nicache_http::ByteRange;
use nicache_port::Port;
use nicache_tcp::splice::window_field;
use nicache_tcp::timestamps::Paws;
use nicache_tcp::{Seq, Time};

use crate::card::Card;
use crate::flow::reply::{Reply, ReplyKind};
use crate::flow::turn::Turn;
use crate::flow::{Flow, HostPhase, Phase};
use crate::l0_program::{Loan, LoanTimestamps};
use crate::limits::REQUEST_WINDOW_BYTES;
use crate::payload;

/// RFC 6928 section 2.
const INITIAL_WINDOW_SEGMENTS: u32 = 10;

impl<W: Port, H: Port> Card<W, H> {
    /// Lends a connection whose last reply L0 has, if nothing speaks against it.
    pub(crate) fn lend(&mut self, flow: &mut Flow) {
        let reply = flow.replies.iter().next().copied();
        if reply.is_some_and(|reply| reply.len() > u32::from(flow.mss)) {
            return;
        }
        flow.may_be_lent = false;
        let Some(first) = &mut self.first_level else { return };
        if !may_be_lent(flow) {
            return;
        }
        let timestamps = flow.timestamps.as_ref().map(|stamps| LoanTimestamps {
            recent: stamps.client.recent(),
            stamp: stamps.clock.at(Time::ZERO),
            sent: stamps.sent,
        });
        let loan = Loan {
            key: flow.key,
            rcv_nxt: flow.rcv_nxt,
            snd_una: reply.map_or(flow.out_next, |reply| reply.start),
            snd_nxt: flow.out_next,
            edge: flow.client_edge,
            client_scale: flow.splice.client_scale,
            window: window_field(REQUEST_WINDOW_BYTES, flow.card_scale),
            segment_bytes: flow.mss,
            burst_bytes: burst_bytes(flow),
            timestamps,
            used: Time::ZERO,
            tag: reply.map_or(0, |reply| reply.entry.to_wire()),
            date: reply.map_or(0, |reply| reply.date),
        };
        let Some(place) = first.l0.lend(&loan) else { return };
        self.counters.l0_lent += 1;
        flow.loan = Some(place);
        flow.sender.hand_over();
        // To the card's timers the client is idle.
        flow.client_acked = flow.out_next;
        if let Some(reply) = flow.replies.pop() {
            self.forget_reply(&reply);
        }
    }

    /// Takes a connection back. `ack`: what the segment acknowledges that is at hand. False: what
    /// the client lacks is gone, so the connection cannot go on.
    #[must_use]
    pub(crate) fn take_back(&mut self, flow: &mut Flow, ack: Option<Seq>, now: Time) -> bool {
        let (Some(place), Some(first)) = (flow.loan.take(), &mut self.first_level) else {
            return true;
        };
        let Some(loan) = first.l0.take_back(place) else { return false };
        flow.rcv_nxt = loan.rcv_nxt;
        flow.acked_to_client = loan.rcv_nxt;
        flow.client_seq = loan.rcv_nxt;
        flow.client_edge = loan.edge;
        flow.is_elsewhere |= loan.burst_bytes == 0;
        if loan.used > flow.active {
            flow.active = loan.used;
            flow.last_hit = Some(loan.used);
            flow.keep_alive.handle_segment(loan.used);
        }
        if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, loan.timestamps) {
            stamps.client = Paws::new(theirs.recent, loan.used.max(flow.active));
            stamps.sent = theirs.sent;
        }
        flow.out_next = loan.snd_nxt;
        // A segment at hand that acknowledges more than was sent is judged as any other.
        let is_acked = loan.snd_una == loan.snd_nxt || ack.is_some_and(|ack| ack.ge(loan.snd_nxt));
        flow.client_acked = if is_acked { loan.snd_nxt } else { loan.snd_una };
        is_acked || self.repeat(flow, &loan, now)
    }

    /// The reply that L0, or the card before it, has sent last is the card's again, which sends it
    /// once more.
    fn repeat(&mut self, flow: &mut Flow, loan: &Loan, now: Time) -> bool {
        let id = EntryId::from_wire(loan.tag);
        let Some(entry) = self.store.get(id) else { return false };
        let status = self.hit_status();
        let body_len = entry.body_len;
        let whole = ByteRange { from: 0, to: body_len };
        let Some(head_len) = payload::head_len(entry, ReplyKind::Full, whole, body_len) else {
            return false;
        };
        let reply = Reply {
            start: loan.snd_una,
            head_len: (head_len + status.line().len()) as u32,
            body_len: body_len as u32,
            status,
            entry: id,
            kind: ReplyKind::Full,
            date: loan.date,
            ..Reply::default()
        };
        if reply.end() != loan.snd_nxt || !flow.replies.push(reply) {
            return false;
        }
        self.store.pin(id);
        flow.out_next = loan.snd_una;
        flow.resume_sender();
        flow.sender.enqueue(reply.len());
        flow.out_next = reply.end();
        self.counters.l0_repeated += 1;
        self.pump_client(flow, now);
        true
    }

    /// When a connection on loan is to be looked at, if it need not be taken back for that.
    pub(crate) fn loan_due(&mut self, index: u32, now: Time) -> Option<Time> {
        let mut flow = self.flows.take(index)?;
        let due = self.due_on_loan(&mut flow, now);
        self.flows.put(index, flow);
        due
    }

    fn due_on_loan(&self, flow: &mut Flow, now: Time) -> Option<Time> {
        let used = self.first_level.as_ref()?.l0.used(flow.loan?);
        if used > flow.active {
            flow.active = used;
            flow.keep_alive.handle_segment(used);
        }
        self.deadline(flow, now).filter(|&due| due > now)
    }
}

/// What a connection may send at once, in bytes, if its client is on this machine: the congestion
/// window, but not more than an initial one (RFC 6928), because nobody paces it.
pub(crate) fn burst_bytes(flow: &Flow) -> u16 {
    let most = flow.sender.cwnd().min(INITIAL_WINDOW_SEGMENTS * u32::from(flow.mss));
    if flow.is_elsewhere { 0 } else { u16::try_from(most).unwrap_or(u16::MAX) }
}

/// One reply is under way, or none, and nothing else.
fn may_be_lent(flow: &Flow) -> bool {
    let mut replies = flow.replies.iter();
    let (start, end) = match (replies.next(), replies.next()) {
        (None, _) => (flow.client_acked, flow.client_acked),
        (Some(reply), None) => (reply.start, reply.end()),
        (Some(_), Some(_)) => return false,
    };
    flow.phase == Phase::Requests
        && matches!(flow.host.phase, HostPhase::Absent | HostPhase::Open)
        && (flow.host.phase == HostPhase::Absent || flow.host.acked == flow.host.rcv_nxt)
        && !flow.host.fin_passed
        && !flow.host.fin_taken
        && !flow.host_replying()
        && flow.forwarded == 0
        && flow.held() == 0
        && flow.wait.is_none()
        && !flow.client_fin
        && !flow.card_fin
        && flow.ack_due.is_none()
        && flow.tags.is_empty()
        && flow.turn == Turn::No
        && !flow.ecn.is_in_use()
        && flow.sender.all_sent()
        && flow.sender.una() == start
        && flow.sender.end() == end
        && flow.out_next == end
}
