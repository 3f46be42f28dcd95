//! Figure 7: sixteen streams of TCP through the forwarder, by its own card and host code on a
//! virtual clock.
//!
//! ```text
//!  clients ─ link ─▶ card (firmware) ─▶ queue (engine) ─▶ CPU: one packet at a time (forwarder) ─▶ card ─ link ─▶ server
//!     ▲────── link ─────────────────────── acknowledgments take the same way back ────────────────────────── link ─┘
//! ```
//!
//! Frames are real: the card splits them, the engine binds entries to them, the forwarder rewrites
//! them, and what the card can no longer send from its cache is decided there. The fitted model of
//! the machine ([`super::machine`]) says only how long the CPU takes for each. Ends are those of
//! [`super::endpoint`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, IoSlice};
use std::sync::Arc;

use nicache_bus::{Attachment, Window};
use nicache_crossing::BusClass;
use nicache_firmware::Firmware;
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::pcache::Order;
use nicache_forward::services::{BackEnd, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Forwarder};
use nicache_port::{Burst, Capabilities, MemoryPort, Offload, Port, memory_wire};
use nicache_tcp::Time;
use nicache_tcp::checksum::{finish, sum};
use serde::{Deserialize, Serialize};

use super::endpoint::{DELAYED_NS, Receiver, Sender, TIMEOUT_NS};
use super::machine::Machine;

