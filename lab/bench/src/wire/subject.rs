//! What is measured: who answers the client, and how it is started.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use nicache_reply::field;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cpu::Cpus;
use super::floor;
use super::load;
use super::namespace::{self, cubic_route};
use super::peers;
use super::process::{Enclosure, Process};
use super::site::{Object, Site};

/// How long a program may take to start.
const START: Duration = Duration::from_secs(30);
/// How long the card may take to store an object. A refused fill is repeated once nginx has looked
/// at the file again, within a second.
const FILL: Duration = Duration::from_secs(10);

/// Interfaces of a veth pair toward the client.
const WIRE: &str = "wire";
/// Longest body that L0 takes together with its head, whatever the server's fields are.
const L0_BYTES: u64 = 10_000;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// nginx behind a veth pair, with a cache of open files.
    Nginx,
    /// nginx behind a veth pair without a cache of open files, which is how nginx comes.
    NginxPlain,
    /// Apache with its event MPM.
    Apache,
    /// Varnish in a namespace of its own, nginx behind it.
    Varnish,
    /// HAProxy with a cache in a namespace of its own, nginx behind it.
    Haproxy,
    /// nginx behind the card, which passes everything (`nicache bypass on`).
    CardMiss,
    /// The card; nginx completed the handshakes.
    CardHit,
    /// The card, which completed the handshakes, too.
    CardHitHandshake,
    /// The card, which completed the handshakes, too, with packet sockets at the end of a veth pair
    /// instead of a TAP toward the client (`nicache run --wire`).
    CardHitVeth,
    /// The card with `--l0`: small replies come from the client's own stack; nginx completed the
    /// handshakes.
    CardHitL0,
    /// A program at a TAP that answers everything with the same bytes ([`floor`]).
    Floor,
    /// `nicache serve`: host and card as two processes, content from card memory that the host
    /// manages.
    Serve,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Nginx,
        Self::NginxPlain,
        Self::Apache,
        Self::Varnish,
        Self::Haproxy,
        Self::CardMiss,
        Self::CardHit,
        Self::CardHitHandshake,
        Self::CardHitVeth,
        Self::CardHitL0,
        Self::Floor,
        Self::Serve,
    ];

    /// The subject's name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::NginxPlain => "nginx, no open_file_cache",
            Self::Apache => "Apache",
            Self::Varnish => "Varnish",
            Self::Haproxy => "HAProxy",
            Self::CardMiss => "card, bypassed",
            Self::CardHit => "card, hits",
            Self::CardHitHandshake => "card, hits, own handshake",
            Self::CardHitVeth => "card, hits, own handshake, veth",
            Self::CardHitL0 => "card, hits, L0",
            Self::Floor => "TAP, no card",
            Self::Serve => "nicache serve",
        }
    }

    /// Programs that it needs, with the Debian packages they are in.
    pub fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Apache => &[("apache2", "apache2-bin")],
            Self::Haproxy => &[("nginx", "nginx-light"), ("haproxy", "haproxy")],
            Self::Varnish => &[("nginx", "nginx-light"), ("varnishd", "varnish"), ("cc", "gcc")],
            Self::Floor | Self::Serve => &[],
            _ => &[("nginx", "nginx-light")],
        }
    }

    /// Settings that the report tells of: what is not said is as Debian installs it.
    pub fn settings(self) -> Option<&'static str> {
        match self {
            Self::Apache => Some(peers::APACHE_SETTINGS),
            Self::Varnish => Some(peers::VARNISH_SETTINGS),
            Self::Haproxy => Some(peers::HAPROXY_SETTINGS),
            _ => None,
        }
    }

    /// Whether it is about replies like this object's.
    pub fn takes(self, object: &Object) -> bool {
        match self {
            Self::CardHitL0 => object.bytes <= L0_BYTES,
            Self::Floor => object.bytes <= floor::BYTES_MAX,
            _ => true,
        }
    }

    fn is_card(self) -> bool {
        use Subject::{CardHit, CardHitHandshake, CardHitL0, CardHitVeth, CardMiss};
        matches!(self, CardMiss | CardHit | CardHitHandshake | CardHitVeth | CardHitL0)
    }

    /// Options of `nicache run`.
    fn card_options(self) -> Vec<&'static str> {
        match self {
            Self::CardHitHandshake => vec!["--handshake", "card"],
            Self::CardHitVeth => {
                vec!["--handshake", "card", "--wire", WIRE, "--address", "10.201.1.2/30"]
            }
            Self::CardHitL0 => vec!["--handshake", "pass-through", "--l0"],
            _ => vec!["--handshake", "pass-through"],
        }
    }
}

