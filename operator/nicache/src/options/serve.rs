//! The settings of `nicache serve`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use nicache_bus::BusModel;
use serde::{Deserialize, Serialize};

use super::{AdminOptions, LogFormat, PolicyKind, Publish, Size, Subnet};

/// Settings of `nicache serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeOptions {
    /// The folder whose files are served: of this machine, or of the ext4 on a logical unit,
    /// iscsi://HOST/IQN/LUN/FOLDER, as `nicache nfs --http` does. Only files that everybody may
    /// read are served; neither `..` nor a link leads out of it
    #[arg(value_name = "DIR")]
    pub root: PathBuf,

    /// Memory of each card for blocks of files: 4M, 16M, 1G, ...; 0: none is cached there, and all
    /// content crosses the bus
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub memory: Size,

    /// Cards, each with an interface, a network and a cache of its own
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=16),
    )]
    pub cards: u16,

    /// Which block to evict when a card's memory is full
    #[arg(long, value_enum, default_value = "lru")]
    pub policy: PolicyKind,

    /// When a card's block of a file that has changed goes: when it is looked for, at once, or
    /// replaced by what it has become
    #[arg(long, value_enum, default_value = "lazy")]
    pub coherence: CoherenceKind,

    /// By which card a client of several is served: the one that it came by, or the one that has
    /// most of what it asks for first
    #[arg(long, value_enum, default_value = "fixed")]
    pub route: RouteKind,

    /// A bus that is slower than this machine's, shared by all cards: pci-64-33, pci-64-66,
    /// pcie-gen4-x8, or Mbit/s with words, e.g. 2000,burst=128,overhead=56 (bytes) [default: as
    /// fast as this machine copies]
    #[arg(long, value_name = "MODEL")]
    pub bus: Option<BusModel>,

    /// Who cuts content into segments: the card, so one header crosses the bus for up to 64
    /// KB, or the host, as with cards that cannot (those of the paper)
    #[arg(long, value_enum, default_value = "card")]
    pub segmentation: SegmentationKind,

    /// Host memory for blocks of files; what a card caches is always there, too
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub page_cache: Size,

    /// TCP port at which files are served. Repeatable
    #[arg(long, value_name = "PORT", default_value = "80")]
    pub port: Vec<u16>,

    /// Also serve at an address of this machine: 0.0.0.0:80, 127.0.0.1:8080:80. With several cards,
    /// all of it goes to the first. Repeatable
    #[arg(long, value_name = "ADDR:PORT[:SERVERPORT]")]
    pub publish: Vec<Publish>,

    /// File that stands for its folder; the first that is there. Repeatable
    #[arg(long, value_name = "NAME", default_value = "index.html")]
    pub index: Vec<String>,

    /// List the names in folders that have no such file
    #[arg(long)]
    pub list: bool,

    /// Serve something live: a FIFO, whose bytes go to all viewers of /NAME (by default that of the
    /// FIFO) as they come, or a playlist of the folder (FILE.m3u8), whose segments leave the card's
    /// memory when it no longer names them. Repeatable
    #[arg(long, value_name = "[/NAME=]FILE")]
    pub live: Vec<LiveOption>,

    /// Connections at most
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16_384,
        value_parser = clap::value_parser!(u32).range(1..=1_048_576),
    )]
    pub connections: u32,

    /// Network between this machine and the first card [default: a free one of 10.0.0.0/8]
    #[arg(long, value_name = "A.B.C.D/30")]
    pub subnet: Option<Subnet>,

    #[command(flatten)]
    pub admin: AdminOptions,

    /// Name of this nicache, by which `status` and `top` find it [default: that of its first
    /// interface, nic0, nic1, ...]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Announce start and end as lines of JSON
    #[arg(long)]
    pub json: bool,

    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// Something that is served live.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LiveOption {
    /// The path by which it is asked for; `None`: the name of the file, or where it is in the
    /// folder.
    pub path: Option<String>,
    /// The FIFO or the playlist.
    pub file: PathBuf,
}

impl FromStr for LiveOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (path, file) = match text.split_once('=') {
            Some((path, file)) if path.starts_with('/') && !path.ends_with('/') => {
                (Some(path.to_owned()), file)
            }
            Some(_) => {
                return Err(format!(
                    "`{text}`: write /NAME=FILE, where /NAME is what viewers ask for"
                ));
            }
            None => (None, text),
        };
        if file.is_empty() {
            return Err(format!("`{text}` names no file"));
        }
        Ok(Self { path, file: file.into() })
    }
}

/// When an outdated block goes (Kim et al. 2002, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CoherenceKind {
    /// Drop it when somebody asks for it.
    Lazy,
    /// Drop it at once.
    Eager,
    /// Replace it with the new content.
    Update,
}

/// Who cuts content into segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SegmentationKind {
    /// The card.
    Card,
    /// The host.
    Host,
}

/// By which card a client is served (Kim et al. 2002, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RouteKind {
    /// The one that it came by.
    Fixed,
    /// The one that has most of what it asks for first.
    Affinity,
}
