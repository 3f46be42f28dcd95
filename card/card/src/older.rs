//! A card that takes the place of another one that still works: the connections of the older stay
//! its own until they end.
//!
//! The younger one has the ports. What it knows nothing of and what opens no connection goes to the
//! older, which passes on what it does not know either.

use std::io::IoSlice;

use nicache_port::{FrameBuf, Port, SendError};
use nicache_tcp::Time;

use crate::card::{Card, Keep};
use crate::flow::Flow;
use crate::packet::{Side, TcpFrame};
use crate::ports::OlderCard;

impl<W: Port, H: Port> Card<W, H> {
    /// Has an older from now on.
    pub fn set_older_card(&mut self, older: OlderCard) {
        self.older = Some(older);
    }

    /// Hands over a segment that belongs to no flow here; false if it is this card's own business.
    pub(crate) fn pass_to_older(&mut self, frame: &FrameBuf, tcp: &TcpFrame, side: Side) -> bool {
        let Some(older) = &mut self.older else { return false };
        let flags = tcp.head.flags;
        if side == Side::Wire && flags.syn() && !flags.ack() {
            return false;
        }
        let port = match side {
            Side::Wire => &mut older.wire,
            Side::Host => &mut older.host,
        };
        match port.send(&[IoSlice::new(frame.data())], frame.offload()) {
            Ok(()) => true,
            // It has ended.
            Err(SendError::Io(_)) => {
                self.older = None;
                false
            }
            Err(_) => {
                self.counters.drops_older_card += 1;
                true
            }
        }
    }

    /// Connections that cannot do without this card.
    pub fn sole_flows(&self) -> usize {
        let is_over = |flow: &Flow| flow.is_closing() && flow.output_idle();
        self.flows.iter().filter(|flow| !flow.is_forgettable() && !is_over(flow)).count()
    }

    /// Ends all connections that cannot do without this card.
    pub fn reset_all(&mut self, now: Time) {
        for index in 0..self.config.flows as u32 {
            self.with_flow(index, now, |card, flow| {
                if !flow.is_forgettable() {
                    card.abort_client(flow, now);
                }
                Keep::No
            });
        }
    }

    /// The port to the wire.
    pub fn wire_mut(&mut self) -> &mut W {
        &mut self.ports.wire
    }

    /// The port to the host.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.ports.host
    }
}
