//! The TCP of `nicache serve`: the stack of `nicache-host` with the script's server on it, in
//! virtual time.
//!
//! Deliberately absent: the bus and the card between it and the wire; the stack has no IPv6.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use arrayvec::ArrayVec;
use nicache_bus::BusClass;
use nicache_host::stack::{Connection, ConnectionId};
use nicache_host::stack::{
    Connections, Ends, Handled, Incoming, PACKET_PARTS_MAX, StackConfig, parse,
};
use nicache_host::{Mbuf, Owner};
use nicache_tcp::frame::{HEADERS_BYTES_MAX, write_headers};
use nicache_tcp::handshake::Limits;
use nicache_tcp::patience::ReadRules;
use nicache_tcp::{HeadRepr, SenderConfig, Time, checksum};

use crate::backend::{Backend, BackendError};
use crate::content::Responder;
use crate::endpoint;
use crate::packet::SERVER_MAC;
use crate::script::{Object, Script, ServerAction};

/// Connections that it can have: as many as the flood of a script fills.
const CONNECTIONS: usize = 1024;
const UNIX_S: u64 = 1_700_000_000;
/// Timers have a grain of a millisecond or so.
const TOLERANCE: Duration = Duration::from_millis(5);
/// The clock when a script begins.
const START: Duration = Duration::from_secs(100);
/// Bytes of IPv4 and TCP headers without options.
const HEADERS_BYTES: u16 = 40;

/// The TCP stack of `nicache serve` with the script's server on it, in virtual time; IPv4 only.
pub struct Host {
    connections: Connections,
    programs: BTreeMap<ConnectionId, Responder>,
    /// All replies that were ever sent; buffers of the stack refer to places in it.
    memory: Vec<u8>,
    objects: Vec<Object>,
    address: u32,
    arrived: VecDeque<Vec<u8>>,
    ip_id: u16,
    now: Duration,
}

impl Host {
    /// A server as the script wants it.
    ///
    /// # Errors
    /// The script is for IPv6, or about the card.
    pub fn new(script: &Script) -> Result<Self, BackendError> {
        let setup = &script.setup;
        let IpAddr::V4(address) = endpoint::server(setup.ip) else {
            return Err(BackendError::Unsupported("the host's stack has no IPv6".to_owned()));
        };
        let limits = Limits {
            mss: setup.mtu - HEADERS_BYTES,
            window_scale: Some(7),
            sack: true,
            timestamps: true,
            ecn: true,
            v6: false,
        };
        let config = StackConfig {
            limits,
            sender: SenderConfig::default(),
            card_cuts: false,
            read: ReadRules::default(),
        };
        Ok(Self {
            connections: Connections::new(
                config,
                CONNECTIONS,
                vec![endpoint::SERVER_PORT],
                [7; 16],
                time(START),
            ),
            programs: BTreeMap::new(),
            memory: Vec::new(),
            objects: setup.objects.clone(),
            address: u32::from(address),
            arrived: VecDeque::new(),
            ip_id: 0,
            now: START,
        })
    }

    fn handle_frame(&mut self, frame: &[u8]) {
        let Incoming::Tcp { ends, head, payload } = parse(frame, false, SERVER_MAC, self.address)
        else {
            return;
        };
        match self.connections.handle_segment(ends, &head, &frame[payload], time(self.now)) {
            Handled::Nothing => {}
            Handled::Answer(head) => self.emit(&ends, &head, &[]),
            Handled::Connection { id, is_new, .. } => {
                if is_new {
                    self.programs.insert(id, Responder::default());
                }
                self.serve(id);
            }
        }
    }

    /// Reads, answers, and sends what TCP may send.
    fn serve(&mut self, id: ConnectionId) {
        let (Some(connection), Some(program)) =
            (self.connections.get(id), self.programs.get_mut(&id))
        else {
            return;
        };
        let input = connection.input().to_vec();
        connection.consume(input.len());
        program.handle(&input, &self.objects, UNIX_S);
        if !program.output.is_empty() && connection.can_send() {
            let (mmaddr, len) = (self.memory.len() as u64, program.output.len() as u32);
            self.memory.append(&mut program.output);
            connection.send(Mbuf::Bytes {
                mmaddr,
                len,
                class: BusClass::Content,
                owner: Owner::Nobody,
            });
        }
        if program.closes || connection.is_read_out() {
            connection.finish();
        }
        connection.release(|_| {});
        self.transmit(id);
    }

