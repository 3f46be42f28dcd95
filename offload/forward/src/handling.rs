//! Headers in, headers out: what becomes of a packet of which only the first bytes are looked at,
//! and of what time has come for.
//!
//! ```text
//!  frame ─▶ ours? ─▶ view ─┬─ connection known ─▶ rules ─▶ its state ─▶ translate ─┐
//!                          ├─ begins one ─▶ rules ─▶ begin.rs ─────────▶ translate ─┤─▶ onward.rs: hops, route, size, neighbour ─▶ head
//!                          ├─ error ─▶ its connection's or own rules ─▶ translate ───┤
//!                          ├─ later fragment ─▶ rule of the first, and its way ──────┤
//!                          └─ anything else ─▶ rules ─────────────────────────────────┘
//! ```

use nicache_tcp::Time;
use nicache_tcp::checksum::{same, sum};
use nicache_tcp::handshake::TIMESTAMPS_BYTES;

use crate::begin::Begun;
use crate::conntrack::{Connection, ConnectionId, Phase};
use crate::counters::Drop;
use crate::decision::{Decision, HEAD_BYTES_MAX, Head, Incoming, Moment, Outgoing};
use crate::fast_path::{Arrival, Way};
use crate::forwarder::Forwarder;
use crate::fragments::{Fate, Under};
use crate::icmp::{self, Complaint};
use crate::leaving::Leaves;
use crate::links::is_martian;
use crate::note::Note;
use crate::onward::{self, Change};
use crate::packet::Packet;
use crate::rules::{Asked, Ruled};
use crate::segmenting;
use crate::services::Health;
use crate::solicitation;
use crate::switch::Switch;
use crate::tcp_track::{Direction, Judged, begins};
use crate::tuple::{Protocol, Tuple};
use crate::view::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Transport, View, ViewError, network_of,
};

/// Connections that are forgotten in one call at most.
const LAPSED_MAX: usize = 64;

impl Forwarder {
    /// Forgets connections whose time is over, a bounded number of them. True: there may be more.
    pub fn expire(&mut self, now: Time) -> bool {
        let is_more = self.expire_waiting(now);
        for _ in 0..LAPSED_MAX {
            let Some(id) = self.conntrack.lapsed(now) else { return is_more };
            // It may have had packets that were forwarded elsewhere.
            if self.catch_up(id) == 0 {
                self.end(id, now);
            }
        }
        true
    }

    /// When [`expire`](Self::expire) has something to do, if nothing comes before.
    pub fn next_due(&self) -> Option<Time> {
        let waiting = self.switch.as_deref().and_then(Switch::next_due);
        self.conntrack.next_due().into_iter().chain(waiting).min()
    }

    /// A frame has come in. What is to be sent begins with `head`, which is written over.
    pub fn handle(&mut self, incoming: &Incoming<'_>, head: &mut Head, moment: Moment) -> Decision {
        self.counters.packets += 1;
        self.rules.keep_charged();
        self.links.is_sender_told = false;
        head.clear();
        let decision = self.decide(incoming, head, moment).unwrap_or_else(Decision::Drop);
        match &decision {
            Decision::Forward(_) | Decision::Cut { .. } | Decision::Segment { .. } => {
                self.counters.forwarded += 1;
            }
            Decision::Answer { .. } => self.counters.answered += 1,
            Decision::Drop(why) => self.counters.dropped[*why as usize] += 1,
            // It comes again, or is given up.
            Decision::Wait => {
                self.counters.packets -= 1;
                self.rules.give_back();
            }
            // It comes again.
            Decision::Look => self.counters.packets -= 1,
            Decision::Taken => self.counters.taken += 1,
            Decision::FanOut { .. } => {}
        }
        decision
    }

