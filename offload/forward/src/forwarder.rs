//! Headers in, headers out: what becomes of a packet of which only the first bytes are looked at.
//!
//! ```text
//!  frame ─▶ ours? ─▶ view ─┬─ connection known ─▶ rules ─▶ its state ─▶ translate ─┐
//!                          ├─ begins one ─▶ rules ─▶ begin.rs ─────────▶ translate ─┤─▶ hops, route, size, neighbour ─▶ head
//!                          ├─ error ─▶ connection of what it quotes ──▶ translate ──┤
//!                          ├─ later fragment ─▶ where the first one went ───────────┤
//!                          └─ anything else ────────────────────────────────────────┘
//! ```
//!
//! Nothing here has a clock, sends, or holds a packet. Nothing allocates after creation, but for neighbours.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicache_port::{Checksum, Offload};
use nicache_tcp::Time;
use nicache_tcp::checksum::{same, sum};
use nicache_tcp::frame::Tags;
use nicache_tcp::handshake::TIMESTAMPS_BYTES;

use crate::allowance::Allowance;
use crate::config::Config;
use crate::conntrack::{ConnectionId, Conntrack};
use crate::counters::{Counters, Drop};
use crate::decision::{Decision, HEAD_BYTES_MAX, Head, Incoming, Moment};
use crate::fan_out::FanOut;
use crate::fast_path::{Entered, Entering};
use crate::fragments::{Fate, Fragments};
use crate::icmp::{self, Complaint};
use crate::interface::Interface;
use crate::nat::{MappingError, MappingId, Nat};
use crate::neighbours::Neighbours;
use crate::onward::{COMPLAINTS, Change};
use crate::routes::{Route, Routes};
use crate::rules::{Rule, Ruled, Rules};
use crate::services::{Chosen, Health, Services};
use crate::solicitation;
use crate::switch::{Switch, Switched};
use crate::tcp_track::{Direction, Judged};
use crate::tuple::{Protocol, Tuple};
use crate::view::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Transport, View, ViewError, network_of};

/// Questions for neighbours that wait to be sent at most.
const QUESTIONS_MAX: usize = 64;
/// Connections that are forgotten in one call at most.
const LAPSED_MAX: usize = 64;

/// What is kept beside a connection.
#[derive(Clone, Copy, Debug)]
pub struct Note {
    /// The mapping of its source.
    pub(crate) source: Option<MappingId>,
    /// The mapping that its destination was found by.
    pub(crate) destination: Option<MappingId>,
    /// Its back end.
    pub(crate) chosen: Option<Chosen>,
    pub(crate) ruled: Ruled,
    /// Where its first packet came in.
    pub(crate) interface: usize,
    /// When that was.
    pub begun: Time,
    /// Packets in the original direction, and back.
    pub packets: [u64; 2],
    /// Bytes of IP.
    pub bytes: [u64; 2],
    /// Its packets are forwarded elsewhere.
    pub(crate) entered: Option<Entered>,
    /// Its back end was chosen by name.
    pub(crate) switched: Option<Switched>,
}

impl Note {
    /// The back end that it was given to.
    pub fn back_end(&self) -> Option<Chosen> {
        self.chosen
    }

    /// The rule that it came under last, by its place in the list.
    pub fn rule(&self) -> Option<u16> {
        self.ruled.number()
    }

    /// The interface by which its first packet came in.
    pub fn interface(&self) -> usize {
        self.interface
    }

    /// Its back end was chosen by name.
    pub fn is_switched(&self) -> bool {
        self.switched.is_some()
    }
}

/// A packet under consideration.
pub(crate) struct Packet<'a> {
    pub(crate) frame: &'a [u8],
    pub(crate) view: View,
    pub(crate) interface: usize,
    pub(crate) offload: Offload,
}

impl Packet<'_> {
    pub(crate) fn is_partial(&self) -> bool {
        matches!(self.offload.checksum, Checksum::Partial { .. })
    }
}

