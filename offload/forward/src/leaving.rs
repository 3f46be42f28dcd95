//! TCP connections whose back end was drained and is past its deadline: a packet of either end ends
//! them, and both ends are told by a reset. Without it they would send to nobody for as long as
//! they try again.
//!
//! Read first: RFC 9293 section 3.10.7.1, RFC 5961 section 3.2 (which resets count).

use std::collections::VecDeque;

use nicache_tcp::{Flags, HeadRepr, Seq, Splice, Time};

use crate::allowance::Allowance;
use crate::conntrack::{ConnectionId, Phase};
use crate::counters::Drop;
use crate::decision::{Decision, Head};
use crate::forwarder::Forwarder;
use crate::packet::Packet;
use crate::services::Health;
use crate::switch;
use crate::tcp_track::{Direction, begins};
use crate::tuple::{Protocol, Tuple};
use crate::view::{TcpView, Transport};

/// Frames that wait to be sent at most.
const OWN_MAX: usize = 256;
/// Connections that are reset per second, and at once.
const RESETS: Allowance = Allowance::new(1000, 200);

/// What becomes of a packet whose connection must leave its back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaves {
    /// The connection is forgotten, and the packet begins another one.
    Anew,
    /// The connection is forgotten, and the packet belongs to nothing.
    Over,
    /// Both ends are told that the connection is over.
    Told,
    /// So they are, of one of a service by name that is not spliced yet, by its place.
    ToldWaiting(u32),
}

/// Resets of connections that must leave their back end.
#[derive(Debug)]
pub(crate) struct Leaving {
    own: VecDeque<(usize, Vec<u8>)>,
    resets: Allowance,
}

impl Default for Leaving {
    fn default() -> Self {
        Self { own: VecDeque::with_capacity(OWN_MAX), resets: RESETS }
    }
}

impl Leaving {
    /// A frame that is to be sent, with its interface.
    pub(crate) fn poll_own(&mut self) -> Option<(usize, Vec<u8>)> {
        self.own.pop_front()
    }

    /// Whether there is such a frame.
    pub(crate) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }
}

impl Forwarder {
    /// Whether the connection of a packet must leave its back end, and how.
    pub(crate) fn leaves(
        &self,
        packet: &Packet<'_>,
        (id, direction): (ConnectionId, Direction),
        now: Time,
    ) -> Option<Leaves> {
        let connection = self.conntrack.get(id)?;
        let chosen = connection.note.chosen?;
        let protocol = connection.incoming(direction).protocol;
        if !self.services.must_leave(chosen, protocol, now) {
            return None;
        }
        let is_original = direction == Direction::Original;
        let Transport::Tcp(segment) = packet.view.transport else {
            // An answer of a back end that is down is as good as any.
            let is_past = matches!(self.services.health(chosen), Health::Draining { .. });
            return match is_original {
                true => Some(Leaves::Anew),
                false => is_past.then_some(Leaves::Over),
            };
        };
        if is_original && begins(segment.flags) {
            return Some(Leaves::Anew);
        }
        // What is over, or ends by this segment, needs no reset.
        let is_over = matches!(connection.phase(), Phase::TimeWait | Phase::Reset);
        if is_over || segment.flags.rst() {
            return None;
        }
        let place = connection.note.switched.and_then(|switched| switched.place);
        Some(place.map_or(Leaves::Told, Leaves::ToldWaiting))
    }

    /// Ends a connection of TCP. The answer to a segment of it tells its sender, and a frame of
    /// ours the other end.
    pub(crate) fn tell_both(
        &mut self,
        packet: &Packet<'_>,
        (id, direction): (ConnectionId, Direction),
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let Transport::Tcp(segment) = packet.view.transport else { return Err(Drop::NotOurs) };
        let connection = self.conntrack.get(id).ok_or(Drop::NoConnection)?;
        if !self.leaving.resets.take(now) {
            self.counters.resets_held_back += 1;
            return Err(Drop::ResetLimit);
        }
        let (outgoing, numbers) = (connection.outgoing(direction), connection.numbers());
        // A client whose back end was chosen by name has other numbers for what that sends.
        let splice =
            connection.note.switched.map_or_else(Splice::default, |switched| switched.splice);
        let is_original = direction == Direction::Original;
        // The numbers that both ends expect, or the segment's, if these are known no better; as the
        // back end has them.
        let (sender, other) = (direction as usize, direction.other() as usize);
        let acked = if is_original { splice.out_to_host(segment.ack) } else { segment.ack };
        let (mut back, mut on) = (acked, segment.seq);
        if let Some(numbers) = numbers {
            let between = |value: Seq, first: Seq, last: Seq| match value.ge(first) {
                true if value.le(last) => value,
                _ => first,
            };
            back = between(back, numbers[sender].acked, numbers[other].end);
            on = between(on, numbers[other].acked, numbers[sender].end);
        }
        self.end(id, now);
        let to_client = |seq: Seq, is_told: bool| match is_told {
            true => splice.out_to_client(seq),
            false => seq,
        };
        self.reset(&outgoing, to_client(on, !is_original), back, now);
        let back = to_client(back, is_original);
        let TcpView { seq, payload_len, .. } = segment;
        let ack = seq + payload_len;
        let flags = Flags::RST | Flags::ACK;
        Ok(self.answer(packet, head, HeadRepr { seq: back, ack, flags, ..HeadRepr::default() }))
    }

    /// A reset to where a connection's packets go.
    fn reset(&mut self, outgoing: &Tuple, seq: Seq, ack: Seq, now: Time) {
        debug_assert!(outgoing.protocol == Protocol::Tcp);
        let (source, destination) = (outgoing.source.address, outgoing.destination.address);
        let Some(route) = self.links.routes.find(destination).copied() else { return };
        if !self.links.may_leave(route.interface, source) || self.leaving.own.len() >= OWN_MAX {
            return;
        }
        let Some(mac) = self.links.resolve(&route, destination, now) else { return };
        let flags = Flags::RST | Flags::ACK;
        let repr = HeadRepr { seq, ack, flags, ..HeadRepr::default() };
        let interface = &self.links.interfaces[route.interface];
        let frame = switch::frame(interface, mac, outgoing, repr, &[]);
        self.leaving.own.push_back((route.interface, frame));
    }
}
