//! Clients: machines with several connections, each with its own way of sending, reading and
//! ending.

use std::collections::VecDeque;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{self, RecvError, State};
use smoltcp::wire::{IpAddress, Ipv4Address};

use crate::client_reply::{Parsed, parse};
use crate::files::SharedFiles;
use crate::host_log::{Peer, SentRequest, SharedLog};
use crate::machine::{Machine, MachinePlan};
use crate::mutant::Mutant;
use crate::oracle::Oracle;
use crate::random::Random;
use crate::request::{Asked, RequestPlan, draw};
use crate::server::SERVICE_PORT;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client closes when it has all replies.
    Close,
    /// The client closes its side behind the last request.
    HalfClose,
    /// The client resets at a random moment.
    Abort,
    /// The client waits for the other side to close.
    Wait,
}

/// One connection.
#[derive(Clone, Debug)]
pub(crate) struct SessionPlan {
    /// When it is opened.
    pub start_ns: u64,
    /// Own port.
    pub port: u16,
    /// Requests.
    pub requests: u32,
    /// Requests unanswered at a time.
    pub depth: usize,
    /// Percent of sends that take only a part of what is to be sent.
    pub split_percent: u64,
    /// Longest pause between two sends, and between a reply and the next request.
    pub pause_ns_max: u64,
    /// Longest pause between two reads; 0: reads at once.
    pub read_pause_ns_max: u64,
    /// Bytes of the receive buffer.
    pub receive_bytes: usize,
    /// How it ends.
    pub ending: Ending,
    /// How it asks.
    pub asks: RequestPlan,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Connecting,
    Running,
    /// Since then.
    Closing(u64),
    Done,
}

/// smoltcp repeats nothing once both sides have sent their FINs at the same time: such a connection
/// ends by itself.
const CLOSING_NS: u64 = 120_000_000_000;

/// A connection that is under way.
pub(crate) struct Session {
    plan: SessionPlan,
    stage: Stage,
    handle: Option<SocketHandle>,
    left: u32,
    outstanding: VecDeque<Asked>,
    output: Vec<u8>,
    /// How far each outstanding request lies before the end of what is to be sent.
    unsent: VecDeque<(u64, usize)>,
    input: Vec<u8>,
    send_ns: u64,
    read_ns: u64,
    abort_ns: Option<u64>,
    stopped: bool,
    /// The end of the last request, until the server wants it.
    late: Vec<u8>,
    since_ns: u64,
    /// Kinds of the replies so far, for the oracle.
    pub history: Vec<bool>,
}

/// What a client counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientCounts {
    /// Resets sent.
    pub aborts: u64,
    /// Sides closed with replies outstanding.
    pub half_closes: u64,
    /// Requests without a whole reply, with an excuse.
    pub excused: u64,
    /// Receive buffers that were full.
    pub zero_windows: u64,
    /// Ports used again.
    pub reused: u64,
    /// Connections opened.
    pub opened: u64,
    /// Contents that were sent when the server wanted them.
    pub continued: u64,
}

/// A client machine.
pub(crate) struct Client {
    /// Its machine.
    pub machine: Machine,
    /// Its connections.
    pub sessions: Vec<Session>,
    random: Random,
    files: SharedFiles,
    log: SharedLog,
    mutant: Option<Mutant>,
    next_number: u64,
    /// When a connection last sent, received, began or ended something, in ns.
    pub progress_ns: u64,
    /// What happened.
    pub counts: ClientCounts,
}

impl Client {
    /// A client that has not begun. Requests are numbered from `first_number`.
    pub(crate) fn new(
        machine: MachinePlan,
        sessions: Vec<SessionPlan>,
        files: SharedFiles,
        log: SharedLog,
        random: Random,
        mutant: Option<Mutant>,
    ) -> Self {
        let first = u64::from(machine.number) << 32;
        let sessions = sessions.into_iter().map(Session::new).collect();
        Self {
            machine: Machine::new(machine),
            sessions,
            random,
            files,
            log,
            mutant,
            next_number: first,
            progress_ns: 0,
            counts: ClientCounts::default(),
        }
    }

    /// Does what is due; true if anything moved.
    pub(crate) fn poll(&mut self, now_ns: u64, oracle: &mut Oracle) -> bool {
        let mut moved = self.machine.poll(now_ns);
        for index in 0..self.sessions.len() {
            if self.poll_session(index, now_ns, oracle) {
                self.progress_ns = now_ns;
                moved = true;
            }
        }
        moved |= self.machine.poll(now_ns);
        moved
    }

