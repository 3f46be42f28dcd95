//! What `nicache status` shows of a `nicache forward`.

use std::fmt;
use std::net::SocketAddr;

use nicache_router::report::Report;
use serde::{Deserialize, Serialize};

use super::ports::PortStatus;

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
    /// What the card is on each link by.
    #[serde(default)]
    pub ports: Vec<PortStatus>,
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
        let About {
            name,
            pid,
            uptime_s,
            forwarder_pid,
            card_pid,
            restarts,
            cache_bytes,
            fast_path,
            ports,
            admin,
        } = &self.about;
        writeln!(
            f,
            "name         {name} forwards for {uptime_s} s (process {pid}, restarts {restarts})"
        )?;
        writeln!(
            f,
            "processes    forwarder {forwarder_pid}, card {card_pid} with {} KB for payload",
            cache_bytes / 1024
        )?;
        if ports
            .iter()
            .any(|port| port.port != "packet" || port.instead.is_some() || port.gone.is_some())
        {
            let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
            writeln!(f, "ports        {}", ports.join(", "))?;
        }
        for PortStatus { link, receive_dropped, send_dropped, .. } in ports {
            if receive_dropped + send_dropped > 0 {
                writeln!(
                    f,
                    "port         {link}: {receive_dropped} frames found no room when they came, {send_dropped} when they went"
                )?;
            }
        }
        if fast_path != "on" {
            writeln!(f, "fast path    {fast_path}")?;
        }
        if let Some(admin) = admin {
            writeln!(f, "admin        http://{admin}/")?;
        }
        self.report.fmt(f)
    }
}
