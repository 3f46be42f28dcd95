//! What a frame costs each kind of port: TAP, packet socket, AF_XDP. `cargo bench -p nicache-xdp`;
//! needs root.
//!
//! Everything is measured as processor time of the thread that has the port, so other programs on
//! the machine matter little. Each row is the median of several runs, and says how many frames and
//! bits one core could do if it did nothing else.
//!
//! * send: our side and the kernel's way to the other end of a veth pair (for a TAP: into the
//!   kernel), where frames for nobody are dropped.
//! * receive: our side only. What the kernel does before is done on the sender's account.
//! * forward: both ways of a port pair between two kernels that speak TCP, per frame with data;
//!   acknowledgments are part of it.

#[allow(dead_code)]
#[path = "../tests/interfaces/common.rs"]
mod common;

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use nicache_clock::thread_cpu_ns;
use nicache_port::*;
use nicache_xdp::*;

const RUN: Duration = Duration::from_millis(150);
const RUNS: usize = 7;
/// Frames between two flushes.
const BATCH: usize = 32;
/// Bytes that a forwarding pair carries in a run.
const TRANSFER: usize = 128 << 20;

/// Prints the median of runs that each tell frames, bytes, and processor time.
fn row(name: &str, mut run: impl FnMut() -> (u64, u64, u64)) {
    let mut runs: Vec<(f64, f64)> = (0..RUNS)
        .map(|_| run())
        .map(|(frames, bytes, ns)| {
            (ns as f64 / frames.max(1) as f64, bytes as f64 / frames.max(1) as f64)
        })
        .collect();
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ns, bytes) = runs[RUNS / 2];
    let spread = (runs[RUNS - 1].0 - runs[0].0) / ns * 100.0;
    println!(
        "{name:<34} {bytes:>7.0} B {ns:>8.0} ns {:>7.2} M/s {:>7.1} Gb/s   ±{:.0} %",
        1e3 / ns,
        bytes * 8.0 / ns,
        spread / 2.0
    );
}

/// A TCP segment for port 80 of a MAC address that nobody has.
fn frame(len: usize) -> (Vec<u8>, Offload) {
    let mut frame = vec![0; len];
    frame[..6].copy_from_slice(&mac(9));
    frame[12] = 8;
    frame[14] = 0x45;
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[23] = 6;
    frame[37] = 80;
    frame[46] = 5 << 4;
    let gso =
        (len > 1514).then_some(Gso { kind: GsoKind::Tcp4, size: 1460, header_len: 54, ecn: false });
    let checksum = if gso.is_some() {
        Checksum::Partial { start: 34, offset: 16 }
    } else {
        Checksum::Unverified
    };
    (frame, Offload { checksum, gso })
}

fn send_rows(name: &str, port: &mut impl Port, lens: &[usize], mut drain: impl FnMut()) {
    for len in lens {
        let (frame, offload) = frame(*len);
        let parts = [IoSlice::new(&frame[..54]), IoSlice::new(&frame[54..])];
        row(&format!("{name}, send"), || {
            let (start, mut frames, mut ns) = (Instant::now(), 0, 0);
            while start.elapsed() < RUN {
                let began = thread_cpu_ns();
                for _ in 0..BATCH {
                    frames += u64::from(send_with_fallback(port, &parts, offload).is_ok());
                }
                port.flush().unwrap();
                ns += thread_cpu_ns() - began;
                drain();
            }
            (frames, frames * frame.len() as u64, ns)
        });
    }
}

