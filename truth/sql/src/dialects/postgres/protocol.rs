//! PostgreSQL's protocol 3, from the server's side.
//!
//! Read first: the chapter "Frontend/Backend Protocol" of PostgreSQL's manual, message formats and
//! message flow.

use std::collections::HashMap;
use std::sync::Arc;

use crate::command::{Command, PREPARED_BYTES_MAX, PREPARED_MAX};
use crate::dialects::server;
use crate::key::Literal;
use crate::parse::STATEMENT_BYTES_MAX;
use crate::reason::Reason;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Startup,
    /// The server's one byte decides; `None` while it was not seen.
    Asked(Option<u8>),
    Messages,
    Opaque(Reason),
}

/// A statement or portal under a name. The same name with another text is not certain: the server
/// may have refused it.
#[derive(Clone, Debug)]
enum Named<T> {
    Certain(T),
    Uncertain,
}

/// A statement's text and the values of its parameters.
type Bound = (Arc<[u8]>, Vec<Literal>);

/// One connection.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    phase: Phase,
    header: Vec<u8>,
    payload: Vec<u8>,
    left: usize,
    in_message: bool,
    kind: u8,
    oversize: bool,
    statements: HashMap<Vec<u8>, Named<Arc<[u8]>>>,
    statement_bytes: usize,
    portals: HashMap<Vec<u8>, Named<Bound>>,
    /// Messages since the last Sync that may have failed.
    messages: Messages,
    /// The unnamed statement is the one that was parsed last.
    unnamed_is_certain: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Messages {
    parses: u32,
    binds: u32,
    others: u32,
}

impl server::Connection for Connection {
    /// Where a message begins cannot be found again: clients may send ahead of replies.
    fn lose(&mut self) {
        if !matches!(self.phase, Phase::Opaque(_)) {
            *self = Self { phase: Phase::Opaque(Reason::Gap), ..Self::new() };
        }
    }

    /// The first bytes that the server sent after what the client sent last.
    fn handle_server(&mut self, bytes: &[u8]) {
        if let (Phase::Asked(answer @ None), Some(first)) = (&mut self.phase, bytes.first()) {
            *answer = Some(*first);
        }
    }

