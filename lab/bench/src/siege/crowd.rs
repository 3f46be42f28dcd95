//! Many connections that are opened and then used as little as possible: clients that read slowly,
//! that ask slowly, or that say nothing at all.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::net::Ipv4Addr;

use super::generator::{Attack, Pace};
use super::peer::{Heard, Peer, State};
use super::wire::{ADDRESSES, Segment, Wire, address};

/// What the connections of a crowd are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// Ask for a large file and do not read it: a third closes its window, a third reads a few
    /// bytes at a time, a third takes 536 bytes every 15 s.
    SlowReaders,
    /// A request's head, a byte a second, without end ("slowloris").
    SlowSenders,
    /// Nothing; every other one asks for a small file first.
    Idle,
}

/// First port of an address.
const PORT_FIRST: u32 = 1_024;
/// Ports of an address.
const PORTS: u32 = 64_000;
/// A window that holds hardly anything.
const TINY: u16 = 100;
/// A window of one of the smallest segment that every host takes (RFC 9293 section 3.7.1).
const SMALL: u16 = 536;
const FULL: u16 = 65_535;
/// Seconds between two of its acknowledgments.
const TINY_PAUSE_S: f64 = 0.25;
const CRAWL_PAUSE_S: f64 = 15.0;
const SENDER_PAUSE_S: f64 = 1.0;
/// Seconds after which a connection that was ended is opened anew.
const AGAIN_S: f64 = 1.0;

/// A connection, and what it is about to do.
#[derive(Debug)]
struct Member {
    peer: Peer,
    generation: u32,
    /// Bytes of a head that were said.
    said: u32,
    /// A timer is set.
    is_timed: bool,
}

/// The crowd.
#[derive(Debug)]
pub(super) struct Crowd {
    behaviour: Behaviour,
    count: u32,
    pace: Pace,
    random: fastrand::Rng,
    members: Vec<Member>,
    found: HashMap<(Ipv4Addr, u16), u32>,
    /// When to look at whom, in microseconds.
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    told: BTreeMap<&'static str, u64>,
    open_now: u64,
    open_most: u64,
}

