//! The server as clients see it. The other side is encoded and decoded by another implementation of
//! the protocol (`nfs3_types`).
//!
//! Needs root, as the server does.

mod access;
mod data;
mod directories;
mod duplicates;
mod filesystems;
mod handles;
mod hostile;
mod libnfs;
mod names;
mod oracle;

mod other_programs;
mod world;
