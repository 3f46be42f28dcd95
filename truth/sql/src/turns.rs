//! Whose turn is it on a connection? For whoever stands between a client and its database server,
//! and sees both directions.
//!
//! A change is over when the server has answered in full whatever the client has sent
//! ([`Turns::is_over`]). What is not understood (encrypted, compressed, unknown commands) is never
//! over.

use crate::dialects::Dialect;
use crate::dialects::server::Exchange;

/// Whose turn it is on one connection to a database server, by what both directions say.
#[derive(Debug)]
pub struct Turns(Box<dyn Exchange>);

impl Turns {
    /// A connection from its first byte.
    pub fn new(dialect: Dialect) -> Self {
        Self(dialect.server().exchange())
    }

    /// Takes what the client sends, in order. True: it says only who the client is.
    pub fn handle_client(&mut self, bytes: &[u8]) -> bool {
        self.0.handle_client(bytes)
    }

    /// Takes what the server sends, in order and all of it.
    pub fn handle_server(&mut self, bytes: &[u8]) {
        self.0.handle_server(bytes);
    }

    /// Is it certain that the server is done with all that the client has sent, and that it is
    /// whole?
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    /// Is it certain, beyond that, that no transaction is open?
    pub fn holds_nothing(&self) -> bool {
        self.0.holds_nothing()
    }
}
