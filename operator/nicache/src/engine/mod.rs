//! What runs in the card process: a card per queue, each on a thread of its own, and the way to each of them.

mod clock;
mod hottest;
mod l0;
mod ledger;
mod life;
mod link;
mod ports;
pub mod precedence;
mod rechecker;
mod report;
mod shard;
pub mod strangers;
mod succession;

pub use clock::monotonic;
pub use hottest::Hottest;
pub use l0::{KernelL0, L0_SHARDS_MAX};
pub use ledger::{SharedLedger, ledger_bytes, orphans};
pub use life::{Life, Sign};
pub use link::WatcherLink;
pub use ports::{AnyPort, FirstPlace, Ports};
pub use rechecker::{PORTS as RECHECK_PORTS, Rechecker};
pub use report::{card_sample, describe, meaning, merge, report};
pub use shard::{Shard, Waker};
pub use succession::{ShardPort, Shards, Yielding, older_cards, wait_for};
