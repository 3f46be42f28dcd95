//! Conversations whose frames are changed on their way ([`Tamper`]), and frames of random bytes
//! between them.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv4Addr;

use super::generator::{Attack, Pace};
use super::peer::{Heard, Peer, State};
use super::tamper::{Tamper, random_frame};
use super::wire::{Segment, Wire, address};

/// Conversations at a time.
const CONVERSATIONS: u32 = 64;
/// Seconds without progress after which the last request is repeated, and how often.
const PAUSE_S: f64 = 0.05;
const REPEATS: u8 = 3;
/// Requests of a conversation at most.
const REQUESTS: u8 = 6;
const PORT_FIRST: u32 = 1_024;
const PORTS: u32 = 64_000;
const WINDOW: u16 = 65_535;

/// A conversation.
#[derive(Debug)]
struct Talk {
    peer: Peer,
    request: Vec<u8>,
    progress_s: f64,
    repeats: u8,
    requests: u8,
}

/// The attack.
#[derive(Debug)]
pub(super) struct Mutants {
    /// Looks at the conversations, so there is an end to what they send.
    looks: Pace,
    noise: Pace,
    random: fastrand::Rng,
    tamper: Option<Tamper>,
    talks: Vec<Option<Talk>>,
    found: HashMap<(Ipv4Addr, u16), u32>,
    opened: u32,
    told: BTreeMap<&'static str, u64>,
    changes: BTreeMap<String, u64>,
}

impl Mutants {
    /// So many steps of conversations a second, and as many random frames.
    pub(super) fn new(per_second: u32, seed: u64) -> Self {
        Self {
            looks: Pace::new(per_second),
            noise: Pace::new(per_second / 2),
            random: fastrand::Rng::with_seed(seed),
            tamper: Some(Tamper::new(seed ^ 1)),
            talks: (0..CONVERSATIONS).map(|_| None).collect(),
            found: HashMap::new(),
            opened: 0,
            told: BTreeMap::new(),
            changes: BTreeMap::new(),
        }
    }

    fn count(&mut self, what: &'static str) {
        *self.told.entry(what).or_default() += 1;
    }

    /// Looks at one conversation.
    fn look(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        let Some(talk) = &mut self.talks[index as usize] else {
            return self.open(index, now_s, wire);
        };
        talk.peer.step(now_s, wire);
        if talk.peer.state == State::Open && now_s > talk.progress_s + PAUSE_S {
            talk.progress_s = now_s;
            talk.repeats += 1;
            if talk.repeats <= REPEATS {
                let (at, request) = (talk.peer.acked, talk.request.clone());
                talk.peer.say(at, &request, wire);
                return;
            }
            match self.random.u8(..4) {
                0 => talk.peer.close(wire),
                1 => talk.peer.reset(wire),
                // Nobody hears of it again.
                _ => talk.peer.state = State::Over,
            }
        }
        if talk.peer.state == State::Over
            || talk.peer.state == State::Opening && now_s > talk.progress_s + 2.0
        {
            self.found.remove(&(talk.peer.address, talk.peer.port));
            self.talks[index as usize] = None;
        }
    }

    fn open(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        // Few addresses, so ports are used again while the card remembers them.
        let port = PORT_FIRST + (self.opened / 16) % PORTS;
        let from = address(self.opened % 16);
        self.opened += 1;
        let peer = Peer::open(from, port as u16, self.random.u32(..), WINDOW, now_s, wire);
        self.found.insert((from, port as u16), index);
        self.talks[index as usize] =
            Some(Talk { peer, request: Vec::new(), progress_s: now_s, repeats: 0, requests: 0 });
        self.count("conversations");
    }

    fn ask(&mut self, index: u32, now_s: f64, wire: &mut Wire) {
        let request = any_request(&mut self.random);
        let Some(talk) = &mut self.talks[index as usize] else { return };
        (talk.repeats, talk.progress_s) = (0, now_s);
        talk.requests += 1;
        talk.peer.say(talk.peer.next, &request, wire);
        talk.request = request;
        self.count("requests");
    }
}

impl Attack for Mutants {
    fn step(&mut self, now_s: f64, wire: &mut Wire) {
        wire.tamper = wire.tamper.take().or_else(|| self.tamper.take());
        for _ in 0..self.looks.due(now_s) {
            let index = self.random.u32(..CONVERSATIONS);
            self.look(index, now_s, wire);
        }
        let (_, server_mac, server) = wire.ends();
        for _ in 0..self.noise.due(now_s) {
            let frame = random_frame(&mut self.random, server_mac, server.octets());
            wire.send_raw(&frame);
            self.count("random_frames");
        }
        if let Some(tamper) = &wire.tamper {
            self.changes = tamper.told();
        }
    }

    fn handle(&mut self, now_s: f64, segment: Segment<'_>, wire: &mut Wire) {
        let Some(&index) = self.found.get(&segment.to) else { return };
        let Some(talk) = &mut self.talks[index as usize] else { return };
        match talk.peer.handle(&segment) {
            Heard::Opened => self.ask(index, now_s, wire),
            Heard::Bytes(_) => {
                talk.progress_s = now_s;
                talk.peer.acknowledge(wire);
                let is_done = talk.requests >= REQUESTS;
                // The end of a reply is a guess: some requests come before it, as with pipelining.
                if segment.payload.len() < 1_400 && !is_done {
                    self.ask(index, now_s, wire);
                }
                self.count("segments_with_bytes");
            }
            Heard::Ended => {
                if !segment.head.flags.rst() {
                    talk.peer.close(wire);
                }
                self.count("ended_by_the_card");
            }
            Heard::Nothing if !segment.payload.is_empty() => talk.peer.acknowledge(wire),
            Heard::Nothing => {}
        }
    }

    fn told(&self) -> BTreeMap<String, u64> {
        let mut told: BTreeMap<String, u64> =
            self.told.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
        told.extend(self.changes.clone());
        told
    }
}

/// A request, often one that is a hit.
fn any_request(random: &mut fastrand::Rng) -> Vec<u8> {
    let path = ["/object-100", "/object-100", "/object-10000", "/object-1000000", "/nothing"];
    let path = random.choice(path).unwrap_or("/object-100");
    let query = if random.u8(..8) == 0 {
        format!("?mutant-{}", random.u32(..1_000))
    } else {
        String::new()
    };
    let (method, more) = match random.u8(..16) {
        0 => ("HEAD", String::new()),
        1 => ("POST", "Content-Length: 5\r\n".to_owned()),
        2 => ("GET", format!("Range: bytes={}-{}\r\n", random.u32(..200), random.u32(..20_000))),
        3 => ("GET", "Range: bytes=0-9,20-29,50-\r\n".to_owned()),
        4 => ("GET", "Connection: close\r\n".to_owned()),
        5 => ("GET", format!("Cookie: session={}\r\n", random.u32(..))),
        _ => ("GET", String::new()),
    };
    let request = format!("{method} {path}{query} HTTP/1.1\r\nHost: siege\r\n{more}\r\n");
    let body = if method == "POST" { "hello" } else { "" };
    let once = format!("{request}{body}");
    if random.u8(..8) == 0 { once.repeat(3).into_bytes() } else { once.into_bytes() }
}
