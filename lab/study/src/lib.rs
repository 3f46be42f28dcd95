//! What a cache would have done for a trace.
#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod access;
mod advise;
mod blocks;
mod census;
mod choice;
mod counts;
mod fenwick;
mod load;
mod load_config;
mod lru_curve;
mod numbers;
mod pfoo;
mod recency;
mod room;
mod sample;
mod shards;
mod simulate;
mod sort;
mod split;
mod spread;
mod sum;
mod sweep;
mod variants;
mod workload;

pub use access::{Access, TooManyObjects};
pub use advise::{Advice, Objective, advise, knee};
pub use blocks::BLOCK_BYTES;
pub use census::{Census, Counted, PERCENTILES, Popular, Summary, Zipf};
pub use choice::{Choice, ChoiceError};
pub use counts::Counts;
pub use load::{Loader, Totals};
pub use load_config::{Changes, LoadConfig, Replies, Unit, Variants, Writes};
pub use lru_curve::{is_exact, lru_curve};
pub use nicache_memory::{Size, SizeError};
pub use nicache_policy::{ParameterError, Parameters, PolicyName, UnknownPolicy};
pub use pfoo::Bound;
pub use room::Room;
pub use shards::{Estimate, GROUPS, Shards, ShardsConfig};
pub use simulate::{Cache, PeriodClock, simulate};
pub use sort::{Reason, Sort, sent_bytes, sort};
pub use split::{SplitBy, split};
pub use spread::spread;
pub use sweep::{Curve, Point, accesses_of, sizes_between, sweep};
pub use variants::coded_object;
pub use workload::{Sampled, Workload, objects_max};
