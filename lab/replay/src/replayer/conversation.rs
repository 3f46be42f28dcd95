//! One session with a server, without its socket: what to send, what has come, what to do next.
//!
//! Order of calls: [`Conversation::begin`], then [`Conversation::poll`] after every event and at
//! the time that it names. It says what to do; [`Conversation::poll_bytes`] and
//! [`Conversation::handle_sent`] send, `handle_received` and `handle_end` take what the socket
//! gives.
//!
//! The last request asks the server to close, so the time that a closed connection is
//! remembered (TIME-WAIT) is spent on the server's side and no ports run out here. A server may
//! close earlier, after so many requests or when nothing was asked for a while: what it has not
//! answered is asked for again on a new connection, as browsers do.

use super::plan::{Asked, Plan};
use super::reply::{Comparer, Unreadable};
use super::report::{ErrorKind, ReplayerReport};
use crate::sessions::{Session, SessionRequest};

/// Bytes of requests written at once; a batch may have thousands.
const OUT_BYTES: usize = 16 * 1024;

/// What to do with the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Make a connection; the old one, if any, is of no use any longer.
    Connect,
    /// Send [`Conversation::poll_bytes`].
    Send,
    /// Wait for bytes.
    Receive,
    /// Wait until this time.
    Wait(u64),
    /// All replies are there.
    Over,
}

/// Why a session cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The connection ended within a reply, or instead of one.
    #[error("the connection ended before the reply did")]
    Cut,
    /// What comes cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Bytes that nobody asked for.
    #[error("bytes follow the last reply")]
    Surplus,
}

impl Fault {
    /// The kind of error that it is counted as.
    pub(super) fn kind(self) -> ErrorKind {
        match self {
            Self::Cut => ErrorKind::Reset,
            Self::Unreadable(_) | Self::Surplus => ErrorKind::Head,
        }
    }
}

/// One session with a server, without its socket: says what to send and when, and takes what has
/// come. The [module](self) has the order of the calls.
#[derive(Debug)]
pub(super) struct Conversation {
    session: Session,
    /// Requests of the session: answered, written, and those until the end of the batch.
    answered: usize,
    written: usize,
    batch_end: usize,
    begun_ns: u64,
    /// When the batch was sent or should have been.
    asked_ns: u64,
    /// How many times as fast as the log its batches follow; `None`: as soon as the one before is
    /// answered.
    speed: Option<f64>,
    /// Written requests, of which the first bytes are sent.
    out: Vec<u8>,
    sent: usize,
    comparer: Comparer,
    is_connected: bool,
}

impl Conversation {
    /// A conversation without requests. [`Conversation::begin`] uses its memory again and again.
    pub(super) fn new() -> Self {
        Self {
            session: Session::default(),
            answered: 0,
            written: 0,
            batch_end: 0,
            begun_ns: 0,
            asked_ns: 0,
            speed: None,
            out: Vec::new(),
            sent: 0,
            comparer: Comparer::default(),
            is_connected: false,
        }
    }

    /// Begins a session that was due at `due_ns`.
    pub(super) fn begin(&mut self, session: Session, due_ns: u64, speed: Option<f64>) {
        (self.session, self.begun_ns, self.asked_ns, self.speed) = (session, due_ns, due_ns, speed);
        (self.answered, self.written, self.batch_end, self.is_connected) = (0, 0, 0, false);
    }

    /// What to do at `now_ns`.
    pub(super) fn poll(&mut self, plan: &Plan, now_ns: u64) -> Step {
        let requests = plan.sessions().requests(self.session);
        if self.answered == requests.len() {
            return Step::Over;
        }
        if self.answered == self.batch_end {
            let due_ns = match self.speed {
                Some(speed) => {
                    self.begun_ns
                        + (f64::from(requests[self.answered].after_s) * 1e9 / speed) as u64
                }
                None if self.answered == 0 => self.begun_ns,
                None => now_ns,
            };
            if due_ns > now_ns {
                return Step::Wait(due_ns);
            }
            self.asked_ns = due_ns;
            self.batch_end += batch_len(&requests[self.answered..]);
        }
        if !self.is_connected {
            return Step::Connect;
        }
        if self.written < self.batch_end || self.sent < self.out.len() {
            Step::Send
        } else {
            Step::Receive
        }
    }

    /// Takes a new connection, on which what is not answered is asked for (again).
    pub(super) fn handle_connection(&mut self) {
        (self.is_connected, self.written, self.sent) = (true, self.answered, 0);
        self.out.clear();
        self.comparer = Comparer::default();
    }

    /// Bytes to send now; more may follow.
    pub(super) fn poll_bytes(&mut self, plan: &Plan, host: &str) -> &[u8] {
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
            let requests = plan.sessions().requests(self.session);
            while self.written < self.batch_end && self.out.len() < OUT_BYTES {
                let closes = self.written + 1 == requests.len();
                plan.write_request(&mut self.out, asked(requests[self.written]), host, closes);
                self.written += 1;
            }
        }
        &self.out[self.sent..]
    }

    /// Notes that so many of these bytes are sent.
    pub(super) fn handle_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Takes bytes that were received, and counts the replies that end in them.
    ///
    /// # Errors
    /// [`Fault`]; the connection is of no use any longer.
    pub(super) fn handle_received(
        &mut self,
        mut bytes: &[u8],
        plan: &Plan,
        now_ns: u64,
        report: &mut ReplayerReport,
    ) -> Result<(), Fault> {
        let requests = plan.sessions().requests(self.session);
        while !bytes.is_empty() {
            if self.answered == self.written || !self.is_connected {
                return Err(Fault::Surplus);
            }
            let asked = asked(requests[self.answered]);
            let Some(reply) = self.comparer.read(&mut bytes, asked, plan.expected())? else {
                break;
            };
            self.answered += 1;
            report.count_reply(&reply, now_ns.saturating_sub(self.asked_ns), || {
                plan.target(asked.object)
            });
            if self.answered == requests.len() {
                report.count_session(now_ns.saturating_sub(self.begun_ns));
            }
            self.is_connected &= reply.keeps_open;
        }
        Ok(())
    }

    /// Takes the end of the connection.
    ///
    /// # Errors
    /// [`Fault::Cut`] if something was still to come.
    pub(super) fn handle_end(&mut self) -> Result<(), Fault> {
        let was_connected = std::mem::replace(&mut self.is_connected, false);
        let is_idle = self.answered == self.written && self.comparer.is_between_replies();
        if !was_connected || is_idle { Ok(()) } else { Err(Fault::Cut) }
    }

    /// Requests that are not answered, and the target of the first of them.
    pub(super) fn unanswered(&self, plan: &Plan) -> (u64, String) {
        let requests = plan.sessions().requests(self.session);
        let target = requests.get(self.answered).map(|request| plan.target(request.object));
        ((requests.len() - self.answered) as u64, target.unwrap_or_default())
    }

    /// Whether a reply is due.
    pub(super) fn is_waiting_for_reply(&self) -> bool {
        self.answered < self.batch_end
    }
}

fn asked(request: SessionRequest) -> Asked {
    Asked { object: request.object, head: request.head }
}

fn batch_len(requests: &[SessionRequest]) -> usize {
    requests.iter().position(|request| request.ends_batch).map_or(requests.len(), |last| last + 1)
}

#[cfg(test)]
mod tests;
