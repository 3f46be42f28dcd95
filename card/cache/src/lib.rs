//! The cache of a card: replies in card memory, and all that decides whether one becomes an entry,
//! and whether an entry is served.
//!
//! ```text
//!  request ─▶ memo ─▶ store ── found ──▶ an entry, pinned until its reply is acknowledged
//!                       └── absent ──▶ wait, or fill ─▶ questions ─▶ watcher
//!  reply ───▶ fill ─▶ (whole) ─▶ watcher's verdict ─▶ store      └─▶ answers ─▶ fill, store, wait
//! ```
//!
//! Read first: `fill/mod.rs` and `store/mod.rs` (how a reply becomes an entry and when it stops
//! being one), then `wait.rs`.
//!
//! The cache is state machines: bytes, keys and times come as arguments. Whoever waits is a name
//! that the caller chooses ([`Waiters`]). Deliberately absent: frames, connections, ports, a clock.
//! It takes time and addresses from `nicache_tcp`, and nothing else.

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod cache_status;
mod counters;
mod digests;
mod earned;
mod fill;
pub mod limits;
mod link;
mod memo;
mod outcomes;
mod path;
mod questions;
mod recheck;
mod store;
mod strangers;
mod wait;

pub use cache_status::{CacheStatus, LINE_BYTES_MAX, Miss};
pub use counters::{Counters, FillAbort};
pub use digests::MASKED_BYTES_MAX;
pub use earned::AgeBounds;
pub use fill::{Answered, Asked, FillId, Fills, Unanswered, host_of, target_of};
pub use link::{CoherenceLink, NoWatcher};
pub use memo::{Meaning, Memo};
pub use outcomes::{Bypassed, LastReply, Outcome};
pub use path::{PathSettings, Paths};
pub use questions::Questions;
pub use recheck::{Example, Recheck, Rechecks};
pub use store::{
    Entry, EntryId, EntryState, Executor, Found, LOOK_AHEAD, Learned, LearnedParts, Lesson,
    LessonForm, MostUsed, Proxy, PutAside, Store, Traits, Used, Validators, VaryRules, Who,
};
pub use strangers::{StrangeName, Strangers};
pub use wait::{Awaited, WAITERS_MAX, Wait, Waiters};
