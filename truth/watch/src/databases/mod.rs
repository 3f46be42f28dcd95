//! The kinds of database servers whose statements are followed: one folder each.
//!
//! To add one: a folder of [`kinds`], its lines in their list (`kinds/mod.rs`), and the
//! documentation (docs/dynamic.md). The folder has a [`Database`](database::Database);
//! `processes.h`, by which both witnesses know its processes; and `received.h`, by which the
//! kernel's one tells when a request may change something. The build script finds these headers.

pub(crate) mod database;
pub(crate) mod kinds;
pub(crate) mod processes;
mod socket;
pub(crate) mod sql;
