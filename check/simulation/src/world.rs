//! One run: everything in one thread on one clock that jumps to the next thing that is due.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nicache_cache::{AgeBounds, FillAbort, PathSettings, Paths, Store};
use nicache_card::{Card, CardConfig, Handshake};
use nicache_coherence::{RefusalReason, RevisionTable};
use nicache_http::KeyConfig;
use nicache_memory::{CardMemory, HugePages};
use nicache_policy::{
    Clock, Fifo, Gdsf, Lfu, Lirs, Lrfu, Lru, Policy, Popularity, PopularityConfig, S3Fifo, Sieve,
    TwoQ, WTinyLfu,
};
use nicache_port::{FaultConfig, FaultRates, Faulty, ManualClock, MemoryPort, memory_wire};
use nicache_tcp::Time;

use crate::client::Client;
use crate::events::Events;
use crate::files::{Files, SharedFiles, unix_s};
use crate::host_log::{HostLog, SharedLog};
use crate::link::Link;
use crate::machine::{mac, set_timestamp_clock};
use crate::mutant::Mutant;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::scenario::{Mode, POLICIES, Scenario};
use crate::server::{SERVICE_PORT, Server};
use crate::trace::Trace;
use crate::watcher::{Watcher, WatcherLink};
use crate::writer::Writers;

/// Frames that a wire holds in one direction.
const WIRE_FRAMES: usize = 128;
/// How long, after the end of all faults, nothing may happen on connections that are not over.
const PATIENCE_NS: u64 = 1_500_000_000_000;
/// How long the card may remember what nobody uses: its longest idle time and some.
const FORGET_NS: u64 = 9_000_000_000_000;
/// After this long no verdict is waited for.
const VERDICTS_NS: u64 = 10_000_000_000;
/// Rounds at one instant; more mean that two parties talk to each other for ever.
const ROUNDS_MAX: u32 = 20_000;
/// Instants in a row at which somebody was due before; more mean that it cannot do what it is due
/// for.
const SPINS_MAX: u32 = 10_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was found wrong.
    pub violations: Vec<String>,
    /// What happened.
    pub events: Events,
    /// Virtual time at the end.
    pub ended_ns: u64,
}

/// Runs one seed. A mutant is a fault put into the models; a trace prints every frame.
pub fn run(mode: Mode, seed: u64, mutant: Option<Mutant>, trace: bool) -> Outcome {
    let mut world = World::new(mode, seed, mutant, trace);
    world.run();
    world.finish()
}

struct World {
    scenario: Scenario,
    clock: ManualClock,
    now_ns: u64,
    card: Card<MemoryPort, MemoryPort>,
    wire: Link,
    host: Link,
    clients: Vec<Client>,
    server: Server,
    watcher: Watcher,
    writers: Writers,
    oracle: Oracle,
    table: Arc<RevisionTable>,
    log: SharedLog,
    trace: Trace,
    chaos: bool,
    memory_free_bytes: u64,
    spins: u32,
}

impl World {
    fn new(mode: Mode, seed: u64, mutant: Option<Mutant>, trace: bool) -> Self {
        let mut random = Random::new(seed);
        let scenario = Scenario::new(mode, &mut random);
        let clock = ManualClock::new(0);
        set_timestamp_clock(0);
        let files: SharedFiles =
            Rc::new(RefCell::new(Files::new(scenario.files, scenario.len_max, &mut random)));
        let log: SharedLog = Rc::new(RefCell::new(HostLog::default()));
        let table = RevisionTable::on_heap();
        let watcher_link = WatcherLink::default();
        let (wire_port, wire) = link(scenario.wire, scenario.wire_faults, &clock, &mut random);
        let (host_port, host) = link(scenario.host, scenario.host_faults, &clock, &mut random);
        let store = store(&scenario, Arc::clone(&table));
        let memory_free_bytes = store.memory().free_bytes();
        let secret = std::array::from_fn(|_| random.word() as u8);
        let mut config = CardConfig::new(
            vec![SERVICE_PORT],
            scenario.memory_bytes,
            KeyConfig::new(secret),
            secret,
        );
        config.handshake = scenario.handshake;
        config.flows = scenario.flows;
        config.entries = scenario.entries;
        config.cache_status = scenario.cache_status;
        // Whatever is wrong here is to last.
        let ages = AgeBounds::fixed(Duration::from_secs(86_400));
        config.paths = Paths::new(PathSettings { ages, ..PathSettings::default() }, Vec::new());
        let card =
            Card::new(wire_port, host_port, config, store, Box::new(watcher_link.clone()), Time(0));
        let clients = scenario
            .clients
            .iter()
            .map(|(machine, sessions)| {
                let (files, log) = (Rc::clone(&files), Rc::clone(&log));
                Client::new(*machine, sessions.clone(), files, log, random.fork(), mutant)
            })
            .collect();
        let server = Server::new(
            scenario.server.clone(),
            Rc::clone(&files),
            Rc::clone(&log),
            random.fork(),
            mutant,
        );
        let watcher = Watcher::new(
            watcher_link,
            Arc::clone(&table),
            Rc::clone(&files),
            scenario.watcher.clone(),
            random.fork(),
            mutant,
        );
        let writers = Writers::new(
            scenario.writers,
            Rc::clone(&files),
            Arc::clone(&table),
            random.fork(),
            mutant,
        );
        Self {
            clock,
            now_ns: 0,
            card,
            wire,
            host,
            clients,
            server,
            watcher,
            writers,
            oracle: Oracle::new(files, Rc::clone(&log), scenario.cache_status),
            table,
            log,
            trace: Trace(trace),
            chaos: true,
            memory_free_bytes,
            spins: 0,
            scenario,
        }
    }

