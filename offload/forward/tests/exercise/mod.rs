//! What the fuzz targets and the replay of their corpora have in common.

#![allow(dead_code, reason = "not all who use this use all of it")]

use std::net::IpAddr;
use std::sync::Arc;

use nicache_bus::attachment::FRAMES;
use nicache_bus::{Attachment, CardSide, Window};
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::services::{BackEnd, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Decision, Forwarder, Head, Incoming, Moment};
use nicache_port::{Checksum, Offload};
use nicache_tcp::Time;

const OURS: [&str; 2] = ["192.0.2.1", "fd02::1"];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Clients at port 0, the outside at port 1, a service for the clients.
pub fn forwarder() -> Forwarder {
    let interface = |port: u8, addresses: [&str; 2], masquerade| Interface {
        port,
        tags: Default::default(),
        mac: [2, 0, 0, 0, 1, port],
        addresses: addresses.into_iter().zip([24, 64]).map(|(text, len)| (address(text), len)).collect(),
        mtu: 1500,
        masquerade,
    };
    let mut config =
        Config::new(vec![interface(0, ["10.1.0.1", "fd01::1"], vec![]), interface(1, OURS, vec![0, 1])], 5);
    config.externals = OURS
        .map(|text| External { address: address(text), ports: 1024..=2047, filtering: Filtering::default() })
        .into();
    config.services = vec![ServiceConfig {
        protocol: Protocol::Tcp,
        address: Endpoint::new(address("10.1.0.100"), 80),
        back_ends: vec![BackEnd { endpoint: Endpoint::new(address("192.0.2.2"), 80), weight: 1 }],
        masquerade: None,
        by_name: None,
    }];
    config.limits = nicache_forward::conntrack::Limits { connections: 64, opening: 16 };
    config.neighbours = 64;
    config.fragments = 8;
    let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
    for (interface, host) in [(0, "10.1.0.2"), (0, "fd01::2"), (1, "192.0.2.2"), (1, "fd02::2")] {
        forwarder.set_neighbour(interface, address(host), [4, 0, 0, 0, 0, interface as u8]);
    }
    forwarder
}

/// Frames, each behind a byte with port and kind of checksum, and two with its length. What comes out is a frame, and outside it has our address.
pub fn packets(mut bytes: &[u8]) {
    let mut forwarder = forwarder();
    let mut head = Head::new();
    let mut now = Time::ZERO;
    while let [how, high, low, rest @ ..] = bytes {
        let len = (usize::from(*high) << 8 | usize::from(*low)).min(rest.len());
        let (frame, rest) = rest.split_at(len);
        bytes = rest;
        now += std::time::Duration::from_millis(u64::from(*how) * 10);
        let checksum = if how & 2 != 0 { Checksum::Partial { start: 34, offset: 16 } } else { Checksum::Unverified };
        let offload = Offload { checksum, gso: None };
        // Of some only the first bytes are at hand.
        let look = if how & 4 != 0 { frame.len().min(255) } else { frame.len() };
        let incoming = Incoming { look: &frame[..look], len: frame.len(), port: how & 1, offload };
        let decision = forwarder.handle(&incoming, &mut head, Moment { now, random: 9 });
        match decision {
            Decision::Forward(out) | Decision::Cut { whole: out, .. } => {
                assert!(out.rest.start <= out.rest.end && out.rest.end <= frame.len());
                assert!(head.len() >= 34);
                if out.interface == 1 {
                    let (_, at) = nicache_forward::view::network_of(&head).unwrap();
                    let source = match head[at] >> 4 {
                        4 => IpAddr::from(<[u8; 4]>::try_from(&head[at + 12..at + 16]).unwrap()),
                        _ => IpAddr::from(<[u8; 16]>::try_from(&head[at + 8..at + 24]).unwrap()),
                    };
                    assert!(OURS.map(address).contains(&source), "{source} went outside");
                }
            }
            Decision::Answer { .. } => assert!(head.len() >= 14),
            _ => {}
        }
        while forwarder.poll_question().is_some() {}
        forwarder.expire(now);
        assert!(forwarder.connections().len() <= 64);
    }
}

/// Words that a card writes: received frames, completions, and counts; then the engine either has a name for what is wrong, or goes on.
pub fn receipts(bytes: &[u8]) {
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    const BUFFERS: u32 = 16;
    let window = Arc::new(Window::create("exercise", Bus::window_bytes(BUFFERS) as usize).unwrap());
    let mut card: CardSide = Attachment::from_files(files).unwrap().card();
    let (mode, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let mode = Mode::ALL[usize::from(*mode) % Mode::ALL.len()];
    let config = EngineConfig { mode, order: Order::Mru, entries: 8, buffers: BUFFERS, posts: 6, queue: 4 };
    let mut engine = Engine::new(Bus::new(made.host(), Arc::clone(&window), BUFFERS), config);
    let mut forwarder = forwarder();
    let mut buffers = Vec::new();
    for (step, chunk) in rest.chunks(17).enumerate() {
        let [what, rest @ ..] = chunk else { break };
        let mut words = [0; 16];
        words[..rest.len()].copy_from_slice(rest);
        let word = |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().unwrap());
        let mut entry = [word(0), word(8)];
        if engine.poll().is_err() {
            return;
        }
        while let Ok(Some(post)) = card.free.pop() {
            buffers.push(post[0] & ((1 << 40) - 1));
        }
        match what % 8 {
            0..=4 => {
                if let Some(mmaddr) = buffers.pop().filter(|_| what % 8 < 4) {
                    entry[0] = entry[0] & !((1 << 40) - 1) | mmaddr;
                    // A length that fits the buffer, and some headers.
                    entry[1] = entry[1] & !0xffff_ffff | (entry[1] & 0x1fff);
                    let frame = [&[2, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 1, 8, 0][..], &words, &[*what; 60]].concat();
                    let _ = window.write(mmaddr, &frame);
                }
                if card.received.room().unwrap_or(0) > FRAMES as u64 - 900 {
                    let _ = card.received.push(entry);
                }
            }
            5 => drop(card.done.push(entry)),
            6 => while let Ok(Some(_)) = card.commands.pop() {},
            _ => {
                let _ = card.commands.pop();
            }
        }
        let _ = (card.received.publish(), card.done.publish(), card.commands.release(), card.free.release());
        if engine.poll().is_err() || engine.forward(&mut forwarder, 4, Time(step as u64 * 100_000_000), || 3).is_err() {
            return;
        }
        assert!(engine.queued() <= 4 + 1 && engine.free_buffers() <= BUFFERS as usize);
    }
}
