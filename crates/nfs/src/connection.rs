//! A client's connection: what has been received of it, what is still to be sent, and who works on it.
//!
//! Workers share all connections. At any time at most one of them has a connection's *turn*: it receives and takes requests out. It passes the turn on before it executes a request
//! if there is more to receive and another worker has nothing to do, so that requests of one connection are executed side by side.
//!
//! The kernel tells of new bytes once (edge-triggered epoll). If it does so while somebody has the turn, `is_told` remembers it, and the turn does not end without another look.
//!
//! A connection with too many requests under way, or too many bytes to be sent, is *paused*: nobody has its turn until there are fewer.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use nicache_payload::Extent;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::record::{Record, RecordError, RecordReader};
use crate::rpc::Replies;
use crate::service::ClientRules;

/// Slices that one system call sends.
const SLICES_MAX: usize = 64;

/// When a connection is paused.
#[derive(Clone, Copy, Debug)]
pub struct PauseLimits {
    /// Requests under way at most.
    pub requests_max: usize,
    /// Bytes to be sent from which on nothing more is taken. One reply for each request under way may come on top.
    pub unsent_bytes_max: usize,
}

/// A client's connection.
#[derive(Debug)]
pub struct Connection {
    /// What epoll knows it by.
    pub token: u64,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// What the client may use.
    pub rules: ClientRules,
    stream: TcpStream,
    limits: PauseLimits,
    turn: Mutex<Turn>,
    input: Mutex<Input>,
    unsent: Mutex<VecDeque<Extent>>,
    unsent_bytes: AtomicUsize,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Turn {
    is_taken: bool,
    is_told: bool,
    /// The client sends nothing more. The kernel may have said so together with the last bytes, and says it once.
    is_ending: bool,
    is_paused: bool,
    under_way: usize,
}

#[derive(Debug)]
struct Input {
    reader: RecordReader,
    /// Nothing more is there until the kernel says so.
    is_drained: bool,
    /// Of the last bytes.
    at: Instant,
}

/// What comes next on a connection.
#[derive(Debug)]
pub enum Next {
    /// A request, and whether there may be more.
    Request(Record, bool),
    /// Nothing for now; the turn is over.
    Nothing,
    /// Too much is under way; the turn is over.
    Paused,
    /// No more, ever.
    End,
    /// No more, because of this.
    Bad(RecordError),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// A connection that was accepted and does not block.
    pub fn new(
        token: u64,
        stream: TcpStream,
        peer: SocketAddr,
        rules: ClientRules,
        reader: RecordReader,
        limits: PauseLimits,
        now: Instant,
    ) -> Self {
        Self {
            token,
            peer,
            rules,
            stream,
            limits,
            turn: Mutex::default(),
            input: Mutex::new(Input { reader, is_drained: false, at: now }),
            unsent: Mutex::default(),
            unsent_bytes: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    /// Its socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The kernel told of bytes, or of the end. Whether the turn is the caller's now.
    #[must_use]
    pub fn handle_told(&self, is_ending: bool) -> bool {
        let mut turn = lock(&self.turn);
        turn.is_told = true;
        turn.is_ending |= is_ending;
        if turn.is_taken || turn.is_paused {
            return false;
        }
        turn.is_taken = true;
        true
    }

    /// The next request. Only for who has the turn.
    pub fn next(&self, now: Instant) -> Next {
        let mut input = lock(&self.input);
        loop {
            if self.is_closed() {
                return Next::End;
            }
            if self.pause() {
                return Next::Paused;
            }
            match input.reader.next_record() {
                Ok(Some(record)) => {
                    lock(&self.turn).under_way += 1;
                    return Next::Request(record, input.reader.has_bytes() || !input.is_drained);
                }
                Ok(None) => {}
                Err(error) => return Next::Bad(error),
            }
            {
                let mut turn = lock(&self.turn);
                if input.is_drained && !turn.is_told && !turn.is_ending {
                    turn.is_taken = false;
                    return Next::Nothing;
                }
                // What the kernel tells of from here on, the next bytes may not have.
                turn.is_told = false;
            }
            let (received, size) = {
                let mut room = input.reader.room();
                let size: usize = room.iter().map(|slice| slice.len()).sum();
                (rustix::io::readv(&self.stream, &mut room), size)
            };
            match received {
                Ok(0) => return Next::End,
                Ok(len) => {
                    // A stream that gave less has no more (epoll(7)).
                    input.is_drained = len < size;
                    input.reader.handle_received(len);
                    input.at = now;
                }
                Err(Errno::AGAIN) if lock(&self.turn).is_ending => return Next::End,
                Err(Errno::AGAIN) => input.is_drained = true,
                Err(Errno::INTR) => {}
                Err(_) => return Next::End,
            }
        }
    }

    fn pause(&self) -> bool {
        let mut turn = lock(&self.turn);
        turn.is_paused = self.is_over(&turn);
        if turn.is_paused {
            turn.is_taken = false;
        }
        turn.is_paused
    }

    fn is_over(&self, turn: &Turn) -> bool {
        turn.under_way >= self.limits.requests_max
            || self.unsent_bytes.load(Ordering::SeqCst) >= self.limits.unsent_bytes_max
    }

    /// Gives the turn back. Whether it is still the caller's, because the kernel told of more meanwhile.
    #[must_use]
    pub fn keep_turn(&self) -> bool {
        let mut turn = lock(&self.turn);
        turn.is_taken = turn.is_told || turn.is_ending;
        turn.is_taken
    }

    /// A request was executed and its reply handed over. Whether the turn is the caller's now, because the connection was paused.
    #[must_use]
    pub fn end_request(&self) -> bool {
        lock(&self.turn).under_way -= 1;
        self.resume()
    }

    /// Whether the turn is the caller's now, because the connection was paused and need no longer be.
    #[must_use]
    pub fn resume(&self) -> bool {
        let mut turn = lock(&self.turn);
        if !turn.is_paused || (self.is_over(&turn) && !self.is_closed()) {
            return false;
        }
        turn.is_paused = false;
        turn.is_taken = true;
        true
    }

    /// Sends replies, or keeps what the socket does not take. They are gone from `replies` afterwards.
    pub fn send(&self, replies: &mut Replies) {
        if replies.is_empty() {
            return;
        }
        let mut unsent = lock(&self.unsent);
        let mut sent = 0;
        if unsent.is_empty() && !self.is_closed() {
            sent = self.send_slices(|| replies.slices(), replies.len());
        }
        if sent < replies.len() && !self.is_closed() {
            unsent.extend(replies.drain_from(sent));
            self.count_unsent(&unsent);
        }
        drop(unsent);
        replies.clear();
    }

    /// The socket takes more.
    pub fn send_unsent(&self) {
        let mut unsent = lock(&self.unsent);
        if unsent.is_empty() {
            return;
        }
        let total = unsent.iter().map(Extent::len).sum();
        let mut sent = self.send_slices(|| unsent.iter().map(|extent| &extent[..]), total);
        while let Some(first) = unsent.front_mut() {
            if first.len() > sent {
                bytes::Buf::advance(first, sent);
                break;
            }
            sent -= first.len();
            unsent.pop_front();
        }
        self.count_unsent(&unsent);
    }

    fn count_unsent(&self, unsent: &VecDeque<Extent>) {
        self.unsent_bytes.store(unsent.iter().map(Extent::len).sum(), Ordering::SeqCst);
    }

    /// How many of `total` bytes the socket takes.
    fn send_slices<'a, I: Iterator<Item = &'a [u8]>>(&self, slices: impl Fn() -> I, total: usize) -> usize {
        let mut sent = 0;
        while sent < total {
            let mut skip = sent;
            let mut list = arrayvec::ArrayVec::<IoSlice<'_>, SLICES_MAX>::new();
            for slice in slices() {
                let gone = skip.min(slice.len());
                skip -= gone;
                if gone < slice.len() && list.try_push(IoSlice::new(&slice[gone..])).is_err() {
                    break;
                }
            }
            match sendmsg(
                &self.stream,
                &list,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            ) {
                Ok(len) => sent += len,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    self.close();
                    break;
                }
            }
        }
        sent
    }

    /// Ends it. What is under way is executed to its end, and its replies go nowhere.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Since when the rest of a request is missing; `None` if none has begun.
    #[must_use]
    pub fn incomplete_since(&self) -> Option<Instant> {
        let input = self.input.try_lock().ok()?;
        input.reader.is_in_record().then_some(input.at)
    }
}
