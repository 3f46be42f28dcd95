//! Who answers over the path: nginx with Linux' TCP, or the card in front of it.
//!
//! ```text
//!  nginx   client ──path── nginx
//!  card    client ──path── bridge ── nicache card ── nginx
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::condition::Condition;
use super::path::{INTERFACE, Path};
use super::site::Site;
use super::transfer;
use crate::wire::namespace;
use crate::wire::process::{Enclosure, Process};
use crate::wire::subject::{ready, run_nicache};

/// How long a program may take to start, and the card to store an object.
const START: Duration = Duration::from_secs(30);
const NETWORK_V6: &str = "fd6e:6963:6163:6865::";

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// nginx, by Linux' own sender with CUBIC.
    Linux,
    /// The card; nginx completed the handshakes.
    PassThrough,
    /// The card, which completed the handshakes, too.
    Card,
}

impl Subject {
    /// All of them, what others are compared with first.
    pub const ALL: [Self; 3] = [Self::Linux, Self::PassThrough, Self::Card];

    /// The subject's name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::Linux => "Linux",
            Self::PassThrough => "card",
            Self::Card => "card, own handshake",
        }
    }
}

/// A subject that serves over a path. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Running {
    path: Path,
    _process: Process,
    /// Name of the running nicache.
    card: Option<String>,
    server: Ipv4Addr,
    client_address: Ipv4Addr,
    client: Namespace,
    _others: Vec<Namespace>,
}

impl Running {
    /// Starts a subject on `cpu` in new namespaces. `nicache` is the program.
    ///
    /// # Errors
    /// Something does not start.
    pub(super) fn start(
        subject: Subject,
        site: &Site,
        nicache: &FilePath,
        cpu: usize,
    ) -> Result<Self> {
        let (client, server) = (namespace::create()?, namespace::create()?);
        let path = Path::open(&client, &server)?;
        let mut running = if subject == Subject::Linux {
            let address = Ipv4Addr::new(10, 203, 1, 2);
            server.command(&format!("ip address add {address}/30 dev {INTERFACE}"))?;
            server.command(&format!("ip -6 address add {NETWORK_V6}2/64 dev {INTERFACE} nodad"))?;
            let routes = cubic_routes(INTERFACE, address);
            routes.iter().try_for_each(|route| server.command(route).map(drop))?;
            let log = site.folder().join("nginx.log");
            let process =
                Process::start(&server, cpu, Enclosure::PidNamespace, &site.nginx("linux")?, &log)?;
            let others = vec![server];
            Self {
                path,
                _process: process,
                card: None,
                server: address,
                client_address: address,
                client,
                _others: others,
            }
        } else {
            Self::start_card(subject, site, nicache, cpu, path, client, server)?
        };
        let mut gateway = running.server.octets();
        gateway[3] -= 1;
        running.client_address = Ipv4Addr::from(gateway);
        running
            .client
            .command(&format!("ip address add {}/30 dev {INTERFACE}", running.client_address))?;
        running
            .client
            .command(&format!("ip -6 address add {NETWORK_V6}1/64 dev {INTERFACE} nodad"))?;
        running.route(true)?;
        running.wait()?;
        Ok(running)
    }

