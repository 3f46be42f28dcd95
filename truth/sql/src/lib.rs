//! What SQL statements read and write, from the bytes that a database server receives.
//!
//! Read first: MariaDB's client/server protocol, PostgreSQL's frontend/backend protocol 3.
//!
//! A page may be kept only until something that it was made of changes. For a database that is
//! known from the statements: of the program that makes the page (what it reads) and of every
//! client of the server (what is written and when it is committed). This crate turns the received
//! bytes of one connection, at the server's own socket, into [`Event`]s ([`Session`]); a
//! statement's tables and rows come from its text ([`parse()`]), views, triggers, foreign keys and
//! the like from the [`Catalogue`] ([`expand`]); [`conflicts`] says whether a write may change what
//! was read.
//!
//! It answers one question: *may this change that?*, and says yes unless it is certain that not.
//! Nothing here does I/O, reads a clock, or panics on hostile input. Whatever is not understood is
//! [`Event::Everything`].
//!
//! # The caller's part
//!
//! * **Order.** One [`Session`] per connection; its bytes in order, one call per `recv`.
//!   [`Session::handle_client`] is called before the server gets on with the bytes, or else the
//!   caller counts the bytes themselves as [`Event::Everything`] until it was (except where
//!   [`is_certain_read`] spares that). After each the first bytes of what the server sent go to
//!   [`Session::handle_server`].
//! * **A request** is the events up to [`Event::RequestEnd`], and ends when the server has *sent*
//!   its next reply in full; a client has at most one, but may send ahead. From the call until
//!   then, what [`Event::BecomesVisible`], [`Event::InProgress`] or [`Event::Everything`] name is
//!   in doubt: readers may see the old or the new. So it counts as changed at the call *and* when
//!   the reply has been sent; a page that read it in between is not kept. If a connection has sent
//!   another request meanwhile, the earlier one is over.
//! * [`Event::InProgress`] is a change that is probably not visible yet. It counts as changed like
//!   the others (the transaction may have ended unseen), and is announced again with
//!   [`Event::BecomesVisible`] when it may be committed. Whoever needs to know of a commit alone
//!   may look at [`Event::BecomesVisible`] only.
//! * **Reads** are in [`Event::Statement`]. They are as of the moment if
//!   [`Execution::snapshot_age`] is 0. Otherwise a transaction may be open, and they may be as of
//!   that many [`Event::Statement`]s of the same connection before (at most): what has changed
//!   since then is not in them. A caller that keeps a page must note its revisions before the first
//!   of those, or not keep it. [`Execution::reads_uncommitted`]: others' changes in progress may be
//!   in them; what is rolled back later is announced by nobody, so such a page is not kept.
//!   [`Footprint::volatile`] and [`Footprint::session`]: clock, chance, or what the connection did
//!   before are in them, too.
//! * LOCK TABLES changes nothing about this: what is written under a lock is announced as it is
//!   written.
//! * **The end of a connection** needs no call: what was not committed is undone. What its last
//!   request may have done is in doubt until the server has closed its side.
//! * **The catalogue** is fetched before the first page is kept, and taken away (`None`) from
//!   [`Event::SchemaChanged`] until a new one was fetched after that request ended. After
//!   [`Event::TablesChanged`] it stays, once it is changed ([`Catalogue::change`]); so is one that
//!   is fetched before that request ended. It may be fetched late and seldom: without it all that
//!   happens is that every statement touches everything in reach.
//! * [`Reason::Delayed`] changes come after the reply, and [`Catalogue::has_hidden_writers`] ones
//!   without any statement: no page that reads the database may then be kept longer than what
//!   cannot be seen allows. The same holds for servers that this one is a replica of, and for
//!   programs that write the files of the database themselves.
//!
//! # Deliberately coarse
//!
//! Names without a schema are of any schema in PostgreSQL (its search path is not followed).
//! Triggers count for every kind of change, cascades for every change of the parent, and whoever
//! calls a trigger function of PostgreSQL touches everything. Rows are told apart by constants in
//! indexed columns of whole numbers and strings only. PostgreSQL connections whose beginning was
//! not seen stay unknown; its cursors, PREPARE by text, CALL and DO, too. Functions that operators
//! and casts of PostgreSQL call are taken to be pure.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod catalogue;
mod client;
mod coarse;
mod command;
mod definition;
mod dialects;
mod footprint;
mod functions;
mod key;
mod narrow;
mod parse;
mod reason;
mod routine_body;
mod session;
mod statement;
mod steer;
mod target;
mod transaction;
mod turns;
mod walk;
mod whole_reply;

pub use catalogue::{
    Catalogue, CatalogueError, ChangedTables, Defaults, expand, query as catalogue_query,
};
pub use coarse::{COARSE_BYTES, COARSE_TEXT_BYTES, is_certain_read};
pub use dialects::Dialect;
pub use footprint::{Context, Footprint};
pub use key::{Access, ColumnKind, Constant, Literal, Restriction, Value, conflicts};
pub use parse::{STATEMENT_BYTES_MAX, is_plain, parse};
pub use reason::Reason;
pub use session::{Event, Execution, Parse, Session, Uncached};
pub use statement::{Class, Setting, Statement, TableChange, TableUse, Upsert};
pub use target::{TableName, Target};
pub use turns::Turns;
pub use whole_reply::is_whole_reply;
