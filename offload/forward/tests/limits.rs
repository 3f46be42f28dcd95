//! Tables that are bounded (F6), connections that strangers do not disturb (F7), and back ends that
//! come and go.

mod packets;
mod switching;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nicache_forward::conntrack::{Limits, Phase};
use nicache_forward::copying::Copying;
use nicache_forward::fan_out::Group;
use nicache_forward::rules::{Action, Rule};
use nicache_forward::services::{BackEnd, Chosen, Health, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Decision, Drop, Head, Incoming};
use nicache_port::{Burst, Capabilities, Offload, Port, memory_wire};
use nicache_tcp::Time;
use packets::*;
use proptest::prelude::*;
use world::*;

const LIMITS: Limits = Limits { connections: 64, opening: 16 };

fn tcp(client: usize, port: u16, flags: u8, seq: u32, ack: u32) -> Recipe {
    let recipe = Recipe::new(TCP, (address(CLIENTS[client]), port), (address(SERVERS[0]), 80));
    Recipe { tcp: (seq, ack, flags), ..recipe }
}

/// What the server sends to whoever it sees.
fn tcp_back(to: (std::net::IpAddr, u16), flags: u8, seq: u32, ack: u32) -> Recipe {
    let recipe = Recipe::new(TCP, (address(SERVERS[0]), 80), to);
    Recipe { tcp: (seq, ack, flags), ..recipe }
}

/// Opens a connection; what the server sees.
fn open(world: &mut World, port: u16) -> (std::net::IpAddr, u16) {
    open_as(world, 0, port)
}

/// Opens a connection of one of the clients; what the server sees.
fn open_as(world: &mut World, client: usize, port: u16) -> (std::net::IpAddr, u16) {
    let seen = world.try_leave(&tcp(client, port, SYN, 100, 0)).unwrap().from();
    world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
    assert_eq!(world.try_leave(&tcp(client, port, ACK, 101, 501)).unwrap().from(), seen);
    seen
}

fn goes_on(world: &mut World, port: u16, seen: (std::net::IpAddr, u16)) {
    assert_eq!(world.try_leave(&tcp(0, port, ACK, 101, 501)).unwrap().from(), seen);
    let back = world.try_enter(&tcp_back(seen, ACK, 501, 101)).unwrap();
    assert_eq!((back.destination, back.ports.1), (address(CLIENTS[0]), port));
}

/// Whoever takes over knows connections by the same ends, and gives their ports to nobody else.
/// Those that nobody has answered are not kept.
#[test]
fn connections_are_taken_over() {
    let mut world = World::new(|_| {});
    world.forwarder.remember_changes();
    let seen = open(&mut world, 4000);
    world.try_leave(&tcp(1, 4000, SYN, 7, 0)).unwrap();
    let mut changed = BTreeSet::new();
    while let Some(id) = world.forwarder.poll_changed() {
        assert!(changed.insert(id.0), "each once");
    }
    let id = |number: &u32| nicache_forward::conntrack::ConnectionId(*number);
    let saved: Vec<_> =
        changed.iter().filter_map(|number| world.forwarder.save(id(number))).collect();
    assert_eq!((changed.len(), saved.len()), (2, 1));
    let mut other = World::new(|_| {});
    assert!(other.forwarder.restore(&saved[0], other.now));
    assert!(!other.forwarder.restore(&saved[0], other.now), "once is enough");
    // Another client that would like the same port gets another one.
    assert_ne!(open_as(&mut other, 1, 4000), seen);
    goes_on(&mut other, 4000, seen);
    // The end is followed: both have sent a FIN, and acknowledged the other's.
    let closing =
        [(true, 101, 501, FIN | ACK), (false, 501, 102, FIN | ACK), (true, 102, 502, ACK)];
    for (is_out, seq, ack, flags) in closing {
        match is_out {
            true => drop(other.try_leave(&tcp(0, 4000, flags, seq, ack)).unwrap()),
            false => drop(other.try_enter(&tcp_back(seen, flags, seq, ack)).unwrap()),
        }
    }
    assert_eq!(other.forwarder.connections().count(Phase::TimeWait), 1);
    // What contradicts the configuration is not taken.
    let mut odd = saved[0];
    odd.through = Some(99);
    assert!(!World::new(|_| {}).forwarder.restore(&odd, Time::ZERO));
    odd.through = None;
    assert!(
        !World::new(|_| {}).forwarder.restore(&odd, Time::ZERO),
        "it would leave with another source"
    );
}

/// All that is kept of a forwarder's connections by now.
fn save_changed(world: &mut World) -> Vec<nicache_forward::saved::Saved> {
    let mut saved = Vec::new();
    while let Some(id) = world.forwarder.poll_changed() {
        saved.extend(world.forwarder.save(id));
    }
    saved
}