fn receive_rows(name: &str, from: &mut impl Port, port: &mut impl Port, lens: &[usize]) {
    let mut burst = Burst::new(BATCH);
    for len in lens {
        let (frame, offload) = frame(*len);
        row(&format!("{name}, receive"), || {
            let (start, mut frames, mut bytes, mut ns) = (Instant::now(), 0, 0, 0);
            while start.elapsed() < RUN {
                for _ in 0..BATCH {
                    let _ = from.send(&[IoSlice::new(&frame)], offload);
                }
                from.flush().unwrap();
                let began = thread_cpu_ns();
                while port.receive(&mut burst).unwrap() > 0 {
                    frames += burst.len() as u64;
                    bytes += burst.iter().map(|frame| frame.len() as u64).sum::<u64>();
                }
                ns += thread_cpu_ns() - began;
            }
            (frames, bytes, ns)
        });
    }
    row(&format!("{name}, receive when empty"), || {
        let began = thread_cpu_ns();
        for _ in 0..20_000 {
            port.receive(&mut burst).unwrap();
        }
        (20_000, 0, thread_cpu_ns() - began)
    });
}

/// A port that notes its thread's processor time.
struct Timed<P> {
    inner: P,
    ns: Arc<AtomicU64>,
}

impl<P: Port> Port for Timed<P> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn receive(&mut self, burst: &mut Burst) -> std::io::Result<usize> {
        let found = self.inner.receive(burst)?;
        if found > 0 {
            self.ns.store(thread_cpu_ns(), Ordering::Relaxed);
        }
        Ok(found)
    }
    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        self.inner.send(parts, offload)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.inner.wait_fd()
    }
}

/// Carries a TCP transfer; frames are those toward the receiver. Between frames the thread sleeps
/// at once, so waiting costs nothing.
fn forward_row(
    name: &str,
    scene: &Scene,
    wire: impl Port + Send + 'static,
    host: impl Port + Send + 'static,
    beat: impl Fn(u64) + Send + 'static,
) {
    let ns = Arc::new(AtomicU64::new(0));
    let (mut wire, mut host) = (Counted::new(Timed { inner: wire, ns: Arc::clone(&ns) }), host);
    let counters = wire.counters();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = std::thread::spawn(move || {
        let mut burst = Burst::new(64);
        while !stopped.load(Ordering::Relaxed) {
            beat(MonotonicClock.now_ns());
            if forward(&mut wire, &mut host, &mut burst) + forward(&mut host, &mut wire, &mut burst)
                == 0
            {
                let fds = [wire.wait_fd().unwrap(), host.wait_fd().unwrap()];
                wait(&fds, Some(Duration::from_millis(20))).unwrap();
            }
        }
    });
    std::thread::sleep(HEARTBEAT_INTERVAL);
    transfer(&scene.client, &scene.server, v4(2, 80), 1 << 20);
    row(&format!("{name}, forward"), || {
        let before = (counters.snapshot().receive, ns.load(Ordering::Relaxed));
        transfer(&scene.client, &scene.server, v4(2, 80), TRANSFER);
        let after = (counters.snapshot().receive, ns.load(Ordering::Relaxed));
        (after.0.frames - before.0.frames, after.0.bytes - before.0.bytes, after.1 - before.1)
    });
    stop.store(true, Ordering::Relaxed);
    thread.join().unwrap();
}

fn forward(from: &mut impl Port, to: &mut impl Port, burst: &mut Burst) -> usize {
    from.receive(burst).unwrap();
    for frame in burst.iter() {
        let _ = send_with_fallback(to, &[IoSlice::new(frame.data())], frame.offload());
    }
    to.flush().unwrap();
    burst.len()
}

fn tap_rows() {
    let Some(namespace) = Namespace::new() else { return };
    let mut tap = match namespace.run(|| Tap::open("bench", 1)) {
        Ok(mut queues) => queues.remove(0),
        Err(error) => return println!("no TAP: {error}"),
    };
    namespace.ip("link set bench addrgenmode none up");
    send_rows("TAP", &mut tap, &[60, 1514, 64_054], || ());
    // What is sent on the interface arrives at the TAP.
    let mut from = namespace
        .run(|| PacketSocket::open("bench", 1, &PacketConfig::default()))
        .unwrap()
        .remove(0);
    receive_rows("TAP", &mut from, &mut tap, &[60, 1514, 64_054]);

    let (Some(client), Some(server)) = (Namespace::new(), Namespace::new()) else { return };
    let tap = |namespace: &Namespace, host: u8| {
        let queue = namespace.run(|| Tap::open("eth0", 1)).unwrap().remove(0);
        namespace.ip(format!("link set eth0 address 02:00:00:00:00:0{host}"));
        namespace.ip(format!("address add 10.77.0.{host}/24 dev eth0"));
        namespace.ip("link set eth0 up");
        queue
    };
    let (wire, host) = (tap(&client, 1), tap(&server, 2));
    forward_row("TAP", &Scene { client, server, card: namespace }, wire, host, |_| ());
}

