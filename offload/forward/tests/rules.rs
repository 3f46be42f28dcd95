//! Whatever a packet is, it comes under a rule: errors, later pieces, protocols without a name.

mod packets;
mod world;

use nicache_forward::Drop;
use nicache_forward::rules::{Action, Rule};
use nicache_forward::tuple::Protocol;
use nicache_port::Offload;
use packets::*;
use world::*;

const GRE: u8 = 47;

fn rule(action: Action) -> Rule {
    Rule { interface: None, protocol: None, source: None, destination: None, ports: None, action }
}

/// Nothing is translated.
fn routed(rules: Vec<Rule>) -> World {
    World::new(|config| {
        config.interfaces[1].masquerade = vec![];
        config.rules = rules;
    })
}

fn datagram(payload: usize) -> Recipe {
    let recipe = Recipe::new(UDP, (address(CLIENTS[0]), 4000), (address(SERVERS[0]), 53));
    Recipe { payload: vec![7; payload], ..recipe }
}

/// What a client says about a packet that it claims to have had from a server.
fn error_of_client(client: usize, about: &Recipe) -> Vec<u8> {
    Recipe::error(address(CLIENTS[client]), &about.frame(), 200, (3, 3), 0).raw_frame()
}

fn to_client(client: usize) -> Recipe {
    Recipe::new(UDP, (address(SERVERS[0]), 53), (address(CLIENTS[client]), 4000))
}

#[test]
fn errors_about_nothing_known_come_under_rules() {
    let dropped = Rule { source: Some("10.1.0.2".parse().unwrap()), ..rule(Action::Drop) };
    let limited = Action::Limit { bytes_per_s: 1000, burst_bytes: 1000 };
    for rule in [dropped, Rule { protocol: Some(Protocol::Query), ..rule(Action::Drop) }] {
        let mut world = routed(vec![rule]);
        let frame = error_of_client(0, &to_client(0));
        assert_eq!(world.handle(&frame, INSIDE, Offload::default()).unwrap_err(), Drop::Rule);
    }
    let mut world = routed(vec![rule(limited)]);
    let frame = error_of_client(0, &Recipe { payload: vec![1; 300], ..to_client(0) });
    let passed =
        (0..100).filter(|_| world.handle(&frame, INSIDE, Offload::default()).is_ok()).count();
    assert!((1..=5).contains(&passed), "{passed}");
}

/// A connection's errors come under its rule, whoever sends them.
#[test]
fn errors_come_under_the_rule_of_their_connection() {
    let mut world = World::new(|_| {});
    let left = world.leaves(&datagram(40));
    let error = Recipe {
        tags: vec![TAG],
        to_mac: [2, 0, 0, 0, 1, OUTSIDE],
        ..Recipe::error(address("198.51.100.9"), &left, 60, (3, 4), 1400)
    };
    let mut enters = |rules| {
        world.forwarder.set_rules(rules, world.now);
        world.handle(&error.raw_frame(), OUTSIDE, Offload::default()).map(|_| ())
    };
    let of_client = |action| Rule { source: Some("10.1.0.2".parse().unwrap()), ..rule(action) };
    assert_eq!(enters(vec![of_client(Action::Drop)]), Err(Drop::Rule));
    let udp = Rule { protocol: Some(Protocol::Udp), ..of_client(Action::Allow) };
    assert_eq!(enters(vec![udp, rule(Action::Drop)]), Ok(()), "path MTUs are told");
}

