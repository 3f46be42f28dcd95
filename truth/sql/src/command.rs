//! What the bytes of one connection become: commands.

use std::sync::Arc;

use crate::key::Literal;
use crate::reason::Reason;

/// What a client tells its server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    /// Run a text of one or several statements.
    Query(Vec<u8>),
    /// Run a prepared statement.
    Execute {
        text: Arc<[u8]>,
        parameters: Vec<Literal>,
        /// Whatever was sent before it in the same request cannot have failed.
        surely: bool,
    },
    /// The default database is another one, or not known.
    Database(Option<Box<str>>),
    /// The connection begins anew: nothing that was set before holds.
    Reset,
    /// May do anything.
    Everything(Reason),
    /// PostgreSQL: what was executed so far becomes visible.
    Sync,
    /// The server answers, and then the request is over.
    RequestEnd,
    /// Quotes and escapes are not certain.
    UnusualLexing,
}

/// Prepared statements of one connection, at most.
pub(crate) const PREPARED_MAX: usize = 1024;
/// Bytes of the texts of all prepared statements of one connection, at most.
pub(crate) const PREPARED_BYTES_MAX: usize = 4 << 20;
