//! What supervisor, card and host of `nicache serve` tell each other: JSON messages with open files
//! attached, on the socket that a child has at its start ([`crate::setup`]).

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use nicache_admin::Description;
use nicache_counters::Counter;
use nicache_host::files::SiteCounters;
use nicache_host::server::{LiveCounters, ServiceCounters};
use nicache_host::stack::StackCounters;
use nicache_watch::Coverage;
use serde::{Deserialize, Serialize};

use crate::options::{CoherenceKind, LogFormat, PolicyKind, RouteKind, SegmentationKind};

/// Setup of a card. Attached: the files of its ports in order; with `bus`, the bus's clock; then
/// what [`ToFirmware::Attach`] has.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FirmwareSetup {
    /// Form of log lines.
    pub log_format: LogFormat,
    /// The card's number.
    pub card: u16,
    /// Bytes of its cache.
    pub cache_bytes: u32,
    /// The card's ports.
    pub ports: Vec<PortSetup>,
    /// The modelled bus, as its option is spelled.
    pub bus: Option<String>,
    /// The card tells what it counts ([`FromFirmware::Counted`]), and goes on without a port that
    /// breaks. Supervisors of earlier versions understand neither.
    #[serde(default)]
    pub tells: bool,
    /// The number of the attachment.
    #[serde(default)]
    pub attachment: Option<u64>,
}

/// A port of a card.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum PortSetup {
    /// Attached: a TAP queue.
    Tap {
        /// The kernel may hand over frames that are longer than the link takes, for the host to
        /// cut.
        super_frames: bool,
    },
    /// Attached: a packet socket.
    Packet,
    /// AF_XDP sockets on all queues. Attached: the map of sockets, a packet socket for what goes to
    /// the kernel, and with `probe` the program at the interface ([`nicache_xdp::Sieve`]).
    Xdp {
        /// The interface, in the card's network namespace.
        interface: String,
        /// Its queues, from 0 on.
        queues: u32,
        /// Probe frames are sent first.
        probe: bool,
    },
    /// Its interface is gone: nothing is received, and what is sent is dropped.
    Absent,
}

/// Supervisor to card.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToFirmware {
    /// A new attachment. Attached: host memory, then the three files of the attachment.
    Attach {
        /// Its number.
        #[serde(default)]
        attachment: Option<u64>,
    },
}

/// Card to supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FromFirmware {
    /// The attachment is in use.
    Ready,
    /// A port cannot be used as it is, and the card ends.
    Unfit {
        /// Its number.
        port: usize,
        /// Why the port cannot be used.
        reason: String,
    },
    /// The host is broken; another attachment is needed.
    Broken {
        /// The number of the attachment.
        #[serde(default)]
        attachment: Option<u64>,
    },
    /// What it has counted, about once a second while that changes.
    Counted(CardCounted),
}

/// What a card has counted since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CardCounted {
    /// Counters by name ([`nicache_firmware::FirmwareCounters`]).
    pub counters: BTreeMap<String, u64>,
    /// Of each port.
    pub ports: Vec<PortCounted>,
}

/// What a port of a card has counted since the card's start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PortCounted {
    /// Frames that arrived and found no room, or were malformed.
    pub receive_dropped: u64,
    /// Frames that were to be sent later and were then not taken.
    pub send_dropped: u64,
    /// It is broken, and why.
    pub lost: Option<String>,
}

/// A card, as the host is told of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct CardAddress {
    /// The host's MAC address on its wire.
    pub mac: [u8; 6],
    /// The host's address there.
    pub address: Ipv4Addr,
    /// MAC address of the card's interface, which is the other end of the wire.
    pub peer_mac: [u8; 6],
}

/// Something that is served live.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LivePath {
    /// By which it is asked for.
    pub path: String,
    /// A FIFO, attached; else a playlist below the folder.
    pub is_fifo: bool,
}

