//! Sockets and workers.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_payload::Payload;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use thiserror::Error;
use tracing::{debug, warn};

use crate::answer::{Answerer, Origin};
use crate::chunk::ChunkPool;
use crate::client::ClientRule;
use crate::connection::{Connection, PauseLimits, Received};
use crate::duplicates::Duplicates;
use crate::export::{Export, ExportConfig, ExportError};
use crate::handle::HandleKey;
use crate::impersonation::Impersonation;
use crate::metrics::Metrics;
use crate::node::Nodes;
use crate::portmap::{Mapping, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::protocol::{MOUNT, NFS, PORTMAP};
use crate::record::{Record, RecordReader};
use crate::rpc::Replies;
use crate::service::{ClientRules, Service};

/// What a server is made of.
#[derive(Debug)]
pub struct ServerConfig {
    /// What is exported.
    pub exports: Vec<ExportConfig>,
    /// Where NFS, MOUNT and the port mapper are all served over TCP; several, if clients want one port for each.
    pub listen: Vec<SocketAddr>,
    /// Where the port mapper is served over UDP, too. Clients of a port mapper at port 111 want both.
    pub listen_portmap_udp: Option<SocketAddr>,
    /// What handles are proven with. Keep it: with another key all clients have to mount again.
    pub handle_key: HandleKey,
    /// Threads that execute requests. One that waits for a disk does nothing else, so there should be more than CPUs. Default 16.
    pub workers: usize,
    /// Connections at most; each may cost 64 KiB and the bytes of one request. Default 512.
    pub connections_max: usize,
    /// Files that are kept open at most, with up to three descriptors each. Default 4096.
    pub open_files_max: usize,
    /// Answers that are remembered for clients that ask again, of some 300 bytes each. Default 65,536.
    pub answers_max: usize,
    /// When a connection is not read from. Default: 64 requests under way, 4 MiB to be sent.
    pub pause: PauseLimits,
    /// How long the rest of a request may take to come. Default 60 s.
    pub request_timeout: Duration,
}

impl ServerConfig {
    /// For `exports`, on one address, with defaults.
    #[must_use]
    pub fn new(exports: Vec<ExportConfig>, listen: SocketAddr, handle_key: HandleKey) -> Self {
        Self {
            exports,
            listen: vec![listen],
            listen_portmap_udp: None,
            handle_key,
            workers: 16,
            connections_max: 512,
            open_files_max: 4096,
            answers_max: 65_536,
            pause: PauseLimits { requests_max: 64, unsent_bytes_max: 4 << 20 },
            request_timeout: Duration::from_secs(60),
        }
    }
}

/// A server cannot start.
#[derive(Debug, Error)]
pub enum ServerError {
    /// An export cannot be used.
    #[error(transparent)]
    Export(#[from] ExportError),
    /// An address cannot be used.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// Threads cannot act as other users.
    #[error("cannot act as other users, which needs root's rights: {0}")]
    Impersonation(io::Error),
    /// Something else of the system's.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A server that runs. It ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

const TOKEN_WAKE: u64 = u64::MAX;
const TOKEN_PORTMAP_UDP: u64 = u64::MAX - 1;
/// Tokens below are listeners'.
const TOKEN_CONNECTIONS: u64 = 1 << 16;
/// Requests that a worker takes from one connection before it looks at others.
const REQUESTS_IN_A_ROW_MAX: usize = 16;
/// Replies wait for those of the next requests up to so many bytes.
const HELD_BYTES_MAX: usize = 128 << 10;
/// Requests that take longer than this are not waited for with replies that are ready.
const QUICK: Duration = Duration::from_micros(100);
/// A request that takes longer than this loses its connection's turn.
const TURN_MAX: Duration = Duration::from_millis(5);
/// How often it is looked for those, while there are requests and while there are none.
const WATCH_BUSY: Duration = Duration::from_millis(10);
const WATCH_IDLE: Duration = Duration::from_millis(100);
/// How often what is old is thrown away.
const SWEEP: Duration = Duration::from_secs(5);
/// Descriptors that an open file has at most.
const DESCRIPTORS_OF_A_FILE: usize = 3;
/// Memory for payload that is kept for later, in bytes.
const CHUNKS_KEPT_BYTES: usize = 64 << 20;

/// A connection whose turn a worker has while it executes a request, and since when.
type TurnHeld = (Arc<Connection>, Instant);

#[derive(Debug)]
struct Shared {
    service: Service,
    duplicates: Duplicates<Arc<Connection>>,
    epoll: Arc<OwnedFd>,
    wake: OwnedFd,
    listeners: Vec<TcpListener>,
    portmap_udp: Option<UdpSocket>,
    connections: RwLock<HashMap<u64, Arc<Connection>>>,
    connections_max: usize,
    token_next: AtomicU64,
    /// Connections whose turn somebody passed on.
    ready: Mutex<VecDeque<Arc<Connection>>>,
    ready_len: AtomicUsize,
    /// For each worker.
    turns: Vec<Mutex<Option<TurnHeld>>>,
    /// Workers that wait.
    idle: AtomicUsize,
    is_over: AtomicBool,
    pause: PauseLimits,
    request_timeout: Duration,
    start: Instant,
    swept_ms: AtomicU64,
    metrics: Vec<Mutex<Metrics>>,
}

impl Server {
    /// Starts one. Payload goes by way of `payload`.
    pub fn start(config: ServerConfig, payload: Arc<dyn Payload>) -> Result<Self, ServerError> {
        let exports = Export::open_all(config.exports)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for address in config.listen {
            let listen = || {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(listener)
            };
            let listener: TcpListener = listen().map_err(|error| ServerError::Listen { address, error })?;
            addresses.push(listener.local_addr()?);
            add(&epoll, &listener, listeners.len() as u64, epoll::EventFlags::IN)?;
            listeners.push(listener);
        }
        let portmap_udp = match config.listen_portmap_udp {
            None => None,
            Some(address) => {
                let socket = UdpSocket::bind(address).map_err(|error| ServerError::Listen { address, error })?;
                socket.set_nonblocking(true)?;
                add(&epoll, &socket, TOKEN_PORTMAP_UDP, epoll::EventFlags::IN)?;
                Some(socket)
            }
        };
        let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        add(&epoll, &wake, TOKEN_WAKE, epoll::EventFlags::IN)?;
        let mappings = mappings(&addresses, portmap_udp.as_ref().and_then(|socket| socket.local_addr().ok()));
        let service = Service {
            exports,
            nodes: Nodes::new(open_files_max(config.open_files_max, config.connections_max)),
            key: config.handle_key,
            payload,
            chunks: ChunkPool::new(CHUNKS_KEPT_BYTES),
            mounts: Mutex::default(),
            mappings,
        };
        let workers = config.workers.max(1);
        let shared = Arc::new(Shared {
            service,
            duplicates: Duplicates::new(config.answers_max, Duration::from_secs(300)),
            epoll: Arc::new(epoll),
            wake,
            listeners,
            portmap_udp,
            connections: RwLock::default(),
            connections_max: config.connections_max,
            token_next: AtomicU64::new(TOKEN_CONNECTIONS),
            ready: Mutex::default(),
            ready_len: AtomicUsize::new(0),
            turns: (0..workers).map(|_| Mutex::default()).collect(),
            idle: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            pause: config.pause,
            request_timeout: config.request_timeout,
            start: Instant::now(),
            swept_ms: AtomicU64::new(0),
            metrics: (0..workers).map(|_| Mutex::default()).collect(),
        });
        let mut server = Self { shared: shared.clone(), workers: Vec::new(), addresses };
        for index in 0..workers {
            let shared = shared.clone();
            let (started, is_started) = mpsc::channel();
            let thread =
                std::thread::Builder::new().name(format!("nfs-{index}")).spawn(move || match Impersonation::new() {
                    Ok(thread) => {
                        let _ = started.send(Ok(()));
                        Worker { shared: &shared, index, thread, replies: Replies::default() }.run();
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                })?;
            server.workers.push(thread);
            is_started
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("a worker ended")))
                .map_err(ServerError::Impersonation)?;
        }
        let watcher = shared.clone();
        server.workers.push(std::thread::Builder::new().name("nfs-watch".into()).spawn(move || watch(&watcher))?);
        Ok(server)
    }

    /// Where it listens, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What a port mapper should know of it.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        &self.shared.service.mappings
    }

    /// What it has done so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let mut sum = Metrics::default();
        for worker in &self.shared.metrics {
            sum.add(&lock(worker));
        }
        sum
    }

    /// Connections and files that are open, and answers that are remembered.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            connections: self.shared.connections.read().unwrap_or_else(PoisonError::into_inner).len(),
            open_files: self.shared.service.nodes.len(),
            answers: self.shared.duplicates.len(),
        }
    }
}

