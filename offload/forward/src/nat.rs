//! Inside addresses behind outside ones.
//!
//! Read first: RFC 4787 (REQ-1 to REQ-9), RFC 5382, RFC 5508.
//!
//! A *mapping* gives an inside endpoint one external port, whoever it speaks with
//! (endpoint-independent mapping, REQ-1). It lasts as long as a connection uses it. Ports that are
//! forwarded for good are mappings that no connection ends.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::ports::Ports;
use crate::tuple::{Endpoint, Protocol};

/// Who outside may speak to an external port without having been spoken to (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filtering {
    /// Nobody: what is known of connections decides alone.
    #[default]
    AddressAndPort,
    /// Everybody, as long as the mapping lasts.
    EndpointIndependent,
}

/// An address to the outside.
#[derive(Clone, Debug)]
pub struct External {
    /// The address.
    pub address: IpAddr,
    /// Its ports (and identifiers of queries) that may be given out.
    pub ports: RangeInclusive<u16>,
    /// See [`Filtering`].
    pub filtering: Filtering,
}

/// A port that leads to an inside endpoint for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarded {
    /// Of TCP or UDP.
    pub protocol: Protocol,
    /// Its endpoint as seen from outside.
    pub external: Endpoint,
    /// Where it leads.
    pub internal: Endpoint,
}

/// A number of a mapping, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MappingId(u32);

/// An inside endpoint and the external port that stands for it, whoever it speaks with (RFC 4787
/// REQ-1).
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    /// Of one protocol.
    pub protocol: Protocol,
    /// The inside endpoint.
    pub internal: Endpoint,
    /// What stands for it outside.
    pub external: Endpoint,
    /// Which of the external addresses.
    pub through: usize,
    connections: u32,
    is_forwarded: bool,
}

/// Why there is no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// All ports of the address are in use.
    #[error("all ports of the external address are in use")]
    NoPort,
    /// There are as many mappings as there may be.
    #[error("the table of mappings is full")]
    Full,
    /// The external port is another mapping's.
    #[error("the external port is in use")]
    Taken,
}

#[derive(Debug)]
struct Outside {
    external: External,
    /// Of TCP, UDP and queries.
    ports: [Ports; 3],
}

/// All mappings of inside endpoints to outside ones, and the ports that are free. Memory is
/// allocated at creation.
#[derive(Debug)]
pub struct Nat {
    outside: Vec<Outside>,
    slots: Vec<Option<Mapping>>,
    free: Vec<u32>,
    by_internal: HashTable<u32>,
    by_external: HashTable<u32>,
    seed: FixedState,
}

impl Nat {
    /// A table without mappings, of which there may be `mappings`. `seed`: a number that nobody
    /// else knows.
    pub fn new(externals: Vec<External>, mappings: u32, seed: u64) -> Self {
        let outside = externals
            .into_iter()
            .map(|external| {
                let ports = std::array::from_fn(|_| Ports::new(external.ports.clone()));
                Outside { external, ports }
            })
            .collect();
        Self {
            outside,
            slots: vec![None; mappings as usize],
            free: (0..mappings).rev().collect(),
            by_internal: HashTable::with_capacity(mappings as usize),
            by_external: HashTable::with_capacity(mappings as usize),
            seed: FixedState::with_seed(seed),
        }
    }

    /// An external address by its number.
    pub fn external(&self, number: usize) -> Option<&External> {
        self.outside.get(number).map(|outside| &outside.external)
    }

    /// The external address with which a packet may be addressed.
    pub fn external_of(&self, address: IpAddr) -> Option<usize> {
        self.outside.iter().position(|outside| outside.external.address == address)
    }

    /// Which of several external addresses stands for an inside one: always the same (RFC 4787,
    /// REQ-2), of its version of IP.
    pub fn choose(&self, among: &[usize], internal: IpAddr) -> Option<usize> {
        let is_same = |number: &&usize| {
            self.external(**number)
                .is_some_and(|external| external.address.is_ipv4() == internal.is_ipv4())
        };
        let count = among.iter().filter(is_same).count() as u64;
        let chosen = self.seed.hash_one(internal).checked_rem(count)?;
        among.iter().filter(is_same).nth(chosen as usize).copied()
    }

    /// Ports that an external address has left.
    pub fn free_ports(&self, through: usize, protocol: Protocol) -> u32 {
        self.outside[through].ports[protocol as usize].free()
    }

    /// Mappings in all.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A mapping, if it is there.
    pub fn get(&self, id: MappingId) -> Option<&Mapping> {
        self.slots.get(id.0 as usize)?.as_ref()
    }

    /// The mapping of an inside endpoint through an external address.
    pub fn find_internal(
        &self,
        protocol: Protocol,
        internal: Endpoint,
        through: usize,
    ) -> Option<MappingId> {
        let hash = self.seed.hash_one((protocol, internal, through));
        let is_it = |slot: &u32| {
            self.slots[*slot as usize].is_some_and(|mapping| {
                (mapping.protocol, mapping.internal, mapping.through)
                    == (protocol, internal, through)
            })
        };
        self.by_internal.find(hash, is_it).copied().map(MappingId)
    }

    /// The mapping that an external endpoint belongs to.
    pub fn find_external(&self, protocol: Protocol, external: Endpoint) -> Option<MappingId> {
        let hash = self.seed.hash_one((protocol, external));
        let is_it = |slot: &u32| {
            self.slots[*slot as usize]
                .is_some_and(|mapping| (mapping.protocol, mapping.external) == (protocol, external))
        };
        self.by_external.find(hash, is_it).copied().map(MappingId)
    }