    fn run(&mut self) {
        if self.trace.0 {
            eprintln!("{:#?}", self.scenario);
        }
        while !self.clients.iter().all(Client::is_done) {
            self.settle();
            // The hosts' TCP may need a retransmission timeout for every lost segment of a window.
            let progress_ns =
                self.clients.iter().map(|client| client.progress_ns).max().unwrap_or(0);
            let deadline_ns = progress_ns.max(self.scenario.chaos_until_ns) + PATIENCE_NS;
            if self.now_ns > deadline_ns {
                let open: Vec<String> =
                    self.clients.iter().flat_map(Client::describe_open).collect();
                self.violation(format!(
                    "I6: connections stall: {open:#?}, at the server {:#?}",
                    self.server.describe_open()
                ));
                return;
            }
            if !self.log.borrow().violations.is_empty() || !self.advance(deadline_ns) {
                break;
            }
        }
        let forget_ns = self.now_ns + FORGET_NS;
        while self.log.borrow().violations.is_empty()
            && self.card.flows() > 0
            && self.now_ns < forget_ns
        {
            self.settle();
            self.advance(forget_ns + 1);
        }
    }

    fn violation(&self, text: String) {
        self.log.borrow_mut().violation(text);
    }

    /// Lets everybody act until nobody moves at this instant.
    fn settle(&mut self) {
        for round in 0.. {
            if !self.round() {
                return;
            }
            if round > ROUNDS_MAX {
                self.violation(format!("I6: no end at {} ns", self.now_ns));
                return;
            }
        }
    }

    fn round(&mut self) -> bool {
        let now_ns = self.now_ns;
        self.writers.poll(now_ns);
        self.watcher.poll(now_ns);
        if let Some((table, link)) = self.watcher.take_new() {
            self.writers.record_in(&table);
            self.card.begin_watched(Arc::clone(&table), Box::new(link));
            self.table = table;
        }
        self.oracle.lapses.clone_from(&self.watcher.lapses);
        self.oracle.lapses.extend(self.watcher.open_lapse(now_ns));
        self.oracle.lost_ns.clone_from(&self.watcher.lost_ns);
        let followed = self.card.followed().filter_map(|(address, port)| match address {
            std::net::IpAddr::V4(address) => Some((address.to_bits(), port)),
            std::net::IpAddr::V6(_) => None,
        });
        self.oracle.followed = followed.collect();
        let mut moved = false;
        for client in &mut self.clients {
            moved |= client.poll(now_ns, &mut self.oracle);
            for frame in &client.machine.station.outgoing {
                self.trace.frame(now_ns, "client >", frame);
            }
            self.wire.send(&mut client.machine.station.outgoing);
        }
        self.wire.flush();
        self.host.flush();
        match self.card.poll(Time(now_ns), unix_s(now_ns)) {
            Ok(handled) => moved |= handled > 0,
            Err(error) => self.violation(format!("the card broke: {error}")),
        }
        moved |= self.deliver_to_clients();
        moved |= self.deliver_to_host();
        moved |= self.server.poll(now_ns);
        for lookup in self.server.take_lookups() {
            self.watcher.observe(lookup);
        }
        for slot in self.server.changes.drain(..) {
            self.table.record_change(slot);
        }
        self.note_ends();
        self.host.send(&mut self.server.machine.station.outgoing);
        moved
    }

