//! A server: its configuration, its sockets, and how its workers start and end.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nicache_payload::Payload;
use rustix::event::{EventfdFlags, epoll, eventfd};
use thiserror::Error;
use tracing::warn;

use crate::chunk::ChunkPool;
use crate::connection::{Common, PauseLimits};
use crate::duplicates::Duplicates;
use crate::export::{Export, ExportConfig, ExportError};
use crate::handle::HandleKey;
use crate::impersonation::Impersonation;
use crate::metrics::Metrics;
use crate::node::Nodes;
use crate::portmap::{Mapping, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::protocol::{MOUNT, NFS, PORTMAP};
use crate::service::Service;
use crate::shared::{Shared, TOKEN_CONNECTIONS, TOKEN_PORTMAP_UDP, TOKEN_WAKE, lock};
use crate::worker::{Worker, watch};

/// What a server is made of.
#[derive(Debug)]
pub struct ServerConfig {
    /// What is exported.
    pub exports: Vec<ExportConfig>,
    /// Where NFS, MOUNT and the port mapper are all served over TCP; several, if clients want one
    /// port for each.
    pub listen: Vec<SocketAddr>,
    /// Where the port mapper is served over UDP, too. Clients of a port mapper at port 111 want
    /// both.
    pub listen_portmap_udp: Option<SocketAddr>,
    /// What handles are proven with. Keep it: with another key all clients have to mount again.
    pub handle_key: HandleKey,
    /// Threads that execute requests. One that waits for a disk does nothing else, so there should
    /// be more than CPUs. Default 16.
    pub workers: usize,
    /// Connections at most; each may cost 64 KiB and the bytes of one request. When there are so
    /// many, one with nothing to do gives way. Clients that no export lets in have an eighth of
    /// them. Default 512.
    pub connections_max: usize,
    /// Files that are kept open at most, with up to three descriptors each. Default 4096.
    pub open_files_max: usize,
    /// Answers that are remembered for clients that ask again, of some 300 bytes each: so many to
    /// WRITEs, and so many others. Default 65,536.
    pub answers_max: usize,
    /// When a connection is not read from, and when it ends because its client takes nothing.
    /// Default: 64 requests under way, 4 MiB to be sent, 64 MiB by all; 60 s.
    pub pause: PauseLimits,
    /// How long the rest of a request may take to come. Default 60 s.
    pub request_timeout: Duration,
}

impl ServerConfig {
    /// Settings for `exports`, on one address, with defaults.
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
            pause: PauseLimits {
                requests_max: 64,
                unsent_bytes_max: 4 << 20,
                unsent_bytes_all_max: 64 << 20,
                unsent_timeout: Duration::from_secs(60),
            },
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
        /// Which address cannot be used.
        address: SocketAddr,
        /// Why the address cannot be used.
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

/// Descriptors that an open file has at most.
const DESCRIPTORS_OF_A_FILE: usize = 3;
/// Memory for payload that is kept for later, in bytes.
const CHUNKS_KEPT_BYTES: usize = 64 << 20;

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
            let listener: TcpListener =
                listen().map_err(|error| ServerError::Listen { address, error })?;
            addresses.push(listener.local_addr()?);
            add(&epoll, &listener, listeners.len() as u64, epoll::EventFlags::IN)?;
            listeners.push(listener);
        }
        let portmap_udp = match config.listen_portmap_udp {
            None => None,
            Some(address) => {
                let socket = UdpSocket::bind(address)
                    .map_err(|error| ServerError::Listen { address, error })?;
                socket.set_nonblocking(true)?;
                add(&epoll, &socket, TOKEN_PORTMAP_UDP, epoll::EventFlags::IN)?;
                Some(socket)
            }
        };
        let wake =
            eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        add(&epoll, &wake, TOKEN_WAKE, epoll::EventFlags::IN)?;
        let mappings =
            mappings(&addresses, portmap_udp.as_ref().and_then(|socket| socket.local_addr().ok()));
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
        let epoll = Arc::new(epoll);
        let shared = Arc::new(Shared {
            service,
            duplicates: Duplicates::new(config.answers_max, Duration::from_secs(300)),
            common: Common {
                limits: config.pause,
                unsent_bytes: Arc::default(),
                epoll: epoll.clone(),
            },
            epoll,
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
            request_timeout: config.request_timeout,
            start: Instant::now(),
            swept_ms: AtomicU64::new(0),
            stuck_connections: AtomicU64::new(0),
            metrics: (0..workers).map(|_| Mutex::default()).collect(),
        });
        let mut server = Self { shared: shared.clone(), workers: Vec::new(), addresses };
        for index in 0..workers {
            let shared = shared.clone();
            let (started, is_started) = mpsc::channel();
            let thread =
                std::thread::Builder::new().name(format!("nfs-{index}")).spawn(move || {
                    match Impersonation::new() {
                        Ok(thread) => {
                            let _ = started.send(Ok(()));
                            Worker::new(&shared, index, thread).run();
                        }
                        Err(error) => {
                            let _ = started.send(Err(error));
                        }
                    }
                })?;
            server.workers.push(thread);
            is_started
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("a worker ended")))
                .map_err(ServerError::Impersonation)?;
        }
        let watcher = shared.clone();
        server.workers.push(
            std::thread::Builder::new().name("nfs-watch".into()).spawn(move || watch(&watcher))?,
        );
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
        sum.stuck_connections = self.shared.stuck_connections.load(Ordering::Relaxed);
        for worker in &self.shared.metrics {
            sum.add(&lock(worker));
        }
        sum
    }

    /// Connections and files that are open, and answers that are remembered.
    #[must_use]
    pub fn sizes(&self) -> Sizes {
        Sizes {
            connections: self
                .shared
                .connections
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .len(),
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

/// How many files may be kept open. The process's limit of descriptors is raised for that as far as
/// it goes.
fn open_files_max(wanted: usize, connections_max: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Besides files and connections: what a request opens for itself, and what else the process
    // has.
    const OTHERS: usize = 256;
    let needed = (DESCRIPTORS_OF_A_FILE * wanted + connections_max + OTHERS) as u64;
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|&current| current < needed) else { return wanted };
    let raised = limit.maximum.map_or(needed, |maximum| needed.min(maximum));
    let there = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised,
        Err(_) => current,
    };
    let possible =
        (there as usize).saturating_sub(connections_max + OTHERS) / DESCRIPTORS_OF_A_FILE;
    if possible < wanted {
        warn!(
            "the limit of {there} descriptors lets the NFS server keep {possible} files open, not {wanted}"
        );
    }
    possible.clamp(1, wanted)
}

/// NFS and MOUNT where the first address is, MOUNT elsewhere if there is a second one, the port
/// mapper at the last.
fn mappings(addresses: &[SocketAddr], udp: Option<SocketAddr>) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    if let (Some(first), Some(last)) = (addresses.first(), addresses.last()) {
        let second = addresses.get(1).unwrap_or(first);
        for (program, address) in [(NFS, first), (MOUNT, second), (PORTMAP, last)] {
            mappings.push(Mapping { program, protocol: PROTOCOL_TCP, port: address.port() });
        }
    }
    mappings.extend(udp.map(|address| Mapping {
        program: PORTMAP,
        protocol: PROTOCOL_UDP,
        port: address.port(),
    }));
    mappings
}

fn add(epoll: &OwnedFd, source: impl AsFd, token: u64, flags: epoll::EventFlags) -> io::Result<()> {
    Ok(epoll::add(epoll, source, epoll::EventData::new_u64(token), flags | epoll::EventFlags::ET)?)
}
