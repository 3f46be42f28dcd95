//! What one statement does: what it reads and writes, and what it may do besides.

use crate::key::{Constant, Restriction};
use crate::reason::Reason;
use crate::target::TableName;

/// What a statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// Changes nothing, unless a function that it calls does.
    Read,
    /// Changes rows.
    Write,
    /// Begins a transaction.
    Begin,
    /// Ends a transaction; its changes become visible.
    Commit {
        /// The next transaction begins at once.
        chain: bool,
    },
    /// Ends a transaction; its changes are undone.
    Rollback {
        /// The next transaction begins at once.
        chain: bool,
    },
    /// SAVEPOINT, RELEASE, ROLLBACK TO: no effect here, what was written before may still become
    /// visible.
    Savepoint,
    /// Sets variables of the session.
    Set(Vec<Setting>),
    /// Chooses the default database (MySQL).
    Use(Box<str>),
    /// Changes the structure of the database, and with it anything.
    Definition,
    /// Changes the structure of the connection's database, and with it anything in there, but
    /// nothing in others (PostgreSQL).
    DefinitionHere,
    /// Changes the tables that it writes, and nothing else (MySQL).
    Tables(TableChange),
    /// Makes or drops a table that only this connection sees.
    Temporary(Box<str>),
    /// LOCK TABLES and UNLOCK TABLES (MySQL: both end a transaction), FLUSH.
    Lock,
    /// Changes nothing that a page could show (VACUUM, LISTEN, RESET …).
    Nothing,
    /// May do anything.
    Everything(Reason),
}

/// What a statement does to whole tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// TRUNCATE: the rows go, the structure stays.
    Emptied,
    /// DROP TABLE.
    Dropped,
    /// Columns and indexes: ALTER TABLE, CREATE INDEX, DROP INDEX.
    Altered,
    /// CREATE TABLE with a list of columns, and no foreign key.
    Made,
}

/// A setting of the session that matters to what later statements mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Each statement is a transaction of its own, or not; or not known.
    Autocommit(Option<bool>),
    /// Reads may see what others have not committed.
    ReadUncommitted(bool),
    /// The meaning of quotes and escapes is (not) the usual.
    UsualLexing(bool),
    /// Settings are again what they were when the connection began.
    Reset,
    /// COMMIT may begin the next transaction.
    CompletionType,
    /// The language itself is another one: nothing is understood from here on.
    OtherLanguage,
    /// Anything else.
    Other,
}

/// A table in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableUse {
    /// The table.
    pub table: TableName,
    /// All of these hold for the rows that matter.
    pub rows: Vec<Restriction<Constant>>,
    /// Which rows that are there already an INSERT may change.
    pub upsert: Upsert,
}

/// Which rows that are there already an INSERT may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upsert {
    /// None, or it is not an INSERT.
    No,
    /// One that equals the new row in any unique key (REPLACE, ON DUPLICATE KEY UPDATE). The
    /// columns are those that the statement gives.
    AnyKey(Vec<Box<str>>),
}

/// What one statement does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// What it does.
    pub class: Class,
    /// What it reads.
    pub reads: Vec<TableUse>,
    /// What it writes.
    pub writes: Vec<TableUse>,
    /// Functions that are not known to be pure; each may do anything.
    pub functions: Vec<Box<str>>,
    /// The result depends on clock, chance or the server.
    pub volatile: bool,
    /// The result depends on what changes without a statement of any connection: files, settings
    /// that come from them, what the server is doing.
    pub foreign: bool,
    /// The result is what the structure of tables is (SHOW, DESCRIBE, EXPLAIN of MySQL).
    pub structure: bool,
    /// The result depends on what the connection did before (`FOUND_ROWS()`, `@x`).
    pub session: bool,
    /// The statement waits for others' locks and sees what they committed last (`FOR UPDATE`).
    pub locking: bool,
    /// What it writes is visible at once, in a transaction, too (sequences).
    pub at_once: bool,
    /// The statement is not understood and may touch everything, but it is one that leaves the
    /// session as it is.
    pub everything: Option<Reason>,
}

impl Statement {
    /// A statement that touches no table.
    pub fn of(class: Class) -> Self {
        Self {
            class,
            reads: Vec::new(),
            writes: Vec::new(),
            functions: Vec::new(),
            volatile: false,
            foreign: false,
            structure: false,
            session: false,
            locking: false,
            at_once: false,
            everything: None,
        }
    }

    /// A statement that may do anything.
    pub fn everything(reason: Reason) -> Self {
        Self::of(Class::Everything(reason))
    }
}