    fn deliver_to_clients(&mut self) -> bool {
        let (clients, trace, now_ns) = (&mut self.clients, self.trace, self.now_ns);
        let mut too_long = None;
        let count = self.wire.receive(|frame| {
            trace.frame(now_ns, "card >w", &frame);
            let everybody = frame[0] & 1 != 0;
            for client in clients.iter_mut() {
                if everybody || frame[..6] == client.machine.mac() {
                    if frame.len() > client.machine.station.mtu() + 14 {
                        too_long = Some(frame.len());
                    }
                    client.machine.station.incoming.push_back(frame.clone());
                }
            }
        });
        if let Some(len) = too_long {
            self.violation(format!(
                "I6: a frame of {len} bytes is longer than the client's segments may be at {now_ns} ns"
            ));
        }
        count > 0
    }

    fn deliver_to_host(&mut self) -> bool {
        let (server, trace, now_ns) = (&mut self.server, self.trace, self.now_ns);
        let count = self.host.receive(|frame| {
            trace.frame(now_ns, "card >h", &frame);
            if frame[0] & 1 != 0 || frame[..6] == mac(1) {
                server.machine.station.incoming.push_back(frame);
            }
        });
        count > 0
    }

    /// Notes at which connections the host has sent FIN or RST.
    fn note_ends(&mut self) {
        let mut log = self.log.borrow_mut();
        for frame in &self.server.machine.station.outgoing {
            self.trace.frame(self.now_ns, "host >", frame);
            let ends = frame.len() >= 54
                && frame[12..14] == [8, 0]
                && frame[23] == 6
                && frame[47] & 5 != 0;
            if ends {
                let peer = (
                    u32::from_be_bytes([frame[30], frame[31], frame[32], frame[33]]),
                    u16::from_be_bytes([frame[36], frame[37]]),
                );
                log.ends.entry(peer).or_default().push(self.now_ns);
            }
        }
    }

    /// Jumps to the next thing that is due, at most to `limit_ns`. False: nothing ever is.
    fn advance(&mut self, limit_ns: u64) -> bool {
        let now_ns = self.now_ns;
        let card =
            self.card.next_due().map(|due| if due.0 == 0 { now_ns + 20_000_000 } else { due.0 });
        let mut due = [
            card,
            self.wire.due_ns(),
            self.host.due_ns(),
            self.writers.due_ns(),
            self.watcher.due_ns(now_ns),
        ]
        .into_iter()
        .flatten()
        .min();
        for client in &mut self.clients {
            due = [due, client.due_ns(now_ns)].into_iter().flatten().min();
        }
        due = [due, self.server.due_ns(now_ns)].into_iter().flatten().min();
        if self.chaos {
            due =
                Some(due.map_or(self.scenario.chaos_until_ns, |due| {
                    due.min(self.scenario.chaos_until_ns)
                }));
        }
        let Some(due) = due else {
            self.now_ns = limit_ns + 1;
            return true;
        };
        self.spins = if due <= now_ns { self.spins + 1 } else { 0 };
        if self.spins > SPINS_MAX {
            let clients: Vec<_> =
                self.clients.iter_mut().map(|client| client.due_ns(now_ns)).collect();
            let text = format!(
                "I6: somebody is due for ever at {now_ns} ns: card {card:?}, clients {clients:?}, server {:?}, watcher {:?}, wires {:?}",
                self.server.due_ns(now_ns),
                self.watcher.due_ns(now_ns),
                (self.wire.due_ns(), self.host.due_ns(), self.writers.due_ns()),
            );
            self.violation(text);
        }
        // Whole microseconds, the grain of smoltcp's clock.
        self.now_ns = due.clamp(now_ns + 1000, limit_ns + 1000).next_multiple_of(1000);
        self.clock.set_ns(self.now_ns);
        set_timestamp_clock(self.now_ns);
        if self.chaos && self.now_ns >= self.scenario.chaos_until_ns {
            self.chaos = false;
            self.wire.calm(self.scenario.wire_faults[0].latency_ns);
            self.host.calm(self.scenario.host_faults[0].latency_ns);
        }
        true
    }

    fn finish(mut self) -> Outcome {
        self.check_resources();
        self.count();
        let violations = std::mem::take(&mut self.log.borrow_mut().violations);
        Outcome { violations, events: self.oracle.events, ended_ns: self.now_ns }
    }