/// A client whose SYN was answered does not send it again: whoever takes over between the answer
/// and the last acknowledgment knows the connection. A flood of them takes only its own share.
#[test]
fn a_handshake_is_taken_over() {
    let mut world = World::new(|_| {});
    world.forwarder.remember_changes();
    let seen = world.try_leave(&tcp(0, 4000, SYN, 100, 0)).unwrap().from();
    assert_eq!(save_changed(&mut world), [], "nobody has answered");
    world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
    let saved = save_changed(&mut world);
    assert_eq!(saved.len(), 1);
    let mut other = World::new(|_| {});
    assert!(other.forwarder.restore(&saved[0], other.now));
    assert_eq!(other.forwarder.connections().count(Phase::Opening), 1);
    assert_eq!(other.try_leave(&tcp(0, 4000, ACK, 101, 501)).unwrap().from(), seen);
    assert_eq!(other.forwarder.connections().count(Phase::Open), 1);
    goes_on(&mut other, 4000, seen);

    let mut world = World::new(|config| config.limits.connections = 200);
    world.forwarder.remember_changes();
    for port in 0..40 {
        let seen = world.try_leave(&tcp(0, 5000 + port, SYN, 100, 0)).unwrap().from();
        world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
    }
    let saved = save_changed(&mut world);
    let mut other = World::new(|config| config.limits = LIMITS);
    let taken = saved.iter().filter(|saved| other.forwarder.restore(saved, Time::ZERO)).count();
    assert_eq!((saved.len(), taken), (40, 16));
    // What was not taken holds nothing.
    let ports = saved.iter().filter(|saved| {
        let outside = saved.outgoing.source;
        other.forwarder.nat().find_external(Protocol::Tcp, outside).is_some()
    });
    assert_eq!(ports.count(), 16);
}

/// F6: a flood takes only its own share, and those who were answered stay.
#[test]
fn a_flood_of_syns() {
    let mut world = World::new(|config| config.limits = LIMITS);
    let open: Vec<_> =
        (0..40u16).map(|number| (number + 2000, open(&mut world, number + 2000))).collect();
    for port in 10_000..20_000 {
        world.try_leave(&tcp(1, port, SYN, 7, 0)).unwrap();
    }
    let table = world.forwarder.connections();
    assert_eq!((table.count(Phase::Open), table.count(Phase::Opening)), (40, 16));
    for (port, seen) in &open {
        goes_on(&mut world, *port, *seen);
    }
    assert_eq!(world.forwarder.counters().pushed_out, 10_000 - 16);
    // In the middle of a flood a handshake takes place.
    for port in 20_000..20_010 {
        world.try_leave(&tcp(1, port, SYN, 7, 0)).unwrap();
    }
    self::open(&mut world, 3000);
}

/// F6: a flood of segments in the middle of connections, which a service takes up in case another
/// balancer had them, takes only its own share.
#[test]
fn a_flood_of_acknowledgments() {
    let mut world = World::new(|config| {
        config.limits = LIMITS;
        config.services = vec![service(Protocol::Tcp, [1, 1])];
        config.interfaces[1].masquerade = vec![];
    });
    for port in 10_000..12_000 {
        world.try_leave(&to_service(TCP, port, ACK)).unwrap();
        world.try_leave(&to_service(TCP, port, FIN | ACK)).unwrap();
    }
    assert_eq!(
        (world.forwarder.connections().len(), world.forwarder.connections().count(Phase::Opening)),
        (16, 16)
    );
    assert_eq!(world.try_leave(&to_service(TCP, 9, RST | ACK)).unwrap_err(), Drop::NoConnection);
    // One that the back end knows is there to stay.
    let seen = world.try_leave(&to_service(TCP, 77, ACK)).unwrap();
    let back = Recipe {
        tcp: (0, 100, ACK),
        ..Recipe::new(TCP, (seen.destination, 80), (address(CLIENTS[0]), 77))
    };
    assert_eq!(world.try_enter(&back).unwrap().source, address("10.1.0.100"));
    assert_eq!(world.forwarder.connections().count(Phase::Open), 1);
}

/// A table full of those who were answered takes no more, and gives way to none.
#[test]
fn a_full_table() {
    let mut world = World::new(|config| config.limits = LIMITS);
    let seen: Vec<_> = (0..64u16).map(|number| open(&mut world, 2000 + number)).collect();
    assert_eq!(world.try_leave(&tcp(1, 9, SYN, 7, 0)).unwrap_err(), Drop::TableFull);
    for (number, seen) in seen.iter().enumerate() {
        goes_on(&mut world, 2000 + number as u16, *seen);
    }
    // One that is over makes room.
    let first = seen[0];
    world.try_leave(&tcp(0, 2000, RST, 101, 0)).unwrap();
    world.try_leave(&tcp(1, 9, SYN, 7, 0)).unwrap();
    assert_eq!(world.try_enter(&tcp_back(first, ACK, 501, 101)).unwrap_err(), Drop::NoConnection);
}

fn udp(client: usize, port: u16) -> Recipe {
    Recipe::new(UDP, (address(CLIENTS[client]), port), (address(SERVERS[0]), 53))
}

/// Sends so many datagrams, each of which is answered; what the server sees.
fn ask(world: &mut World, client: usize, port: u16, times: usize) -> End {
    let mut seen = None;
    for _ in 0..times {
        let from = world.try_leave(&udp(client, port)).unwrap().from();
        world.try_enter(&Recipe::new(UDP, (address(SERVERS[0]), 53), from)).unwrap();
        seen = Some(from);
    }
    seen.unwrap()
}

/// RFC 4787, REQ-5: a mapping stays for two minutes, also if nothing was answered yet.
#[test]
fn datagrams_that_nobody_has_answered_yet() {
    let mut world = World::new(|_| {});
    let seen = world.try_leave(&udp(0, 4000)).unwrap().from();
    let back = Recipe::new(UDP, (address(SERVERS[0]), 53), seen);
    world.now += Duration::from_secs(119);
    while world.forwarder.expire(world.now) {}
    assert_eq!(world.try_enter(&back).unwrap().destination, address(CLIENTS[0]));
    world.now += Duration::from_secs(121);
    while world.forwarder.expire(world.now) {}
    assert!(world.forwarder.connections().is_empty(), "a question and its answer");
    let seen = ask(&mut world, 0, 4001, 2);
    world.now += Duration::from_secs(299);
    while world.forwarder.expire(world.now) {}
    let back = Recipe::new(UDP, (address(SERVERS[0]), 53), seen);
    assert!(world.try_enter(&back).is_ok(), "who speaks with each other has longer");
}

