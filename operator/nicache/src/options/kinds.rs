//! Settings that are one of a few words.

use clap::ValueEnum;
use nicache_xdp::CardPort;
use serde::{Deserialize, Serialize};

/// `--port`: by what the card is on an existing interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PortKind {
    /// What works on every Ethernet: packet sockets.
    Auto,
    /// Packet sockets with virtio-net headers: super-frames, on any Ethernet.
    Packet,
    /// AF_XDP sockets: zero-copy where the driver has it. --queues is how many the interface has.
    Xdp,
}

impl PortKind {
    /// What a card of so many queues receives by.
    pub(crate) fn of_card(self, queues: u16) -> CardPort {
        match self {
            Self::Auto | Self::Packet => CardPort::Packet,
            Self::Xdp => CardPort::Xdp { queues: queues.into() },
        }
    }
}

/// Who completes the TCP handshake with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HandshakeKind {
    /// The server; the card takes over at the first hit.
    PassThrough,
    /// The card.
    Card,
}

/// Who watches what the server looks at, and who changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WatchKind {
    /// The kernel: sees every program.
    Kernel,
    /// A library in the server's programs: sees what these do.
    Preload,
}

/// When a PHP-FPM that was started before nicache is reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ReloadPhp {
    /// At the first moment at which it has no request.
    Idle,
    /// Never. Its pages are kept after you reload it yourself.
    Never,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs: one JSON object per line.
    Json,
}
