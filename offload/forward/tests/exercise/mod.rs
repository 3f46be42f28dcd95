//! What the fuzz targets and the replay of their corpora have in common.

#![allow(dead_code, reason = "not all who use this use all of it")]

use std::net::IpAddr;
use std::sync::Arc;

use nicache_bus::attachment::FRAMES;
use nicache_bus::{Attachment, CardSide, Window};
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::first_bytes::By;
use nicache_forward::first_bytes::name::Look;
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::names::{Names, Pattern};
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::services::{BackEnd, ByName, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Decision, Forwarder, Head, Incoming, Moment};
use nicache_port::{Checksum, Offload};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Packet, write_headers};
use nicache_tcp::{Flags, HeadRepr, Seq, SynOptions, Time, Timestamps, checksum};

const OURS: [&str; 2] = ["192.0.2.1", "fd02::1"];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Clients at port 0, the outside at port 1, a service for the clients, and two more by name.
pub(crate) fn forwarder() -> Forwarder {
    let interface = |port: u8, addresses: [&str; 2], masquerade| Interface {
        port,
        tags: Default::default(),
        mac: [2, 0, 0, 0, 1, port],
        addresses: addresses
            .into_iter()
            .zip([24, 64])
            .map(|(text, len)| (address(text), len))
            .collect(),
        mtu: 1500,
        masquerade,
    };
    let mut config = Config::new(
        vec![interface(0, ["10.1.0.1", "fd01::1"], vec![]), interface(1, OURS, vec![0, 1])],
        5,
    );
    config.externals = OURS
        .map(|text| External {
            address: address(text),
            ports: 1024..=2047,
            filtering: Filtering::default(),
        })
        .into();
    config.services = vec![ServiceConfig {
        protocol: Protocol::Tcp,
        address: Endpoint::new(address("10.1.0.100"), 80),
        back_ends: vec![BackEnd { endpoint: Endpoint::new(address("192.0.2.2"), 80), weight: 1 }],
        masquerade: None,
        by_name: None,
    }];
    for (by, port) in [(By::Sni, 443), (By::Host, 8080)] {
        let names = Names::new(&[vec![Pattern::new("*.example").unwrap()], vec![]]).unwrap();
        config.services.push(ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new(address("10.1.0.100"), port),
            back_ends: [80, 81]
                .map(|port| BackEnd {
                    endpoint: Endpoint::new(address("192.0.2.2"), port),
                    weight: 1,
                })
                .into(),
            masquerade: None,
            by_name: Some(ByName { by, names, proxy_protocol: by == By::Sni }),
        });
    }
    config.limits = nicache_forward::conntrack::Limits { connections: 64, opening: 16 };
    config.neighbours = 64;
    config.fragments = 8;
    let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
    for (interface, host) in [(0, "10.1.0.2"), (0, "fd01::2"), (1, "192.0.2.2"), (1, "fd02::2")] {
        forwarder.set_neighbour(interface, address(host), [4, 0, 0, 0, 0, interface as u8]);
    }
    forwarder
}