/// Questions with spoofed sources to a server that answers refuse nobody else, and neither do those
/// that it does not answer; who speaks with each other stays.
#[test]
fn a_flood_of_questions() {
    let mut world = World::new(|config| config.limits = LIMITS);
    let open: Vec<_> =
        (0..10u16).map(|number| (number + 2000, open(&mut world, number + 2000))).collect();
    let talk: Vec<_> = (0..10u16).map(|port| ask(&mut world, 0, 3000 + port, 2)).collect();
    for is_answered in [true, false] {
        for port in 10_000..11_000 {
            match is_answered {
                true => drop(ask(&mut world, 1, port, 1)),
                false => drop(world.try_leave(&udp(1, port)).unwrap()),
            }
        }
        let seen = self::open(&mut world, 5000 + u16::from(is_answered));
        goes_on(&mut world, 5000 + u16::from(is_answered), seen);
    }
    for (port, seen) in &open {
        goes_on(&mut world, *port, *seen);
    }
    for (port, seen) in talk.iter().enumerate() {
        let back = Recipe::new(UDP, (address(SERVERS[0]), 53), *seen);
        assert_eq!(world.try_enter(&back).unwrap().ports.1, 3000 + port as u16);
    }
    assert_eq!(world.forwarder.counters().dropped_for(Drop::TableFull), 0);
}

/// Ports run out; those of connections that are over come back at once, and no two have the same.
#[test]
fn ports_that_run_out() {
    let mut world = World::new(|config| config.externals[0].ports = 5000..=5009);
    let seen: BTreeSet<_> = (0..10u16).map(|number| open(&mut world, 100 + number).1).collect();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|port| (5000..=5009).contains(port)));
    assert_eq!(world.try_leave(&tcp(1, 9, SYN, 7, 0)).unwrap_err(), Drop::PortsUsed);
    world.try_leave(&tcp(0, 104, RST, 101, 0)).unwrap();
    world.try_leave(&tcp(1, 9, SYN, 7, 0)).unwrap();
}

/// F7, RFC 7857: what is outside of the windows changes nothing, from either side.
#[test]
fn strangers_who_guess() {
    let mut world = World::new(|config| config.timeouts.reset = Duration::from_secs(1));
    let seen = open(&mut world, 2000);
    for seq in (0..1000u32).map(|step| 2_000_000 + step * 2_000_000) {
        let _ = world.try_enter(&tcp_back(seen, RST, seq, 0));
        let _ = world.try_enter(&tcp_back(seen, FIN | ACK, seq, 101));
        let _ = world.try_enter(&tcp_back(seen, SYN, seq, 0));
    }
    assert_eq!(world.forwarder.connections().count(Phase::Open), 1);
    world.now += Duration::from_secs(5);
    world.forwarder.expire(world.now);
    goes_on(&mut world, 2000, seen);
}

/// A tuple may come again in TIME-WAIT, with a later number (RFC 9293 section 3.6.1), and gets a
/// connection of its own.
#[test]
fn the_same_ends_again() {
    let mut world = World::new(|_| {});
    let seen = open(&mut world, 2000);
    world.try_leave(&tcp(0, 2000, FIN | ACK, 101, 501)).unwrap();
    world.try_enter(&tcp_back(seen, FIN | ACK, 501, 102)).unwrap();
    world.try_leave(&tcp(0, 2000, ACK, 102, 502)).unwrap();
    assert_eq!(world.forwarder.connections().count(Phase::TimeWait), 1);
    world.try_leave(&tcp(0, 2000, SYN, 90_000, 0)).unwrap();
    let table = world.forwarder.connections();
    assert_eq!((table.count(Phase::TimeWait), table.count(Phase::Opening), table.len()), (0, 1, 1));
}

/// The other end may take a number that is not later, by the timestamps for example (RFC 6191), or
/// may have forgotten the old connection: its answer says that another one begins, which is
/// followed and does not lapse with the old one.
#[test]
fn the_same_ends_again_with_an_earlier_number() {
    let mut world = World::new(|_| {});
    let seen = open(&mut world, 2000);
    world.try_leave(&tcp(0, 2000, FIN | ACK, 101, 501)).unwrap();
    world.try_enter(&tcp_back(seen, FIN | ACK, 501, 102)).unwrap();
    world.try_leave(&tcp(0, 2000, ACK, 102, 502)).unwrap();
    let before = 4_000_000_000;
    assert_eq!(world.try_leave(&tcp(0, 2000, SYN, before, 0)).unwrap().from(), seen);
    assert_eq!(world.forwarder.connections().count(Phase::TimeWait), 1, "the server's answer says");
    world.try_enter(&tcp_back(seen, SYN | ACK, 70_000, before + 1)).unwrap();
    world.try_leave(&tcp(0, 2000, ACK, before + 1, 70_001)).unwrap();
    world.now += Duration::from_secs(7000);
    while world.forwarder.expire(world.now) {}
    world.try_enter(&tcp_back(seen, ACK, 70_001, before + 1)).unwrap();
    assert_eq!(world.forwarder.connections().count(Phase::Open), 1);
}

/// An address with a port.
type End = (std::net::IpAddr, u16);

