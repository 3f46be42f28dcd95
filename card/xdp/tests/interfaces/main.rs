//! Steering and sockets on real interfaces, between namespaces.

mod common;
mod frames;
mod life;
mod model;
mod probing;
mod sieve;
mod sockets;
mod table;

use std::io::IoSlice;
use std::time::Duration;

use common::*;
use nicache_port::*;
use nicache_xdp::*;

/// What the card serves in these tests.
fn services() -> Vec<Service> {
    let at = |address: &str, port| Service { address: Some(address.parse().unwrap()), port };
    vec![Service::port(80), at("10.77.0.2", 81), at("10.77.0.9", 82), at("fd77::2", 83)]
}

/// Steers between `wire` and `host` of the card's namespace.
fn attach(
    card: &Namespace,
    wire: (Rest, CardPort),
    host: (Rest, CardPort),
) -> Result<Steering, SteeringError> {
    card.run(move || {
        let side = |interface, (rest, port)| Side { interface, rest, port };
        Steering::attach(&SteeringConfig {
            services: &services(),
            wire: side("wire", wire),
            host: side("host", host),
            has_first: false,
            connections: 100,
        })
    })
}

const INLINE: (Rest, CardPort) = (Rest::Redirect, CardPort::Packet);

fn heartbeat(steering: &Steering) -> Heartbeat {
    Heartbeat::map(steering.files().heartbeat).unwrap()
}

/// A socket of a card: frames of services only.
fn filtered(card: &Namespace, interface: &'static str, files: SideFiles<'_>) -> PacketSocket {
    let filter = files.filter.try_clone_to_owned().unwrap();
    card.run(move || {
        use std::os::fd::AsFd;
        let config = PacketConfig { filter: Some(filter.as_fd()), ..PacketConfig::default() };
        PacketSocket::open(interface, 1, &config).unwrap().remove(0)
    })
}

/// A socket that sees everything at the other end of a wire, and sends anything.
fn tapped(namespace: &Namespace, interface: &'static str) -> PacketSocket {
    let config = PacketConfig { reception: Reception::Promiscuous, ..PacketConfig::default() };
    namespace.run(move || PacketSocket::open(interface, 1, &config)).unwrap().remove(0)
}

/// Sends one frame at once.
fn send(port: &mut impl Port, frame: &[u8]) {
    port.send(&[IoSlice::new(frame)], Offload::default()).unwrap();
    port.flush().unwrap();
}

/// The numbers of the cases that have arrived, in order.
fn arrived(port: &mut impl Port) -> Vec<usize> {
    let mut burst = Burst::new(64);
    let mut numbers = Vec::new();
    while port.receive(&mut burst).unwrap() > 0 {
        numbers.extend(burst.iter().filter_map(|frame| frames::number(frame.data())));
    }
    numbers
}

fn now_ns() -> u64 {
    MonotonicClock.now_ns()
}

/// Long enough for a test.
const LONG: Duration = Duration::from_secs(600);
