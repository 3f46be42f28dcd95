//! A small server of files over smoltcp: its connections, and when it misbehaves.

use std::collections::VecDeque;

use nicache_coherence::SourceSlot;
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{self, State};

use crate::files::SharedFiles;
use crate::host_log::{Peer, SharedLog};
use crate::machine::{Machine, MachinePlan};
use crate::mutant::Mutant;
use crate::random::Random;
use crate::server_counts::ServerCounts;
use crate::server_reply::{Application, Job, Parsed, parse_request};
use crate::watcher::Lookup;

/// TCP port of the service.
pub(crate) const SERVICE_PORT: u16 = 80;
/// How long a connection may take to close.
const CLOSING_NS_MAX: u64 = 60_000_000_000;
/// How long a client may take no byte of a reply.
const STUCK_NS: u64 = 120_000_000_000;
/// What a client waits for that announces content (RFC 9110 section 10.1.1).
const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Bytes of a reply that are kept ready.
const OUTPUT_BYTES_MAX: usize = 100_000;

/// How the server behaves in a run.
#[derive(Clone, Debug)]
pub(crate) struct ServerPlan {
    /// Its machine.
    pub machine: MachinePlan,
    /// Connections at a time.
    pub sockets: usize,
    /// Bytes of a socket's receive buffer.
    pub receive_bytes: usize,
    /// Bytes of a socket's send buffer.
    pub send_bytes: usize,
    /// An idle connection is closed after this long.
    pub idle_ns: u64,
    /// Replies on one connection.
    pub replies_max: u32,
    /// Percent of replies that come in pieces, with pauses.
    pub slow_percent: u64,
    /// Percent of replies in whose middle the connection is reset.
    pub reset_percent: u64,
    /// Chaos ends here.
    pub chaos_until_ns: u64,
    /// From when to when it is dead, and whether its kernel resets the connections at once.
    pub deaths: Vec<(u64, u64, bool)>,
}

struct Connection {
    handle: SocketHandle,
    peer: Option<Peer>,
    input: Vec<u8>,
    output: VecDeque<u8>,
    job: Option<Job>,
    served: u32,
    idle_since_ns: u64,
    close_after_output: bool,
    reset_at: Option<u64>,
    closed_ns: Option<u64>,
    /// The content of the request was asked for.
    continued: bool,
}

/// The server.
pub(crate) struct Server {
    /// Its machine.
    pub machine: Machine,
    plan: ServerPlan,
    connections: Vec<Connection>,
    application: Application,
    dead: bool,
    /// Slots that the kernel saw change because of the server itself.
    pub changes: Vec<SourceSlot>,
}

impl Server {
    /// A server that listens.
    pub(crate) fn new(
        plan: ServerPlan,
        files: SharedFiles,
        log: SharedLog,
        random: Random,
        mutant: Option<Mutant>,
    ) -> Self {
        let mut machine = Machine::new(plan.machine);
        let connections = (0..plan.sockets)
            .map(|_| Connection::on(machine.add_socket(plan.receive_bytes, plan.send_bytes)))
            .collect();
        Self {
            machine,
            plan,
            connections,
            application: Application::new(files, log, random, mutant),
            dead: false,
            changes: Vec::new(),
        }
    }

    /// What happened, by kind.
    pub(crate) fn counts(&self) -> &ServerCounts {
        &self.application.counts
    }

    /// Look-ups since the last call.
    pub(crate) fn take_lookups(&mut self) -> Vec<Lookup> {
        std::mem::take(&mut self.application.lookups)
    }

