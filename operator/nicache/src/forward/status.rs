//! What `nicache status` shows of a `nicache forward`.

use std::fmt;
use std::net::SocketAddr;

use nicache_router::report::Report;
use serde::{Deserialize, Serialize};

/// What only the supervisor knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Its name.
    pub name: String,
    /// Process number of the supervisor.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Process number of the forwarder.
    pub forwarder_pid: u32,
    /// Process number of the card.
    pub card_pid: u32,
    /// How often card or forwarder were started again, or had a new attachment.
    pub restarts: u64,
    /// Bytes of the card's cache.
    pub cache_bytes: u64,
    /// Whether packets of established connections are forwarded in the kernel: `on`, or why not.
    #[serde(default)]
    pub fast_path: String,
    /// Where the admin port is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
}

/// A running `nicache forward`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForwardStatus {
    /// What only the supervisor knows.
    #[serde(flatten)]
    pub about: About,
    /// What the forwarder says.
    pub report: Report,
}

impl fmt::Display for ForwardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { name, pid, uptime_s, forwarder_pid, card_pid, restarts, cache_bytes, fast_path, admin } =
            &self.about;
        writeln!(f, "name         {name} forwards for {uptime_s} s (process {pid}, restarts {restarts})")?;
        writeln!(
            f,
            "processes    forwarder {forwarder_pid}, card {card_pid} with {} KB for payload",
            cache_bytes / 1024
        )?;
        if !self.report.has_fast_path {
            writeln!(f, "fast path    {fast_path}")?;
        }
        if let Some(admin) = admin {
            writeln!(f, "admin        http://{admin}/")?;
        }
        self.report.fmt(f)
    }
}
