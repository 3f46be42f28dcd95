//! The engine with the real firmware behind it, on a bus that is slow enough for commands to wait
//! while frames come.
//!
//! Payloads describe themselves: each begins with a number that the ports repeat, and all of its
//! bytes follow from that number (invariant F1).

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::net::IpAddr;
use std::sync::Arc;

use nicache_bus::{Attachment, BusClass, BusModel, Meter, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_port::{Burst, Capabilities, MemoryPort, Port, memory_wire};
use nicache_tcp::checksum::{add, finish, sum};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::bus::Bus;
use crate::config::Config;
use crate::fan_out::Group;
use crate::interface::Interface;
use crate::nat::{External, Filtering};
use crate::tuple::Endpoint;
use crossing::Counting;

const CLIENT: &str = "10.1.0.2";
const SERVER: &str = "192.0.2.2";
const OURS: &str = "192.0.2.1";
const GROUP: &str = "10.1.0.200";
const TARGETS: u16 = 3;
const TARGETS_MAX: u16 = 64;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

struct World {
    card: Firmware<MemoryPort>,
    inside: MemoryPort,
    outside: MemoryPort,
    engine: Engine<Counting>,
    forwarder: Forwarder,
    now_ns: u64,
    /// What has left, by number: how often, and whether all of it was right.
    left: BTreeMap<u32, Vec<Result<(), String>>>,
    /// Numbers whose payload was changed on the way.
    changed: BTreeMap<u32, ()>,
}

fn config(mode: Mode, entries: u32) -> EngineConfig {
    EngineConfig { mode, order: Order::Mru, entries, buffers: 256, posts: 12, queue: 64 }
}

/// Clients inside, a server outside, and a group with so many targets, all of them there.
fn setup(targets: u16) -> Config {
    let interface = |port: u8, ours: &str, masquerade| Interface {
        port,
        tags: Default::default(),
        mac: [2, 0, 0, 0, 1, port],
        addresses: vec![(address(ours), 24)],
        mtu: 9000,
        masquerade,
    };
    let mut setup =
        Config::new(vec![interface(0, "10.1.0.1", vec![]), interface(1, OURS, vec![0])], 5);
    setup.externals = vec![External {
        address: address(OURS),
        ports: 1..=65_535,
        filtering: Filtering::default(),
    }];
    let target = |number: u16| Endpoint::new(address(SERVER), 60_000 + number);
    setup.groups = vec![Group {
        address: Endpoint::new(address(GROUP), 9),
        targets: (0..targets).map(target).collect(),
        source: Some(Endpoint::new(address(OURS), 77)),
    }];
    setup
}

impl World {
    fn new(config: EngineConfig, bytes_per_s: Option<f64>) -> Self {
        let made = Attachment::create().unwrap();
        let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
        let window =
            Arc::new(Window::create("test", Bus::window_bytes(config.buffers) as usize).unwrap());
        let seen = Arc::new(Window::map(window.file().try_clone_to_owned().unwrap()).unwrap());
        let jumbo = Capabilities { frame_bytes_max: 9200, ..Capabilities::FULL };
        let (first, inside) = memory_wire(64, jumbo, jumbo);
        let (second, outside) = memory_wire(64, jumbo, jumbo);
        let model = bytes_per_s.map(|bytes_per_s| BusModel {
            bytes_per_s,
            burst_bytes: 4096,
            overhead_bytes: 0,
        });
        let meter = model.map(|model| Arc::new(Meter::create(model).unwrap()));
        let side = Attachment::from_files(files).unwrap().card();
        let card =
            Firmware::with_ports(vec![first, second], side, seen, config.entries * 4096, meter)
                .unwrap();
        let mut forwarder = Forwarder::new(setup(TARGETS), Time::ZERO).unwrap();
        forwarder.set_neighbour(1, address(SERVER), [4, 0, 0, 0, 0, 2]);
        let engine =
            Engine::new(Counting::new(Bus::new(made.host(), window, config.buffers)), config);
        Self {
            card,
            inside,
            outside,
            engine,
            forwarder,
            now_ns: 0,
            left: BTreeMap::new(),
            changed: BTreeMap::new(),
        }
    }

    /// A frame from inside, of which the payload follows from its number.
    fn inject(&mut self, number: u32, len: usize, to_group: bool) {
        let payload = payload(number, len.max(8));
        let (to, port) = if to_group {
            (address(GROUP), 9)
        } else {
            (address(SERVER), 1000 + (number % 50_000) as u16)
        };
        self.inject_to(number, to, port, &payload);
    }

    fn inject_to(&mut self, number: u32, to: IpAddr, port: u16, payload: &[u8]) {
        let frame = udp(address(CLIENT), number as u16 % 60_000 + 1, to, port, payload);
        let _ = self.inside.send(&[IoSlice::new(&frame)], Offload::default());
    }

    fn card_turn(&mut self, ns: u64) {
        self.now_ns += ns;
        self.card.turn(self.now_ns).unwrap();
        self.look();
    }

    /// What has come out.
    fn look(&mut self) {
        let mut burst = Burst::new(8);
        while self.outside.receive(&mut burst).unwrap() > 0 {
            for frame in &burst {
                let data = frame.data();
                // Not a question for a neighbour.
                if data[12..14] != [8, 0] {
                    continue;
                }
                let number = u32::from_be_bytes(data[42..46].try_into().unwrap());
                let is_changed = self.changed.contains_key(&number);
                let right = check(data, number, is_changed);
                self.left.entry(number).or_default().push(right);
            }
        }
    }

    fn forward(&mut self, most: usize) {
        self.engine.forward(&mut self.forwarder, most, Time(self.now_ns), || 1).unwrap();
    }

    /// Takes a frame out of the queue, changes its payload in main memory, and puts it back.
    fn change(&mut self) {
        if let Some(frame) = self.engine.take() {
            let number = self.number_of(&frame);
            if let Some(number) = number
                && !self.changed.contains_key(&number)
            {
                // The last byte of the first part.
                let piece = frame
                    .pieces
                    .iter()
                    .find(|piece| piece.frame_at + piece.len >= 50)
                    .copied()
                    .unwrap();
                let at = piece.frame_at + piece.len - 1;
                if self.engine.change(&frame, at, &[!byte(number, at - 42)]).unwrap() {
                    self.changed.insert(number, ());
                }
            }
            self.engine.put_back(frame);
        }
    }

    fn number_of(&self, frame: &Frame) -> Option<u32> {
        let piece = frame
            .pieces
            .iter()
            .find(|piece| piece.frame_at <= 42 && 46 <= piece.frame_at + piece.len)?;
        let mut number = [0; 4];
        let at = piece.at + (42 - piece.frame_at) as u32;
        self.engine.backend.read(piece.buffer, at, &mut number).unwrap();
        Some(u32::from_be_bytes(number))
    }

    /// Until nothing is under way.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.engine.poll().unwrap();
            self.forward(64);
            let is_idle = matches!(self.card.turn(self.now_ns).unwrap(), Progress::Idle);
            self.now_ns += 2_000_000;
            self.look();
            if is_idle && self.engine.queued() == 0 && self.engine.under_way() == 0 {
                self.engine.poll().unwrap();
                return;
            }
        }
        panic!("it goes on and on: {:?}", self.engine.counters());
    }

    fn wrong(&self) -> Vec<String> {
        self.left.values().flatten().filter_map(|right| right.clone().err()).collect()
    }

    /// Nothing is left over: each buffer is free or posted, each entry in a queue or posted.
    fn check_rest(&self) {
        let free = self.engine.free_buffers() + self.engine.posted as usize;
        assert_eq!(free, self.engine.config.buffers as usize, "buffers");
        assert_eq!(self.engine.precious, 0);
        let entries = (0..self.engine.pcache.entries()).map(crate::pcache::EntryId);
        let pending = entries.filter(|entry| self.engine.pcache.queue(*entry).is_none()).count();
        assert!(pending <= self.engine.posted as usize, "{pending} entries are pending");
    }
}

