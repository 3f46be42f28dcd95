//! Policies against naive models: all calls in random order, and whole traces.

mod clock;
mod endurance;
mod filters;
mod golden;
mod lfu_da;
mod mru;
mod naive;
mod random;
mod s3_fifo;
mod sieve;
#[path = "../traces/mod.rs"]
mod traces;
mod two_q;
