//! Where it happens: a server behind a card, and on the other side of a bridge a client that
//! behaves and attackers that do not.
//!
//! ```text
//!  client namespace           middle namespace                       server namespace
//!  Linux ──veth──┐
//!                ├─ bridge ── nicache card ───────────────────────── nginx
//!  attackers ────┘
//!  (TAP, a thread of this process)
//! ```

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use nicache_tcp::frame::Mac;
use serde_json::Value;

use super::address::{MAC, NETWORK};
use super::gauges::Gauges;
use super::wire::{INTERFACE, Wire};
use crate::impair::site::Site;
use crate::wire::namespace;
use crate::wire::process::{Enclosure, Process};
use crate::wire::subject::{ready, run_nicache};

/// How long a program may take to start, and the card to store an object.
const START: Duration = Duration::from_secs(30);
/// The server's gateway to the attackers: an address that is valid on this link only.
const GATEWAY: &str = "169.254.7.1";

/// Everything that runs. Fields are dropped in this order.
#[derive(Debug)]
pub(super) struct Ground {
    process: Process,
    name: String,
    card_pid: u32,
    server: Ipv4Addr,
    client: Namespace,
    _middle: Namespace,
}

impl Ground {
    /// Starts the server behind a card with `options` (of `nicache run`) on `cpu`, and makes the
    /// attackers' interface.
    ///
    /// # Errors
    /// Something does not start.
    pub(super) fn start(
        site: &Site,
        nicache: &FilePath,
        options: &[String],
        cpu: usize,
    ) -> Result<(Self, Wire)> {
        let (client, middle) = (namespace::create()?, namespace::create()?);
        let name = format!("siege-{}", std::process::id());
        let mut argv = vec![
            nicache.to_str().context("the path of this program is not valid UTF-8")?.to_owned(),
        ];
        argv.extend(["run", "--json", "--name", &name].map(str::to_owned));
        argv.extend(options.iter().cloned());
        argv.push("--".to_owned());
        argv.extend(site.nginx("siege")?);
        let log = site.folder().join("nicache.log");
        let mut process = Process::start(&middle, cpu, Enclosure::None, &argv, &log)?;
        let status = ready(&mut process)?;
        if let Some(reason) = status["watch_unavailable"].as_str() {
            bail!("the card stores nothing on this machine: {reason}");
        }
        let text =
            |key: &str| status[key].as_str().with_context(|| format!("no {key} in the status"));
        let number =
            |key: &str| status[key].as_u64().with_context(|| format!("no {key} in the status"));
        let (server, interface): (Ipv4Addr, &str) =
            (text("server_address")?.parse()?, text("interface")?);
        let (card_pid, server_pid) = (number("card_pid")? as u32, number("server_pid")?);
        let mac = mac_of_server(&middle, server_pid)?;
        let wire = Wire::open(&middle, server, mac)?;
        // The client takes the place, and the address, of the namespace that the card was started
        // in.
        let mut gateway = server.octets();
        gateway[3] -= 1;
        let gateway = Ipv4Addr::from(gateway);
        for words in [
            format!("ip address flush dev {interface}"),
            "ip link add joint type bridge".to_owned(),
            format!("ip link add client type veth peer name client netns {}", client.thread_id()),
            format!("ip link set {INTERFACE} txqueuelen 20000"),
            format!("ip link set {interface} txqueuelen 10000"),
        ] {
            middle.command(&words)?;
        }
        for end in [interface, INTERFACE, "client"] {
            middle.command(&format!("ip link set {end} master joint"))?;
            middle.command(&format!("ip link set {end} up"))?;
        }
        middle.command("ip link set joint up")?;
        client.command(&format!("ip address add {gateway}/30 dev client"))?;
        client.command("ip link set client up")?;
        let inside =
            |words: &str| middle.command(&format!("nsenter --target {server_pid} --net {words}"));
        let [a, b] = NETWORK;
        let hex: Vec<String> = MAC.iter().map(|byte| format!("{byte:02x}")).collect();
        inside(&format!(
            "ip neigh replace {GATEWAY} lladdr {} dev eth0 nud permanent",
            hex.join(":")
        ))?;
        inside(&format!("ip route replace {a}.{b}.0.0/16 via {GATEWAY} dev eth0 onlink"))?;
        let mut ground = Self { process, name, card_pid, server, client, _middle: middle };
        ground.wait()?;
        Ok((ground, wire))
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + START;
        let address = self.address();
        while !self
            .client
            .run(move || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
        {
            self.process.check_alive()?;
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
    pub(super) fn address(&self) -> SocketAddr {
        (self.server, super::wire::SERVER_PORT).into()
    }

    /// The namespace of the client that behaves.
    pub(super) fn client(&self) -> &Namespace {
        &self.client
    }

    /// The card's counters and gauges now, and its memory.
    ///
    /// # Errors
    /// It does not answer, or has been started anew.
    pub(super) fn gauges(&mut self, nicache: &FilePath) -> Result<Gauges> {
        self.process.check_alive()?;
        let text = run_nicache(nicache, &["status", "--json", "--name", &self.name])?;
        let status: Value = serde_json::from_str(&text)?;
        let pid = status["card_pid"].as_u64().context("no card_pid in the status")?;
        ensure!(
            pid == u64::from(self.card_pid),
            "the card has ended and was started anew. nicache said last:\n{}",
            self.process.last_words()
        );
        Gauges::new(&status, self.card_pid)
    }
}

fn mac_of_server(namespace: &Namespace, server_pid: u64) -> Result<Mac> {
    let mut command = std::process::Command::new("nsenter");
    command.args([
        "--target",
        &server_pid.to_string(),
        "--net",
        "ip",
        "-o",
        "link",
        "show",
        "eth0",
    ]);
    let output = namespace.run(move || command.output())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let word =
        text.split_once("link/ether ").and_then(|(_, rest)| rest.split_ascii_whitespace().next());
    let bytes: Option<Vec<u8>> = word
        .and_then(|word| word.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect());
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .with_context(|| format!("no MAC address of the server in: {text}"))
}
