//! The command line of `nicache forward`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nicache_forward::modes::Mode;

use super::target::Target;
use crate::options::{AdminOptions, LogFormat, Milliseconds, Size};

pub(super) const EXAMPLES: &str = "Examples:
  sudo nicache forward --demo
  sudo nicache forward --demo --mode direct
  nicache forward check forward.toml
  sudo nicache forward --config forward.toml --admin 9090
  sudo nicache forward why 10.0.0.7:4711
  sudo nicache forward drain 192.0.2.11:80 --within 60s
  sudo nicache forward reload            # after [[rule]] was changed in forward.toml

A small forward.toml, which shares one address among a network and sends port 80 to two servers:
  [[interface]]
  name = \"eth0\"                      # inside
  [[interface]]
  name = \"eth1\"                      # outside
  masquerade = true
  [[service]]
  protocol = \"tcp\"
  address = \"198.51.100.7:80\"
  check = { kind = \"http\", path = \"/\" }
    [[service.back-end]]
    address = \"10.1.0.11:80\"
    [[service.back-end]]
    address = \"10.1.0.12:80\"
    weight = 2

An interface may have port = \"xdp\" (AF_XDP sockets) or port = \"tap\" (a TAP that nicache \
makes) in place of packet sockets.

The interfaces are the forwarder's while it runs: this machine itself is reached by them only at \
the ports that `keep` names (keep = [\"tcp/22\"]). docs/forward.md has all keys.";

/// Whether packets of established connections are forwarded in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FastPathArg {
    /// If the kernel has what it needs
    Auto,
    /// Every packet goes by the card
    Off,
}

/// Arguments of `forward`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ForwardArgs {
    /// What else to do.
    #[command(subcommand)]
    pub command: Option<ForwardCommand>,

    /// Make namespaces with three clients and three nginx back ends, forward between them, and show
    /// what happens; Ctrl-C leaves nothing
    #[arg(long, conflicts_with = "config", required_unless_present = "config")]
    pub demo: bool,

    /// What to forward between which interfaces
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How payload gets from a receive to a send: by main memory (copy), by main memory and it
    /// stays on the card, too (pcache), it stays on the card alone (direct: what does not fit is
    /// dropped; spill: it is fetched before), or spill until the card fills, then pcache (adaptive)
    /// [default: that of the file, or adaptive; with --demo all of them in turn]
    #[arg(long, value_name = "MODE", value_parser = clap::builder::ValueParser::new(mode))]
    pub mode: Option<Mode>,

    /// Memory of the card for payload: 4M, 64M, ... [default: that of the file, or 4M]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,

    /// Forward packets of established connections in the kernel, by a program at the interfaces,
    /// and leave the rest to the card (auto), or leave all to the card (off) [default: auto; with
    /// --demo off, because its figures are the card's]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub fast_path: Option<FastPathArg>,

    /// With --demo: bytes per second that each of the three clients downloads
    #[arg(long, value_name = "SIZE", default_value = "4M", requires = "demo")]
    pub rate: Size,

    /// With --demo: seconds for each mode
    #[arg(
        long,
        value_name = "S",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=3600),
        requires = "demo",
    )]
    pub seconds: u32,

    /// With --demo: end when each mode has had its turn
    #[arg(long, requires = "demo")]
    pub once: bool,

    #[command(flatten)]
    pub admin: AdminOptions,

    /// Name of this nicache, by which `status`, `top`, `forward why` and other commands find it
    /// [default: nic0, nic1, ...]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Announce start, figures and end as lines of JSON
    #[arg(long)]
    pub json: bool,

    /// Form of the log on standard error
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// What else to do about forwarding.
#[derive(Debug, Subcommand)]
pub(crate) enum ForwardCommand {
    /// Check whether a file suits this machine, without changing anything
    Check(ForwardCheckArgs),
    /// Say what a running forwarder knows of an address: its connections, translation, back end,
    /// route, and what becomes of its packets
    Why(ForwardWhyArgs),
    /// Give a back end no new connections, and end what is left after a time
    Drain(ForwardDrainArgs),
    /// Give a back end connections again
    Undrain(ForwardUndrainArgs),
    /// Have a running forwarder read its file again and take the rules from it, also for
    /// connections that are there; anything else that has changed is refused
    Reload(ForwardReloadArgs),
}

/// Arguments of `forward check`.
#[derive(Debug, Args)]
pub(crate) struct ForwardCheckArgs {
    /// The file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Arguments of `forward why`.
#[derive(Debug, Args)]
pub(crate) struct ForwardWhyArgs {
    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "shown as help, where brackets belong to an address"
    )]
    /// An address, or one with a port: 10.0.0.7, 10.0.0.7:4711, [2001:db8::1]:443
    #[arg(value_name = "ADDR[:PORT]", value_parser = clap::builder::ValueParser::new(address))]
    pub address: SocketAddr,
    /// Which running forwarder is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `forward drain`.
#[derive(Debug, Args)]
pub(crate) struct ForwardDrainArgs {
    /// The back end, as it is in the file
    #[arg(value_name = "ADDR:PORT")]
    pub back_end: SocketAddr,
    /// Time after which connections that are left are sent elsewhere, which ends those of TCP
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub within: Milliseconds,
    /// Which running forwarder is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `forward undrain`.
#[derive(Debug, Args)]
pub(crate) struct ForwardUndrainArgs {
    /// The back end, as it is in the file
    #[arg(value_name = "ADDR:PORT")]
    pub back_end: SocketAddr,
    /// Which running forwarder is asked.
    #[command(flatten)]
    pub target: Target,
}

/// Arguments of `forward reload`.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  sudo nicache forward reload --name nic0")]
pub(crate) struct ForwardReloadArgs {
    /// Which running forwarder is asked.
    #[command(flatten)]
    pub target: Target,
}

fn mode(text: &str) -> Result<Mode, String> {
    text.parse()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let alone = || text.parse().ok().map(|address| SocketAddr::new(address, 0));
    let odd = || {
        format!("`{text}` is not an address: write 10.0.0.7, 10.0.0.7:4711 or [2001:db8::1]:443")
    };
    text.parse().ok().or_else(alone).ok_or_else(odd)
}
