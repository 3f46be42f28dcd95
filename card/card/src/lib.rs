//! The card of nicache: a network-interface data cache between a wire port and a host port.
//!
//! ```text
//!  wire port ─▶ packet ─▶ client ─▶ request ─▶ store ── hit ──▶ transmit ─▶ wire port
//!                            │          └──────── miss ─▶ transmit ─▶ host port
//!  host port ─▶ packet ─▶ host ─▶ (splice) ─▶ wire port
//!                            └─▶ fill ─▶ watcher ─▶ store
//! ```
//!
//! Read first: `flow/mod.rs` (who owns which bytes of a connection), then `request.rs` (hit, miss, bypass), `fill.rs` and
//! `store/mod.rs` (how a reply becomes an entry and when it stops to be one).
//!
//! The card does no I/O but through its [`nicache_port::Port`]s, reads no clock, and allocates nothing on the packet path.
//! Deliberately absent: IP headers that a receiver may judge by, and connections with TCP options that it does not know; such traffic passes untouched.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod access;
pub mod bus;
mod cache_counters;
pub mod cache_limits;
mod cache_status;
mod card;
mod challenge;
mod client;
mod close;
mod config;
mod cookie;
mod counters;
mod digests;
mod earned;
mod elder;
mod emit;
mod explain;
mod fill;
mod first_level;
mod flow;
mod form;
mod handshake;
mod host;
mod in_use;
mod invalidate;
mod l0;
mod l0_program;
mod ledger;
pub mod limits;
mod link;
mod loan;
mod memo;
mod orphans;
mod outcomes;
mod packet;
mod path;
mod path_mtu;
mod patience;
mod payload;
mod ports;
mod prediction;
mod preface;
mod questions;
mod reassembly;
mod recheck;
mod rechecker;
mod request;
pub mod store;
mod strangers;
mod timers;
mod too_big;
mod transmit;
mod turns;
mod wait;
mod waiting;

pub use access::AccessRecord;
pub use cache_counters::{CacheCounters, FillAbort};
pub use card::Card;
pub use config::{CardConfig, Handshake, Patience, Rechecker};
pub use counters::{CardBypass, Counters};
pub use digests::MASKED_BYTES_MAX;
pub use earned::AgeBounds;
pub use explain::{Asked, EntryView, LastOfPage, Meeting, PageState};
pub use in_use::InUse;
pub use l0_program::{L0, L0_HEAD_BYTES, L0_REPLY_BYTES, Loan, LoanTimestamps, Published};
pub use link::{CoherenceLink, NoWatcher};
pub use orphans::{Ledger, Orphan, RECORD_BYTES};
pub use outcomes::Outcome;
pub use packet::FlowKey;
pub use path::{PathSettings, Paths};
pub use ports::Elder;
pub use recheck::Recheck;
pub use store::Entry;
pub use store::Store;
pub use store::{LeftAlone, MostUsed, Traits, Used};
pub use strangers::StrangeName;
