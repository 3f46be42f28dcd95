//! What runs in the card process: a card per queue, each on a thread of its own, and the way to each of them.

mod link;
mod rechecker;
mod report;
mod shard;

pub use link::WatcherLink;
pub use rechecker::{PORTS as RECHECK_PORTS, Rechecker};
pub use report::{merge, report};
pub use shard::{Shard, Waker, monotonic};
