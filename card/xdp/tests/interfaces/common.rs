//! Namespaces, veth pairs between them, and traffic of the kernels at both ends.

use std::io::{IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub(crate) use nicache_namespaces::Namespace;
use nicache_port::*;

pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// MAC address of host 1 (the client) or 2 (the server).
pub(crate) fn mac(host: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, host]
}

/// A client's namespace, a server's, each with an interface `eth0`, and the card's between them
/// with the other ends, `wire` and `host`.
pub(crate) struct Scene {
    pub client: Namespace,
    pub server: Namespace,
    pub card: Namespace,
}

pub(crate) fn scene() -> Option<Scene> {
    scene_with("")
}

/// `options` are those of `ip link add`, for both ends.
pub(crate) fn scene_with(options: &str) -> Option<Scene> {
    let scene =
        Scene { client: Namespace::new()?, server: Namespace::new()?, card: Namespace::new()? };
    for (number, namespace, name) in [(1, &scene.client, "wire"), (2, &scene.server, "host")] {
        let thread = namespace.thread_id();
        scene.card.ip(format!(
            "link add {name} {options} type veth peer name eth0 address 02:00:00:00:00:0{number} {options} netns {thread}"
        ));
        scene.card.ip(format!("link set {name} addrgenmode none up"));
        namespace.ip("link set eth0 addrgenmode none");
        namespace.ip(format!("address add 10.77.0.{number}/24 dev eth0"));
        namespace.ip(format!("address add fd77::{number}/64 dev eth0 nodad"));
        namespace.ip("link set eth0 up");
    }
    Some(scene)
}

impl Scene {
    /// Lets both kernels at the ends send complete checksums: AF_XDP cannot tell those that are
    /// not.
    pub(crate) fn complete_checksums(&self) {
        for namespace in [&self.client, &self.server] {
            namespace.command("ethtool", "-K eth0 tx off");
        }
    }
}

pub(crate) fn v4(host: u8, port: u16) -> SocketAddr {
    format!("10.77.0.{host}:{port}").parse().unwrap()
}

pub(crate) fn v6(host: u8, port: u16) -> SocketAddr {
    format!("[fd77::{host}]:{port}").parse().unwrap()
}

/// Kills the child if the test fails.
pub(crate) struct Reaped(pub Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A bump in the wire between two ports.
pub(crate) struct Bridge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counters: [Arc<PortCounters>; 2],
}

impl Bridge {
    /// `beat` is called over and over.
    pub(crate) fn start(
        first: impl Port + Send + 'static,
        second: impl Port + Send + 'static,
        beat: impl Fn(u64) + Send + 'static,
    ) -> Self {
        let (mut first, mut second) = (Counted::new(first), Counted::new(second));
        let counters = [first.counters(), second.counters()];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut clock = MonotonicClock;
            let mut idle = Idle::new(IdlePolicy::default());
            let mut burst = Burst::new(64);
            while !stopped.load(Ordering::Relaxed) {
                let now_ns = clock.now_ns();
                beat(now_ns);
                let moved = forward(&mut first, &mut second, &mut burst)
                    + forward(&mut second, &mut first, &mut burst);
                if moved > 0 {
                    idle.handle_work(now_ns, moved);
                } else if idle.poll(now_ns) == IdleStep::Sleep {
                    let fds = [first.wait_fd().unwrap(), second.wait_fd().unwrap()];
                    wait(&fds, Some(Duration::from_millis(20))).unwrap();
                }
            }
        });
        Self { stop, thread: Some(thread), counters }
    }

    /// Ends the bridge and tells what went through either port.
    pub(crate) fn stop(mut self) -> [PortSnapshot; 2] {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        self.counters.each_ref().map(|counters| counters.snapshot())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn forward(from: &mut impl Port, to: &mut impl Port, burst: &mut Burst) -> usize {
    from.receive(burst).unwrap();
    for frame in burst.iter() {
        match send_with_fallback(to, &[IoSlice::new(frame.data())], frame.offload()) {
            // The interface at the other end may be going down.
            Ok(_) | Err(SendError::Full | SendError::Io(_)) => {}
            Err(error) => panic!("{error}: {frame:?}"),
        }
    }
    to.flush().unwrap();
    burst.len()
}

/// Sends `bytes` bytes from the first namespace to the second over TCP, and compares them.
pub(crate) fn transfer(first: &Namespace, second: &Namespace, address: SocketAddr, bytes: usize) {
    let listener = second.run(move || TcpListener::bind(address)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut sender = first.run(move || TcpStream::connect_timeout(&address, DEADLINE)).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    sender.set_write_timeout(Some(DEADLINE)).unwrap();
    receiver.set_read_timeout(Some(DEADLINE)).unwrap();
    let data: Vec<u8> =
        (0..bytes as u32).map(|n| (n.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&data).unwrap();
            sender.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).unwrap();
        assert!(received == data, "{} of {} bytes", received.len(), data.len());
    });
}

/// The interface has no program. One that another test starts at the moment may hold the program's
/// descriptors until it is executed.
pub(crate) fn assert_without_program(namespace: &Namespace, interface: &str) {
    let began = std::time::Instant::now();
    while namespace.ip(format!("-d link show {interface}")).contains("xdp") {
        assert!(began.elapsed() < DEADLINE, "{interface} has a program");
        std::thread::sleep(Duration::from_millis(10));
    }
}
