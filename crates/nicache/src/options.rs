//! The settings of `nicache run`: one struct is the command line, the configuration file and their documentation.
//!
//! A flag and its key in the file have the same name; a flag beats the file; a list given by flags replaces the file's
//! list. Doc comments are the help text, so they are written for the user.

mod admin;
mod clients;
mod path;
mod serve;
pub mod study;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use nicache_admin::Reach;
use nicache_http::KeyConfig;
use serde::{Deserialize, Serialize};

pub use nicache_study::Size;

pub use crate::policy::PolicyKind;

pub use admin::{AdminAddress, reach};
pub use clients::{ClientLimits, Span};
pub use path::PathOptions;
pub use serve::{CoherenceKind, LiveOption, RouteKind, SegmentationKind, ServeOptions};

/// Least memory a card can work with.
pub const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Most queues (card threads) of one card.
pub const QUEUES_MAX: u16 = 64;

/// Most cards of one nicache.
pub const CARDS_MAX: u16 = 8;

/// How old what nobody can see may be, unless the operator says otherwise.
pub const RECHECK_DEFAULT: Milliseconds = Milliseconds(1000);

/// Heading of the options for clients in the help.
const CLIENTS: &str = "Clients that take their time, docs/siege.md";

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

    /// The interface toward the clients: a veth, a bridge port, a network card, a representor
    #[arg(long, value_name = "IFACE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,

    /// The interface toward the server
    #[arg(long, value_name = "IFACE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,

    /// What the card receives frames by at --wire: AF_XDP sockets, for network cards whose drivers have them; packet sockets, which take super-frames, anywhere else
    /// [default: packet]
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortKind>,

    /// Address of the server on the network of --wire, with the length of its prefix: the server is a station there, beside this machine. Repeatable, IPv4 and IPv6
    #[arg(long, value_name = "ADDR/LEN")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Network>,

    /// The server's default route on the network of --wire. Repeatable, IPv4 and IPv6
    #[arg(long, value_name = "ADDR")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<IpAddr>,

    /// A process of the server behind --host: what it and all in its network namespace read is watched [default: found by the other end of --host, if
    /// that is a veth]
    #[arg(long, value_name = "PID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_pid: Option<u32>,

    /// Cards, each with an interface, a network and so much --memory of its own; connections to published ports take turns [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CARDS_MAX)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cards: Option<u16>,

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

    /// Answer small hot replies by a program in the kernel, before the card's process hears of them: the least latency and CPU time
    /// in all (docs/l0.md). By XDP on an existing interface, else at the TAP. Not with --access-log, --pcap, --queues or --watch preload
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l0: Option<bool>,

    /// Say in the replies that the card gives that it gave them: `Cache-Status: nicache; hit` (RFC 9211). Replies of the server pass as they
    /// are, without it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_status: Option<bool>,

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

    /// Connections that each queue follows at most; each takes some 5 KiB. What is above passes to the server untouched [default: 16384]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,

    /// Of these: connections whose handshake is not complete. From half of it on, --handshake card answers with SYN cookies, which take no memory [default: a quarter of --connections]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_open: Option<u32>,

    /// Times that the card repeats its answer to a SYN, after 1s, 2s, 4s, ... (--handshake card) [default: 5]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syn_ack_retries: Option<u8>,

    /// How long a client that the card alone has served may say nothing before the card closes its connection [default: 75s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_time: Option<Span>,

    /// How long the head of a request may take, from its first byte to its last [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_time: Option<Span>,

    /// Bytes of a reply from card memory that a client must take in a second, in the mean of --read-period. 0: as slowly as it likes
    /// [default: 100]
    #[arg(long, value_name = "BYTES", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<u32>,

    /// Over which --read-rate is a mean. Longer than the outages of a mobile network [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_period: Option<Span>,

    /// How long a client may keep its window closed while the card has something for it [default: 2m]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_window: Option<Span>,

    /// How long a connection that the card and the server share may be silent before the client is asked whether it still lives [default: 2h]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,

    /// Time between two such questions [default: 75s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_interval: Option<Span>,

    /// Such questions without an answer after which the connection is given up [default: 9]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_probes: Option<u8>,

    /// Settings for some paths, as a table of TOML without its braces; in the configuration file they are `[[path]]` tables, see
    /// docs/dynamic.md. The first pattern that matches counts. Repeatable.
    /// Example: --path 'pattern = "/feed/*", recheck = "10s"' --path 'pattern = "/admin*", cache = false'
    #[arg(long, value_name = "TABLE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathOptions>,

    /// Show figures at this address of this machine: a live page at /, metrics for Prometheus at /metrics, JSON at /api/status.
    /// Without ADDR it is 127.0.0.1. Nobody is asked for a password [default: nowhere]
    #[arg(long, value_name = "[ADDR:]PORT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminAddress>,

    /// Let --admin be at an address that is no loopback one: whoever reaches it sees which pages are asked for, and how the server is
    /// run
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_anyone: Option<bool>,

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
    /// The server is a station on the network of an existing interface; `None`: it has a network of its own.
    pub wire: Option<WireOptions>,
    pub cards: u16,
    pub queues: u16,
    pub pcap: Option<PathBuf>,
    pub access_log: Option<PathBuf>,
    pub l0: bool,
    pub cache_status: bool,
    pub ignore_cookies: Vec<String>,
    pub ignore_headers: Vec<String>,
    pub vary: Vec<String>,
    pub session_files: Vec<PathBuf>,
    pub data_folders: Vec<PathBuf>,
    pub paths: Vec<PathOptions>,
    pub admin: Option<AdminAddress>,
    pub admin_reach: Reach,
    pub name: Option<String>,
    pub json: bool,
    pub log_format: LogFormat,
    /// How many clients there may be, and how long they may take their time.
    pub clients: ClientLimits,
    /// Programs beside the server, each with its arguments.
    pub with: Vec<Vec<String>>,
    pub server: Vec<String>,
}

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub address: IpAddr,
    /// Bits that all in the network have in common.
    pub prefix: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Network, String> {
        let parse = || {
            let (address, prefix) = text.split_once('/')?;
            let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
            let most = if address.is_ipv4() { 32 } else { 128 };
            (prefix <= most && !address.is_unspecified()).then_some(Network { address, prefix })
        };
        parse().ok_or_else(|| {
            format!("`{text}` is no address with a prefix; write for example 192.0.2.10/24 or 2001:db8::10/64")
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// `run --wire`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireOptions {
    /// The interface.
    pub interface: String,
    /// The server's addresses.
    pub addresses: Vec<Network>,
    /// Its default routes.
    pub gateways: Vec<IpAddr>,
    /// By what the card is on the interface.
    pub port: PortKind,
}

/// What `attach` does.
#[derive(Debug, Clone, PartialEq)]
pub struct AttachPlan {
    /// Toward the clients.
    pub wire: String,
    /// Toward the server.
    pub host: String,
    /// By what the card is on the wire.
    pub port: PortKind,
    /// A process of the server.
    pub server_pid: Option<u32>,
    /// The rest.
    pub run: RunPlan,
}

impl RunOptions {
    /// Reads the file named by `--config`, lets the flags win, applies defaults and checks every value.
    pub fn resolve(self) -> Result<RunPlan> {
        let merged = self.merged()?;
        if merged.host.is_some() || merged.server_pid.is_some() {
            bail!("host, server-pid: belong to `nicache attach`, which stands in front of a server that runs");
        }
        let wire = merged.wire.clone().map(|interface| WireOptions {
            interface,
            addresses: merged.address.clone(),
            gateways: merged.gateway.clone(),
            port: merged.port.unwrap_or(PortKind::Packet),
        });
        match &wire {
            None if !merged.address.is_empty() || !merged.gateway.is_empty() || merged.port.is_some() => {
                bail!("address, gateway, port: are for the network of an existing interface, which --wire names");
            }
            Some(_) if !merged.publish.is_empty() || merged.subnet.is_some() || !merged.share.is_empty() => {
                bail!("publish, subnet, share: a server on --wire has addresses of its own there");
            }
            Some(_) if merged.cards.is_some_and(|cards| cards > 1) => {
                bail!("cards: a server on --wire has one");
            }
            Some(wire) if wire.addresses.is_empty() => {
                bail!("address: a server on --wire {} needs an address there: --address 192.0.2.10/24", wire.interface);
            }
            Some(_) | None => {}
        }
        Ok(RunPlan { wire, ..merged.checked()? })
    }

    fn merged(self) -> Result<RunOptions> {
        let merged = match &self.config {
            None => self,
            Some(path) => Self::from_file(path)?.overlaid_with(&self)?,
        };
        Ok(merged)
    }

    /// The same for `nicache attach`, which starts no server.
    ///
    /// # Errors
    /// As `resolve`; and what belongs to a server that is started is refused.
    pub fn resolve_attach(self) -> Result<AttachPlan> {
        let merged = self.merged()?;
        let (wire, host, server_pid) = (merged.wire.clone(), merged.host.clone(), merged.server_pid);
        let port = merged.port.unwrap_or(PortKind::Packet);
        let is_station = !merged.address.is_empty() || !merged.gateway.is_empty();
        let mut plan = merged.checked()?;
        let (Some(wire), Some(host)) = (wire, host) else {
            bail!("attach needs two interfaces: --wire IFACE toward the clients and --host IFACE toward the server");
        };
        for (name, is_given) in [
            ("SERVER", !plan.server.is_empty()),
            ("with", !plan.with.is_empty()),
            ("publish", !plan.publish.is_empty()),
            ("share", !plan.share.is_empty()),
            ("subnet", plan.subnet.is_some()),
            ("cards", plan.cards > 1),
            ("remote-database", !plan.remote_databases.is_empty()),
            ("address, gateway", is_station),
            ("watch preload", plan.watch == WatchKind::Preload),
        ] {
            if is_given {
                bail!(
                    "{name}: belongs to `nicache run`, which starts a server; attach stands in front of one that runs"
                );
            }
        }
        // What a server that runs already has read before is not known, so what its programs compute is not kept.
        plan.recheck = Milliseconds(0);
        for path in &mut plan.paths {
            path.recheck = path.recheck.map(|_| Milliseconds(0));
        }
        Ok(AttachPlan { wire, host, port, server_pid, run: plan })
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
        let clients = ClientLimits::of(&self)?;
        let plan = RunPlan {
            clients,
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
            wire: None,
            cards: self.cards.unwrap_or(1),
            queues: self.queues.unwrap_or(1),
            pcap: self.pcap,
            access_log: self.access_log,
            l0: self.l0.unwrap_or(false),
            cache_status: self.cache_status.unwrap_or(false),
            ignore_cookies: self.ignore_cookie,
            ignore_headers: self.ignore_header,
            vary: self.vary,
            session_files: self.session_files,
            data_folders: self.data_folder,
            paths: self.path,
            admin: self.admin,
            admin_reach: reach(self.admin_anyone.unwrap_or(false)),
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
        if plan.admin_reach == Reach::Anyone && plan.admin.is_none() {
            bail!("admin-anyone: says who may look at --admin, which is not there");
        }
        if plan.http_ports.contains(&0) || plan.share.contains(&0) {
            bail!("http-port, share: 0 is no port");
        }
        if !(1..=CARDS_MAX).contains(&plan.cards) {
            bail!("cards: between 1 and {CARDS_MAX}");
        }
        if !(1..=QUEUES_MAX).contains(&plan.queues) {
            bail!("queues: between 1 and {QUEUES_MAX}");
        }
        path::check(&plan.paths, plan.recheck.0)?;
        let mut keys = KeyConfig::new([0; 16]);
        for header in &plan.vary {
            let separated = keys.separate_by(header).ok();
            keys = separated.with_context(|| format!("vary: `{header}` is no name of a header, or one too many"))?;
        }
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

/// `--port`: by what the card is on an existing interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortKind {
    /// Packet sockets with virtio-net headers: super-frames, on any Ethernet.
    Packet,
    /// AF_XDP sockets: zero-copy where the driver has it. --queues is how many the interface has.
    Xdp,
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

    /// Prefix length of [`server6`](Subnet::server6)'s network.
    pub const PREFIX6: u8 = 64;

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

    /// The same network in IPv6: one of those that anybody may use within a site (RFC 4193), with the IPv4 network's number in it.
    fn network6(self) -> [u16; 4] {
        let [a, b, c, d] = self.network.octets();
        [0xfd6e, 0x6900 | u16::from(a), u16::from_be_bytes([b, c]), u16::from_be_bytes([d, 0])]
    }

    /// This machine's IPv6 address there, the server's default route.
    pub fn gateway6(self) -> Ipv6Addr {
        let [a, b, c, d] = self.network6();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 1)
    }

    /// The server's IPv6 address.
    pub fn server6(self) -> Ipv6Addr {
        let [a, b, c, d] = self.network6();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 2)
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
serde_as_text!(AdminAddress, Milliseconds, Network, Publish, RemoteDatabase, Span, Subnet);

#[cfg(test)]
mod tests {
    use clap::Parser;

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
        let command = crate::cli::command();
        let run = command.find_subcommand("run").unwrap();
        // What is hidden is for `attach`.
        let shown = run.get_arguments().filter(|arg| !arg.is_hide_set());
        let mut wanted: Vec<String> = shown.filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
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
        assert!(flags(&["--admin-anyone"]).resolve().is_err());
        let plan = flags(&["--admin", "0.0.0.0:9090", "--admin-anyone"]).resolve().unwrap();
        assert_eq!((plan.admin_reach, plan.admin.unwrap().0.port()), (Reach::Anyone, 9090));
        assert!(flags(&["--name", "../x"]).resolve().is_err());
        assert!(flags(&["--vary", "X-Device", "--vary", "a b"]).resolve().is_err());
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
