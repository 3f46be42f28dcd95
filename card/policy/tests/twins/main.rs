//! Policies against naive models that search: all calls in random order, and whole traces.

mod arc;
mod belady;
mod gdsf;
mod golden;
mod lirs;
mod lrfu;
#[path = "../traces/mod.rs"]
mod traces;
mod twin;
mod w_tiny_lfu;
