//! What a cache would have done for a trace.
#![forbid(unsafe_code)]

mod access;
mod fenwick;
mod lru_curve;
mod recency;
mod room;
mod shards;
mod simulate;
mod split;
mod workload;

pub use access::Access;
pub use lru_curve::{is_exact, lru_curve};
pub use room::Room;
pub use shards::{Estimate, GROUPS, Shards, ShardsConfig};
pub use split::{SplitBy, split};
pub use simulate::{Cache, Counts, PeriodClock, simulate};
pub use workload::{Workload, objects_max};
