//! The kinds of database servers whose statements are followed: one folder each.
//!
//! To add one: a folder with a [`Database`](database::Database), its lines in [`kinds`], its
//! process's name in `preload/memory.c`, and the documentation (docs/dynamic.md). In the kernel
//! `ebpf/shared.h` gives it the same number, and `ebpf/sql.h` knows its process by name and tells
//! when a request to it may change something.

pub(crate) mod database;
pub(crate) mod kinds;
pub(crate) mod processes;
mod socket;
pub(crate) mod sql;
