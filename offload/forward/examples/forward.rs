//! A forwarder between two interfaces: the firmware behind packet sockets in one thread, the engine
//! in front of it in another.
//!
//! ```text
//! forward --mode direct left=10.1.0.1/24 right=192.0.2.1/24,masquerade tcp/10.1.0.100:80=192.0.2.11:80,192.0.2.12:80
//! ```
//!
//! The interfaces are this program's alone: they have no addresses of the kernel's. What has
//! happened is printed once a second. It needs the rights to open packet sockets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicache_bus::{Attachment, Window};
use nicache_firmware::{Firmware, Progress};
use nicache_forward::bus::Bus;
use nicache_forward::counters::Drop;
use nicache_forward::engine::{Engine, EngineConfig};
use nicache_forward::interface::Interface;
use nicache_forward::modes::Mode;
use nicache_forward::nat::{External, Filtering};
use nicache_forward::pcache::Order;
use nicache_forward::services::{BackEnd, ServiceConfig};
use nicache_forward::tuple::Protocol;
use nicache_forward::{Config, Forwarder};
use nicache_port::{PacketConfig, PacketSocket, mtu};
use nicache_tcp::Time;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const BUFFERS: u32 = 2000;
const CACHE_BYTES: u32 = 4 << 20;
const POSTS: u32 = 256;
const NAP: Duration = Duration::from_micros(50);

/// What the words of the command line say.
struct Setup {
    mode: Mode,
    names: Vec<String>,
    config: Config,
}

fn main() -> Result<(), Failure> {
    let Setup { mode, names, mut config } = parse(std::env::args().skip(1))?;
    let mut ports = Vec::new();
    for (name, interface) in names.iter().zip(&mut config.interfaces) {
        let port = PacketSocket::open(name, 1, &PacketConfig::default())?.remove(0);
        interface.mtu = mtu(&port, name)? as u32;
        interface.mac = mac_of(name)?;
        ports.push(port);
    }
    let made = Attachment::create()?;
    let mut files = Vec::new();
    for file in made.files() {
        files.push(file.try_clone_to_owned()?);
    }
    let side =
        Attachment::from_files(files.try_into().map_err(|_| "an attachment has three files")?)?
            .card();
    let window = Arc::new(Window::create("nicache-forward", Bus::window_bytes(BUFFERS) as usize)?);
    let seen = Arc::new(Window::map(window.file().try_clone_to_owned()?)?);
    let begin = Instant::now();
    let now = move || Time(begin.elapsed().as_nanos() as u64);
    let mut card = Firmware::with_ports(ports, side, seen, CACHE_BYTES, None)?;
    let card = std::thread::spawn(move || -> Result<(), Failure> {
        loop {
            if card.turn(now().0)? == Progress::Idle {
                std::thread::sleep(NAP);
            }
        }
    });
    let entries = CACHE_BYTES / 4096;
    let setup = EngineConfig {
        mode,
        order: Order::Mru,
        entries,
        buffers: BUFFERS,
        posts: POSTS,
        queue: 400,
    };
    let mut engine = Engine::new(Bus::new(made.host(), window, BUFFERS), setup);
    let mut forwarder = Forwarder::new(config, now())?;
    let mut random = fastrand::Rng::new();
    let mut told = now();
    while !card.is_finished() {
        engine.poll()?;
        forwarder.expire(now());
        if engine.forward(&mut forwarder, 64, now(), || random.u32(..))? == 0 {
            std::thread::sleep(NAP);
        }
        if now().since(told) >= Duration::from_secs(1) {
            told = now();
            let counters = forwarder.counters();
            let dropped = Drop::ALL.map(|why| (why.label(), counters.dropped_for(why)));
            let dropped: Vec<_> = dropped.into_iter().filter(|(_, count)| *count > 0).collect();
            let connections = forwarder.connections().len();
            println!(
                "{mode}: {connections} connections, {:?}, dropped {dropped:?}",
                engine.counters()
            );
        }
    }
    card.join().map_err(|_| "the card's thread panicked")?
}

fn parse(words: impl Iterator<Item = String>) -> Result<Setup, Failure> {
    let mut setup = Setup {
        mode: Mode::Copy,
        names: Vec::new(),
        config: Config::new(Vec::new(), fastrand::u64(..)),
    };
    let mut words = words.peekable();
    while let Some(word) = words.next() {
        if word == "--mode" {
            setup.mode = words.next().ok_or("--mode needs a mode")?.parse()?;
            continue;
        }
        let (left, right) = word
            .split_once('=')
            .ok_or_else(|| format!("`{word}`: NAME=ADDRESS/LENGTH or SERVICE=BACK-ENDS"))?;
        match left.split_once('/') {
            Some((protocol, address)) => {
                setup.config.services.push(service(protocol, address, right)?);
            }
            None => add_interface(&mut setup, left, right)?,
        }
    }
    if setup.names.is_empty() {
        return Err(
            "which interfaces? For example: left=10.1.0.1/24 right=192.0.2.1/24,masquerade".into(),
        );
    }
    Ok(setup)
}

fn add_interface(setup: &mut Setup, name: &str, text: &str) -> Result<(), Failure> {
    let mut interface = Interface {
        port: setup.names.len() as u8,
        tags: Default::default(),
        mac: [0; 6],
        addresses: Vec::new(),
        mtu: 1500,
        masquerade: Vec::new(),
    };
    for part in text.split(',') {
        if part == "masquerade" {
            for (address, _) in &interface.addresses {
                interface.masquerade.push(setup.config.externals.len());
                let filtering = Filtering::default();
                setup.config.externals.push(External {
                    address: *address,
                    ports: 1024..=65_535,
                    filtering,
                });
            }
            continue;
        }
        let (address, len) = part
            .split_once('/')
            .ok_or_else(|| format!("`{part}` is not an address with a length"))?;
        interface.addresses.push((address.parse::<IpAddr>()?, len.parse()?));
    }
    setup.names.push(name.to_owned());
    setup.config.interfaces.push(interface);
    Ok(())
}

fn service(protocol: &str, address: &str, back_ends: &str) -> Result<ServiceConfig, Failure> {
    let protocol = match protocol {
        "tcp" => Protocol::Tcp,
        "udp" => Protocol::Udp,
        _ => return Err(format!("`{protocol}` is not a protocol: tcp or udp").into()),
    };
    let back_ends: Result<Vec<BackEnd>, _> = back_ends
        .split(',')
        .map(|text| {
            text.parse::<SocketAddr>()
                .map(|address| BackEnd { endpoint: address.into(), weight: 1 })
        })
        .collect();
    Ok(ServiceConfig {
        protocol,
        address: address.parse::<SocketAddr>()?.into(),
        back_ends: back_ends?,
        masquerade: None,
        by_name: None,
    })
}

/// The MAC address of an interface.
fn mac_of(name: &str) -> Result<[u8; 6], Failure> {
    let text = std::fs::read_to_string(format!("/sys/class/net/{name}/address"))?;
    let bytes: Result<Vec<u8>, _> =
        text.trim().split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes?.try_into().map_err(|_| format!("`{name}` has no Ethernet address").into())
}