/// How much a server holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    /// Connections.
    pub connections: usize,
    /// Files that are open.
    pub open_files: usize,
    /// Answers for clients that ask again.
    pub answers: usize,
}

impl Drop for Server {
    /// Requests that are under way are executed to their end.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.shared.wake_all();
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            if worker.join().is_err() {
                warn!("a worker of the NFS server ended by a panic");
            }
        }
    }
}

/// How many files may be kept open. The process's limit of descriptors is raised for that as far as it goes.
fn open_files_max(wanted: usize, connections_max: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Besides files and connections: what a request opens for itself, and what else the process has.
    const OTHERS: usize = 256;
    let needed = (DESCRIPTORS_OF_A_FILE * wanted + connections_max + OTHERS) as u64;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < needed) else { return wanted };
    let raised = limit.maximum.map_or(needed, |maximum| needed.min(maximum));
    let there = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(_) => current,
    };
    let possible = (there as usize).saturating_sub(connections_max + OTHERS) / DESCRIPTORS_OF_A_FILE;
    if possible < wanted {
        warn!("the limit of {there} descriptors lets the NFS server keep {possible} files open, not {wanted}");
    }
    possible.clamp(1, wanted)
}

/// NFS and MOUNT where the first address is, MOUNT elsewhere if there is a second one, the port mapper at the last.
fn mappings(addresses: &[SocketAddr], udp: Option<SocketAddr>) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    if let (Some(first), Some(last)) = (addresses.first(), addresses.last()) {
        let second = addresses.get(1).unwrap_or(first);
        for (program, address) in [(NFS, first), (MOUNT, second), (PORTMAP, last)] {
            mappings.push(Mapping { program, protocol: PROTOCOL_TCP, port: address.port() });
        }
    }
    mappings.extend(udp.map(|address| Mapping { program: PORTMAP, protocol: PROTOCOL_UDP, port: address.port() }));
    mappings
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(epoll: &OwnedFd, source: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, source, epoll::EventData::new_u64(token), flags | epoll::EventFlags::ET)?)
}