/// Requests that the card has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Answered by it.
    pub hits: u64,
    /// Passed to the server.
    pub others: u64,
}

/// A subject that serves. Fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Running {
    subject: Subject,
    processes: Vec<Process>,
    /// Program and name of the running nicache.
    card: Option<(PathBuf, String)>,
    server: Ipv4Addr,
    client: Namespace,
    others: Vec<Namespace>,
}

impl Running {
    /// Starts a subject on `cpus`, in new namespaces, to be asked for `object`. `nicache` is the
    /// program.
    ///
    /// # Errors
    /// Something does not start.
    pub(crate) fn start(
        subject: Subject,
        object: &Object,
        site: &Site,
        nicache: &Path,
        cpus: impl Into<Cpus>,
    ) -> Result<Self> {
        let cpus = cpus.into();
        let client = namespace::create()?;
        // Room for a connection per request, whose ports are used up otherwise. Not every container
        // lets a namespace have its way.
        client.run(|| {
            let _ = std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535");
        });
        if subject == Subject::Serve {
            return Self::start_serve(client, site, nicache, cpus);
        }
        if subject == Subject::Floor {
            return Self::start_floor(client, object, site, cpus);
        }
        if subject.is_card() {
            return Self::start_card(subject, client, site, nicache, cpus);
        }
        let server = namespace::create()?;
        let mut running = Self {
            subject,
            processes: Vec::new(),
            card: None,
            server: Ipv4Addr::new(10, 201, 1, 2),
            client,
            others: Vec::new(),
        };
        let nginx_log = site.folder().join("nginx.log");
        if matches!(subject, Subject::Varnish | Subject::Haproxy) {
            let proxy = namespace::create()?;
            namespace::join(&running.client, &proxy, WIRE, "10.201.1")?;
            namespace::join(&proxy, &server, "back", "10.201.2")?;
            running.processes.push(Process::start(
                &server,
                cpus,
                Enclosure::PidNamespace,
                &site.nginx(cpus),
                &nginx_log,
            )?);
            running.wait_for(&proxy, Ipv4Addr::new(10, 201, 2, 2))?;
            let (argv, log) = match subject {
                Subject::Varnish => (peers::varnish(site.folder(), "10.201.2.2")?, "varnish.log"),
                _ => (peers::haproxy(site.folder(), "10.201.2.2", cpus)?, "haproxy.log"),
            };
            let log = site.folder().join(log);
            running.processes.push(Process::start(
                &proxy,
                cpus,
                Enclosure::PidNamespace,
                &argv,
                &log,
            )?);
            running.others.push(proxy);
        } else {
            namespace::join(&running.client, &server, WIRE, "10.201.1")?;
            let (argv, log) = match subject {
                Subject::Apache => {
                    (peers::apache(site.folder(), &site.files())?, site.folder().join("apache.log"))
                }
                Subject::NginxPlain => (site.nginx_plain(cpus), nginx_log),
                _ => (site.nginx(cpus), nginx_log),
            };
            running.processes.push(Process::start(
                &server,
                cpus,
                Enclosure::PidNamespace,
                &argv,
                &log,
            )?);
        }
        running.others.push(server);
        let client = running.client.clone();
        running.wait_for(&client, running.server)?;
        Ok(running)
    }