    /// Does what is due; true if anything moved.
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        self.live_or_die(now_ns);
        let mut moved = self.machine.poll(now_ns);
        if !self.dead {
            for index in 0..self.connections.len() {
                moved |= self.serve(index, now_ns);
            }
        }
        moved |= self.machine.poll(now_ns);
        moved
    }

    /// When it wants to be polled again.
    pub(crate) fn due_ns(&mut self, now_ns: u64) -> Option<u64> {
        let deaths =
            self.plan.deaths.iter().flat_map(|&(from, to, _)| [from, to]).filter(|&at| at > now_ns);
        let own = self.connections.iter().filter(|_| !self.dead).flat_map(|connection| {
            let quiet = connection.job.is_none() && connection.output.is_empty();
            let limit = if quiet { self.plan.idle_ns } else { STUCK_NS };
            let idle = match connection.closed_ns {
                Some(closed_ns) => closed_ns + CLOSING_NS_MAX,
                None => connection.idle_since_ns + limit,
            };
            let job = connection.job.as_ref().map(|job| job.due_ns);
            [
                connection.peer.is_some().then_some(idle),
                job.filter(|_| connection.output.len() <= OUTPUT_BYTES_MAX),
                connection.reset_at,
            ]
        });
        // What was due and did not happen waits for something else.
        own.flatten()
            .filter(|&at| at > now_ns)
            .chain(deaths)
            .chain(self.machine.due_ns(now_ns))
            .min()
    }

    /// Connections that are open, for a report.
    pub(crate) fn describe_open(&self) -> Vec<String> {
        let open = self.connections.iter().filter(|connection| connection.peer.is_some());
        open.map(|connection| {
            let socket = self.machine.sockets.get::<tcp::Socket<'_>>(connection.handle);
            format!(
                "{:x?} {:?}, {} bytes in TCP, {} bytes before, reply under way: {}, idle since {} ms",
                connection.peer,
                socket.state(),
                socket.send_queue(),
                connection.output.len(),
                connection.job.is_some(),
                connection.idle_since_ns / 1_000_000,
            )
        })
        .collect()
    }

    fn live_or_die(&mut self, now_ns: u64) {
        let death =
            self.plan.deaths.iter().find(|&&(from, to, _)| (from..to).contains(&now_ns)).copied();
        let Some((_, _, resets)) = death else {
            if self.dead {
                self.dead = false;
                self.changes.push(SourceSlot::EVERYTHING);
            }
            return;
        };
        if self.dead {
            return;
        }
        self.dead = true;
        self.application.counts.deaths += 1;
        self.changes.push(SourceSlot::EVERYTHING);
        for index in 0..self.connections.len() {
            let handle = self.connections[index].handle;
            if resets {
                self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle).abort();
                continue;
            }
            let fresh = self.machine.new_socket(self.plan.receive_bytes, self.plan.send_bytes);
            *self.machine.sockets.get_mut::<tcp::Socket<'_>>(handle) = fresh;
        }
    }

    fn serve(&mut self, index: usize, now_ns: u64) -> bool {
        let mut connection = std::mem::replace(
            &mut self.connections[index],
            Connection::on(SocketHandle::default()),
        );
        let moved = self.serve_connection(&mut connection, now_ns);
        self.connections[index] = connection;
        moved
    }

    fn serve_connection(&mut self, connection: &mut Connection, now_ns: u64) -> bool {
        let timestamps = self.machine.has_timestamps();
        let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
        match socket.state() {
            // One that heard a SYN and listens again remembers the peer's options, as a closed one
            // does.
            State::Listen if socket.timestamp_enabled() == timestamps => return false,
            State::Closed | State::Listen => {
                connection.forget();
                let fresh = self.machine.new_socket(self.plan.receive_bytes, self.plan.send_bytes);
                let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
                *socket = fresh;
                // Fails only for port 0 or an open socket.
                let _ = socket.listen(SERVICE_PORT);
                return false;
            }
            State::SynReceived | State::TimeWait => return false,
            _ => {}
        }
        let mut moved = false;
        if connection.peer.is_none() {
            let Some(remote) = socket.remote_endpoint() else { return false };
            let smoltcp::wire::IpAddress::Ipv4(address) = remote.addr else { return false };
            connection.forget();
            connection.peer = Some((u32::from_be_bytes(address.octets()), remote.port));
            connection.idle_since_ns = now_ns;
            self.application.counts.connections += 1;
        }
        // Like a real server, it reads on only when the last reply is out.
        while connection.job.is_none() && connection.input.len() < 8192 && socket.can_recv() {
            let mut buffer = [0; 2048];
            let Ok(len) = socket.recv_slice(&mut buffer) else { break };
            if len == 0 {
                break;
            }
            connection.input.extend_from_slice(&buffer[..len]);
            connection.idle_since_ns = now_ns;
            moved = true;
        }
        let peer_closed = !socket.may_recv();
        if connection.job.is_none()
            && connection.output.is_empty()
            && !connection.close_after_output
        {
            moved |= self.next_job(connection, now_ns);
        }
        moved |= self.run_job(connection, now_ns);
        let socket = self.machine.sockets.get_mut::<tcp::Socket<'_>>(connection.handle);
        while !connection.output.is_empty() && socket.can_send() {
            let Ok(sent) = socket.send_slice(connection.output.as_slices().0) else { break };
            connection.output.drain(..sent);
            connection.idle_since_ns = now_ns;
            moved = true;
        }
        if connection.reset_at.is_some_and(|at| now_ns >= at) {
            socket.abort();
            self.application.counts.resets += 1;
            return true;
        }
        let quiet = connection.job.is_none() && connection.output.is_empty();
        let idle = quiet && now_ns >= connection.idle_since_ns + self.plan.idle_ns;
        if let Some(closed_ns) = connection.closed_ns {
            if now_ns >= closed_ns + CLOSING_NS_MAX {
                socket.abort();
                moved = true;
            }
        } else if quiet && (connection.close_after_output || peer_closed || idle) {
            self.application.counts.idle_closes +=
                u64::from(idle && !peer_closed && !connection.close_after_output);
            socket.close();
            connection.closed_ns = Some(now_ns);
            moved = true;
        } else if now_ns >= connection.idle_since_ns + STUCK_NS {
            socket.abort();
            moved = true;
        }
        moved
    }

    fn next_job(&mut self, connection: &mut Connection, now_ns: u64) -> bool {
        let Some(peer) = connection.peer else { return false };
        let parsed = parse_request(&connection.input);
        let (len, request) = match parsed {
            Parsed::Partial => {
                let head = connection.input.windows(4).position(|window| window == b"\r\n\r\n");
                let expects = head.is_some_and(|head| {
                    String::from_utf8_lossy(&connection.input[..head]).contains("\r\nExpect:")
                });
                if expects && !std::mem::replace(&mut connection.continued, true) {
                    connection.output.extend(CONTINUE);
                    return true;
                }
                return false;
            }
            Parsed::Garbage => (connection.input.len(), None),
            Parsed::Request(len, request) => (len, Some(request)),
        };
        connection.served += 1;
        let last = connection.served >= self.plan.replies_max;
        let raw: Vec<u8> = connection.input.drain(..len).collect();
        let mut job = self.application.begin_reply(peer, request, &raw, last, now_ns);
        if std::mem::take(&mut connection.continued) {
            self.application.log.borrow_mut().replies[job.serial].bytes.extend_from_slice(CONTINUE);
        }
        if now_ns < self.plan.chaos_until_ns
            && self.application.random.percent(self.plan.slow_percent)
        {
            job.pieces = self.application.random.range(2, 6);
            job.pause_ns = self.application.random.range(1_000_000, 400_000_000);
            self.application.counts.slow += 1;
        }
        if now_ns < self.plan.chaos_until_ns
            && self.application.random.percent(self.plan.reset_percent)
        {
            connection.reset_at = Some(now_ns + self.application.random.below(300_000_000));
        }
        connection.job = Some(job);
        true
    }

    fn run_job(&mut self, connection: &mut Connection, now_ns: u64) -> bool {
        let mut moved = false;
        while let Some(job) = &mut connection.job {
            if now_ns < job.due_ns || connection.output.len() > OUTPUT_BYTES_MAX {
                break;
            }
            moved = true;
            let files = self.application.files.borrow();
            let mut bytes = Vec::new();
            let goes_on = job.next_piece(
                &files,
                &mut bytes,
                &mut self.application.counts.changed_during_reply,
            );
            drop(files);
            let mut log = self.application.log.borrow_mut();
            let reply = &mut log.replies[job.serial];
            reply.bytes.extend_from_slice(&bytes);
            if self.application.mutant == Some(Mutant::ServerCorrupts) && bytes.len() > 900 {
                bytes[800] ^= 1;
            }
            connection.output.extend(bytes);
            connection.idle_since_ns = now_ns;
            if goes_on {
                job.due_ns = now_ns + job.pause_ns;
                continue;
            }
            reply.finished_ns = Some(now_ns);
            connection.close_after_output |= job.close_after;
            connection.job = None;
        }
        moved
    }
}

impl Connection {
    /// A socket that nobody has connected to.
    fn on(handle: SocketHandle) -> Self {
        Self {
            handle,
            peer: None,
            input: Vec::new(),
            output: VecDeque::new(),
            job: None,
            served: 0,
            idle_since_ns: 0,
            close_after_output: false,
            reset_at: None,
            closed_ns: None,
            continued: false,
        }
    }

    fn forget(&mut self) {
        *self = Self::on(self.handle);
    }
}