impl Shared {
    fn wake_one(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Workers wake each other when they find that it is over.
    fn wake_all(&self) {
        self.wake_one();
    }

    /// Passes a connection's turn on.
    fn pass(&self, connection: Arc<Connection>) {
        lock(&self.ready).push_back(connection);
        self.ready_len.fetch_add(1, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    fn take_ready(&self) -> Option<Arc<Connection>> {
        if self.ready_len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let connection = lock(&self.ready).pop_front()?;
        self.ready_len.fetch_sub(1, Ordering::SeqCst);
        Some(connection)
    }

    fn rules(&self, peer: SocketAddr) -> ClientRules {
        self.service.exports.iter().map(|export| ClientRule::find(&export.clients, peer)).collect()
    }

    fn forget(&self, connection: &Connection) {
        connection.close();
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&connection.token);
    }
}

/// Passes the turn of connections on whose present request turns out to be slow: nothing else of its client should wait for it.
fn watch(shared: &Shared) {
    let mut is_busy = false;
    while !shared.is_over.load(Ordering::SeqCst) {
        std::thread::park_timeout(if is_busy { WATCH_BUSY } else { WATCH_IDLE });
        is_busy = false;
        for slot in &shared.turns {
            let mut turn = lock(slot);
            let Some((_, since)) = &*turn else { continue };
            is_busy = true;
            if since.elapsed() < TURN_MAX {
                continue;
            }
            let Some((connection, _)) = turn.take() else { continue };
            drop(turn);
            connection.send(&mut Replies::default());
            shared.pass(connection);
        }
    }
}

struct Worker<'a> {
    shared: &'a Shared,
    index: usize,
    thread: Impersonation,
    replies: Replies,
}

impl Worker<'_> {
    fn run(mut self) {
        let mut events = Vec::with_capacity(1);
        loop {
            if self.shared.is_over.load(Ordering::SeqCst) {
                self.shared.wake_all();
                return;
            }
            // What was passed on waits for no event, but events are looked for in between, so that nobody waits for ever.
            self.shared.idle.fetch_add(1, Ordering::SeqCst);
            let timeout = if self.shared.ready_len.load(Ordering::SeqCst) > 0 { Duration::ZERO } else { SWEEP };
            let timeout = Timespec::try_from(timeout).expect("seconds");
            events.clear();
            let waited = epoll::wait(&*self.shared.epoll, rustix::buffer::spare_capacity(&mut events), Some(&timeout));
            self.shared.idle.fetch_sub(1, Ordering::SeqCst);
            if let Err(error) = waited
                && error != Errno::INTR
            {
                warn!("the NFS server cannot wait for its clients: {error}");
                return;
            }
            if let Some(event) = events.first().copied() {
                self.handle_event(event.data.u64(), event.flags);
            }
            if let Some(connection) = self.shared.take_ready() {
                self.serve(&connection);
            }
            self.sweep();
        }
    }