fn packet(namespace: &Namespace, name: &'static str, files: Option<SideFiles<'_>>) -> PacketSocket {
    let filter = files.map(|files| files.filter.try_clone_to_owned().unwrap());
    namespace.run(move || {
        let reception = if filter.is_some() { Reception::Own } else { Reception::Promiscuous };
        let filter = filter.as_ref().map(AsFd::as_fd);
        PacketSocket::open(name, 1, &PacketConfig { filter, reception, ..PacketConfig::default() })
            .unwrap()
            .remove(0)
    })
}

fn attach(scene: &Scene, port: CardPort) -> Steering {
    scene
        .card
        .run(move || {
            let side = |interface| Side { interface, rest: Rest::Redirect, port };
            let services = &[Service::port(80)];
            Steering::attach(&SteeringConfig {
                services,
                wire: side("wire"),
                host: side("host"),
                has_first: false,
                connections: 100,
            })
        })
        .unwrap()
}

fn packet_rows() {
    let Some(scene) = scene() else { return };
    let (mut wire, mut client) =
        (packet(&scene.card, "wire", None), packet(&scene.client, "eth0", None));
    let mut burst = Burst::new(64);
    send_rows("packet socket", &mut wire, &[60, 1514, 64_054], || {
        while client.receive(&mut burst).unwrap() > 0 {}
    });
    receive_rows("packet socket", &mut client, &mut wire, &[60, 1514, 64_054]);
    drop(client);
    forward_row("packet socket", &scene, wire, packet(&scene.card, "host", None), |_| ());

    let steering = attach(&scene, CardPort::Packet);
    let files = steering.files();
    let (mut wire, mut client) =
        (packet(&scene.card, "wire", Some(files.wire)), packet(&scene.client, "eth0", None));
    let heartbeat = Heartbeat::map(files.heartbeat).unwrap();
    heartbeat.beat(MonotonicClock.now_ns(), Duration::from_secs(3600));
    receive_rows("packet socket, steered", &mut client, &mut wire, &[60]);
    drop(client);
    let host = packet(&scene.card, "host", Some(files.host));
    forward_row("packet socket, steered", &scene, wire, host, move |now_ns| {
        heartbeat.beat(now_ns, LEASE);
    });
}

fn xdp_rows() {
    let Some(scene) = scene() else { return };
    let steering = attach(&scene, CardPort::Xdp { queues: 1 });
    let open = |interface: &'static str, files: SideFiles<'_>| {
        let sockets = files.sockets.try_clone_to_owned().unwrap();
        let config = XdpConfig::default();
        scene.card.run(move || XdpSocket::open(interface, 0, sockets.as_fd(), &config)).unwrap()
    };
    let files = steering.files();
    let (mut wire, host) = (open("wire", files.wire), open("host", files.host));
    let heartbeat = Heartbeat::map(files.heartbeat).unwrap();
    heartbeat.beat(MonotonicClock.now_ns(), Duration::from_secs(3600));
    let mut client = packet(&scene.client, "eth0", None);
    let mut burst = Burst::new(64);
    send_rows("AF_XDP, copy mode", &mut wire, &[60, 1514], || {
        while client.receive(&mut burst).unwrap() > 0 {}
    });
    receive_rows("AF_XDP, copy mode", &mut client, &mut wire, &[60, 1514]);
    drop(client);
    forward_row("AF_XDP, copy mode", &scene, wire, host, move |now_ns| {
        heartbeat.beat(now_ns, LEASE);
    });
}

fn main() {
    tap_rows();
    packet_rows();
    xdp_rows();
}
