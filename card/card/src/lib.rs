//! The card of nicache: a network-interface data cache between a wire port and a host port.
//!
//! ```text
//!  wire port ─▶ packet ─▶ client ─▶ request ─▶ cache ── hit ──▶ transmit ─▶ wire port
//!                            │          └──────── miss ─▶ transmit ─▶ host port
//!  host port ─▶ packet ─▶ host ─▶ (splice) ─▶ wire port
//!                            └─▶ cache ─▶ watcher ─▶ cache
//! ```
//!
//! Read first: `flow/mod.rs` (who owns which bytes of a connection), then `request.rs` (hit, miss,
//! bypass). How a reply becomes an entry, and when it stops being one, is in [`nicache_cache`].
//!
//! The card does no I/O but through its [`nicache_port::Port`]s, reads no clock, and allocates
//! nothing on the packet path. Deliberately absent: IP headers that a receiver may judge by, and
//! connections with TCP options that it does not know; such traffic passes untouched.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod access;
mod answer;
pub mod bus;
mod card;
mod challenge;
mod client;
mod close;
mod config;
mod cookie;
mod counters;
mod emit;
mod explain;
mod first_level;
mod flow;
mod form;
mod forward;
mod handshake;
mod host;
mod in_use;
mod invalidate;
mod l0;
mod l0_program;
mod ledger;
pub mod limits;
mod loan;
mod older;
mod orphans;
mod own_ports;
mod packet;
mod path_mtu;
mod patience;
mod payload;
mod ports;
mod prediction;
mod preface;
mod reassembly;
mod rechecker;
mod request;
mod timers;
mod too_big;
mod transmit;
mod turns;
mod waiting;

pub use access::AccessRecord;
pub use card::Card;
pub use config::{AsProxy, CardConfig, Handshake, Patience, Rechecker};
pub use counters::{CardBypass, Counters};
pub use explain::{Asked, EntryView, LastOfPage, Meeting, PageState};
pub use in_use::InUse;
pub use l0_program::{L0, L0_HEAD_BYTES, L0_REPLY_BYTES, Loan, LoanTimestamps, Published};
pub use nicache_tcp::frame::FlowKey;
pub use orphans::{Ledger, Orphan, RECORD_BYTES};
pub use own_ports::OwnPorts;
pub use ports::OlderCard;
