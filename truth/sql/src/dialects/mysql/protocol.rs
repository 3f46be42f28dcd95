//! MySQL's and MariaDB's protocol, from the server's side.
//!
//! Read first: the client/server protocol in MariaDB's knowledge base: packets, handshake response,
//! COM_ commands, COM_STMT_EXECUTE.

use std::collections::HashMap;
use std::sync::Arc;

use super::packet::{COMPRESS, PACKET_BYTES_MAX, PROTOCOL_41, SSL, ZSTD_COMPRESSION};
use crate::command::{Command, PREPARED_BYTES_MAX, PREPARED_MAX};
use crate::dialects::server;
use crate::key::Literal;
use crate::parse::STATEMENT_BYTES_MAX;
use crate::reason::Reason;

const CONNECT_WITH_DB: u32 = 1 << 3;
const SECURE_CONNECTION: u32 = 1 << 15;
const PLUGIN_AUTH_LENENC_DATA: u32 = 1 << 21;
const QUERY_ATTRIBUTES: u32 = 1 << 27;

/// Numbers of collations whose character sets hide quotes or backslashes in longer characters:
/// big5, sjis, gbk, cp932, gb18030 and those that no client may use.
const UNSAFE_COLLATIONS: &[u8] = &[1, 13, 28, 84, 87, 88, 95, 96, 248, 249, 250];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the handshake response.
    Handshake,
    /// The client's answers until the first command.
    Authentication,
    Commands,
    /// Nothing is understood any longer.
    Opaque(Reason),
    /// Bytes were missed; `answered` if the server has sent something since the last that was
    /// received.
    Lost {
        reason: Reason,
        answered: bool,
    },
}

#[derive(Clone, Debug)]
struct Prepared {
    text: Arc<[u8]>,
    /// From the server's reply.
    parameters: Option<u16>,
    types: Vec<[u8; 2]>,
    long_data: bool,
}

/// A command that waits for the beginning of the server's reply.
#[derive(Clone, Debug)]
enum Awaited {
    Prepare(Arc<[u8]>),
    Database(Box<str>),
    Other,
}

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    phase: Phase,
    capabilities: u32,
    header: Vec<u8>,
    /// Of the packet that is being received.
    left: usize,
    packet_full: bool,
    in_packet: bool,
    sequence: u8,
    payload: Vec<u8>,
    /// The command is longer than is kept.
    oversize: bool,
    /// The command goes on in the next packet.
    continued: bool,
    prepared: HashMap<u32, Prepared>,
    prepared_bytes: usize,
    last_prepared: Option<Prepared>,
    /// Another was prepared before it, and whether it was itself is not known yet.
    last_is_uncertain: bool,
    awaited: Vec<Awaited>,
    /// What the next bytes of the client shall begin with.
    settled: Vec<Command>,
}

impl server::Connection for Connection {
    /// From here on bytes are missing.
    fn lose(&mut self) {
        if matches!(self.phase, Phase::Opaque(_)) {
            return;
        }
        *self = match self.phase {
            // Whether it is encrypted or compressed is not known.
            Phase::Handshake | Phase::Authentication => {
                Self { phase: Phase::Opaque(Reason::Gap), ..Self::new() }
            }
            _ => Self {
                phase: Phase::Lost { reason: Reason::Gap, answered: false },
                capabilities: self.capabilities,
                ..Self::new()
            },
        };
    }

