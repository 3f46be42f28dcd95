//! Client, server and what is between them; and what is moved from one to the other.
//!
//! ```text
//!  client 10.201.1.2 ── veth ── left 10.201.1.1 [middle] 10.201.2.1 right ── veth ── 10.201.2.2 server
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nicache_netns::Namespace;

/// Where the server listens.
pub(super) const SERVER: &str = "10.201.2.2:5001";
/// Where clients ask for it, of those that translate.
pub(super) const SERVICE: &str = "10.201.1.1:5001";
const CHUNK_BYTES: usize = 128 * 1024;
/// Payload of a datagram that fills a packet of 1500 bytes, over IPv4.
const DATAGRAM_BYTES: usize = 1472;
/// What passes before it counts: windows open, and first packets take their longer way.
const WARM_UP: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

/// What is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// So many streams of TCP, from the server to the client.
    Tcp(u32),
    /// Datagrams, from the client to the server, as fast as they are taken.
    Udp,
    /// Requests, each by a connection of its own: a byte there, [`REPLY_BYTES`] back.
    Requests,
}

impl Load {
    /// The load's name in tables.
    pub(super) fn label(self) -> String {
        match self {
            Self::Tcp(1) => "1 TCP stream".to_owned(),
            Self::Tcp(count) => format!("{count} TCP streams"),
            Self::Udp => "UDP".to_owned(),
            Self::Requests => "connections".to_owned(),
        }
    }
}

/// The first byte that a client says on a connection.
const WANTS_A_STREAM: u8 = b's';
const WANTS_A_REPLY: u8 = b'r';
/// What comes back for a request.
const REPLY_BYTES: usize = 1024;
/// Clients that ask at once, each for one reply after the other.
const ASKERS: u32 = 8;

/// What has been moved, and what it took.
pub(super) struct Moved {
    /// Bytes of payload that arrived; replies, of [`Load::Requests`].
    pub count: u64,
    /// In so many seconds.
    pub seconds: f64,
    /// What all processors of this machine were at work meanwhile, in seconds.
    pub busy_s: f64,
    /// Of that, client, server, and the processes between them.
    pub ours_s: f64,
}

/// The network namespaces of client, subject and server, with the links between them and a server
/// that serves.
pub(super) struct Ground {
    /// Where clients are.
    pub client: Namespace,
    /// Where subjects are.
    pub middle: Namespace,
    /// Where the server is.
    pub server: Namespace,
    received: Arc<AtomicU64>,
}

impl Ground {
    /// Builds it, with a server that serves.
    pub(super) fn build() -> Result<Self> {
        let create = || {
            Namespace::with_loopback().context("cannot make a network namespace: this needs root")
        };
        let (client, middle, server) = (create()?, create()?, create()?);
        client.veth("eth0", &middle, "left")?;
        server.veth("eth0", &middle, "right")?;
        middle.ip("address add 10.201.1.1/24 dev left")?;
        middle.ip("address add 10.201.2.1/24 dev right")?;
        client.ip("address add 10.201.1.2/24 dev eth0")?;
        client.ip("route add default via 10.201.1.1")?;
        server.ip("address add 10.201.2.2/24 dev eth0")?;
        server.ip("route add default via 10.201.2.1")?;
        let received = Arc::new(AtomicU64::new(0));
        let ground = Self { client, middle, server, received };
        ground.serve()?;
        Ok(ground)
    }

