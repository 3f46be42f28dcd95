//! What runs in the card process: a card per queue, each on a thread of its own, and the way to
//! each of them.

mod clock;
mod hottest;
mod l0;
mod ledger;
mod life;
mod link;
mod ports;
pub(crate) mod precedence;
mod rechecker;
mod report;
mod shard;
pub(crate) mod strangers;
mod succession;

pub(crate) use clock::monotonic;
pub(crate) use hottest::Hottest;
pub(crate) use l0::{KernelL0, L0_SHARDS_MAX};
pub(crate) use ledger::{SharedLedger, ledger_bytes, orphans};
pub(crate) use life::{Life, Sign};
pub(crate) use link::{Verdicts, WatcherLink};
pub(crate) use ports::{AnyPort, FirstPlace, Ports, tap, xdp_sockets};
pub(crate) use rechecker::{PORTS as RECHECK_PORTS, Rechecker};
pub(crate) use report::{card_sample, describe, meaning, merge, report};
pub(crate) use shard::{Shard, Waker};
pub(crate) use succession::{ShardPort, Shards, Yielding, older_cards, wait_for};
