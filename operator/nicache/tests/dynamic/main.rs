//! Dynamic pages of real programs behind `nicache run`: nothing that changes them may leave an old
//! one behind (docs/coherence.md).
//!
//! Every case first sees hits of its page, so none passes because nothing was kept. Where a
//! page may never be kept, the case says so.
#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod check;
#[allow(dead_code, reason = "the tests of databases on other machines use all of it")]
mod far;
#[allow(dead_code, reason = "mounts alone are made here, and no file systems")]
#[path = "../../../../truth/watch/tests/witness/filesystems/ground.rs"]
mod ground;
mod stage;

mod ages;
mod attribution;
mod clients;
mod databases;
mod decisions;
mod explain;
mod files;
mod fronts;
mod heads;
mod hiding;
mod living;
mod machine;
mod outside;
mod overlays;
mod paths;
mod postgres;
mod preload;
mod privacy;
mod processes;
mod programs;
mod proxies;
mod rules;
mod sqlite;
mod unseen;