    /// Threads end with the process: they wait for clients and take nothing.
    fn serve(&self) -> Result<()> {
        let (listener, datagrams) = self.server.run(|| -> std::io::Result<_> {
            Ok((TcpListener::bind(SERVER)?, UdpSocket::bind(SERVER)?))
        })?;
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut wish = [0];
                    let _ = stream.read_exact(&mut wish);
                    match wish {
                        [WANTS_A_STREAM] => {
                            let chunk = vec![0x5a; CHUNK_BYTES];
                            while stream.write_all(&chunk).is_ok() {}
                        }
                        [WANTS_A_REPLY] => drop(stream.write_all(&[0x5a; REPLY_BYTES])),
                        _ => {}
                    }
                });
            }
        });
        let received = Arc::clone(&self.received);
        std::thread::spawn(move || {
            let mut datagram = [0; 2048];
            let mut turn = 0u32;
            while let Ok((count, from)) = datagrams.recv_from(&mut datagram) {
                received.fetch_add(count as u64, Ordering::Relaxed);
                // A word back now and then, or else nobody between would take it for a
                // conversation.
                if turn.is_multiple_of(1024) {
                    let _ = datagrams.send_to(b"go on", from);
                }
                turn = turn.wrapping_add(1);
            }
        });
        Ok(())
    }

    /// Moves bytes for so long. `subject`: the process between them.
    pub(super) fn run(
        &self,
        load: Load,
        target: &str,
        length: Duration,
        subject: Option<u32>,
    ) -> Result<Moved> {
        let target: SocketAddr = target.parse()?;
        let stop = Arc::new(AtomicBool::new(false));
        let counted = match load {
            Load::Tcp(_) | Load::Requests => Arc::new(AtomicU64::new(0)),
            Load::Udp => Arc::clone(&self.received),
        };
        let mut threads = Vec::new();
        for _ in 0..match load {
            Load::Tcp(streams) => streams,
            Load::Udp => 1,
            Load::Requests => ASKERS,
        } {
            let (stop, counted) = (Arc::clone(&stop), Arc::clone(&counted));
            let start = move || -> std::io::Result<_> {
                if load == Load::Udp {
                    let socket = UdpSocket::bind("0.0.0.0:0")?;
                    socket.connect(target)?;
                    return Ok(std::thread::spawn(move || send(&socket, &stop)));
                }
                if load == Load::Requests {
                    return Ok(std::thread::spawn(move || ask(target, &stop, &counted)));
                }
                let mut stream = connect(target)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.write_all(&[WANTS_A_STREAM])?;
                Ok(std::thread::spawn(move || receive(stream, &stop, &counted)))
            };
            threads.push(
                self.client.run(start).with_context(|| format!("no connection to {target}"))?,
            );
        }
        std::thread::sleep(WARM_UP);
        let (count, busy, ours, begun) =
            (counted.load(Ordering::Relaxed), busy_s()?, processes_s(subject), Instant::now());
        std::thread::sleep(length);
        let (count, busy, ours) = (
            counted.load(Ordering::Relaxed) - count,
            busy_s()? - busy,
            processes_s(subject) - ours,
        );
        let seconds = begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let _ = thread.join();
        }
        if count == 0 {
            bail!("nothing arrived from {target}");
        }
        Ok(Moved { count, seconds, busy_s: busy, ours_s: ours.max(0.0) })
    }
}

/// The first SYN may be lost while somebody asks for a MAC address.
fn connect(target: SocketAddr) -> std::io::Result<TcpStream> {
    let begun = Instant::now();
    loop {
        match TcpStream::connect_timeout(&target, Duration::from_secs(3)) {
            Err(_) if begun.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
            outcome => return outcome,
        }
    }
}

fn receive(mut stream: TcpStream, stop: &AtomicBool, counted: &AtomicU64) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => drop(counted.fetch_add(count as u64, Ordering::Relaxed)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}

/// One connection after the other. The server ends each, so the wait after the end is the server's,
/// and ports of the client are free at once.
fn ask(target: SocketAddr, stop: &AtomicBool, counted: &AtomicU64) {
    let mut reply = Vec::with_capacity(REPLY_BYTES);
    while !stop.load(Ordering::Relaxed) {
        reply.clear();
        let mut attempt = || -> std::io::Result<usize> {
            let mut stream = TcpStream::connect_timeout(&target, Duration::from_secs(3))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(&[WANTS_A_REPLY])?;
            stream.read_to_end(&mut reply)
        };
        if attempt().is_ok_and(|count| count == REPLY_BYTES) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn send(socket: &UdpSocket, stop: &AtomicBool) {
    let datagram = [0x5a; DATAGRAM_BYTES];
    while !stop.load(Ordering::Relaxed) {
        // A full queue, or a port that is unreachable for a moment.
        if socket.send(&datagram).is_err() {
            std::thread::yield_now();
        }
    }
}

/// What all processors have worked so far, in seconds: everything but idle, waiting for disks, and
/// what the machine below took.
fn busy_s() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat").context("/proc/stat")?;
    let fields: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let [user, nice, system, _, _, irq, softirq, ..] = fields[..] else {
        bail!("/proc/stat says nothing")
    };
    Ok((user + nice + system + irq + softirq) / rustix::param::clock_ticks_per_second() as f64)
}

/// What this process has had of processors so far, with its clients and servers, and the subject's
/// processes.
fn processes_s(subject: Option<u32>) -> f64 {
    let mut all = vec![std::process::id()];
    all.extend(subject);
    // Those that the subject has started.
    all.extend(subject.into_iter().flat_map(|pid| {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
    }));
    let ticks = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name, which may have spaces: the state is the first field, user and system
        // time the 12th and 13th.
        let fields: Vec<&str> =
            stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let of =
            |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        of(11) + of(12)
    };
    all.iter().map(ticks).sum::<f64>() / rustix::param::clock_ticks_per_second() as f64
}
