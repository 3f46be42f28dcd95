//! Workers: they wait for connections, take requests from them and execute them.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use tracing::{debug, warn};

use crate::answer::{Answerer, Origin};
use crate::connection::{Connection, Received};
use crate::impersonation::Impersonation;
use crate::record::{Record, RecordReader};
use crate::room::{Guest, Room, room};
use crate::rpc::Replies;
use crate::service::ClientRules;
use crate::shared::{Shared, TOKEN_CONNECTIONS, TOKEN_PORTMAP_UDP, TOKEN_WAKE, lock};
use crate::socket;

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
/// How often it is looked for clients that do not go on.
const LOOK: Duration = Duration::from_secs(1);

/// Passes the turn of connections on whose present request turns out to be slow: nothing else of
/// its client should wait for it.
///
/// Ends connections of clients that do not go on. Workers could not: all may wait for memory that
/// only this sets free.
pub(crate) fn watch(shared: &Shared) {
    let mut is_busy = false;
    let mut looked = Instant::now();
    while !shared.is_over.load(Ordering::SeqCst) {
        std::thread::park_timeout(if is_busy { WATCH_BUSY } else { WATCH_IDLE });
        is_busy = false;
        let now = Instant::now();
        if now.saturating_duration_since(looked) >= LOOK {
            looked = now;
            end_stuck(shared, now);
        }
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

/// Ends connections whose clients have begun a request and do not go on, or take no replies.
fn end_stuck(shared: &Shared, now: Instant) {
    let connections: Vec<_> = shared
        .connections
        .read()
        .unwrap_or_else(PoisonError::into_inner)
        .values()
        .cloned()
        .collect();
    let is_late = |since: Option<Instant>, timeout| {
        since.is_some_and(|since| now.saturating_duration_since(since) > timeout)
    };
    for connection in connections {
        if is_late(connection.incomplete_since(), shared.request_timeout) {
            debug!(peer = %connection.peer, "connection ended: the rest of a request did not come");
            shared.forget(&connection);
        } else if is_late(connection.stuck_since(), shared.common.unsent_timeout()) {
            debug!(peer = %connection.peer, "connection ended: its client takes no replies");
            shared.stuck_connections.fetch_add(1, Ordering::Relaxed);
            shared.forget(&connection);
        }
    }
}

/// A worker.
pub(crate) struct Worker<'a> {
    shared: &'a Shared,
    index: usize,
    thread: Impersonation,
    replies: Replies,
}

impl<'a> Worker<'a> {
    /// Number `index`, by the present thread.
    pub(crate) fn new(shared: &'a Shared, index: usize, thread: Impersonation) -> Self {
        Self { shared, index, thread, replies: Replies::default() }
    }

    /// Works until it is over.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(1);
        loop {
            if self.shared.is_over.load(Ordering::SeqCst) {
                self.shared.wake_all();
                return;
            }
            // What was passed on waits for no event, but events are looked for in between:
            // otherwise somebody might wait for ever.
            self.shared.idle.fetch_add(1, Ordering::SeqCst);
            let timeout = if self.shared.ready_len.load(Ordering::SeqCst) > 0 {
                Duration::ZERO
            } else {
                SWEEP
            };
            let timeout = Timespec::try_from(timeout).expect("seconds");
            events.clear();
            let waited = epoll::wait(
                &*self.shared.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            );
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
                let connections =
                    self.shared.connections.read().unwrap_or_else(PoisonError::into_inner);
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
                    // There is no event for descriptors that become free; the next sweep tries
                    // again.
                    return;
                }
            };
            if socket::set_up(&stream).is_err() {
                continue;
            }
            let rules = self.shared.rules(peer);
            let is_stranger = rules.iter().all(Option::is_none);
            let mut connections =
                self.shared.connections.write().unwrap_or_else(PoisonError::into_inner);
            let guests = || {
                connections.values().map(|connection| Guest {
                    token: connection.token,
                    address: connection.peer.ip().to_canonical(),
                    is_stranger: connection.is_stranger,
                    idle_since: connection.idle_since(),
                })
            };
            match room(guests, connections.len(), self.shared.connections_max, is_stranger) {
                Room::Free => {}
                Room::Of(token) => {
                    lock(&self.shared.metrics[self.index]).replaced_connections += 1;
                    if let Some(idle) = connections.remove(&token) {
                        debug!(peer = %idle.peer, "connection ended: another one needs its place");
                        idle.close();
                    }
                }
                Room::None => {
                    lock(&self.shared.metrics[self.index]).refused_connections += 1;
                    continue;
                }
            }
            lock(&self.shared.metrics[self.index]).connections += 1;
            let token = self.shared.token_next.fetch_add(1, Ordering::SeqCst);
            let reader = RecordReader::new(self.shared.service.chunks.clone());
            let connection = Arc::new(Connection::new(
                token,
                (stream, peer),
                rules,
                reader,
                self.shared.common.clone(),
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
            let mut has_turn = !self.give_turn(connection, in_a_row, begun);
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

    /// Gives a connection's turn to others before a request of it is executed, if that is better,
    /// and says so.
    fn give_turn(&self, connection: &Arc<Connection>, in_a_row: usize, now: Instant) -> bool {
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
            connection.end_turn(now);
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
        let origin = Origin {
            peer: connection.peer,
            rules: &connection.rules,
            connection: Some(connection),
        };
        if answerer.answer(record, origin, &mut self.replies).is_err() {
            debug!(peer = %connection.peer, "connection ended: a record that is not a call");
            lock(metrics).bad_records += 1;
            self.shared.forget(connection);
        }
    }

    /// Calls of the port mapper.
    fn answer_datagrams(&mut self) {
        let Some(socket) = &self.shared.portmap_udp else { return };
        let mut buffer = [0; 1024];
        loop {
            let (len, peer) = match socket.recv_from(&mut buffer) {
                Ok(received) => received,
                // What is still there would wait until another one comes: only that is an event.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
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
        let now_ms =
            u64::try_from(now.duration_since(self.shared.start).as_millis()).unwrap_or(u64::MAX);
        let swept = self.shared.swept_ms.load(Ordering::Relaxed);
        let is_due = now_ms - swept.min(now_ms) >= SWEEP.as_millis() as u64;
        if !is_due
            || self
                .shared
                .swept_ms
                .compare_exchange(swept, now_ms, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
        {
            return;
        }
        self.shared.service.nodes.sweep();
        self.shared.duplicates.sweep(now);
        for listener in 0..self.shared.listeners.len() {
            self.accept(listener);
        }
    }
}
