//! Later fragments go where the first one went (RFC 791 section 3.2, RFC 8200 section 4.5): they
//! have no ports to be judged by.
//!
//! Nothing is put together, and nothing is held: a later fragment that comes before the first one
//! is dropped and counted. What is remembered is bounded, and the oldest goes first.

use std::hash::BuildHasher;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use nicache_tcp::Time;

use crate::conntrack::ConnectionId;
use crate::rules::{Asked, Ruled};
use crate::tcp_track::Direction;
use crate::view::View;

/// How long fragments of a packet may come behind the first one: as long as Linux puts one
/// together.
const LASTS: Duration = Duration::from_secs(30);

/// What tells packets in pieces apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    id: u32,
    interface: usize,
}

/// What became of a first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It went from one address to another.
    Forwarded {
        /// Its new source.
        source: IpAddr,
        /// Its new destination.
        destination: IpAddr,
    },
    /// It went to all of a group.
    FannedOut(usize),
    /// It was dropped.
    Dropped,
}

/// What a first fragment came under: later ones, which have no ports, come under the same.
#[derive(Clone, Copy, Debug)]
pub struct Under {
    /// The rule.
    pub ruled: Ruled,
    /// By what that was found, in case there are other rules now.
    pub asked: Asked,
    /// The connection, if it belonged to one, and the direction.
    pub connection: Option<(ConnectionId, Direction)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    fate: Fate,
    under: Under,
    since: Time,
}

/// Remembers where the first fragments of packets went, to send later ones, which have no ports,
/// the same way. Bounded; the oldest goes first.
#[derive(Debug)]
pub struct Fragments {
    /// A ring: the next one to be written over is the oldest.
    ring: Vec<Option<Entry>>,
    next: usize,
    index: HashTable<u32>,
    seed: FixedState,
}

impl Fragments {
    /// So many packets in pieces are remembered.
    pub fn new(most: u32, seed: u64) -> Self {
        Self {
            ring: vec![None; most.max(1) as usize],
            next: 0,
            index: HashTable::with_capacity(most as usize),
            seed: FixedState::with_seed(seed),
        }
    }

    /// The first fragment of a packet has come, and this became of it.
    pub fn remember(&mut self, view: &View, interface: usize, fate: Fate, under: Under, now: Time) {
        let Some(key) = key(view, interface) else { return };
        let entry = Entry { key, fate, under, since: now };
        if let Some(place) = self.place(&key) {
            self.ring[place] = Some(entry);
            return;
        }
        let place = self.next;
        self.next = (self.next + 1) % self.ring.len();
        if let Some(old) = self.ring[place].take() {
            let hash = self.seed.hash_one(old.key);
            if let Ok(found) = self.index.find_entry(hash, |other| *other as usize == place) {
                found.remove();
            }
        }
        self.ring[place] = Some(entry);
        let (ring, seed) = (&self.ring, &self.seed);
        let rehash =
            |place: &u32| ring[*place as usize].map_or(0, |entry| seed.hash_one(entry.key));
        self.index.insert_unique(seed.hash_one(key), place as u32, rehash);
    }

    /// What a later fragment has to follow. `None`: its first one is not known.
    pub fn find(&self, view: &View, interface: usize, now: Time) -> Option<(Fate, Under)> {
        let entry = self.ring[self.place(&key(view, interface)?)?]?;
        (now.since(entry.since) <= LASTS).then_some((entry.fate, entry.under))
    }

    fn place(&self, key: &Key) -> Option<usize> {
        let is_it = |place: &u32| self.ring[*place as usize].is_some_and(|entry| entry.key == *key);
        self.index.find(self.seed.hash_one(key), is_it).map(|place| *place as usize)
    }
}

fn key(view: &View, interface: usize) -> Option<Key> {
    let id = view.fragment?.id;
    Some(Key {
        source: view.source,
        destination: view.destination,
        protocol: view.protocol,
        id,
        interface,
    })
}
