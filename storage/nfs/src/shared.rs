//! What all workers share: sockets, connections, and connections whose turn somebody passed on.

use std::collections::{HashMap, VecDeque};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::client::ClientRule;
use crate::connection::{Common, Connection};
use crate::duplicates::Duplicates;
use crate::metrics::Metrics;
use crate::service::{ClientRules, Service};

/// What epoll tells by when somebody wakes a worker.
pub(crate) const TOKEN_WAKE: u64 = u64::MAX;
/// By which it tells of datagrams for the port mapper.
pub(crate) const TOKEN_PORTMAP_UDP: u64 = u64::MAX - 1;
/// The first connection's; those below are listeners'.
pub(crate) const TOKEN_CONNECTIONS: u64 = 1 << 16;

/// A connection whose turn a worker has while it executes a request, and since when.
pub(crate) type TurnHeld = (Arc<Connection>, Instant);

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub service: Service,
    pub duplicates: Duplicates<Arc<Connection>>,
    pub epoll: Arc<OwnedFd>,
    pub common: Common,
    pub wake: OwnedFd,
    pub listeners: Vec<TcpListener>,
    pub portmap_udp: Option<UdpSocket>,
    pub connections: RwLock<HashMap<u64, Arc<Connection>>>,
    pub connections_max: usize,
    pub token_next: AtomicU64,
    /// Connections whose turn somebody passed on.
    pub ready: Mutex<VecDeque<Arc<Connection>>>,
    pub ready_len: AtomicUsize,
    /// For each worker.
    pub turns: Vec<Mutex<Option<TurnHeld>>>,
    /// Workers that wait.
    pub idle: AtomicUsize,
    pub is_over: AtomicBool,
    pub request_timeout: Duration,
    pub start: Instant,
    pub swept_ms: AtomicU64,
    /// Connections that were ended because their clients took no replies.
    pub stuck_connections: AtomicU64,
    pub metrics: Vec<Mutex<Metrics>>,
}

/// Whatever a thread that ended by a panic has left, is used.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Wakes a worker that waits, or the next one that would.
    pub(crate) fn wake_one(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Workers wake each other when they find that it is over.
    pub(crate) fn wake_all(&self) {
        self.wake_one();
    }

    /// Passes a connection's turn on.
    pub(crate) fn pass(&self, connection: Arc<Connection>) {
        lock(&self.ready).push_back(connection);
        self.ready_len.fetch_add(1, Ordering::SeqCst);
        if self.idle.load(Ordering::SeqCst) > 0 {
            self.wake_one();
        }
    }

    /// A connection whose turn was passed on. It is the caller's now.
    pub(crate) fn take_ready(&self) -> Option<Arc<Connection>> {
        if self.ready_len.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let connection = lock(&self.ready).pop_front()?;
        self.ready_len.fetch_sub(1, Ordering::SeqCst);
        Some(connection)
    }

    /// What a client may use.
    pub(crate) fn rules(&self, peer: SocketAddr) -> ClientRules {
        self.service.exports.iter().map(|export| ClientRule::find(&export.clients, peer)).collect()
    }

    /// Ends a connection.
    pub(crate) fn forget(&self, connection: &Connection) {
        connection.close();
        connection.discard_unsent();
        self.connections.write().unwrap_or_else(PoisonError::into_inner).remove(&connection.token);
    }
}