    fn handle_client(&mut self, mut bytes: &[u8], emit: &mut dyn FnMut(Command)) {
        if bytes.is_empty() {
            return;
        }
        self.settled.drain(..).for_each(&mut *emit);
        if let Phase::Lost { answered, reason } = self.phase {
            if answered && is_one_query(bytes) {
                self.phase = Phase::Commands;
                emit(Command::Database(None));
                emit(Command::UnusualLexing);
            } else {
                self.phase = Phase::Lost { reason, answered: false };
                emit(Command::Everything(reason));
                return emit(Command::RequestEnd);
            }
        }
        while !bytes.is_empty() {
            if let Phase::Opaque(reason) = self.phase {
                emit(Command::Everything(reason));
                return emit(Command::RequestEnd);
            }
            if !self.in_packet {
                let taken = bytes.len().min(4 - self.header.len());
                self.header.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if self.header.len() < 4 {
                    return;
                }
                let length = usize::from(self.header[0])
                    | usize::from(self.header[1]) << 8
                    | usize::from(self.header[2]) << 16;
                self.begin_packet(length, self.header[3], emit);
                self.header.clear();
            }
            let taken = bytes.len().min(self.left);
            if !self.oversize {
                if self.payload.len() + taken > STATEMENT_BYTES_MAX {
                    self.oversize = true;
                    self.payload.truncate(1);
                    // It is run when it is whole; said now as well, because a command may take long
                    // to arrive.
                    emit(Command::Everything(Reason::TooLarge));
                } else {
                    self.payload.extend_from_slice(&bytes[..taken]);
                }
            }
            bytes = &bytes[taken..];
            self.left -= taken;
            if self.left == 0 && self.in_packet {
                self.in_packet = false;
                self.continued = self.packet_full;
                if !self.continued {
                    self.end_command(emit);
                }
            }
        }
    }

