//! Our links: interfaces, what is reached by each, and what is asked and answered there.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use nicache_tcp::Time;
use nicache_tcp::frame::Tags;

use crate::allowance::Allowance;
use crate::counters::Drop;
use crate::decision::{Decision, Head};
use crate::interface::Interface;
use crate::neighbours::Neighbours;
use crate::routes::{Route, Routes};
use crate::solicitation;

/// Questions for neighbours that wait to be sent at most.
const QUESTIONS_MAX: usize = 64;
/// Complaints per second, and at once (RFC 1812 section 4.3.2.8).
const COMPLAINTS: Allowance = Allowance::new(1000, 50);

/// The forwarder's links: interfaces, what is reached by each, and what is asked and answered
/// there.
#[derive(Debug)]
pub(crate) struct Links {
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    /// Addresses that are ours, for which we answer.
    pub(crate) owned: HashSet<IpAddr, FixedState>,
    pub(crate) questions: ArrayVec<(usize, solicitation::Frame), QUESTIONS_MAX>,
    pub(crate) complaints: Allowance,
    /// Whoever has sent the packet under consideration has heard why it is dropped.
    pub(crate) is_sender_told: bool,
}

impl Links {
    pub(crate) fn new(
        interfaces: Vec<Interface>,
        routes: &[Route],
        neighbours: Neighbours,
        owned: HashSet<IpAddr, FixedState>,
    ) -> Self {
        Self {
            routes: Routes::new(routes_of_links(&interfaces).chain(routes.iter().copied())),
            interfaces,
            neighbours,
            owned,
            questions: ArrayVec::new(),
            complaints: COMPLAINTS,
            is_sender_told: false,
        }
    }

    /// The interface by which a frame has come in.
    pub(crate) fn interface_of(&self, frame: &[u8], port: u8) -> Result<usize, Drop> {
        let (tags, _) = Tags::parse(frame).ok_or(Drop::Malformed)?;
        // A tag that says only a priority names no VLAN.
        let vlans = tags.vlans();
        let is_it =
            |interface: &Interface| interface.port == port && interface.tags.vlans() == vlans;
        self.interfaces.iter().position(is_it).ok_or(Drop::Interface)
    }

    /// Invariant F5: outside, only addresses that are ours.
    pub(crate) fn may_leave(&self, interface: usize, source: IpAddr) -> bool {
        self.interfaces[interface].masquerade.is_empty() || self.owned.contains(&source)
    }

    /// Who is next on the way to an address: by which interface, and which address.
    pub(crate) fn next_hop(&self, destination: IpAddr) -> Option<(usize, IpAddr)> {
        let route = self.routes.find(destination)?;
        Some((route.interface, route.gateway.unwrap_or(destination)))
    }

    /// The MAC address of the next hop, and a question for it if one is due.
    pub(crate) fn resolve(
        &mut self,
        route: &Route,
        destination: IpAddr,
        now: Time,
    ) -> Option<[u8; 6]> {
        let next = route.gateway.unwrap_or(destination);
        let resolved = self.neighbours.resolve(route.interface, next, now);
        if resolved.ask {
            let interface = &self.interfaces[route.interface];
            if let Some(source) = interface.address_for(next) {
                // A question that finds no room is asked again when the next one is due.
                let question = solicitation::ask(next, source, interface.mac, &interface.tags);
                let _ = self.questions.try_push((route.interface, question));
            }
        }
        resolved.mac
    }

    /// Learns what a neighbour says, and answers what it asks.
    pub(crate) fn handle_message(
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
        // Only those on the link are its neighbours. Link-local addresses are the same on each
        // link, and routers have them.
        let is_of_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if !is_of_link && self.routes.find(address).is_none_or(|route| route.interface != number) {
            return Err(Drop::Martian);
        }
        self.neighbours.learn(number, address, mac, is_to_us, now);
        if !is_to_us {
            return Err(Drop::NotOurs);
        }
        let interface = &self.interfaces[number];
        let frame =
            solicitation::answer(message.target, interface.mac, (address, mac), &interface.tags);
        head.try_extend_from_slice(&frame).expect("it is short");
        Ok(Decision::Answer { interface: number })
    }
}

/// The ways to addresses on the links themselves.
fn routes_of_links(interfaces: &[Interface]) -> impl Iterator<Item = Route> + '_ {
    interfaces.iter().enumerate().flat_map(|(number, interface)| {
        let link = move |(address, len): &(IpAddr, u8)| {
            let to = crate::prefix::Prefix::new(*address, *len)?;
            Some(Route { to, interface: number, gateway: None })
        };
        interface.addresses.iter().filter_map(link)
    })
}

/// An address that nobody has.
pub(crate) fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_multicast() || v4.is_broadcast() || v4.is_unspecified() || v4.is_loopback()
        }
        IpAddr::V6(v6) => v6.is_multicast() || v6.is_unspecified() || v6.is_loopback(),
    }
}
