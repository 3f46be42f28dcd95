//! Packets of established connections, forwarded in the kernel: the programs of
//! `ebpf/forward.bpf.c`, and the maps that tell them what to do.
//!
//! ```text
//!  supervisor   Programs   loads them, attaches them to interfaces, and has filters for the card's packet sockets
//!  forwarder    Maps       enters connections; has the only descriptor of the map by which decisions are reached
//! ```
//!
//! Whoever of the two ends: without the forwarder the kernel empties that map, and every packet
//! goes to the card; without the card's sockets nothing is chosen; without the supervisor the
//! programs at the interfaces are detached. Nothing is pinned.
//!
//! Read first: `ebpf/forward.bpf.c`. What is entered when is decided in
//! [`nicache_forward::fast_path`].

#![deny(unsafe_code)]

mod error;
mod layout;
mod link;
mod maps;
mod programs;
#[cfg(test)]
mod tests;

pub use error::FastPathError;
pub use maps::{Handles, Maps};
pub use programs::Programs;