    /// Whether a stranger may use a mapping.
    pub fn is_open(&self, id: MappingId) -> bool {
        self.get(id).is_some_and(|mapping| {
            let filtering = self.outside[mapping.through].external.filtering;
            mapping.is_forwarded || filtering == Filtering::EndpointIndependent
        })
    }

    /// A mapping for an inside endpoint, for one connection more. It is the one that is there, or a
    /// new one, with the same port outside if that is free.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn hold(
        &mut self,
        protocol: Protocol,
        internal: Endpoint,
        through: usize,
        random: u32,
    ) -> Result<MappingId, MappingError> {
        if let Some(id) = self.find_internal(protocol, internal, through) {
            self.hold_again(id);
            return Ok(id);
        }
        if self.free.is_empty() {
            return Err(MappingError::Full);
        }
        let outside = &mut self.outside[through];
        let port = outside.ports[protocol as usize]
            .take(internal.port, random)
            .ok_or(MappingError::NoPort)?;
        let external = Endpoint { address: outside.external.address, port };
        Ok(self.add(Mapping {
            protocol,
            internal,
            external,
            through,
            connections: 1,
            is_forwarded: false,
        }))
    }

    /// A mapping for an inside endpoint with this very endpoint outside, for one connection more.
    /// `None`: that is not free, or the inside endpoint has another.
    pub fn hold_as(
        &mut self,
        protocol: Protocol,
        internal: Endpoint,
        external: Endpoint,
        through: usize,
    ) -> Option<MappingId> {
        if let Some(id) = self.find_internal(protocol, internal, through) {
            let is_it = self.get(id).is_some_and(|mapping| mapping.external == external);
            return is_it.then(|| {
                self.hold_again(id);
                id
            });
        }
        let outside = self
            .outside
            .get_mut(through)
            .filter(|outside| outside.external.address == external.address)?;
        let ports = &mut outside.ports[protocol as usize];
        if self.free.is_empty() || !ports.contains(external.port) {
            return None;
        }
        match ports.take(external.port, 0) {
            Some(port) if port == external.port => {}
            Some(other) => {
                ports.release(other);
                return None;
            }
            None => return None,
        }
        Some(self.add(Mapping {
            protocol,
            internal,
            external,
            through,
            connections: 1,
            is_forwarded: false,
        }))
    }

    /// One connection more uses a mapping that is there.
    pub fn hold_again(&mut self, id: MappingId) {
        if let Some(mapping) = &mut self.slots[id.0 as usize] {
            mapping.connections += 1;
        }
    }

    /// One connection less uses it. With the last one it goes, and its port is free.
    pub fn release(&mut self, id: MappingId) {
        let Some(mapping) = &mut self.slots[id.0 as usize] else { return };
        mapping.connections -= 1;
        if mapping.connections == 0 && !mapping.is_forwarded {
            self.take_out(id);
        }
    }

    /// Forwards a port for good. The external address must be one of the [`External`]s.
    ///
    /// # Errors
    /// See [`MappingError`].
    pub fn forward(&mut self, forwarded: Forwarded) -> Result<MappingId, MappingError> {
        let Forwarded { protocol, external, internal } = forwarded;
        let through = self.external_of(external.address).ok_or(MappingError::Taken)?;
        if self.free.is_empty() {
            return Err(MappingError::Full);
        }
        if self.find_external(protocol, external).is_some()
            || self.find_internal(protocol, internal, through).is_some()
        {
            return Err(MappingError::Taken);
        }
        let ports = &mut self.outside[through].ports[protocol as usize];
        // A port outside of the range is never given out anyway.
        if ports.contains(external.port) && ports.take(external.port, 0) != Some(external.port) {
            return Err(MappingError::Taken);
        }
        Ok(self.add(Mapping {
            protocol,
            internal,
            external,
            through,
            connections: 0,
            is_forwarded: true,
        }))
    }

    fn add(&mut self, mapping: Mapping) -> MappingId {
        let slot = self.free.pop().expect("looked at before");
        self.slots[slot as usize] = Some(mapping);
        let (slots, seed) = (&self.slots, &self.seed);
        let hash =
            |slot: &u32| slots[*slot as usize].map_or(0, |mapping| internal_hash(seed, &mapping));
        self.by_internal.insert_unique(internal_hash(seed, &mapping), slot, hash);
        let hash =
            |slot: &u32| slots[*slot as usize].map_or(0, |mapping| external_hash(seed, &mapping));
        self.by_external.insert_unique(external_hash(seed, &mapping), slot, hash);
        MappingId(slot)
    }

    fn take_out(&mut self, id: MappingId) {
        let Some(mapping) = self.slots[id.0 as usize] else { return };
        let (by_internal, by_external) =
            (internal_hash(&self.seed, &mapping), external_hash(&self.seed, &mapping));
        if let Ok(found) = self.by_internal.find_entry(by_internal, |slot| *slot == id.0) {
            found.remove();
        }
        if let Ok(found) = self.by_external.find_entry(by_external, |slot| *slot == id.0) {
            found.remove();
        }
        self.slots[id.0 as usize] = None;
        self.free.push(id.0);
        self.outside[mapping.through].ports[mapping.protocol as usize]
            .release(mapping.external.port);
    }
}

fn internal_hash(seed: &FixedState, mapping: &Mapping) -> u64 {
    seed.hash_one((mapping.protocol, mapping.internal, mapping.through))
}

fn external_hash(seed: &FixedState, mapping: &Mapping) -> u64 {
    seed.hash_one((mapping.protocol, mapping.external))
}
