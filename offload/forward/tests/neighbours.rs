//! Connections on the fast path, and neighbours that get other MAC addresses.

mod packets;
mod world;

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nicache_forward::fast_path::{Arrival, FastPath, Numbers, Passed, Way};
use nicache_tcp::Time;
use packets::*;
use world::*;

/// What was said to a fast path that forwards nothing.
#[derive(Debug, Default)]
struct Said {
    /// Ways that count, or are of an old edition.
    ways: Vec<(Arrival, Way)>,
    edition: u32,
}

#[derive(Debug, Default)]
struct Path(Arc<Mutex<Said>>);

impl FastPath for Path {
    fn places(&self) -> u32 {
        64
    }

    fn has(&self, _: usize) -> bool {
        true
    }

    fn begin(&mut self, _: u32, _: Option<[Numbers; 2]>) -> io::Result<()> {
        Ok(())
    }

    fn enter(&mut self, arrival: &Arrival, way: &Way) -> io::Result<()> {
        let mut said = self.0.lock().unwrap();
        said.ways.retain(|(known, _)| known != arrival);
        said.ways.push((*arrival, *way));
        Ok(())
    }

    fn leave(&mut self, arrival: &Arrival) -> io::Result<()> {
        self.0.lock().unwrap().ways.retain(|(known, _)| known != arrival);
        Ok(())
    }

    fn look(&mut self, _: u32) -> io::Result<([Numbers; 2], [Passed; 2])> {
        Ok(Default::default())
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

/// A datagram of a client, and the server's answer.
fn exchange(world: &mut World, client: usize) {
    let ours = (address(CLIENTS[client]), 4000);
    let server = (address(SERVERS[0]), 53);
    let seen = world.try_leave(&Recipe::new(UDP, ours, server)).unwrap();
    let answer = Recipe::new(UDP, server, (seen.source, seen.ports.0));
    world.try_enter(&answer).unwrap();
}

fn learn(world: &mut World, client: usize, mac: u8) {
    let (now, client) = (world.now, address(CLIENTS[client]));
    world.forwarder.learn_neighbour(usize::from(INSIDE), client, [4, 0, 0, 0, 9, mac], now);
}

/// The destination MAC addresses of ways to a client that count.
fn ways_to(said: &Mutex<Said>, client: usize) -> Vec<u8> {
    let said = said.lock().unwrap();
    let client: IpAddr = address(CLIENTS[client]);
    let counting = said.ways.iter().filter(|(_, way)| way.edition == said.edition);
    counting
        .filter(|(_, way)| way.tuple.destination.address == client)
        .map(|(_, way)| way.macs[5])
        .collect()
}

/// A client that tells another MAC address all the time keeps nobody else from the fast path.
/// Ways to itself never go on with an address that no longer counts.
#[test]
fn who_moves_takes_nobody_with_it() {
    let mut world = World::new(|_| {});
    let said = Arc::new(Mutex::new(Said::default()));
    world.forwarder.set_fast_path(Box::new(Path(Arc::clone(&said))), Time::ZERO).unwrap();
    world.now = Time::from_millis(10_000);
    for client in [0, 1] {
        world.forwarder.forget_neighbour(usize::from(INSIDE), address(CLIENTS[client]));
    }
    for client in [0, 1] {
        learn(&mut world, client, client as u8);
        for _ in 0..6 {
            exchange(&mut world, client);
        }
        assert_eq!(ways_to(&said, client), [client as u8]);
    }
    let voided = world.forwarder.fast_counters().unwrap().voided;
    for turn in 0..300u32 {
        world.now += Duration::from_millis(10);
        learn(&mut world, 1, 16 + (turn % 2) as u8);
        if turn % 100 == 0 {
            world.forwarder.sweep(world.now);
        }
        let counts = world.forwarder.neighbours().find(0, address(CLIENTS[1])).unwrap()[5];
        assert!(ways_to(&said, 1).iter().all(|mac| *mac == counts), "turn {turn}");
        assert_eq!(ways_to(&said, 0), [0], "turn {turn}");
        exchange(&mut world, 1);
    }
    assert_eq!(world.forwarder.fast_counters().unwrap().voided, voided);
    // The other one moves now, says so once, and is followed when the second is over.
    learn(&mut world, 0, 77);
    for _ in 0..2 {
        world.now += Duration::from_secs(1);
        world.forwarder.sweep(world.now);
    }
    assert_eq!(ways_to(&said, 0), []);
    exchange(&mut world, 0);
    exchange(&mut world, 0);
    assert_eq!(ways_to(&said, 0), [77]);
}
