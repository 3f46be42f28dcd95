//! Whose turn it is to send.
//!
//! A frame that arrives is answered at once, but acknowledgments only make room for more: what they release is sent when all frames of the burst have been
//! looked at, one super-frame for each flow in turn, and a bounded amount between two looks at the ports. So a port's queue of
//! received frames does not overflow while the card writes, and one flow's large reply does not keep the others waiting.

use std::collections::VecDeque;

use nicache_port::Port;
use nicache_tcp::Time;

use crate::card::{Card, Keep};
use crate::flow::Flow;
use crate::limits::SUPER_FRAME_BYTES;

/// Payload bytes that are sent between two looks at the ports, for what has arrived, and as many again for those whose turn it is.
const BYTES_PER_LOOK: u32 = 4 * SUPER_FRAME_BYTES;
/// A frame costs as much as so many bytes of payload, at least.
const FRAME_COST_BYTES: u32 = 4096;

/// Where a flow stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turn {
    /// It has nothing to send, or sends at once.
    #[default]
    No,
    /// It is to be put in line.
    Wanted,
    /// It is in line.
    Waiting,
}

/// The flows that wait for their turn to send.
#[derive(Debug)]
pub(crate) struct Turns {
    line: VecDeque<u32>,
    places: usize,
    bytes_left: u32,
}

impl Turns {
    /// For so many flows.
    pub fn new(flows: usize) -> Turns {
        Turns { line: VecDeque::with_capacity(flows), places: flows, bytes_left: BYTES_PER_LOOK }
    }

    /// Does nobody wait?
    pub fn is_empty(&self) -> bool {
        self.line.is_empty()
    }

    /// The ports have been looked at.
    pub fn begin(&mut self) {
        self.bytes_left = BYTES_PER_LOOK;
    }

    /// May more be sent before the ports are looked at again?
    pub fn may_send(&self) -> bool {
        self.bytes_left > 0
    }

    fn count(&mut self, bytes: u32) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes.max(FRAME_COST_BYTES));
    }

    /// Puts a flow in line that wants it. Places of flows that are gone are taken until their turn comes: a flow that finds none goes on at its next
    /// acknowledgment.
    pub fn join(&mut self, index: u32, flow: &mut Flow) {
        if flow.turn == Turn::Wanted {
            flow.turn = Turn::No;
            if self.line.len() < self.places {
                self.line.push_back(index);
                flow.turn = Turn::Waiting;
            }
        }
    }
}

impl<W: Port, H: Port> Card<W, H> {
    /// Sends what the client's window and the congestion window allow: one super-frame at once, the rest in turn.
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

    /// Sends the one reply that waits, if it goes in one segment; the same as [`Card::pump_client`].
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
            let Some(index) = self.turns.line.pop_front() else { break };
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
