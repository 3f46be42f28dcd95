//! `forward.toml`: read, checked against the interfaces that there are, and made into what
//! [`nicache_forward`] takes.
//!
//! Every error names the line, shows it, and says what to do.

mod endpoints;
mod error;
mod file;
mod plan;
mod taps;
mod values;

pub use error::ConfigError;
pub use file::{FILE_BYTES_MAX, File, parse};
pub(crate) use plan::is_link_local;
pub use plan::{Check, CheckWay, Interfaced, Linking, OWN_PORTS, Plan};
pub use taps::TapPlan;
pub use values::{Kept, LinkPortKind, Socket, Span};

#[cfg(test)]
mod tests;
