//! The forwarder with a card between two kernels: the firmware behind packet sockets, the engine in
//! front of it, and nginx and curl at the ends.

mod namespaces;

use std::io::IoSlice;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use namespaces::{Namespace, nginx, send_back};
use nicache_bus::{Attachment, BusClass, BusCounters, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig, EngineCounters};
use nicache_forward::first_bytes::By;
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::names::Names;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::services::{BackEnd, ByName, ServiceConfig};
use nicache_forward::tuple::{Endpoint, Protocol};
use nicache_forward::{Config, Counters, Forwarder};
use nicache_port::{Burst, Offload, PacketConfig, PacketSocket, Port};
use nicache_tcp::Time;

const FILE_BYTES: usize = 6 << 20;
const BUFFERS: u32 = 960;

/// Forwards until it is told to stop; what has crossed and what was done. `known`: neighbours by
/// the second interface.
fn run(
    config: Config,
    mode: Mode,
    ports: Vec<PacketSocket>,
    stop: &AtomicBool,
    known: &[(IpAddr, [u8; 6])],
) -> (BusCounters, EngineCounters, Counters) {
    let made = Attachment::create().unwrap();
    let files = made.files().map(|file| file.try_clone_to_owned().unwrap());
    let window = Arc::new(Window::create("test", Bus::window_bytes(BUFFERS) as usize).unwrap());
    let seen = Arc::new(Window::map(window.file().try_clone_to_owned().unwrap()).unwrap());
    let begin = Instant::now();
    let now = || Time(begin.elapsed().as_nanos() as u64);
    std::thread::scope(|scope| {
        let card = scope.spawn(move || {
            let side = Attachment::from_files(files).unwrap().card();
            let mut card = Firmware::with_ports(ports, side, seen, 2 << 20, None).unwrap();
            while !stop.load(Ordering::Relaxed) {
                if card.turn(now().0).unwrap() == Progress::Idle {
                    std::thread::sleep(Duration::from_micros(50));
                }
            }
            *card.bus()
        });
        let setup = EngineConfig {
            mode,
            order: Order::Mru,
            entries: 512,
            buffers: BUFFERS,
            posts: 256,
            queue: 400,
        };
        let mut engine = Engine::new(Bus::new(made.host(), window, BUFFERS), setup);
        let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
        known.iter().for_each(|(address, mac)| forwarder.set_neighbour(1, *address, *mac));
        let mut random = fastrand::Rng::with_seed(1);
        while !stop.load(Ordering::Relaxed) {
            engine.poll().unwrap();
            forwarder.expire(now());
            if engine.forward(&mut forwarder, 64, now(), || random.u32(..)).unwrap() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        (card.join().unwrap(), *engine.counters(), *forwarder.counters())
    })
}

#[test]
fn files_arrive_in_every_mode() {
    let (Some(client), Some(server), Some(middle)) =
        (Namespace::with_loopback(), Namespace::with_loopback(), Namespace::with_loopback())
    else {
        return;
    };
    client.veth("eth0", &middle, "left");
    server.veth("eth0", &middle, "right");
    client.ip("address add 10.1.0.2/24 dev eth0");
    client.ip("route add default via 10.1.0.1");
    server.ip("address add 192.0.2.2/24 dev eth0");
    let folder = tempfile::tempdir().unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let file: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(FILE_BYTES).collect();
    std::fs::write(folder.path().join("file"), &file).unwrap();
    let _nginx = nginx(&server, folder.path(), "one", "192.0.2.2:80");
    for (name, number) in [("left", 0), ("right", 1)] {
        middle.ip(format!("link set {name} address 2:0:0:0:1:{number}"));
    }
    for mode in Mode::ALL {
        let interface = |port: u8, ours: &str, masquerade| Interface {
            port,
            tags: Default::default(),
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(ours.parse().unwrap(), 24)],
            mtu: 1500,
            masquerade,
        };
        let mut config = Config::new(
            vec![interface(0, "10.1.0.1", vec![]), interface(1, "192.0.2.1", vec![0])],
            7,
        );
        config.externals = vec![External {
            address: "192.0.2.1".parse().unwrap(),
            ports: 1024..=65_535,
            filtering: Filtering::default(),
        }];
        let ports = middle.run(|| {
            ["left", "right"].map(|name| {
                PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0)
            })
        });
        let stop = AtomicBool::new(false);
        let (bus, counters, _) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(config, mode, Vec::from(ports), &stop, &[]));
            let ask = |path: &str| {
                let begin = Instant::now();
                loop {
                    let output =
                        client.output(&format!("curl -sS --max-time 20 http://192.0.2.2{path}"));
                    if output.status.success() {
                        return Ok(output.stdout);
                    }
                    if begin.elapsed() > Duration::from_secs(40) {
                        return Err(format!("{mode}: {output:?}"));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            };
            let who = ask("/who");
            let got = ask("/file");
            stop.store(true, Ordering::Relaxed);
            let outcome = running.join().unwrap();
            assert_eq!(who.unwrap(), b"one 192.0.2.1", "{mode}");
            assert!(got.unwrap() == file, "{mode}: the file arrived otherwise");
            outcome
        });
        let content = bus.of(BusClass::Content);
        println!("{mode}: {bus:?} {counters:?}");
        assert_eq!(
            (counters.refused, counters.refused_receipts, counters.too_long),
            (0, 0, 0),
            "{mode}"
        );
        let payload = FILE_BYTES as u64;
        match mode {
            // What comes whole is counted with its headers, and goes out as content.
            Mode::Copy => assert!(content >= payload && bus.of(BusClass::Other) > payload),
            Mode::Pcache => assert!(content >= payload),
            Mode::Direct => assert!(content < payload / 10, "{content}"),
            Mode::Spill | Mode::Adaptive => assert_eq!(counters.lost, 0),
        }
    }
}