    /// Handles a frame of which [`Decision::Look`] was said, now with all of its bytes. What is to
    /// be sent begins with `head`, which is written over.
    pub fn handle_whole(
        &mut self,
        incoming: &Incoming<'_>,
        head: &mut Head,
        moment: Moment,
    ) -> Decision {
        self.is_whole = incoming.look.len() >= incoming.len;
        let decision = self.handle(incoming, head, moment);
        self.is_whole = false;
        match decision {
            // There are no more bytes than these.
            Decision::Look => Decision::Drop(Drop::Switch),
            other => other,
        }
    }

    /// A frame of which [`Decision::Wait`] was said does not come again.
    pub fn give_up(&mut self) {
        self.counters.packets += 1;
        self.counters.dropped[Drop::Neighbour as usize] += 1;
    }

    /// The head for one target of a group, of the same frame that [`handle`](Self::handle) was
    /// called with. A target that does not answer is told by the decision, and delays no other.
    /// Whatever the number of targets that cannot get it, its sender is told once why.
    pub fn fan_out(
        &mut self,
        incoming: &Incoming<'_>,
        (group, target): (usize, usize),
        head: &mut Head,
        now: Time,
    ) -> Decision {
        head.clear();
        let decision = self.decide_target(incoming, (group, target), head, now);
        let decision = decision.unwrap_or_else(Decision::Drop);
        match &decision {
            Decision::Forward(_) | Decision::Cut { .. } | Decision::Segment { .. } => {
                self.counters.forwarded += 1;
            }
            // That it is dropped was counted.
            Decision::Answer { .. } => {
                self.counters.answered += 1;
                self.links.is_sender_told = true;
            }
            Decision::Drop(why) => self.counters.dropped[*why as usize] += 1,
            // It does not come again.
            Decision::Wait => self.counters.dropped[Drop::Neighbour as usize] += 1,
            Decision::FanOut { .. } | Decision::Look | Decision::Taken => {}
        }
        decision
    }

    fn decide_target(
        &mut self,
        incoming: &Incoming<'_>,
        (group, target): (usize, usize),
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let (packet, _) = self.look(incoming)?.ok_or(Drop::NotOurs)?;
        let group = self.groups.get(group);
        let to = group.targets[target];
        if packet.view.transport == Transport::Later {
            let source = group.source.map_or(packet.view.source, |source| source.address);
            return self.forward(&packet, &Change::Addresses(source, to.address), head, now);
        }
        let tuple = packet.view.tuple().ok_or(Drop::NotOurs)?;
        let source = group.source.unwrap_or(tuple.source);
        self.forward(&packet, &Change::Ends(Tuple { source, destination: to, ..tuple }), head, now)
    }

