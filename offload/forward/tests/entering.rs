//! Connections on the fast path: what is forwarded there while something else is decided here.

mod packets;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use nicache_forward::conntrack::Phase;
use nicache_forward::fast_path::{Arrival, FastPath, Numbers, Passed, Way};
use nicache_forward::services::{BackEnd, Chosen, Health, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_tcp::Time;
use packets::*;
use world::*;

/// A fast path that forwards what it is told to have forwarded.
#[derive(Debug, Default)]
struct Said {
    ways: Vec<(Arrival, Way)>,
    edition: u32,
    known: BTreeMap<u32, ([Numbers; 2], [Passed; 2])>,
    /// What is forwarded of the original direction just before a way is taken back: packets of 1000
    /// bytes.
    late: u32,
    /// Nothing is entered, or taken back.
    refuses_to_enter: bool,
    refuses_to_leave: bool,
}

impl Said {
    /// So many packets of 1000 bytes in the original direction, which the other end has
    /// acknowledged.
    fn forward(&mut self, place: u32, packets: u32) {
        let (numbers, passed) = self.known.get_mut(&place).unwrap();
        let bytes = packets.wrapping_mul(1000);
        numbers[0].end += bytes;
        numbers[0].max_end += bytes;
        numbers[1].acked += bytes;
        passed[0].packets += u64::from(packets);
        passed[0].bytes += 1000 * u64::from(packets);
    }
}

#[derive(Debug, Default)]
struct Path(Arc<Mutex<Said>>);

impl FastPath for Path {
    fn places(&self) -> u32 {
        1024
    }

    fn has(&self, _: usize) -> bool {
        true
    }

    fn begin(&mut self, place: u32, numbers: Option<[Numbers; 2]>) -> io::Result<()> {
        let known = (numbers.unwrap_or_default(), Default::default());
        self.0.lock().unwrap().known.insert(place, known);
        Ok(())
    }

    fn enter(&mut self, arrival: &Arrival, way: &Way) -> io::Result<()> {
        let mut said = self.0.lock().unwrap();
        if said.refuses_to_enter {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        said.ways.retain(|(known, _)| known != arrival);
        said.ways.push((*arrival, *way));
        Ok(())
    }

    fn leave(&mut self, arrival: &Arrival) -> io::Result<()> {
        let mut said = self.0.lock().unwrap();
        let way = said.ways.iter().find(|(known, _)| known == arrival).map(|(_, way)| *way);
        let way = way.ok_or(io::ErrorKind::NotFound)?;
        if said.refuses_to_leave {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let late = std::mem::take(&mut said.late);
        said.forward(way.place, late);
        said.ways.retain(|(known, _)| known != arrival);
        Ok(())
    }

    fn look(&mut self, place: u32) -> io::Result<([Numbers; 2], [Passed; 2])> {
        Ok(self.0.lock().unwrap().known[&place])
    }

    fn tell(&mut self, _: u32, _: [Numbers; 2]) -> io::Result<()> {
        Ok(())
    }

    fn keep(&mut self, edition: u32, _: Time) -> io::Result<()> {
        self.0.lock().unwrap().edition = edition;
        Ok(())
    }

    fn unsent(&self) -> u64 {
        0
    }
}

fn with_path(world: &mut World) -> Arc<Mutex<Said>> {
    let said = Arc::new(Mutex::new(Said::default()));
    world.forwarder.set_fast_path(Box::new(Path(Arc::clone(&said))), Time::ZERO).unwrap();
    said
}

/// A segment of the client, and one of the server.
fn tcp(flags: u8, seq: u32, ack: u32) -> Recipe {
    let recipe = Recipe::new(TCP, (address(CLIENTS[0]), 4000), (address(SERVERS[0]), 80));
    Recipe { tcp: (seq, ack, flags), ..recipe }
}

fn tcp_back(seen: (std::net::IpAddr, u16), flags: u8, seq: u32, ack: u32) -> Recipe {
    let recipe = Recipe::new(TCP, (address(SERVERS[0]), 80), seen);
    Recipe { tcp: (seq, ack, flags), ..recipe }
}

/// A connection of TCP whose both ways are entered, at 101 and 501; what the server sees.
fn entered(world: &mut World, said: &Mutex<Said>) -> (std::net::IpAddr, u16) {
    let seen = world.try_leave(&tcp(SYN, 100, 0)).unwrap().from();
    world.try_enter(&tcp_back(seen, SYN | ACK, 500, 101)).unwrap();
    for _ in 0..6 {
        world.try_leave(&tcp(ACK, 101, 501)).unwrap();
        world.try_enter(&tcp_back(seen, ACK, 501, 101)).unwrap();
    }
    assert_eq!(said.lock().unwrap().ways.len(), 2);
    seen
}

fn outside(world: &World) -> u64 {
    world.forwarder.counters().outside
}

/// What is forwarded there until the ways are gone counts, and is known to who goes on: a segment
/// is not strange because others came before it.
#[test]
fn what_is_forwarded_until_a_connection_leaves_is_known() {
    let mut world = World::new(|_| {});
    let said = with_path(&mut world);
    let seen = entered(&mut world, &said);
    let before = world.forwarder.counters().forwarded;
    said.lock().unwrap().late = 200;
    world.try_enter(&tcp_back(seen, FIN | ACK, 501, 101)).unwrap();
    assert!(said.lock().unwrap().ways.is_empty());
    let counters = world.forwarder.counters();
    assert_eq!(counters.forwarded - before, 201);
    assert_eq!(world.forwarder.fast_counters().unwrap().packets, 200);
    let end = 101 + 200_000;
    world.try_leave(&tcp(ACK, end, 502)).unwrap();
    world.try_leave(&tcp(FIN | ACK, end, 502)).unwrap();
    world.try_enter(&tcp_back(seen, ACK, 502, end + 1)).unwrap();
    assert_eq!(outside(&world), 0);
    assert_eq!(world.forwarder.connections().count(Phase::TimeWait), 1);
    // The same when the whole fast path ends.
    let mut world = World::new(|_| {});
    let said = with_path(&mut world);
    entered(&mut world, &said);
    said.lock().unwrap().late = 200;
    world.forwarder.clear_fast_path();
    world.try_leave(&tcp(ACK, end, 501)).unwrap();
    assert_eq!(outside(&world), 0);
}

/// A flow that was not heard of here for more than half a turn of its numbers is followed; one that
/// both have seen stays where it was seen last.
#[test]
fn numbers_that_have_turned_over_are_followed() {
    let mut world = World::new(|_| {});
    let said = with_path(&mut world);
    let seen = entered(&mut world, &said);
    // What is judged here is not set back by what is known there.
    world.try_leave(&Recipe { payload: vec![1; 1000], ..tcp(ACK, 101, 501) }).unwrap();
    world.try_enter(&tcp_back(seen, ACK, 501, 1101)).unwrap();
    assert_eq!(outside(&world), 0);
    let place = said.lock().unwrap().ways[0].1.place;
    for turn in 1..=3u32 {
        // Three gigabytes.
        said.lock().unwrap().forward(place, 3_000_000);
        let end = 101 + turn.wrapping_mul(3_000_000_000u32);
        world.try_leave(&tcp(ACK, end, 501)).unwrap();
        world.try_enter(&tcp_back(seen, ACK, 501, end)).unwrap();
        assert_eq!(outside(&world), 0, "turn {turn}");
    }
}

/// A way that cannot be renewed leaves the one before in its place, which goes with the connection:
/// it would be of somebody else's place one day.
#[test]
fn a_way_that_cannot_be_renewed_is_not_forgotten() {
    let mut world = World::new(|_| {});
    let said = with_path(&mut world);
    let seen = entered(&mut world, &said);
    world.forwarder.set_mtu(usize::from(OUTSIDE), 1400);
    said.lock().unwrap().refuses_to_enter = true;
    world.try_leave(&tcp(ACK, 101, 501)).unwrap();
    world.try_enter(&tcp_back(seen, ACK, 501, 101)).unwrap();
    assert_eq!(said.lock().unwrap().ways.len(), 2);
    world.try_leave(&tcp(RST, 101, 0)).unwrap();
    assert_eq!(said.lock().unwrap().ways, []);
}

/// A way that cannot be taken back no longer counts.
#[test]
fn a_way_that_cannot_be_taken_back_does_not_count() {
    let mut world = World::new(|_| {});
    let said = with_path(&mut world);
    entered(&mut world, &said);
    said.lock().unwrap().refuses_to_leave = true;
    world.try_leave(&tcp(RST, 101, 0)).unwrap();
    let said = said.lock().unwrap();
    assert!(said.ways.iter().all(|(_, way)| way.edition != said.edition), "{said:?}");
}

fn services(config: &mut nicache_forward::Config) {
    let back_end = |number: usize| BackEnd {
        endpoint: Endpoint::new(address(SERVERS[number]), 80),
        weight: 1,
    };
    config.services = vec![ServiceConfig {
        protocol: Protocol::Udp,
        address: Endpoint::new(address("10.1.0.100"), 80),
        back_ends: vec![back_end(0), back_end(1)],
        masquerade: None,
        by_name: None,
    }];
    config.interfaces[1].masquerade = vec![];
}

/// Datagrams of a client's port to the service, and their answers. Who has answered.
fn exchanges(world: &mut World, port: u16, count: usize) -> std::net::IpAddr {
    let mut server = None;
    for _ in 0..count {
        let to = (address("10.1.0.100"), 80);
        let seen = world.try_leave(&Recipe::new(UDP, (address(CLIENTS[0]), port), to)).unwrap();
        let back = Recipe::new(UDP, (seen.destination, 80), (address(CLIENTS[0]), port));
        world.try_enter(&back).unwrap();
        server = Some(seen.destination);
    }
    server.unwrap()
}

/// The ports of clients whose ways count, each as often as it has ways.
fn counting(said: &Mutex<Said>) -> Vec<u16> {
    let said = said.lock().unwrap();
    let ways = said.ways.iter().filter(|(_, way)| way.edition == said.edition);
    let mut ports: Vec<u16> = ways
        .map(|(arrival, way)| match way.direction as usize {
            0 => arrival.tuple.source.port,
            _ => way.tuple.destination.port,
        })
        .collect();
    ports.sort_unstable();
    ports
}

/// A back end that goes, comes, or is drained takes its own connections off the fast path, and
/// nobody else's.
#[test]
fn a_back_end_takes_nobody_else_with_it() {
    let mut world = World::new(services);
    let said = with_path(&mut world);
    let (ports, mut of): (Vec<u16>, [Vec<u16>; 2]) = ((1..=20).collect(), Default::default());
    for port in &ports {
        let server = exchanges(&mut world, *port, 6);
        let number = usize::from(server == address(SERVERS[1]));
        of[number].push(*port);
    }
    assert!(of.iter().all(|ports| ports.len() > 4), "{of:?}");
    let twice = |ports: &[u16]| -> Vec<u16> { ports.iter().flat_map(|port| [*port; 2]).collect() };
    assert_eq!(counting(&said), twice(&ports));
    let chosen = Chosen { service: 0, back_end: 0 };
    let until = Time::from_millis(5000);
    let changes: [fn(&mut World, Chosen, Time); 3] = [
        |world, chosen, _| world.forwarder.set_answers(chosen, false),
        |world, chosen, _| world.forwarder.set_answers(chosen, true),
        |world, chosen, until| world.forwarder.set_health(chosen, Health::Draining { until }),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        change(&mut world, chosen, until);
        if number == 1 {
            // It is back, and has nothing yet.
            assert_eq!(counting(&said), twice(&ports));
            world.forwarder.set_health(Chosen { service: 0, back_end: 1 }, Health::Down);
            assert_eq!(counting(&said), []);
        } else if number == 0 {
            assert_eq!(counting(&said), twice(&of[1]));
        } else {
            assert_eq!(counting(&said), []);
        }
        for port in &ports {
            exchanges(&mut world, *port, 6);
        }
        assert_eq!(counting(&said), twice(&ports));
    }
    let said = said.lock().unwrap();
    assert!(said.ways.iter().all(|(_, way)| way.until == until), "the deadline is in the ways");
    let fast = world.forwarder.fast_counters().unwrap();
    assert_eq!((fast.voided, fast.failed), (0, 0));
}

/// With more of them than are taken off one by one, all ways become void.
#[test]
fn a_back_end_with_many_connections() {
    let mut world = World::new(|config| {
        services(config);
        config.services[0].back_ends[1].weight = 0;
    });
    let said = with_path(&mut world);
    for port in 1..=300 {
        exchanges(&mut world, port, 6);
    }
    assert_eq!(counting(&said).len(), 600);
    world.forwarder.set_answers(Chosen { service: 0, back_end: 0 }, false);
    assert_eq!(counting(&said), []);
    assert_eq!(world.forwarder.fast_counters().unwrap().voided, 1);
}