    /// I7 and I9, once every connection is over.
    fn check_resources(&mut self) {
        let counters = self.card.counters();
        if counters.bus.total() != counters.bus.sum_of_classes() {
            self.violation("I9: the classes do not add up".into());
        }
        if !self.log.borrow().violations.is_empty() {
            return;
        }
        if self.card.flows() > 0 {
            self.violation(format!("I7: {} flows are never forgotten", self.card.flows()));
            return;
        }
        // Verdicts that are under way come, or never will.
        let until_ns = self.now_ns + VERDICTS_NS;
        while self.now_ns < until_ns {
            self.settle();
            self.advance(until_ns);
        }
        for _ in 0..100 {
            self.settle();
            if self.host.due_ns().is_none() {
                break;
            }
            self.advance(self.now_ns + 1_000_000_000);
        }
        self.card.purge(|_| true);
        let in_use = self.card.in_use();
        let memory = self.card.store().memory();
        if in_use.holds > 0
            || in_use.fills > 0
            || in_use.pinned_entries > 0
            || in_use.entries > 0
            || in_use.part_sets > 0
        {
            self.violation(format!("I7: still in use: {in_use:?}"));
        }
        if memory.free_bytes() != self.memory_free_bytes || memory.used_bytes() != 0 {
            self.violation(format!("I7: {} bytes of card memory are lost", memory.used_bytes()));
        }
        self.check_bus();
    }

    /// What the card counted is what crossed.
    fn check_bus(&self) {
        let clean = self.scenario.host_faults.iter().all(|rates| {
            *rates == FaultRates { latency_ns: rates.latency_ns, ..FaultRates::default() }
        });
        let bus = &self.card.counters().bus;
        let (frames, bytes) =
            (self.host.sent.0 + self.host.received.0, self.host.sent.1 + self.host.received.1);
        let overhead = nicache_card::bus::FRAME_OVERHEAD_BYTES;
        let faults = self.host.faults();
        let whole = self.host.refused + faults.overflowed + faults.refused == 0;
        if clean && whole && (bus.frames() != frames || bus.total() != bytes + overhead * frames) {
            let counted = (bus.frames(), bus.total() - overhead * bus.frames());
            let text = format!(
                "I9: {counted:?} frames and bytes counted, {:?} crossed, to the host {:?}, from the host {:?}: {bus:?}",
                (frames, bytes),
                self.host.received,
                self.host.sent,
            );
            self.violation(text);
        }
    }

    fn count(&mut self) {
        let counters = self.card.counters();
        let events = &mut self.oracle.events;
        let aborted = |reason: FillAbort| counters.cache.fills_aborted[reason.index()];
        let refused = |reason: RefusalReason| counters.cache.fills_refused[reason.index()];
        events.add("hits", counters.hits);
        events.add("hits_of_head", counters.hits_head);
        events.add("hits_not_modified", counters.hits_not_modified);
        events.add("hits_range", counters.hits_range);
        events.add("hits_ranges", counters.hits_ranges);
        events.add("invalidations", counters.invalidations);
        events.add("waits_collapsed", counters.cache.waits_collapsed);
        events.add(
            "bypass_range",
            counters.bypasses_by_card[nicache_card::CardBypass::Range.index()],
        );
        events.add("misses", counters.misses);
        events.add("bypass_request", counters.bypasses_by_request.iter().sum());
        events.add(
            "bypass_lease",
            counters.bypasses_by_card[nicache_card::CardBypass::Lease.index()],
        );
        events.add(
            "bypass_conditional",
            counters.bypasses_by_card[nicache_card::CardBypass::Conditional.index()],
        );
        events.add("card_retransmits", counters.retransmits);
        events.add("evictions", counters.cache.evictions);
        events.add("purges", counters.cache.purges_by_source);
        events.add("fills_stored", counters.cache.fills_stored);
        events.add("fills_not_shared", counters.cache.fills_not_shared.iter().sum());
        events.add("fill_changed_at_insert", aborted(FillAbort::ChangedAtInsert));
        events.add("fill_incomplete", aborted(FillAbort::Incomplete));
        events.add("fill_no_verdict", aborted(FillAbort::NoVerdict));
        events.add("fills_refused_changed", refused(RefusalReason::Changed));
        events.add("fills_refused_events_lost", refused(RefusalReason::EventsLost));
        events.add("fills_refused_no_matching_file", refused(RefusalReason::NoMatchingFile));
        events.add("fills_refused_open_for_writing", refused(RefusalReason::OpenForWriting));
        events.add("flows_opaque", counters.flows_opaque);
        events.add("flows_untracked", counters.flows_untracked);
        events.add("server_idle_closes_absorbed", counters.host_ends_absorbed);
        let faults = self.wire.faults();
        events.add("frames_lost", faults.lost);
        events.add("frames_duplicated", faults.duplicated);
        events.add("frames_reordered", faults.reordered);
        events.add("frames_corrupted", faults.corrupted);
        events.add("frames_delayed", faults.delayed);
        events.add("super_frames_from_card", self.wire.super_frames.1);
        events.add("super_frames_from_host", self.host.super_frames.0);
        let server = self.server.counts();
        events.add("host_connections", server.connections);
        events.add("server_idle_closes", server.idle_closes);
        events.add("server_resets", server.resets);
        events.add("server_deaths", server.deaths);
        events.add("slow_replies", server.slow);
        events.add("replies_chunked", server.chunked);
        events.add("replies_close_delimited", server.close_delimited);
        events.add("replies_interim", server.interim);
        events.add("replies_range", server.ranges.0);
        events.add("replies_ranges", server.ranges.1);
        events.add("replies_failed", server.failed);
        events.add("changed_by_request", server.changed_by_request);
        events.add("private_replies", server.private);
        events.add("not_found", server.not_found);
        events.add("writes_during_reply", server.changed_during_reply);
        events.add("sequence_wraps_host", self.server.machine.station.wraps);
        events.add("watcher_deaths", self.watcher.deaths);
        events.add("watchers_replaced", self.watcher.replacements);
        events.add("lookup_events_lost", self.watcher.lost_ns.len() as u64);
        events.add("writes", self.writers.writes.0);
        events.add("writes_by_rename", self.writers.writes.1);
        events.add("directories_disturbed", self.writers.disturbed);
        events.add("reinstated", counters.cache.reinstated);
        for (client, (machine, _)) in self.clients.iter().zip(&self.scenario.clients) {
            let counts = &client.counts;
            events.add("connections", counts.opened);
            let by_card = self.scenario.handshake == Handshake::Card;
            events.add("connections_card_handshake", if by_card { counts.opened } else { 0 });
            events.add(
                "connections_without_sack",
                if machine.syn.no_sack { counts.opened } else { 0 },
            );
            events.add(
                "connections_without_timestamps",
                if machine.syn.no_timestamps { counts.opened } else { 0 },
            );
            events.add(
                "connections_without_window_scale",
                if machine.syn.no_window_scale { counts.opened } else { 0 },
            );
            events.add("client_aborts", counts.aborts);
            events.add("contents_continued", counts.continued);
            events.add("client_half_closes", counts.half_closes);
            events.add("client_port_reused", counts.reused);
            events.add("client_zero_window", counts.zero_windows);
            events.add("replies_partial_excused", counts.excused);
            events.add("sequence_wraps_client", client.machine.station.wraps);
        }
    }
}

