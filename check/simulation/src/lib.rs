//! The whole system in one thread, on one virtual clock, from one seed.
//!
//! ```text
//! clients (smoltcp) ── bad wire ──▶ CARD (the real one) ── host port ──▶ server (smoltcp + a model of HTTP and files)
//!                                    │        ▲
//!                     revision table │        │ verdicts
//!                          writers ──┴─▶ watcher model
//! ```
//!
//! A seed and a [`Mode`] decide everything: offloads, handshake mode, memory, options and sequence
//! numbers of SYNs, what clients ask and how they cut it into segments, what files hold and when
//! they change, who dies when. While a run goes on, checkers compare what clients got with what the
//! server did ([`oracle`]), and at its end what the card still holds.
//!
//! The checkers are tested, too: a [`Mutant`] is a fault in a model, and each must be found.
//!
//! Read first: `world.rs` (the loop), `oracle.rs` (what is right), `scenario.rs` (what is drawn).
//!
//! Deliberately absent: several cards on one table, IPv6, ICMP.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod client;
mod client_reply;
mod device;
mod events;
mod files;
mod host_log;
mod link;
mod machine;
mod mutant;
pub mod oracle;
mod random;
mod range;
mod request;
mod scenario;
mod server;
mod server_counts;
mod server_reply;
mod sweep;
mod trace;
mod watcher;
mod world;
mod writer;

pub use events::{Events, KINDS};
pub use mutant::Mutant;
pub use scenario::Mode;
pub use sweep::{Sweep, sweep};
pub use world::{Outcome, run};
