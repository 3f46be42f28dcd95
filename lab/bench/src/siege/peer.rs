//! One connection of an attacker: as much of TCP as it takes to open it, to say something and to
//! take its time. No options but a segment size, nothing out of order is kept.

use std::net::Ipv4Addr;

use nicache_tcp::{Flags, HeadRepr, Seq, SynOptions};

use super::wire::{SERVER_PORT, Segment, Wire};

/// Segment size that is asked for.
const MSS: u16 = 1_460;
/// Seconds after which a SYN is sent again.
const SYN_AGAIN_S: f64 = 1.0;
/// SYNs of a connection at most.
const SYN_TRIES: u8 = 6;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// The SYN is not answered.
    Opening,
    /// Both may speak.
    Open,
    /// Closed or reset by the server, or never opened.
    Over,
}

/// What a segment was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Nothing that matters here.
    Nothing,
    /// The connection is open now.
    Opened,
    /// So many bytes that were due.
    Bytes(usize),
    /// The server closed or reset the connection.
    Ended,
}

/// A connection.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    /// The attacker's address.
    pub address: Ipv4Addr,
    /// The attacker's TCP port.
    pub port: u16,
    /// Where it stands.
    pub state: State,
    /// Window that is offered.
    pub window: u16,
    /// Next number to be sent.
    pub next: Seq,
    /// First number that is not acknowledged.
    pub acked: Seq,
    /// Next number that is expected.
    pub expected: Seq,
    syn_s: f64,
    tries: u8,
}

impl Peer {
    /// Sends a SYN.
    pub(super) fn open(
        address: Ipv4Addr,
        port: u16,
        initial: u32,
        window: u16,
        now_s: f64,
        wire: &mut Wire,
    ) -> Self {
        let mut peer = Self {
            address,
            port,
            state: State::Opening,
            window,
            next: Seq(initial) + 1,
            acked: Seq(initial),
            expected: Seq(0),
            syn_s: now_s,
            tries: 0,
        };
        peer.send_syn(now_s, wire);
        peer
    }

    fn send_syn(&mut self, now_s: f64, wire: &mut Wire) {
        self.syn_s = now_s;
        self.tries += 1;
        let options = SynOptions { mss: Some(MSS), ..SynOptions::default() };
        let head = HeadRepr {
            seq: self.acked,
            flags: Flags::SYN,
            syn_options: Some(options),
            ..self.head()
        };
        wire.send(self.address, &HeadRepr { ack: Seq(0), ..head }, &[]);
    }

    /// A header with the connection's present numbers.
    pub(super) fn head(&self) -> HeadRepr {
        HeadRepr {
            src_port: self.port,
            dst_port: SERVER_PORT,
            seq: self.next,
            ack: self.expected,
            flags: Flags::ACK,
            window: self.window,
            ..HeadRepr::default()
        }
    }

    /// Repeats the SYN when its time has come; gives up at last.
    pub(super) fn step(&mut self, now_s: f64, wire: &mut Wire) {
        if self.state != State::Opening || now_s < self.syn_s + SYN_AGAIN_S {
            return;
        }
        if self.tries >= SYN_TRIES {
            self.state = State::Over;
        } else {
            self.send_syn(now_s, wire);
        }
    }

    /// Takes a segment. Whoever calls sends the acknowledgment, at once or not.
    pub(super) fn handle(&mut self, segment: &Segment<'_>) -> Heard {
        let head = &segment.head;
        if head.flags.rst() {
            self.state = State::Over;
            return Heard::Ended;
        }
        match self.state {
            State::Opening if head.flags.syn() && head.flags.ack() && head.ack == self.next => {
                self.expected = head.seq + 1;
                self.acked = head.ack;
                self.state = State::Open;
                Heard::Opened
            }
            State::Open => {
                if head.flags.ack() && head.ack.gt(self.acked) && head.ack.le(self.next) {
                    self.acked = head.ack;
                }
                let (len, due) = (segment.payload.len(), head.seq == self.expected);
                // What is beyond the window is not taken.
                if !due || len > usize::from(self.window) {
                    return Heard::Nothing;
                }
                self.expected += len as u32;
                if head.flags.fin() {
                    self.expected += 1;
                    self.state = State::Over;
                    return Heard::Ended;
                }
                if len > 0 { Heard::Bytes(len) } else { Heard::Nothing }
            }
            State::Opening | State::Over => Heard::Nothing,
        }
    }

    /// Sends an acknowledgment.
    pub(super) fn acknowledge(&self, wire: &mut Wire) {
        wire.send(self.address, &self.head(), &[]);
    }

    /// Sends bytes from `at` on.
    pub(super) fn say(&mut self, at: Seq, bytes: &[u8], wire: &mut Wire) {
        let head = HeadRepr { seq: at, flags: Flags::ACK | Flags::PSH, ..self.head() };
        wire.send(self.address, &head, bytes);
        self.next = self.next.max(at + bytes.len() as u32);
    }

    /// Closes its side, in answer to the server's.
    pub(super) fn close(&mut self, wire: &mut Wire) {
        wire.send(self.address, &HeadRepr { flags: Flags::ACK | Flags::FIN, ..self.head() }, &[]);
        self.next += 1;
        self.state = State::Over;
    }

    /// Resets the connection.
    pub(super) fn reset(&mut self, wire: &mut Wire) {
        wire.send(self.address, &HeadRepr { flags: Flags::RST | Flags::ACK, ..self.head() }, &[]);
        self.state = State::Over;
    }
}
