//! The settings of `nicache run`: one struct is the command line, the configuration file and their documentation.
//!
//! A flag and its key in the file have the same name; a flag beats the file; a list given by flags replaces the file's
//! list. Doc comments are the help text, so they are written for the user.

mod path;
mod serve;
pub mod study;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

pub use nicache_study::Size;

pub use crate::policy::PolicyKind;

pub use path::PathOptions;
pub use serve::{CoherenceKind, LiveOption, RouteKind, SegmentationKind, ServeOptions};

/// Least memory a card can work with.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Most queues (card threads) of one card.
pub const QUEUES_MAX: u16 = 64;

/// How old what nobody can see may be, unless the operator says otherwise.
pub const RECHECK_DEFAULT: Milliseconds = Milliseconds(1000);

/// Settings of `nicache run`, all optional. [`RunOptions::resolve`] applies file and defaults.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunOptions {
    /// Card memory for cached replies, all of it taken at the start: 64M, 2G, ... [default: 64M]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,

    /// Which replies go when the memory is full; `nicache trace advise` weighs them for a log [default: lru]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyKind>,

    /// Who answers a client's connection request: the server (pass-through), or the card itself, so that the server
    /// never hears of a hit at all (card) [default: pass-through]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<HandshakeKind>,

    /// How old what nobody can see (the clock, a counter in a program's memory) may be in a page that the server computed: 500ms, 1s, 10s,
    /// ... Changes of files show at once, whatever this says. 0 caches files alone [default: 1s]
    #[arg(long, value_name = "TIME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Milliseconds>,

    /// Who watches what the server reads and who changes it: the kernel, for whom nicache needs to load eBPF programs, or a library that is
    /// loaded into the server's programs (preload), which needs no privilege but does not see what other programs change: that shows
    /// after --recheck, of which preload allows at most 1s, unless they are run by `nicache follow` [default: kernel]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchKind>,

    /// Port on which the server speaks plain HTTP; other ports pass the card untouched. Repeatable [default: 80]
    #[arg(long = "http-port", value_name = "PORT")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_port: Vec<u16>,

    /// Offer the server's port at an address of this machine, 0.0.0.0 for all of them. SERVERPORT is the first
    /// --http-port unless given. Switches IPv4 forwarding on while nicache runs, unless the address is a loopback one. Repeatable
    #[arg(long, value_name = "ADDR:PORT[:SERVERPORT]")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Publish>,

    /// Let the server reach out to other machines through this one (implied by --publish to an address that is not a
    /// loopback one). Switches IPv4 forwarding on while nicache runs
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing: Option<bool>,

    /// Make this machine's 127.0.0.1:PORT reachable as 127.0.0.1:PORT for the server, e.g. 5432 for a database on this
    /// machine. Repeatable
    #[arg(long, value_name = "PORT")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<u16>,

    /// A database on another machine, watched by the `nicache relay` in front of it: DATABASE is where the server finds that relay,
    /// mysql://ADDR:PORT or postgres://ADDR:PORT, RELAY the relay's --cards address (or nats=nats://HOST:PORT/NAME in its place), FILE
    /// the key that both know. Pages that ask it are kept as those of a database on this machine. Switches --outgoing on. Repeatable
    #[arg(long, value_name = "DATABASE,relay=RELAY,key=FILE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote_database: Vec<RemoteDatabase>,

    /// Run COMMAND beside the server, in its namespaces, started before it: a database, an application server. COMMAND is
    /// split into words as a shell does it, quotes included, but no shell runs. If it fails, everything ends; if the server
    /// ends, it is asked to end, too. Repeatable: started in the order given, stopped in the reverse order
    #[arg(long = "with", value_name = "COMMAND")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,

    /// The /30 network between this machine (first address) and the server (second) [default: a free 10.N.0.0/30]
    #[arg(long, value_name = "A.B.C.D/30")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Subnet>,

    /// Queues of the card, each with a thread of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUES_MAX)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,

    /// Record the frames on the wire in this file (pcap)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcap: Option<PathBuf>,

    /// Append the requests that the card answered to this file, in the combined log format (the server's own log has
    /// the others)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log: Option<PathBuf>,

    /// Cookie that no reply depends on, exact or as `prefix*`. A request with any other cookie goes to the server.
    /// A wrong entry here can show one user's page to another. Repeatable
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_cookie: Vec<String>,

    /// Request header that no reply depends on. A request with an unknown header goes to the server. Repeatable
    #[arg(long, value_name = "HEADER")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_header: Vec<String>,

    /// Request header whose value decides the reply even if the server does not say so in Vary: replies are kept apart
    /// by its value. Repeatable
    #[arg(long, value_name = "HEADER")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<String>,

    /// Files in which the server keeps what belongs to one visitor's session, exact or as `/folder/prefix*`, e.g.
    /// `/var/lib/php/sessions/sess_*`: to write them changes nothing for others. Repeatable
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_files: Vec<PathBuf>,

    /// A folder of data that the server's programs read anew for each request that needs it and never keep in memory, e.g. a wiki's articles: a
    /// change in it concerns only the pages made from it. Not for scripts, templates or settings. Repeatable
    #[arg(long, value_name = "PATH")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_folder: Vec<PathBuf>,

    /// Settings for some paths, as a table of TOML without its braces; in the configuration file they are `[[path]]` tables, see
    /// docs/dynamic.md. The first pattern that matches counts. Repeatable.
    /// Example: --path 'pattern = "/feed/*", recheck = "10s"' --path 'pattern = "/admin*", cache = false'
    #[arg(long, value_name = "TABLE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathOptions>,

    /// Name of this nicache for `status`, `purge` and `bypass` [default: that of its interface, nic0, nic1, ...]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Tell on standard output, as JSON lines, when the server is ready and how it ended
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<bool>,

    /// Form of the log on standard error [default: text]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,

    /// Read settings from this file (TOML; keys are the flags' names); flags beat it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// The server and its arguments
    #[arg(last = true, value_name = "SERVER ARGS")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
}

