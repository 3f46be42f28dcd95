//! The ends of connections.

use nicache_cache::FillAbort;
use nicache_port::Port;
use nicache_tcp::time_wait::{Answer, Closed};
use nicache_tcp::{Flags, Seq, Time};

use crate::card::{Card, Keep};
use crate::client::{expected_of_client, has_partial_head};
use crate::flow::reply::{Reply, ReplyKind};
use crate::flow::{Flow, FlowTimestamps, HostPhase, Phase};
use crate::packet::TcpFrame;

impl<W: Port, H: Port> Card<W, H> {
    /// The card has sent its last reply: it closes toward the client as the server would, and
    /// toward the host as the client would (bos2009 section 2.1: a FIN to the server at take-over).
    pub(crate) fn close_from_card(&mut self, flow: &mut Flow, now: Time) {
        if flow.card_fin {
            return;
        }
        if flow.replies.is_empty() {
            flow.resume_sender();
        }
        flow.card_fin = true;
        flow.sender.enqueue_fin();
        if flow.host.phase == HostPhase::Open {
            flow.host.phase = HostPhase::Closing;
            flow.host.sender.enqueue_fin();
            self.pump_host(flow, now);
        }
    }

    /// Looks whether the connection is over, and takes the next step of closing it.
    pub(crate) fn keep_unless_over(&mut self, flow: &mut Flow, now: Time) -> Keep {
        if matches!(flow.phase, Phase::Opaque(_)) {
            let both =
                flow.client_fin && flow.host.fin_passed && flow.client_acked.ge(flow.out_next);
            return if both && flow.splice.is_identity() { Keep::No } else { Keep::Yes };
        }
        if flow.card_fin {
            if !flow.sender.all_acked() {
                return Keep::Yes;
            }
            flow.fin_wait.get_or_insert(now);
            return match (flow.client_fin, flow.host.phase) {
                (true, HostPhase::Absent) => {
                    self.enter_time_wait(flow, flow.sender.nxt(), now);
                    Keep::No
                }
                _ => Keep::Yes,
            };
        }
        if !flow.client_fin {
            return Keep::Yes;
        }
        if flow.host.phase == HostPhase::Open {
            self.hand_fin_to_host(flow);
            self.pump_host(flow, now);
        }
        if has_partial_head(flow) && flow.host.phase != HostPhase::Closing {
            // Nothing makes it whole now: the host says what it thinks of it.
            self.make_opaque(flow, None, now);
            return Keep::Yes;
        }
        if flow.held() > 0 || !flow.output_idle() {
            return Keep::Yes;
        }
        match flow.host.phase {
            HostPhase::Absent => {
                // Passive close: LAST-ACK follows.
                self.close_from_card(flow, now);
                self.pump_client(flow, now);
            }
            HostPhase::Open => {
                // The client's FIN goes on to the host; whatever it answers passes.
                flow.phase = Phase::Opaque(None);
                if flow.last_hit.is_none() {
                    flow.forwarded += self.prepend_preface(flow);
                }
                self.splice_at_hold(flow, now);
            }
            HostPhase::SynSent | HostPhase::Closing => {}
        }
        Keep::Yes
    }

    /// Remembers a connection that the card has closed; `snd_nxt` is the number behind its FIN.
    pub(crate) fn enter_time_wait(&mut self, flow: &Flow, snd_nxt: Seq, now: Time) {
        let closed = Closed {
            snd_nxt,
            rcv_nxt: flow.rcv_nxt,
            ts_recent: flow.timestamps.map(|stamps| stamps.client.recent()),
        };
        self.time_wait.insert(self.flows.hash(&flow.key), closed, now);
    }

    /// Does the client open a new connection from a port whose last one it has closed, while the
    /// host's side of that is not over? What it may do in TIME-WAIT, it may do then.
    pub(crate) fn is_taken_up_again(&self, flow: &Flow, tcp: &TcpFrame) -> bool {
        let flags = tcp.head.flags;
        if !flags.syn() || flags.ack() || flags.rst() || flags.fin() {
            return false;
        }
        let (is_over, rcv_nxt) = match flow.phase {
            // Before, the host challenges it (RFC 5961 section 4), and if it is the client's, it
            // resets.
            Phase::Opaque(_) if flow.reset_passed.is_some() => return true,
            Phase::Opaque(_) => (flow.is_closed(), expected_of_client(flow)),
            Phase::Requests => {
                (flow.card_fin && flow.client_fin && flow.sender.all_acked(), flow.rcv_nxt)
            }
            Phase::HostHandshake | Phase::CardHandshake => return false,
        };
        let ts_recent = flow.timestamps.map(|stamps| stamps.client.recent());
        is_over && Closed { snd_nxt: flow.sender.nxt(), rcv_nxt, ts_recent }.may_reopen(&tcp.head)
    }

    /// Answers a segment of a connection that the card has closed; true if it was one.
    pub(crate) fn answer_time_wait(&mut self, tcp: &TcpFrame, now: Time) -> bool {
        let hash = self.flows.hash(&tcp.key);
        let Some(closed) = self.time_wait.get(hash, now) else { return false };
        match self.time_wait.handle_segment(hash, &tcp.head, tcp.payload_len(), now) {
            None | Some(Answer::NewConnection) => false,
            Some(Answer::Drop) => true,
            Some(Answer::Acknowledge) => {
                let mut flow = Flow::opening(tcp, now);
                flow.out_next = closed.snd_nxt;
                flow.rcv_nxt = closed.rcv_nxt;
                // The clock of the flow is gone; the client's own echo is one that it accepts (RFC
                // 7323 section 5.3).
                flow.timestamps =
                    tcp.head.timestamps.map(|theirs| FlowTimestamps::echoing(theirs, now));
                self.send_to_client(&mut flow, closed.snd_nxt, Flags::ACK, now);
                true
            }
        }
    }

    /// A reply is acknowledged, or nobody waits for it any longer.
    pub(crate) fn forget_reply(&mut self, reply: &Reply) {
        self.store.unpin(reply.entry);
        if reply.kind == ReplyKind::Parts {
            self.part_sets.give(reply.parts);
        }
    }

    /// Gives back what a flow holds.
    pub(crate) fn release_resources(&mut self, flow: &mut Flow) {
        self.end_unsafe_request(flow);
        while let Some(reply) = flow.replies.pop() {
            self.forget_reply(&reply);
        }
        self.prefaces.give_up(&mut flow.preface);
        self.forget_reply_head(flow);
        if let Some(hold) = flow.hold.take() {
            self.holds.give(hold);
        }
        if let Some(fill) = flow.fill.take() {
            self.fills.abort(
                fill,
                FillAbort::Incomplete,
                &mut self.store,
                &mut self.counters.cache,
            );
        }
    }
}
