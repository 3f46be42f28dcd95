//! Everything that a seed decides before a run begins.

use nicache_card::Handshake;
use nicache_port::{Capabilities, FaultRates};

use crate::client::{Ending, SessionPlan};
use crate::device::SynChanges;
use crate::machine::MachinePlan;
use crate::random::Random;
use crate::request::RequestPlan;
use crate::server::ServerPlan;
use crate::watcher::WatcherPlan;
use crate::writer::WriterPlan;

/// Replacement policies that worlds have.
pub(crate) const POLICIES: u64 = 14;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// How wild a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One client, a perfect wire, nobody writes: hits and misses, and nothing else.
    Calm,
    /// Several clients and writers on a perfect wire.
    Writers,
    /// Few files, read all the time on a perfect wire while they are changed slowly: the moments in
    /// the middle of a change.
    Readers,
    /// A bad wire, a server and a watcher that die, small tables.
    Storm,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Calm, Self::Writers, Self::Readers, Self::Storm];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Writers => "writers",
            Self::Readers => "readers",
            Self::Storm => "storm",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// A run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    /// Who answers SYNs.
    pub handshake: Handshake,
    /// Which replacement policy, of those in `world.rs`.
    pub policy: u64,
    /// Bytes of card memory.
    pub memory_bytes: usize,
    /// Flows at most.
    pub flows: usize,
    /// Entries at most.
    pub entries: usize,
    /// Offloads of the wire port, seen from the card, and whether clients use them.
    pub wire: (Capabilities, bool),
    /// Offloads of the host port, seen from the card, and whether the host uses them.
    pub host: (Capabilities, bool),
    /// Faults of the wire in both directions: from clients, to clients.
    pub wire_faults: [FaultRates; 2],
    /// Faults of the host port: from the host, to the host.
    pub host_faults: [FaultRates; 2],
    /// Faults, deaths and writes end here.
    pub chaos_until_ns: u64,
    /// Does the card say Cache-Status?
    pub cache_status: bool,
    /// Files.
    pub files: usize,
    /// Longest file.
    pub len_max: u64,
    /// The server.
    pub server: ServerPlan,
    /// The watcher.
    pub watcher: WatcherPlan,
    /// The writers.
    pub writers: WriterPlan,
    /// Client machines with their connections.
    pub clients: Vec<(MachinePlan, Vec<SessionPlan>)>,
}

impl Scenario {
    /// The run of a seed.
    pub(crate) fn new(mode: Mode, random: &mut Random) -> Self {
        let storm = mode == Mode::Storm;
        let calm = mode == Mode::Calm;
        let handshake = random.pick(&[Handshake::PassThrough, Handshake::Card]);
        let chaos_until_ns = random.range(3, 25) * S;
        let files = random.range(4, 16) as usize;
        let len_max = random.pick(&[2000, 12_000, 40_000, 150_000]);
        let small = !calm && random.percent(50);
        let memory_bytes = if small { random.range(32, 256) << 10 } else { 4 << 20 } as usize;
        let latency_ns = random.pick(&[0, 50_000, MS, 10 * MS, 40 * MS]);
        let base = FaultRates { latency_ns, ..FaultRates::default() };
        let wire_faults = [0, 1].map(|_| if storm { bad_wire(base, 6, random) } else { base });
        let host_base =
            FaultRates { latency_ns: random.pick(&[0, 20_000, 300_000]), ..FaultRates::default() };
        let host_storm = storm && random.percent(40);
        let host_faults =
            [0, 1].map(|_| if host_storm { bad_wire(host_base, 2, random) } else { host_base });
        let clients = if calm { 1 } else { random.range(1, 3) };
        let server_timestamps = handshake == Handshake::Card || random.percent(70);
        let server_machine = MachinePlan {
            number: 1,
            mtu: 1500,
            syn: SynChanges {
                no_sack: random.percent(20),
                no_timestamps: !server_timestamps,
                no_window_scale: random.percent(20),
                no_mss: false,
                wraps_within: random.percent(60).then_some(60_000),
            },
            seed: random.word(),
            keep_alive: random.percent(20),
        };
        let mut deaths = Vec::new();
        let mut watcher_deaths = Vec::new();
        let mut losses = Vec::new();
        if storm {
            if random.percent(30) {
                let from = random.below(chaos_until_ns);
                deaths.push((from, from + random.below(3 * S) + 10 * MS, random.percent(50)));
            }
            if random.percent(35) {
                let from = random.below(chaos_until_ns);
                watcher_deaths.push((from, from + random.below(16 * S)));
            }
            losses = (0..random.pick(&[0, 0, 1, 10, 200]))
                .map(|_| random.below(chaos_until_ns))
                .collect();
        }
        // Who forgets connections without a word is found out by probes only.
        let keep_alive = storm || random.percent(20);
        let server = ServerPlan {
            machine: server_machine,
            sockets: 24,
            receive_bytes: random.pick(&[2048, 8192, 65_535, 200_000]) as usize,
            send_bytes: random.pick(&[4096, 16_384, 100_000]) as usize,
            idle_ns: random.range(1, 20) * S,
            replies_max: random.pick(&[1000, 1000, 3, 10]),
            slow_percent: if calm { 0 } else { random.pick(&[0, 10, 40]) },
            reset_percent: if storm { random.pick(&[0, 0, 3]) } else { 0 },
            chaos_until_ns,
            deaths,
        };
        let watcher = WatcherPlan {
            delay_ns_max: random.pick(&[0, 50_000, 2 * MS, 50 * MS]),
            refuse_percent: if calm { 0 } else { random.pick(&[0, 5]) },
            is_replaced: watcher_deaths.iter().any(|(from, _)| from % 2 == 1),
            deaths: watcher_deaths,
            losses,
        };
        let writers = WriterPlan {
            interval_ns: if calm { 0 } else { random.pick(&[20, 100, 500, 3000]) * MS },
            step_ns_max: random.pick(&[10_000, MS, 30 * MS]),
            // The last one is changed by requests.
            files: random.range(1, files as u64 - 1) as usize,
            len_max,
            until_ns: chaos_until_ns,
        };
        let odd_kinds =
            random.pick(&[(0, 17), (0, 31), (0, 3), (4, 5), (8, 9), (18, 23), (18, 25), (26, 31)]);
        let clients = (0..clients)
            .map(|index| {
                client(
                    index as u8 + 2,
                    mode,
                    server_timestamps,
                    keep_alive,
                    chaos_until_ns,
                    odd_kinds,
                    random,
                )
            })
            .collect();
        let scenario = Self {
            handshake,
            policy: if random.percent(35) { 0 } else { random.below(POLICIES) },
            memory_bytes,
            flows: if storm && random.percent(30) { random.range(1, 6) as usize } else { 64 },
            entries: if small && random.percent(30) { random.range(1, 8) as usize } else { 64 },
            wire: offloads(random),
            host: offloads(random),
            wire_faults,
            host_faults,
            chaos_until_ns,
            cache_status: random.percent(30),
            files,
            len_max,
            server,
            watcher,
            writers,
            clients,
        };
        if mode == Mode::Readers { scenario.read_all_the_time(random) } else { scenario }
    }