    fn handle_client(&mut self, mut bytes: &[u8], emit: &mut dyn FnMut(Command)) {
        while !bytes.is_empty() {
            match self.phase {
                Phase::Opaque(reason) => {
                    emit(Command::Everything(reason));
                    return emit(Command::RequestEnd);
                }
                Phase::Asked(Some(b'N')) => self.phase = Phase::Startup,
                Phase::Asked(_) => {
                    self.opaque(Reason::Encrypted);
                    continue;
                }
                _ => {}
            }
            if !self.in_message {
                let wanted = if self.phase == Phase::Startup { 4 } else { 5 };
                let taken = bytes.len().min(wanted - self.header.len());
                self.header.extend_from_slice(&bytes[..taken]);
                bytes = &bytes[taken..];
                if self.header.len() < wanted {
                    return;
                }
                self.begin(emit);
                if matches!(self.phase, Phase::Opaque(_)) {
                    // Said once more for the bytes that follow, if any do.
                    continue;
                }
            }
            let taken = bytes.len().min(self.left);
            if !self.oversize {
                self.payload.extend_from_slice(&bytes[..taken]);
            }
            bytes = &bytes[taken..];
            self.left -= taken;
            if self.left == 0 {
                self.in_message = false;
                let payload = core::mem::take(&mut self.payload);
                self.end(&payload, emit);
            }
        }
    }
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Startup,
            header: Vec::new(),
            payload: Vec::new(),
            left: 0,
            in_message: false,
            kind: 0,
            oversize: false,
            statements: HashMap::new(),
            statement_bytes: 0,
            portals: HashMap::new(),
            messages: Messages::default(),
            unnamed_is_certain: false,
        }
    }

    fn opaque(&mut self, reason: Reason) {
        *self = Self { phase: Phase::Opaque(reason), ..Self::new() };
    }

    fn begin(&mut self, emit: &mut dyn FnMut(Command)) {
        let startup = self.phase == Phase::Startup;
        let at = usize::from(!startup);
        let length = u32::from_be_bytes([
            self.header[at],
            self.header[at + 1],
            self.header[at + 2],
            self.header[at + 3],
        ]);
        self.kind = if startup { 0 } else { self.header[0] };
        self.header.clear();
        let acceptable = match self.phase {
            Phase::Startup => (8..=10_000).contains(&length),
            _ => {
                (4..=1 << 30).contains(&length)
                    && matches!(
                        self.kind,
                        b'Q' | b'P'
                            | b'B'
                            | b'E'
                            | b'D'
                            | b'C'
                            | b'S'
                            | b'H'
                            | b'F'
                            | b'd'
                            | b'c'
                            | b'f'
                            | b'p'
                            | b'X'
                    )
            }
        };
        if !acceptable {
            self.opaque(Reason::Malformed);
            emit(Command::Everything(Reason::Malformed));
            return emit(Command::RequestEnd);
        }
        self.left = length as usize - 4;
        self.in_message = true;
        self.oversize = self.left > STATEMENT_BYTES_MAX || matches!(self.kind, b'd' | b'p');
        if self.left == 0 {
            self.in_message = false;
            self.end(&[], emit);
        }
    }

    fn end(&mut self, payload: &[u8], emit: &mut dyn FnMut(Command)) {
        if self.phase == Phase::Startup {
            return self.startup(payload, emit);
        }
        if self.oversize && matches!(self.kind, b'Q' | b'P' | b'B' | b'F') {
            emit(Command::Everything(Reason::TooLarge));
            self.messages.others += 1;
            match self.kind {
                b'Q' => emit(Command::RequestEnd),
                // What it names is not known.
                b'P' | b'B' => {
                    self.statements.values_mut().for_each(|named| *named = Named::Uncertain);
                    self.portals.values_mut().for_each(|named| *named = Named::Uncertain);
                }
                _ => {}
            }
            return;
        }
        match self.kind {
            b'Q' => {
                match payload.split_last() {
                    Some((0, text)) if !text.contains(&0) => emit(Command::Query(text.to_vec())),
                    _ => emit(Command::Everything(Reason::Malformed)),
                }
                self.next_batch();
                emit(Command::RequestEnd);
            }
            b'P' => self.parse(payload),
            b'B' => self.bind(payload),
            b'E' => self.execute(payload, emit),
            b'C' | b'D' => self.messages.others += 1,
            b'S' => {
                self.next_batch();
                emit(Command::Sync);
                emit(Command::RequestEnd);
            }
            b'F' => {
                emit(Command::Everything(Reason::Command));
                self.next_batch();
                emit(Command::RequestEnd);
            }
            // The rows of a COPY are written as they come, and visible when the transaction ends.
            b'c' | b'f' => {
                emit(Command::Sync);
                emit(Command::RequestEnd);
            }
            // CopyData, answers to the server's questions, Flush, Terminate.
            _ => {}
        }
    }

    fn next_batch(&mut self) {
        self.messages = Messages::default();
        self.portals.clear();
    }

    fn startup(&mut self, payload: &[u8], emit: &mut dyn FnMut(Command)) {
        let Some((code, rest)) =
            payload.split_first_chunk().map(|(code, rest)| (u32::from_be_bytes(*code), rest))
        else {
            return self.opaque(Reason::Malformed);
        };
        match code {
            SSL_REQUEST | GSS_REQUEST => self.phase = Phase::Asked(None),
            // The connection is closed.
            CANCEL_REQUEST => self.opaque(Reason::Command),
            code if code >> 16 == 3 => match parse_parameters(rest) {
                Some(startup) => {
                    self.phase = Phase::Messages;
                    emit(Command::Database(Some(startup.database)));
                    if !startup.usual {
                        emit(Command::UnusualLexing);
                    }
                }
                None => self.opaque(Reason::Malformed),
            },
            _ => self.opaque(Reason::Malformed),
        }
        if let Phase::Opaque(reason) = self.phase {
            emit(Command::Everything(reason));
            emit(Command::RequestEnd);
        }
    }

    fn parse(&mut self, payload: &[u8]) {
        self.messages.parses += 1;
        let mut rest = payload;
        let (Some(name), Some(text)) = (terminated(&mut rest), terminated(&mut rest)) else {
            self.statements.values_mut().for_each(|named| *named = Named::Uncertain);
            return;
        };
        let text: Arc<[u8]> = text.into();
        if name.is_empty() {
            self.unnamed_is_certain =
                self.messages.parses == 1 && self.messages.binds + self.messages.others == 0;
            self.statements.insert(Vec::new(), Named::Certain(text));
            return;
        }
        match self.statements.get_mut(name) {
            Some(Named::Certain(known)) if *known == text => {}
            Some(named) => *named = Named::Uncertain,
            None => {
                if self.statements.len() < PREPARED_MAX
                    && self.statement_bytes + text.len() <= PREPARED_BYTES_MAX
                {
                    self.statement_bytes += text.len();
                    self.statements.insert(name.to_vec(), Named::Certain(text));
                }
            }
        }
    }

    fn bind(&mut self, payload: &[u8]) {
        self.messages.binds += 1;
        let mut rest = payload;
        let (Some(portal), Some(name)) = (terminated(&mut rest), terminated(&mut rest)) else {
            self.portals.values_mut().for_each(|named| *named = Named::Uncertain);
            return;
        };
        let certain = !name.is_empty() || self.unnamed_is_certain || self.messages.parses > 0;
        let named = match self.statements.get(name) {
            Some(Named::Certain(text)) if certain => {
                Named::Certain((text.clone(), bound_values(rest).unwrap_or_default()))
            }
            _ => Named::Uncertain,
        };
        // A named portal stays as it is if the server refuses another of its name.
        if !portal.is_empty() && self.portals.contains_key(portal) {
            self.portals.insert(portal.to_vec(), Named::Uncertain);
        } else if self.portals.len() < PREPARED_MAX {
            self.portals.insert(portal.to_vec(), named);
        }
    }

    fn execute(&mut self, payload: &[u8], emit: &mut dyn FnMut(Command)) {
        let surely = self.messages.parses <= 1 && self.messages.binds <= 1;
        let mut rest = payload;
        let portal = terminated(&mut rest);
        match portal.and_then(|portal| self.portals.get(portal)) {
            Some(Named::Certain((text, parameters))) => {
                emit(Command::Execute {
                    text: text.clone(),
                    parameters: parameters.clone(),
                    surely,
                });
            }
            _ => emit(Command::Everything(Reason::UnknownStatement)),
        }
        // The next one of this batch comes after one that may have failed.
        self.messages.binds += 1;
        self.messages.others += 1;
    }
}

