//! A client's connection: what has been received of it, what is still to be sent, and who works on
//! it.
//!
//! Workers share all connections. At any time at most one of them has a connection's *turn*: it
//! receives, takes requests out and executes them. Where requests take their time, it passes the
//! turn on before it executes one, so requests of one connection are executed side by side;
//! where they do not, that would cost more than they do.
//!
//! The kernel tells of a connection only while nobody has the turn (`EPOLLONESHOT`), so no
//! worker wakes for nothing.
//!
//! A connection with too many requests under way, or too many bytes to be sent, is *paused*: nobody
//! has its turn until there are fewer.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nicache_payload::Extent;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use crate::record::{Record, RecordError, RecordReader};
use crate::rpc::Replies;
use crate::service::ClientRules;

/// Slices that one system call sends.
const SLICES_MAX: usize = 64;
/// A client that takes fewer bytes than this takes none.
const PROGRESS_BYTES: usize = 64 << 10;
/// How much less time clients have while all have too many bytes to be sent.
const HASTE: u32 = 4;

/// When a connection is paused.
#[derive(Clone, Copy, Debug)]
pub struct PauseLimits {
    /// Requests under way at most.
    pub requests_max: usize,
    /// Bytes to be sent from which on nothing more is taken. One reply for each request under way
    /// may come on top.
    pub unsent_bytes_max: usize,
    /// The same for all connections together: from so many on, a connection has one reply under
    /// way or to be sent.
    pub unsent_bytes_all_max: usize,
    /// How long a client may take none of the bytes that are to be sent to it before its connection
    /// ends. While all have too many, it is a quarter of that.
    pub unsent_timeout: Duration,
}

/// What connections have in common.
#[derive(Clone, Debug)]
pub(crate) struct Common {
    /// When they are paused.
    pub limits: PauseLimits,
    /// Bytes to be sent, of all.
    pub unsent_bytes: Arc<AtomicUsize>,
    /// What tells of them.
    pub epoll: Arc<OwnedFd>,
}

impl Common {
    /// Whether all connections together have too many bytes to be sent.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.unsent_bytes.load(Ordering::SeqCst) >= self.limits.unsent_bytes_all_max
    }

    /// How long a client may take nothing at present.
    #[must_use]
    pub(crate) fn unsent_timeout(&self) -> Duration {
        self.limits.unsent_timeout / if self.is_over() { HASTE } else { 1 }
    }
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// What epoll knows it by.
    pub token: u64,
    /// Where it comes from.
    pub peer: SocketAddr,
    /// What the client may use.
    pub rules: ClientRules,
    /// Whether that is nothing.
    pub is_stranger: bool,
    stream: TcpStream,
    common: Common,
    turn: Mutex<Turn>,
    input: Mutex<RecordReader>,
    /// Replies that wait for those of the next requests. Locked before `unsent`.
    held: Mutex<Replies>,
    unsent: Mutex<Unsent>,
    unsent_bytes: AtomicUsize,
    is_closed: AtomicBool,
    is_slow: AtomicBool,
}

/// What the socket did not take.
#[derive(Debug)]
struct Unsent {
    extents: VecDeque<Extent>,
    /// Bytes that the socket took after `moved`.
    taken_bytes: usize,
    /// When the first of them came, or the socket had taken enough.
    moved: Instant,
}

#[derive(Debug)]
struct Turn {
    is_taken: bool,
    is_paused: bool,
    under_way: usize,
    /// When the turn was given back the last time.
    free_since: Instant,
    /// What the kernel will tell of, once.
    armed: EventFlags,
}

