//! Which replies become entries, and which entries go: replacement and admission behind one trait.
//!
//! Read first: Bos et al. 2009, sections 2.1 and 2.2. The card and the trace simulators run the
//! same code, so a policy has no clock, no I/O and no randomness of its own; time comes as
//! [`Policy::handle_period_end`], randomness as a seed.
//!
//! Everything is allocated at construction: a [`Table`] of fixed capacity found through a hash,
//! [`List`]s whose links lie in the table's values, and [`Heap`]s whose values know their position.
//! All are public, for policies in other crates.
//!
//! Deliberately absent: the entries themselves, their bytes and their validity (the card's
//! directory), and Vary (a variant has a key of its own).

#![forbid(unsafe_code)]
#![deny(clippy::disallowed_methods)]

mod arc;
mod belady;
mod chosen_policy;
mod clock;
mod fifo;
mod gdsf;
mod heap;
mod lfu;
mod lirs;
mod list;
mod lrfu;
mod lru;
mod mru;
mod ordered;
mod parameters;
mod policy;
mod policy_name;
mod popularity;
mod queue;
mod random;
mod s3_fifo;
mod second_hit;
mod sieve;
mod size_limit;
mod stages;
mod table;
mod two_q;
mod w_tiny_lfu;

pub use arc::Arc;
pub use belady::Belady;
pub use chosen_policy::{ChosenPolicy, ChosenPolicyError};
pub use clock::Clock;
pub use fifo::Fifo;
pub use gdsf::{Gdsf, GdsfConfig, GdsfCost};
pub use heap::{Heap, Heaped, Position};
pub use lfu::Lfu;
pub use lirs::{Lirs, LirsConfig};
pub use list::{Linked, Links, List};
pub use lrfu::{Lrfu, LrfuConfig};
pub use lru::Lru;
pub use mru::Mru;
pub use ordered::Ordered;
pub use parameters::{ParameterError, Parameters};
pub use policy::{Admission, Incoming, Key, Occupancy, Policy, Removal, TableFull};
pub use policy_name::{PolicyName, UnknownPolicy};
pub use popularity::{FORGOTTEN, Popularity, PopularityConfig, REFUSALS_FREE, VICTIM_LOOKS};
pub use random::Random;
pub use s3_fifo::{S3Fifo, S3FifoConfig};
pub use second_hit::SecondHit;
pub use sieve::Sieve;
pub use size_limit::SizeLimit;
pub use table::{Place, Table};
pub use two_q::{TwoQ, TwoQConfig};
pub use w_tiny_lfu::{WTinyLfu, WTinyLfuConfig};
