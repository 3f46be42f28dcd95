//! The forwarder with a card between two kernels: the firmware behind packet sockets, the engine in front of it, and nginx and curl at the ends.

mod namespaces;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use namespaces::{Namespace, nginx};
use nicache_bus::{Attachment, BusClass, BusCounters, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_forward::bus::Bus;
use nicache_forward::engine::{Engine, EngineConfig, EngineCounters};
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::{Config, Forwarder};
use nicache_port::{PacketConfig, PacketSocket};
use nicache_tcp::Time;

const FILE_BYTES: usize = 6 << 20;
const BUFFERS: u32 = 960;

/// Forwards until it is told to stop; what has crossed and what was done.
fn run(config: Config, mode: Mode, ports: Vec<PacketSocket>, stop: &AtomicBool) -> (BusCounters, EngineCounters) {
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
        let setup = EngineConfig { mode, order: Order::Mru, entries: 512, buffers: BUFFERS, posts: 256, queue: 400 };
        let mut engine = Engine::new(Bus::new(made.host(), window, BUFFERS), setup);
        let mut forwarder = Forwarder::new(config, Time::ZERO).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        while !stop.load(Ordering::Relaxed) {
            engine.poll().unwrap();
            if engine.forward(&mut forwarder, 64, now(), || random.u32(..)).unwrap() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        (card.join().unwrap(), *engine.counters())
    })
}

#[test]
fn files_arrive_in_every_mode() {
    let (Some(client), Some(server), Some(middle)) = (Namespace::new(), Namespace::new(), Namespace::new()) else {
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
        middle.ip(&format!("link set {name} address 2:0:0:0:1:{number}"));
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
        let mut config = Config::new(vec![interface(0, "10.1.0.1", vec![]), interface(1, "192.0.2.1", vec![0])], 7);
        config.externals = vec![External {
            address: "192.0.2.1".parse().unwrap(),
            ports: 1024..=65_535,
            filtering: Filtering::default(),
        }];
        let ports = middle.run(|| {
            ["left", "right"].map(|name| PacketSocket::open(name, 1, &PacketConfig::default()).unwrap().remove(0))
        });
        let stop = AtomicBool::new(false);
        let (bus, counters) = std::thread::scope(|scope| {
            let running = scope.spawn(|| run(config, mode, Vec::from(ports), &stop));
            let ask = |path: &str| {
                let begin = Instant::now();
                loop {
                    let output = client.output(&format!("curl -sS --max-time 20 http://192.0.2.2{path}"));
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
        assert_eq!((counters.refused, counters.refused_receipts, counters.too_long), (0, 0, 0), "{mode}");
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
