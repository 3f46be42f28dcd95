//! What a forwarder holds, how that is set, and what it tells. What it does with a packet is in
//! `handling.rs`.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicache_tcp::Time;

use crate::config::Config;
use crate::conntrack::{Connection, ConnectionId, Conntrack};
use crate::counters::Counters;
use crate::entering::Entering;
use crate::fan_out::FanOut;
use crate::fast_path::{FastCounters, FastPath};
use crate::fragments::Fragments;
use crate::interface::Interface;
use crate::leaving::Leaving;
use crate::links::Links;
use crate::nat::{MappingError, Nat};
use crate::neighbours::{Moved, Neighbours};
use crate::note::Note;
use crate::routes::Routes;
use crate::rules::{Rule, Rules};
use crate::services::{Chosen, Health, Services};
use crate::solicitation;
use crate::switch::Switch;
use crate::tcp_track::Direction;
use crate::tuple::{Protocol, Tuple};

/// Connections that leave the fast path one by one: to void all ways is less work than more of
/// them.
const LEAVE_MAX: usize = 256;

/// Headers in, headers out: forwards packets of which it looks at the first bytes only.
///
/// It has no clock, does not send, and holds no packet. It allocates nothing after creation, but
/// for neighbours.
#[derive(Debug)]
pub struct Forwarder {
    pub(crate) links: Links,
    pub(crate) nat: Nat,
    pub(crate) services: Services,
    pub(crate) groups: FanOut,
    pub(crate) rules: Rules,
    pub(crate) conntrack: Conntrack<Note>,
    pub(crate) fragments: Fragments,
    left_alone: Vec<(Protocol, RangeInclusive<u16>)>,
    pub(crate) fast: Option<Entering>,
    /// Connections of services by name that have no back end yet; nothing, if there is no such
    /// service.
    pub(crate) switch: Option<Box<Switch>>,
    pub(crate) leaving: Leaving,
    /// The interface and address of who was last waited for.
    pub(crate) waits_for: Option<(usize, IpAddr)>,
    /// All bytes of the frame under consideration are there.
    pub(crate) is_whole: bool,
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
        owned.extend(
            (0..).map_while(|number| nat.external(number)).map(|external| external.address),
        );
        owned.extend(services.addresses().map(|endpoint| endpoint.address));
        owned.extend(groups.addresses().map(|endpoint| endpoint.address));
        let neighbours = Neighbours::new(config.neighbours, config.secret ^ 3);
        let switch = services.has_names().then(|| Box::new(Switch::new(config.secret ^ 5, now)));
        Ok(Self {
            links: Links::new(config.interfaces, &config.routes, neighbours, owned),
            rules: Rules::new(config.rules, now),
            conntrack: Conntrack::new(config.limits, config.timeouts, config.secret ^ 2),
            fragments: Fragments::new(config.fragments, config.secret ^ 4),
            left_alone: config.left_alone,
            nat,
            services,
            groups,
            fast: None,
            switch,
            leaving: Leaving::default(),
            waits_for: None,
            is_whole: false,
            counters: Counters::default(),
        })
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The connections that the forwarder knows.
    pub fn connections(&self) -> &Conntrack<Note> {
        &self.conntrack
    }

    /// The forwarder's mappings of inside endpoints to outside ones.
    pub fn nat(&self) -> &Nat {
        &self.nat
    }

    /// The forwarder's services, with their back ends.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// The forwarder's interfaces.
    pub fn interfaces(&self) -> &[Interface] {
        &self.links.interfaces
    }

    /// A back end does otherwise.
    pub fn set_health(&mut self, chosen: Chosen, health: Health) {
        if self.services.health(chosen) != health {
            self.services.set_health(chosen, health);
            self.take_back_ways(chosen);
        }
    }

    /// A health check says whether a back end answers. One that is drained stays so, but has lost
    /// its datagrams if it does not.
    pub fn set_answers(&mut self, chosen: Chosen, answers: bool) {
        if self.services.set_answers(chosen, answers) {
            self.take_back_ways(chosen);
        }
    }

    /// A link takes longer or shorter packets than before.
    pub fn set_mtu(&mut self, interface: usize, mtu: u32) {
        if std::mem::replace(&mut self.links.interfaces[interface].mtu, mtu) != mtu {
            self.void_ways();
        }
    }

    /// A link has another MAC address than before.
    pub fn set_mac(&mut self, interface: usize, mac: [u8; 6]) {
        if std::mem::replace(&mut self.links.interfaces[interface].mac, mac) != mac {
            self.void_ways();
        }
    }

