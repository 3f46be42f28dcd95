//! PostgreSQL's protocol 3, both directions.
//!
//! Read first: the chapter "Frontend/Backend Protocol" of PostgreSQL's manual, message flow.

use crate::dialects::limits::UNDER_WAY_MAX;
use crate::dialects::server::Exchange;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Before the first message.
    Startup,
    /// The server answers with one byte whether it encrypts.
    Asked,
    /// Who is the client?
    Authentication,
    Messages,
    Lost,
}

/// Cuts one direction into messages.
#[derive(Clone, Debug, Default)]
struct Messages {
    header: Vec<u8>,
    left: usize,
    kind: u8,
    /// Of the message, the last byte that has come.
    last: u8,
}

impl Messages {
    fn is_between(&self) -> bool {
        self.header.is_empty() && self.left == 0
    }

    /// The type of the next message as soon as its header is there. `Err`: no message is like this.
    fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<u8>, ()> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = bytes.len().min(self.left);
                self.last = bytes[taken - 1];
                *bytes = &bytes[taken..];
                self.left -= taken;
                if self.left == 0 {
                    return Ok(Some(self.kind));
                }
                continue;
            }
            let taken = bytes.len().min(5 - self.header.len());
            self.header.extend_from_slice(&bytes[..taken]);
            *bytes = &bytes[taken..];
            if let [kind, a, b, c, d] = *self.header {
                let length = u32::from_be_bytes([a, b, c, d]);
                if !(4..=1 << 30).contains(&length) {
                    return Err(());
                }
                self.header.clear();
                (self.kind, self.left) = (kind, length as usize - 4);
                if self.left == 0 {
                    return Ok(Some(kind));
                }
            }
        }
        Ok(None)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Turns {
    phase: Phase,
    startup: Vec<u8>,
    client: Messages,
    server: Messages,
    /// Answers that end with ReadyForQuery.
    under_way: usize,
    /// Messages were sent that the next Sync belongs to.
    is_open: bool,
    /// What ReadyForQuery said last: `I`, if no transaction is open.
    status: u8,
}

impl Exchange for Turns {
    fn holds_nothing(&self) -> bool {
        self.is_over() && self.status == b'I'
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Messages
            && self.under_way == 0
            && !self.is_open
            && self.client.is_between()
            && self.server.is_between()
    }

    fn handle_client(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_identity = true;
        while !bytes.is_empty() {
            match self.phase {
                Phase::Lost => return false,
                // What is sent before the server has answered is taken for encrypted.
                Phase::Asked => self.lose(),
                Phase::Startup => {
                    let wanted = match self.startup.first_chunk() {
                        None => 4,
                        Some(length) => u32::from_be_bytes(*length) as usize,
                    };
                    if !(4..=10_000).contains(&wanted) {
                        self.lose();
                        continue;
                    }
                    let taken = bytes.len().min(wanted - self.startup.len());
                    self.startup.extend_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    if wanted > 4 && self.startup.len() == wanted {
                        self.begin();
                    } else if taken == 0 {
                        self.lose();
                    }
                }
                Phase::Authentication | Phase::Messages => match self.client.next(&mut bytes) {
                    Err(()) => self.lose(),
                    Ok(None) => {
                        is_identity &=
                            self.client.kind == b'p' && self.phase == Phase::Authentication;
                    }
                    Ok(Some(b'p')) if self.phase == Phase::Authentication => {}
                    Ok(Some(kind)) => {
                        is_identity = false;
                        match kind {
                            b'Q' | b'F' | b'S' => {
                                self.under_way += 1;
                                self.is_open = false;
                                if self.under_way > UNDER_WAY_MAX {
                                    self.lose();
                                }
                            }
                            b'P' | b'B' | b'E' | b'D' | b'C' | b'H' => self.is_open = true,
                            // The rows of a COPY, answers to the server's questions, Terminate.
                            b'd' | b'c' | b'f' | b'p' | b'X' => {}
                            _ => self.lose(),
                        }
                    }
                },
            }
        }
        is_identity && self.phase != Phase::Lost
    }

