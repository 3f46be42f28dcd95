//! Replays a web log against a server while writers change its files, and checks every byte that
//! comes back.
//!
//! ```text
//!  log ─▶ trace ─▶ site (files that tell their name, version and place in every line)
//!            │        ▲                     │
//!            │     writers ── steps ──▶  oracle  ◀── replies ── clients
//!            └─────────────────────────────────────────────────────┘
//! ```
//!
//! and, with files that nothing changes, measures how fast the server is (`replayer.rs`).
//!
//! Read first: `oracle.rs` (what counts as stale, torn, corrupt), `content.rs` (how a body proves
//! what it is), then `replay.rs` (who runs when).
//!
//! Deliberately absent: starting the server and the card (the command's business); conditional
//! requests, because a server's own validators have a resolution of a second.

#![forbid(unsafe_code)]

mod client;
mod content;
mod fetcher;
mod method;
mod oracle;
mod replay;
pub mod replayer;
mod report;
mod sessions;
mod shared;
mod site;
mod static_site;
mod synthetic;
mod trace;
mod writer;

pub use content::{Body, LINE_BYTES, inspect, is_patchwork, render};
pub use method::Method;
pub use oracle::{History, Judgement, Observation, State, Step, judge};
pub use replay::replay;
pub use report::{MethodReport, Report};
pub use sessions::{Session, SessionConfig, SessionRequest, Sessions};
pub use shared::{ReplayConfig, ReplayError};
pub use site::{Site, SiteError};
pub use static_site::{CheckError, StaticSite};
pub use synthetic::{SyntheticConfig, synthetic};
pub use trace::{Object, Trace, TraceCounts, TraceError, TraceRequest};