#[derive(Clone, Debug)]
enum Step {
    Send { client: usize, port: u16, protocol: u8, server: usize, flags: u8 },
    Answer { number: usize, flags: u8 },
    Wait(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let flags = || {
        prop_oneof![
            Just(SYN),
            Just(SYN | ACK),
            Just(ACK),
            Just(RST | ACK),
            Just(FIN | ACK),
            0u8..64
        ]
    };
    let step = prop_oneof![
        6 =>
            (0usize..2, 1u16..12, prop_oneof![Just(TCP), Just(UDP), Just(ICMP)], 0usize..2, flags())
            .prop_map(|(client, port, protocol, server, flags)| Step::Send { client, port,
                protocol, server, flags }),
        4 => (any::<usize>(), flags()).prop_map(|(number, flags)| Step::Answer { number, flags }),
        1 => (1u16..400).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..150)
}

proptest! {
    /// F6: at no time do two inside ends have the same outside end, and one inside end has one
    /// (endpoint-independent mapping); in the end nothing is left.
    #[test]
    fn one_mapping_for_each_external_port(steps in steps()) {
        let mut world = World::new(|config| {
            config.limits = Limits { connections: 24, opening: 8 };
            config.externals[0].ports = 100..=115;
        });
        // What is outside now, by protocol: the inside end, and the server that it speaks with.
        let mut seen: Vec<(u8, End, End, usize)> = Vec::new();
        for step in steps {
            match step {
                Step::Send { client, port, protocol, server, flags } => {
                    let inside = (address(CLIENTS[client]), port);
                    let there = (address(SERVERS[server]), if protocol == ICMP { 1 } else { 80 });
                    let recipe =
                        Recipe { tcp: (1000, 2000, flags), ..Recipe::new(protocol, inside, there) };
                    if let Ok(left) = world.try_leave(&recipe) {
                        let outside = left.from();
                        prop_assert!((100..=115).contains(&outside.1));
                        // Ask the forwarder who has that port now: it must answer this one.
                        let kind = match protocol {
                            TCP => Protocol::Tcp,
                            UDP => Protocol::Udp,
                            _ => Protocol::Query,
                        };
                        let owner = world
                            .forwarder
                            .nat()
                            .find_external(kind, Endpoint::new(outside.0, outside.1))
                            .unwrap();
                        prop_assert_eq!(
                            world.forwarder.nat().get(owner).unwrap().internal,
                            Endpoint::new(inside.0, inside.1)
                        );
                        seen.retain(|(other, at, ..)| (*other, *at) != (protocol, outside));
                        seen.push((protocol, outside, inside, server));
                    }
                    let mapped: BTreeMap<_, _> = world
                        .forwarder
                        .connections()
                        .iter()
                        .map(|(_, connection)| {
                            (
                                connection
                                    .incoming(nicache_forward::tcp_track::Direction::Original),
                                connection
                                    .outgoing(nicache_forward::tcp_track::Direction::Original),
                            )
                        })
                        .collect();
                    let mut by_inside = BTreeMap::new();
                    let mut by_outside = BTreeMap::new();
                    for (incoming, outgoing) in mapped {
                        let inside = (incoming.protocol, incoming.source);
                        let outside = (outgoing.protocol, outgoing.source);
                        prop_assert_eq!(*by_inside.entry(inside).or_insert(outside), outside);
                        prop_assert_eq!(*by_outside.entry(outside).or_insert(inside), inside);
                    }
                }
                Step::Answer { number, flags } if !seen.is_empty() => {
                    let (protocol, outside, inside, server) = seen[number % seen.len()];
                    let from =
                        (address(SERVERS[server]), if protocol == ICMP { outside.1 } else { 80 });
                    let to = if protocol == ICMP { (outside.0, 0) } else { outside };
                    let recipe =
                        Recipe { tcp: (2000, 1001, flags), ..Recipe::new(protocol, from, to) };
                    if let Ok(came) = world.try_enter(&recipe) {
                        prop_assert_eq!(came.destination, inside.0);
                    }
                }
                Step::Answer { .. } => {}
                Step::Wait(seconds) => {
                    world.now += Duration::from_secs(u64::from(seconds));
                    while world.forwarder.expire(world.now) {}
                }
            }
            prop_assert!(world.forwarder.connections().len() <= 24);
            // UDP, and all others.
            prop_assert!(world.forwarder.connections().count(Phase::Opening) <= 8 + 8);
        }
        world.now += Duration::from_secs(100_000);
        while world.forwarder.expire(world.now) {}
        prop_assert!(world.forwarder.connections().is_empty() && world.forwarder.nat().is_empty());
        for protocol in [Protocol::Tcp, Protocol::Udp, Protocol::Query] {
            prop_assert_eq!(world.forwarder.nat().free_ports(0, protocol), 16);
        }
    }
}

/// Resets that were not believed do not make more connections that nobody has answered than there
/// may be, and others begin.
#[test]
fn connections_that_come_back_from_a_reset_take_no_room() {
    let mut world = World::new(|config| config.limits = LIMITS);
    let reset: Vec<_> = (0..10)
        .map(|port| {
            let seen = world.try_leave(&tcp(0, 4000 + port, SYN, 100, 0)).unwrap().from();
            world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
            world.try_enter(&tcp_back(seen, RST | ACK, 501, 101)).unwrap();
            seen
        })
        .collect();
    let opening = |world: &World| world.forwarder.connections().count(Phase::Opening);
    assert_eq!(opening(&world), 0);
    for port in 0..16 {
        world.try_leave(&tcp(1, 4000 + port, SYN, 100, 0)).unwrap();
    }
    for seen in &reset {
        world.try_enter(&tcp_back(*seen, ACK, 501, 101)).unwrap();
        assert_eq!(opening(&world), 16);
    }
    // The oldest one makes room for it.
    let seen = open(&mut world, 5000);
    goes_on(&mut world, 5000, seen);
    // And who was reset is heard if there is room.
    goes_on(&mut world, 4009, reset[9]);
}

/// A service outside, for the clients inside.
fn service(protocol: Protocol, weights: [u16; 2]) -> ServiceConfig {
    let back_end = |number: usize| BackEnd {
        endpoint: Endpoint::new(address(SERVERS[number]), 80),
        weight: weights[number],
    };
    ServiceConfig {
        protocol,
        address: Endpoint::new(address("10.1.0.100"), 80),
        back_ends: vec![back_end(0), back_end(1)],
        masquerade: None,
        by_name: None,
    }
}

fn to_service(protocol: u8, port: u16, flags: u8) -> Recipe {
    let recipe = Recipe::new(protocol, (address(CLIENTS[0]), port), (address("10.1.0.100"), 80));
    Recipe { tcp: (100, 0, flags), ..recipe }
}

const BOTH: [Chosen; 2] = [Chosen { service: 0, back_end: 0 }, Chosen { service: 0, back_end: 1 }];

/// keepalived#2163: UDP leaves a back end that is dead at once, TCP stays, and nobody new is sent
/// there.
#[test]
fn a_back_end_that_dies() {
    for (protocol, number) in [(Protocol::Udp, UDP), (Protocol::Tcp, TCP)] {
        let mut world = World::new(|config| {
            config.services = vec![service(protocol, [1, 1])];
            config.interfaces[1].masquerade = vec![];
        });
        let before: Vec<_> = (0..50)
            .map(|port| world.try_leave(&to_service(number, port + 1, SYN)).unwrap().destination)
            .collect();
        assert_eq!(
            BOTH.map(|chosen| world.forwarder.services().connections(chosen)).iter().sum::<u32>(),
            50
        );
        assert!(BOTH.iter().all(|chosen| world.forwarder.services().connections(*chosen) > 10));
        world.forwarder.set_health(BOTH[0], Health::Down);
        for (port, before) in before.into_iter().enumerate() {
            let after =
                world.try_leave(&to_service(number, port as u16 + 1, SYN)).unwrap().destination;
            match protocol {
                Protocol::Tcp => assert_eq!(after, before),
                _ => assert_eq!(after, address(SERVERS[1])),
            }
        }
        for port in 100..150 {
            assert_eq!(
                world.try_leave(&to_service(number, port, SYN)).unwrap().destination,
                address(SERVERS[1])
            );
        }
        world.forwarder.set_health(BOTH[1], Health::Down);
        let refused = world.try_leave(&to_service(number, 200, SYN)).unwrap();
        assert_eq!(
            (refused.protocol, refused.destination),
            (ICMP, address(CLIENTS[0])),
            "unreachable"
        );
    }
}

/// Two services with the same back end: it cannot tell apart what a client sends to both from one
/// port. A connection that is over gives way to the next.
#[test]
fn one_port_for_two_services() {
    let mut world = World::new(|config| {
        let one = service(Protocol::Tcp, [1, 0]);
        let address = Endpoint::new(address("10.1.0.101"), 80);
        config.services = vec![one.clone(), ServiceConfig { address, ..one }];
        config.interfaces[1].masquerade = vec![];
    });
    let to = |service: &str, flags, seq, ack| Recipe {
        destination: address(service),
        tcp: (seq, ack, flags),
        ..to_service(TCP, 7, 0)
    };
    let (one, two) = ("10.1.0.100", "10.1.0.101");
    world.try_leave(&to(one, SYN, 100, 0)).unwrap();
    let seen = (address(CLIENTS[0]), 7);
    world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
    world.try_leave(&to(one, ACK, 101, 501)).unwrap();
    assert_eq!(world.try_leave(&to(two, SYN, 9000, 0)).unwrap_err(), Drop::EndsUsed);
    assert_eq!(world.try_leave(&to(one, ACK, 101, 501)).unwrap().destination, address(SERVERS[0]));
    world.try_leave(&to(one, RST, 101, 0)).unwrap();
    assert_eq!(world.try_leave(&to(two, SYN, 9000, 0)).unwrap().destination, address(SERVERS[0]));
    let back = world.try_enter(&tcp_back(seen, SYN | ACK, 70_000, 9001)).unwrap();
    assert_eq!(back.source, address(two));
    let counts = BOTH.map(|chosen| world.forwarder.services().connections(chosen));
    assert_eq!((counts[0], world.forwarder.connections().len()), (0, 1));
}

/// k8s#57841: a drained back end keeps what it has, gets nothing new, and is left alone at the
/// deadline.
#[test]
fn a_back_end_that_is_drained() {
    let mut world = World::new(|config| {
        config.services = vec![service(Protocol::Udp, [1, 0])];
        config.interfaces[1].masquerade = vec![];
    });
    assert_eq!(world.try_leave(&to_service(UDP, 1, 0)).unwrap().destination, address(SERVERS[0]));
    world
        .forwarder
        .set_health(BOTH[0], Health::Draining { until: Time::ZERO + Duration::from_secs(10) });
    world.now = Time::ZERO + Duration::from_secs(9);
    assert_eq!(world.try_leave(&to_service(UDP, 1, 0)).unwrap().destination, address(SERVERS[0]));
    assert_eq!(world.try_leave(&to_service(UDP, 2, 0)).unwrap().protocol, ICMP, "nothing new");
    world.now = Time::ZERO + Duration::from_secs(10);
    assert_eq!(world.try_leave(&to_service(UDP, 1, 0)).unwrap().protocol, ICMP, "the deadline");
    assert_eq!(world.forwarder.services().connections(BOTH[0]), 0);
}

/// Health checks go on while a back end is drained: if it is down, datagrams leave it before the
/// deadline, and it is down when it is taken back.
#[test]
fn a_back_end_that_goes_down_while_it_is_drained() {
    let mut world = World::new(|config| {
        config.services = vec![service(Protocol::Udp, [1, 0]), service(Protocol::Tcp, [1, 0])];
        config.interfaces[1].masquerade = vec![];
    });
    let tcp = Chosen { service: 1, back_end: 0 };
    let until = Time::ZERO + Duration::from_secs(3600);
    for number in [UDP, TCP] {
        let seen = world.try_leave(&to_service(number, 1, SYN)).unwrap();
        assert_eq!(seen.destination, address(SERVERS[0]));
    }
    for chosen in [BOTH[0], tcp] {
        world.forwarder.set_health(chosen, Health::Draining { until });
        world.forwarder.set_answers(chosen, false);
        assert_eq!(world.forwarder.services().health(chosen), Health::Draining { until });
        assert_eq!(world.forwarder.services().health_without_drain(chosen), Health::Down);
    }
    assert_eq!(world.try_leave(&to_service(UDP, 1, 0)).unwrap().protocol, ICMP, "lost");
    let kept = world.try_leave(&to_service(TCP, 1, SYN)).unwrap();
    assert_eq!(kept.destination, address(SERVERS[0]), "it may come back");
    // It answers again, and is taken back.
    world.forwarder.set_answers(BOTH[0], true);
    assert_eq!(world.forwarder.services().health(BOTH[0]), Health::Draining { until });
    let health = world.forwarder.services().health_without_drain(BOTH[0]);
    world.forwarder.set_health(BOTH[0], health);
    let seen = world.try_leave(&to_service(UDP, 2, 0)).unwrap();
    assert_eq!((health, seen.destination), (Health::Up, address(SERVERS[0])));
    world.forwarder.set_answers(BOTH[0], false);
    assert_eq!(world.forwarder.services().health(BOTH[0]), Health::Down);
}

/// A client whose service was drained learns that its connection is over, and so does the back end,
/// whichever of them sends next, also if the back end sees our address in the client's place.
#[test]
fn a_connection_past_the_deadline_is_reset_at_both_ends() {
    for (masquerade, is_reply) in [(Some(0), false), (Some(0), true), (None, false), (None, true)] {
        let mut world = World::new(|config| {
            let service = ServiceConfig { masquerade, ..service(Protocol::Tcp, [1, 0]) };
            config.services = vec![service];
            config.interfaces[1].masquerade = vec![];
        });
        let to = |flags, seq, ack| Recipe { tcp: (seq, ack, flags), ..to_service(TCP, 7, 0) };
        let seen = world.try_leave(&to(SYN, 100, 0)).unwrap().from();
        world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
        world.try_leave(&to(ACK, 101, 501)).unwrap();
        let until = Time::ZERO + Duration::from_secs(10);
        world.forwarder.set_health(BOTH[0], Health::Draining { until });
        world.now = until;
        // One byte more than what the other end has acknowledged.
        let recipe = match is_reply {
            true => Recipe {
                tags: vec![TAG],
                to_mac: [2, 0, 0, 0, 1, OUTSIDE],
                payload: vec![1],
                ..tcp_back(seen, ACK, 501, 101)
            },
            false => Recipe { payload: vec![1], ..to(ACK, 101, 501) },
        };
        let port = if is_reply { OUTSIDE } else { INSIDE };
        let answer = world.handle(&recipe.frame(), port, Offload::default()).unwrap();
        let own = world.forwarder.poll_own().expect("the other end is told");
        assert_eq!(world.forwarder.poll_own(), None);
        let frames = [(answer.0, answer.1), own];
        let mut resets = frames.map(|(interface, frame)| {
            let seen = verify(&frame, Offload::default()).unwrap();
            let tcp = &frame[seen.transport_at..];
            assert_eq!(tcp[13], RST | ACK);
            let seq = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
            (interface, seen.destination, seq, seen.ports.1, seen.source)
        });
        resets.sort();
        let client = (0, address(CLIENTS[0]), 501, 7, address("10.1.0.100"));
        assert_eq!(resets, [client, (1, address(SERVERS[0]), 101, 80, seen.0)]);
        assert_eq!(world.forwarder.services().connections(BOTH[0]), 0);
        assert!(world.forwarder.connections().is_empty());
    }
}

/// A flood of packets of such connections is not answered by a flood.
#[test]
fn resets_past_the_deadline_are_bounded() {
    let mut world = World::new(|config| {
        config.services = vec![service(Protocol::Tcp, [1, 0])];
        config.interfaces[1].masquerade = vec![];
    });
    for port in 1..=1000 {
        world.try_leave(&to_service(TCP, port, ACK)).unwrap();
    }
    world.forwarder.set_health(BOTH[0], Health::Draining { until: world.now });
    let told =
        (1..=1000).filter(|port| world.try_leave(&to_service(TCP, *port, ACK)).is_ok()).count();
    assert_eq!(told, 200);
    assert_eq!(world.forwarder.counters().resets_held_back, 800);
    assert_eq!(std::iter::from_fn(|| world.forwarder.poll_own()).count(), 200);
}

/// Another connection between the ends of one whose end was not seen does not lapse with that.
#[test]
fn the_same_ends_again_while_established() {
    let mut world = World::new(|_| {});
    let seen = open(&mut world, 2000);
    world.now += Duration::from_secs(7000);
    world.try_leave(&tcp(0, 2000, SYN, 90_000, 0)).unwrap();
    world.try_enter(&tcp_back(seen, SYN | ACK, 70_000, 90_001)).unwrap();
    world.try_leave(&tcp(0, 2000, ACK, 90_001, 70_001)).unwrap();
    world.now += Duration::from_secs(7000);
    while world.forwarder.expire(world.now) {}
    world.try_enter(&tcp_back(seen, ACK, 70_001, 90_001)).unwrap();
    assert_eq!(world.forwarder.connections().count(Phase::Open), 1);
}

/// RFC 6146 section 3.5.2.2: one end's last byte is not the connection's. RFC 7857 section 2.2: a
/// reset may be lost.
#[test]
fn a_connection_that_ends_slowly() {
    let mut world = World::new(|_| {});
    let wait = |world: &mut World, seconds| {
        world.now += Duration::from_secs(seconds);
        while world.forwarder.expire(world.now) {}
    };
    let half_closed = open(&mut world, 2000);
    world.try_leave(&tcp(0, 2000, FIN | ACK, 101, 501)).unwrap();
    wait(&mut world, 7000);
    assert_eq!(world.forwarder.connections().count(Phase::Closing), 1);
    world.try_enter(&tcp_back(half_closed, ACK, 501, 102)).unwrap();
    world.try_enter(&tcp_back(half_closed, FIN | ACK, 501, 102)).unwrap();
    wait(&mut world, 239);
    assert_eq!(world.forwarder.connections().count(Phase::Closing), 1);
    wait(&mut world, 1);
    assert!(world.forwarder.connections().is_empty());
    let reset = open(&mut world, 2001);
    world.try_leave(&tcp(0, 2001, RST | ACK, 101, 501)).unwrap();
    wait(&mut world, 200);
    world.try_enter(&tcp_back(reset, ACK, 501, 101)).unwrap();
    assert_eq!(world.forwarder.connections().count(Phase::Open), 1);
    world.try_leave(&tcp(0, 2001, RST, 101, 0)).unwrap();
    wait(&mut world, 240);
    assert!(world.forwarder.connections().is_empty());
}

/// A connection of which one end has sent its last byte has as long as before when another
/// forwarder takes over, and its end is followed.
#[test]
fn a_half_closed_connection_is_taken_over() {
    for by_client in [true, false] {
        let mut world = World::new(|_| {});
        world.forwarder.remember_changes();
        let seen = open(&mut world, 2000);
        match by_client {
            true => drop(world.try_leave(&tcp(0, 2000, FIN | ACK, 101, 501)).unwrap()),
            false => drop(world.try_enter(&tcp_back(seen, FIN | ACK, 501, 101)).unwrap()),
        }
        let saved = save_changed(&mut world);
        let mut other = World::new(|_| {});
        assert!(other.forwarder.restore(&saved[0], other.now));
        other.now += Duration::from_secs(7000);
        while other.forwarder.expire(other.now) {}
        assert_eq!(other.forwarder.connections().count(Phase::Closing), 1, "{by_client}");
        // What the other end still sends, its last byte, and the acknowledgment of that.
        let rest = [(50, ACK), (0, FIN | ACK)];
        for (number, (payload, flags)) in rest.into_iter().enumerate() {
            let at = 50 * number as u32;
            let more = |recipe| Recipe { payload: vec![7; payload], ..recipe };
            match by_client {
                true => {
                    other.try_enter(&more(tcp_back(seen, flags, 501 + at, 102))).unwrap();
                    other.try_leave(&tcp(0, 2000, ACK, 102, 551 + number as u32)).unwrap();
                }
                false => {
                    other.try_leave(&more(tcp(0, 2000, flags, 101 + at, 502))).unwrap();
                    other.try_enter(&tcp_back(seen, ACK, 502, 151 + number as u32)).unwrap();
                }
            }
        }
        assert_eq!(other.forwarder.connections().count(Phase::TimeWait), 1, "{by_client}");
        assert_eq!(other.forwarder.counters().outside, 0);
    }
}

/// Rules hold for connections that are there.
#[test]
fn a_rule_that_comes_later() {
    let mut world = World::new(|_| {});
    let seen = open(&mut world, 2000);
    let drop = Rule {
        interface: None,
        protocol: Some(Protocol::Tcp),
        source: Some("10.1.0.2".parse().unwrap()),
        destination: None,
        ports: Some(80..=80),
        action: Action::Drop,
    };
    world.forwarder.set_rules(vec![drop], world.now);
    assert_eq!(world.try_leave(&tcp(0, 2000, ACK, 101, 501)).unwrap_err(), Drop::Rule);
    assert_eq!(world.try_enter(&tcp_back(seen, ACK, 501, 101)).unwrap_err(), Drop::Rule);
    assert!(world.try_leave(&tcp(1, 2000, SYN, 1, 0)).is_ok());
    world.forwarder.set_rules(vec![], world.now);
    goes_on(&mut world, 2000, seen);
}

/// Who sends to a group what its targets cannot get is told why, once for each datagram, as anybody
/// else is. Each target counts, once.
#[test]
fn a_sender_to_many_is_told() {
    for (why, hops, payload, kind) in
        [(Drop::Hops, 1, 100, (11, 0)), (Drop::TooBig, 64, 1400, (3, 4))]
    {
        let mut world = World::new(|config| {
            config.interfaces[1].masquerade = vec![];
            config.interfaces[1].mtu = 1000;
            let target = |number: usize| Endpoint::new(address(SERVERS[number]), 1000);
            config.groups = vec![Group {
                address: Endpoint::new(address("10.1.0.200"), 514),
                targets: vec![target(0), target(1), target(0)],
                source: None,
            }];
        });
        let recipe = Recipe {
            payload: vec![9; payload],
            hops,
            ..Recipe::new(UDP, (address(CLIENTS[0]), 7), (address("10.1.0.200"), 514))
        };
        let frame = recipe.frame();
        for turn in 1..=2 {
            let mut head = Head::new();
            let moment = nicache_forward::Moment { now: world.now, random: 0 };
            let offload = Offload::default();
            let incoming = Incoming { look: &frame, len: frame.len(), port: INSIDE, offload };
            let decision = world.forwarder.handle(&incoming, &mut head, moment);
            assert_eq!(decision, Decision::FanOut { group: 0, targets: 3 });
            let inside = usize::from(INSIDE);
            for expected in
                [Decision::Answer { interface: inside }, Decision::Drop(why), Decision::Drop(why)]
            {
                let one = world.forwarder.fan_out(&incoming, (0, 0), &mut head, world.now);
                assert_eq!(one, expected);
                if let Decision::Answer { .. } = one {
                    let seen = verify(&head, Offload::default()).unwrap();
                    assert_eq!((seen.protocol, seen.destination), (ICMP, address(CLIENTS[0])));
                    assert_eq!((head[seen.transport_at], head[seen.transport_at + 1]), kind);
                }
            }
            let counters = world.forwarder.counters();
            let dropped = [why, Drop::Neighbour].map(|why| counters.dropped_for(why));
            assert_eq!((dropped, counters.answered), ([3 * turn, 0], turn));
        }
    }
}

/// So it is where whole frames are at hand.
#[test]
fn a_sender_to_many_is_told_without_a_card() {
    let world = World::new(|config| {
        config.groups = vec![Group {
            address: Endpoint::new(address("10.1.0.200"), 514),
            targets: SERVERS[..2].iter().map(|at| Endpoint::new(address(at), 1000)).collect(),
            source: None,
        }];
    });
    let wire = || memory_wire(16, Capabilities::FULL, Capabilities::FULL);
    let ((inside, mut client), (outside, _server)) = (wire(), wire());
    let mut copying = Copying::new(world.forwarder, vec![inside, outside], 8);
    let to = (address("10.1.0.200"), 514);
    let recipe = Recipe { hops: 1, ..Recipe::new(UDP, (address(CLIENTS[0]), 7), to) };
    client.send(&[std::io::IoSlice::new(&recipe.frame())], Offload::default()).unwrap();
    copying.turn(Time::ZERO, || 0).unwrap();
    let mut burst = Burst::new(8);
    client.receive(&mut burst).unwrap();
    let came: Vec<u8> = burst.iter().map(|frame| Seen::of(frame.data()).protocol).collect();
    assert_eq!(came, [ICMP]);
}

/// samplicator#72: one datagram to many; one target that does not answer delays nobody.
#[test]
fn one_to_many() {
    let mut world = World::new(|config| {
        config.interfaces[1].masquerade = vec![];
        config.groups = vec![Group {
            address: Endpoint::new(address("10.1.0.200"), 514),
            targets: vec![
                Endpoint::new(address(SERVERS[0]), 1000),
                Endpoint::new(address("192.0.2.77"), 1001),
                Endpoint::new(address(SERVERS[1]), 1002),
            ],
            source: None,
        }];
    });
    let recipe = Recipe {
        payload: vec![9; 600],
        ..Recipe::new(UDP, (address(CLIENTS[0]), 7), (address("10.1.0.200"), 514))
    };
    for (frames, offload) in
        [(vec![recipe.frame()], recipe.offload()), (recipe.fragments(304, 8), Offload::default())]
    {
        let mut bytes = BTreeMap::<_, Vec<u8>>::new();
        for frame in &frames {
            let mut head = Head::new();
            let moment = nicache_forward::Moment { now: world.now, random: 0 };
            let incoming = Incoming { look: frame, len: frame.len(), port: INSIDE, offload };
            let decision = world.forwarder.handle(&incoming, &mut head, moment);
            assert_eq!(decision, Decision::FanOut { group: 0, targets: 3 });
            for target in 0..3 {
                let one = world.forwarder.fan_out(&incoming, (0, target), &mut head, world.now);
                match one {
                    Decision::Forward(out) => {
                        let sent = [&head[..], &frame[out.rest]].concat();
                        let seen = verify(&sent, out.offload).unwrap();
                        assert_eq!(seen.source, address(CLIENTS[0]));
                        bytes
                            .entry((seen.destination, target))
                            .or_default()
                            .extend(&sent[seen.transport_at..]);
                    }
                    other => assert_eq!((other, target), (Decision::Wait, 1)),
                }
            }
        }
        assert_eq!(bytes.len(), 2);
        for ((destination, target), transport) in bytes {
            let seen = Seen { destination, ..Seen::of(&frames[0]) };
            verify_transport(&seen, &transport, Offload::default()).unwrap();
            assert_eq!(transport[2..4], (1000 + target as u16).to_be_bytes());
        }
    }
    assert!(world.forwarder.poll_question().is_some(), "the one who does not answer is asked for");
}