    /// When it wants to be polled.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let mut due = self.machine.due_ns(now_ns);
        for session in &self.sessions {
            let at = match session.stage {
                Stage::Waiting => Some(session.plan.start_ns),
                Stage::Running => {
                    let send = (!session.output.is_empty() || session.may_ask())
                        .then_some(session.send_ns);
                    let read = (session.read_ns > now_ns).then_some(session.read_ns);
                    [send.filter(|&at| at > now_ns), read, session.abort_ns]
                        .into_iter()
                        .flatten()
                        .min()
                }
                Stage::Closing(since_ns) => Some(since_ns + CLOSING_NS).filter(|&at| at > now_ns),
                Stage::Connecting | Stage::Done => None,
            };
            due = [due, at].into_iter().flatten().min();
        }
        due
    }

    /// Are all connections over?
    pub(crate) fn is_done(&self) -> bool {
        self.sessions.iter().all(|session| session.stage == Stage::Done)
    }

    /// Connections that are not over, for a report.
    pub(crate) fn describe_open(&self) -> Vec<String> {
        let open = self.sessions.iter().filter(|session| session.stage != Stage::Done);
        open.map(|session| {
            let state = session.handle.map(
                |handle| self.machine.sockets.get::<tcp::Socket<'_>>(handle).state());
            let asked: Vec<String> = session
                .outstanding
                .iter()
                .map(|asked| {
                    format!(
                        "#{} {:?}",
                        asked.number,
                        String::from_utf8_lossy(&asked.bytes[..asked.bytes.len().min(40)])
                    )
                })
                .collect();
            format!(
                "port {} {:?} {:?} {state:?} since {} ms, {} bytes unsent, {} unread, asked {asked:?}",
                session.plan.port,
                session.stage,
                session.plan.ending,
                session.since_ns / 1_000_000,
                session.output.len(),
                session.input.len(),
            )
        })
        .collect()
    }

    fn poll_session(&mut self, index: usize, now_ns: u64, oracle: &mut Oracle) -> bool {
        let peer: Peer = (self.machine.address(), self.sessions[index].plan.port);
        match self.sessions[index].stage {
            Stage::Done => false,
            Stage::Waiting => self.open(index, now_ns),
            Stage::Connecting => {
                let session = &mut self.sessions[index];
                let Some(handle) = session.handle else { return false };
                match self.machine.sockets.get::<tcp::Socket<'_>>(handle).state() {
                    State::SynSent => false,
                    State::Closed => {
                        if !self.log.borrow().ended_since(peer, session.since_ns) {
                            let text = format!(
                                "I6: connection of {peer:x?} refused at {now_ns} ns without the host's doing"
                            );
                            self.log.borrow_mut().violation(text);
                        }
                        session.stage = Stage::Done;
                        true
                    }
                    _ => {
                        session.stage = Stage::Running;
                        if session.plan.ending == Ending::Abort {
                            session.abort_ns = Some(now_ns + self.random.below(2_000_000_000));
                        }
                        true
                    }
                }
            }
            Stage::Running => self.run(index, peer, now_ns, oracle),
            Stage::Closing(since_ns) => {
                let session = &mut self.sessions[index];
                let Some(handle) = session.handle else { return false };
                let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle);
                let mut moved = false;
                while socket.can_recv() {
                    moved |=
                        socket.recv(|bytes| (bytes.len(), bytes.len())).is_ok_and(|len| len > 0);
                }
                if socket.state() == State::Closing && now_ns >= since_ns + CLOSING_NS {
                    socket.abort();
                }
                if matches!(socket.state(), State::Closed | State::TimeWait) {
                    session.stage = Stage::Done;
                    moved = true;
                }
                moved
            }
        }
    }

    fn open(&mut self, index: usize, now_ns: u64) -> bool {
        if now_ns < self.sessions[index].plan.start_ns {
            return false;
        }
        let port = self.sessions[index].plan.port;
        let earlier = self.sessions[..index].iter().filter(|session| session.plan.port == port);
        let mut reused = false;
        for session in earlier {
            if session.stage != Stage::Done {
                // Its port is taken: later.
                self.sessions[index].plan.start_ns = now_ns + 500_000_000;
                return false;
            }
            reused = true;
        }
        let session = &mut self.sessions[index];
        let handle = self.machine.add_socket(session.plan.receive_bytes, 8192);
        session.handle = Some(handle);
        session.stage = Stage::Connecting;
        session.since_ns = now_ns;
        let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let server = (IpAddress::Ipv4(Ipv4Address::new(10, 0, 0, 1)), SERVICE_PORT);
        if socket.connect(self.machine.iface.context(), server, port).is_err() {
            session.stage = Stage::Done;
        }
        self.counts.opened += 1;
        self.counts.reused += u64::from(reused);
        true
    }

    fn run(&mut self, index: usize, peer: Peer, now_ns: u64, oracle: &mut Oracle) -> bool {
        let mut moved = false;
        let session = &mut self.sessions[index];
        let Some(handle) = session.handle else { return false };
        if session.abort_ns.is_some_and(|at| now_ns >= at) {
            self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle).abort();
            session.stage = Stage::Done;
            self.counts.aborts += 1;
            return true;
        }
        while session.may_ask() && now_ns >= session.send_ns {
            session.left -= 1;
            self.next_number += 1;
            let last = session.left == 0;
            let mut asked = draw(
                self.next_number,
                &session.plan.asks,
                &self.files.borrow(),
                last,
                &mut self.random,
            );
            asked.behind = session.outstanding.len();
            session.stopped |= asked.last;
            let mut log = self.log.borrow_mut();
            if asked.garbage {
                log.garbage.entry(peer).or_default().extend_from_slice(&asked.bytes);
            } else {
                let mut bytes = asked.bytes.to_vec();
                if self.mutant == Some(Mutant::RequestCorrupts) && asked.number.is_multiple_of(7) {
                    bytes[5] ^= 1;
                }
                log.requests.insert(asked.number, SentRequest { bytes: bytes.into(), peer });
            }
            let (now, late) = asked.bytes.split_at(asked.bytes.len() - asked.late);
            session.output.extend_from_slice(now);
            session.late = late.to_vec();
            for (_, behind) in &mut session.unsent {
                *behind += now.len();
            }
            session.unsent.push_back((asked.number, 0));
            session.outstanding.push_back(asked);
        }
        moved |= session.send(&mut self.machine, now_ns, &mut self.random);
        if session.plan.ending == Ending::HalfClose
            && session.output.is_empty()
            && (session.left == 0 || session.stopped)
        {
            let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle);
            if socket.may_send() {
                socket.close();
                self.counts.half_closes += u64::from(!session.outstanding.is_empty());
                moved = true;
            }
        }
        moved | self.read(index, peer, handle, now_ns, oracle)
    }

    fn read(
        &mut self,
        index: usize,
        peer: Peer,
        handle: SocketHandle,
        now_ns: u64,
        oracle: &mut Oracle,
    ) -> bool {
        let session = &mut self.sessions[index];
        let mut moved = false;
        let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let mut ended = false;
        if now_ns >= session.read_ns {
            let slow = session.plan.read_pause_ns_max > 0;
            self.counts.zero_windows += u64::from(socket.recv_queue() == socket.recv_capacity());
            let mut buffer = [0; 3000];
            let len = if slow {
                1 + self.random.below(buffer.len() as u64) as usize
            } else {
                buffer.len()
            };
            let buffer = &mut buffer[..len];
            loop {
                match socket.recv_slice(buffer) {
                    Ok(0) => break,
                    Ok(len) => {
                        session.input.extend_from_slice(&buffer[..len]);
                        moved = true;
                        if slow {
                            session.read_ns =
                                now_ns + 1000 + self.random.below(session.plan.read_pause_ns_max);
                            break;
                        }
                    }
                    Err(RecvError::Finished | RecvError::InvalidState) => {
                        ended = true;
                        break;
                    }
                }
            }
        }
        let graceful = socket.state() != State::Closed;
        while let Some(asked) = session.outstanding.front() {
            if session.input.is_empty() && !ended {
                break;
            }
            match parse(&session.input, asked.head, ended && graceful) {
                Parsed::Partial => {
                    let continues = session.input.starts_with(b"HTTP/1.1 100 Continue\r\n\r\n");
                    if continues && !session.late.is_empty() {
                        session.output.append(&mut session.late);
                        self.counts.continued += 1;
                        moved = true;
                    }
                    break;
                }
                Parsed::Broken(what) => {
                    let text = format!(
                        "I2: reply to #{} of {peer:x?} is not HTTP at {now_ns} ns: {what}",
                        asked.number
                    );
                    self.log.borrow_mut().violation(text);
                    session.stage = Stage::Done;
                    socket.abort();
                    return true;
                }
                Parsed::Reply(reply) => {
                    session.input.drain(..reply.raw.len());
                    let Some(asked) = session.outstanding.pop_front() else { break };
                    oracle.judge(&asked, &reply, peer, now_ns, &mut session.history);
                    let was_refused =
                        asked.late > 0 && !std::mem::take(&mut session.late).is_empty();
                    if reply.last || was_refused {
                        // Nothing more is answered on this connection.
                        self.counts.excused += session.outstanding.len() as u64;
                        session.outstanding.clear();
                        session.output.clear();
                        session.unsent.clear();
                        session.left = 0;
                        session.stopped = true;
                    }
                    session.send_ns = session
                        .send_ns
                        .max(now_ns + self.random.below(session.plan.pause_ns_max + 1));
                    moved = true;
                }
            }
        }
        let session = &mut self.sessions[index];
        if ended {
            if !session.outstanding.is_empty() {
                if self.log.borrow().ended_since(peer, session.since_ns) {
                    self.counts.excused += session.outstanding.len() as u64;
                } else {
                    let numbers: Vec<u64> =
                        session.outstanding.iter().map(|asked| asked.number).collect();
                    let text = format!(
                        "I6: connection of {peer:x?} ended at {now_ns} ns without the host's doing, unanswered {numbers:?}"
                    );
                    self.log.borrow_mut().violation(text);
                }
            } else if !session.input.is_empty() {
                let text = format!(
                    "I2: {peer:x?} got {} bytes that it never asked for",
                    session.input.len()
                );
                self.log.borrow_mut().violation(text);
            }
            session.stage = Stage::Closing(now_ns);
            self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle).close();
            return true;
        }
        let finished = session.outstanding.is_empty()
            && session.output.is_empty()
            && (session.left == 0 || session.stopped);
        if finished && session.plan.ending != Ending::Wait {
            session.stage = Stage::Closing(now_ns);
            self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle).close();
            moved = true;
        }
        moved
    }
}