/// See the module's head.
#[derive(Debug)]
pub struct Forwarder {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: Routes,
    pub(crate) nat: Nat,
    pub(crate) services: Services,
    pub(crate) groups: FanOut,
    pub(crate) rules: Rules,
    pub(crate) conntrack: Conntrack<Note>,
    pub(crate) neighbours: Neighbours,
    fragments: Fragments,
    /// Addresses that are ours, for which we answer.
    pub(crate) owned: HashSet<IpAddr, FixedState>,
    left_alone: Vec<(Protocol, RangeInclusive<u16>)>,
    pub(crate) questions: ArrayVec<(usize, solicitation::Frame), QUESTIONS_MAX>,
    pub(crate) complaints: Allowance,
    pub(crate) fast: Option<Entering>,
    /// Connections of services by name that have no back end yet; nothing, if there is no such service.
    pub(crate) switch: Option<Box<Switch>>,
    /// All bytes of the frame under consideration are there.
    pub(crate) is_whole: bool,
    /// How often neighbours had moved when that was last looked at.
    pub(crate) moved: u64,
    pub(crate) counters: Counters,
}

impl Forwarder {
    /// A forwarder without connections.
    ///
    /// # Errors
    /// Two forwarded ports are the same, or one's address is not external.
    pub fn new(config: Config, now: Time) -> Result<Self, MappingError> {
        let mut nat = Nat::new(config.externals, config.limits.connections, config.secret ^ 1);
        for forwarded in config.forwarded {
            nat.forward(forwarded)?;
        }
        let services = Services::new(config.services, config.balance_seed);
        let groups = FanOut::new(config.groups);
        let mut owned: HashSet<IpAddr, FixedState> = config
            .interfaces
            .iter()
            .flat_map(|interface| interface.addresses.iter().map(|(address, _)| *address))
            .collect();
        owned.extend((0..).map_while(|number| nat.external(number)).map(|external| external.address));
        owned.extend(services.addresses().map(|endpoint| endpoint.address));
        owned.extend(groups.addresses().map(|endpoint| endpoint.address));
        let links: Vec<Route> = routes_of_links(&config.interfaces).collect();
        let switch = services.has_names().then(|| Box::new(Switch::new(config.secret ^ 5, now)));
        Ok(Self {
            routes: Routes::new(links.into_iter().chain(config.routes.iter().copied())),
            rules: Rules::new(config.rules, now),
            conntrack: Conntrack::new(config.limits, config.timeouts, config.secret ^ 2),
            neighbours: Neighbours::new(config.neighbours, config.secret ^ 3),
            fragments: Fragments::new(config.fragments, config.secret ^ 4),
            interfaces: config.interfaces,
            left_alone: config.left_alone,
            nat,
            services,
            groups,
            owned,
            questions: ArrayVec::new(),
            complaints: COMPLAINTS,
            fast: None,
            switch,
            is_whole: false,
            moved: 0,
            counters: Counters::default(),
        })
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its connections.
    pub fn connections(&self) -> &Conntrack<Note> {
        &self.conntrack
    }

    /// Its mappings.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// Its services.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Its interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// A back end does otherwise.
    pub fn set_health(&mut self, chosen: Chosen, health: Health) {
        if self.services.health(chosen) != health {
            self.services.set_health(chosen, health);
            self.void_ways();
        }
    }

    /// A link takes longer or shorter packets than before.
    pub fn set_mtu(&mut self, interface: usize, mtu: u32) {
        if std::mem::replace(&mut self.interfaces[interface].mtu, mtu) != mtu {
            self.void_ways();
        }
    }

    /// A neighbour that is known for good, or told by whoever keeps them.
    pub fn set_neighbour(&mut self, interface: usize, address: IpAddr, mac: [u8; 6]) {
        self.neighbours.set(interface, address, mac);
        self.follow_neighbours();
    }

    /// A neighbour that somebody else on this machine has heard of.
    pub fn learn_neighbour(&mut self, interface: usize, address: IpAddr, mac: [u8; 6], now: Time) {
        self.neighbours.learn(interface, address, mac, true, now);
        self.follow_neighbours();
    }

    /// A neighbour that was known for good is no longer.
    pub fn forget_neighbour(&mut self, interface: usize, address: IpAddr) {
        self.neighbours.forget(interface, address);
        self.follow_neighbours();
    }

    /// Its neighbours.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Its routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Whether an address is ours: an interface's, an external one, or a service's.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.owned.contains(&address)
    }