/// What `run` does, with nothing left open but what only the machine can tell.
#[derive(Debug, Clone, PartialEq)]
pub struct RunPlan {
    pub memory_bytes: u64,
    pub policy: PolicyKind,
    pub handshake: HandshakeKind,
    pub recheck: Milliseconds,
    pub watch: WatchKind,
    pub http_ports: Vec<u16>,
    pub publish: Vec<Publish>,
    pub outgoing: bool,
    pub share: Vec<u16>,
    pub remote_databases: Vec<RemoteDatabase>,
    pub subnet: Option<Subnet>,
    pub queues: u16,
    pub pcap: Option<PathBuf>,
    pub access_log: Option<PathBuf>,
    pub ignore_cookies: Vec<String>,
    pub ignore_headers: Vec<String>,
    pub vary: Vec<String>,
    pub session_files: Vec<PathBuf>,
    pub data_folders: Vec<PathBuf>,
    pub paths: Vec<PathOptions>,
    pub name: Option<String>,
    pub json: bool,
    pub log_format: LogFormat,
    /// Programs beside the server, each with its arguments.
    pub with: Vec<Vec<String>>,
    pub server: Vec<String>,
}

impl RunOptions {
    /// Reads the file named by `--config`, lets the flags win, applies defaults and checks every value.
    pub fn resolve(self) -> Result<RunPlan> {
        let merged = match &self.config {
            None => self,
            Some(path) => Self::from_file(path)?.overlaid_with(&self)?,
        };
        merged.checked()
    }