    /// The first bytes that the server sent after what the client sent last.
    fn handle_server(&mut self, bytes: &[u8]) {
        if let Phase::Lost { answered, .. } = &mut self.phase {
            *answered = true;
        }
        if bytes.is_empty() {
            return;
        }
        let mut awaited = core::mem::take(&mut self.awaited);
        // With more than one command under way it is not certain which one this answers.
        let (1, Some(awaited)) = (awaited.len(), awaited.pop()) else { return };
        let whole = bytes.len() >= 5 && bytes[3] == 1;
        match awaited {
            Awaited::Prepare(text) if whole && bytes[4] == 0 && bytes.len() >= 13 => {
                let id = u32::from_le_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]);
                let parameters = u16::from_le_bytes([bytes[11], bytes[12]]);
                self.last_is_uncertain = false;
                let prepared = Prepared {
                    text,
                    parameters: Some(parameters),
                    types: Vec::new(),
                    long_data: false,
                };
                if self.prepared.len() < PREPARED_MAX
                    && self.prepared_bytes + prepared.text.len() <= PREPARED_BYTES_MAX
                {
                    self.prepared_bytes += prepared.text.len();
                    if let Some(old) = self.prepared.insert(id, prepared) {
                        self.prepared_bytes -= old.text.len();
                    }
                }
            }
            Awaited::Database(name) if whole && bytes[4] == 0 => {
                self.settled.push(Command::Database(Some(name)));
            }
            _ => {}
        }
    }
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Handshake,
            capabilities: 0,
            header: Vec::new(),
            left: 0,
            packet_full: false,
            in_packet: false,
            sequence: 0,
            payload: Vec::new(),
            oversize: false,
            continued: false,
            prepared: HashMap::new(),
            prepared_bytes: 0,
            last_prepared: None,
            last_is_uncertain: false,
            awaited: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// A connection whose beginning was not seen.
    pub(super) fn in_the_middle() -> Self {
        Self {
            phase: Phase::Lost { reason: Reason::Gap, answered: false },
            // Whether the client may send attributes is not known.
            capabilities: QUERY_ATTRIBUTES,
            ..Self::new()
        }
    }

    fn begin_packet(&mut self, length: usize, sequence: u8, emit: &mut dyn FnMut(Command)) {
        self.left = length;
        self.in_packet = true;
        self.packet_full = length == PACKET_BYTES_MAX;
        if !self.continued {
            self.sequence = sequence;
            self.payload.clear();
            self.oversize = false;
        }
        if length == 0 {
            // Ends what was continued, or is empty: handled as the packet's end.
            self.in_packet = false;
            self.continued = false;
            self.end_command(emit);
        }
    }

    fn end_command(&mut self, emit: &mut dyn FnMut(Command)) {
        let payload = core::mem::take(&mut self.payload);
        match self.phase {
            Phase::Handshake => self.handshake(&payload, emit),
            Phase::Authentication if self.sequence != 0 => {}
            // Answers to a change of user, and the contents of files: the command itself said what
            // it may do.
            Phase::Commands if self.sequence != 0 => {
                emit(Command::Everything(Reason::Command));
                emit(Command::RequestEnd);
            }
            Phase::Authentication | Phase::Commands => {
                self.phase = Phase::Commands;
                if self.oversize {
                    self.awaited.push(Awaited::Other);
                    emit(Command::Everything(Reason::TooLarge));
                    emit(Command::RequestEnd);
                } else {
                    self.command(&payload, emit);
                }
            }
            Phase::Opaque(_) | Phase::Lost { .. } => {}
        }
        self.payload = payload;
        self.payload.clear();
        if self.payload.capacity() > 64 << 10 {
            self.payload = Vec::new();
        }
    }

    fn opaque(&mut self, reason: Reason, emit: &mut dyn FnMut(Command)) {
        *self = Self { phase: Phase::Opaque(reason), ..Self::new() };
        emit(Command::Everything(reason));
    }

    fn handshake(&mut self, payload: &[u8], emit: &mut dyn FnMut(Command)) {
        let Some(response) = parse_handshake(payload) else {
            return self.opaque(Reason::Malformed, emit);
        };
        if response.capabilities & SSL != 0 {
            return self.opaque(Reason::Encrypted, emit);
        }
        if response.capabilities & (COMPRESS | ZSTD_COMPRESSION) != 0 {
            return self.opaque(Reason::Compressed, emit);
        }
        self.capabilities = response.capabilities;
        self.phase = Phase::Authentication;
        if let Some(database) = response.database {
            emit(Command::Database(Some(database)));
        }
        if UNSAFE_COLLATIONS.contains(&response.collation) {
            emit(Command::UnusualLexing);
        }
    }

    fn command(&mut self, payload: &[u8], emit: &mut dyn FnMut(Command)) {
        let Some((code, rest)) = payload.split_first() else {
            return self.opaque(Reason::Malformed, emit);
        };
        let mut awaited = Awaited::Other;
        let mut answered = true;
        match code {
            // SLEEP, STATISTICS, PROCESS_INFO, DEBUG, PING, STMT_RESET, SET_OPTION, STMT_FETCH,
            // FIELD_LIST
            0x00 | 0x09 | 0x0a | 0x0d | 0x0e | 0x1b | 0x1c | 0x04 => {}
            0x1a => {
                if let Some(prepared) = id(rest).and_then(|id| self.prepared.get_mut(&id)) {
                    prepared.long_data = false;
                }
            }
            // QUIT
            0x01 => answered = false,
            // INIT_DB: which one it is is certain once the server has agreed.
            0x02 => {
                emit(Command::Database(None));
                if let Ok(name) = core::str::from_utf8(rest) {
                    awaited = Awaited::Database(name.into());
                }
            }
            // QUERY
            0x03 => match self.text(rest) {
                Some(text) => {
                    if let Some(name) = used_database(text) {
                        awaited = Awaited::Database(name);
                    }
                    emit(Command::Query(text.to_vec()));
                }
                None => emit(Command::Everything(Reason::Command)),
            },
            // STMT_PREPARE
            0x16 => {
                let text: Arc<[u8]> = rest.into();
                self.last_is_uncertain |=
                    self.last_prepared.as_ref().is_some_and(|last| last.text != text);
                self.last_prepared = Some(Prepared {
                    text: text.clone(),
                    parameters: None,
                    types: Vec::new(),
                    long_data: false,
                });
                awaited = Awaited::Prepare(text);
            }
            // STMT_EXECUTE, MariaDB's STMT_BULK_EXECUTE
            0x17 | 0xfa => emit(self.execute(rest, *code == 0xfa)),
            // STMT_SEND_LONG_DATA
            0x18 => {
                answered = false;
                if let Some(prepared) = id(rest).and_then(|id| self.prepared.get_mut(&id)) {
                    prepared.long_data = true;
                }
            }
            // STMT_CLOSE
            0x19 => {
                answered = false;
                if let Some(closed) = id(rest).and_then(|id| self.prepared.remove(&id)) {
                    self.prepared_bytes -= closed.text.len();
                }
            }
            // CHANGE_USER
            0x11 => {
                self.forget();
                emit(Command::Reset);
                emit(Command::Database(None));
                emit(Command::UnusualLexing);
                // What follows until the next command is authentication.
                self.phase = Phase::Authentication;
            }
            // RESET_CONNECTION
            0x1f => {
                self.forget();
                emit(Command::Reset);
            }
            // CREATE_DB, DROP_DB, REFRESH, SHUTDOWN, PROCESS_KILL, COM_MULTI and all others
            _ => emit(Command::Everything(Reason::Command)),
        }
        if answered {
            self.awaited.push(awaited);
            // An answer is never waited for in vain, but may be out of sight.
            if self.awaited.len() > 16 {
                self.awaited.drain(..14);
            }
        }
        emit(Command::RequestEnd);
    }

    fn forget(&mut self) {
        self.prepared.clear();
        self.prepared_bytes = 0;
        self.last_prepared = None;
        self.last_is_uncertain = false;
    }

    /// The text of a query, without MySQL's attributes.
    fn text<'a>(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        match rest {
            [0, 1, text @ ..] if self.capabilities & QUERY_ATTRIBUTES != 0 => Some(text),
            [first, ..] if *first < b'\t' && self.capabilities & QUERY_ATTRIBUTES != 0 => None,
            text => Some(text),
        }
    }

    fn execute(&mut self, rest: &[u8], bulk: bool) -> Command {
        let Some(id) = id(rest) else { return Command::Everything(Reason::Malformed) };
        let prepared = match id {
            u32::MAX if self.last_is_uncertain => None,
            u32::MAX => self.last_prepared.as_mut(),
            id => self.prepared.get_mut(&id),
        };
        let Some(prepared) = prepared else { return Command::Everything(Reason::UnknownStatement) };
        let parameters = if bulk || prepared.long_data || self.capabilities & QUERY_ATTRIBUTES != 0
        {
            None
        } else {
            decode_parameters(prepared, rest)
        };
        // A long parameter is for one execution, but which one is not followed further.
        Command::Execute {
            text: prepared.text.clone(),
            parameters: parameters.unwrap_or_default(),
            surely: true,
        }
    }
}

