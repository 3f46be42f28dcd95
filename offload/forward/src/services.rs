//! Addresses that stand for several back ends.
//!
//! A back end that is down gets no new connections; those of TCP stay, because it may come back,
//! and those of UDP leave it at once, because nothing else would end them. One that is drained gets
//! no new connections, and keeps those it has until a deadline. What is found of its health
//! meanwhile counts: if it is down, its connections of UDP leave it at once, too, and it is still
//! down when it is taken back.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use nicache_tcp::Time;

use crate::first_bytes::By;
use crate::maglev::Maglev;
use crate::names::Names;
use crate::tuple::{Endpoint, Protocol, Tuple};

/// A back end, as it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackEnd {
    /// Where it listens.
    pub endpoint: Endpoint,
    /// How much of the connections it gets, beside the others; 0: none.
    pub weight: u16,
}

/// A service, as it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceConfig {
    /// Of TCP or UDP.
    pub protocol: Protocol,
    /// What clients speak to.
    pub address: Endpoint,
    /// Who answers.
    pub back_ends: Vec<BackEnd>,
    /// Back ends see an external address of ours, by its number, in the client's place.
    pub masquerade: Option<usize>,
    /// The back end depends on the name that a client asks for.
    pub by_name: Option<ByName>,
}

/// How a back end is chosen by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByName {
    /// Where the name is.
    pub by: By,
    /// Who has which.
    pub names: Names,
    /// Back ends are told who the client is, by version 2 of the PROXY protocol.
    pub proxy_protocol: bool,
}

/// How a back end does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Up,
    /// It does not.
    Down,
    /// It is to have nothing more to do at the deadline.
    Draining {
        /// When what is left of its connections is ended.
        until: Time,
    },
}

#[derive(Debug)]
struct Service {
    config: ServiceConfig,
    health: Vec<Health>,
    /// What was found last of each back end, which holds also while it is drained.
    answers: Vec<bool>,
    connections: Vec<u32>,
    /// One for each set of back ends.
    tables: Vec<Maglev>,
}

/// All services of a forwarder.
#[derive(Debug)]
pub struct Services {
    services: Vec<Service>,
    seed: u64,
}

/// A back end of a service, by numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The service.
    pub service: u16,
    /// The back end.
    pub back_end: u16,
}

impl Services {
    /// Makes the services of a list. `seed` chooses who gets what: with the same one several
    /// balancers agree.
    pub fn new(configs: Vec<ServiceConfig>, seed: u64) -> Self {
        let services = configs
            .into_iter()
            .map(|config| {
                let count = config.back_ends.len();
                let mut service = Service {
                    health: vec![Health::Up; count],
                    answers: vec![true; count],
                    connections: vec![0; count],
                    tables: Vec::new(),
                    config,
                };
                service.rebuild(seed);
                service
            })
            .collect();
        Self { services, seed }
    }

    /// The service that a packet is for.
    pub fn find(&self, protocol: Protocol, address: Endpoint) -> Option<usize> {
        self.services.iter().position(|service| {
            (service.config.protocol, service.config.address) == (protocol, address)
        })
    }

    /// Addresses of all services.
    pub fn addresses(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.services.iter().map(|service| service.config.address)
    }

    /// How a service is set up.
    pub fn config(&self, service: usize) -> &ServiceConfig {
        &self.services[service].config
    }

    /// Whether a back end of any of them depends on a name.
    pub fn has_names(&self) -> bool {
        self.services.iter().any(|service| service.config.by_name.is_some())
    }

    /// The back end for a new connection of a client, among those of a set; without names there is
    /// one set, 0. `None`: none is up.
    pub fn choose(&self, service: usize, set: u16, tuple: &Tuple) -> Option<Chosen> {
        let hash = FixedState::with_seed(self.seed).hash_one(tuple);
        let back_end = self.services[service].tables.get(usize::from(set))?.find(hash)?;
        Some(Chosen { service: service as u16, back_end: back_end as u16 })
    }

    /// Where a back end listens.
    pub fn endpoint(&self, chosen: Chosen) -> Endpoint {
        self.services[usize::from(chosen.service)].config.back_ends[usize::from(chosen.back_end)]
            .endpoint
    }

    /// How a back end does.
    pub fn health(&self, chosen: Chosen) -> Health {
        self.services[usize::from(chosen.service)].health[usize::from(chosen.back_end)]
    }

    /// Connections that a back end has.
    pub fn connections(&self, chosen: Chosen) -> u32 {
        self.services[usize::from(chosen.service)].connections[usize::from(chosen.back_end)]
    }

    /// A back end does otherwise, or is drained.
    pub fn set_health(&mut self, chosen: Chosen, health: Health) {
        let service = &mut self.services[usize::from(chosen.service)];
        if !matches!(health, Health::Draining { .. }) {
            service.answers[usize::from(chosen.back_end)] = health == Health::Up;
        }
        let old = std::mem::replace(&mut service.health[usize::from(chosen.back_end)], health);
        if (old == Health::Up) != (health == Health::Up) {
            service.rebuild_for(chosen.back_end, self.seed);
        }
    }