    fn from_file(path: &Path) -> Result<RunOptions> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("in the configuration file {}", path.display()))
    }

    fn overlaid_with(&self, flags: &RunOptions) -> Result<RunOptions> {
        let mut table = toml::Table::try_from(self)?;
        table.extend(toml::Table::try_from(flags)?);
        Ok(table.try_into()?)
    }

    fn checked(self) -> Result<RunPlan> {
        let plan = RunPlan {
            memory_bytes: self.memory.unwrap_or(Size(64 << 20)).0,
            policy: self.policy.unwrap_or(PolicyKind::Lru),
            handshake: self.handshake.unwrap_or(HandshakeKind::PassThrough),
            recheck: self.recheck.unwrap_or(RECHECK_DEFAULT),
            watch: self.watch.unwrap_or(WatchKind::Kernel),
            http_ports: if self.http_port.is_empty() { vec![80] } else { self.http_port },
            outgoing: self.outgoing.unwrap_or(false)
                || !self.remote_database.is_empty()
                || self.publish.iter().any(|p| !p.address.ip().is_loopback()),
            publish: self.publish,
            share: self.share,
            remote_databases: self.remote_database,
            subnet: self.subnet,
            queues: self.queues.unwrap_or(1),
            pcap: self.pcap,
            access_log: self.access_log,
            ignore_cookies: self.ignore_cookie,
            ignore_headers: self.ignore_header,
            vary: self.vary,
            session_files: self.session_files,
            data_folders: self.data_folder,
            paths: self.path,
            name: self.name,
            json: self.json.unwrap_or(false),
            log_format: self.log_format.unwrap_or(LogFormat::Text),
            with: self.with.iter().map(|command| words(command)).collect::<Result<_>>()?,
            server: self.server,
        };
        if plan.memory_bytes < MEMORY_BYTES_MIN {
            bail!("memory: the card needs at least 1M");
        }
        if plan.watch == WatchKind::Preload && plan.recheck.0 == 0 {
            bail!(
                "recheck: 0 caches files alone, for which --watch preload cannot vouch; leave it away, or use --watch kernel"
            );
        }
        let longest = plan
            .paths
            .iter()
            .filter_map(|path| path.recheck)
            .fold(plan.recheck, |one, other| if other.0 > one.0 { other } else { one });
        if plan.watch == WatchKind::Preload && longest.0 > RECHECK_DEFAULT.0 {
            bail!(
                "recheck: with --watch preload a change by another program shows after this time, so that it may not be above \
                 {RECHECK_DEFAULT}, for no path; use --watch kernel for {longest}"
            );
        }
        if plan.http_ports.contains(&0) || plan.share.contains(&0) {
            bail!("http-port, share: 0 is no port");
        }
        if !(1..=QUEUES_MAX).contains(&plan.queues) {
            bail!("queues: between 1 and {QUEUES_MAX}");
        }
        path::check(&plan.paths, plan.recheck.0)?;
        if let Some(odd) = plan.session_files.iter().find(|file| !is_session_pattern(file)) {
            bail!(
                "session-files: `{}` is no absolute path, nor the beginning of file names in a folder with a final `*`",
                odd.display()
            );
        }
        if let Some(odd) = plan.data_folders.iter().find(|folder| !is_data_folder(folder)) {
            bail!("data-folder: `{}` is not the absolute path of a folder, without `..`", odd.display());
        }
        for (index, remote) in plan.remote_databases.iter().enumerate() {
            if plan.remote_databases[..index].iter().any(|earlier| earlier.address == remote.address) {
                bail!("remote-database: {} is given twice", remote.address);
            }
            nicache_relay::Key::read(&remote.key).context("remote-database: the key")?;
        }
        for (index, publish) in plan.publish.iter().enumerate() {
            if plan.publish[..index].iter().any(|earlier| earlier.address == publish.address) {
                bail!("publish: {} is given twice", publish.address);
            }
        }
        if let Some(name) = &plan.name {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.chars().all(plain) {
                bail!("name: up to 64 letters, digits, `.`, `_` and `-`, not beginning with a dot");
            }
        }
        Ok(plan)
    }
}

/// A file, or the beginning of names in a folder: one that would be all of a folder must say more.
fn is_session_pattern(path: &Path) -> bool {
    let Some(text) = path.to_str() else { return false };
    let stem = text.strip_suffix('*').unwrap_or(text);
    let is_plain = !stem.contains('*') && !stem.contains("//") && !stem.contains("/./") && !stem.contains("/../");
    stem.len() > 1 && stem.starts_with('/') && is_plain
}

fn is_data_folder(path: &Path) -> bool {
    let climbs = path.components().any(|part| part == std::path::Component::ParentDir);
    path.is_absolute() && !climbs && path.components().count() > 1
}

/// Splits a command as a shell does.
fn words(command: &str) -> Result<Vec<String>> {
    match shlex::split(command) {
        None => bail!("with: a quote or backslash in `{command}` has no partner"),
        Some(words) if words.is_empty() => bail!("with: an empty command"),
        Some(words) => Ok(words),
    }
}

/// Who completes the TCP handshake with a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HandshakeKind {
    /// The server; the card takes over at the first hit.
    PassThrough,
    /// The card.
    Card,
}

/// Who watches what the server looks at, and who changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WatchKind {
    /// The kernel: sees every program.
    Kernel,
    /// A library in the server's programs: sees these.
    Preload,
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

/// A time of up to an hour, written `0`, `500ms`, `1s` or `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Milliseconds(pub u64);