    fn start_card(
        subject: Subject,
        site: &Site,
        nicache: &FilePath,
        cpu: usize,
        path: Path,
        client: Namespace,
        middle: Namespace,
    ) -> Result<Self> {
        let name = format!("impair-{}-{subject:?}", std::process::id()).to_lowercase();
        let handshake = if subject == Subject::Card { "card" } else { "pass-through" };
        let mut argv = vec![
            nicache.to_str().context("the path of this program is not valid UTF-8")?.to_owned(),
        ];
        argv.extend(
            ["run", "--json", "--name", &name, "--handshake", handshake, "--"].map(str::to_owned),
        );
        argv.extend(site.nginx(&format!("{subject:?}").to_lowercase())?);
        let log = site.folder().join(format!("{name}.log"));
        let mut process = Process::start(&middle, cpu, Enclosure::None, &argv, &log)?;
        let status = ready(&mut process)?;
        if let Some(reason) = status["watch_unavailable"].as_str() {
            bail!("the card stores nothing on this machine: {reason}");
        }
        let text =
            |key: &str| status[key].as_str().with_context(|| format!("no {key} in the status"));
        let (server, interface): (Ipv4Addr, &str) =
            (text("server_address")?.parse()?, text("interface")?);
        // The client takes the place, and the address, of the namespace that the card was started
        // in.
        middle.command(&format!("ip address flush dev {interface}"))?;
        middle.command("ip link add joint type bridge")?;
        for end in [interface, INTERFACE] {
            middle.command(&format!("ip link set {end} master joint"))?;
        }
        middle.command("ip link set joint up")?;
        let server_pid = status["server_pid"].as_u64().context("no server_pid in the status")?;
        let inside =
            |words: &str| middle.command(&format!("nsenter --target {server_pid} --net {words}"));
        inside(&format!("ip -6 address add {NETWORK_V6}2/64 dev eth0 nodad"))?;
        cubic_routes("eth0", server).iter().try_for_each(|route| inside(route).map(drop))?;
        let _others = vec![middle];
        Ok(Self {
            path,
            _process: process,
            card: Some(name),
            server,
            client_address: server,
            client,
            _others,
        })
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        let mut missing = vec![false, true];
        while let Some(v6) = missing.last().copied() {
            let address = self.address(v6);
            let connect =
                move || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok();
            if self.client.run(connect) {
                missing.pop();
                continue;
            }
            self._process.check_alive()?;
            ensure!(
                Instant::now() < deadline,
                "no server at {address} after {} s",
                START.as_secs()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where the server is.
    pub(super) fn address(&self, v6: bool) -> SocketAddr {
        let v4 = IpAddr::V4(self.server);
        let address = if v6 {
            IpAddr::V6(format!("{NETWORK_V6}2").parse::<Ipv6Addr>().unwrap_or(Ipv6Addr::LOCALHOST))
        } else {
            v4
        };
        SocketAddr::new(address, 80)
    }

    /// The namespace of the client.
    pub(super) fn client(&self) -> &Namespace {
        &self.client
    }

    /// The path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Has the client's interface take packets of `mtu` bytes at most.
    ///
    /// # Errors
    /// The kernel does not allow it.
    pub(super) fn set_mtu(&self, mtu: u32) -> Result<()> {
        self.client.command(&format!("ip link set {INTERFACE} mtu {mtu}"))?;
        if mtu >= 1_280 {
            // Linux takes IPv6 away from an interface with less.
            self.client.command(&format!(
                "ip -6 address replace {NETWORK_V6}1/64 dev {INTERFACE} nodad"
            ))?;
        }
        self.route(mtu >= 1_280)
    }

    /// The client's side uses CUBIC, too.
    fn route(&self, has_v6: bool) -> Result<()> {
        let [v4, v6] = cubic_routes(INTERFACE, self.client_address);
        self.client.command(&v4)?;
        if has_v6 {
            self.client.command(&v6)?;
        }
        Ok(())
    }

    /// Makes sure, over a perfect path, that a body is right and comes from where it should.
    ///
    /// # Errors
    /// The body is wrong, or the card does not store it.
    pub(super) fn prepare(
        &self,
        condition: &Condition,
        site: &Site,
        nicache: &FilePath,
    ) -> Result<()> {
        self.path.set(Condition::perfect());
        let deadline = Instant::now() + START;
        loop {
            let before = self.hits(nicache)?;
            let fetched = transfer::fetch(
                &self.client,
                self.address(condition.v6),
                0,
                condition.bytes,
                START,
            )?;
            ensure!(
                fetched.is_whole && site.is_body(condition.bytes, &fetched.body),
                "the body is not what the file holds"
            );
            if self.card.is_none() || self.hits(nicache)? > before {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the card has not stored the object after {} s",
                START.as_secs()
            );
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Requests that the card has answered; zero if there is no card.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(super) fn hits(&self, nicache: &FilePath) -> Result<u64> {
        let Some(name) = &self.card else { return Ok(0) };
        let text = run_nicache(nicache, &["status", "--json", "--name", name])?;
        let status: Value = serde_json::from_str(&text)?;
        status["counters"]["hits"].as_u64().context("no hits in the status")
    }
}

/// Linux' senders are to use CUBIC, whatever the machine's default is.
fn cubic_routes(interface: &str, server: Ipv4Addr) -> [String; 2] {
    let [a, b, c, _] = server.octets();
    [
        format!(
            "ip route replace {a}.{b}.{c}.0/30 dev {interface} proto kernel scope link src {server} congctl cubic"
        ),
        format!(
            "ip -6 route replace {NETWORK_V6}/64 dev {interface} proto kernel metric 256 congctl cubic"
        ),
    ]
}
