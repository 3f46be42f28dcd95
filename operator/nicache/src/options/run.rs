//! The settings of `nicache run`: one struct is the command line, the configuration file and their
//! documentation.
//!
//! A flag and its key in the file have the same name; a flag beats the file; a list given by flags
//! replaces the file's list. Doc comments are the help text, so they are written for the user. What
//! comes of them is in `plan.rs`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::span::Span;
use super::{
    AdminAddress, HandshakeKind, LogFormat, Milliseconds, Network, PathOptions, PolicyKind,
    PortKind, Publish, ReloadPhp, RemoteDatabase, Size, Subnet, WatchKind,
};

/// Least memory a card can work with.
pub(crate) const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Most queues (card threads) of one card.
pub(crate) const QUEUES_MAX: u16 = 64;

/// Most cards of one nicache.
pub(crate) const CARDS_MAX: u16 = 8;

/// Headings of the options in the help, by what a user wants to set.
const TRAFFIC: &str = "Where the server and its clients are";
const KEPT: &str = "What is kept, docs/http.md";
const WITNESSES: &str = "Who may change a page, docs/dynamic.md";
const CARD: &str = "The card";
const SEEING: &str = "What you see, docs/seeing.md";
/// Heading of the options for clients in the help.
const CLIENTS: &str = "Clients that take their time, docs/siege.md";