    fn start_card(
        subject: Subject,
        client: Namespace,
        site: &Site,
        nicache: &Path,
        cpus: Cpus,
    ) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let mut argv = vec![
            nicache.to_str().context("the path of this program is not valid UTF-8")?.to_owned(),
        ];
        argv.extend(["run", "--json", "--name", &name].map(str::to_owned));
        argv.extend(subject.card_options().into_iter().map(str::to_owned));
        if subject != Subject::CardHitL0 && subject != Subject::CardHitVeth {
            argv.extend(["--queues".to_owned(), cpus.count().to_string()]);
        }
        argv.push("--".to_owned());
        argv.extend(site.nginx(cpus));
        let place = if subject == Subject::CardHitVeth { Some(wire_of(&client)?) } else { None };
        let inside = place.as_ref().unwrap_or(&client);
        let mut process = Process::start(
            inside,
            cpus,
            Enclosure::None,
            &argv,
            &site.folder().join("nicache.log"),
        )?;
        let status = ready(&mut process)?;
        let text =
            |key: &str| status[key].as_str().with_context(|| format!("no {key} in the status"));
        let server: Ipv4Addr = text("server_address")?.parse()?;
        if subject == Subject::CardMiss {
            run_nicache(nicache, &["bypass", "on", "--name", &name])?;
        } else if let Some(reason) = status["watch_unavailable"].as_str() {
            bail!("the card stores nothing on this machine: {reason}");
        }
        let [a, b, c, _] = server.octets();
        let network = format!("{a}.{b}.{c}");
        client.command(&cubic_route(text("interface")?, &network, 1))?;
        let server_pid = status["server_pid"].as_u64().context("no server_pid in the status")?;
        client.command(&format!(
            "nsenter --target {server_pid} --net {}",
            cubic_route("eth0", &network, 2)
        ))?;
        let mut running = Self {
            subject,
            processes: vec![process],
            card: Some((nicache.to_owned(), name)),
            server,
            client,
            others: place.into_iter().collect(),
        };
        let client = running.client.clone();
        running.wait_for(&client, server)?;
        Ok(running)
    }

    fn start_floor(client: Namespace, object: &Object, site: &Site, cpus: Cpus) -> Result<Self> {
        let own = std::env::current_exe().context("cannot find this program's own file")?;
        let mut argv =
            vec![own.to_str().context("the path of this program is not valid UTF-8")?.to_owned()];
        argv.extend(["bench", "floor", &object.bytes.to_string()].map(str::to_owned));
        let mut process = Process::start(
            &client,
            cpus,
            Enclosure::None,
            &argv,
            &site.folder().join("floor.log"),
        )?;
        if first_line(&mut process).is_none() {
            bail!("the program at the TAP did not start: {}", process.last_words());
        }
        let (interface, network) = (floor::INTERFACE, "10.201.1");
        client.command(&format!("ip address add {network}.1/30 dev {interface}"))?;
        client.command(&format!("ip link set {interface} up"))?;
        client.command(&cubic_route(interface, network, 1))?;
        client.command(&format!(
            "ip neigh add {network}.2 lladdr {} dev {interface} nud permanent",
            floor::MAC
        ))?;
        let (subject, server) = (Subject::Floor, Ipv4Addr::new(10, 201, 1, 2));
        Ok(Self {
            subject,
            processes: vec![process],
            card: None,
            server,
            client,
            others: Vec::new(),
        })
    }

    fn start_serve(client: Namespace, site: &Site, nicache: &Path, cpus: Cpus) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let mut argv = vec![
            nicache.to_str().context("the path of this program is not valid UTF-8")?.to_owned(),
        ];
        argv.extend(["serve", "--json", "--name", &name].map(str::to_owned));
        argv.push(site.files().display().to_string());
        let mut process = Process::start(
            &client,
            cpus,
            Enclosure::None,
            &argv,
            &site.folder().join("nicache.log"),
        )?;
        let status = ready(&mut process)?;
        let url = status["urls"][0].as_str().context("no URL in the status")?;
        let server: Ipv4Addr = url.trim_start_matches("http://").trim_end_matches('/').parse()?;
        if let Some(reason) = status["not_keeping"].as_str() {
            bail!("the card stores nothing on this machine: {reason}");
        }
        let [a, b, c, _] = server.octets();
        let interface = status["interfaces"][0].as_str().context("no interface in the status")?;
        client.command(&cubic_route(interface, &format!("{a}.{b}.{c}"), 1))?;
        let card = Some((nicache.to_owned(), name));
        let (subject, processes) = (Subject::Serve, vec![process]);
        let mut running = Self { subject, processes, card, server, client, others: Vec::new() };
        let client = running.client.clone();
        running.wait_for(&client, server)?;
        Ok(running)
    }

    fn wait_for(&mut self, from: &Namespace, server: Ipv4Addr) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let address = SocketAddrV4::new(server, 80).into();
            if from
                .run(move || TcpStream::connect_timeout(&address, Duration::from_secs(1)))
                .is_ok()
            {
                return Ok(());
            }
            for process in &mut self.processes {
                process.check_alive()?;
            }
            ensure!(Instant::now() < deadline, "no server at {server} after {} s", START.as_secs());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The namespace of the client.
    pub(crate) fn client(&self) -> &Namespace {
        &self.client
    }

    /// Address of the server, whose port is 80.
    pub(crate) fn server(&self) -> Ipv4Addr {
        self.server
    }

    /// URL of an object.
    pub(crate) fn url(&self, object: &Object) -> String {
        format!("http://{}{}", self.server, object.path())
    }

    /// First processes of the serving side.
    pub(crate) fn roots(&self) -> Vec<u32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Makes sure that an object is answered right, and by whom it shall be answered, for requests
    /// of either kind.
    ///
    /// # Errors
    /// The body is wrong, or a cache does not take the object.
    pub(crate) fn prepare(&self, object: &Object) -> Result<()> {
        for close in [false, true] {
            self.prepare_kind(object, close)
                .with_context(|| format!("{}, {}", self.subject.label(), object.label()))?;
        }
        Ok(())
    }

    fn prepare_kind(&self, object: &Object, close: bool) -> Result<()> {
        let deadline = Instant::now() + FILL;
        loop {
            let before = self.counts()?;
            let (head, body) = load::get(&self.client, self.server, &object.path(), close)?;
            ensure!(body == object.body(), "the body is not what the file holds");
            let by_cache = match (self.subject, before, self.counts()?) {
                (
                    Subject::Nginx
                    | Subject::NginxPlain
                    | Subject::Apache
                    | Subject::CardMiss
                    | Subject::Floor,
                    ..,
                ) => {
                    return Ok(());
                }
                // A hit names the request that filled it, too.
                (Subject::Varnish, ..) => {
                    field(&head, "x-varnish").is_some_and(|ids| ids.contains(&b' '))
                }
                // Only what its cache delivers has an age: nginx sends none.
                (Subject::Haproxy, ..) => field(&head, "age").is_some(),
                (_, Some(before), Some(after)) => after.hits > before.hits,
                _ => false,
            };
            if by_cache {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("not stored after {} s: {}", FILL.as_secs(), self.reasons());
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Runs a measurement of `requests` and makes sure that they were answered by whom they should.
    ///
    /// # Errors
    /// The measurement's own, or the card's counters say otherwise.
    pub(crate) fn checked<T>(
        &self,
        measure: impl FnOnce() -> Result<T>,
        requests: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let before = self.counts()?;
        let result = measure()?;
        let (Some(before), Some(after)) = (before, self.counts()?) else { return Ok(result) };
        let requests = requests(&result);
        let (hits, others) = (after.hits - before.hits, after.others - before.others);
        let right = match self.subject {
            Subject::CardMiss => hits == 0 && others >= requests,
            _ => others == 0 && hits >= requests,
        };
        if !right {
            let reasons = self.reasons();
            let what = format!(
                "of {requests} requests the card answered {hits} and passed {others}: {reasons}"
            );
            return Err(NotByCache(what).into());
        }
        Ok(result)
    }

    /// What the card has counted so far; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be asked.
    pub(crate) fn counts(&self) -> Result<Option<Counts>> {
        let Some(status) = self.status()? else { return Ok(None) };
        if self.subject == Subject::Serve {
            let requests = status["report"]["counters"]["requests"]
                .as_u64()
                .context("no requests in the status")?;
            let copied = status["report"]["cards"][0]["counters"]["copied_bytes"].as_u64();
            return Ok(Some(Counts {
                hits: requests,
                others: copied.context("no copied_bytes in the status")?,
            }));
        }
        let number = |key: &str| {
            status["counters"][key].as_u64().with_context(|| format!("no {key} in the status"))
        };
        // The card's own requests go to the server, as they should.
        let others =
            (number("misses")? + number("bypasses")?).saturating_sub(number("recheck_requests")?);
        Ok(Some(Counts { hits: number("hits")?, others }))
    }

    fn status(&self) -> Result<Option<Value>> {
        let Some((program, name)) = &self.card else { return Ok(None) };
        let text = run_nicache(program, &["status", "--json", "--name", name])?;
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// What the card says about requests that were not hits.
    fn reasons(&self) -> String {
        let Ok(Some(status)) = self.status() else { return "nothing known".to_owned() };
        let counters = status["counters"].as_object().cloned().unwrap_or_default();
        let telling = |name: &str| {
            ["bypass_", "fill", "purges", "not_caching"].iter().any(|start| name.starts_with(start))
        };
        let list: Vec<String> = counters
            .iter()
            .filter(|(name, value)| telling(name) && value.as_u64() != Some(0) && !value.is_null())
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        list.join(", ")
    }
}

/// A namespace with the other end of a pair of virtual Ethernet interfaces, where a card can be
/// put; the client's has the first address of 10.201.1.0/30.
fn wire_of(client: &Namespace) -> Result<Namespace> {
    let place = namespace::create()?;
    client.command(&format!(
        "ip link add {WIRE} type veth peer name {WIRE} netns {}",
        place.thread_id()
    ))?;
    client.command(&format!("ip address add 10.201.1.1/30 dev {WIRE}"))?;
    for side in [client, &place] {
        side.command(&format!("ip link set {WIRE} up"))?;
        side.command(&format!("ethtool -K {WIRE} gro on"))?;
    }
    Ok(place)
}

/// Requests were answered by somebody else than the subject is about.
#[derive(Debug)]
pub(crate) struct NotByCache(String);

impl std::fmt::Display for NotByCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotByCache {}

/// Waits for the line that tells that the server is ready; its `status`.
pub(crate) fn ready(process: &mut Process) -> Result<Value> {
    let Some(line) = first_line(process) else {
        bail!("nicache run did not start: {}", process.last_words());
    };
    let event: Value = serde_json::from_str(&line)?;
    ensure!(
        event["event"] == "ready",
        "nicache run did not start: {line}\n{}",
        process.last_words()
    );
    Ok(event["status"].clone())
}

/// The first line that a program writes to standard output; the others are read as well. `None`:
/// none came in time.
fn first_line(process: &mut Process) -> Option<String> {
    let output = process.stdout()?;
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines.recv_timeout(START).ok()
}

/// Asks a running nicache by its command line; what it answers.
pub(crate) fn run_nicache(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).args(arguments).output().context("cannot start nicache")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "nicache {}: {}", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