fn byte(number: u32, at: usize) -> u8 {
    (number as usize * 31 + at * 7 + at / 251) as u8
}

fn payload(number: u32, len: usize) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..len).map(|at| byte(number, at)).collect();
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload
}

fn udp(source: IpAddr, from: u16, destination: IpAddr, to: u16, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (source, destination) else {
        panic!("IPv4 here")
    };
    let mut frame = vec![2, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((28 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(source.octets());
    frame.extend(destination.octets());
    let field = finish(sum(&frame[14..34]));
    frame[24..26].copy_from_slice(&field.to_be_bytes());
    let len = 8 + payload.len() as u16;
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend(len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    let pseudo = add(add(sum(&source.octets()), sum(&destination.octets())), add(17, len));
    // A sum of 0 is sent as its other form: 0 says that there is none (RFC 768).
    let field = match finish(add(pseudo, sum(&frame[34..]))) {
        0 => 0xffff,
        field => field,
    };
    frame[40..42].copy_from_slice(&field.to_be_bytes());
    frame
}

/// Whether ports, checksum and payload belong together.
fn check(frame: &[u8], number: u32, is_changed: bool) -> Result<(), String> {
    let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let is_to_target = (60_000..60_000 + TARGETS_MAX).contains(&word(36));
    // What goes to a group has one source; its checksum belongs to the payload that it came with.
    let is_own =
        word(34) == number as u16 % 60_000 + 1 && word(36) == 1000 + (number % 50_000) as u16;
    let is_of_group = is_to_target && word(34) == 77;
    if !is_own && !is_of_group {
        return Err(format!("{number} with the ports {} and {}", word(34), word(36)));
    }
    let payload = &frame[42..];
    let is_own = |at: usize| payload[at] == byte(number, at) || at < 4;
    let odd: Vec<usize> = (0..payload.len()).filter(|at| !is_own(*at)).collect();
    match (is_changed, odd.len()) {
        // A change was made in main memory before the send.
        (true, 1) => return Ok(()),
        (false, 0) => {}
        _ => return Err(format!("{number} of {} bytes has others at {odd:?}", payload.len())),
    }
    let len = payload.len() as u16 + 8;
    let pseudo = add(sum(&frame[26..34]), add(17, len));
    match nicache_tcp::checksum::same(add(pseudo, sum(&frame[34..])), 0xffff) {
        true => Ok(()),
        false => Err(format!("{number} has a wrong checksum")),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Inject { len: usize, count: u32, to_group: bool },
    Card(u64),
    Poll,
    Forward(usize),
    Change,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![0usize..200, 900usize..1500, 3000usize..8800];
    let step = prop_oneof![
        5 => (len, 1u32..8, any::<bool>())
            .prop_map(|(len, count, to_group)| Step::Inject { len, count, to_group }),
        6 => (0u64..1_500_000).prop_map(Step::Card),
        6 => Just(Step::Poll),
        5 => (1usize..12).prop_map(Step::Forward),
        2 => Just(Step::Change),
    ];
    proptest::collection::vec(step, 20..120)
}

fn run(world: &mut World, steps: &[Step]) -> u32 {
    let mut number = 0;
    for step in steps {
        match *step {
            Step::Inject { len, count, to_group } => {
                for _ in 0..count {
                    world.inject(number, len, to_group);
                    number += 1;
                }
            }
            Step::Card(ns) => world.card_turn(ns),
            Step::Poll => world.engine.poll().unwrap(),
            Step::Forward(most) => world.forward(most),
            Step::Change => world.change(),
        }
    }
    number
}

/// Bytes per second of a bus on which commands have to wait, with what a mode takes over it.
fn slow(mode: Mode) -> Option<f64> {
    Some(if matches!(mode, Mode::Copy | Mode::Pcache) { 20e6 } else { 0.4e6 })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// F1 and F4: whatever the order of turns, no frame leaves with another packet's bytes; spill
    /// and adaptive lose nothing for lack of cache; and nothing is left over.
    #[test]
    fn no_frame_leaves_with_other_bytes(steps in steps(), mode in 0usize..5, entries in 14u32..64) {
        let mode = Mode::ALL[mode];
        let mut world = World::new(config(mode, entries), slow(mode));
        run(&mut world, &steps);
        world.settle();
        prop_assert_eq!(world.wrong(), Vec::<String>::new());
        let counters = *world.engine.counters();
        prop_assert_eq!((counters.refused, counters.refused_receipts), (0, 0));
        if mode != Mode::Direct {
            prop_assert_eq!(counters.lost, 0);
        }
        prop_assert_eq!(world.card.counters().receive_refused, 0);
        world.check_rest();
        // F9: what the card counts by class is what host and card gave each other to copy, and what
        // the host reads of it. How many transfers that took is the card's affair.
        let told = world.engine.backend().bus.side().counted.read();
        prop_assert_eq!(told, *world.card.bus());
        prop_assert_eq!(told.bytes, world.engine.backend().crossed.bytes);
    }
}

/// F1's mutants: each of the three rules alone is found to be needed.
#[test]
fn each_rule_that_is_left_out_is_found() {
    let run_mutant = |adjust: fn(&mut World), mode: Mode| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let (mut wrong, mut refused) = (0, 0);
        for _ in 0..60 {
            let steps = steps().new_tree(&mut runner).unwrap().current();
            let mut world = World::new(config(mode, 16), slow(mode));
            adjust(&mut world);
            run(&mut world, &steps);
            for _ in 0..200 {
                world.engine.poll().unwrap();
                world.forward(64);
                world.card_turn(2_000_000);
            }
            wrong += world.wrong().len();
            refused += world.engine.counters().refused;
        }
        (wrong, refused)
    };
    for mode in [Mode::Pcache, Mode::Direct] {
        assert_eq!(run_mutant(|_| {}, mode), (0, 0), "{mode}: no mutant");
        // Without the rule of release: generations catch the host, and nothing wrong leaves.
        let (wrong, refused) = run_mutant(|world| world.engine.forgets_release_rule = true, mode);
        assert!(wrong == 0 && refused > 0, "{mode}, release: {wrong} {refused}");
        // Without generations, too: other bytes leave.
        let (wrong, _) = run_mutant(
            |world| {
                world.engine.forgets_release_rule = true;
                world.engine.backend().bus.forgets_generations = true;
            },
            mode,
        );
        assert!(wrong > 0, "{mode}, generations");
    }
    // Without the end of a binding at a change: the bytes of before leave.
    let (wrong, _) =
        run_mutant(|world| world.engine.pcache_mut().ignores_changes = true, Mode::Pcache);
    assert!(wrong > 0, "changes");
}

/// The papers' figure for a packet of 1448 bytes, with headers of 54: 3068, 1620 and 172 bytes over
/// the bus.
#[test]
fn bytes_over_the_bus_for_a_packet() {
    for (mode, bytes) in [
        (Mode::Copy, 3068),
        (Mode::Pcache, 1620),
        (Mode::Direct, 172),
        (Mode::Spill, 172),
        (Mode::Adaptive, 172),
    ] {
        let mut world = World::new(config(mode, 64), None);
        world.settle();
        world.inject(1, 1460, false);
        world.settle();
        let before = *world.card.bus();
        let count = 50;
        for number in 0..count {
            // Headers of UDP are 12 bytes shorter than those of TCP.
            world.inject(number, 1448, false);
            world.settle();
        }
        let crossed = world.card.bus().since(&before);
        assert_eq!(
            crossed.total() + u64::from(count) * 24,
            u64::from(count) * bytes,
            "{mode}: {crossed:?}"
        );
        assert!(world.wrong().is_empty() && world.left.len() >= 50);
    }
}

/// However small the cache is, as long as it has more entries than are posted: spill and adaptive
/// lose nothing, and direct does.
#[test]
fn nothing_is_lost_for_lack_of_cache() {
    for mode in [Mode::Spill, Mode::Adaptive, Mode::Pcache, Mode::Direct] {
        for entries in [1, 12, 13, 20, 40] {
            let mut world = World::new(config(mode, entries), None);
            for round in 0..20 {
                for number in 0..30 {
                    world.inject(round * 30 + number, 1000 + 40 * number as usize, false);
                }
                // They wait until all have come.
                for _ in 0..6 {
                    world.card_turn(1000);
                    world.engine.poll().unwrap();
                }
                world.settle();
            }
            let counters = world.engine.counters();
            assert!(world.wrong().is_empty(), "{mode} {entries}: {:?}", world.wrong());
            let left = world.left.len();
            if mode == Mode::Direct {
                assert!(entries > 36 || left < 600, "{entries}: {left}");
                assert_eq!(left as u64 + counters.lost, 600, "{entries}");
            } else {
                assert_eq!((left, counters.lost), (600, 0), "{mode} {entries}: {counters:?}");
            }
        }
    }
}

/// Who does not answer delays nobody else, and what waits for it counts as dropped, once, when it
/// is given up.
#[test]
fn one_neighbour_does_not_delay_others() {
    let mut world = World::new(config(Mode::Pcache, 32), None);
    world.settle();
    let (dead, cold) = (address("192.0.2.50"), address("192.0.2.60"));
    for number in 1..=41 {
        let to = if number == 41 { cold } else { dead };
        world.inject_to(number, to, 1000 + number as u16, &payload(number, 100));
        if number % 8 == 0 || number == 41 {
            world.settle();
        }
    }
    let dropped =
        |world: &World| world.forwarder.counters().dropped_for(crate::counters::Drop::Neighbour);
    assert_eq!(dropped(&world), 37, "three wait");
    world.forwarder.learn_neighbour(1, cold, [4, 0, 0, 0, 0, 6], Time(world.now_ns));
    world.settle();
    assert_eq!(world.left[&41].len(), 1);
    assert!(world.wrong().is_empty());
    world.now_ns += 2_000_000_000;
    world.settle();
    assert_eq!((dropped(&world), world.engine.counters().waited_in_vain), (40, 40));
    let counters = world.forwarder.counters();
    assert_eq!((counters.packets, counters.forwarded), (41, 1));
}

/// What is too long for the targets of a group is told to its sender, once.
#[test]
fn a_sender_to_many_hears_once() {
    let mut world = World::new(config(Mode::Pcache, 32), None);
    world.settle();
    let mut setup = setup(TARGETS);
    setup.interfaces[1].mtu = 1000;
    world.forwarder = Forwarder::new(setup, Time::ZERO).unwrap();
    world.forwarder.set_neighbour(1, address(SERVER), [4, 0, 0, 0, 0, 2]);
    for number in 1..=2 {
        world.inject(number, 2000, true);
        world.settle();
        let (mut burst, mut told) = (Burst::new(8), 0);
        while world.inside.receive(&mut burst).unwrap() > 0 {
            // ICMP: too long, and may not be cut.
            told += burst.iter().filter(|frame| frame.data()[23] == 1).count();
            assert!(burst.iter().all(|frame| frame.data()[34..36] == [3, 4]));
        }
        assert_eq!(told, 1);
    }
    assert!(world.left.is_empty());
}

/// If there is no room for all targets of a group, those that get nothing count, and are the first
/// the next time.
#[test]
fn more_targets_than_there_is_room_for() {
    targets_without_room(500, 9000);
}

/// The same where each target gets several pieces: one that does not get all of them counts, too.
#[test]
fn more_targets_than_there_is_room_for_in_pieces() {
    // Of some lengths the room ends between two targets, of others between two pieces.
    for len in (8000..9000).step_by(100) {
        targets_without_room(len, 68);
    }
}

fn targets_without_room(len: usize, mtu: u32) {
    let targets = 700;
    let mut world = World::new(config(Mode::Pcache, 32), None);
    world.settle();
    let mut setup = setup(targets);
    setup.interfaces[1].mtu = mtu;
    let pieces =
        if len > mtu as usize { (len + 8).div_ceil((mtu as usize - 20) & !7) as u64 } else { 1 };
    world.forwarder = Forwarder::new(setup, Time::ZERO).unwrap();
    world.forwarder.set_neighbour(1, address(SERVER), [4, 0, 0, 0, 0, 2]);
    let frame = |number| {
        let mut frame = udp(address(CLIENT), 7, address(GROUP), 9, &payload(number, len));
        // May be cut (RFC 791 section 3.1).
        frame[20] = 0;
        frame[24..26].fill(0);
        let field = finish(sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&field.to_be_bytes());
        frame
    };
    let (mut unsent, mut complete, mut came) = (0, 0, 0);
    for number in 1..=2 {
        world.inside.send(&[IoSlice::new(&frame(number))], Offload::default()).unwrap();
        while world.engine.queued() == 0 {
            world.card.turn(world.now_ns).unwrap();
            world.now_ns += 2_000_000;
            world.engine.poll().unwrap();
        }
        world.forward(1);
        let forwarded = world.forwarder.counters().forwarded;
        unsent = world.engine.counters().queue_full;
        assert_eq!(world.engine.fan_first as u64, forwarded % u64::from(targets));
        // What was sent goes, whoever takes it.
        let mut burst = Burst::new(64);
        while world.engine.under_way() > 0 {
            world.card.turn(world.now_ns).unwrap();
            world.now_ns += 2_000_000;
            while world.outside.receive(&mut burst).unwrap() > 0 {
                for frame in &burst {
                    came += 1;
                    // More pieces follow (RFC 791 section 3.1).
                    complete += u64::from(frame.data()[20] & 0x20 == 0);
                }
            }
            world.engine.poll().unwrap();
        }
        assert_eq!(complete + unsent, u64::from(targets) * number as u64);
        assert!(came >= pieces * complete && came < pieces * (complete + number as u64 + 1));
        assert_eq!(world.engine.counters().sent, came);
    }
    // The second time others than the first time.
    let least = if pieces == 1 { u64::from(targets) } else { 0 };
    assert!(complete > least && unsent > 0, "{complete} {unsent}");
}

/// One payload to several: it crosses once, or not at all, whatever the number of targets.
#[test]
fn a_multicast_crosses_once() {
    for (mode, crossings) in
        [(Mode::Pcache, 1), (Mode::Direct, 0), (Mode::Spill, 0), (Mode::Adaptive, 0)]
    {
        for targets in [2, TARGETS, 8, 16, 32, TARGETS_MAX] {
            let mut world = World::new(config(mode, 32), None);
            world.settle();
            world.forwarder = Forwarder::new(setup(targets), Time::ZERO).unwrap();
            world.forwarder.set_neighbour(1, address(SERVER), [4, 0, 0, 0, 0, 2]);
            let before = *world.card.bus();
            world.inject(1, 4000, true);
            world.settle();
            assert_eq!(world.left[&1].len(), usize::from(targets), "{mode}");
            assert!(world.wrong().is_empty());
            assert_eq!(
                world.card.bus().since(&before).of(BusClass::Content),
                crossings * 4000,
                "{mode}, {targets} targets"
            );
        }
    }
}

mod bench;
mod crossing;
mod receipts;
mod sleeping;
mod spilling;
mod sums;
