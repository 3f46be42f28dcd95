//! What SQL statements read and write, from the bytes that a database server receives.
#![forbid(unsafe_code)]

mod catalogue;
mod coarse;
mod footprint;
mod functions;
mod key;
mod narrow;
mod protocol;
mod reason;
mod session;
mod statement;
mod steer;
mod target;
mod transaction;
mod walk;

pub use catalogue::{Catalogue, CatalogueError, Defaults, expand, query as catalogue_query};
pub use coarse::{COARSE_BYTES, COARSE_TEXT_BYTES, is_certain_read};
pub use footprint::{Context, Footprint};
pub use key::{Access, ColumnKind, Constant, Literal, Restriction, Value, conflicts};
pub use reason::Reason;
pub use session::{Event, Execution, Parse, Session, Uncached};
pub use statement::{Class, STATEMENT_BYTES_MAX, Setting, Statement, TableUse, Upsert, is_plain, parse};
pub use target::{Dialect, TableName, Target};