/// A segment with 1448 bytes of payload and no options, for the forwarder's first interface.
fn segment(number: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 1, 0, 2, 0, 0, 0, 9, 9, 8, 0];
    let mut ip = [0x45, 0, 5, 208, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 1, 0, 2, 192, 0, 2, 2];
    let sum: u32 = ip.chunks(2).map(|half| u32::from(u16::from_be_bytes([half[0], half[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    frame.extend(ip);
    frame.extend([0x1f, 0x90, 0, 80, 0, 0, 0, number, 0, 0, 0, 1, 0x50, 0x10, 4, 0, 0, 0, 0, 0]);
    frame.extend((0..1448u32).map(|at| (at as u8).wrapping_mul(number | 1)));
    frame
}

/// Exactly so many bytes cross the bus for a packet of 1448 bytes behind 54 of headers, between
/// real interfaces.
#[test]
fn bytes_over_the_bus_for_each_packet() {
    const COUNT: u8 = 100;
    let (Some(ends), Some(middle)) = (Namespace::with_loopback(), Namespace::with_loopback())
    else {
        return;
    };
    ends.veth("eth0", &middle, "left");
    ends.veth("eth1", &middle, "right");
    for (name, number) in [("left", 0), ("right", 1)] {
        middle.ip(format!("link set {name} address 2:0:0:0:1:{number}"));
    }
    // What the kernel says of itself there would be counted, too.
    ends.run(|| {
        for name in ["eth0", "eth1"] {
            std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1").unwrap();
        }
    });
    for (mode, bytes) in [
        (Mode::Copy, 3068),
        (Mode::Pcache, 1620),
        (Mode::Direct, 172),
        (Mode::Spill, 172),
        (Mode::Adaptive, 172),
    ] {
        let interface = |port: u8, ours: &str| Interface {
            port,
            tags: Default::default(),
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(ours.parse().unwrap(), 24)],
            mtu: 1500,
            masquerade: Vec::new(),
        };
        let config = Config::new(vec![interface(0, "10.1.0.1"), interface(1, "192.0.2.1")], 7);
        let open =
            |name: &str| PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0);
        let ports = middle.run(move || ["left", "right"].map(open));
        let (mut from, mut to) = ends.run(move || (open("eth0"), open("eth1")));
        let stop = AtomicBool::new(false);
        let known = [("192.0.2.2".parse().unwrap(), [2, 0, 0, 0, 2, 2])];
        let (bus, counters, arrived) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(config, mode, Vec::from(ports), &stop, &known));
            let (mut burst, mut arrived) = (Burst::new(64), 0u32);
            let begin = Instant::now();
            for number in 0..COUNT {
                from.send(&[IoSlice::new(&segment(number))], Offload::default()).unwrap();
                from.flush().unwrap();
                while arrived <= u32::from(number) && begin.elapsed() < Duration::from_secs(60) {
                    to.receive(&mut burst).unwrap();
                    for frame in burst.frames() {
                        let is_it = frame.data().get(54..) == segment(arrived as u8).get(54..);
                        arrived += u32::from(is_it);
                    }
                    std::thread::yield_now();
                }
            }
            stop.store(true, Ordering::Relaxed);
            let (bus, counters, _) = running.join().unwrap();
            (bus, counters, arrived)
        });
        assert_eq!(
            (arrived, counters.received),
            (u32::from(COUNT), u64::from(COUNT)),
            "{mode}: {counters:?}"
        );
        assert_eq!(bus.total(), u64::from(COUNT) * bytes, "{mode}: {bus:?}");
    }
}

