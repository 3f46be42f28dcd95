//! Request traces: streaming readers and writers, whatever the format.
//!
//! ```text
//!  file or pipe ─▶ packing (gzip, zstd) ─▶ window ─▶ one parser per format ─▶ Record, target
//!                                            ▲
//!                                 format, by the first bytes
//! ```
//!
//! | format | file | a record's object |
//! |---|---|---|
//! | common and combined log format | `common.rs` | target |
//! | JSON lines of nginx and Caddy | `json.rs` | host and target |
//! | columns divided by tabs | `tsv.rs` | target |
//! | WorldCup98, binary | `worldcup.rs` | object number |
//! | NFS replies in columns divided by commas | `nfs.rs` | file handle |
//! | vscsi, binary, both versions | `vscsi.rs` | disk |
//! | oracleGeneral of libCacheSim, binary | `oracle_general.rs` | object number |
//! | list of keys | `keys.rs` | key |
//! | columns with names (CSV) | `csv.rs` | the column of the key |
//! | block lists of the ARC paper (`.lis`) | `lis.rs` | disk |
//! | keys as binary numbers of 32 or 64 bits | `numbers.rs` | key |
//!
//! ```
//! use nicache_trace::{Reader, Verb};
//!
//! let log = &b"h - - [01/Aug/1995:00:00:01 -0400] \"GET /x HTTP/1.0\" 200 1839\n"[..];
//! let mut reader = Reader::new(log, None)?;
//! while let Some(record) = reader.read()? {
//!     assert_eq!((record.verb, record.bytes, reader.target()), (Verb::Get, Some(1839), &b"/x"[..]));
//! }
//! assert_eq!(reader.bad().count, 0);
//! # Ok::<(), nicache_trace::ReadError>(())
//! ```
//!
//! Read first: `record.rs` (what is kept of a request), then `reader.rs`. A trace is never held in
//! memory: a reader needs less than 1 MiB beside what a packing's window takes, whatever the input.
//! Content that cannot be understood is counted and skipped; only the input itself can fail.
//!
//! What is not a trace is refused ([`ReadError::NoTrace`]): programs and scripts always, anything
//! else whose format is not given and does not show.
//!
//! Deliberately absent: packings other than gzip and zstd.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod bad;
mod calendar;
mod columns;
mod common;
mod csv;
mod field;
mod format;
mod hash;
mod json;
mod keys;
mod lis;
mod marks;
mod nfs;
mod no_trace;
mod numbers;
mod oracle_general;
mod packing;
mod parser;
mod reader;
mod recognise;
mod record;
mod tsv;
mod vscsi;
mod window;
mod worldcup;

pub use bad::{BadRecord, BadRecords, Defect};
pub use columns::{Columns, ColumnsError};
pub use format::{Format, UnknownFormat};
pub use hash::{id_of, mix};
pub use keys::KeyWriter;
pub use no_trace::NoTrace;
pub use oracle_general::write_oracle_general;
pub use packing::{Packing, ReadError};
pub use reader::Reader;
pub use record::{Coding, Marks, Record, STATUS_UNNAMED, Verb};
pub use tsv::TsvWriter;
