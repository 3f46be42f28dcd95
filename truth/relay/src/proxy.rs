//! The database's door: clients connect here instead of to the database.
//!
//! * What may change something reaches the database only after it has gone through: every card host
//!   that keeps pages knows of it.
//! * What is certain to be a mere question reaches the database at once, and its reply the client
//!   after it has gone through: so no page is made of a reply that its watcher does not know the
//!   question of.
//!
//! Two threads per connection. What cannot be understood (encrypted, compressed) passes like
//! anything else, and is taken to change everything from its arrival to the end of its connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicache_sql::{Dialect, Turns, is_certain_read};

use crate::hub::Hub;
use crate::message::{CONNECTIONS_MAX, EVENT_BYTES_MAX, REPLY_BYTES, Step};
use crate::socket;

const CONNECT: Duration = Duration::from_secs(5);

/// Counters, since the start.
#[derive(Debug, Default)]
pub struct ProxyCounters {
    /// Connections of clients.
    pub connections: AtomicU64,
    /// Connections at the moment.
    pub open: AtomicUsize,
    /// Connections that were refused, as too many were open.
    pub crowded: AtomicU64,
    /// Questions that went to the database at once.
    pub questions: AtomicU64,
    /// What went to the database after it had gone through.
    pub changes: AtomicU64,
}

/// The database's door: clients connect here instead of to the database, and what may change
/// something reaches it only after every card host that keeps pages knows of it.
#[derive(Debug)]
pub struct Proxy {
    hub: Arc<Hub>,
    dialect: Dialect,
    database: SocketAddr,
    names: AtomicU64,
    counters: ProxyCounters,
}

/// What both threads of a connection know.
struct Conversation {
    turns: Turns,
    /// The last event of what the client has sent.
    last: u64,
    /// The database has begun to reply to it.
    replied: bool,
    /// It was said that it is done.
    over: bool,
    /// It is a mere question, outside of a transaction: whatever becomes of it, nothing changes.
    is_harmless: bool,
    /// The client is gone, and the database is no longer listened to. Nothing more goes there.
    is_given_up: bool,
}