    fn transmit(&mut self, id: ConnectionId) {
        let now = time(self.now);
        while let Some(connection) = self.connections.get(id)
            && let Some(outgoing) = connection.poll(now)
        {
            let payload = bytes_of(connection, &self.memory, outgoing.head.seq, outgoing.len);
            let ends = *connection.ends();
            self.emit(&ends, &outgoing.head, &payload);
        }
        if self.connections.get(id).is_some_and(|connection| connection.is_over()) {
            self.forget(id);
        } else {
            self.connections.arm(id, None, now);
        }
    }

    fn forget(&mut self, id: ConnectionId) {
        self.connections.remove(id, |_| {}, time(self.now));
        self.programs.remove(&id);
    }

    fn emit(&mut self, ends: &Ends, head: &HeadRepr, payload: &[u8]) {
        self.ip_id = self.ip_id.wrapping_add(1);
        let addresses = ends.to_client();
        let mut bytes = [0; HEADERS_BYTES_MAX];
        let len = write_headers(&addresses, head, payload.len() as u32, self.ip_id, &mut bytes);
        let mut frame = [&bytes[..len], payload].concat();
        // The field has the sum of the pseudo-header.
        let at = addresses.tcp_at();
        let sum = !checksum::sum(&frame[at..]);
        frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
        self.arrived.push_back(frame);
    }

    fn poll_timers(&mut self) {
        while let Some((id, is_gone)) = self.connections.poll_timer(time(self.now)) {
            if is_gone { self.forget(id) } else { self.serve(id) }
        }
    }
}

/// The bytes of a segment.
fn bytes_of(connection: &Connection, memory: &[u8], seq: nicache_tcp::Seq, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while (bytes.len() as u32) < len {
        let mut parts = ArrayVec::<Mbuf, PACKET_PARTS_MAX>::new();
        let gathered = connection.queue().gather(
            seq + bytes.len() as u32,
            len - bytes.len() as u32,
            &mut parts,
        );
        for part in &parts {
            if let Mbuf::Bytes { mmaddr, len, .. } = part {
                bytes.extend(&memory[*mmaddr as usize..*mmaddr as usize + *len as usize]);
            }
        }
        if gathered == 0 {
            break;
        }
    }
    bytes
}

fn time(now: Duration) -> Time {
    Time(now.as_nanos() as u64)
}

impl Backend for Host {
    fn now(&self) -> Duration {
        self.now - START
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), BackendError> {
        self.handle_frame(frame);
        Ok(())
    }

    fn receive(&mut self, until: Duration) -> Result<Option<(Duration, Vec<u8>)>, BackendError> {
        let until = START + until;
        loop {
            self.poll_timers();
            if let Some(frame) = self.arrived.pop_front() {
                return Ok(Some((self.now(), frame)));
            }
            if self.now >= until {
                return Ok(None);
            }
            let next = self.connections.next_due().map_or(until, |due| Duration::from_nanos(due.0));
            self.now = next.clamp(self.now + Duration::from_micros(1), until);
        }
    }

    fn act(&mut self, action: ServerAction) -> Result<(), BackendError> {
        let ids: Vec<ConnectionId> = self.programs.keys().copied().collect();
        for id in ids {
            let Some(connection) = self.connections.get(id) else { continue };
            match action {
                ServerAction::Close | ServerAction::Shutdown => connection.finish(),
                ServerAction::Reset => connection.abort(),
                ServerAction::Pause | ServerAction::Read(_) | ServerAction::Resume => {
                    return Err(BackendError::Unsupported(
                        "the host's program always reads".to_owned(),
                    ));
                }
            }
            self.transmit(id);
        }
        Ok(())
    }

    fn tolerance(&self, _: Duration) -> (Duration, Duration) {
        (TOLERANCE, TOLERANCE)
    }
}