impl FromStr for Milliseconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Milliseconds, String> {
        let units = [("ms", 1), ("s", 1000), ("m", 60_000)];
        let parse = |(unit, factor): (&str, u64)| text.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(factor);
        let value = if text == "0" { Some(0) } else { units.into_iter().find_map(parse) };
        value
            .filter(|&value| value <= 3_600_000)
            .map(Milliseconds)
            .ok_or_else(|| format!("`{text}` is no time of up to an hour; write 0, 500ms, 1s or 2m"))
    }
}

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => write!(f, "0"),
            n if n.is_multiple_of(60_000) => write!(f, "{}m", n / 60_000),
            n if n.is_multiple_of(1000) => write!(f, "{}s", n / 1000),
            n => write!(f, "{n}ms"),
        }
    }
}

/// A port of the server offered at an address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Publish {
    /// Where clients connect.
    pub address: SocketAddrV4,
    /// The server's port; `None`: the first HTTP port.
    pub server_port: Option<u16>,
}

impl FromStr for Publish {
    type Err = String;

    fn from_str(text: &str) -> Result<Publish, String> {
        let wrong =
            || format!("`{text}` is not ADDR:PORT or ADDR:PORT:SERVERPORT with an IPv4 address (0.0.0.0 means all)");
        let mut parts = text.split(':');
        let port = |part: &str| part.parse::<u16>().ok().filter(|port| *port != 0);
        let ip: Ipv4Addr = parts.next().and_then(|part| part.parse().ok()).ok_or_else(wrong)?;
        let outer = parts.next().and_then(port).ok_or_else(wrong)?;
        let server_port = match parts.next() {
            None => None,
            Some(part) => Some(port(part).ok_or_else(wrong)?),
        };
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Publish { address: SocketAddrV4::new(ip, outer), server_port })
    }
}

impl fmt::Display for Publish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.server_port {
            None => write!(f, "{}", self.address),
            Some(port) => write!(f, "{}:{port}", self.address),
        }
    }
}

/// A database on another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDatabase {
    /// What is spoken there.
    pub protocol: Protocol,
    /// Where the server finds it.
    pub address: SocketAddrV4,
    /// Where its relay tells of it.
    pub relay: Relay,
    /// File of the key.
    pub key: PathBuf,
}

/// How a relay is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relay {
    /// At its own address.
    Direct(SocketAddr),
    /// On a bus.
    Bus(BusAddress),
}

/// Servers of NATS and a relay's name there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BusAddress(pub nicache_relay::Bus);

impl FromStr for BusAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<BusAddress, String> {
        let parsed = text.rsplit_once('/').filter(|(servers, name)| {
            let is_url = servers.starts_with("nats://") || servers.starts_with("tls://");
            is_url && servers.len() > "nats://".len() && nicache_relay::Bus::is_name(name)
        });
        let (servers, name) = parsed.ok_or_else(|| format!("`{text}` is not nats://HOST:PORT/NAME"))?;
        Ok(BusAddress(nicache_relay::Bus { servers: servers.to_owned(), name: name.to_owned() }))
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.servers, self.0.name)
    }
}

/// What a database speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protocol {
    /// MariaDB, MySQL.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

impl From<Protocol> for nicache_sql::Dialect {
    fn from(protocol: Protocol) -> nicache_sql::Dialect {
        match protocol {
            Protocol::Mysql => nicache_sql::Dialect::MySql,
            Protocol::Postgres => nicache_sql::Dialect::Postgres,
        }
    }
}

impl FromStr for RemoteDatabase {
    type Err = String;

    fn from_str(text: &str) -> Result<RemoteDatabase, String> {
        let wrong = |what: &str| {
            format!(
                "`{text}`: {what}; write for example mysql://10.0.0.5:3306,relay=10.0.0.5:7400,key=/etc/nicache/key"
            )
        };
        let mut parts = text.split(',');
        let url = parts.next().unwrap_or_default();
        let (protocol, address) = match url.split_once("://") {
            Some(("mysql" | "mariadb", address)) => (Protocol::Mysql, address),
            Some(("postgres" | "postgresql", address)) => (Protocol::Postgres, address),
            _ => return Err(wrong("the database begins with mysql:// or postgres://")),
        };
        let address = address.trim_end_matches('/').parse().map_err(|_| wrong("no IPv4 address with a port"))?;
        let (mut relay, mut key) = (None, None);
        for part in parts {
            match part.split_once('=') {
                Some(("relay", value)) => {
                    let address = value.parse().map_err(|_| wrong("the relay's address has a port"))?;
                    relay = Some(Relay::Direct(address));
                }
                Some(("nats", value)) => {
                    relay = Some(Relay::Bus(value.parse().map_err(|error: String| wrong(&error))?))
                }
                Some(("key", value)) if !value.is_empty() => key = Some(PathBuf::from(value)),
                _ => return Err(wrong("only relay=, nats= and key= follow")),
            }
        }
        let relay = relay.ok_or_else(|| wrong("relay= (or nats=) is missing"))?;
        let key = key.ok_or_else(|| wrong("key= is missing"))?;
        Ok(RemoteDatabase { protocol, address, relay, key })
    }
}