    /// A back end answers, or does not. One that is drained stays so. Returns whether that was not
    /// known.
    pub fn set_answers(&mut self, chosen: Chosen, answers: bool) -> bool {
        if matches!(self.health(chosen), Health::Draining { .. }) {
            let service = &mut self.services[usize::from(chosen.service)];
            let before =
                std::mem::replace(&mut service.answers[usize::from(chosen.back_end)], answers);
            return before != answers;
        }
        let health = if answers { Health::Up } else { Health::Down };
        let is_news = self.health(chosen) != health;
        self.set_health(chosen, health);
        is_news
    }

    /// How a back end does if it is not drained: as was found last.
    pub fn health_without_drain(&self, chosen: Chosen) -> Health {
        if self.answers(chosen) { Health::Up } else { Health::Down }
    }

    fn answers(&self, chosen: Chosen) -> bool {
        self.services[usize::from(chosen.service)].answers[usize::from(chosen.back_end)]
    }

    /// Whether a connection must leave its back end.
    pub fn must_leave(&self, chosen: Chosen, protocol: Protocol, now: Time) -> bool {
        let is_over = match self.health(chosen) {
            Health::Draining { until } => now >= until,
            Health::Up | Health::Down => false,
        };
        is_over || protocol != Protocol::Tcp && !self.answers(chosen)
    }

    /// A connection has begun.
    pub fn begin(&mut self, chosen: Chosen) {
        self.services[usize::from(chosen.service)].connections[usize::from(chosen.back_end)] += 1;
    }

    /// A connection is forgotten.
    pub fn end(&mut self, chosen: Chosen) {
        self.services[usize::from(chosen.service)].connections[usize::from(chosen.back_end)] -= 1;
    }
}

impl Service {
    /// Makes the tables of all sets.
    fn rebuild(&mut self, seed: u64) {
        self.tables = match &self.config.by_name {
            None => vec![self.table(None, seed)],
            Some(by_name) => {
                by_name.names.sets().iter().map(|set| self.table(Some(set), seed)).collect()
            }
        };
    }

    /// Makes the tables anew in which a back end is: packets wait meanwhile.
    fn rebuild_for(&mut self, back_end: u16, seed: u64) {
        for number in 0..self.tables.len() {
            let set = self.config.by_name.as_ref().map(|by_name| &by_name.names.sets()[number]);
            if set.is_none_or(|set| set.contains(&back_end)) {
                self.tables[number] = self.table(set, seed);
            }
        }
    }

    /// The table of a set, or of all back ends.
    fn table(&self, set: Option<&Vec<u16>>, seed: u64) -> Maglev {
        let name = |endpoint: &Endpoint| FixedState::with_seed(seed).hash_one(endpoint);
        let is_in = |number: usize| set.is_none_or(|set| set.contains(&(number as u16)));
        let all = self.config.back_ends.iter().zip(&self.health).enumerate();
        let list: Vec<(u64, u16)> = all
            .map(|(number, (back_end, health))| {
                let is_wanted = *health == Health::Up && is_in(number);
                (name(&back_end.endpoint), if is_wanted { back_end.weight } else { 0 })
            })
            .collect();
        Maglev::new(&list, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Pattern;

    /// With many names, a back end that comes or goes costs the tables that it is in.
    #[test]
    fn other_sets_stay_as_they_are() {
        let pattern = |name: &str| vec![Pattern::new(name).unwrap()];
        let back_end =
            |number: u8| BackEnd { endpoint: Endpoint::new([10, 0, 0, number], 443), weight: 1 };
        let names = ["a.example", "b.example", "b.example"].map(pattern);
        let config = ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new([10, 0, 0, 100], 443),
            back_ends: (0..3).map(back_end).collect(),
            masquerade: None,
            by_name: Some(ByName {
                by: By::Sni,
                names: Names::new(&names).unwrap(),
                proxy_protocol: false,
            }),
        };
        let mut services = Services::new(vec![config], 1);
        let at = |services: &Services| -> Vec<_> {
            services.services[0].tables.iter().map(Maglev::at).collect()
        };
        let before = at(&services);
        assert_eq!(before.len(), 2);
        services.set_health(Chosen { service: 0, back_end: 2 }, Health::Down);
        let moved = before.iter().zip(at(&services)).filter(|(old, new)| **old != *new).count();
        assert_eq!(moved, 1);
        let set = services.config(0).by_name.as_ref().unwrap().names.sets();
        let number = set.iter().position(|set| *set == [1, 2]).unwrap() as u16;
        let tuple = Tuple { protocol: Protocol::Tcp, ..Tuple::NOBODY };
        let chosen = (0..50u16).map(|port| {
            let source = Endpoint { port, ..tuple.source };
            services.choose(0, number, &Tuple { source, ..tuple }).unwrap().back_end
        });
        assert!(chosen.into_iter().all(|back_end| back_end == 1));
    }
}