    /// A neighbour that is known for good, or told by whoever keeps them.
    pub fn set_neighbour(&mut self, interface: usize, address: IpAddr, mac: [u8; 6]) {
        self.links.neighbours.set(interface, address, mac);
        self.follow_neighbours();
    }

    /// A neighbour that somebody else on this machine has heard of.
    pub fn learn_neighbour(&mut self, interface: usize, address: IpAddr, mac: [u8; 6], now: Time) {
        self.links.neighbours.learn(interface, address, mac, true, now);
        self.follow_neighbours();
    }

    /// A neighbour that somebody else on this machine has heard of some time ago: it is used where
    /// nothing else is known, and asked.
    pub fn hint_neighbour(&mut self, interface: usize, address: IpAddr, mac: [u8; 6], now: Time) {
        self.links.neighbours.hint(interface, address, mac, now);
    }

    /// A neighbour that was known for good is no longer.
    pub fn forget_neighbour(&mut self, interface: usize, address: IpAddr) {
        self.links.neighbours.forget(interface, address);
        self.follow_neighbours();
    }

    /// The MAC addresses that the forwarder knows.
    pub fn neighbours(&self) -> &Neighbours {
        &self.links.neighbours
    }

    /// The forwarder's routes.
    pub fn routes(&self) -> &Routes {
        &self.links.routes
    }

    /// Whether an address is ours: an interface's, an external one, or a service's.
    pub fn is_ours(&self, address: IpAddr) -> bool {
        self.links.owned.contains(&address)
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
        if let Some(route) = self.links.routes.find(address).copied() {
            self.links.resolve(&route, address, now);
        }
    }

    /// How often a neighbour's address has become known: frames that wait may come again.
    pub fn learned(&self) -> u64 {
        self.links.neighbours.learned()
    }

    /// Another list of rules, also for connections that are there.
    pub fn set_rules(&mut self, rules: Vec<Rule>, now: Time) {
        self.rules.replace(rules, now);
        self.void_ways();
    }

    /// Other routes, also for connections that are there.
    pub fn set_routes(&mut self, routes: Routes) {
        if self.links.routes != routes {
            self.links.routes = routes;
            self.void_ways();
        }
    }

    /// The next hop that the last frame has to wait for, by interface and address.
    pub fn waits_for(&self) -> Option<(usize, IpAddr)> {
        self.waits_for
    }

    /// A question for a neighbour that is to be sent, with its interface.
    pub fn poll_question(&mut self) -> Option<(usize, solicitation::Frame)> {
        self.links.questions.pop()
    }

    /// From now on established connections are forwarded elsewhere, too.
    ///
    /// # Errors
    /// What the system says; then they are not.
    pub fn set_fast_path(&mut self, path: Box<dyn FastPath>, now: Time) -> io::Result<()> {
        self.fast = Some(Entering::new(path, now)?);
        Ok(())
    }

    /// From now on everything is forwarded here.
    pub fn clear_fast_path(&mut self) {
        for id in self.fast.as_ref().map(Entering::connections).unwrap_or_default() {
            // What cannot be taken back is of no edition that counts, or goes with the fast path.
            self.leave_counted(id, Time::ZERO);
        }
        self.fast = None;
    }

    /// What was forwarded elsewhere, as far as it is caught up with.
    pub fn fast_counters(&self) -> Option<FastCounters> {
        self.fast.as_ref().map(Entering::counters)
    }

    /// Whether a connection is forwarded elsewhere, in both directions.
    pub fn is_fast(&self, note: &Note) -> bool {
        self.fast.as_ref().is_some_and(|fast| fast.is_fast(note))
    }

    /// Looks after connections that are entered, a bounded number of them: what was forwarded is
    /// counted, their neighbours are asked whether they are still there, and those that have
    /// another MAC address, or none, are no longer forwarded elsewhere. To be called about once a
    /// second.
    pub fn sweep(&mut self, now: Time) {
        self.links.neighbours.settle(now);
        self.follow_neighbours();
        let count = self.fast.as_mut().map_or(0, |fast| fast.begin_sweep(now));
        for _ in 0..count {
            let Some(id) = self.fast.as_mut().and_then(Entering::next_connection) else { continue };
            if self.catch_up(id) > 0 {
                self.look_after(id, now);
            }
        }
    }

    /// Asks for the next hops of a connection that has moved.
    fn look_after(&mut self, id: ConnectionId, now: Time) {
        for direction in [Direction::Original, Direction::Reply] {
            let Some(connection) = self.conntrack.get(id) else { return };
            let destination = connection.outgoing(direction).destination.address;
            let Some(route) = self.links.routes.find(destination).copied() else { continue };
            if self.links.resolve(&route, destination, now).is_some() {
                continue;
            }
            self.leave_fast(id, now);
            return;
        }
    }