/// What came of receiving.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    /// Bytes.
    Bytes,
    /// Nothing for now; the turn is over.
    Nothing,
    /// Nothing, ever.
    End,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// A connection that was accepted and does not block. Tell `epoll` to tell of its first bytes,
    /// once.
    pub(crate) fn new(
        token: u64,
        (stream, peer): (TcpStream, SocketAddr),
        rules: ClientRules,
        reader: RecordReader,
        common: Common,
        now: Instant,
    ) -> Self {
        Self {
            token,
            peer,
            is_stranger: rules.iter().all(Option::is_none),
            rules,
            stream,
            common,
            turn: Mutex::new(Turn {
                is_taken: false,
                is_paused: false,
                under_way: 0,
                free_since: now,
                armed: EventFlags::IN,
            }),
            input: Mutex::new(reader),
            held: Mutex::default(),
            unsent: Mutex::new(Unsent { extents: VecDeque::new(), taken_bytes: 0, moved: now }),
            unsent_bytes: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_slow: AtomicBool::new(false),
        }
    }

    /// Its socket.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The kernel told of something. Whether the turn is the caller's now.
    #[must_use]
    pub(crate) fn handle_told(&self, flags: EventFlags) -> bool {
        lock(&self.turn).armed = EventFlags::empty();
        if flags.contains(EventFlags::OUT) {
            self.send_unsent();
        }
        let mut turn = lock(&self.turn);
        // What was received before a pause, the kernel does not tell of again.
        let was_paused = turn.is_paused;
        let is_free = !turn.is_taken && !self.is_paused(&mut turn);
        if is_free
            && (was_paused || flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR))
        {
            turn.is_taken = true;
        }
        let has_turn = is_free && turn.is_taken;
        self.arm(&mut turn);
        has_turn
    }

    /// Has the kernel tell of what there is to wait for.
    fn arm(&self, turn: &mut Turn) {
        let mut wanted = EventFlags::empty();
        if !turn.is_taken && !turn.is_paused {
            wanted |= EventFlags::IN;
        }
        if self.unsent_bytes.load(Ordering::SeqCst) > 0 {
            wanted |= EventFlags::OUT;
        }
        if turn.armed.contains(wanted) {
            return;
        }
        turn.armed = wanted;
        let data = epoll::EventData::new_u64(self.token);
        if epoll::modify(&*self.common.epoll, &self.stream, data, wanted | EventFlags::ONESHOT)
            .is_err()
        {
            self.close();
        }
    }

    /// The next request that has been received whole, unless the connection is paused. Only for who
    /// has the turn.
    pub(crate) fn take_request(&self) -> Result<Option<Record>, RecordError> {
        let record = lock(&self.input).next_record()?;
        if record.is_some() {
            lock(&self.turn).under_way += 1;
        }
        Ok(record)
    }

    /// Receives what there is. Only for who has the turn.
    pub(crate) fn receive(&self, now: Instant) -> Received {
        let mut input = lock(&self.input);
        loop {
            if self.is_closed() {
                return Received::End;
            }
            let received = rustix::io::readv(&self.stream, &mut input.room());
            match received {
                Ok(0) => return Received::End,
                Ok(len) => {
                    input.handle_received(len);
                    return Received::Bytes;
                }
                Err(Errno::AGAIN) => {
                    drop(input);
                    self.end_turn(now);
                    return Received::Nothing;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Received::End,
            }
        }
    }

    /// Whether bytes are there that have not been looked at.
    #[must_use]
    pub(crate) fn has_bytes(&self) -> bool {
        lock(&self.input).has_bytes()
    }

    /// Gives the turn back.
    pub(crate) fn end_turn(&self, now: Instant) {
        let mut turn = lock(&self.turn);
        turn.is_taken = false;
        turn.free_since = now;
        self.arm(&mut turn);
    }

    /// Gives the turn back if too much is under way, and says so.
    #[must_use]
    pub(crate) fn pause(&self) -> bool {
        let mut turn = lock(&self.turn);
        turn.is_paused = self.is_over(&turn) && !self.is_closed();
        if turn.is_paused {
            turn.is_taken = false;
            self.arm(&mut turn);
        }
        turn.is_paused
    }

    /// Whether the last request took its time.
    #[must_use]
    pub(crate) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Remembers whether the last request took its time.
    pub(crate) fn set_slow(&self, is_slow: bool) {
        self.is_slow.store(is_slow, Ordering::Relaxed);
    }

    fn is_over(&self, turn: &Turn) -> bool {
        let limits = &self.common.limits;
        let unsent = self.unsent_bytes.load(Ordering::SeqCst);
        // Who waits for its own requests and bytes hears of their end, so nobody has to be woken
        // when others' are sent.
        turn.under_way >= limits.requests_max
            || unsent >= limits.unsent_bytes_max
            || (turn.under_way > 0 || unsent > 0) && self.common.is_over()
    }

    /// Whether it is paused still.
    fn is_paused(&self, turn: &mut Turn) -> bool {
        turn.is_paused = turn.is_paused && self.is_over(turn) && !self.is_closed();
        turn.is_paused
    }

    /// A request was executed and its reply handed over. Whether the turn is the caller's now,
    /// because the connection was paused and need no longer be.
    #[must_use]
    pub(crate) fn end_request(&self) -> bool {
        let mut turn = lock(&self.turn);
        turn.under_way -= 1;
        if !turn.is_paused || self.is_paused(&mut turn) {
            return false;
        }
        turn.is_taken = true;
        true
    }

    /// Keeps replies, to be sent with the next ones. They are gone from `replies` afterwards.
    /// Returns the bytes that are kept so.
    pub(crate) fn hold(&self, replies: &mut Replies) -> usize {
        let mut held = lock(&self.held);
        held.append(replies);
        held.len()
    }

    /// Sends replies and those that were held, or keeps what the socket does not take. They are
    /// gone from `replies` afterwards.
    pub(crate) fn send(&self, replies: &mut Replies) {
        let mut held = lock(&self.held);
        held.append(replies);
        if held.is_empty() {
            return;
        }
        let mut unsent = lock(&self.unsent);
        let mut sent = 0;
        if unsent.extents.is_empty() && !self.is_closed() {
            sent = self.send_slices(|| held.slices(), held.len());
        }
        if sent < held.len() && !self.is_closed() {
            if unsent.extents.is_empty() {
                unsent.moved = Instant::now();
                unsent.taken_bytes = 0;
            }
            unsent.extents.extend(held.drain_from(sent));
            self.count_unsent(&unsent);
        }
        drop(unsent);
        held.clear();
        drop(held);
        if self.unsent_bytes.load(Ordering::SeqCst) > 0 {
            self.arm(&mut lock(&self.turn));
        }
    }

    /// The socket takes more.
    fn send_unsent(&self) {
        let mut unsent = lock(&self.unsent);
        if unsent.extents.is_empty() {
            return;
        }
        let total = unsent.extents.iter().map(Extent::len).sum();
        let mut sent = self.send_slices(|| unsent.extents.iter().map(|extent| &extent[..]), total);
        unsent.taken_bytes += sent;
        if unsent.taken_bytes >= PROGRESS_BYTES {
            unsent.moved = Instant::now();
            unsent.taken_bytes = 0;
        }
        while let Some(first) = unsent.extents.front_mut() {
            if first.len() > sent {
                bytes::Buf::advance(first, sent);
                break;
            }
            sent -= first.len();
            unsent.extents.pop_front();
        }
        self.count_unsent(&unsent);
    }

    fn count_unsent(&self, unsent: &Unsent) {
        let now = unsent.extents.iter().map(Extent::len).sum();
        let before = self.unsent_bytes.swap(now, Ordering::SeqCst);
        let all = &self.common.unsent_bytes;
        all.fetch_add(now, Ordering::SeqCst);
        all.fetch_sub(before, Ordering::SeqCst);
    }

    /// Throws away what a connection that is closed had to send, also while others have it still.
    pub(crate) fn discard_unsent(&self) {
        let mut unsent = lock(&self.unsent);
        unsent.extents = VecDeque::new();
        self.count_unsent(&unsent);
    }

    /// Since when its client takes nothing of what is to be sent; `None` if there is nothing.
    #[must_use]
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        let unsent = self.unsent.try_lock().ok()?;
        (!unsent.extents.is_empty()).then_some(unsent.moved)
    }

    /// How many of `total` bytes the socket takes.
    fn send_slices<'a, I: Iterator<Item = &'a [u8]>>(
        &self,
        slices: impl Fn() -> I,
        total: usize,
    ) -> usize {
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
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Whether it has ended.
    #[must_use]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Since when there has been nothing to do for it; `None` if there is something. A request that
    /// has come in part is nothing.
    #[must_use]
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let turn = self.turn.try_lock().ok()?;
        let is_idle =
            !turn.is_taken && turn.under_way == 0 && self.unsent_bytes.load(Ordering::SeqCst) == 0;
        is_idle.then_some(turn.free_since)
    }

    /// Since when the rest of a request is missing; `None` if none has begun, or if nobody asks for
    /// the rest because there is other work.
    #[must_use]
    pub(crate) fn incomplete_since(&self) -> Option<Instant> {
        let turn = self.turn.try_lock().ok()?;
        if turn.is_taken || turn.is_paused {
            return None;
        }
        // Whole requests are never left when the turn is given back. Nobody receives meanwhile,
        // because that takes the turn.
        let is_in_record = self.input.try_lock().ok()?.is_in_record();
        is_in_record.then_some(turn.free_since)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.discard_unsent();
    }
}