    fn handle_server(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.phase {
                Phase::Lost => return,
                Phase::Startup => self.lose(),
                Phase::Asked => {
                    if bytes[0] == b'N' {
                        self.phase = Phase::Startup;
                        bytes = &bytes[1..];
                    } else {
                        self.lose();
                    }
                }
                Phase::Authentication | Phase::Messages => match self.server.next(&mut bytes) {
                    Err(()) => self.lose(),
                    Ok(Some(b'Z')) if self.under_way > 0 => {
                        self.under_way -= 1;
                        self.phase = Phase::Messages;
                        self.status = self.server.last;
                    }
                    Ok(Some(b'Z')) => self.lose(),
                    Ok(_) => {}
                },
            }
        }
    }
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Startup,
            startup: Vec::new(),
            client: Messages::default(),
            server: Messages::default(),
            under_way: 0,
            is_open: false,
            status: 0,
        }
    }

    fn lose(&mut self) {
        *self = Self { phase: Phase::Lost, ..Self::new() };
    }

    fn begin(&mut self) {
        let code = self
            .startup
            .get(4..8)
            .and_then(|code| code.first_chunk())
            .map(|code| u32::from_be_bytes(*code));
        self.startup.clear();
        match code {
            Some(SSL_REQUEST | GSS_REQUEST) => self.phase = Phase::Asked,
            Some(code) if code >> 16 == 3 => {
                self.phase = Phase::Authentication;
                self.under_way = 1;
            }
            _ => self.lose(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut message = vec![kind];
        message.extend((body.len() as u32 + 4).to_be_bytes());
        message.extend(body);
        message
    }

    fn connected() -> Turns {
        let mut turns = Turns::new();
        assert!(turns.handle_client(&[0, 0, 0, 8, 4, 210, 22, 47]));
        turns.handle_server(b"N");
        let body = b"\0\x03\0\0user\0u\0\0";
        let startup = [&(body.len() as u32 + 4).to_be_bytes(), body.as_slice()].concat();
        assert!(turns.handle_client(&startup));
        turns.handle_server(&message(b'R', &[0, 0, 0, 3]));
        assert!(turns.handle_client(&message(b'p', b"secret\0")));
        assert!(!turns.is_over());
        turns.handle_server(&[message(b'R', &[0, 0, 0, 0]), message(b'Z', b"I")].concat());
        turns
    }

    #[test]
    fn an_answer_is_over_when_the_server_is_ready() {
        let mut turns = connected();
        assert!(turns.is_over());
        assert!(!turns.handle_client(&message(b'Q', b"UPDATE t SET a = 1\0")));
        turns.handle_server(&message(b'C', b"UPDATE 1\0"));
        assert!(!turns.is_over());
        let ready = message(b'Z', b"I");
        turns.handle_server(&ready[..3]);
        assert!(!turns.is_over());
        turns.handle_server(&ready[3..]);
        assert!(turns.is_over());
    }

    #[test]
    fn what_the_server_says_of_a_transaction() {
        let mut turns = connected();
        assert!(turns.holds_nothing());
        for (status, holds_nothing) in [(b"I", true), (b"T", false), (b"E", false), (b"I", true)] {
            turns.handle_client(&message(b'Q', b"x\0"));
            assert!(!turns.holds_nothing());
            turns.handle_server(&message(b'Z', status));
            assert!(turns.is_over());
            assert_eq!(turns.holds_nothing(), holds_nothing);
        }
    }

    #[test]
    fn nothing_is_over_before_its_sync() {
        let mut turns = connected();
        turns.handle_client(&[message(b'P', b"\0SELECT 1\0\0\0"), message(b'H', b"")].concat());
        turns.handle_server(&message(b'1', b""));
        assert!(!turns.is_over());
        turns.handle_client(&message(b'S', b""));
        assert!(!turns.is_over());
        turns.handle_client(&message(b'Q', b"SELECT 2\0"));
        turns.handle_server(&message(b'Z', b"I"));
        assert!(!turns.is_over());
        turns.handle_server(&message(b'Z', b"I"));
        assert!(turns.is_over());
    }

    #[test]
    fn what_is_encrypted_is_never_over() {
        let mut turns = Turns::new();
        turns.handle_client(&[0, 0, 0, 8, 4, 210, 22, 47]);
        turns.handle_server(b"S");
        turns.handle_client(b"\x16\x03\x01");
        turns.handle_server(&message(b'Z', b"I"));
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
            for mut turns in [Turns::new(), connected()] {
                for (client, bytes) in &steps {
                    if *client {
                        turns.handle_client(bytes);
                    } else {
                        turns.handle_server(bytes);
                    }
                }
            }
        }
    }
}
