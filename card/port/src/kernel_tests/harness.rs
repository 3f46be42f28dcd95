//! Namespaces, a bridge between them, and traffic of the kernels at both ends.

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::*;

pub(super) const MTU_FRAME_BYTES: usize = 1514;
pub(super) const DEADLINE: Duration = Duration::from_secs(20);
pub(super) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A network namespace with the interface `card0`.
pub(super) struct Namespace(nicache_namespaces::Namespace);

impl Namespace {
    /// Gives this namespace an interface `card0` with the addresses 10.77.0.`host` and
    /// fd77::`host`, up, whose other end is `name` in the namespace `card`.
    pub(super) fn veth(&self, host: u8, card: &Self, name: &str) {
        let [a, b, c, d, e, _] = MAC;
        card.ip(format!(
            "link add {name} type veth peer name card0 address {a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{host:x} netns {}",
            self.thread_id()
        ));
        // The card's end is a plug in the wall, with no address of its own.
        card.ip(format!("link set {name} addrgenmode none up"));
        self.address(host);
    }

    fn address(&self, host: u8) {
        self.ip(format!("address add 10.77.0.{host}/24 dev card0"));
        self.ip(format!("address add fd77::{host}/64 dev card0 nodad"));
        self.ip("link set card0 up");
    }

    /// An interface `card0` with the addresses 10.77.0.`host` and fd77::`host`, up.
    pub(super) fn tap(&self, host: u8, queue_count: usize) -> Vec<TapQueue> {
        let queues = self.run(move || Tap::open("card%d", queue_count)).unwrap();
        let name = queues[0].interface().to_owned();
        assert_eq!(name, "card0");
        let [a, b, c, d, e, _] = MAC;
        self.ip(format!("link set {name} address {a:x}:{b:x}:{c:x}:{d:x}:{e:x}:{host:x}"));
        self.address(host);
        queues
    }
}

impl Deref for Namespace {
    type Target = nicache_namespaces::Namespace;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A namespace if TAPs can be made in it; else prints why not.
pub(super) fn namespace() -> Option<Namespace> {
    let namespace = nicache_namespaces::Namespace::new()?;
    match namespace.run(|| Tap::open("probe", 1)) {
        Err(error @ (TapError::NoDevice | TapError::NotPermitted)) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
        Ok(_) => Some(Namespace(namespace)),
    }
}

/// A port that sends as if it had no offloads, and sees to it that none is asked for.
pub(super) struct Plain<P>(pub(super) P);

impl<P: Port> Port for Plain<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::PLAIN
    }
    fn receive(&mut self, burst: &mut Burst) -> std::io::Result<usize> {
        self.0.receive(burst)
    }
    fn send(&mut self, parts: &[IoSlice<'_>], offload: Offload) -> Result<(), SendError> {
        assert!(Capabilities::PLAIN.supports(&offload));
        assert!(parts.iter().map(|part| part.len()).sum::<usize>() <= MTU_FRAME_BYTES);
        self.0.send(parts, offload)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
    fn wait_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.0.wait_fd()
    }
}

/// A bump in the wire between two namespaces.
pub(super) struct Bridge {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    counters: [Arc<PortCounters>; 2],
}

impl Bridge {
    pub(super) fn start(
        first: impl Port + Send + 'static,
        second: impl Port + Send + 'static,
    ) -> Self {
        let (mut first, mut second) = (Counted::new(first), Counted::new(second));
        let counters = [first.counters(), second.counters()];
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut clock = MonotonicClock;
            let mut idle = Idle::new(IdlePolicy::default());
            let mut burst = Burst::new(32);
            while !stopped.load(Ordering::Relaxed) {
                let moved = forward(&mut first, &mut second, &mut burst)
                    + forward(&mut second, &mut first, &mut burst);
                let now_ns = clock.now_ns();
                if moved > 0 {
                    idle.handle_work(now_ns, 1);
                } else if idle.poll(now_ns) == IdleStep::Sleep {
                    let fds = [first.wait_fd().unwrap(), second.wait_fd().unwrap()];
                    wait(&fds, Some(Duration::from_millis(20))).unwrap();
                }
            }
        });
        Self { stop, thread: Some(thread), counters }
    }

    /// Ends the bridge and tells what went through either port.
    pub(super) fn stop(mut self) -> [PortSnapshot; 2] {
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
pub(super) fn transfer(first: &Namespace, second: &Namespace, address: SocketAddr, bytes: usize) {
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

pub(super) fn v4(host: u8, port: u16) -> SocketAddr {
    (Ipv4Addr::new(10, 77, 0, host), port).into()
}

pub(super) fn v6(host: u8) -> SocketAddr {
    format!("[fd77::{host}]:0").parse().unwrap()
}

pub(super) fn udp_socket(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let socket = namespace.run(move || UdpSocket::bind(address)).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    socket
}

/// Makes a call again that was interrupted. One with a time limit is, even if this process has only
/// stood still for a moment.
pub(super) fn uninterrupted<T>(mut call: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// An echo request from a raw socket, until a reply arrives.
pub(super) fn ping(namespace: &Namespace, target: SocketAddr) {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket,
    };
    let socket = namespace
        .run(|| socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP)))
        .unwrap();
    // Type 8, code 0, checksum, identifier 1, sequence 2, eight bytes of data.
    let mut request = [8, 0, 0, 0, 0, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8];
    let mut sum = nicache_checksum::Sum::default();
    sum.add(&request);
    request[2..4].copy_from_slice(&sum.complete().to_be_bytes());
    sendto(&socket, &request, SendFlags::empty(), &target).unwrap();
    let start = Instant::now();
    while wait(&[socket.as_fd()], Some(DEADLINE)).unwrap() == Wake::Ready
        && start.elapsed() < DEADLINE
    {
        let mut reply = [0; 100];
        let (len, _) = recv(&socket, &mut reply, RecvFlags::empty()).unwrap();
        // Behind the IPv4 header of 20 bytes: type 0, else as the request.
        if len == 36 && reply[20] == 0 && reply[24..36] == request[4..] {
            return;
        }
    }
    panic!("no echo reply");
}