/// Settings of `nicache run`, all optional. [`RunOptions::resolve`] applies file and defaults.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RunOptions {
    /// Card memory for cached replies, all of it taken at the start: 64M, 2G, ... [default: 64M]
    #[arg(long, value_name = "SIZE", help_heading = CARD)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,

    /// Which replies to evict when the memory is full. `nicache trace advise` compares the policies
    /// on a log [default: lru]
    #[arg(long, value_enum, help_heading = CARD)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyKind>,

    /// Who answers a client's connection request: the server (pass-through), or the card, which
    /// keeps hits from the server altogether (card) [default: pass-through]
    #[arg(long, value_enum, help_heading = CARD)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake: Option<HandshakeKind>,

    /// How old a reply may be at first in what cannot be watched (the clock, a counter in a
    /// program's memory, a server's own rules): 500ms, 1s, 10s, ... With --watch kernel, changes
    /// of files always show at once. 0 caches only files (not with --watch preload) [default: 1s]
    #[arg(long, value_name = "TIME", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck: Option<Milliseconds>,

    /// How old a reply that has proven stable may be in what cannot be watched. The limit grows
    /// from --recheck to a quarter of the time for which the answer has been the same, up to this
    /// much. A page that comes out different although nothing has changed starts again at --recheck
    /// [default: 1m; with --watch preload 1s]
    #[arg(long, value_name = "TIME", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recheck_max: Option<Milliseconds>,

    /// Who watches what the server reads and who changes it: the kernel, into which nicache loads
    /// eBPF programs, or a library that is loaded into the server's programs (preload), which
    /// needs no privilege but does not see what other programs change: that shows after --recheck,
    /// of which preload allows at most 1s, unless they are run by `nicache follow` [default:
    /// kernel]
    #[arg(long, value_enum, help_heading = WITNESSES)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchKind>,

    /// Port on which the server speaks plain HTTP; other ports pass the card untouched. Repeatable
    /// [default: 80]
    #[arg(long = "http-port", value_name = "PORT", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub http_port: Vec<u16>,

    #[allow(
        rustdoc::broken_intra_doc_links,
        reason = "shown as help, where brackets belong to an address"
    )]
    /// Offer the server's TCP port at an address of this machine: 0.0.0.0 for all of IPv4, [::] for
    /// all of IPv6. SERVERPORT is the first --http-port unless given. Switches forwarding on while
    /// nicache runs, unless the address is a loopback one. Repeatable
    #[arg(long, value_name = "ADDR:PORT[:SERVERPORT]", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publish: Vec<Publish>,

    /// Let the server reach out to other machines through this one (implied by --publish to an
    /// address that is not a loopback one). Switches IPv4 forwarding on while nicache runs
    #[arg(
        help_heading = TRAFFIC,
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outgoing: Option<bool>,

    /// Make this machine's 127.0.0.1:PORT reachable as 127.0.0.1:PORT for the server, e.g. 5432 for
    /// a database on this machine. Repeatable
    #[arg(long, value_name = "PORT", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub share: Vec<u16>,

    /// A database on another machine, watched by the `nicache relay` in front of it: DATABASE is
    /// where the server finds that relay, mysql://ADDR:PORT or postgres://ADDR:PORT, RELAY the
    /// relay's --cards address (or nats=nats://HOST:PORT/NAME in its place), FILE the key that both
    /// know. Pages that ask it are kept as those of a database on this machine. Switches --outgoing
    /// on. Repeatable
    #[arg(long, value_name = "DATABASE,relay=RELAY,key=FILE", help_heading = WITNESSES)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remote_database: Vec<RemoteDatabase>,

    /// Run COMMAND beside the server, in its namespaces, started before it: a database, an
    /// application server. COMMAND is split into words as a shell does it, quotes included, but no
    /// shell runs. If it fails, everything ends; if the server ends, it is asked to end, too.
    /// Repeatable: started in the order given, stopped in the reverse order
    #[arg(long = "with", value_name = "COMMAND", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<String>,

    /// The /30 network between this machine (first address) and the server (second) [default: a
    /// free 10.N.0.0/30]
    #[arg(long, value_name = "A.B.C.D/30", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<Subnet>,

    /// The interface toward the clients: a veth, a bridge port, a network card, a representor
    #[arg(long, value_name = "IFACE", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,

    /// The interface toward the server
    #[arg(long, value_name = "IFACE", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,

    /// How the card gets frames at --wire: by packet sockets, which work on every Ethernet and take
    /// super-frames (auto, packet), or by AF_XDP sockets, for network cards whose drivers have them
    /// (xdp) [default: auto]
    #[arg(long, value_enum, help_heading = CARD)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<PortKind>,

    /// Address of the server on the network of --wire, with the length of its prefix: the server is
    /// a station there, beside this machine. Repeatable, IPv4 and IPv6
    #[arg(long, value_name = "ADDR/LEN", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address: Vec<Network>,

    /// The server's default route on the network of --wire. Repeatable, IPv4 and IPv6
    #[arg(long, value_name = "ADDR", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateway: Vec<IpAddr>,

    /// A process of the server behind --host: what it and all in its network namespace read is
    /// watched [default: found by the other end of --host, if that is a veth]
    #[arg(long, value_name = "PID", help_heading = TRAFFIC)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_pid: Option<u32>,

    /// Cards, each with an interface, a network and --memory of its own; connections to published
    /// ports take turns [default: 1]
    #[arg(
        help_heading = CARD,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CARDS_MAX)),
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cards: Option<u16>,

    /// Queues of the card, each with a thread of its own [default: 1]
    #[arg(
        help_heading = CARD,
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(QUEUES_MAX)),
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,

    /// Record the frames on the wire in this file (pcap)
    #[arg(long, value_name = "FILE", help_heading = SEEING)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcap: Option<PathBuf>,

    /// Append the requests that the card answered to this file, in the combined log format (the
    /// server's own log has the others)
    #[arg(long, value_name = "FILE", help_heading = SEEING)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log: Option<PathBuf>,

    /// Answer requests for small hot pages by a program in the kernel, before the card's process
    /// hears of them: the least latency and CPU time in all (docs/l0.md). By XDP on an existing
    /// interface, else at the TAP. Not with --access-log, --pcap, more than 8 --queues, or --watch
    /// preload
    #[arg(
        help_heading = CARD,
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l0: Option<bool>,

    /// Add `Cache-Status: nicache; hit` (RFC 9211) to replies from the card. Replies of the server
    /// pass unchanged
    #[arg(
        help_heading = SEEING,
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_status: Option<bool>,

    /// Cookie that no reply depends on, exact or as `prefix*`, or `@analytics`: those of a list
    /// that scripts of analytics set for themselves (docs/tls.md), e.g. `--ignore-cookie @analytics
    /// --ignore-cookie theme`. A request with any other cookie goes to the server. A wrong entry
    /// here can show one user's page to another. Repeatable
    #[arg(long, value_name = "NAME", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_cookie: Vec<String>,

    /// Request header that no reply depends on, exact or as `prefix*`, e.g. `--ignore-header
    /// 'X-Probe-*'`. A request with an unknown header goes to the server; `nicache status` names
    /// those that come. Repeatable
    #[arg(long, value_name = "HEADER", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore_header: Vec<String>,

    /// Request header whose value decides the reply even if the server does not say so in Vary,
    /// e.g. `--vary X-Country`: replies are kept apart by its value, and it is known. Repeatable
    #[arg(long, value_name = "HEADER", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vary: Vec<String>,

    /// Files in which the server keeps what belongs to one visitor's session, exact or as
    /// `/folder/prefix*`, e.g. `/var/lib/php/sessions/sess_*`: writing them does not affect other
    /// visitors. Repeatable
    #[arg(long, value_name = "PATH", help_heading = WITNESSES)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub session_files: Vec<PathBuf>,

    /// A folder of data that the server's programs read anew for each request that needs it and
    /// never keep in memory, e.g. a wiki's articles: a change in it concerns only the pages made
    /// from it. Not for scripts, templates or settings. Repeatable
    #[arg(long, value_name = "PATH", help_heading = WITNESSES)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub data_folder: Vec<PathBuf>,

    /// A unit of systemd whose programs answer for the server, e.g. gunicorn: what they make is
    /// kept, too. PHP-FPM is found without this. A unit that runs already is followed from its next
    /// start on. Repeatable
    #[arg(long, value_name = "UNIT", help_heading = WITNESSES)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub follow_unit: Vec<String>,

    /// When to reload a PHP-FPM that was started before nicache: its pages can be kept only after
    /// that [default: idle]
    #[arg(long, value_name = "WHEN", help_heading = WITNESSES)]
    pub reload_php: Option<ReloadPhp>,

    /// Connections that each queue follows at most; each takes some 5 KiB. When all are taken, a
    /// new one takes the place of a silent one, or passes to the server untouched [default: 16384]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,

    /// How many of --connections may have an incomplete handshake. From half of that on,
    /// --handshake card answers with SYN cookies, which take no memory [default: a quarter of
    /// --connections]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_open: Option<u32>,

    /// How often the card repeats its answer to a SYN, after 1s, 2s, 4s, ... (--handshake card)
    /// [default: 5]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syn_ack_retries: Option<u8>,

    /// How long a client that the card alone has served may say nothing before the card closes its
    /// connection [default: 75s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_time: Option<Span>,

    /// How long the head of a request may take, from its first byte to its last [default: 60s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_time: Option<Span>,

    /// Bytes per second that a client must take of a reply from card memory, averaged over
    /// --read-period. Two periods below that end the connection. 0: no limit [default: 100]
    #[arg(long, value_name = "BYTES", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_rate: Option<u32>,

    /// Period over which --read-rate is averaged. Make it longer than the outages of a mobile
    /// network [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_period: Option<Span>,

    /// How long a client may keep its window closed while the card has something for it [default:
    /// 2m]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_window: Option<Span>,

    /// How long a connection that the card and the server share may be silent before the card
    /// probes the client [default: 2h]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive: Option<Span>,

    /// Time between two probes of a silent client [default: 75s]
    #[arg(long, value_name = "TIME", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_interval: Option<Span>,

    /// Unanswered probes after which the card drops the connection [default: 9]
    #[arg(long, value_name = "N", help_heading = CLIENTS)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_alive_probes: Option<u8>,

    /// Settings for some paths, as a table of TOML without its braces; in the configuration file
    /// they are `[[path]]` tables, see docs/dynamic.md. The first pattern that matches counts.
    /// Repeatable. Example: --path 'pattern = "/feed/*", recheck = "10s"' --path 'pattern =
    /// "/admin*", cache = false'
    #[arg(long, value_name = "TABLE", help_heading = KEPT)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<PathOptions>,

    /// Show figures at this address of this machine: a live page at /, metrics for Prometheus at
    /// /metrics, JSON at /api/status. Without ADDR it is 127.0.0.1. There is no password [default:
    /// nowhere]
    #[arg(long, value_name = "[ADDR:]PORT", help_heading = SEEING)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminAddress>,

    /// Let --admin be at an address that is not a loopback one: whoever reaches it sees which pages
    /// are asked for, and how the server is run
    #[arg(
        help_heading = SEEING,
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_anyone: Option<bool>,

    /// Name of this nicache, by which `status`, `top`, `why` and other commands find it [default:
    /// that of its interface, nic0, nic1, ...]
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// Tell on standard output, as JSON lines, when the server is ready and how it ended
    #[arg(
        help_heading = SEEING,
        long,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_name = "BOOL",
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json: Option<bool>,

    /// Form of the log on standard error [default: text]
    #[arg(long, value_enum, help_heading = SEEING)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,

    /// Read settings from this file (TOML; keys are the flags' names); flags override it
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// The server and its arguments
    #[arg(last = true, value_name = "SERVER ARGS")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub server: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use nicache_admin::Reach;

    use super::*;
    use crate::cli::Cli;

    const EXAMPLE: &str =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../nicache.example.toml"));

    fn flags(args: &[&str]) -> RunOptions {
        let line = ["nicache", "run"].iter().chain(args);
        match Cli::try_parse_from(line).expect("arguments").command {
            crate::cli::Command::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    /// The example file with every setting uncommented: `# key = value` lines have exactly one
    /// space after the `#`.
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
        assert_eq!(
            (plan.queues, plan.policy, plan.handshake),
            (1, PolicyKind::LRU, HandshakeKind::PassThrough)
        );
        assert!(!plan.outgoing && !plan.json && plan.server.is_empty());
    }

    #[test]
    fn flags_beat_the_file() {
        let file: RunOptions =
            toml::from_str("memory = '1G'\nqueues = 4\nhttp-port = [8080, 81]\njson = true")
                .unwrap();
        let merged = file
            .overlaid_with(&flags(&["--memory", "2M", "--http-port", "82", "--json=false"]))
            .unwrap();
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
        let mut wanted: Vec<String> =
            shown.filter_map(|arg| arg.get_long()).map(str::to_owned).collect();
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
    fn keys_are_read_at_once() {
        let text = "postgres://10.0.0.5:5432,relay=[fd00::1]:7400,key=/k";
        assert!(flags(&["--remote-database", text]).resolve().is_err(), "there is no such key");
    }

    #[test]
    fn what_does_not_go_together() {
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
