//! Header prediction (RFC 7323 section 5.6), carried through to the reply: the life of nearly every
//! hit in one go.
//!
//! It begins with a plain segment that acknowledges all that was sent and brings one whole request,
//! which was read before and whose reply fits into one segment.
//!
//! A few comparisons show that nothing else is under way on the connection. Then what
//! [`crate::client`], [`crate::request`] and [`crate::timers`] would do is done without asking for
//! it step by step, by the same functions where they do anything. Nothing is changed before it is
//! certain; what is not expected goes the general way from the start. The tests hold the two ways
//! against each other.

use nicache_port::{Checksum, FrameBuf, Port};
use nicache_tcp::plain::Plain;
use nicache_tcp::{AckInfo, SackBlocks, Time};

use crate::answer::Recalled;
use crate::card::Card;
use crate::flow::turn::Turn;
use crate::flow::{Flow, HostPhase, Phase};

impl<W: Port, H: Port> Card<W, H> {
    /// Answers a request that is expected; true if it was one.
    #[inline(always)]
    pub(crate) fn answer_expected(&mut self, frame: &FrameBuf, now: Time) -> bool {
        if !self.config.prediction || self.first_level.is_some() || !self.turns.may_send() {
            return false;
        }
        let bytes = frame.data();
        let Some(plain) = Plain::parse(bytes) else { return false };
        let request = &bytes[plain.payload_at..plain.end];
        if request.is_empty()
            || frame.offload().checksum == Checksum::Unverified && !plain.is_right(bytes)
        {
            return false;
        }
        let Some(index) = self.flows.find(&plain.key) else { return false };
        let Some(mut flow) = self.flows.take(index) else { return false };
        let whole = if is_expected(&flow, &plain, now) {
            self.recall_whole(&flow, request, now)
        } else {
            None
        };
        if let Some((recalled, body_len)) = whole {
            take_segment(&mut flow, &plain, now);
            self.take_expected_ack(&mut flow, &plain, now);
            let hit = recalled.into_hit(body_len, request.len(), self.hit_status());
            let done = self.answer(&mut flow, &hit, request, now);
            flow.rcv_nxt += done as u32;
            self.counters.hits_predicted += 1;
            self.pump_reply(&mut flow, now);
            if !flow.in_ledger {
                self.note_in_ledger(index, &mut flow, true);
            }
            self.turns.join(index, &mut flow.turn);
            self.arm_expected(index, &flow, now);
        }
        self.flows.put(index, flow);
        whole.is_some()
    }

    /// The entry that a request leads to which was read before, with its length, if its reply is
    /// whole, goes in one segment, and the connection goes on.
    #[inline(always)]
    fn recall_whole(&mut self, flow: &Flow, request: &[u8], now: Time) -> Option<(Recalled, u64)> {
        let recalled = self
            .recall_entry(flow, request, now)
            .filter(|found| found.keep_alive && !found.head_request)?;
        let entry = self.store.get(recalled.entry)?;
        let head_len = entry.template.len() + entry.prefix.len() + self.hit_status().line().len();
        if entry.closes || head_len as u64 + entry.body_len > u64::from(flow.mss) {
            return None;
        }
        Some((recalled, entry.body_len))
    }

    /// Takes the acknowledgment of all that the card has sent.
    #[inline(always)]
    fn take_expected_ack(&mut self, flow: &mut Flow, plain: &Plain, now: Time) {
        let window = plain.window_bytes(flow.splice.client_scale);
        flow.client_window_max = flow.client_window_max.max(window);
        flow.client_acked = plain.ack;
        flow.client_edge = plain.ack + window;
        flow.client_seq = plain.seq;
        if flow.replies.is_empty() {
            return;
        }
        let info = AckInfo {
            seq: plain.seq,
            ack: plain.ack,
            window,
            sack: SackBlocks::EMPTY,
            ts_ecr: flow
                .timestamps
                .zip(plain.timestamps)
                .map(|(ours, theirs)| ours.clock.ticks(theirs.ecr)),
            carries_data: true,
            ece: false,
        };
        let acked = flow.sender.handle_ack(&info, now).newly_acked;
        flow.reading.handle_progress(acked, 0, now);
        while let Some(reply) = flow.replies.pop_acknowledged(plain.ack) {
            self.forget_reply(&reply);
        }
    }

    /// Arms the timer. Only what the sender waits for can be due before the wheel has turned once,
    /// and then all deadlines are looked at.
    #[inline(always)]
    fn arm_expected(&mut self, index: u32, flow: &Flow, now: Time) {
        let due = if flow.sender.all_sent() {
            flow.sender.next_timeout()
        } else {
            self.deadline(flow, now)
        };
        if let Some(due) = due {
            self.wheel.arm(index, due);
        }
    }
}

/// Is nothing under way on the connection but what the segment acknowledges, and is it the next
/// one?
#[inline(always)]
fn is_expected(flow: &Flow, plain: &Plain, now: Time) -> bool {
    let is_quiet = flow.phase == Phase::Requests
        && flow.loan.is_none()
        && flow.hold.is_none()
        && flow.forwarded == 0
        && !flow.host_replying()
        && !flow.client_fin
        && !flow.card_fin
        && flow.fill.is_none()
        && flow.wait.is_none()
        && flow.ack_due.is_none()
        && flow.reset_passed.is_none()
        && flow.turn == Turn::No
        && match flow.host.phase {
            HostPhase::Absent => true,
            HostPhase::Open => {
                flow.host.acked == flow.host.rcv_nxt
                    && flow.host.sender.all_acked()
                    && !flow.host.fin_passed
            }
            HostPhase::SynSent | HostPhase::Closing => false,
        };
    let is_next = plain.seq == flow.rcv_nxt
        && plain.seq == flow.acked_to_client
        && plain.ack == flow.out_next
        && plain.ack.ge(flow.client_acked)
        && (flow.replies.is_empty()
            || flow.sender.nxt() == plain.ack && flow.sender.end() == plain.ack);
    let is_of_now = match (&flow.timestamps, plain.timestamps) {
        (Some(stamps), theirs) => stamps.client.accepts(theirs, false, now),
        (None, _) => true,
    };
    is_quiet && is_next && is_of_now
}

/// What any segment of the client in order changes that brings something new.
#[inline(always)]
fn take_segment(flow: &mut Flow, plain: &Plain, now: Time) {
    flow.keep_alive.handle_segment(now);
    flow.active = now;
    if let (Some(stamps), Some(theirs)) = (&mut flow.timestamps, plain.timestamps) {
        stamps.client.update(theirs, plain.seq, flow.acked_to_client, now);
    }
    flow.client_echo = false;
    flow.head_timer.handle_input(false, now);
}
