//! Connections whose back end was chosen by name, and whose numbers are moved therefore.

use std::io::IoSlice;

use nicache_forward::first_bytes::By;
use nicache_forward::names::Names;
use nicache_forward::services::ByName;
use nicache_forward::switch::LOOK_BYTES_MAX;
use nicache_port::{Burst, Offload};
use nicache_tcp::frame::{Addresses, HEADERS_BYTES_MAX, Packet, write_headers};
use nicache_tcp::{
    Flags, HeadRepr, SackBlocks, SegmentHead, Seq, SynOptions, Timestamps, checksum,
};

use super::*;

const REQUEST: &[u8] = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n";
const SERVICES: [&str; 2] = ["10.1.0.100", "fd01::100"];

/// A service for each version of IP, with one back end.
fn services(back_ends: [&'static str; 2]) -> impl FnOnce(&mut Config) {
    move |config| {
        let service = |number: usize| ServiceConfig {
            protocol: Protocol::Tcp,
            address: Endpoint::new(address(SERVICES[number]), 80),
            back_ends: vec![BackEnd {
                endpoint: Endpoint::new(address(back_ends[number]), 80),
                weight: 1,
            }],
            masquerade: Some(number),
            by_name: Some(ByName {
                by: By::Host,
                names: Names::new(&[vec![]]).unwrap(),
                proxy_protocol: false,
            }),
        };
        config.services = vec![service(0), service(1)];
    }
}

fn transfers(world: &World) {
    for (server, to) in [("192.0.2.2:80", "10.1.0.100:80"), ("[fd02::2]:80", "[fd01::100]:80")] {
        transfer_behind(world, server, to, REQUEST);
        within(|| world.notes().iter().all(|(_, phase)| *phase == Phase::TimeWait).then_some(()));
    }
    let fast = world.fast();
    assert_eq!((fast.connections, fast.unsent, fast.failed), (0, 0, 0), "{fast:?}");
    let (untranslated, spliced) = world.ask(|forwarder| {
        let counters = forwarder.counters();
        (counters.dropped_for(Dropped::Untranslated), counters.switch_spliced)
    });
    assert_eq!((untranslated, spliced), (0, 2));
    // All but the first bytes, which are the forwarder's to deliver.
    for (note, _) in world.notes() {
        let least = (BYTES as u32 - LOOK_BYTES_MAX).into();
        assert!(note.bytes.iter().all(|bytes| *bytes > least), "{note:?}");
    }
}

/// What kernels at the ends agree on, with and without the fast path, and with checksums that the
/// client has completed itself or not.
#[test]
fn bytes_are_those_of_the_slow_way() {
    for (with_fast_path, option, is_fast) in [
        (true, None, true),
        (false, None, false),
        (true, Some(("client", "timestamps")), true),
        (true, Some(("client", "window_scaling")), true),
        (true, Some(("server", "window_scaling")), true),
        // What the client was promised is put in and taken out, by the forwarder alone.
        (true, Some(("server", "timestamps")), false),
        (true, Some(("server", "sack")), false),
    ] {
        let Some(world) = World::new(false, with_fast_path, services(["192.0.2.2", "fd02::2"]))
        else {
            return;
        };
        if let Some((end, option)) = option {
            let namespace = if end == "client" { &world.client } else { &world.server };
            let path = format!("/proc/sys/net/ipv4/tcp_{option}");
            namespace.run(move || std::fs::write(path, "0").unwrap());
            world.client.command("ethtool", "-K eth0 tx off");
        }
        transfers(&world);
        let fast = world.fast();
        if is_fast {
            assert!(fast.bytes > 2 * BYTES as u64 && fast.entered == 2, "{option:?}: {fast:?}");
        } else {
            assert_eq!((fast.bytes, fast.entered), (0, 0), "{option:?}");
        }
    }
}

/// Segments with SACK go up, and overtake nothing that matters.
#[test]
fn lost_segments_come_again() {
    let Some(world) = World::new(false, true, services(["192.0.2.2", "fd02::2"])) else { return };
    for namespace in [&world.client, &world.server] {
        namespace.command("nft", "add table netdev loss");
        namespace.command(
            "nft",
            "add chain netdev loss in { type filter hook ingress device eth0 priority 0 ; }",
        );
        namespace
            .command("nft", "add rule netdev loss in meta l4proto tcp numgen random mod 50 0 drop");
    }
    transfers(&world);
    assert!(world.fast().entered >= 2);
}

/// Segments that are longer than an end takes are cut, so they go up; what fits does not.
#[test]
fn segments_that_an_end_does_not_take_go_up() {
    let Some(world) = World::new(false, true, services(["192.0.2.2", "fd02::2"])) else { return };
    world.server.ip("route replace 192.0.2.0/24 dev eth0 advmss 500");
    world.server.ip("-6 route replace fd02::/64 dev eth0 metric 100 advmss 500");
    world.server.command("nft", "add table inet short");
    world
        .server
        .command("nft", "add chain inet short in { type filter hook prerouting priority -300 ; }");
    for (version, most) in [("ipv4", 540), ("ipv6", 560)] {
        world.server.command(
            "nft",
            format!("add rule inet short in meta nfproto {version} meta l4proto tcp meta length > {most} drop"),
        );
    }
    // Whole super-frames would be dropped, too.
    for (namespace, name) in [(&world.client, "eth0"), (&world.middle, "right")] {
        namespace.command("ethtool", format!("-K {name} tso off gso off"));
    }
    transfers(&world);
    let fast = world.fast();
    let cut = world.ask(|forwarder| forwarder.counters().switch_cut);
    assert!(fast.bytes > 2 * BYTES as u64 && fast.bytes < 3 * BYTES as u64, "{fast:?}");
    assert!(cut > BYTES as u64 / 1500, "{cut}");
}

/// An end without a kernel, by its number: 0 is the client.
pub(super) struct End {
    socket: PacketSocket,
    number: u8,
    from: (IpAddr, u16),
    pub(super) to: (IpAddr, u16),
    burst: Burst,
}

pub(super) struct Got {
    pub(super) tcp: SegmentHead,
    pub(super) from: (IpAddr, u16),
    payload: Vec<u8>,
}

impl End {
    pub(super) fn new(
        namespace: &Namespace,
        number: u8,
        from: (IpAddr, u16),
        to: (IpAddr, u16),
    ) -> Self {
        let socket = namespace
            .run(|| PacketSocket::open("eth0", 1, &PacketConfig::default()).unwrap().remove(0));
        Self { socket, number, from, to, burst: Burst::new(32) }
    }

    /// `swaps`: the timestamps are not where everybody has them.
    pub(super) fn send(&mut self, repr: HeadRepr, payload: &[u8], swaps: bool) {
        let addresses = Addresses {
            source_mac: [4, 0, 0, 0, 9, self.number],
            destination_mac: [2, 0, 0, 0, 1, self.number],
            tags: Tags::default(),
            source: self.from.0.into(),
            destination: self.to.0.into(),
        };
        let repr = HeadRepr { src_port: self.from.1, dst_port: self.to.1, ..repr };
        let mut headers = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, &repr, payload.len() as u32, 9, &mut headers);
        let mut frame = [&headers[..len], payload].concat();
        let at = addresses.tcp_at();
        if swaps {
            frame[at + 20..at + 32].rotate_left(2);
        }
        let sum = checksum::finish(checksum::sum(&frame[at..]));
        frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        self.socket.send(&[IoSlice::new(&frame)], Offload::default()).unwrap();
        self.socket.flush().unwrap();
    }

    /// The next segment that comes here. All of it is as it should be.
    pub(super) fn get(&mut self) -> Got {
        let to = self.from;
        within(|| {
            self.socket.receive(&mut self.burst).unwrap();
            self.burst.frames().iter().find_map(|frame| {
                let packet = Packet::parse(frame.data())?;
                if packet.transport_at + 20 > packet.end || frame.data()[..4] != [4, 0, 0, 0] {
                    return None;
                }
                let data = &frame.data()[..packet.end];
                let tcp = nicache_tcp::parse(&data[packet.transport_at..]).ok()?;
                assert!(packet.is_header_right(data) && packet.is_segment_right(data), "{tcp:?}");
                let ip = |at: usize, len: usize| match len {
                    4 => IpAddr::from(<[u8; 4]>::try_from(&data[at..at + 4]).unwrap()),
                    _ => IpAddr::from(<[u8; 16]>::try_from(&data[at..at + 16]).unwrap()),
                };
                let len = if packet.source.is_v4() { 4 } else { 16 };
                let at = packet.transport_at - 2 * len;
                let (source, destination) = (ip(at, len), ip(at + len, len));
                if (destination, tcp.dst_port) != to && to.1 != 0 {
                    return None;
                }
                let payload = data[packet.transport_at + tcp.header_len..].to_vec();
                Some(Got { tcp, from: (source, tcp.src_port), payload })
            })
        })
    }
}