/// Setup of the host. Attached: host memory; the FIFOs of `live` in order; with `witness_files`,
/// these: control page, revision words, and links, which only need to stay open. Cards are attached
/// afterwards.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HostSetup {
    /// Form of log lines.
    pub log_format: LogFormat,
    /// The folder that is served.
    pub root: Vec<u8>,
    /// Names of index files.
    pub index: Vec<String>,
    /// Whether folders are listed.
    pub lists: bool,
    /// TCP ports.
    pub ports: Vec<u16>,
    /// Connections at most.
    pub connections: u32,
    /// Pages of the page cache.
    pub pages: u32,
    /// The cards.
    pub cards: Vec<CardAddress>,
    /// Bytes of each card's cache.
    pub cache_bytes: u32,
    /// Replacement policy.
    pub policy: PolicyKind,
    /// When an outdated block goes.
    pub coherence: CoherenceKind,
    /// By which card a client is served.
    pub route: RouteKind,
    /// Who cuts content into segments.
    pub segmentation: SegmentationKind,
    /// What is served live.
    pub live: Vec<LivePath>,
    /// File systems whose files may be kept.
    pub watched: WatchedFileSystems,
    /// Number of files of the kernel witness; 0: nothing is watched, and nothing kept.
    pub witness_files: usize,
}

/// File systems whose every change the kernel witness sees.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct WatchedFileSystems {
    /// ext4, ext3 and ext2.
    pub ext4: bool,
    /// XFS.
    pub xfs: bool,
    /// Btrfs.
    pub btrfs: bool,
    /// tmpfs.
    pub tmpfs: bool,
}

impl WatchedFileSystems {
    /// The file systems that a loaded witness watches.
    pub(crate) fn of(coverage: &Coverage) -> Self {
        let &Coverage { ext4, xfs, btrfs, tmpfs, .. } = coverage;
        Self { ext4, xfs, btrfs, tmpfs }
    }

    /// The file systems as a coverage, for whoever decides whether a file may be kept.
    pub(crate) fn coverage(self) -> Coverage {
        let Self { ext4, xfs, btrfs, tmpfs } = self;
        Coverage { ext4, xfs, btrfs, tmpfs, ..Coverage::default() }
    }
}

/// Supervisor to host.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ToHost {
    /// A card is there anew. Attached: the three files of the attachment.
    Attach {
        /// Its number.
        card: u16,
        /// The number of the attachment.
        attachment: u64,
    },
    /// A card is gone.
    Detach {
        /// Its number.
        card: u16,
    },
    /// Answer this with [`FromHost::Report`].
    Report,
    /// The end: tell all clients, then answer this with [`FromHost::Ended`].
    End,
}

/// Host to supervisor.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum FromHost {
    /// Requests are answered as soon as there is a card.
    Ready,
    /// A card is broken; another attachment is needed.
    Broken {
        /// Its number.
        card: u16,
        /// The number of the attachment.
        attachment: Option<u64>,
    },
    /// How much of everything so far.
    Report(Box<HostReport>),
    /// All clients were told of the end, or there was no time left for it.
    Ended,
}

/// What a host has done since its start.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Counters by name.
    pub counters: BTreeMap<String, u64>,
    /// Of each card, since its attachment.
    pub cards: Vec<CardReport>,
}

/// What has crossed to and from a card, and what its directory has done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CardReport {
    /// Whether it is there.
    pub attached: bool,
    /// Bytes over the bus by class.
    pub bus: BTreeMap<String, u64>,
    /// Transfers over the bus.
    pub transfers: u64,
    /// Counters of driver and directory by name.
    pub counters: BTreeMap<String, u64>,
}

nicache_counters::counters! {
    /// What there is of [`HostReport::counters`] at the moment; the rest is counted where it
    /// happens.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Present {
        connections: gauge "Connections at the moment.",
        pages: gauge "Pages of the page cache that are taken.",
    }
}

/// All counters of [`HostReport::counters`].
fn lists() -> [&'static [Counter]; 5] {
    let (service, live) = (ServiceCounters::COUNTERS, LiveCounters::COUNTERS);
    [service, live, SiteCounters::COUNTERS, StackCounters::COUNTERS, Present::COUNTERS]
}

/// What a counter of a host is.
pub(crate) fn describe(name: &str) -> Option<Description> {
    Counter::find(&lists(), name)
        .map(|counter| Description { help: counter.help, is_gauge: counter.is_gauge })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dashboards know them: what changes here is told in CHANGELOG.md.
    #[test]
    fn counters_are_called_and_described_as_ever() {
        let lines: Vec<&str> =
            include_str!("../../tests/snapshots/serve-counters.txt").lines().collect();
        for line in &lines {
            let (name, description) = line.split_once('\t').unwrap();
            let found = describe(name).unwrap_or_else(|| panic!("{name} is not there"));
            let kind = if found.is_gauge { "gauge" } else { "counter" };
            assert_eq!(format!("{kind}\t{}", found.help), description, "{name}");
        }
        assert_eq!(lists().iter().map(|list| list.len()).sum::<usize>(), lines.len());
    }
}