/// Frames, each behind a byte with port and kind of checksum, and two with its length. What comes
/// out is a frame, and outside it has our address.
pub(crate) fn packets(mut bytes: &[u8]) {
    let mut forwarder = forwarder();
    let mut head = Head::new();
    let mut now = Time::ZERO;
    while let [how, high, low, rest @ ..] = bytes {
        let len = (usize::from(*high) << 8 | usize::from(*low)).min(rest.len());
        let (frame, rest) = rest.split_at(len);
        bytes = rest;
        now += std::time::Duration::from_millis(u64::from(*how) * 10);
        let checksum = if how & 2 != 0 {
            Checksum::Partial { start: 34, offset: 16 }
        } else {
            Checksum::Unverified
        };
        let offload = Offload { checksum, gso: None };
        // Of some only the first bytes are at hand.
        let look = if how & 4 != 0 { frame.len().min(255) } else { frame.len() };
        let incoming = Incoming { look: &frame[..look], len: frame.len(), port: how & 1, offload };
        let mut decision = forwarder.handle(&incoming, &mut head, Moment { now, random: 9 });
        if decision == Decision::Look {
            let whole = Incoming { look: frame, ..incoming };
            decision = forwarder.handle_whole(&whole, &mut head, Moment { now, random: 9 });
        }
        match decision {
            Decision::Forward(out)
            | Decision::Cut { whole: out, .. }
            | Decision::Segment { whole: out, .. } => {
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
        while let Some((interface, frame)) = forwarder.poll_own() {
            assert!(interface < 2 && frame.len() <= nicache_forward::HEAD_BYTES_MAX);
        }
        forwarder.expire(now);
        assert!(forwarder.connections().len() <= 64);
    }
}

/// The first bytes of a client, in the way that the first one says. What a beginning of them says
/// is said by all of them, too.
pub(crate) fn names(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let by = if how & 1 == 0 { By::Sni } else { By::Host };
    let whole = by.look(bytes);
    if let Look::Name(name) = &whole {
        assert!(!name.as_bytes().is_empty() && name.as_bytes().is_ascii());
        assert!(!name.as_bytes().iter().any(u8::is_ascii_uppercase));
    }
    let steps = 1 + bytes.len() / 64;
    let said = (0..bytes.len())
        .step_by(steps)
        .map(|len| by.look(&bytes[..len]))
        .find(|look| *look != Look::More);
    if let Some(said) = said {
        assert_eq!(said, whole);
    }
}

/// A segment between two ends, with a right checksum.
fn segment(
    interface: u8,
    from: (&str, u16),
    to: (&str, u16),
    repr: HeadRepr,
    payload: &[u8],
) -> Vec<u8> {
    let addresses = Addresses {
        source_mac: [4, 0, 0, 0, 0, interface],
        destination_mac: [2, 0, 0, 0, 1, interface],
        tags: Default::default(),
        source: address(from.0).into(),
        destination: address(to.0).into(),
    };
    let repr = HeadRepr { src_port: from.1, dst_port: to.1, ..repr };
    let mut headers = [0; HEADERS_BYTES_MAX];
    let len = write_headers(&addresses, &repr, payload.len() as u32, 9, &mut headers);
    let mut frame = [&headers[..len], payload].concat();
    let sum = checksum::finish(checksum::sum(&frame[addresses.tcp_at()..]));
    let field = addresses.tcp_at() + 16;
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A client and a back end of a service by name, who say what the bytes say: five for each segment,
/// and its payload. They know the numbers of what was said to them, and keep to them or not.
pub(crate) fn switching(mut bytes: &[u8]) {
    let mut forwarder = forwarder();
    let mut head = Head::new();
    let mut now = Time(1 << 40);
    // Of the client and of the back end: the next number of its own, and what it expects.
    let mut ends = [(Seq(u32::MAX - 90), Seq(0)), (Seq(77), Seq(0))];
    let mut service = 443;
    // The back end's port, and the one that it sees its client at.
    let mut ports = (80, 4711);
    while let [who, flags, seq, ack, len, rest @ ..] = bytes {
        let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        bytes = rest;
        let side = usize::from(*who & 1);
        if *who & 2 != 0 && forwarder.connections().is_empty() {
            service = if *who & 4 != 0 { 8080 } else { 443 };
        }
        now += std::time::Duration::from_millis(u64::from(*who >> 3) * 40);
        let (next, expected) = ends[side];
        let flags = Flags(*flags & 0x1f);
        // Signed distances, most of them none.
        let away = |byte: u8| (i32::from(byte as i8) * if byte & 3 == 0 { 1 } else { 0 }) as u32;
        let stamps = (*ack & 0x40 != 0)
            .then_some(Timestamps { val: (now.0 >> 20) as u32, ecr: u32::from(*seq) });
        let options = SynOptions {
            mss: Some(u16::from(*ack) * 8),
            window_scale: (*seq & 2 != 0).then_some(*ack & 15),
            sack_permitted: *seq & 4 != 0,
            timestamps: stamps,
            ecn: false,
        };
        let repr = HeadRepr {
            seq: next + away(*seq),
            ack: expected + away(*ack),
            flags,
            window: u16::from(*seq) << 6,
            timestamps: stamps,
            syn_options: flags.syn().then_some(options),
            ..HeadRepr::default()
        };
        let frame = match side {
            0 => segment(0, ("10.1.0.2", 4711), ("10.1.0.100", service), repr, payload),
            _ => segment(1, ("192.0.2.2", ports.0), (OURS[0], ports.1), repr, payload),
        };
        if away(*seq) == 0 {
            ends[side].0 =
                next + payload.len() as u32 + u32::from(flags.syn()) + u32::from(flags.fin());
        }
        let incoming = Incoming {
            look: &frame,
            len: frame.len(),
            port: side as u8,
            offload: Offload::default(),
        };
        let moment = Moment { now, random: 3 };
        let mut decision = forwarder.handle(&incoming, &mut head, moment);
        if decision == Decision::Look {
            decision = forwarder.handle_whole(&incoming, &mut head, moment);
        }
        let passed = match decision {
            Decision::Forward(out) => Some((out.interface, [&head[..], &frame[out.rest]].concat())),
            Decision::Answer { interface } => Some((interface, head.to_vec())),
            _ => None,
        };
        forwarder.expire(now);
        let own = std::iter::from_fn(|| forwarder.poll_own()).collect::<Vec<_>>();
        for (interface, frame) in passed.into_iter().chain(own) {
            let packet = Packet::parse(&frame).expect("what leaves is a packet");
            if u8::from(packet.protocol) != nicache_forward::view::TCP {
                continue;
            }
            assert!(packet.is_segment_right(&frame), "its checksum is right");
            let tcp =
                nicache_tcp::parse(&frame[packet.transport_at..packet.end]).expect("with a header");
            let len = (packet.end - packet.transport_at - tcp.header_len) as u32;
            ends[interface].1 = tcp.seq + tcp.segment_len(len);
            if interface == 1 {
                ports = (tcp.dst_port, tcp.src_port);
            }
        }
        while forwarder.poll_question().is_some() {}
        for (id, _) in forwarder.connections().iter().collect::<Vec<_>>() {
            let _ = forwarder.save(id);
        }
        assert!(
            forwarder.connections().len() <= 64
                && forwarder.waiting_counts().iter().sum::<u32>() <= 4096
        );
    }
    // All that waits comes to an end.
    for _ in 0..400 {
        now += std::time::Duration::from_secs(1);
        forwarder.expire(now);
        while forwarder.poll_own().is_some() {}
    }
    assert_eq!(forwarder.waiting_counts(), [0; 3]);
}

/// Words that a card writes: received frames, completions, and counts; then the engine either has a
/// name for what is wrong, or goes on.
pub(crate) fn receipts(bytes: &[u8]) {
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    const BUFFERS: u32 = 16;
    let window = Arc::new(Window::create("exercise", Bus::window_bytes(BUFFERS) as usize).unwrap());
    let mut card: CardSide = Attachment::from_files(files).unwrap().card();
    let (mode, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let mode = Mode::ALL[usize::from(*mode) % Mode::ALL.len()];
    let config =
        EngineConfig { mode, order: Order::Mru, entries: 8, buffers: BUFFERS, posts: 6, queue: 4 };
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
                    let frame =
                        [&[2, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 1, 8, 0][..], &words, &[*what; 60]]
                            .concat();
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
        let _ = (
            card.received.publish(),
            card.done.publish(),
            card.commands.release(),
            card.free.release(),
        );
        if engine.poll().is_err()
            || engine.forward(&mut forwarder, 4, Time(step as u64 * 100_000_000), || 3).is_err()
        {
            return;
        }
        assert!(engine.queued() <= 4 + 1 && engine.free_buffers() <= BUFFERS as usize);
    }
}
