//! MySQL's and MariaDB's protocol, both directions.
//!
//! Read first: the client/server protocol in MariaDB's knowledge base: packets, result set packets,
//! OK, ERR and EOF packets.

use std::collections::VecDeque;

use super::packet::{COMPRESS, PACKET_BYTES_MAX, PROTOCOL_41, SSL, ZSTD_COMPRESSION};
use crate::dialects::limits::UNDER_WAY_MAX;
use crate::dialects::server::Exchange;

const CLIENT_MYSQL: u32 = 1;
const DEPRECATE_EOF: u32 = 1 << 24;
const OPTIONAL_METADATA: u32 = 1 << 25;
/// Of MariaDB's own capabilities.
const MARIADB_CACHE_METADATA: u32 = 1 << 4;

const IN_TRANSACTION: u16 = 1;
const AUTOCOMMIT: u16 = 1 << 1;
const MORE_RESULTS: u16 = 1 << 3;
const CURSOR_EXISTS: u16 = 1 << 6;

/// Of a packet, so many bytes are looked at.
const PREFIX_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting,
    /// Up to the server's agreement.
    Authentication,
    Commands,
    Lost,
}

/// What the server has yet to say to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// One packet.
    Single,
    /// OK, an error, or a result set; maybe several.
    Result,
    /// The answer to a prepared statement.
    Prepare,
    /// Packets up to one that ends a list.
    List,
    /// Definitions of columns, the end of their list, and then the rest.
    Columns { left: u64, then: Then },
    /// The end of a list of definitions.
    ColumnsEnd { then: Then },
    /// Rows up to the end.
    Rows,
    /// Another round about who the client is.
    Authentication,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Rows,
    Columns(u64),
    Done,
}

/// Cuts one direction into packets.
#[derive(Clone, Debug, Default)]
struct Packets {
    header: Vec<u8>,
    left: usize,
    in_packet: bool,
    is_full: bool,
    /// Of the logical packet, which may be several.
    len: usize,
    sequence: u8,
    prefix: Vec<u8>,
    continued: bool,
}

impl Packets {
    fn is_between(&self) -> bool {
        self.header.is_empty() && !self.in_packet && !self.continued
    }

