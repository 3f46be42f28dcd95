//! `forward.toml` as it is written. Each key is documented in `docs/forward.md`.

use nicache_forward::modes::Mode;
use nicache_forward::pcache::Order;
use nicache_forward::prefix::Prefix;
use nicache_memory::Size;
use serde::Deserialize;
use toml::Spanned;

use super::error::ConfigError;
use super::values::{
    Address, Kept, LinkPortKind, Linked, Named, Ports, ProxyVersion, Socket, Span, Transport, Word,
};

/// Bytes of a file at most: it is handed to a process in one message.
pub const FILE_BYTES_MAX: usize = 96 * 1024;

/// Reads a file, without a look at the machine.
///
/// # Errors
/// It is not TOML, has keys that are none, or values that say nothing.
pub fn parse(source: &str) -> Result<File, ConfigError> {
    if source.len() > FILE_BYTES_MAX {
        let message = format!("the file is longer than {FILE_BYTES_MAX} bytes");
        return Err(ConfigError::at(source, 0..0, message));
    }
    toml::from_str(source).map_err(|error: toml::de::Error| {
        ConfigError::at(source, error.span().unwrap_or(0..0), error.message())
    })
}

/// A whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct File {
    /// How payload gets from a receive to a send; [`Mode::Adaptive`] if it is not said.
    pub mode: Option<Word<Mode>>,
    /// Memory of the card for payload.
    pub memory: Option<Spanned<Word<Size>>>,
    /// Which entry of a queue goes first.
    pub order: Option<Word<Order>>,
    /// Connections at most.
    pub connections: Option<Spanned<u32>>,
    /// Whether the kernel's routes are used.
    pub kernel_routes: Option<bool>,
    /// Where packets come in and go out.
    #[serde(default, rename = "interface")]
    pub interfaces: Vec<Spanned<InterfaceText>>,
    /// Ways beside the kernel's.
    #[serde(default, rename = "route")]
    pub routes: Vec<Spanned<RouteText>>,
    /// Ports that lead to an inside address.
    #[serde(default, rename = "port-forward")]
    pub forwarded: Vec<Spanned<ForwardedText>>,
    /// Addresses that stand for several back ends.
    #[serde(default, rename = "service")]
    pub services: Vec<Spanned<ServiceText>>,
    /// Datagrams that go to many.
    #[serde(default, rename = "fan-out")]
    pub groups: Vec<Spanned<GroupText>>,
    /// What may pass; the first that fits counts.
    #[serde(default, rename = "rule")]
    pub rules: Vec<Spanned<RuleText>>,
}

/// An interface, or a VLAN on one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct InterfaceText {
    /// Its name.
    pub name: Spanned<String>,
    /// By what the card is on it; a packet socket, if it is not said.
    pub port: Option<Spanned<Word<LinkPortKind>>>,
    /// Frames with this tag.
    pub vlan: Option<Spanned<u16>>,
    /// Its addresses; those that the kernel has, if they are not said.
    #[serde(default)]
    pub addresses: Vec<Spanned<Word<Linked>>>,
    /// Addresses that this machine gets on a TAP.
    #[serde(default)]
    pub machine_addresses: Vec<Spanned<Word<Linked>>>,
    /// Longest IP packet, in bytes; the interface's, if it is not said.
    pub mtu: Option<Spanned<u32>>,
    /// What leaves here gets an address of ours.
    pub masquerade: Option<Spanned<Masquerade>>,
    /// Ports for masquerading.
    pub ports: Option<Spanned<Word<Ports>>>,
    /// Strangers may answer to a mapping that somebody inside has opened.
    #[serde(default)]
    pub open_mappings: bool,
    /// Ports that stay with this machine.
    #[serde(default)]
    pub keep: Vec<Word<Kept>>,
}

/// Behind which addresses of an interface others are hidden.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write true, false or a list of addresses")]
pub enum Masquerade {
    /// With all that the interface has, or none.
    Switch(bool),
    /// With these.
    Addresses(Vec<Word<Address>>),
}