    /// Finds interface and packet, and whether it is for our MAC address. `None`: it is not IP.
    fn look<'a>(&self, incoming: &Incoming<'a>) -> Result<Option<(Packet<'a>, bool)>, Drop> {
        let Incoming { look: frame, len, port, offload } = *incoming;
        let interface = self.links.interface_of(frame, port)?;
        let (kind, network_at) = network_of(frame).ok_or(Drop::Malformed)?;
        if !matches!(kind, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) {
            return Ok(None);
        }
        let view = View::parse(frame, network_at, len).map_err(|error| match error {
            ViewError::SourceRoute => Drop::SourceRoute,
            ViewError::Truncated | ViewError::Malformed | ViewError::Extensions => Drop::Malformed,
        })?;
        let is_v4 = view.source.is_ipv4();
        let header_end = network_at + usize::from(frame[network_at] & 15) * 4;
        let is_wrong = (kind == ETHERTYPE_IPV4) != is_v4
            || is_v4 && !same(sum(&frame[network_at..header_end]), 0xffff)
            || view.headers_end + 16 > HEAD_BYTES_MAX;
        if is_wrong {
            return Err(Drop::Malformed);
        }
        let is_to_us = frame[..6] == self.links.interfaces[interface].mac;
        Ok(Some((Packet { frame, view, interface, offload }, is_to_us)))
    }

    fn decide(
        &mut self,
        incoming: &Incoming<'_>,
        head: &mut Head,
        moment: Moment,
    ) -> Result<Decision, Drop> {
        let frame = incoming.look;
        let Some((packet, is_to_us)) = self.look(incoming)? else {
            return self.handle_arp(frame, incoming.port, head, moment.now);
        };
        let view = packet.view;
        if solicitation::is_discovery(frame, &view) {
            let message = solicitation::parse_discovery(frame, &view).ok_or(Drop::NotOurs)?;
            return self.handle_message(packet.interface, &message, head, moment.now);
        }
        let is_for_group = || {
            let tuple = view.tuple().filter(|tuple| tuple.protocol == Protocol::Udp);
            tuple.is_some_and(|tuple| self.groups.find(tuple.destination).is_some())
                || view.transport == Transport::Later && view.destination.is_multicast()
        };
        let is_to_group = view.destination.is_multicast() && frame[0] & 1 == 1;
        if !is_to_us && (!is_to_group || !is_for_group()) {
            return Err(Drop::NotOurs);
        }
        if is_martian(view.source) || self.links.owned.contains(&view.source) {
            return Err(Drop::Martian);
        }
        let decision = match view.transport {
            Transport::Later => return self.follow(&packet, head, moment.now),
            Transport::Error(_) => return self.handle_error(&packet, head, moment.now),
            Transport::Other => {
                if self.links.owned.contains(&view.destination) {
                    return Err(Drop::NotOurs);
                }
                let ruled = self.rules.find_for(&Asked::of_packet(&view, packet.interface));
                match self.rules.passes(ruled, view.packet_len() as u64, moment.now) {
                    true => self.forward(&packet, &Change::Nothing, head, moment.now),
                    false => Err(Drop::Rule),
                }
            }
            Transport::Tcp(_) | Transport::Udp { .. } | Transport::Query { .. } => {
                self.handle_connection(&packet, head, moment)
            }
        };
        if view.fragment.is_some() {
            let under = self.under(&packet);
            let fate = match &decision {
                Ok(Decision::Forward(_) | Decision::Cut { .. } | Decision::Segment { .. }) => {
                    forwarded_to(head)
                }
                // Later ones wait, too.
                Ok(Decision::Wait) => self.will_be_forwarded(&view, &under),
                Ok(Decision::FanOut { group, .. }) => Fate::FannedOut(*group),
                _ => Fate::Dropped,
            };
            self.fragments.remember(&view, packet.interface, fate, under, moment.now);
        }
        decision
    }

    fn handle_connection(
        &mut self,
        packet: &Packet<'_>,
        head: &mut Head,
        moment: Moment,
    ) -> Result<Decision, Drop> {
        let view = &packet.view;
        let tuple = view.tuple().ok_or(Drop::NotOurs)?;
        let bytes = view.packet_len() as u64;
        let mut rewrite = None;
        let mut found = self.conntrack.find(&tuple);
        if let Some((id, direction)) = found {
            self.catch_up(id);
            let ruled = self.ruled(id).ok_or(Drop::NoConnection)?;
            let Some(connection) = self.conntrack.get(id) else { return Err(Drop::NoConnection) };
            let Note { switched, .. } = connection.note;
            let leaves = self.leaves(packet, (id, direction), moment.now);
            if leaves == Some(Leaves::Anew) || is_anew(packet, connection, direction) {
                self.end(id, moment.now);
                found = None;
            } else if leaves == Some(Leaves::Over) {
                self.end(id, moment.now);
                return Err(Drop::NoConnection);
            } else {
                if !self.is_whole && !self.rules.passes(ruled, bytes, moment.now) {
                    return Err(Drop::Rule);
                }
                match leaves {
                    Some(Leaves::Told) => {
                        return self.tell_both(packet, (id, direction), head, moment.now);
                    }
                    Some(Leaves::ToldWaiting(place)) => {
                        self.end_without_back_end(place, moment.now);
                        return Ok(Decision::Taken);
                    }
                    _ => {}
                }
                // As the back end sees it.
                let mut seen = *view;
                if let Some(switched) = switched {
                    match self.handle_switched(packet, (id, direction), switched, head, moment)? {
                        Ok((change, view)) => (rewrite, seen) = (Some(change), view),
                        Err(decision) => return Ok(decision),
                    }
                }
                match self.conntrack.handle(id, direction, &seen, moment.now) {
                    Judged::Inside => {
                        self.tell_fast(id, moment.now);
                        self.end_drain_of_reset(id);
                        if let Some(change) = &rewrite
                            && let Some(switched) =
                                self.conntrack.note_mut(id).and_then(|note| note.switched.as_mut())
                        {
                            switched.follow_stamps(direction, packet, &change.numbers, moment.now);
                        }
                    }
                    Judged::Outside => self.counters.outside += 1,
                    Judged::Begins => {
                        self.end(id, moment.now);
                        (found, rewrite) = (None, None);
                    }
                }
            }
        }
        let (id, direction) = match found {
            Some(found) => found,
            None => match self.begin(packet, &tuple, bytes, moment)? {
                Begun::Connection(id) => (id, Direction::Original),
                Begun::Untracked => {
                    return self.forward(packet, &Change::Nothing, head, moment.now);
                }
                Begun::Group(group) => {
                    return Ok(Decision::FanOut {
                        group,
                        targets: self.groups.get(group).targets.len(),
                    });
                }
                Begun::Echo => {
                    return Ok(onward::echo(
                        &self.links.interfaces[packet.interface],
                        packet,
                        head,
                    ));
                }
                Begun::ByName(service) => {
                    return self.handle_waiting(packet, &tuple, service as u16, head, moment);
                }
                Begun::Nobody => {
                    return self.complain(
                        Complaint::Unreachable,
                        packet,
                        Drop::NoBackEnd,
                        head,
                        moment.now,
                    );
                }
                Begun::NoRoute => {
                    return self.complain(
                        Complaint::NoRoute,
                        packet,
                        Drop::NoRoute,
                        head,
                        moment.now,
                    );
                }
            },
        };
        let connection = self.conntrack.get(id).ok_or(Drop::NoConnection)?;
        let outgoing = connection.outgoing(direction);
        let change = match rewrite {
            Some(rewrite) => Change::Spliced(outgoing, rewrite),
            None => Change::Ends(outgoing),
        };
        let decision = self.forward(packet, &change, head, moment.now);
        // One that waits for its next hop comes again.
        if decision != Ok(Decision::Wait) {
            let note = self.conntrack.note_mut(id).ok_or(Drop::NoConnection)?;
            note.packets[direction as usize] += 1;
            note.bytes[direction as usize] += bytes;
        }
        if let Ok(Decision::Forward(out)) = &decision {
            self.enter(packet, (id, direction), out, head, moment.now);
        }
        decision
    }

    /// The rule of a connection, by the list as it is now.
    fn ruled(&mut self, id: ConnectionId) -> Option<Ruled> {
        let connection = self.conntrack.get(id)?;
        let Note { ruled, interface, .. } = connection.note;
        if self.rules.is_current(ruled) {
            return Some(ruled);
        }
        let ruled = self.rules.find(&connection.incoming(Direction::Original), interface);
        self.conntrack.note_mut(id)?.ruled = ruled;
        Some(ruled)
    }

    /// What a first fragment came under.
    fn under(&self, packet: &Packet<'_>) -> Under {
        let connection = packet.view.tuple().and_then(|tuple| self.conntrack.find(&tuple));
        let known = connection.and_then(|(id, _)| self.conntrack.get(id));
        let (asked, known) = match known {
            Some(connection) => {
                let Note { interface, ruled, .. } = connection.note;
                let original = connection.incoming(Direction::Original);
                (Asked::of_tuple(&original, interface), Some(ruled))
            }
            None => (Asked::of_packet(&packet.view, packet.interface), None),
        };
        let ruled = known.unwrap_or_else(|| self.rules.find_for(&asked));
        Under { ruled, asked, connection }
    }

    /// From where to where a first fragment goes that waits for its next hop.
    fn will_be_forwarded(&self, view: &View, under: &Under) -> Fate {
        let known = under
            .connection
            .and_then(|(id, direction)| Some(self.conntrack.get(id)?.outgoing(direction)));
        let (source, destination) = match known {
            Some(outgoing) => (outgoing.source.address, outgoing.destination.address),
            None => (view.source, view.destination),
        };
        Fate::Forwarded { source, destination }
    }

    /// An error goes where the packet came from that it quotes, under the rule of the connection
    /// that the packet belongs to. If that is not known, the error is a packet like any other.
    fn handle_error(
        &mut self,
        packet: &Packet<'_>,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let view = &packet.view;
        let bytes = view.packet_len() as u64;
        let inner = icmp::quoted(packet.frame, view).map_err(|_| Drop::Malformed)?;
        let known = inner.tuple().and_then(|quoted| self.conntrack.find(&quoted.reversed()));
        let Some((id, direction)) = known else {
            if self.links.owned.contains(&view.destination) {
                return Err(Drop::StrayError);
            }
            let ruled = self.rules.find_for(&Asked::of_packet(view, packet.interface));
            if !self.rules.passes(ruled, bytes, now) {
                return Err(Drop::Rule);
            }
            return self.forward(packet, &Change::Nothing, head, now);
        };
        // It was sent to whoever the quoted packet seemed to come from, or it is not about that
        // packet.
        if view.destination != inner.source {
            return Err(Drop::StrayError);
        }
        let ruled = self.ruled(id).ok_or(Drop::StrayError)?;
        if !self.rules.passes(ruled, bytes, now) {
            return Err(Drop::Rule);
        }
        let connection = self.conntrack.get(id).ok_or(Drop::StrayError)?;
        let quote = connection.incoming(direction.other());
        let (before, after) = (
            connection.incoming(direction).source.address,
            connection.outgoing(direction).source.address,
        );
        let source = if view.source == before || before != after { after } else { view.source };
        // A client quotes numbers that its back end does not know.
        let moved =
            connection.note.switched.map_or(0, |switched| switched.splice.out_delta.wrapping_neg());
        let seq_delta = if direction == Direction::Original { moved } else { 0 };
        // What it is about was longer than what its back end had sent.
        let lacks = connection.note.switched.is_some_and(|switched| switched.lacks.timestamps);
        let mtu_less = if lacks && direction == Direction::Original { TIMESTAMPS_BYTES } else { 0 };
        self.counters.errors += 1;
        let destination = quote.source.address;
        let change =
            Change::Error { inner: &inner, source, destination, quote, seq_delta, mtu_less };
        self.forward(packet, &change, head, now)
    }

    fn follow(
        &mut self,
        packet: &Packet<'_>,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let view = &packet.view;
        let bytes = view.packet_len() as u64;
        let first = self.fragments.find(view, packet.interface, now);
        let (fate, Under { mut ruled, asked, connection }) = first.ok_or(Drop::Fragment)?;
        if fate == Fate::Dropped {
            return Err(Drop::Fragment);
        }
        if !self.rules.is_current(ruled) {
            ruled = self.rules.find_for(&asked);
        }
        if !self.rules.passes(ruled, bytes, now) {
            return Err(Drop::Rule);
        }
        let decision = match fate {
            Fate::Forwarded { source, destination } => {
                self.forward(packet, &Change::Addresses(source, destination), head, now)
            }
            Fate::FannedOut(group) => {
                Ok(Decision::FanOut { group, targets: self.groups.get(group).targets.len() })
            }
            Fate::Dropped => Err(Drop::Fragment),
        };
        if let Some((id, direction)) = connection
            && decision != Ok(Decision::Wait)
        {
            self.count_piece(id, direction, view);
        }
        decision
    }

    /// Counts a later fragment with its connection, unless another one has that number now.
    fn count_piece(&mut self, id: ConnectionId, direction: Direction, view: &View) {
        let is_it = self.conntrack.get(id).is_some_and(|connection| {
            let tuple = connection.incoming(direction);
            (tuple.source.address, tuple.destination.address) == (view.source, view.destination)
        });
        if let Some(note) = self.conntrack.note_mut(id).filter(|_| is_it) {
            note.packets[direction as usize] += 1;
            note.bytes[direction as usize] += view.packet_len() as u64;
        }
    }

    fn handle_arp(
        &mut self,
        frame: &[u8],
        port: u8,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let interface = self.links.interface_of(frame, port)?;
        let (kind, at) = network_of(frame).ok_or(Drop::Malformed)?;
        if kind != ETHERTYPE_ARP {
            return Err(Drop::NotOurs);
        }
        let message = solicitation::parse_arp(frame, at).ok_or(Drop::Malformed)?;
        self.handle_message(interface, &message, head, now)
    }

    fn handle_message(
        &mut self,
        interface: usize,
        message: &solicitation::Message,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let decision = self.links.handle_message(interface, message, head, now);
        self.follow_neighbours();
        decision
    }

    fn forward(
        &mut self,
        packet: &Packet<'_>,
        change: &Change<'_>,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let decision =
            onward::forward(&mut self.links, packet, change, head, &mut self.counters, now);
        if decision == Ok(Decision::Wait) {
            let (_, destination) = change.addresses(&packet.view);
            self.waits_for = self.links.next_hop(destination);
        }
        decision
    }

    fn complain(
        &mut self,
        complaint: Complaint,
        packet: &Packet<'_>,
        why: Drop,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        onward::complain(&mut self.links, (complaint, why), packet, head, &mut self.counters, now)
    }

    /// A packet of a connection is passed on. If others like it need no look, its way is entered.
    fn enter(
        &mut self,
        packet: &Packet<'_>,
        (id, direction): (ConnectionId, Direction),
        out: &Outgoing,
        head: &Head,
        now: Time,
    ) {
        let Some(fast) = &mut self.fast else { return };
        let Some(connection) = self.conntrack.get(id) else { return };
        let Note { ruled, chosen, switched, .. } = connection.note;
        let tags = [packet.interface, out.interface]
            .map(|interface| &self.links.interfaces[interface].tags);
        if !fast.wants(packet, connection, direction, out.interface, tags)
            || !self.rules.is_free(ruled)
        {
            return;
        }
        let until = match chosen.map(|chosen| self.services.health(chosen)) {
            Some(Health::Draining { until }) => until,
            _ => Time::MAX,
        };
        let arrival =
            Arrival { interface: packet.interface, tuple: connection.incoming(direction) };
        let tuple = connection.outgoing(direction);
        let mtu = self.links.interfaces[out.interface].mtu;
        // Longer segments than the end takes are cut here.
        let mtu = switched.map_or(mtu, |switched| {
            mtu.min(segmenting::packet_bytes(&packet.view, switched.takes[direction as usize]))
        });
        let mut macs = [0; 12];
        macs.copy_from_slice(&head[..12]);
        let Some(place) = fast.place(id, &mut self.conntrack, now) else { return };
        let way = Way {
            place,
            direction,
            edition: fast.edition(),
            interface: out.interface,
            tuple,
            moved: switched.map(|switched| switched.moved(direction)),
            macs,
            mtu,
            until,
        };
        fast.enter(id, &mut self.conntrack, &arrival, &way);
    }
}

/// Whether a client begins anew between the ends of a spliced connection that is over. Its back end
/// would answer a SYN that is for us.
fn is_anew(packet: &Packet<'_>, connection: &Connection<Note>, direction: Direction) -> bool {
    connection.note.is_switched()
        && direction == Direction::Original
        && connection.phase() == Phase::TimeWait
        && matches!(packet.view.transport, Transport::Tcp(segment) if begins(segment.flags))
}

/// Where a head goes from and to.
fn forwarded_to(head: &Head) -> Fate {
    let view = network_of(head).and_then(|(_, at)| View::parse_quoted(head, at).ok());
    view.map_or(Fate::Dropped, |view| Fate::Forwarded {
        source: view.source,
        destination: view.destination,
    })
}