    fn handle_event(&mut self, token: u64, flags: epoll::EventFlags) {
        match token {
            TOKEN_WAKE => {
                let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
            }
            TOKEN_PORTMAP_UDP => self.answer_datagrams(),
            ..TOKEN_CONNECTIONS => self.accept(token as usize),
            _ => {
                let connections = self.shared.connections.read().unwrap_or_else(PoisonError::into_inner);
                let Some(connection) = connections.get(&token).cloned() else { return };
                drop(connections);
                if connection.handle_told(flags) {
                    self.serve(&connection);
                }
            }
        }
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let (stream, peer) = match self.shared.listeners[listener].accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    warn!("the NFS server cannot accept a connection: {error}");
                    // There is no event for descriptors that become free; the next sweep tries again.
                    return;
                }
            };
            let mut connections = self.shared.connections.write().unwrap_or_else(PoisonError::into_inner);
            if connections.len() >= self.shared.connections_max {
                lock(&self.shared.metrics[self.index]).refused_connections += 1;
                continue;
            }
            if stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true)).is_err() {
                continue;
            }
            lock(&self.shared.metrics[self.index]).connections += 1;
            let token = self.shared.token_next.fetch_add(1, Ordering::SeqCst);
            let reader = RecordReader::new(self.shared.service.chunks.clone());
            let connection = Arc::new(Connection::new(
                token,
                (stream, peer),
                self.shared.rules(peer),
                reader,
                self.shared.pause,
                self.shared.epoll.clone(),
                Instant::now(),
            ));
            connections.insert(token, connection.clone());
            drop(connections);
            let data = epoll::EventData::new_u64(token);
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
            if epoll::add(&*self.shared.epoll, connection.stream(), data, flags).is_err() {
                self.shared.forget(&connection);
            }
        }
    }

    /// Takes requests from a connection whose turn this worker has, and executes them.
    fn serve(&mut self, connection: &Arc<Connection>) {
        let mut in_a_row = 0;
        loop {
            if connection.is_closed() {
                self.shared.forget(connection);
                break;
            }
            if connection.pause() {
                lock(&self.shared.metrics[self.index]).pauses += 1;
                break;
            }
            let begun = Instant::now();
            let record = match connection.take_request() {
                Ok(Some(record)) => record,
                Ok(None) => {
                    connection.send(&mut self.replies);
                    match connection.receive(begun) {
                        Received::Bytes => continue,
                        Received::Nothing => return,
                        Received::End => {
                            self.shared.forget(connection);
                            return;
                        }
                    }
                }
                Err(error) => {
                    debug!(peer = %connection.peer, "connection ended: {error}");
                    lock(&self.shared.metrics[self.index]).bad_records += 1;
                    self.shared.forget(connection);
                    break;
                }
            };
            in_a_row += 1;
            let mut has_turn = !self.give_turn(connection, in_a_row);
            if has_turn {
                *lock(&self.shared.turns[self.index]) = Some((connection.clone(), begun));
            }
            self.execute(connection, record);
            if has_turn {
                // The watch has passed it on if the request took too long.
                has_turn = lock(&self.shared.turns[self.index]).take().is_some();
            }
            let is_slow = begun.elapsed() > QUICK;
            connection.set_slow(is_slow);
            if !has_turn || is_slow || connection.hold(&mut self.replies) > HELD_BYTES_MAX {
                connection.send(&mut self.replies);
            }
            if connection.end_request() {
                self.shared.pass(connection.clone());
            }
            if !has_turn {
                return;
            }
        }
        connection.send(&mut self.replies);
    }

    /// Gives a connection's turn to others before a request of it is executed, if that is better, and says so.
    fn give_turn(&self, connection: &Arc<Connection>, in_a_row: usize) -> bool {
        let is_fair = in_a_row < REQUESTS_IN_A_ROW_MAX;
        if is_fair && !connection.is_slow() {
            return false;
        }
        if connection.has_bytes() {
            // If nobody else can take it, it is this worker's turn as well as anybody's.
            if is_fair && self.shared.idle.load(Ordering::SeqCst) == 0 {
                return false;
            }
            self.shared.pass(connection.clone());
        } else {
            connection.end_turn();
        }
        true
    }

    fn execute(&mut self, connection: &Arc<Connection>, record: Record) {
        let metrics = &self.shared.metrics[self.index];
        let mut answerer = Answerer {
            service: &self.shared.service,
            duplicates: &self.shared.duplicates,
            thread: &mut self.thread,
            metrics,
        };
        let origin = Origin { peer: connection.peer, rules: &connection.rules, connection: Some(connection) };
        if answerer.answer(record, origin, &mut self.replies).is_err() {
            debug!(peer = %connection.peer, "connection ended: a record that is no call");
            lock(metrics).bad_records += 1;
            self.shared.forget(connection);
        }
    }

    /// Calls of the port mapper.
    fn answer_datagrams(&mut self) {
        let Some(socket) = &self.shared.portmap_udp else { return };
        let mut buffer = [0; 1024];
        while let Ok((len, peer)) = socket.recv_from(&mut buffer) {
            let metrics = &self.shared.metrics[self.index];
            let mut answerer = Answerer {
                service: &self.shared.service,
                duplicates: &self.shared.duplicates,
                thread: &mut self.thread,
                metrics,
            };
            let record = Record { head: buffer[..len].to_vec(), ..Record::default() };
            let origin = Origin { peer, rules: &ClientRules::default(), connection: None };
            if answerer.answer(record, origin, &mut self.replies).is_ok() {
                let bytes = self.replies.slices().collect::<Vec<_>>().concat();
                // Datagrams have no record mark.
                let _ = socket.send_to(bytes.get(4..).unwrap_or_default(), peer);
            } else {
                lock(metrics).bad_records += 1;
            }
            self.replies.clear();
        }
    }

    /// Throws away what is old; one worker does it for all.
    fn sweep(&mut self) {
        let now = Instant::now();
        let now_ms = u64::try_from(now.duration_since(self.shared.start).as_millis()).unwrap_or(u64::MAX);
        let swept = self.shared.swept_ms.load(Ordering::Relaxed);
        let is_due = now_ms - swept.min(now_ms) >= SWEEP.as_millis() as u64;
        if !is_due || self.shared.swept_ms.compare_exchange(swept, now_ms, Ordering::SeqCst, Ordering::SeqCst).is_err()
        {
            return;
        }
        self.shared.service.nodes.sweep();
        self.shared.duplicates.sweep(now);
        let connections: Vec<_> =
            self.shared.connections.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        for connection in connections {
            let is_late = |since: Instant| now.saturating_duration_since(since) > self.shared.request_timeout;
            if connection.incomplete_since().is_some_and(is_late) {
                debug!(peer = %connection.peer, "connection ended: the rest of a request did not come");
                self.shared.forget(&connection);
            }
        }
        for listener in 0..self.shared.listeners.len() {
            self.accept(listener);
        }
    }
}