/// A route in the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RouteText {
    /// Where it leads.
    pub to: Word<Prefix>,
    /// By this router.
    pub via: Option<Spanned<Word<Address>>>,
    /// By this interface.
    pub interface: Option<Spanned<String>>,
}

/// A port that leads to an inside address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ForwardedText {
    /// TCP or UDP.
    pub protocol: Spanned<Word<Transport>>,
    /// Where it is reached from outside.
    pub from: Spanned<Word<Socket>>,
    /// Where it leads.
    pub to: Spanned<Word<Socket>>,
}

/// A service in the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServiceText {
    /// For figures; its address, if it is not said.
    pub name: Option<String>,
    /// TCP or UDP.
    pub protocol: Spanned<Word<Transport>>,
    /// What clients speak to.
    pub address: Spanned<Word<Socket>>,
    /// Back ends see this address of ours in place of clients'.
    pub masquerade: Option<Spanned<Word<Address>>>,
    /// Where the name is that a back end is chosen by.
    pub by: Option<Spanned<ByText>>,
    /// How back ends are told who the client is.
    pub proxy_protocol: Option<Spanned<Word<ProxyVersion>>>,
    /// How to find out whether a back end answers.
    pub check: Option<Spanned<CheckText>>,
    /// Who answers.
    #[serde(default, rename = "back-end")]
    pub back_ends: Vec<Spanned<BackEndText>>,
}

/// By what a back end is chosen.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ByText {
    /// The name in a TLS ClientHello.
    Sni,
    /// The host of the first request.
    Host,
}

/// A back end.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BackEndText {
    /// Where it listens.
    pub address: Spanned<Word<Socket>>,
    /// How much it gets, beside the others; 1 if it is not said, 0: nothing.
    pub weight: Option<u16>,
    /// Names that it has, for a service with [`ServiceText::by`]; none: those that no other one
    /// has.
    #[serde(default)]
    pub names: Vec<Spanned<Word<Named>>>,
}

/// How health is checked.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// A connection is accepted.
    Tcp,
    /// A request is answered.
    Http,
}

/// A health check.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CheckText {
    /// TCP or HTTP.
    pub kind: CheckKind,
    /// What is asked for.
    pub path: Option<String>,
    /// The `Host` of the request.
    pub host: Option<String>,
    /// The status of the answer; any from 200 to 399, if it is not said.
    pub status: Option<u16>,
    /// Another port than that of the back end.
    pub port: Option<u16>,
    /// Between two checks.
    pub every: Option<Word<Span>>,
    /// For an answer.
    pub timeout: Option<Word<Span>>,
    /// So many good answers bring a back end up.
    pub rise: Option<u32>,
    /// So many bad ones bring it down.
    pub fall: Option<u32>,
}

/// Datagrams to many.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GroupText {
    /// Where datagrams are sent to.
    pub address: Spanned<Word<Socket>>,
    /// Who gets them.
    pub to: Vec<Spanned<Word<Socket>>>,
    /// What they see as the sender.
    pub source: Option<Spanned<Word<Socket>>>,
}

/// What becomes of packets.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum ActionText {
    /// Packets pass.
    Allow,
    /// Packets are dropped.
    Drop,
    /// Packets pass at a rate; more of them are dropped.
    Limit,
}

/// A rule in the configuration file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RuleText {
    /// What becomes of them.
    pub action: Spanned<ActionText>,
    /// Bytes per second, with [`ActionText::Limit`].
    pub rate: Option<Word<Size>>,
    /// Bytes at once.
    pub burst: Option<Word<Size>>,
    /// The interface that they come in by.
    pub interface: Option<Spanned<String>>,
    /// Protocol of the packets.
    pub protocol: Option<Word<Transport>>,
    /// Who begins.
    pub source: Option<Word<Prefix>>,
    /// With whom, before any translation.
    pub destination: Option<Word<Prefix>>,
    /// At which port.
    pub ports: Option<Word<Ports>>,
}
