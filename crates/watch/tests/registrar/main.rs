//! Fills judged on real files, and entries judged again: a thread in a network namespace of its own plays the server.
//!
//! Needs the capabilities to load eBPF programs and an ext4 file system.

#[path = "../common/mod.rs"]
mod common;
mod fills;
mod reinstatements;
mod scene;