impl Proxy {
    /// A proxy in front of the database at an address. Connections are numbered from 1.
    pub fn new(hub: Arc<Hub>, dialect: Dialect, database: SocketAddr) -> Self {
        Self {
            hub,
            dialect,
            database,
            names: AtomicU64::new(1),
            counters: ProxyCounters::default(),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> &ProxyCounters {
        &self.counters
    }

    /// Accepts clients until the process ends.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn open(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let body = move || {
            loop {
                match listener.accept() {
                    Ok((client, _)) => self.admit(client),
                    Err(error) => {
                        tracing::warn!("a client cannot be accepted: {error}");
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        };
        std::thread::Builder::new().name("clients".into()).spawn(body)?;
        Ok(())
    }

    fn admit(self: &Arc<Self>, client: TcpStream) {
        if self.counters.open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            self.counters.open.fetch_sub(1, Ordering::SeqCst);
            self.counters.crowded.fetch_add(1, Ordering::Relaxed);
            tracing::warn!("more than {CONNECTIONS_MAX} connections to the database at a time");
            return;
        }
        self.counters.connections.fetch_add(1, Ordering::Relaxed);
        let proxy = Arc::clone(self);
        let body = move || {
            if let Err(error) = proxy.relay(client) {
                tracing::debug!("a connection has ended: {error}");
            }
            proxy.counters.open.fetch_sub(1, Ordering::SeqCst);
        };
        if std::thread::Builder::new().name("requests".into()).spawn(body).is_err() {
            self.counters.open.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn relay(self: &Arc<Self>, client: TcpStream) -> io::Result<()> {
        let database = TcpStream::connect_timeout(&self.database, CONNECT)?;
        socket::set_up_client(&client)?;
        socket::set_up_database(&database)?;
        let connection = self.names.fetch_add(1, Ordering::SeqCst);
        let conversation = Conversation {
            turns: Turns::new(self.dialect),
            last: 0,
            replied: true,
            over: true,
            is_harmless: false,
            is_given_up: false,
        };
        let conversation = Arc::new(Mutex::new(conversation));
        self.hub.publish(connection, Step::Opened);
        let (from_database, to_client) = (database.try_clone()?, client.try_clone()?);
        let (proxy, shared) = (Arc::clone(self), Arc::clone(&conversation));
        let body = move || proxy.replies(connection, from_database, to_client, &shared);
        let replies = std::thread::Builder::new().name("replies".into()).spawn(body);
        let asked = match &replies {
            Ok(_) => self.requests(connection, client, &database, &conversation),
            Err(_) => Ok(()),
        };
        // What may have changed something comes to its end by itself, and then the database ends
        // the connection.
        let _ = database.shutdown(Shutdown::Write);
        let ended = match replies {
            Ok(thread) => {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread has failed")))
            }
            Err(error) => Err(error),
        };
        match ended {
            Ok(()) => drop(self.hub.publish(connection, Step::Closed)),
            // Whether the database has come to an end is not known, so what it was told stays in
            // doubt.
            Err(error) => tracing::warn!(connection, "the database is out of reach: {error}"),
        }
        asked
    }

    fn requests(
        &self,
        connection: u64,
        mut client: TcpStream,
        mut database: &TcpStream,
        conversation: &Mutex<Conversation>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; EVENT_BYTES_MAX];
        loop {
            let len = match client.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let bytes = &buffer[..len];
            let (number, certain) = {
                let mut conversation = lock(conversation);
                if conversation.is_given_up {
                    return Ok(());
                }
                let ahead = !conversation.turns.is_over();
                let holds_nothing = conversation.turns.holds_nothing();
                let is_identity = conversation.turns.handle_client(bytes);
                let certain = is_identity
                    || (!ahead && self.hub.is_plain() && is_certain_read(self.dialect, bytes));
                let step = Step::Received { bytes: bytes.to_vec(), certain, ahead };
                let number = self.hub.publish(connection, step);
                (conversation.last, conversation.replied, conversation.over) =
                    (number, false, false);
                conversation.is_harmless = certain && !is_identity && holds_nothing;
                (number, certain)
            };
            if certain {
                self.counters.questions.fetch_add(1, Ordering::Relaxed);
            } else {
                self.counters.changes.fetch_add(1, Ordering::Relaxed);
                self.hub.wait(number);
            }
            database.write_all(bytes)?;
        }
    }

    /// Ok: the database has ended the connection, or nothing of it is in doubt.
    fn replies(
        &self,
        connection: u64,
        mut database: TcpStream,
        mut client: TcpStream,
        conversation: &Mutex<Conversation>,
    ) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        let mut is_client_there = true;
        loop {
            let len = match database.read(&mut buffer) {
                Ok(0) => break,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => {
                    let _ = client.shutdown(Shutdown::Both);
                    return Err(error);
                }
            };
            let bytes = &buffer[..len];
            let last = {
                let mut conversation = lock(conversation);
                conversation.turns.handle_server(bytes);
                let over = conversation.turns.is_over();
                if !conversation.replied || conversation.last == 0 {
                    let bytes = bytes[..len.min(REPLY_BYTES)].to_vec();
                    self.hub.publish(connection, Step::Sent { bytes, over });
                } else if over && !conversation.over {
                    self.hub.publish(connection, Step::Idle);
                }
                conversation.replied = true;
                conversation.over |= over;
                conversation.last
            };
            if is_client_there {
                self.hub.wait(last);
                is_client_there = client.write_all(bytes).is_ok();
            }
            if !is_client_there {
                // A reply for nobody may be long, or without an end. Without the relay the database
                // would end the question, because it cannot write either.
                let mut conversation = lock(conversation);
                if conversation.is_harmless {
                    conversation.is_given_up = true;
                    let _ = database.shutdown(Shutdown::Both);
                    break;
                }
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        Ok(())
    }
}

fn lock(conversation: &Mutex<Conversation>) -> MutexGuard<'_, Conversation> {
    conversation.lock().unwrap_or_else(PoisonError::into_inner)
}