#[test]
fn all_pieces_come_under_the_rule_of_the_first() {
    let limited = Action::Limit { bytes_per_s: 1, burst_bytes: 6000 };
    for is_routed in [false, true] {
        let by_port = Rule { ports: Some(53..=53), ..rule(limited) };
        let mut world = match is_routed {
            true => routed(vec![by_port]),
            false => World::new(|config| config.rules = vec![by_port]),
        };
        let mut passed = 0;
        for id in 0..20 {
            for frame in datagram(2400).fragments(800, id) {
                if world.handle(&frame, INSIDE, Offload::default()).is_ok() {
                    passed += frame.len() - 14;
                }
            }
        }
        assert!((4000..=6000).contains(&passed), "{passed}");
        let table = world.forwarder.connections();
        let counted: u64 = table.iter().map(|(_, known)| known.note.bytes[0]).sum();
        assert_eq!(counted, if is_routed { 0 } else { passed as u64 });
        // A rule that comes between the pieces counts.
        world.forwarder.set_rules(vec![], world.now);
        let frames = datagram(2400).fragments(800, 99);
        let mut handle = |frame: &[u8]| world.handle(frame, INSIDE, Offload::default()).map(|_| ());
        assert_eq!(handle(&frames[0]), Ok(()));
        assert_eq!(handle(&frames[1]), Ok(()));
        let drop = Rule { ports: Some(53..=53), ..rule(Action::Drop) };
        world.forwarder.set_rules(vec![drop], world.now);
        let last = world.handle(&frames[2], INSIDE, Offload::default());
        assert_eq!(last.unwrap_err(), Drop::Rule);
    }
}

/// A packet that waits for its neighbor is charged and counted when it goes, once.
#[test]
fn who_waits_is_charged_once() {
    let limited = Action::Limit { bytes_per_s: 1, burst_bytes: 1000 };
    let mut world = World::new(|config| config.rules = vec![rule(limited)]);
    let recipe = Recipe { destination: address("192.0.2.77"), ..datagram(772) };
    for _ in 0..10 {
        assert_eq!(world.try_leave(&recipe).unwrap_err(), Drop::Neighbour);
    }
    let told = |world: &World| {
        let counters = world.forwarder.counters();
        (counters.packets, counters.forwarded, counters.dropped_for(Drop::Neighbour))
    };
    assert_eq!(told(&world), (0, 0, 0));
    world.forwarder.set_neighbour(usize::from(OUTSIDE), recipe.destination, [4; 6]);
    assert!(world.try_leave(&recipe).is_ok());
    assert_eq!(told(&world), (1, 1, 0));
    assert_eq!(world.try_leave(&recipe).unwrap_err(), Drop::Rule);
    world.forwarder.give_up();
    assert_eq!(told(&world), (3, 1, 1));
}

#[test]
fn protocols_without_a_name_are_not_icmp() {
    let tunnel = Recipe {
        payload: vec![0; 40],
        ..Recipe::new(GRE, (address(CLIENTS[0]), 0), (address(SERVERS[0]), 0))
    };
    let icmp = |action| Rule { protocol: Some(Protocol::Query), ..rule(action) };
    let passes = |rules, recipe: &Recipe| routed(rules).try_leave(recipe).map(|_| ());
    let frame = |rules, recipe: &Recipe| {
        routed(rules).handle(&recipe.frame(), INSIDE, Offload::default()).map(|_| ())
    };
    assert_eq!(frame(vec![icmp(Action::Allow), rule(Action::Drop)], &tunnel), Err(Drop::Rule));
    assert_eq!(frame(vec![icmp(Action::Drop)], &tunnel), Ok(()));
    let ports = Rule { ports: Some(0..=65_535), ..rule(Action::Drop) };
    assert_eq!(frame(vec![ports], &tunnel), Ok(()), "it has no ports");
    // What is of ICMP and no echo still is of ICMP.
    let timestamp = Recipe { payload: vec![13; 20], protocol: ICMP, ..tunnel.clone() };
    let raw = timestamp.raw_frame();
    let dropped = routed(vec![icmp(Action::Drop)]).handle(&raw, INSIDE, Offload::default());
    assert_eq!(dropped.unwrap_err(), Drop::Rule);
    let echo = Recipe::new(ICMP, (address(CLIENTS[0]), 9), (address(SERVERS[0]), 1));
    assert_eq!(passes(vec![icmp(Action::Allow), rule(Action::Drop)], &echo), Ok(()));
}
