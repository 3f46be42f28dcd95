//! What a flow does when time passes.

use std::time::Duration;

use nicache_port::Port;
use nicache_tcp::patience::KeepAliveStep;
use nicache_tcp::{Flags, Time, TimeoutOutcome, earliest};

use crate::card::{Card, Keep};
use crate::flow::turn::Turn;
use crate::flow::{Flow, HostPhase, Phase};

/// Timers that are run between two looks at the ports.
const TIMERS_PER_POLL: usize = 64;
/// An ACK that nothing carries is sent after this long (RFC 9293 section 3.8.6.3 allows up to 500
/// ms).
pub(crate) const DELAYED_ACK: Duration = Duration::from_millis(40);
/// SYNs to the host are repeated after 1 s, 2 s, ... (RFC 6298 section 2.1), this often.
const SYN_TRIES: u8 = 5;
/// How long a client may keep its side open when the card has closed (Linux' tcp_fin_timeout),
/// whatever it sends meanwhile.
pub(crate) const FIN_WAIT: Duration = Duration::from_secs(60);
/// A flow without changed numbers that says nothing for so long is forgotten; it goes on untracked.
const IDLE_FORGET: Duration = Duration::from_secs(300);
/// A spliced flow that says nothing for so long is dead (RFC 5382 section 5 asks for at least 2 h 4
/// min); the client was asked before.
const IDLE_DEAD: Duration = Duration::from_secs(3 * 3600);
/// How long a spliced flow is remembered after both sides have closed, for retransmissions.
const LINGER: Duration = Duration::from_secs(10);

impl<W: Port, H: Port> Card<W, H> {
    /// Runs timers that are due: some of them, if there are many, so frames and questions do
    /// not wait for all connections that somebody has opened at once.
    pub(crate) fn poll_timers(&mut self, now: Time) {
        for _ in 0..TIMERS_PER_POLL {
            let Some(index) = self.wheel.poll(now) else { return };
            if self.first_level.is_some()
                && let Some(due) = self.loan_due(index, now)
            {
                self.wheel.arm(index, due);
                continue;
            }
            self.with_flow(index, now, |card, flow| card.flow_timeout(flow, now));
        }
    }

    /// When the flow wants to be looked at again.
    pub(crate) fn deadline(&self, flow: &Flow, now: Time) -> Option<Time> {
        let sender = if flow.card_speaks() { flow.sender.next_timeout() } else { None };
        // Its turn comes before.
        let sender = sender.filter(|&due| due > now || flow.turn != Turn::Waiting);
        let host = match flow.host.phase {
            HostPhase::Open | HostPhase::Closing if !flow.host.sender.all_acked() => {
                flow.host.sender.next_timeout()
            }
            HostPhase::SynSent => Some(flow.host.syn_sent + syn_interval(flow.host.syn_tries)),
            _ => None,
        };
        let handshake = (flow.phase == Phase::CardHandshake)
            .then(|| flow.host.syn_sent + syn_interval(flow.syn_ack_tries));
        let idle = Some(self.idle_due(flow));
        let patience = self.patience_deadline(flow);
        let wait = flow.wait.map(|wait| wait.due).filter(|&due| due > now);
        let preface = self.preface_due(flow).filter(|&due| due > now);
        earliest([patience, sender, host, handshake, flow.ack_due, wait, preface, idle])
    }

