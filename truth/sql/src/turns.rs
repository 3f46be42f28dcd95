//! Whose turn is it on a connection? For whoever stands between a client and its database server,
//! and sees both directions.
//!
//! A change is over when the server has answered in full whatever the client has sent
//! ([`Turns::is_over`]). What is not understood (encrypted, compressed, unknown commands) is never
//! over.

use crate::dialects::{mysql, postgres};
use crate::target::Dialect;

/// Whose turn it is on one connection to a database server, by what both directions say.
#[derive(Clone, Debug)]
pub struct Turns {
    protocol: Protocol,
}

#[derive(Clone, Debug)]
enum Protocol {
    MySql(mysql::turns::Turns),
    Postgres(postgres::turns::Turns),
}

impl Turns {
    /// A connection from its first byte.
    pub fn new(dialect: Dialect) -> Self {
        let protocol = match dialect {
            Dialect::MySql => Protocol::MySql(mysql::turns::Turns::new()),
            Dialect::Postgres => Protocol::Postgres(postgres::turns::Turns::new()),
        };
        Self { protocol }
    }

    /// Takes what the client sends, in order. True: it says only who the client is.
    pub fn handle_client(&mut self, bytes: &[u8]) -> bool {
        match &mut self.protocol {
            Protocol::MySql(turns) => turns.handle_client(bytes),
            Protocol::Postgres(turns) => turns.handle_client(bytes),
        }
    }

    /// Takes what the server sends, in order and all of it.
    pub fn handle_server(&mut self, bytes: &[u8]) {
        match &mut self.protocol {
            Protocol::MySql(turns) => turns.handle_server(bytes),
            Protocol::Postgres(turns) => turns.handle_server(bytes),
        }
    }

    /// Is it certain that the server is done with all that the client has sent, and that it is
    /// whole?
    pub fn is_over(&self) -> bool {
        match &self.protocol {
            Protocol::MySql(turns) => turns.is_over(),
            Protocol::Postgres(turns) => turns.is_over(),
        }
    }

    /// Is it certain, beyond that, that no transaction is open?
    pub fn holds_nothing(&self) -> bool {
        match &self.protocol {
            Protocol::MySql(turns) => turns.holds_nothing(),
            Protocol::Postgres(turns) => turns.holds_nothing(),
        }
    }
}