    /// Calls `take` with each whole logical packet: sequence number, first bytes, length.
    fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(u8, &[u8], usize)) {
        loop {
            if !self.in_packet {
                let taken = bytes.len().min(4 - self.header.len());
                self.header.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if self.header.len() < 4 {
                    return;
                }
                self.left = usize::from(self.header[0])
                    | usize::from(self.header[1]) << 8
                    | usize::from(self.header[2]) << 16;
                if !self.continued {
                    (self.sequence, self.len) = (self.header[3], 0);
                    self.prefix.clear();
                }
                self.is_full = self.left == PACKET_BYTES_MAX;
                self.in_packet = true;
                self.header.clear();
            }
            let taken = bytes.len().min(self.left);
            let kept = taken.min(PREFIX_BYTES - self.prefix.len());
            self.prefix.extend_from_slice(&bytes[..kept]);
            bytes = &bytes[taken..];
            self.left -= taken;
            self.len = self.len.saturating_add(taken);
            if self.left > 0 {
                return;
            }
            self.in_packet = false;
            self.continued = self.is_full;
            if !self.continued {
                take(self.sequence, &self.prefix, self.len);
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Turns {
    phase: Phase,
    client: Packets,
    server: Packets,
    deprecate_eof: bool,
    optional_metadata: bool,
    under_way: VecDeque<Awaited>,
    /// What the server has said last of the session.
    status: u16,
}

impl Exchange for Turns {
    fn holds_nothing(&self) -> bool {
        self.is_over() && self.status & (IN_TRANSACTION | AUTOCOMMIT) == AUTOCOMMIT
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Commands
            && self.under_way.is_empty()
            && self.client.is_between()
            && self.server.is_between()
    }

    fn handle_client(&mut self, bytes: &[u8]) -> bool {
        if self.phase == Phase::Lost {
            return false;
        }
        let mut packets = core::mem::take(&mut self.client);
        let mut is_identity = matches!(self.phase, Phase::Greeting | Phase::Authentication);
        packets.feed(bytes, |sequence, prefix, len| match self.phase {
            // A client waits for the greeting.
            Phase::Greeting => self.lose(),
            Phase::Authentication if sequence != 0 => self.identify(sequence, prefix, len),
            Phase::Authentication | Phase::Commands if sequence == 0 => {
                is_identity = false;
                self.command(prefix);
            }
            // The contents of files, and answers to a change of user.
            Phase::Authentication | Phase::Commands | Phase::Lost => {}
        });
        if self.phase != Phase::Lost {
            self.client = packets;
        }
        // A command whose header has come is not about the client any longer.
        is_identity
            && self.phase == Phase::Authentication
            && !(self.client.in_packet && self.client.sequence == 0)
    }

    fn handle_server(&mut self, bytes: &[u8]) {
        if self.phase == Phase::Lost {
            return;
        }
        let mut packets = core::mem::take(&mut self.server);
        packets.feed(bytes, |_, prefix, len| self.answer(prefix, len));
        if self.phase != Phase::Lost {
            self.server = packets;
        }
    }
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Greeting,
            client: Packets::default(),
            server: Packets::default(),
            deprecate_eof: false,
            optional_metadata: false,
            under_way: VecDeque::new(),
            status: 0,
        }
    }

    fn lose(&mut self) {
        *self = Self { phase: Phase::Lost, ..Self::new() };
    }

    /// The first answer to the greeting has the client's capabilities.
    fn identify(&mut self, sequence: u8, prefix: &[u8], len: usize) {
        if sequence != 1 {
            return;
        }
        let word = |at: usize| {
            prefix.get(at..at + 4)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
        };
        let (Some(flags), true) = (word(0), len >= 32) else { return self.lose() };
        if flags & (SSL | COMPRESS | ZSTD_COMPRESSION) != 0 || flags & PROTOCOL_41 == 0 {
            return self.lose();
        }
        let own = if flags & CLIENT_MYSQL == 0 { word(28).unwrap_or(0) } else { 0 };
        self.deprecate_eof = flags & DEPRECATE_EOF != 0;
        self.optional_metadata =
            flags & OPTIONAL_METADATA != 0 || own & MARIADB_CACHE_METADATA != 0;
    }

    fn command(&mut self, prefix: &[u8]) {
        let awaited = match prefix.first() {
            // QUIT, STMT_SEND_LONG_DATA, STMT_CLOSE have no answer.
            Some(0x01 | 0x18 | 0x19) => return,
            // SLEEP, INIT_DB, QUERY, PROCESS_INFO, STMT_EXECUTE, STMT_BULK_EXECUTE
            Some(0x00 | 0x02 | 0x03 | 0x0a | 0x17 | 0xfa) => Awaited::Result,
            // CREATE_DB, DROP_DB, REFRESH, SHUTDOWN, STATISTICS, PROCESS_KILL, DEBUG, PING,
            // STMT_RESET, SET_OPTION, RESET_CONNECTION
            Some(0x05..=0x09 | 0x0c..=0x0e | 0x1a | 0x1b | 0x1f) => Awaited::Single,
            Some(0x04 | 0x1c) => Awaited::List,
            Some(0x16) => Awaited::Prepare,
            Some(0x11) => Awaited::Authentication,
            _ => return self.lose(),
        };
        self.under_way.push_back(awaited);
        if self.under_way.len() > UNDER_WAY_MAX {
            self.lose();
        }
    }

    fn answer(&mut self, prefix: &[u8], len: usize) {
        match (self.phase, prefix.first()) {
            (Phase::Greeting, Some(10)) => self.phase = Phase::Authentication,
            // An error in the greeting's place ends the connection.
            (Phase::Greeting, _) => self.lose(),
            (Phase::Authentication, Some(0x00)) => {
                self.phase = Phase::Commands;
                self.status = ok_status(prefix).unwrap_or(0);
            }
            (Phase::Authentication, Some(0xff)) => self.lose(),
            (Phase::Authentication | Phase::Lost, _) => {}
            (Phase::Commands, first) => {
                let (Some(awaited), Some(&first)) = (self.under_way.front().copied(), first) else {
                    // Said unasked: the end of the connection, as when the server shuts down.
                    return self.lose();
                };
                match self.next(awaited, first, prefix, len) {
                    Some(Next::Done) => drop(self.under_way.pop_front()),
                    Some(Next::Await(awaited)) => self.under_way[0] = awaited,
                    None => self.lose(),
                }
            }
        }
    }

    /// What follows a packet of the answer; `None`: it is not understood.
    fn next(&mut self, awaited: Awaited, first: u8, prefix: &[u8], len: usize) -> Option<Next> {
        let is_error = first == 0xff;
        if is_error {
            // How far something has got, told as an error of the highest number.
            let is_progress = prefix.get(1..3) == Some(&[0xff, 0xff]);
            let awaited = if is_progress { Next::Await(awaited) } else { Next::Done };
            return Some(awaited);
        }
        // In a row, 0xfe begins a value of 16 MB and more.
        let is_end =
            first == 0xfe && if self.deprecate_eof { len < PACKET_BYTES_MAX } else { len < 9 };
        Some(match awaited {
            Awaited::Single => Next::Done,
            Awaited::Authentication if first == 0 => {
                self.status = ok_status(prefix).unwrap_or(0);
                Next::Done
            }
            Awaited::Authentication => Next::Await(awaited),
            Awaited::Result => match first {
                0x00 => self.after(ok_status(prefix)?),
                // The client sends the contents of a file, and is answered again.
                0xfb => Next::Await(Awaited::Result),
                0xfe => return None,
                _ => {
                    let mut rest = prefix;
                    let columns = length(&mut rest)?;
                    let has_definitions = !self.optional_metadata || *rest.first()? != 0;
                    self.columns(if has_definitions { columns } else { 0 }, Then::Rows)
                }
            },
            Awaited::Prepare if first == 0 => {
                let number = |at: usize| {
                    prefix.get(at..at + 2)?.first_chunk().map(|two| u16::from_le_bytes(*two))
                };
                let (columns, parameters) = (u64::from(number(5)?), u64::from(number(7)?));
                match (parameters, columns) {
                    (0, 0) => Next::Done,
                    (0, columns) => self.columns(columns, Then::Done),
                    (parameters, 0) => self.columns(parameters, Then::Done),
                    (parameters, columns) => self.columns(parameters, Then::Columns(columns)),
                }
            }
            Awaited::Prepare => return None,
            Awaited::List if is_end => Next::Done,
            Awaited::List => Next::Await(awaited),
            Awaited::Columns { left: 1, then } => self.columns(0, then),
            Awaited::Columns { left, then } => {
                Next::Await(Awaited::Columns { left: left - 1, then })
            }
            Awaited::ColumnsEnd { then } if is_end => match then {
                // A cursor: rows are fetched later.
                Then::Rows if eof_status(prefix)? & CURSOR_EXISTS != 0 => {
                    self.after(eof_status(prefix)?)
                }
                then => self.then(then),
            },
            Awaited::ColumnsEnd { .. } => return None,
            Awaited::Rows if is_end && self.deprecate_eof => self.after(ok_status(prefix)?),
            Awaited::Rows if is_end => self.after(eof_status(prefix)?),
            Awaited::Rows => Next::Await(awaited),
        })
    }

    /// What follows the end of a result.
    fn after(&mut self, status: u16) -> Next {
        self.status = status;
        if status & MORE_RESULTS != 0 { Next::Await(Awaited::Result) } else { Next::Done }
    }

    fn columns(&self, count: u64, then: Then) -> Next {
        match count {
            0 if self.deprecate_eof => self.then(then),
            0 => Next::Await(Awaited::ColumnsEnd { then }),
            left => Next::Await(Awaited::Columns { left, then }),
        }
    }

    fn then(&self, then: Then) -> Next {
        match then {
            Then::Rows => Next::Await(Awaited::Rows),
            Then::Columns(count) => self.columns(count, Then::Done),
            Then::Done => Next::Done,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Done,
    Await(Awaited),
}

/// The status in an OK packet: behind two numbers.
fn ok_status(prefix: &[u8]) -> Option<u16> {
    let mut rest = prefix.get(1..)?;
    length(&mut rest)?;
    length(&mut rest)?;
    rest.first_chunk().map(|two| u16::from_le_bytes(*two))
}

/// The status in an EOF packet: behind the number of warnings.
fn eof_status(prefix: &[u8]) -> Option<u16> {
    prefix.get(3..5)?.first_chunk().map(|two| u16::from_le_bytes(*two))
}

/// Takes a number of one to nine bytes.
fn length(rest: &mut &[u8]) -> Option<u64> {
    let (&first, after) = rest.split_first()?;
    let bytes = match first {
        0..=250 => {
            *rest = after;
            return Some(u64::from(first));
        }
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        _ => return None,
    };
    let taken = after.get(..bytes)?;
    *rest = &after[bytes..];
    Some(taken.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = (payload.len() as u32).to_le_bytes()[..3].to_vec();
        packet.push(sequence);
        packet.extend(payload);
        packet
    }

    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
    const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];

    fn connected(flags: u32) -> Turns {
        let mut turns = Turns::new();
        turns.handle_server(&packet(0, &[10, b'x', 0]));
        let mut response = (flags | PROTOCOL_41).to_le_bytes().to_vec();
        response.resize(40, 0);
        assert!(turns.handle_client(&packet(1, &response)));
        assert!(!turns.is_over());
        turns.handle_server(&packet(2, OK));
        turns
    }

    #[test]
    fn what_the_server_says_of_a_transaction() {
        let mut turns = connected(0);
        assert!(turns.holds_nothing());
        for (status, holds_nothing) in [(2, true), (3, false), (0, false), (2, true)] {
            turns.handle_client(&packet(0, b"\x03x"));
            assert!(!turns.holds_nothing());
            turns.handle_server(&packet(1, &[0, 0, 0, status, 0, 0, 0]));
            assert!(turns.is_over());
            assert_eq!(turns.holds_nothing(), holds_nothing, "{status}");
        }
        // What an error has done to the transaction is not said.
        turns.handle_client(&packet(0, b"\x03BEGIN"));
        turns.handle_server(&packet(1, &[0, 0, 0, 3, 0, 0, 0]));
        turns.handle_client(&packet(0, b"\x03x"));
        turns.handle_server(&packet(1, &[0xff, 1, 0]));
        assert!(turns.is_over() && !turns.holds_nothing());
    }

    #[test]
    fn an_answer_is_over_when_it_is_whole() {
        let mut turns = connected(0);
        assert!(turns.is_over());
        assert!(!turns.handle_client(&packet(0, b"\x03UPDATE t SET a = 1")));
        assert!(!turns.is_over());
        let answer = packet(1, OK);
        turns.handle_server(&answer[..5]);
        assert!(!turns.is_over());
        turns.handle_server(&answer[5..]);
        assert!(turns.is_over());
    }

    #[test]
    fn a_result_set_is_over_at_its_end() {
        for flags in [0, DEPRECATE_EOF] {
            let mut turns = connected(flags);
            turns.handle_client(&packet(0, b"\x03SELECT a, b FROM t"));
            turns.handle_server(&packet(1, &[2]));
            turns.handle_server(&[packet(2, b"\x03def"), packet(3, b"\x03def")].concat());
            if flags == 0 {
                turns.handle_server(&packet(4, EOF));
            }
            // A row may begin like an OK packet.
            turns.handle_server(&packet(5, b"\x00\x00"));
            turns.handle_server(&packet(6, b"\xfb\xfb"));
            assert!(!turns.is_over());
            turns.handle_server(&packet(
                7,
                if flags == 0 { EOF } else { &[0xfe, 0, 0, 2, 0, 0, 0] },
            ));
            assert!(turns.is_over(), "{flags}");
        }
    }

    #[test]
    fn several_results_and_requests_are_counted() {
        let mut turns = connected(0);
        turns.handle_client(&packet(0, b"\x03CALL p()"));
        turns.handle_client(&packet(0, b"\x0e"));
        turns.handle_server(&packet(1, &[0, 0, 0, 2 | MORE_RESULTS as u8, 0, 0, 0]));
        assert!(!turns.is_over());
        turns.handle_server(&packet(2, OK));
        assert!(!turns.is_over());
        turns.handle_server(&packet(1, OK));
        assert!(turns.is_over());
        // Progress is not an error.
        turns.handle_client(&packet(0, b"\x03ALTER TABLE t ADD b INT"));
        turns.handle_server(&packet(1, b"\xff\xff\xff\x01"));
        assert!(!turns.is_over());
        turns.handle_server(&packet(2, b"\xff\x28\x04#42000no"));
        assert!(turns.is_over());
    }

    #[test]
    fn prepared_statements_and_cursors() {
        let mut turns = connected(0);
        turns.handle_client(&packet(0, b"\x16SELECT ?"));
        turns.handle_server(&packet(1, &[0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0]));
        for payload in [b"\x03def".as_slice(), EOF, b"\x03def"] {
            turns.handle_server(&packet(2, payload));
            assert!(!turns.is_over());
        }
        turns.handle_server(&packet(5, EOF));
        assert!(turns.is_over());
        turns.handle_client(&packet(0, &[0x17, 1, 0, 0, 0, 1]));
        turns.handle_server(&packet(1, &[1]));
        turns.handle_server(&packet(2, b"\x03def"));
        turns.handle_server(&packet(3, &[0xfe, 0, 0, 2 | CURSOR_EXISTS as u8, 0]));
        assert!(turns.is_over());
        turns.handle_client(&packet(0, &[0x19, 1, 0, 0, 0]));
        assert!(turns.is_over());
    }

    #[test]
    fn what_is_encrypted_is_never_over() {
        let mut turns = Turns::new();
        turns.handle_server(&packet(0, &[10, b'x', 0]));
        let mut response = (SSL | PROTOCOL_41).to_le_bytes().to_vec();
        response.resize(32, 0);
        assert!(!turns.handle_client(&packet(1, &response)));
        turns.handle_server(&packet(2, OK));
        assert!(!turns.is_over());
    }

    proptest! {
        #[test]
        fn nothing_panics(
            steps in prop::collection::vec(
                (any::<bool>(), prop::collection::vec(any::<u8>(), 0..64)),
                0..64,
            ),
        ) {
            let mut turns = connected(0);
            for (client, bytes) in steps {
                if client {
                    turns.handle_client(&bytes);
                } else {
                    turns.handle_server(&bytes);
                }
            }
        }
    }
}