    /// Whether somebody else on this machine serves a port of ours.
    pub(crate) fn is_left_alone(&self, tuple: &Tuple) -> bool {
        let is_it = |(protocol, ports): &(Protocol, RangeInclusive<u16>)| {
            *protocol == tuple.protocol && ports.contains(&tuple.destination.port)
        };
        self.left_alone.iter().any(is_it)
    }

    /// Asks for a neighbour before anybody needs it.
    pub fn look_for(&mut self, address: IpAddr, now: Time) {
        if let Some(route) = self.routes.find(address).copied() {
            self.resolve(&route, address, now);
        }
    }

    /// How often a neighbour's address has become known: frames that wait may come again.
    pub fn learned(&self) -> u64 {
        self.neighbours.learned()
    }

    /// Another list of rules, also for connections that are there.
    pub fn set_rules(&mut self, rules: Vec<Rule>, now: Time) {
        self.rules.replace(rules, now);
        self.void_ways();
    }

    /// Other routes, also for connections that are there.
    pub fn set_routes(&mut self, routes: Routes) {
        if self.routes != routes {
            self.routes = routes;
            self.void_ways();
        }
    }

    /// A question for a neighbour that is to be sent, with its interface.
    pub fn poll_question(&mut self) -> Option<(usize, solicitation::Frame)> {
        self.questions.pop()
    }

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
        head.clear();
        let decision = self.decide(incoming, head, moment).unwrap_or_else(Decision::Drop);
        match &decision {
            Decision::Forward(_) | Decision::Cut { .. } => self.counters.forwarded += 1,
            Decision::Answer { .. } => self.counters.answered += 1,
            Decision::Drop(why) => self.counters.dropped[*why as usize] += 1,
            Decision::Wait => self.counters.dropped[Drop::Neighbour as usize] += 1,
            // It comes again.
            Decision::Look => self.counters.packets -= 1,
            Decision::Taken => self.counters.taken += 1,
            Decision::FanOut { .. } => {}
        }
        decision
    }

    /// The same for a frame that [`Decision::Look`] was said of, now with all of its bytes.
    pub fn handle_whole(&mut self, incoming: &Incoming<'_>, head: &mut Head, moment: Moment) -> Decision {
        self.is_whole = incoming.look.len() >= incoming.len;
        let decision = self.handle(incoming, head, moment);
        self.is_whole = false;
        match decision {
            // There are no more bytes than these.
            Decision::Look => Decision::Drop(Drop::Switch),
            other => other,
        }
    }

    /// The head for one target of a group, of the same frame that [`handle`](Self::handle) was called with. A target that does not answer is told by the decision, and
    /// delays no other.
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
            Decision::Forward(_) | Decision::Cut { .. } => self.counters.forwarded += 1,
            Decision::Drop(why) => self.counters.dropped[*why as usize] += 1,
            _ => self.counters.dropped[Drop::Neighbour as usize] += 1,
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
        let interface = self.interface_of(frame, port)?;
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
        let is_to_us = frame[..6] == self.interfaces[interface].mac;
        Ok(Some((Packet { frame, view, interface, offload }, is_to_us)))
    }

    fn interface_of(&self, frame: &[u8], port: u8) -> Result<usize, Drop> {
        let (tags, _) = Tags::parse(frame).ok_or(Drop::Malformed)?;
        // A tag that says only a priority names no VLAN.
        let vlans = tags.vlans();
        let is_it = |interface: &Interface| interface.port == port && interface.tags.vlans() == vlans;
        self.interfaces.iter().position(is_it).ok_or(Drop::Interface)
    }

    fn decide(&mut self, incoming: &Incoming<'_>, head: &mut Head, moment: Moment) -> Result<Decision, Drop> {
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
        if is_martian(view.source) || self.owned.contains(&view.source) {
            return Err(Drop::Martian);
        }
        let decision = match view.transport {
            Transport::Later => return self.follow(&packet, head, moment.now),
            Transport::Error(_) => return self.handle_error(&packet, head, moment.now),
            Transport::Other => {
                if self.owned.contains(&view.destination) {
                    return Err(Drop::NotOurs);
                }
                let tuple = Tuple {
                    protocol: Protocol::Query,
                    source: crate::tuple::Endpoint::new(view.source, 0),
                    destination: crate::tuple::Endpoint::new(view.destination, 0),
                };
                let ruled = self.rules.find(&tuple, packet.interface);
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
            let fate = match &decision {
                Ok(Decision::Forward(_) | Decision::Cut { .. }) => forwarded_to(head),
                Ok(Decision::FanOut { group, .. }) => Fate::FannedOut(*group),
                _ => Fate::Dropped,
            };
            self.fragments.remember(&view, packet.interface, fate, moment.now);
        }
        decision
    }

    fn handle_connection(&mut self, packet: &Packet<'_>, head: &mut Head, moment: Moment) -> Result<Decision, Drop> {
        let view = &packet.view;
        let tuple = view.tuple().ok_or(Drop::NotOurs)?;
        let bytes = view.packet_len() as u64;
        let mut rewrite = None;
        let mut found = self.conntrack.find(&tuple);
        if let Some((id, direction)) = found {
            self.catch_up(id);
            let Some(connection) = self.conntrack.get(id) else { return Err(Drop::NoConnection) };
            let Note { mut ruled, chosen, switched, .. } = connection.note;
            if !self.rules.is_current(ruled) {
                ruled = self.rules.find(&connection.incoming(Direction::Original), connection.note.interface);
                self.conntrack.note_mut(id).expect("it is there").ruled = ruled;
            }
            let leaves = direction == Direction::Original
                && chosen.is_some_and(|chosen| self.services.must_leave(chosen, tuple.protocol, moment.now));
            if leaves {
                self.end(id, moment.now);
                found = None;
            } else {
                if !self.is_whole && !self.rules.passes(ruled, bytes, moment.now) {
                    return Err(Drop::Rule);
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
                        self.tell_fast_path(id, moment.now);
                        self.end_drain_of_reset(id);
                        if let Some(change) = &rewrite {
                            self.follow_stamps(id, direction, packet, &change.numbers, moment.now);
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
                Begun::Untracked => return self.forward(packet, &Change::Nothing, head, moment.now),
                Begun::Group(group) => {
                    return Ok(Decision::FanOut { group, targets: self.groups.get(group).targets.len() });
                }
                Begun::Echo => return Ok(self.echo(packet, head)),
                Begun::ByName(service) => return self.handle_waiting(packet, &tuple, service as u16, head, moment),
                Begun::Nobody => {
                    return self.complain(Complaint::Unreachable, packet, Drop::NoBackEnd, head, moment.now);
                }
                Begun::NoRoute => return self.complain(Complaint::NoRoute, packet, Drop::NoRoute, head, moment.now),
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

    /// An error goes where the packet came from that it quotes.
    fn handle_error(&mut self, packet: &Packet<'_>, head: &mut Head, now: Time) -> Result<Decision, Drop> {
        let view = &packet.view;
        let inner = icmp::quoted(packet.frame, view).map_err(|_| Drop::Malformed)?;
        let known = inner.tuple().and_then(|quoted| self.conntrack.find(&quoted.reversed()));
        let Some((id, direction)) = known else {
            if self.owned.contains(&view.destination) {
                return Err(Drop::StrayError);
            }
            return self.forward(packet, &Change::Nothing, head, now);
        };
        let connection = self.conntrack.get(id).ok_or(Drop::StrayError)?;
        // It was sent to whoever the quoted packet seemed to come from, or it is not about that packet.
        if view.destination != inner.source {
            return Err(Drop::StrayError);
        }
        let quote = connection.incoming(direction.other());
        let (before, after) =
            (connection.incoming(direction).source.address, connection.outgoing(direction).source.address);
        let source = if view.source == before || before != after { after } else { view.source };
        // A client quotes numbers that its back end does not know.
        let moved = connection.note.switched.map_or(0, |switched| switched.splice.out_delta.wrapping_neg());
        let seq_delta = if direction == Direction::Original { moved } else { 0 };
        // What it is about was longer than what its back end had sent.
        let lacks = connection.note.switched.is_some_and(|switched| switched.lacks.timestamps);
        let mtu_less = if lacks && direction == Direction::Original { TIMESTAMPS_BYTES } else { 0 };
        self.counters.errors += 1;
        let destination = quote.source.address;
        let change = Change::Error { inner: &inner, source, destination, quote, seq_delta, mtu_less };
        self.forward(packet, &change, head, now)
    }

    fn follow(&mut self, packet: &Packet<'_>, head: &mut Head, now: Time) -> Result<Decision, Drop> {
        match self.fragments.find(&packet.view, packet.interface, now) {
            Some(Fate::Forwarded { source, destination }) => {
                self.forward(packet, &Change::Addresses(source, destination), head, now)
            }
            Some(Fate::FannedOut(group)) => {
                Ok(Decision::FanOut { group, targets: self.groups.get(group).targets.len() })
            }
            Some(Fate::Dropped) | None => Err(Drop::Fragment),
        }
    }

    fn handle_arp(&mut self, frame: &[u8], port: u8, head: &mut Head, now: Time) -> Result<Decision, Drop> {
        let interface = self.interface_of(frame, port)?;
        let (kind, at) = network_of(frame).ok_or(Drop::Malformed)?;
        if kind != ETHERTYPE_ARP {
            return Err(Drop::NotOurs);
        }
        let message = solicitation::parse_arp(frame, at).ok_or(Drop::Malformed)?;
        self.handle_message(interface, &message, head, now)
    }

    fn handle_message(
        &mut self,
        number: usize,
        message: &solicitation::Message,
        head: &mut Head,
        now: Time,
    ) -> Result<Decision, Drop> {
        let is_to_us = message.is_question && self.owned.contains(&message.target);
        let Some((address, mac)) = message.told else { return Err(Drop::NotOurs) };
        if self.owned.contains(&address) || is_martian(address) {
            return Err(Drop::Martian);
        }
        // Only those on the link are its neighbours. Link-local addresses are the same on each link, and routers have them.
        let is_of_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if !is_of_link && self.routes.find(address).is_none_or(|route| route.interface != number) {
            return Err(Drop::Martian);
        }
        self.neighbours.learn(number, address, mac, is_to_us, now);
        self.follow_neighbours();
        if !is_to_us {
            return Err(Drop::NotOurs);
        }
        let interface = &self.interfaces[number];
        let frame = solicitation::answer(message.target, interface.mac, (address, mac), &interface.tags);
        head.try_extend_from_slice(&frame).expect("it is short");
        Ok(Decision::Answer { interface: number })
    }

    /// Forgets a connection.
    pub(crate) fn end(&mut self, id: ConnectionId, now: Time) {
        if let Some(connection) = self.conntrack.remove(id) {
            self.forget_fast_path(&connection, now);
            self.release_waiting(connection.note.switched);
            self.let_go(&connection.note);
        }
    }

    fn let_go(&mut self, note: &Note) {
        for mapping in [note.source, note.destination].into_iter().flatten() {
            self.nat.release(mapping);
        }
        if let Some(chosen) = note.chosen {
            self.services.end(chosen);
        }
    }
}

/// The ways to addresses on the links themselves.
pub fn routes_of_links(interfaces: &[Interface]) -> impl Iterator<Item = Route> + '_ {
    interfaces.iter().enumerate().flat_map(|(number, interface)| {
        let link = move |(address, len): &(IpAddr, u8)| {
            let to = crate::prefix::Prefix::new(*address, *len)?;
            Some(Route { to, interface: number, gateway: None })
        };
        interface.addresses.iter().filter_map(link)
    })
}

/// What a packet begins.
pub(crate) enum Begun {
    /// A connection.
    Connection(ConnectionId),
    /// Nothing: it is passed on as it is.
    Untracked,
    /// It goes to all of a group.
    Group(usize),
    /// It asks us for an echo.
    Echo,
    /// It is for a service whose back end is chosen by name.
    ByName(usize),
    /// It is for a service that nobody serves.
    Nobody,
    /// There is no way to its destination.
    NoRoute,
}

fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_loopback(),
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified() || v6.is_loopback(),
    }
}

/// Where a head goes from and to.
fn forwarded_to(head: &Head) -> Fate {
    let view = network_of(head).and_then(|(_, at)| View::parse_quoted(head, at).ok());
    view.map_or(Fate::Dropped, |view| Fate::Forwarded { source: view.source, destination: view.destination })
}