impl Session {
    fn new(plan: SessionPlan) -> Self {
        Self {
            stage: Stage::Waiting,
            handle: None,
            left: plan.requests,
            outstanding: VecDeque::new(),
            output: Vec::new(),
            unsent: VecDeque::new(),
            input: Vec::new(),
            send_ns: 0,
            read_ns: 0,
            abort_ns: None,
            stopped: false,
            late: Vec::new(),
            since_ns: 0,
            history: Vec::new(),
            plan,
        }
    }

    fn may_ask(&self) -> bool {
        self.left > 0
            && !self.stopped
            && self.late.is_empty()
            && self.outstanding.len() < self.plan.depth
    }

    /// Gives TCP the next portion.
    fn send(&mut self, machine: &mut Machine, now_ns: u64, random: &mut Random) -> bool {
        let Some(handle) = self.handle else { return false };
        let socket = machine.sockets.get_mut::<tcp::Socket<'_>>(handle);
        if self.output.is_empty() || now_ns < self.send_ns || !socket.can_send() {
            return false;
        }
        let whole = self.output.len();
        let portion = if random.percent(self.plan.split_percent) {
            1 + random.below(whole as u64) as usize
        } else {
            whole
        };
        let Ok(sent) = socket.send_slice(&self.output[..portion]) else { return false };
        self.output.drain(..sent);
        let left = self.output.len();
        for asked in &mut self.outstanding {
            if let Some(&(_, behind)) =
                self.unsent.iter().find(|(number, _)| *number == asked.number)
            {
                if left < behind + asked.bytes.len() - asked.late {
                    asked.portions += 1;
                    if asked.begun_ns == 0 {
                        asked.begun_ns = now_ns;
                    }
                }
                if left <= behind {
                    asked.sent_ns = now_ns;
                }
            }
        }
        self.unsent.retain(|&(_, behind)| left > behind);
        if left > 0 {
            self.send_ns = now_ns + 1000 + random.below(self.plan.pause_ns_max + 1);
        }
        sent > 0
    }
}