fn terminated<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = rest.iter().position(|b| *b == 0)?;
    let text = &rest[..end];
    *rest = &rest[end + 1..];
    Some(text)
}

struct Startup {
    database: Box<str>,
    /// The settings that come with it leave quotes and escapes as they are.
    usual: bool,
}

fn parse_parameters(mut rest: &[u8]) -> Option<Startup> {
    let mut user = None;
    let mut database = None;
    let mut usual = true;
    loop {
        let name = terminated(&mut rest)?;
        if name.is_empty() {
            break;
        }
        let value = core::str::from_utf8(terminated(&mut rest)?).ok()?;
        match name {
            b"user" => user = Some(value),
            b"database" => database = Some(value),
            b"client_encoding" => usual &= crate::steer::is_safe_charset(value.trim_matches('\'')),
            b"standard_conforming_strings" => usual &= value == "on",
            b"options" => usual &= !value.contains("conforming") && !value.contains("encoding"),
            // Instead of statements: replication.
            b"replication" if !matches!(value, "false" | "off" | "no" | "0") => return None,
            _ => {}
        }
    }
    Some(Startup { database: database.or(user)?.into(), usual })
}

/// The values of a Bind message that are sent as text.
fn bound_values(mut rest: &[u8]) -> Option<Vec<Literal>> {
    fn number(rest: &mut &[u8]) -> Option<usize> {
        let (bytes, after) = rest.split_first_chunk()?;
        *rest = after;
        Some(usize::from(u16::from_be_bytes(*bytes)))
    }
    let count = number(&mut rest)?;
    let mut binary = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        binary.push(number(&mut rest)? == 1);
    }
    let count = number(&mut rest)?;
    let mut values = Vec::with_capacity(count.min(64));
    for at in 0..count {
        let is_binary = match binary.as_slice() {
            [] => false,
            [one] => *one,
            each => *each.get(at)?,
        };
        let (length, after) = rest.split_first_chunk()?;
        rest = after;
        let length = i32::from_be_bytes(*length);
        if length < 0 {
            values.push(Literal::Unknown);
            continue;
        }
        let value = rest.get(..length as usize)?;
        rest = &rest[length as usize..];
        values.push(match core::str::from_utf8(value) {
            Ok(text) if !is_binary => Literal::Text(text.into()),
            _ => Literal::Unknown,
        });
    }
    Some(values)
}