fn link(
    (capabilities, used): (nicache_port::Capabilities, bool),
    [send, receive]: [FaultRates; 2],
    clock: &ManualClock,
    random: &mut Random,
) -> (MemoryPort, Link) {
    let theirs = if used { capabilities } else { nicache_port::Capabilities::PLAIN };
    let (card, machines) = memory_wire(WIRE_FRAMES, capabilities, theirs);
    let faults = FaultConfig { seed: random.word(), receive, send, queue_frames: WIRE_FRAMES };
    (card, Link::new(Faulty::new(machines, &faults, clock.clone()), theirs.tso, theirs.checksum))
}

fn store(scenario: &Scenario, table: Arc<RevisionTable>) -> Store {
    let memory =
        CardMemory::new(scenario.memory_bytes, HugePages::No).expect("memory for the card");
    let (bytes, entries) = (memory.free_bytes(), scenario.entries as u32);
    let policy: Box<dyn Policy> = match scenario.policy % POLICIES {
        0 => {
            let mut config = PopularityConfig::new(bytes, entries);
            config.period = std::time::Duration::from_secs(1);
            Box::new(Popularity::new(&config))
        }
        1 => Box::new(Fifo::new(bytes, entries)),
        2 => Box::new(Lfu::new(bytes, entries)),
        3 => Box::new(Clock::new(bytes, entries)),
        4 => Box::new(nicache_policy::Random::new(bytes, entries, scenario.policy)),
        5 => Box::new(TwoQ::new(bytes, entries)),
        6 => Box::new(Lrfu::new(bytes, entries)),
        7 => Box::new(nicache_policy::Arc::new(bytes, entries)),
        8 => Box::new(Lirs::new(bytes, entries)),
        9 => Box::new(Gdsf::new(bytes, entries)),
        10 => Box::new(WTinyLfu::new(bytes, entries)),
        11 => Box::new(S3Fifo::new(bytes, entries)),
        12 => Box::new(Sieve::new(bytes, entries)),
        _ => Box::new(Lru::new(bytes, entries)),
    };
    Store::new(memory, policy, table, scenario.entries)
}
