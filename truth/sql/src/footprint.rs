//! What one execution of a statement reads and writes, with the structure of the database taken
//! into account.

use crate::key::Access;
use crate::reason::Reason;

/// Where a statement is executed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context<'a> {
    /// PostgreSQL: the database of the connection.
    pub catalog: Option<&'a str>,
    /// MySQL: the default database.
    pub schema: Option<&'a str>,
    /// Temporary tables of the connection.
    pub temporary: &'a [Box<str>],
}

/// What an execution reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// All that the result may depend on.
    pub reads: Vec<Access>,
    /// All that may change.
    pub writes: Vec<Access>,
    /// Why it is everything, if it is.
    pub everything: Option<Reason>,
    /// The result depends on clock, chance or the server as well.
    pub volatile: bool,
    /// The result depends on contents that change without a statement of any connection: tables
    /// whose contents come from elsewhere, and what the server says of its own work; or the
    /// structure is not known, and it may.
    pub foreign: bool,
    /// The result depends on what the connection did before as well.
    pub session: bool,
    /// The result is not that of the transaction's snapshot but of the moment.
    pub locking: bool,
    /// What is written may be visible before the transaction ends.
    pub at_once: bool,
}
