//! Settings of the commands.

pub mod study;

pub use nicache::Milliseconds;