impl Crowd {
    /// So many connections, opened at so many a second.
    pub(super) fn new(behaviour: Behaviour, count: u32, per_second: u32, seed: u64) -> Self {
        Self {
            behaviour,
            count,
            pace: Pace::new(per_second),
            random: fastrand::Rng::with_seed(seed),
            members: Vec::with_capacity(count as usize),
            found: HashMap::with_capacity(count as usize),
            timers: BinaryHeap::new(),
            told: BTreeMap::new(),
            open_now: 0,
            open_most: 0,
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
    }

    fn open(&mut self, index: u32, generation: u32, now_s: f64, wire: &mut Wire) {
        let per_address = self.count.div_ceil(ADDRESSES);
        let port = PORT_FIRST + (index / ADDRESSES + generation * per_address) % PORTS;
        let window = if self.behaviour == Behaviour::SlowReaders { TINY } else { FULL };
        let peer =
            Peer::open(address(index), port as u16, self.random.u32(..), window, now_s, wire);
        self.found.insert((peer.address, peer.port), index);
        let member = Member { peer, generation, said: 0, is_timed: false };
        match self.members.get_mut(index as usize) {
            Some(place) => *place = member,
            None => self.members.push(member),
        }
        self.count("opened");
        self.set_timer(index, now_s + AGAIN_S);
    }

    fn set_timer(&mut self, index: u32, at_s: f64) {
        let member = &mut self.members[index as usize];
        if !member.is_timed {
            member.is_timed = true;
            self.timers.push(Reverse(((at_s * 1e6) as u64, index)));
        }
    }

    /// The server has answered the SYN.
    fn begin(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        self.open_now += 1;
        self.open_most = self.open_most.max(self.open_now);
        self.count("established");
        let peer = &mut self.members[index as usize].peer;
        match self.behaviour {
            Behaviour::SlowReaders => {
                peer.window = if index % 3 == 2 { SMALL } else { TINY };
                peer.say(peer.next, &request(1_000_000), wire);
            }
            Behaviour::SlowSenders => {
                peer.acknowledge(wire);
                self.set_timer(index, now_s + SENDER_PAUSE_S);
            }
            Behaviour::Idle if index.is_multiple_of(2) => peer.say(peer.next, &request(100), wire),
            Behaviour::Idle => peer.acknowledge(wire),
        }
    }

    /// Bytes have come.
    fn read(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        self.count("segments_read");
        let peer = &mut self.members[index as usize].peer;
        match (self.behaviour, index % 3) {
            (Behaviour::SlowReaders, 0) => {
                peer.window = 0;
                peer.acknowledge(wire);
            }
            (Behaviour::SlowReaders, 1) => self.set_timer(index, now_s + TINY_PAUSE_S),
            (Behaviour::SlowReaders, _) => self.set_timer(index, now_s + CRAWL_PAUSE_S),
            _ => peer.acknowledge(wire),
        }
    }

    /// Time has come for a connection.
    fn wake(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        let member = &mut self.members[index as usize];
        member.is_timed = false;
        match (member.peer.state, self.behaviour) {
            (State::Over, Behaviour::Idle) => {}
            (State::Over, _) => {
                let (generation, end) =
                    (member.generation + 1, (member.peer.address, member.peer.port));
                self.found.remove(&end);
                self.open(index, generation, now_s, wire);
            }
            (State::Opening, _) => {
                member.peer.step(now_s, wire);
                self.set_timer(index, now_s + AGAIN_S);
            }
            (State::Open, Behaviour::SlowSenders) => {
                let peer = &mut member.peer;
                if peer.acked == peer.next {
                    let head = b"GET /object-100 HTTP/1.1\r\nHost: siege\r\nX-Slow: ";
                    let byte = head.get(member.said as usize).copied().unwrap_or(b'a');
                    member.said += 1;
                    peer.say(peer.next, &[byte], wire);
                    self.count("bytes_said");
                } else {
                    // It was lost.
                    let at = peer.acked;
                    peer.say(at, b"a", wire);
                }
                self.set_timer(index, now_s + SENDER_PAUSE_S);
            }
            (State::Open, Behaviour::SlowReaders) => member.peer.acknowledge(wire),
            (State::Open, Behaviour::Idle) => {}
        }
    }
}

impl Attack for Crowd {
    fn step(&mut self, now_s: f64, wire: &mut Wire) {
        let due = self.pace.due(now_s);
        for _ in 0..due {
            let index = self.members.len() as u32;
            if index < self.count {
                self.open(index, 0, now_s, wire);
            }
        }
        let now_us = (now_s * 1e6) as u64;
        while let Some(&Reverse((at, index))) = self.timers.peek()
            && at <= now_us
        {
            self.timers.pop();
            self.wake(index, now_s, wire);
        }
    }

    fn handle(&mut self, now_s: f64, segment: Segment<'_>, wire: &mut Wire) {
        let Some(&index) = self.found.get(&segment.to) else { return };
        let before = self.members[index as usize].peer.state;
        let heard = self.members[index as usize].peer.handle(&segment);
        match heard {
            Heard::Opened => self.begin(index, now_s, wire),
            Heard::Bytes(_) => self.read(index, now_s, wire),
            Heard::Ended => {
                self.open_now = self.open_now.saturating_sub(u64::from(before == State::Open));
                let is_reset = segment.head.flags.rst();
                self.count(if is_reset { "reset_by_the_card" } else { "closed_by_the_card" });
                if !is_reset {
                    self.members[index as usize].peer.close(wire);
                }
                self.set_timer(index, now_s + AGAIN_S);
            }
            Heard::Nothing => {
                // A probe, or what did not arrive before: it is told where it stands, but by those
                // who read at their own time.
                let peer = &self.members[index as usize].peer;
                let asks = !segment.payload.is_empty() || segment.head.seq != peer.expected;
                let answers = self.behaviour != Behaviour::SlowReaders || index.is_multiple_of(3);
                if before == State::Open && asks && answers {
                    peer.acknowledge(wire);
                }
            }
        }
    }

    fn told(&self) -> BTreeMap<String, u64> {
        let mut told: BTreeMap<String, u64> =
            self.told.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
        told.insert("open_at_most".to_owned(), self.open_most);
        told.insert("open_at_the_end".to_owned(), self.open_now);
        told
    }
}

fn request(bytes: u32) -> Vec<u8> {
    format!("GET /object-{bytes} HTTP/1.1\r\nHost: siege\r\n\r\n").into_bytes()
}
