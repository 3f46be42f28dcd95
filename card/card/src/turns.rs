//! Whose turn it is to send.
//!
//! A frame that arrives is answered at once, but acknowledgments only make room for more: what they
//! release is sent when all frames of the burst have been looked at, one super-frame for each flow
//! in turn, and a bounded amount between two looks at the ports. So a port's queue of received
//! frames does not overflow while the card writes, and one flow's large reply does not keep the
//! others waiting.

use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::{Card, Keep};
use crate::flow::Flow;
use crate::flow::turn::Turn;
use crate::limits::SUPER_FRAME_BYTES;

impl<W: Port, H: Port> Card<W, H> {
    /// Sends what the client's window and the congestion window allow: one super-frame at once, the
    /// rest in turn.
    pub(crate) fn pump_client(&mut self, flow: &mut Flow, now: Time) {
        let tso = self.ports.wire.capabilities().tso;
        let frame_bytes = if tso { SUPER_FRAME_BYTES } else { u32::from(flow.mss) };
        let mut left = SUPER_FRAME_BYTES;
        while left > 0 && self.turns.may_send() {
            let Some(transmit) = flow.sender.poll_transmit(now, frame_bytes) else { return };
            self.turns.count(transmit.len);
            left = left.saturating_sub(transmit.len.max(1));
            self.send_reply_segment(flow, &transmit, now);
        }
        want_turn(flow);
    }

    /// Sends the one reply that waits, if it goes in one segment; the same as
    /// [`Card::pump_client`].
    #[inline]
    pub(crate) fn pump_reply(&mut self, flow: &mut Flow, now: Time) {
        match flow.sender.transmit_all(now, u32::from(flow.mss)) {
            Some(transmit) => {
                self.turns.count(transmit.len);
                self.send_whole_reply(flow, &transmit, now);
            }
            None => self.pump_client(flow, now),
        }
    }

    /// Sends what an acknowledgment has made room for, when it is the flow's turn.
    pub(crate) fn pump_client_later(&mut self, flow: &mut Flow, now: Time) {
        if flow.sender.has_pending() {
            want_turn(flow);
        } else {
            self.pump_client(flow, now);
        }
    }

    /// Lets those send whose turn it is. Returns how many.
    pub(crate) fn poll_turns(&mut self, now: Time) -> usize {
        self.turns.begin();
        let mut served = 0;
        while self.turns.may_send() {
            let Some(index) = self.turns.take_first() else { break };
            served += 1;
            if self.flows.turn(index) != Turn::Waiting {
                // Another connection has the place of the one that waited.
                continue;
            }
            self.with_flow(index, now, |card, flow| {
                flow.turn = Turn::No;
                card.pump_client(flow, now);
                if flow.held() > 0 {
                    // It may have waited for what is sent now.
                    card.advance(flow, now);
                    return card.keep_unless_over(flow, now);
                }
                Keep::Yes
            });
        }
        served
    }
}

fn want_turn(flow: &mut Flow) {
    if flow.turn == Turn::No && flow.sender.has_pending() {
        flow.turn = Turn::Wanted;
    }
}