const STREAMS: usize = 16;
/// Four clients have four streams each.
const CLIENTS: usize = 4;
/// What an end takes for a packet: half of what Table 2 has for one without a forwarder, less the
/// link's time.
const END_NS: u64 = 35_000;
/// A link of 1 Gb/s.
const LINK_NS_PER_BYTE: u64 = 8;
const HEAD_BYTES: usize = 54;
/// Receives that are posted at once, whose entries are not in what the figure calls the cache.
const POSTS: u32 = 32;
const QUEUE: usize = 400;
const BUFFERS: u32 = 2048;
const PAGE_BYTES: u64 = 4096;
const CLIENT_MAC: [u8; 6] = [4, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [4, 0, 0, 0, 0, 2];

/// A run with streams of TCP through the forwarder.
#[derive(Debug, Clone, Copy)]
pub struct StreamsConfig {
    /// How payload is forwarded.
    pub mode: Mode,
    /// Bytes of the card's cache, beside what is posted.
    pub cache_bytes: u64,
    /// Bytes of payload in a segment.
    pub segment_bytes: u64,
    /// Virtual time before it counts, and while it counts, in milliseconds.
    pub milliseconds: (u64, u64),
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamsOutcome {
    /// Payload that arrived in order, in megabytes per second.
    pub mb_per_s: f64,
    /// Share of payload that was sent from the card, of what should have been, 0 to 1.
    pub hit_rate: f64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets dropped because the card had lost their payload (DIRECT).
    pub lost: u64,
    /// Entries fetched to main memory before they were taken (spill, adaptive).
    pub spilled: u64,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A frame comes to the card.
    Card {
        port: u8,
        frame: Vec<u8>,
    },
    /// A segment comes to the server.
    Server {
        stream: usize,
        at: u64,
        len: u64,
    },
    /// An acknowledgment comes to a client.
    Client {
        stream: usize,
        ack: u64,
    },
    CpuDone,
    Delayed {
        stream: usize,
    },
    Timeout {
        stream: usize,
        acks: u64,
    },
}

/// From where to where.
#[derive(Debug, Clone, Copy)]
enum Link {
    In,
    ToServer,
    Back,
    ToClients,
}

struct Simulation {
    config: StreamsConfig,
    machine: Machine,
    card: Firmware<MemoryPort>,
    wires: [MemoryPort; 2],
    engine: Engine<Bus>,
    forwarder: Forwarder,
    burst: Burst,
    senders: Vec<Sender>,
    /// Acknowledgments of something new, by stream: for timeouts.
    acks: [u64; STREAMS],
    receivers: Vec<Receiver>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    numbered: u64,
    links: [u64; 4],
    is_cpu_busy: bool,
    /// Bytes of payload that had crossed the bus when the CPU was last charged.
    crossed: u64,
    now: u64,
}

/// Runs it.
///
/// # Errors
/// There is no memory for card and host.
pub fn simulate(machine: &Machine, config: &StreamsConfig) -> io::Result<StreamsOutcome> {
    let mut it = Simulation::new(machine, config)?;
    for stream in 0..STREAMS {
        it.send(stream);
        it.add(it.now + TIMEOUT_NS, Event::Timeout { stream, acks: 0 });
    }
    let (warm, length) = (config.milliseconds.0 * 1_000_000, config.milliseconds.1 * 1_000_000);
    it.run(warm)?;
    let (received, before) = (it.received(), *it.engine.counters());
    it.run(warm + length)?;
    let (gained, after) = (it.received() - received, *it.engine.counters());
    let (card, memory) =
        (after.card_bytes - before.card_bytes, after.memory_bytes - before.memory_bytes);
    let lost = after.lost - before.lost;
    Ok(StreamsOutcome {
        mb_per_s: gained as f64 / length as f64 * 1e3,
        hit_rate: card as f64 / ((card + memory + lost * config.segment_bytes) as f64).max(1.0),
        queue_full: after.queue_full - before.queue_full,
        lost,
        spilled: after.spilled - before.spilled,
    })
}

impl Simulation {
    fn new(machine: &Machine, config: &StreamsConfig) -> io::Result<Self> {
        let entries = (config.cache_bytes / PAGE_BYTES) as u32 + POSTS;
        let attachment = Attachment::create()?;
        let mut files = Vec::new();
        for file in attachment.files() {
            files.push(file.try_clone_to_owned()?);
        }
        let files =
            files.try_into().map_err(|_| io::Error::other("an attachment has three files"))?;
        let window =
            Arc::new(Window::create("nicache-yocum", Bus::window_bytes(BUFFERS) as usize)?);
        let seen = Arc::new(Window::map(window.file().try_clone_to_owned()?)?);
        let jumbo = Capabilities { frame_bytes_max: 9200, ..Capabilities::FULL };
        let (first, inside) = memory_wire(64, jumbo, jumbo);
        let (second, outside) = memory_wire(64, jumbo, jumbo);
        let side = Attachment::from_files(files)?.card();
        let card = Firmware::with_ports(
            vec![first, second],
            side,
            seen,
            entries * PAGE_BYTES as u32,
            None,
        )?;
        let interface = |port: u8, address: [u8; 4]| Interface {
            port,
            tags: Default::default(),
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(address.into(), 24)],
            mtu: 9000,
            masquerade: Vec::new(),
        };
        let mut setup =
            Config::new(vec![interface(0, [10, 1, 0, 1]), interface(1, [192, 0, 2, 1])], 5);
        setup.services = vec![ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new([10, 1, 0, 100], 80),
            back_ends: vec![BackEnd { endpoint: Endpoint::new([192, 0, 2, 2], 80), weight: 1 }],
            masquerade: None,
            by_name: None,
        }];
        let mut forwarder = Forwarder::new(setup, Time::ZERO).map_err(io::Error::other)?;
        forwarder.set_neighbour(1, [192, 0, 2, 2].into(), SERVER_MAC);
        for client in 0..CLIENTS {
            forwarder.set_neighbour(0, [10, 1, 0, 2 + client as u8].into(), CLIENT_MAC);
        }
        let setup = EngineConfig {
            mode: config.mode,
            order: Order::Mru,
            entries,
            buffers: BUFFERS,
            posts: POSTS,
            queue: QUEUE,
        };
        Ok(Self {
            config: *config,
            machine: *machine,
            card,
            wires: [inside, outside],
            engine: Engine::new(Bus::new(attachment.host(), window, BUFFERS), setup),
            forwarder,
            burst: Burst::new(16),
            senders: vec![Sender::new(config.segment_bytes); STREAMS],
            acks: [0; STREAMS],
            receivers: vec![Receiver::default(); STREAMS],
            events: BinaryHeap::new(),
            numbered: 0,
            links: [0; 4],
            is_cpu_busy: false,
            crossed: 0,
            now: 0,
        })
    }

    fn received(&self) -> u64 {
        self.receivers.iter().map(Receiver::received).sum()
    }

    fn add(&mut self, at: u64, event: Event) {
        self.numbered += 1;
        self.events.push(Reverse((at, self.numbered, event)));
    }

    /// When so many bytes have crossed a link, behind what is on it already.
    fn cross(&mut self, link: Link, bytes: usize) -> u64 {
        let free = &mut self.links[link as usize];
        *free = self.now.max(*free) + bytes as u64 * LINK_NS_PER_BYTE;
        *free
    }

    fn run(&mut self, until: u64) -> io::Result<()> {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= until) {
            let Some(Reverse((at, _, event))) = self.events.pop() else { break };
            self.now = at;
            match event {
                Event::Card { port, frame } => {
                    let parts = [IoSlice::new(&frame)];
                    // A wire that is full is a card without buffers: the frame is lost.
                    let _ = self.wires[usize::from(port)].send(&parts, Offload::default());
                    self.turn()?;
                    self.start_cpu()?;
                }
                Event::CpuDone => {
                    self.is_cpu_busy = false;
                    self.turn()?;
                    self.take_sent()?;
                    self.start_cpu()?;
                }
                Event::Server { stream, at, len } => {
                    if self.receivers[stream].handle(at, len) {
                        self.acknowledge(stream);
                    } else {
                        self.add(self.now + DELAYED_NS, Event::Delayed { stream });
                    }
                }
                Event::Delayed { stream } => {
                    if self.receivers[stream].time_out() {
                        self.acknowledge(stream);
                    }
                }
                Event::Client { stream, ack } => {
                    if self.senders[stream].handle(ack) {
                        self.acks[stream] += 1;
                        let acks = self.acks[stream];
                        self.add(self.now + TIMEOUT_NS, Event::Timeout { stream, acks });
                    }
                    self.send(stream);
                }
                Event::Timeout { stream, acks } => {
                    if self.acks[stream] == acks {
                        self.senders[stream].time_out();
                        self.add(self.now + TIMEOUT_NS, Event::Timeout { stream, acks });
                        self.send(stream);
                    }
                }
            }
        }
        self.now = until;
        Ok(())
    }

    /// Card and host take what is there.
    fn turn(&mut self) -> io::Result<()> {
        for _ in 0..2 {
            self.card.turn(self.now).map_err(|error| io::Error::other(error.to_string()))?;
            self.engine.poll().map_err(|error| io::Error::other(error.to_string()))?;
        }
        Ok(())
    }

    /// The packet that has waited longest, if the CPU has nothing else to do.
    fn start_cpu(&mut self) -> io::Result<()> {
        if self.is_cpu_busy || self.engine.queued() == 0 {
            return Ok(());
        }
        let before = *self.engine.counters();
        let forwarded = self.engine.forward(&mut self.forwarder, 1, Time(self.now), || 1);
        forwarded.map_err(|error| io::Error::other(error.to_string()))?;
        let after = *self.engine.counters();
        let (card, memory) =
            (after.card_bytes - before.card_bytes, after.memory_bytes - before.memory_bytes);
        let is_lost = after.lost > before.lost;
        let payload = if is_lost { self.config.segment_bytes } else { card + memory };
        let content = self.card.bus().of(BusClass::Content);
        let crossed = match self.config.mode {
            Mode::Copy | Mode::Pcache => payload + memory,
            Mode::Direct => memory,
            // Only the card knows when it crossed, and how often: what has since the last packet.
            Mode::Spill | Mode::Adaptive => content - self.crossed,
        };
        self.crossed = content;
        let bus_bytes = crossed + 2 * HEAD_BYTES as u64;
        let pages = payload.div_ceil(PAGE_BYTES) as f64;
        let machine = &self.machine;
        let us = machine.packet_us
            + pages * machine.page_us
            + machine.stalled * machine.bus_us(bus_bytes, 1);
        self.is_cpu_busy = true;
        self.add(self.now + (us * 1e3) as u64, Event::CpuDone);
        Ok(())
    }

    /// What has left the card.
    fn take_sent(&mut self) -> io::Result<()> {
        let mut burst = std::mem::replace(&mut self.burst, Burst::new(0));
        for side in 0..2 {
            while self.wires[side].receive(&mut burst)? > 0 {
                for frame in &burst {
                    let data = frame.data();
                    let word = |at: usize| {
                        u64::from(u32::from_be_bytes(data[at..at + 4].try_into().expect("four")))
                    };
                    let port =
                        |at: usize| usize::from(u16::from_be_bytes([data[at], data[at + 1]]));
                    let (link, event) = if side == 1 {
                        let len = (data.len() - HEAD_BYTES) as u64;
                        (
                            Link::ToServer,
                            Event::Server { stream: port(34) - 1000, at: word(38), len },
                        )
                    } else {
                        (Link::ToClients, Event::Client { stream: port(36) - 1000, ack: word(42) })
                    };
                    let at = self.cross(link, data.len()) + END_NS;
                    self.add(at, event);
                }
            }
        }
        self.burst = burst;
        Ok(())
    }

    fn send(&mut self, stream: usize) {
        while let Some(at) = self.senders[stream].poll() {
            let payload = self.config.segment_bytes as usize;
            let ends = (client(stream), ([10, 1, 0, 100], 80));
            let frame = frame(0, ends, (at, 1), payload);
            let arrives = self.cross(Link::In, frame.len());
            self.add(arrives, Event::Card { port: 0, frame });
        }
    }

    fn acknowledge(&mut self, stream: usize) {
        let ends = (([192, 0, 2, 2], 80), client(stream));
        let frame = frame(1, ends, (1, self.receivers[stream].received()), 0);
        let arrives = self.cross(Link::Back, frame.len()) + END_NS;
        self.add(arrives, Event::Card { port: 1, frame });
    }
}

type End = ([u8; 4], u16);

fn client(stream: usize) -> End {
    ([10, 1, 0, 2 + (stream % CLIENTS) as u8], 1000 + stream as u16)
}

/// A segment to the forwarder's interface.
fn frame(interface: u8, (from, to): (End, End), (seq, ack): (u64, u64), payload: usize) -> Vec<u8> {
    let mut frame = vec![0; HEAD_BYTES + payload];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 1, interface]);
    frame[6..12].copy_from_slice(if interface == 0 { &CLIENT_MAC } else { &SERVER_MAC });
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&((HEAD_BYTES - 14 + payload) as u16).to_be_bytes());
    frame[20..24].copy_from_slice(&[0x40, 0, 64, 6]);
    frame[26..30].copy_from_slice(&from.0);
    frame[30..34].copy_from_slice(&to.0);
    let checksum = finish(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    frame[34..36].copy_from_slice(&from.1.to_be_bytes());
    frame[36..38].copy_from_slice(&to.1.to_be_bytes());
    frame[38..42].copy_from_slice(&(seq as u32).to_be_bytes());
    frame[42..46].copy_from_slice(&(ack as u32).to_be_bytes());
    frame[46..50].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    frame
}