/// Each segment has the numbers that the other end expects, whoever forwards it, and the forwarder
/// is needed for nothing but what has other options.
#[test]
fn every_number_is_right() {
    const BACK_ENDS: [&str; 2] = ["192.0.2.9", "fd02::9"];
    const CLIENTS: [&str; 2] = ["10.1.0.9", "fd01::9"];
    let mut random = fastrand::Rng::with_seed(3);
    for (version, with_stamps, scales) in [
        (0, true, [Some(7), Some(10)]),
        (1, true, [Some(0), Some(14)]),
        (0, false, [Some(14), Some(3)]),
        (1, false, [None; 2]),
        (0, true, [None; 2]),
        (1, true, [Some(7), None]),
    ] {
        let Some(world) = World::new(false, true, services(BACK_ENDS)) else { return };
        world.ask(move |forwarder| {
            for (number, hosts) in [CLIENTS, BACK_ENDS].into_iter().enumerate() {
                let mac = [4, 0, 0, 0, 9, number as u8];
                forwarder.set_neighbour(number, address(hosts[version]), mac);
            }
        });
        let client_at = (address(CLIENTS[version]), 4711);
        let mut client = End::new(&world.client, 0, client_at, (address(SERVICES[version]), 80));
        let mut server = End::new(&world.server, 1, (address(BACK_ENDS[version]), 80), client_at);
        let (client_number, server_number) = (Seq(u32::MAX - 5000), Seq(random.u32(..)));
        let options = |scale: Option<u8>, val: u32, ecr: u32| SynOptions {
            mss: Some(1400),
            window_scale: scale,
            sack_permitted: true,
            timestamps: with_stamps.then_some(Timestamps { val, ecr }),
            ecn: false,
        };
        let stamps = |val, ecr| with_stamps.then_some(Timestamps { val, ecr });
        // A connection from the SYN to the splice.
        let syn = HeadRepr {
            seq: client_number,
            flags: Flags::SYN,
            window: 60_000,
            syn_options: Some(options(scales[0], 1000, 0)),
            ..HeadRepr::default()
        };
        client.send(syn, b"", false);
        let answer = client.get();
        let ours = answer.tcp.seq;
        let last = answer.tcp.timestamps.map_or(0, |stamps| stamps.val);
        let first = HeadRepr {
            seq: client_number + 1,
            ack: ours + 1,
            flags: Flags::ACK,
            window: 900,
            timestamps: stamps(1001, last),
            ..HeadRepr::default()
        };
        client.send(first, REQUEST, false);
        assert_eq!(client.get().tcp.ack, first.seq + REQUEST.len() as u32, "ours");
        let asked = server.get();
        assert!(asked.tcp.flags.syn() && asked.tcp.seq == client_number);
        server.to = asked.from;
        let syn_ack = HeadRepr {
            seq: server_number,
            ack: client_number + 1,
            flags: Flags::SYN | Flags::ACK,
            window: 60_000,
            syn_options: Some(options(scales[1], 77_000, 1000)),
            ..HeadRepr::default()
        };
        server.send(syn_ack, b"", false);
        assert_eq!(server.get().payload, REQUEST);
        let mut numbers = [client_number + 1 + REQUEST.len() as u32, server_number + 1];
        // Until the back end has acknowledged these, the forwarder sees each segment.
        let again = HeadRepr { seq: numbers[0], ..first };
        for _ in 0..10 {
            client.send(again, b"", false);
            assert_eq!(server.get().tcp.seq, numbers[0]);
        }
        assert_eq!(world.fast().entered, 0);
        let acked = HeadRepr {
            seq: numbers[1],
            ack: numbers[0],
            flags: Flags::ACK,
            window: 900,
            timestamps: stamps(77_001, 1001),
            ..HeadRepr::default()
        };
        server.send(acked, b"", false);
        let passed = client.get();
        let out_delta = ours - server_number.0;
        let stamp_delta = passed.tcp.timestamps.map_or(0, |stamps| stamps.val.wrapping_sub(77_001));
        let [client_scale, server_scale] = scales.map(|scale| scale.unwrap_or(0));
        // Toward the client it was agreed on, whatever the back end does.
        let card_scale = if scales[0].is_some() { 8 } else { 0 };
        let shown_scale = if scales[1].is_some() { client_scale } else { 0 };
        // Nothing goes up there, so the program alone says how far windows go.
        let all_usual = scales[0].is_some() && scales[1].is_none();
        let (mut fast, mut values) = (0, [2000u32, 78_000]);
        for step in 0..400 {
            let number = random.usize(..2);
            let payload: Vec<u8> = (0..random.usize(..1300)).map(|at| at as u8).collect();
            // 0: with SACK, 1: timestamps elsewhere, else as usual.
            let kind = if all_usual { 7 } else { random.u8(..8) };
            let mut sack = SackBlocks::EMPTY;
            // A window that is enough, but would not be in the other scale.
            let window =
                random.u16(if number == 0 && client_scale > 0 { 200..300 } else { 300..65_535 });
            values[number] += random.u32(..100);
            let from_client = number == 0;
            // Ahead of others, as far as the client's window lets it be.
            let is_ahead = number == 1 && client_scale > 0 && random.u8(..8) == 0;
            let gap = if is_ahead { 5000 } else { 0 };
            // As its end sees them.
            let (seq, ack) = match number {
                0 => (numbers[0], numbers[1] + out_delta.0),
                _ => (numbers[1] + gap, numbers[0]),
            };
            let edge = ack + 50;
            if kind == 0 {
                sack.push(edge, edge + 9);
            }
            let (val, ecr) = match from_client {
                true => (values[0], values[1].wrapping_add(stamp_delta)),
                false => (values[1], values[0]),
            };
            let swaps = kind == 1 && with_stamps;
            let repr = HeadRepr {
                seq,
                ack,
                flags: Flags::ACK | Flags::PSH,
                window,
                timestamps: stamps(val, ecr),
                sack,
                ..HeadRepr::default()
            };
            let before = world.fast().packets;
            let [sender, receiver] = match number {
                0 => [&mut client, &mut server],
                _ => [&mut server, &mut client],
            };
            sender.send(repr, &payload, swaps);
            let got = receiver.get();
            let is_fast = world.fast().packets - before;
            // Both directions are entered after some packets.
            if step > 20 {
                assert_eq!(is_fast, u64::from(kind != 0 && !swaps), "step {step}, kind {kind}");
            }
            fast += is_fast;
            let (seq, ack, val, ecr, moved, from, to) = match from_client {
                true => {
                    let ecr = ecr.wrapping_sub(stamp_delta);
                    let back = 0u32.wrapping_sub(out_delta.0);
                    (seq, ack + back, val, ecr, back, client_scale, shown_scale)
                }
                false => {
                    let val = val.wrapping_add(stamp_delta);
                    (seq + out_delta.0, ack, val, ecr, 0, server_scale, card_scale)
                }
            };
            let shown = ((u32::from(window) << from) >> to).min(65_535) as u16;
            assert_eq!(
                (got.tcp.seq, got.tcp.ack, got.tcp.window, got.tcp.timestamps, got.tcp.flags),
                (seq, ack, shown, stamps(val, ecr), repr.flags),
                "step {step}, from {number}"
            );
            let blocks: Vec<_> =
                sack.as_slice().iter().map(|(a, b)| (*a + moved, *b + moved)).collect();
            assert_eq!(got.tcp.sack.as_slice(), &blocks[..]);
            assert!(got.payload == payload);
            if !is_ahead {
                numbers[number] += payload.len() as u32;
            }
        }
        assert!(fast > 250, "{fast}");
        let outside = world.ask(|forwarder| forwarder.counters().outside);
        assert_eq!(outside, 0);
        // Neither end believes an acknowledgment of what was never sent, nor does anybody between.
        let strange = HeadRepr {
            seq: numbers[0],
            ack: numbers[1] + out_delta.0 + 100_000,
            flags: Flags::ACK,
            window: 900,
            timestamps: stamps(values[0], 0),
            ..HeadRepr::default()
        };
        let before = world.fast().packets;
        client.send(strange, b"", false);
        server.get();
        assert_eq!(world.fast().packets, before);
        assert_eq!(world.ask(|forwarder| forwarder.counters().outside), 1);
    }
}
