//! What `nicache status` shows of a `nicache serve`.

use std::fmt;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::messages::HostReport;

/// A running `nicache serve`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServeStatus {
    /// The name of the running `nicache serve`.
    pub name: String,
    /// Process number of the supervisor.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// The folder.
    pub root: String,
    /// Where files are served, card by card.
    pub urls: Vec<String>,
    /// Process number of the host.
    pub host_pid: u32,
    /// Process numbers of the cards.
    pub card_pids: Vec<u32>,
    /// Interfaces of the cards.
    pub interfaces: Vec<String>,
    /// Published addresses.
    pub published: Vec<String>,
    /// Where the admin port is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<SocketAddr>,
    /// Bytes of each card's cache.
    pub cache_bytes: u64,
    /// Why no file is kept, if none is.
    pub not_keeping: Option<String>,
    /// How often card or host were started again, or had a new attachment.
    pub restarts: u64,
    /// For how long a modelled bus has been taken, in nanoseconds.
    pub bus_busy_ns: Option<u64>,
    /// What of that was overhead, in bytes' time.
    pub bus_overhead_bytes: Option<u64>,
    /// What the host says.
    pub report: HostReport,
}

impl fmt::Display for ServeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |name: &str| self.report.counters.get(name).copied().unwrap_or(0);
        writeln!(
            f,
            "{} serves {} for {} s (process {})",
            self.name, self.root, self.uptime_s, self.pid
        )?;
        if let Some(reason) = &self.not_keeping {
            writeln!(f, "  NOTHING IS KEPT: {reason}")?;
        }
        writeln!(
            f,
            "  host process {}: {} requests, {} connections, {:.1} MB of content, {} pages, restarts {}",
            self.host_pid,
            of("requests"),
            of("connections"),
            of("content_bytes") as f64 / 1e6,
            of("pages"),
            self.restarts
        )?;
        for (number, url) in self.urls.iter().enumerate() {
            let pid = self.card_pids.get(number).copied().unwrap_or(0);
            writeln!(
                f,
                "  card {number} at {url} (process {pid}, {} KB of memory)",
                self.cache_bytes / 1024
            )?;
            let Some(card) = self.report.cards.get(number) else { continue };
            let of = |name: &str| card.counters.get(name).copied().unwrap_or(0);
            let sent = (of("cached_bytes") + of("copied_bytes")).max(1) as f64;
            let crossed = card.bus.get("content").copied().unwrap_or(0) as f64;
            writeln!(
                f,
                "    blocks {}: {} hits, {} inserted, {} evicted, {} invalidated; {:.1} % of content did not cross the bus",
                of("blocks"),
                of("block_hits"),
                of("blocks_inserted"),
                of("blocks_evicted"),
                of("blocks_invalidated"),
                100.0 * (1.0 - crossed / sent)
            )?;
            let classes: Vec<String> =
                card.bus.iter().map(|(class, bytes)| format!("{bytes} {class}")).collect();
            writeln!(f, "    bus bytes: {}; {} transfers", classes.join(", "), card.transfers)?;
        }
        Ok(())
    }
}