    fn flow_timeout(&mut self, flow: &mut Flow, now: Time) -> Keep {
        if flow.phase == Phase::CardHandshake {
            if now < flow.host.syn_sent + syn_interval(flow.syn_ack_tries) {
                return Keep::Yes;
            }
            if flow.syn_ack_tries > self.config.patience.syn_ack_retries {
                return Keep::No;
            }
            self.send_syn_ack(flow, now);
            return Keep::Yes;
        }
        if let Some(impatience) = self.lose_patience(flow, now) {
            return self.end_impatiently(flow, impatience, now);
        }
        if flow.card_speaks() {
            if flow.sender.handle_timeout(now) == TimeoutOutcome::GaveUp {
                self.abort_client(flow, now);
                self.reset_host(flow);
                return Keep::No;
            }
            // Shorter ones may have been tried.
            flow.mss = flow.mss.min(flow.sender.mss() as u16);
            self.pump_client(flow, now);
        }
        match flow.host.phase {
            HostPhase::Open | HostPhase::Closing if !flow.host.sender.all_acked() => {
                if flow.host.sender.handle_timeout(now) == TimeoutOutcome::GaveUp {
                    return self.give_host_up(flow, now);
                }
                self.pump_host(flow, now);
            }
            HostPhase::SynSent if now >= flow.host.syn_sent + syn_interval(flow.host.syn_tries) => {
                if flow.host.syn_tries > SYN_TRIES {
                    self.abort_client(flow, now);
                    return Keep::No;
                }
                self.send_host_syn(flow, now);
            }
            _ => {}
        }
        if flow.ack_due.is_some_and(|due| now >= due) {
            self.ack_client(flow, now);
        }
        if flow.wait.is_some_and(|wait| now >= wait.due) {
            self.advance(flow, now);
            self.pump_client(flow, now);
        }
        self.hand_over_preface(flow, now);
        self.look_at_fill(flow, now);
        if self.ask_host(flow, now) == KeepAliveStep::Gone {
            return self.give_host_up(flow, now);
        }
        if now >= self.idle_due(flow) {
            return self.end_idle(flow, now);
        }
        self.keep_unless_over(flow, now)
    }

    fn end_idle(&mut self, flow: &mut Flow, now: Time) -> Keep {
        if flow.is_forgettable() || flow.is_closed() || flow.card_fin && flow.sender.all_acked() {
            return Keep::No;
        }
        if flow.phase == Phase::Requests
            && flow.host.phase == HostPhase::Absent
            && flow.output_idle()
            && !flow.card_fin
        {
            self.close_from_card(flow, now);
            flow.active = now;
            self.pump_client(flow, now);
            return Keep::Yes;
        }
        self.abort_client(flow, now);
        self.reset_host(flow);
        Keep::No
    }

    fn give_host_up(&mut self, flow: &mut Flow, now: Time) -> Keep {
        if flow.host.phase == HostPhase::Closing {
            self.forget_host(flow);
            return self.keep_unless_over(flow, now);
        }
        self.abort_client(flow, now);
        Keep::No
    }

    /// When a flow has gone without a word for too long.
    fn idle_due(&self, flow: &Flow) -> Time {
        let mut due = flow.active + self.idle_limit(flow);
        if let Some(passed) = flow.reset_passed {
            due = due.min(passed + LINGER);
        }
        if flow.lacks_acks() {
            // The host repeats what the client lacks at least every two minutes (RFC 6298 section
            // 5, Linux' TCP_RTO_MAX): if neither says a word, both are gone.
            return due.min(flow.active.max(flow.host_alive.heard()) + IDLE_FORGET);
        }
        due
    }

    /// How long a client may say nothing.
    fn idle_limit(&self, flow: &Flow) -> Duration {
        if flow.is_closed() {
            return LINGER;
        }
        if flow.card_fin {
            // A FIN that nobody answers is repeated for as long as one that is, replies for longer.
            return if flow.replies.is_empty() { FIN_WAIT } else { IDLE_FORGET };
        }
        if flow.phase == Phase::HostHandshake {
            // The host gives it up before (Linux: after 63 s), and goes on without the card if not.
            return self.config.patience.idle;
        }
        // A host that has closed owes nothing more, whatever it was asked.
        let is_unfollowed = matches!(flow.phase, Phase::Opaque(_)) && flow.client_fin;
        let is_asked = flow.forwarded > 0 || flow.host_replying() || is_unfollowed;
        let waiting = is_asked && !flow.host.fin_passed || flow.host.phase == HostPhase::SynSent;
        if flow.is_forgettable() || (flow.is_closing() && !waiting) {
            return IDLE_FORGET;
        }
        match (flow.phase, flow.host.phase) {
            (Phase::Requests, HostPhase::Absent) => self.config.patience.idle,
            _ => IDLE_DEAD,
        }
    }

    /// Resets the client's side.
    pub(crate) fn abort_client(&mut self, flow: &mut Flow, now: Time) {
        let seq = crate::transmit::out_position(flow);
        if flow.client_acked.lt(seq) {
            // Which bytes have arrived is not known: only the exact number resets (RFC 5961 section
            // 3.2).
            self.send_to_client(flow, flow.client_acked, Flags::RST | Flags::ACK, now);
        }
        self.send_to_client(flow, seq, Flags::RST | Flags::ACK, now);
    }
}

fn syn_interval(tries: u8) -> Duration {
    Duration::from_secs(1 << tries.saturating_sub(1).min(6))
}
