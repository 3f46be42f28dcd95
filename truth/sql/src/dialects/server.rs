//! What differs from one dialect's server to another's, beside the meaning of statements.

use std::fmt;

use crate::command::Command;

/// What differs from one dialect's server to another's, beside the meaning of statements.
pub(crate) trait Server {
    /// What its products are called.
    fn products(&self) -> &'static str;

    /// Schemes of URLs that lead to it, the usual one first.
    fn schemes(&self) -> &'static [&'static str];

    /// A connection from its first byte.
    fn connection(&self) -> Box<dyn Connection>;

    /// A connection whose beginning was not seen.
    fn connection_in_the_middle(&self) -> Box<dyn Connection>;

    /// Whose turn it is on a connection, from its first byte.
    fn exchange(&self) -> Box<dyn Exchange>;

    /// See [`crate::is_certain_read`].
    fn is_certain_read(&self, bytes: &[u8]) -> bool;

    /// Are these bytes, all that the server sent at once, the whole reply to one request?
    fn is_reply(&self, bytes: &[u8]) -> bool;

    /// See [`crate::catalogue_query`].
    fn catalogue_query(&self) -> &'static str;

    /// Asks for the number of requests that the server received more than so many seconds ago, and
    /// has not done yet.
    fn unfinished_query(&self, seconds: u64) -> String;

    /// A database that is there before any other, for what is asked of none in particular; `None`:
    /// a client need not name one.
    fn first_database(&self) -> Option<&'static str>;

    /// Its command-line client, for the first user without a password.
    fn client(&self, host: &str, port: &str) -> Vec<String>;

    /// The last arguments of that client: it prints nothing but the rows of a query.
    fn client_arguments(&self, database: Option<&str>, query: &str) -> Vec<String>;
}

/// A connection as its server receives it: bytes become commands.
pub(crate) trait Connection: fmt::Debug + Send + Sync {
    /// Takes bytes that the server has received, in order.
    fn handle_client(&mut self, bytes: &[u8], emit: &mut dyn FnMut(Command));

    /// Takes the first bytes that the server sent after what it received last.
    fn handle_server(&mut self, bytes: &[u8]);

    /// From here on bytes are missing.
    fn lose(&mut self);
}

/// Whose turn it is on a connection, see [`crate::Turns`].
pub(crate) trait Exchange: fmt::Debug + Send + Sync {
    /// Takes what the client sends, in order. True: it says only who the client is.
    fn handle_client(&mut self, bytes: &[u8]) -> bool;

    /// Takes what the server sends, in order and all of it.
    fn handle_server(&mut self, bytes: &[u8]);

    /// Is it certain that the server is done with all that the client has sent, and that it is
    /// whole?
    fn is_over(&self) -> bool;

    /// Is it certain, beyond that, that no transaction is open?
    fn holds_nothing(&self) -> bool;
}
