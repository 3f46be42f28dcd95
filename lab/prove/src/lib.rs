//! Reads the pages of a site while somebody edits what they show, and judges every reply.
//!
//! ```text
//!  editor ── begin, end of each edit ──▶ history ─┐
//!  (a thread per subject)                         ├─▶ verdict ─▶ report
//!  readers ── sent, ended, versions shown ────────┘
//!  (connections over a few threads)
//! ```
//!
//! A *subject* is a piece of content with a version, a number that its edits count up. Pages show
//! the versions of one or several subjects as *markers*. Nothing else is assumed about the site: it
//! may be a file, a script with includes, a row of a database, all of them.
//!
//! Read first: `history.rs` (which versions a reply may show), `check.rs` (the verdict on a reply),
//! then `prove.rs` (who runs when). An application that knows how to edit itself implements
//! [`Editor`]; commands are [`CommandEditor`]s.
//!
//! Deliberately absent: starting the site (the caller's business); requests other than GET.

#![forbid(unsafe_code)]

mod check;
mod command;
mod connection;
mod editor;
mod excerpt;
mod floor;
mod history;
mod log;
mod marker;
mod page;
mod plan;
mod prove;
mod reader;
mod report;
mod schedule;
mod sighting;
mod warm_up;

pub use check::{Breach, Finding};
pub use command::CommandEditor;
pub use editor::{EditError, Editor};
pub use history::{History, Possible, Verdict};
pub use marker::{Marker, MarkerError};
pub use page::{Page, Popularity};
pub use plan::{Direct, Plan, Readers, Subject};
pub use prove::{Progress, ProveError, prove};
pub use report::{Outcome, PageReport, Report, SubjectReport, Violation};
