//! Copies between two sockets both ways, and passes on how each of them ends.
//!
//! * The end of what one side sends (FIN) reaches the other side after all that came before it.
//! * So does a reset, and as a reset: a reply that lasts until its connection ends must not look
//!   complete if it was cut.
//! * A side that takes nothing more may have sent something before, such as an answer that refuses
//!   an upload: the other side gets all of that.
//!
//! The kernel looks after peers that have gone without a word ([`super::KEEPALIVE_IDLE`]).
//!
//! One thread for both directions: the kernel tells an error of a socket once, to whichever call
//! comes first.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

use nicache_port::unacknowledged;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

const BUFFER_BYTES: usize = 16 * 1024;
/// For so long a side may take what has been sent to it before its connection is broken off.
const DELIVERY: Duration = Duration::from_secs(5);
/// So often it is asked whether it has.
const DELIVERY_POLL: Duration = Duration::from_millis(2);
/// Once one peer is gone, the other one may take nothing for so long before it is given up, too.
const STALLED: Timespec = Timespec { tv_sec: if cfg!(test) { 1 } else { 60 }, tv_nsec: 0 };
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR);

/// Two sockets, and what goes from each of them to the other one.
struct Pair<'a> {
    sockets: [&'a TcpStream; 2],
    /// What comes from the socket of the same number.
    flows: [Flow; 2],
    /// Sockets that take nothing more, and whose peers are gone.
    is_gone: [bool; 2],
    /// Of these, those whose peers have not ended what they sent.
    is_reset: [bool; 2],
}

struct Flow {
    buffer: Box<[u8]>,
    /// What has been read and not yet written.
    waiting: Range<usize>,
    /// Nothing more comes.
    has_ended: bool,
    /// Nothing more is to be written.
    is_over: bool,
}

impl Flow {
    fn new() -> Self {
        let buffer = vec![0; BUFFER_BYTES].into();
        Self { buffer, waiting: 0..0, has_ended: false, is_over: false }
    }

    fn wants_input(&self) -> bool {
        self.waiting.is_empty() && !self.has_ended && !self.is_over
    }

    fn wants_output(&self) -> bool {
        !self.waiting.is_empty() && !self.is_over
    }
}

/// Copies between two sockets until both directions are over. The sockets no longer block after
/// this, and the caller closes them.
///
/// # Errors
/// What the kernel says to a call that has nothing to do with either peer.
pub(super) fn copy(one: &TcpStream, other: &TcpStream) -> io::Result<()> {
    let mut pair = Pair {
        sockets: [one, other],
        flows: [Flow::new(), Flow::new()],
        is_gone: [false; 2],
        is_reset: [false; 2],
    };
    for socket in pair.sockets {
        socket.set_nonblocking(true)?;
    }
    while pair.flows.iter().any(|flow| !flow.is_over) {
        let Some(events) = pair.wait()? else { break };
        for (side, events) in events.into_iter().enumerate() {
            pair.handle(side, events);
        }
    }
    pair.pass_the_end_on()
}

impl Pair<'_> {
    /// Waits until something can be done with a socket, or its peer is gone. `None`: one peer is
    /// gone, and the other one has taken nothing for too long.
    fn wait(&self) -> io::Result<Option<[PollFlags; 2]>> {
        let wanted = [0, 1].map(|side: usize| {
            let mut events = PollFlags::empty();
            events.set(PollFlags::IN, self.flows[side].wants_input());
            events.set(PollFlags::OUT, self.flows[1 - side].wants_output());
            // Looked at also if there is nothing to do, as long as it may get something. Later,
            // what the kernel would tell again and again is known.
            (!events.is_empty() || !self.flows[1 - side].is_over).then_some(events)
        });
        let mut fds: Vec<_> = wanted
            .iter()
            .zip(self.sockets)
            .filter_map(|(events, socket)| Some(PollFd::new(socket, (*events)?)))
            .collect();
        let limit = self.is_gone.contains(&true).then_some(&STALLED);
        loop {
            match poll(&mut fds, limit) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok(0) => return Ok(None),
                Ok(_) => break,
            }
        }
        let mut told = fds.iter().map(PollFd::revents);
        let told =
            wanted.map(|events| events.and_then(|_| told.next()).unwrap_or(PollFlags::empty()));
        Ok(Some(told))
    }

    fn handle(&mut self, side: usize, events: PollFlags) {
        if events.intersects(GONE) && !self.flows[1 - side].is_over {
            let error = self.sockets[side].take_error().ok().flatten();
            self.end(side, error.map(|error| error.kind()));
        }
        if events.intersects(PollFlags::IN | GONE) && self.flows[side].wants_input() {
            self.read(side);
        }
        if events.contains(PollFlags::OUT) {
            self.write(side);
        }
    }

    fn read(&mut self, side: usize) {
        let flow = &mut self.flows[side];
        match self.sockets[side].read(&mut flow.buffer) {
            Ok(0) => flow.has_ended = true,
            Ok(len) => flow.waiting = 0..len,
            Err(error) if is_passing(&error) => return,
            Err(error) => {
                flow.has_ended = true;
                self.end(side, Some(error.kind()));
            }
        }
        self.write(1 - side);
    }

    /// Writes what waits for a socket, and the end after it.
    fn write(&mut self, side: usize) {
        let flow = &mut self.flows[1 - side];
        if flow.wants_output() {
            match self.sockets[side].write(&flow.buffer[flow.waiting.clone()]) {
                Ok(len) => flow.waiting.start += len,
                Err(error) if is_passing(&error) => {}
                Err(error) => return self.end(side, Some(error.kind())),
            }
        }
        let flow = &mut self.flows[1 - side];
        if flow.has_ended && flow.waiting.is_empty() && !flow.is_over {
            flow.is_over = true;
            // After a reset, the end of everything says so.
            if !self.is_reset[1 - side] {
                let _ = self.sockets[side].shutdown(Shutdown::Write);
            }
        }
    }

    /// A socket's peer is gone: nothing more goes to it. What it has sent is still to be read.
    ///
    /// Linux says "broken pipe" to who writes after the peer's FIN, and also if the error has been
    /// told before.
    fn end(&mut self, side: usize, error: Option<ErrorKind>) {
        self.is_gone[side] = true;
        self.is_reset[side] |= error.is_some_and(|error| error != ErrorKind::BrokenPipe);
        self.flows[1 - side].is_over = true;
    }

    /// If one of the peers is gone before its time, the other one learns it once it has what was
    /// sent to it: from a reset if that was cut, and otherwise from the caller's close.
    fn pass_the_end_on(&self) -> io::Result<()> {
        for side in [0, 1] {
            if self.is_gone[1 - side] && !self.is_gone[side] {
                self.deliver(side)?;
                if self.is_reset[1 - side] || !self.flows[1 - side].is_over {
                    sockopt::set_socket_linger(self.sockets[side], Some(Duration::ZERO))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until a peer has all that was written to it. A close that resets would discard the
    /// rest of it.
    fn deliver(&self, side: usize) -> io::Result<()> {
        let begun = Instant::now();
        let socket = self.sockets[side];
        while unacknowledged(socket)? > 0
            && socket.peer_addr().is_ok()
            && begun.elapsed() < DELIVERY
        {
            std::thread::sleep(DELIVERY_POLL);
        }
        Ok(())
    }
}

/// Whether a call is to be made again later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
