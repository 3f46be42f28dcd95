//! What a cache would have done for a trace.
#![forbid(unsafe_code)]

mod access;
mod lru_curve;
mod room;
mod simulate;
mod workload;

pub use access::Access;
pub use lru_curve::{is_exact, lru_curve};
pub use room::Room;
pub use simulate::{Cache, Counts, PeriodClock, simulate};
pub use workload::{Workload, objects_max};
