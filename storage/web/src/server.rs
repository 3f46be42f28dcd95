//! Listening, and the threads of connections.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nicache_http::KeyConfig;
use nicache_nfs::{Identity, Impersonation};
use nicache_payload::Payload;
use nicache_secret::random_bytes;
use thiserror::Error;

use crate::connection::{self, IDLE};
use crate::counts::{Counts, WebCounters};
use crate::reply::Source;
use crate::revisions::Revised;
use crate::site::Site;

/// Connections at once; each is a thread.
const CONNECTIONS_MAX: usize = 256;
/// Stack of such a thread.
const STACK_BYTES: usize = 256 << 10;
/// Nobody in particular, as for NFS.
const NOBODY: u32 = 65_534;

/// How a folder is served.
pub struct WebConfig {
    /// Where it is served.
    pub listen: SocketAddr,
    /// The folder, open.
    pub root: OwnedFd,
    /// Where the content of its files comes from.
    pub payload: Arc<Revised>,
    /// Content that one reply refers to at once, in bytes. Of a longer file the rest follows as the
    /// client takes it, and if it changes meanwhile the connection ends.
    pub piece_bytes: u32,
}

/// Why a folder cannot be served by HTTP.
#[derive(Debug, Error)]
pub enum WebError {
    /// The address is taken, or is not this machine's.
    #[error("cannot listen for HTTP at {address}: {error}")]
    Listen {
        /// Which address cannot be used.
        address: SocketAddr,
        /// Why the address cannot be used.
        error: io::Error,
    },
    /// No thread, or no randomness.
    #[error("cannot serve HTTP: {0}")]
    Start(io::Error),
}

/// A web server that runs. It ends when it is dropped.
pub struct WebServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    site: Site,
    payload: Arc<Revised>,
    piece_bytes: u32,
    keys: KeyConfig,
    counts: Counts,
    is_ending: AtomicBool,
    /// By number, to be ended with the server.
    streams: Mutex<HashMap<u64, Arc<TcpStream>>>,
}

impl WebServer {
    /// Listens. The process must be root's, because threads act as nobody.
    pub fn start(config: WebConfig) -> Result<Self, WebError> {
        let listen = |error| WebError::Listen { address: config.listen, error };
        let listener = TcpListener::bind(config.listen).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let secret = random_bytes().map_err(WebError::Start)?;
        let shared = Arc::new(Shared {
            site: Site::new(config.root),
            payload: config.payload,
            piece_bytes: config.piece_bytes.max(4096),
            keys: KeyConfig::new(secret),
            counts: Counts::default(),
            is_ending: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name("http".to_owned())
                .spawn(move || accept(&listener, &shared))
        };
        let thread = Some(thread.map_err(WebError::Start)?);
        Ok(Self { shared, address, thread })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What has happened.
    pub fn counters(&self) -> WebCounters {
        let counts = &self.shared.counts;
        let statuses = counts.statuses.each_ref().map(|status| status.load(Ordering::Relaxed));
        WebCounters {
            requests: statuses.iter().sum(),
            statuses,
            content_bytes: counts.content_bytes.load(Ordering::Relaxed),
            cut: counts.cut.load(Ordering::Relaxed),
            connections: self.shared.streams().len() as u64,
            refused: counts.refused.load(Ordering::Relaxed),
        }
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::SeqCst);
        // Whoever waits in accept gets one more.
        let _ = TcpStream::connect_timeout(&reachable(self.address), Duration::from_secs(1));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// An address of this machine at which the listener hears.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            [127, 0, 0, 1].into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

impl Shared {
    fn streams(&self) -> MutexGuard<'_, HashMap<u64, Arc<TcpStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(IDLE))?;
        stream.set_write_timeout(Some(IDLE))?;
        stream.set_nodelay(true)?;
        Impersonation::new()?.act_as(&Identity { uid: NOBODY, gid: NOBODY, ..Identity::ROOT })?;
        let source = Source {
            site: &self.site,
            payload: &*self.payload as &dyn Payload,
            revisions: self.payload.revisions(),
            piece_bytes: self.piece_bytes,
        };
        connection::serve(stream, &source, &self.keys, &self.counts)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let mut number = 0_u64;
    while !shared.is_ending.load(Ordering::SeqCst) {
        let stream = match listener.accept() {
            Ok((stream, _)) => Arc::new(stream),
            Err(error) => {
                // No descriptors, for a moment.
                tracing::warn!("HTTP: {error}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= CONNECTIONS_MAX {
            shared.counts.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        number += 1;
        shared.streams().insert(number, Arc::clone(&stream));
        let thread =
            std::thread::Builder::new().name("http-client".to_owned()).stack_size(STACK_BYTES);
        let of_thread = Arc::clone(shared);
        let spawned = thread.spawn(move || {
            // A client that goes is not worth a word.
            if let Err(error) = of_thread.serve(&stream) {
                tracing::debug!("HTTP: {error}");
            }
            of_thread.streams().remove(&number);
            let _ = stream.shutdown(Shutdown::Both);
        });
        match spawned {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                tracing::warn!("HTTP: {error}");
                shared.streams().remove(&number);
            }
        }
    }
    for stream in shared.streams().values() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for thread in threads {
        let _ = thread.join();
    }
}