    fn read_all_the_time(mut self, random: &mut Random) -> Self {
        self.memory_bytes = 4 << 20;
        self.entries = 64;
        self.wire_faults
            .iter_mut()
            .chain(&mut self.host_faults)
            .for_each(|rates| rates.latency_ns = 50_000);
        self.server.slow_percent = 0;
        self.watcher = WatcherPlan { delay_ns_max: 2 * MS, refuse_percent: 0, ..self.watcher };
        self.writers.interval_ns = random.pick(&[50, 200]) * MS;
        self.writers.step_ns_max = random.pick(&[30, 200]) * MS;
        self.writers.files = 2;
        let sessions = self.clients.iter_mut().flat_map(|(_, sessions)| sessions);
        for session in sessions {
            session.requests = 150;
            session.depth = 1;
            session.pause_ns_max = 10 * MS;
            session.read_pause_ns_max = 0;
            session.receive_bytes = 65_535;
            session.asks = RequestPlan { popular: 2, ..RequestPlan::default() };
        }
        self
    }
}

fn offloads(random: &mut Random) -> (Capabilities, bool) {
    match random.below(3) {
        0 => (Capabilities::PLAIN, false),
        1 => (Capabilities { checksum: true, ..Capabilities::PLAIN }, true),
        _ => (Capabilities::FULL, true),
    }
}

fn bad_wire(base: FaultRates, percent_max: u64, random: &mut Random) -> FaultRates {
    let mut rate = |max: u64| {
        if random.percent(60) { random.below(max * 10 + 1) as f64 / 1000.0 } else { 0.0 }
    };
    FaultRates {
        loss: rate(percent_max),
        duplicate: rate(percent_max),
        reorder: rate(percent_max * 2),
        reorder_ns: 20 * MS,
        corrupt: rate(2),
        delay: rate(2),
        delay_ns: 200 * MS,
        ..base
    }
}

fn client(
    number: u8,
    mode: Mode,
    timestamps: bool,
    keep_alive: bool,
    until_ns: u64,
    odd_kinds: (u64, u64),
    random: &mut Random,
) -> (MachinePlan, Vec<SessionPlan>) {
    let calm = mode == Mode::Calm;
    let machine = MachinePlan {
        number,
        mtu: random.pick(&[1500, 1500, 1500, 1400, 576, 296]),
        syn: SynChanges {
            no_sack: random.percent(20),
            no_timestamps: !timestamps || random.percent(25),
            no_window_scale: random.percent(25),
            no_mss: false,
            wraps_within: random.percent(60).then_some(1500),
        },
        seed: random.word(),
        keep_alive,
    };
    let asks = RequestPlan {
        popular: random.range(1, 6),
        odd_percent: if calm { 10 } else { random.pick(&[0, 20, 60]) },
        odd_kinds,
    };
    let ports = random.pick(&[3, 100]);
    let sessions = (0..random.range(2, if calm { 3 } else { 8 })).map(|index| {
        let pipelines = random.percent(50);
        SessionPlan {
            start_ns: random.below(until_ns),
            port: 40_000 + (index % ports) as u16,
            requests: random.range(1, 14) as u32,
            depth: if pipelines { random.range(2, 12) as usize } else { 1 },
            split_percent: random.pick(&[0, 30, 90]),
            pause_ns_max: random.pick(&[0, MS, 50 * MS, 2 * S]),
            read_pause_ns_max: if calm { 0 } else { random.pick(&[0, 0, 0, 20 * MS, 300 * MS]) },
            receive_bytes: random.pick(&[1000, 4096, 16_384, 65_535, 65_535, 300_000]) as usize,
            ending: if calm {
                Ending::Close
            } else {
                random.pick(&[
                    Ending::Close,
                    Ending::Close,
                    Ending::HalfClose,
                    Ending::Wait,
                    Ending::Abort,
                ])
            },
            asks,
        }
    });
    (machine, sessions.collect())
}