    /// From now on a connection is forwarded here.
    pub(crate) fn leave_fast(&mut self, id: ConnectionId, now: Time) {
        if !self.leave_counted(id, now) {
            self.void_ways();
        }
    }

    /// The same. False: its ways could not be taken back.
    fn leave_counted(&mut self, id: ConnectionId, now: Time) -> bool {
        let Some(fast) = &mut self.fast else { return true };
        let (packets, is_taken_back) = fast.leave(id, &mut self.conntrack, now);
        self.counters.packets += packets;
        self.counters.forwarded += packets;
        is_taken_back
    }

    /// After a packet of a connection was judged here: whoever forwards the others is told what it
    /// has shown, or no longer forwards them.
    pub(crate) fn tell_fast(&mut self, id: ConnectionId, now: Time) {
        let Some(fast) = &mut self.fast else { return };
        let Some(connection) = self.conntrack.get(id) else { return };
        match fast.must_leave(connection) {
            true => self.leave_fast(id, now),
            false => fast.tell(id, &self.conntrack),
        }
    }

    /// What was forwarded of all connections is counted.
    pub fn catch_up_all(&mut self) {
        for id in self.fast.as_ref().map(Entering::connections).unwrap_or_default() {
            self.catch_up(id);
        }
    }

    /// What was forwarded of a connection is counted, and its state follows. Returns how many
    /// packets these were.
    pub(crate) fn catch_up(&mut self, id: ConnectionId) -> u64 {
        let Some(fast) = &mut self.fast else { return 0 };
        let packets = fast.catch_up(id, &mut self.conntrack);
        self.counters.packets += packets;
        self.counters.forwarded += packets;
        packets
    }

    /// Something that decisions depend on is otherwise: none of the connections that were entered
    /// counts.
    fn void_ways(&mut self) {
        if self.fast.as_mut().is_some_and(|fast| !fast.void()) {
            // What cannot be taken back must not stay.
            self.clear_fast_path();
        }
    }

    /// If neighbours have other MAC addresses than before, connections that are entered by way of
    /// them come up again, and their next packets enter them anew.
    pub(crate) fn follow_neighbours(&mut self) {
        let moved = self.links.neighbours.take_moved();
        if moved.is_empty() {
            return;
        }
        let Some(those) = self.entered_by(&moved) else { return self.void_ways() };
        for id in those {
            self.leave_fast(id, moved.at);
        }
    }

    /// A back end does otherwise: its connections that are entered come up again, and their next
    /// packets enter them anew. No decision about another one depends on it.
    fn take_back_ways(&mut self, chosen: Chosen) {
        let is_its = |connection: &Connection<Note>| connection.note.back_end() == Some(chosen);
        let Some(those) = self.entered_where(is_its) else { return self.void_ways() };
        let mut are_taken_back = true;
        for id in those {
            if let Some(fast) = &mut self.fast {
                are_taken_back &= fast.take_back(id, &mut self.conntrack);
            }
        }
        if !are_taken_back {
            self.void_ways();
        }
    }

    /// Connections that are entered by way of neighbours. `None`: too many to look at each.
    fn entered_by(&self, moved: &Moved) -> Option<ArrayVec<ConnectionId, LEAVE_MAX>> {
        if moved.are_more {
            return None;
        }
        self.entered_where(|connection| {
            let is_by = |direction| {
                let destination = connection.outgoing(direction).destination.address;
                self.links.next_hop(destination).is_some_and(|next| moved.who.contains(&next))
            };
            [Direction::Original, Direction::Reply].into_iter().any(is_by)
        })
    }

    /// Connections that are entered and that something is said of. `None`: too many.
    fn entered_where(
        &self,
        is_it: impl Fn(&Connection<Note>) -> bool,
    ) -> Option<ArrayVec<ConnectionId, LEAVE_MAX>> {
        let mut those = ArrayVec::new();
        for id in self.fast.as_ref().map(Entering::connections).unwrap_or_default() {
            if self.conntrack.get(id).is_some_and(&is_it) {
                those.try_push(id).ok()?;
            }
        }
        Some(those)
    }

    /// Forgets a connection.
    pub(crate) fn end(&mut self, id: ConnectionId, now: Time) {
        self.leave_fast(id, now);
        if let Some(connection) = self.conntrack.remove(id) {
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