fn id(rest: &[u8]) -> Option<u32> {
    rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Is this a packet of its own with a command that a text or a prepared statement goes with, and
/// nothing else?
///
/// Neither a compressed nor an encrypted connection has a packet like this behind a reply: their
/// lengths differ.
fn is_one_query(bytes: &[u8]) -> bool {
    match bytes {
        [a, b, c, 0, code @ (0x03 | 0x0e | 0x16 | 0x02), rest @ ..] => {
            let length = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
            length == rest.len() + 1
                && (*code == 0x0e || (!rest.is_empty() && core::str::from_utf8(rest).is_ok()))
        }
        _ => false,
    }
}

/// The database of a plain `USE name`.
fn used_database(text: &[u8]) -> Option<Box<str>> {
    let text = core::str::from_utf8(text).ok()?.trim().trim_end_matches(';').trim();
    let (word, name) = text.split_once(|c: char| c.is_ascii_whitespace())?;
    if !word.eq_ignore_ascii_case("use") {
        return None;
    }
    let name = name.trim();
    let plain = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$'))
    };
    let name = name.strip_prefix('`').and_then(|name| name.strip_suffix('`')).unwrap_or(name);
    plain(name).then(|| name.into())
}

struct HandshakeResponse {
    capabilities: u32,
    collation: u8,
    database: Option<Box<str>>,
}