/// A back end by name behind a shorter MTU, of which nothing is known when its first client comes:
/// in every mode, and whether the client cuts its segments itself or not, that client's megabyte
/// arrives and comes back. Nobody hears ICMP.
#[test]
fn a_back_end_that_takes_shorter_segments_than_its_first_client_was_told() {
    let (Some(client), Some(server), Some(middle)) =
        (Namespace::with_loopback(), Namespace::with_loopback(), Namespace::with_loopback())
    else {
        return;
    };
    client.veth("eth0", &middle, "left");
    server.veth("eth0", &middle, "right");
    client.ip("address add 10.1.0.2/24 dev eth0");
    client.ip("route add default via 10.1.0.1");
    server.ip("address add 192.0.2.2/24 dev eth0");
    // It drops what is longer, without a word. Only whole super-frames would get there.
    server.ip("link set eth0 mtu 600");
    middle.command("ethtool", "-K right tso off gso off");
    for namespace in [&client, &server] {
        namespace.command("nft", "add table ip quiet");
        namespace.command(
            "nft",
            "add chain ip quiet in { type filter hook prerouting priority -300 ; }",
        );
        namespace.command("nft", "add rule ip quiet in ip protocol icmp drop");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut random = fastrand::Rng::with_seed(8);
    let file: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(1 << 20).collect();
    std::fs::write(&path, &file).unwrap();
    let listener = server.run(|| TcpListener::bind("192.0.2.2:80").unwrap());
    std::thread::spawn(move || send_back(&listener));
    for (name, number) in [("left", 0), ("right", 1)] {
        middle.ip(format!("link set {name} address 2:0:0:0:1:{number}"));
    }
    for (mode, offloads) in Mode::ALL.into_iter().flat_map(|mode| [(mode, "on"), (mode, "off")]) {
        client.command("ethtool", format!("-K eth0 tx {offloads} tso {offloads} gso {offloads}"));
        let interface = |port: u8, ours: &str| Interface {
            port,
            tags: Default::default(),
            mac: [2, 0, 0, 0, 1, port],
            addresses: vec![(ours.parse().unwrap(), 24)],
            mtu: 1500,
            masquerade: Vec::new(),
        };
        let mut config = Config::new(vec![interface(0, "10.1.0.1"), interface(1, "192.0.2.1")], 7);
        config.externals = vec![External {
            address: "192.0.2.1".parse().unwrap(),
            ports: 1024..=65_535,
            filtering: Filtering::default(),
        }];
        let end = |text: &str| Endpoint::new(text.parse::<IpAddr>().unwrap(), 80);
        config.services = vec![ServiceConfig {
            protocol: Protocol::Tcp,
            address: end("10.1.0.100"),
            back_ends: vec![BackEnd { endpoint: end("192.0.2.2"), weight: 1 }],
            masquerade: Some(0),
            by_name: Some(ByName {
                by: By::Host,
                names: Names::new(&[vec![]]).unwrap(),
                proxy_protocol: false,
            }),
        }];
        let ports = middle.run(|| {
            ["left", "right"].map(|name| {
                PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0)
            })
        });
        let stop = AtomicBool::new(false);
        let (output, (_, engine, counters)) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(config, mode, Vec::from(ports), &stop, &[]));
            let output = client.output(&format!(
                "curl -sS --max-time 40 -H Expect: --data-binary @{} http://10.1.0.100/",
                path.display()
            ));
            stop.store(true, Ordering::Relaxed);
            (output, running.join().unwrap())
        });
        println!("{mode}, {offloads}: {engine:?} {counters:?}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == file, "{mode}, {offloads}: {error}");
        assert_eq!((counters.switch_accepted, counters.switch_spliced), (1, 1), "{mode}");
        assert!(counters.switch_cut > 0, "{mode}, {offloads}");
        assert_eq!((engine.refused, engine.too_long), (0, 0), "{mode}, {offloads}");
        if mode != Mode::Direct {
            assert_eq!(engine.lost, 0, "{mode}, {offloads}");
        }
    }
}