impl fmt::Display for RemoteDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.protocol {
            Protocol::Mysql => "mysql",
            Protocol::Postgres => "postgres",
        };
        let (address, key) = (self.address, self.key.display());
        match &self.relay {
            Relay::Direct(relay) => write!(f, "{scheme}://{address},relay={relay},key={key}"),
            Relay::Bus(bus) => write!(f, "{scheme}://{address},nats={bus},key={key}"),
        }
    }
}

/// A /30 IPv4 network: gateway (this machine) and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnet {
    network: Ipv4Addr,
}

impl Subnet {
    /// Prefix length of every such network.
    pub const PREFIX: u8 = 30;

    /// 10.N.0.0/30.
    pub const fn ten(n: u8) -> Subnet {
        Subnet { network: Ipv4Addr::new(10, n, 0, 0) }
    }

    /// Network address.
    pub const fn network(self) -> Ipv4Addr {
        self.network
    }

    /// This machine's address, the server's default route.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + 1)
    }

    /// The address of the card's own client, on this machine: one of the range that is set aside for measurements between networks (RFC
    /// 2544), so that no client has it. What a page says to this address and to another client, it says to everybody.
    pub fn rechecker(self) -> Ipv4Addr {
        let [_, second, third, fourth] = self.network.octets();
        Ipv4Addr::new(198, 18, second ^ third, fourth | 1)
    }

    /// The server's address.
    pub fn server(self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) + 2)
    }
}

impl FromStr for Subnet {
    type Err = String;

    fn from_str(text: &str) -> Result<Subnet, String> {
        let network: Option<Ipv4Addr> = text.strip_suffix("/30").and_then(|ip| ip.parse().ok());
        match network {
            Some(network) if u32::from(network) & 3 == 0 && !network.is_loopback() && !network.is_multicast() => {
                Ok(Subnet { network })
            }
            _ => Err(format!("`{text}` is no /30 network; write for example 10.77.0.0/30")),
        }
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, Self::PREFIX)
    }
}

