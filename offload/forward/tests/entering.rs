//! Connections on the fast path: what is forwarded there while something else is decided here.

mod packets;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use nicache_forward::conntrack::Phase;
use nicache_forward::fast_path::{Arrival, FastPath, Numbers, Passed, Way};
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