fn parse_handshake(payload: &[u8]) -> Option<HandshakeResponse> {
    let capabilities = id(payload)?;
    if capabilities & PROTOCOL_41 == 0 || payload.len() < 32 {
        return None;
    }
    let mut response = HandshakeResponse { capabilities, collation: payload[8], database: None };
    let mut rest = &payload[32..];
    if capabilities & (SSL | COMPRESS | ZSTD_COMPRESSION) != 0 {
        return Some(response);
    }
    let nul = |rest: &mut &[u8]| -> Option<Vec<u8>> {
        let end = rest.iter().position(|b| *b == 0)?;
        let text = rest[..end].to_vec();
        *rest = &rest[end + 1..];
        Some(text)
    };
    nul(&mut rest)?; // user
    if capabilities & PLUGIN_AUTH_LENENC_DATA != 0 {
        length_encoded(&mut rest)?;
    } else if capabilities & SECURE_CONNECTION != 0 {
        let (length, after) = rest.split_first()?;
        rest = after.get(usize::from(*length)..)?;
    } else {
        nul(&mut rest)?;
    }
    if capabilities & CONNECT_WITH_DB != 0 {
        let name = nul(&mut rest)?;
        if !name.is_empty() {
            response.database = Some(String::from_utf8(name).ok()?.into());
        }
    }
    Some(response)
}

/// Takes a string with its length in front.
fn length_encoded<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (first, after) = rest.split_first()?;
    let (length, after) = match first {
        0..=250 => (usize::from(*first), after),
        0xfc => (usize::from(u16::from_le_bytes(*after.first_chunk()?)), &after[2..]),
        0xfd => {
            let [a, b, c] = *after.first_chunk()?;
            (usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16, &after[3..])
        }
        _ => return None,
    };
    let text = after.get(..length)?;
    *rest = &after[length..];
    Some(text)
}

/// The parameters of COM_STMT_EXECUTE, as far as they are numbers and strings.
fn decode_parameters(prepared: &mut Prepared, rest: &[u8]) -> Option<Vec<Literal>> {
    let count = usize::from(prepared.parameters?);
    if count == 0 {
        return Some(Vec::new());
    }
    let rest = rest.get(9..)?;
    let nulls = rest.get(..count.div_ceil(8))?;
    let (bound, mut rest) = rest.get(nulls.len()..)?.split_first()?;
    match bound {
        1 => {
            let types = rest.get(..2 * count)?;
            prepared.types = types.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
            rest = &rest[2 * count..];
        }
        0 if prepared.types.len() == count => {}
        _ => return None,
    }
    let mut parameters = Vec::with_capacity(count);
    for (at, [kind, flags]) in prepared.types.iter().enumerate() {
        if nulls[at / 8] & 1 << (at % 8) != 0 {
            parameters.push(Literal::Unknown);
            continue;
        }
        let unsigned = flags & 0x80 != 0;
        let mut take = |length: usize| -> Option<&[u8]> {
            let taken = rest.get(..length)?;
            rest = &rest[length..];
            Some(taken)
        };
        parameters.push(match kind {
            1 | 2 | 3 | 8 | 9 | 13 => {
                let length = match kind {
                    1 => 1,
                    2 | 13 => 2,
                    3 | 9 => 4,
                    _ => 8,
                };
                let bytes = take(length)?;
                let negative = !unsigned && bytes[length - 1] & 0x80 != 0;
                let mut wide = [if negative { 0xff } else { 0 }; 16];
                wide[..length].copy_from_slice(bytes);
                Literal::Integer(i128::from_le_bytes(wide))
            }
            4 => take(4).map(|_| Literal::Unknown)?,
            5 => take(8).map(|_| Literal::Unknown)?,
            6 => Literal::Unknown,
            7 | 10 | 11 | 12 => {
                let length = usize::from(take(1)?[0]);
                take(length)?;
                Literal::Unknown
            }
            15 | 0xfd | 0xfe | 0xfc => match core::str::from_utf8(length_encoded(&mut rest)?) {
                Ok(text) => Literal::Text(text.into()),
                Err(_) => Literal::Unknown,
            },
            0 | 0xf5..=0xfb => {
                length_encoded(&mut rest)?;
                Literal::Unknown
            }
            _ => return None,
        });
    }
    Some(parameters)
}