/// Serde by way of `FromStr` and `Display`, so that the file's spelling is the flag's.
macro_rules! serde_as_text {
    ($($kind:ty),*) => {$(
        impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$kind, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
serde_as_text!(Milliseconds, Publish, RemoteDatabase, Subnet);

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::Cli;

    const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../nicache.example.toml"));

    fn flags(args: &[&str]) -> RunOptions {
        let line = ["nicache", "run"].iter().chain(args);
        match Cli::try_parse_from(line).expect("arguments").command {
            crate::cli::Command::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// The example file with every setting uncommented: `# key = value` lines have exactly one space after the `#`.
    fn example_uncommented() -> String {
        let is_setting = |rest: &str| rest.contains(" = ") || rest.starts_with("[[");
        let setting = |line: &&str| line.strip_prefix("# ").is_some_and(is_setting);
        EXAMPLE.lines().filter(setting).map(|line| format!("{}\n", &line[2..])).collect()
    }

    #[test]
    fn defaults() {
        let plan = flags(&[]).resolve().unwrap();
        assert_eq!(plan.memory_bytes, 64 << 20);
        assert_eq!(plan.http_ports, [80]);
        assert_eq!((plan.queues, plan.policy, plan.handshake), (1, PolicyKind::Lru, HandshakeKind::PassThrough));
        assert!(!plan.outgoing && !plan.json && plan.server.is_empty());
    }

    #[test]
    fn flags_beat_the_file() {
        let file: RunOptions =
            toml::from_str("memory = '1G'\nqueues = 4\nhttp-port = [8080, 81]\njson = true").unwrap();
        let merged = file.overlaid_with(&flags(&["--memory", "2M", "--http-port", "82", "--json=false"])).unwrap();
        let plan = merged.checked().unwrap();
        assert_eq!((plan.memory_bytes, plan.queues, plan.json), (2 << 20, 4, false));
        assert_eq!(plan.http_ports, [82]);
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<RunOptions>("memroy = '1G'").unwrap_err().to_string();
        assert!(error.contains("memroy"), "{error}");
    }

    #[test]
    fn the_example_has_every_setting_and_nothing_else() {
        let table: toml::Table = toml::from_str(&example_uncommented()).unwrap();
        let mut parsed: RunOptions = table.clone().try_into().unwrap();
        // Its key is nobody's.
        parsed.remote_database.clear();
        parsed.checked().unwrap();
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let mut wanted: Vec<String> = run.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
        wanted.retain(|name| name != "config" && name != "help");
        wanted.push("server".to_owned());
        wanted.sort();
        let mut present: Vec<String> = table.keys().cloned().collect();
        present.sort();
        assert_eq!(present, wanted);
    }

    #[test]
    fn commands_are_split_into_words() {
        let plan = flags(&["--with", "a 'b c' d\\ e", "--with", "f"]).resolve().unwrap();
        assert_eq!(plan.with, [vec!["a", "b c", "d e"], vec!["f"]]);
        for text in ["'a", "", "  ", "a \\"] {
            assert!(flags(&["--with", text]).resolve().is_err(), "{text}");
        }
    }

    #[test]
    fn remote_databases() {
        let text = "postgres://10.0.0.5:5432,relay=[fd00::1]:7400,key=/k";
        let remote: RemoteDatabase = text.parse().unwrap();
        assert_eq!((remote.protocol, remote.address.port()), (Protocol::Postgres, 5432));
        assert_eq!(remote.to_string(), text);
        let on_bus = "mysql://10.0.0.5:3306,nats=nats://10.0.0.9:4222/shop,key=/k";
        assert_eq!(on_bus.parse::<RemoteDatabase>().unwrap().to_string(), on_bus);
        for text in [
            "10.0.0.5:3306,relay=10.0.0.5:1,key=k",
            "mysql://db:3306,relay=10.0.0.5:1,key=k",
            "mysql://10.0.0.5:3306,key=k",
            "mysql://10.0.0.5:3306,nats=nats://10.0.0.9:4222,key=k",
            "mysql://10.0.0.5:3306,nats=http://10.0.0.9:4222/shop,key=k",
            "mysql://10.0.0.5:3306,relay=10.0.0.5:1",
            "mysql://10.0.0.5:3306,relay=10.0.0.5:1,key=k,x=1",
        ] {
            assert!(text.parse::<RemoteDatabase>().is_err(), "{text}");
        }
        assert!(flags(&["--remote-database", text]).resolve().is_err(), "there is no such key");
    }

    #[test]
    fn publish_and_subnet() {
        let publish: Publish = "127.0.0.1:8080:81".parse().unwrap();
        assert_eq!((publish.address.port(), publish.server_port), (8080, Some(81)));
        for text in ["8080", "127.0.0.1", "127.0.0.1:0", "[::1]:80", "1.2.3.4:80:81:82", "localhost:80"] {
            assert!(text.parse::<Publish>().is_err(), "{text}");
        }
        let subnet: Subnet = "10.9.0.4/30".parse().unwrap();
        assert_eq!(subnet.server(), Ipv4Addr::new(10, 9, 0, 6));
        for text in ["10.9.0.1/30", "10.9.0.0/24", "127.0.0.0/30", "10.9.0.0"] {
            assert!(text.parse::<Subnet>().is_err(), "{text}");
        }
        assert!(flags(&["--publish", "0.0.0.0:1", "--publish", "0.0.0.0:1"]).resolve().is_err());
        assert!(flags(&["--name", "../x"]).resolve().is_err());
        assert!(flags(&["--memory", "1K"]).resolve().is_err());
        assert!(flags(&["--watch", "preload", "--recheck", "1s"]).resolve().is_ok());
        for time in ["0", "1001ms", "10s"] {
            assert!(flags(&["--watch", "preload", "--recheck", time]).resolve().is_err(), "{time}");
        }
        let path = "pattern = \"/feed/*\", recheck = \"10s\"";
        assert!(flags(&["--watch", "kernel", "--path", path]).resolve().is_ok());
        assert!(flags(&["--watch", "preload", "--path", path]).resolve().is_err());
        assert!(flags(&["--publish", "0.0.0.0:1"]).resolve().unwrap().outgoing);
    }
}
