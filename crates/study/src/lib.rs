//! What a cache would have done for a trace.
#![forbid(unsafe_code)]

mod access;
mod advise;
mod choice;
mod fenwick;
mod lru_curve;
mod recency;
mod room;
mod shards;
mod simulate;
mod size;
mod split;
mod sweep;
mod workload;

pub use access::Access;
pub use advise::{Advice, Objective, advise, knee};
pub use choice::{Choice, ChoiceError, PolicyName};
pub use lru_curve::{is_exact, lru_curve};
pub use room::Room;
pub use shards::{Estimate, GROUPS, Shards, ShardsConfig};
pub use simulate::{Cache, Counts, PeriodClock, simulate};
pub use size::{Size, SizeError};
pub use split::{SplitBy, split};
pub use sweep::{Curve, Point, accesses_of, sizes_between, sweep};
pub use workload::{Workload, objects_max};
