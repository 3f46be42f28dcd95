//! Scripts of packets in time, run against the card of this workspace, the stack of its host, and
//! Linux.
//!
//! ```text
//!  text ─▶ parse ─▶ script ─▶ runner ─┬▶ ours: the card between wires in memory, virtual time
//!                                     ├▶ host: the stack of `nicache serve`, virtual time
//!                                     └▶ linux: a TAP in a network namespace, the kernel's TCP, real time
//! ```
//!
//! A script is the client, segment by segment; what runs behind the wire is the server. Numbers in
//! it are relative, the bytes of requests and replies are known from their places, and every
//! segment of the server must be expected. The form of scripts is told in `docs/packet-scripts.md`,
//! the scripts themselves are in `scripts/`.
//!
//! Read first: `script.rs` (what a script says), `runner.rs` (what that means), `backend.rs`.
//!
//! Deliberately absent: opening connections from the server, IP fragments, system calls one by one.

#![forbid(unsafe_code)]

mod backend;
mod connection;
mod content;
mod describe;
mod endpoint;
mod host;
mod injection;
mod linux;
mod matching;
mod option;
mod ours;
mod packet;
mod parse;
mod runner;
mod script;
mod trace;

pub use backend::{Backend, BackendError};
pub use host::Host;
pub use linux::Linux;
pub use ours::Ours;
pub use parse::{ParseError, parse};
pub use runner::{Failure, RunError, run};
pub use script::{Script, ServerAction, Side};
pub use trace::Trace;
