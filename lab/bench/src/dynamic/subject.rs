//! Who answers: everything between the client and the application, in network namespaces of its
//! own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nicache_applications::{Client, Reply};
use nicache_netns::Namespace;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::site::Site;
use super::store::Store;
use crate::wire::namespace::{self, cubic_route};
use crate::wire::process::{CpuTime, Enclosure, Process};
use crate::wire::subject::{ready, run_nicache};

/// How long databases and the like may take after the web server listens.
const START: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(30);

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// The application behind a veth pair.
    Server,
    /// nginx keeps a page for a minute.
    Nginx60,
    /// nginx keeps a page for a second.
    Nginx1,
    /// Varnish, in a namespace of its own, for a minute.
    Varnish60,
    /// Varnish for a second.
    Varnish1,
    /// The card.
    Nicache,
    /// The card with `nicache bypass on`: everything goes to the server, and the watchers watch.
    CardBypassed,
    /// The card with `nicache bypass on` and without watchers: everything goes to the server.
    CardBypassedUnwatched,
}

impl Subject {
    /// The subjects that every page is asked of.
    pub const ALL: [Self; 6] =
        [Self::Server, Self::Nginx60, Self::Nginx1, Self::Varnish60, Self::Varnish1, Self::Nicache];

    /// The subjects by which the watchers' cost is measured.
    pub const WATCHERS: [Self; 3] = [Self::CardBypassedUnwatched, Self::CardBypassed, Self::Server];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Nginx60 => "nginx-60s",
            Self::Nginx1 => "nginx-1s",
            Self::Varnish60 => "varnish-60s",
            Self::Varnish1 => "varnish-1s",
            Self::Nicache => "nicache",
            Self::CardBypassed => "card-bypassed",
            Self::CardBypassedUnwatched => "card-bypassed-unwatched",
        }
    }

    /// The subject's name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::Server => "server alone",
            Self::Nginx60 => "nginx cache, 60 s",
            Self::Nginx1 => "nginx cache, 1 s",
            Self::Varnish60 => "Varnish, 60 s",
            Self::Varnish1 => "Varnish, 1 s",
            Self::Nicache => "nicache",
            Self::CardBypassed => "card, bypassed, watchers",
            Self::CardBypassedUnwatched => "card, bypassed, no watchers",
        }
    }

    /// Programs that it needs beside the application's, with the Debian packages they are in.
    pub fn programs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Varnish60 | Self::Varnish1 => &[("varnishd", "varnish"), ("cc", "gcc")],
            _ => &[],
        }
    }

    fn nginx_store(self) -> Option<Store> {
        match self {
            Self::Nginx60 => Some(Store::ALL[0]),
            Self::Nginx1 => Some(Store::ALL[1]),
            _ => None,
        }
    }

    fn varnish_store(self) -> Option<Store> {
        match self {
            Self::Varnish60 => Some(Store::ALL[0]),
            Self::Varnish1 => Some(Store::ALL[1]),
            _ => None,
        }
    }

    fn is_card(self) -> bool {
        matches!(self, Self::Nicache | Self::CardBypassed | Self::CardBypassedUnwatched)
    }
}

impl std::str::FromStr for Subject {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|subject| subject.name() == text);
        found.ok_or_else(|| format!("unknown subject `{text}`: use one of {all}"))
    }
}

/// A nicache that runs.
#[derive(Debug)]
struct Card {
    program: PathBuf,
    name: String,
    /// First process of the server's programs.
    server_pid: u32,
}

/// A subject that serves. Dropping it ends its programs, the last one first.
#[derive(Debug)]
pub(super) struct Running {
    processes: Vec<Process>,
    card: Option<Card>,
    server: Ipv4Addr,
    client: Namespace,
    others: Vec<Namespace>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Databases shall have no clients any longer.
        while self.processes.pop().is_some() {}
    }
}

impl Running {
    /// Starts a subject on `cpu`. `nicache` is the program.
    ///
    /// # Errors
    /// Something does not start.
    pub(super) fn start(subject: Subject, site: &Site, nicache: &Path, cpu: usize) -> Result<Self> {
        let client = namespace::create()?;
        if subject.is_card() {
            return Self::start_card(subject, client, site, nicache, cpu);
        }
        let server = namespace::create()?;
        let mut running = Self {
            processes: Vec::new(),
            card: None,
            server: Ipv4Addr::new(10, 201, 1, 2),
            client,
            others: Vec::new(),
        };
        if let Some(store) = subject.varnish_store() {
            let proxy = namespace::create()?;
            namespace::join(&running.client, &proxy, "wire", "10.201.1")?;
            namespace::join(&proxy, &server, "back", "10.201.2")?;
            running.processes = site.start(&server, cpu, None)?;
            let argv = site.varnish("10.201.2.2", store)?;
            let log = site.logs().join("varnish.log");
            running.processes.push(Process::start(
                &proxy,
                cpu,
                Enclosure::PidNamespace,
                &argv,
                &log,
            )?);
            running.others.push(proxy);
        } else {
            namespace::join(&running.client, &server, "wire", "10.201.1")?;
            running.processes = site.start(&server, cpu, subject.nginx_store())?;
        }
        running.others.push(server);
        Ok(running)
    }

    fn start_card(
        subject: Subject,
        client: Namespace,
        site: &Site,
        nicache: &Path,
        cpu: usize,
    ) -> Result<Self> {
        let name = format!("bench-{}", std::process::id());
        let mut argv = vec![
            nicache.to_str().context("the path of this program is not valid UTF-8")?.to_owned(),
        ];
        argv.extend(["run", "--json", "--name", &name, "--recheck", "1s"].map(str::to_owned));
        argv.push(format!("--config={}", site.configuration().display()));
        for program in site.with() {
            argv.extend([
                "--with".to_owned(),
                shlex::try_join(program.iter().map(String::as_str))?,
            ]);
        }
        argv.push("--".to_owned());
        argv.extend(site.nginx(None));
        if subject == Subject::CardBypassedUnwatched {
            argv = without_witness(&argv)?;
        }
        let mut process =
            Process::start(&client, cpu, Enclosure::None, &argv, &site.logs().join("nicache.log"))?;
        let status = ready(&mut process)?;
        let text =
            |key: &str| status[key].as_str().with_context(|| format!("no {key} in the status"));
        let server: Ipv4Addr = text("server_address")?.parse()?;
        match (subject, status["watch_unavailable"].as_str()) {
            (Subject::CardBypassedUnwatched, None) => {
                bail!("the watchers could not be kept away on this machine")
            }
            (Subject::Nicache | Subject::CardBypassed, Some(reason)) => {
                bail!("the card stores nothing on this machine: {reason}")
            }
            _ => {}
        }
        if subject != Subject::Nicache {
            run_nicache(nicache, &["bypass", "on", "--name", &name])?;
        }
        let [a, b, c, _] = server.octets();
        let network = format!("{a}.{b}.{c}");
        client.command(&cubic_route(text("interface")?, &network, 1))?;
        let number = |key: &str| status[key].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let server_pid = number("server_pid").context("no server_pid in the status")?;
        client.command(&format!(
            "nsenter --target {server_pid} --net {}",
            cubic_route("eth0", &network, 2)
        ))?;
        Ok(Self {
            processes: vec![process],
            card: Some(Card { program: nicache.to_owned(), name, server_pid }),
            server,
            client,
            others: Vec::new(),
        })
    }

    /// Waits until a page is there and `is_right`.
    ///
    /// # Errors
    /// It is not within a minute, or a program has ended.
    pub(super) fn wait_for(&mut self, path: &str, is_right: impl Fn(&Reply) -> bool) -> Result<()> {
        let begun = Instant::now();
        let server = self.server();
        loop {
            let asked = path.to_owned();
            let reply = self.client.run(move || Client::new(server).get(&asked));
            if reply.as_ref().is_ok_and(|reply| reply.status == 200 && is_right(reply)) {
                return Ok(());
            }
            for process in &mut self.processes {
                process.check_alive()?;
            }
            if begun.elapsed() > START {
                let shown = match reply {
                    Ok(reply) => format!("status {} and `{:.300}`", reply.status, reply.text()),
                    Err(error) => format!("{error:#}"),
                };
                bail!("{path} was not there within {} s, but {shown}", START.as_secs());
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// The namespace of the client.
    pub(super) fn client(&self) -> &Namespace {
        &self.client
    }

    /// Where the client reaches it.
    pub(super) fn server(&self) -> SocketAddr {
        SocketAddr::from((self.server, 80))
    }

    /// CPU time of all its processes, and of the machine.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(super) fn cpu_time(&self) -> Result<CpuTime> {
        let mut sum = CpuTime::default();
        for process in &self.processes {
            let part = CpuTime::now(process.pid())?;
            sum.processes_us += part.processes_us;
            sum.machine_us = part.machine_us;
        }
        Ok(sum)
    }

    /// CPU time of the application's programs: of all, if there is no card.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(super) fn programs_cpu_us(&self) -> Result<f64> {
        match &self.card {
            Some(card) => Ok(CpuTime::now(card.server_pid)?.processes_us),
            None => Ok(self.cpu_time()?.processes_us),
        }
    }

    /// What the card has counted.
    ///
    /// # Errors
    /// It does not answer.
    pub(super) fn counters(&self) -> Result<Option<Value>> {
        let Some(card) = &self.card else { return Ok(None) };
        let text = run_nicache(&card.program, &["status", "--json", "--name", &card.name])?;
        let mut status: Value = serde_json::from_str(&text)?;
        ensure!(status["counters"].is_object(), "no counters in the status");
        Ok(Some(status["counters"].take()))
    }
}

/// The command in a mount namespace in which the kernel's types cannot be found. Without them no
/// watcher loads.
fn without_witness(argv: &[String]) -> Result<Vec<String>> {
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /sys/kernel/btf && exec {}",
        shlex::try_join(argv.iter().map(String::as_str))?
    );
    Ok(["unshare", "--mount", "sh", "-c", &script].map(str::to_owned).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for subject in Subject::ALL {
            assert_eq!(subject.name().parse(), Ok(subject));
        }
        assert!("card-bypassed".parse::<Subject>().is_err(), "no subject of the pages");
    }

    #[test]
    fn quotes_survive_the_shell() {
        let argv = without_witness(&["nicache".to_owned(), "it's one word".to_owned()]).unwrap();
        let words = shlex::split(&argv[4]).unwrap();
        assert_eq!(words.last().map(String::as_str), Some("it's one word"));
    }
}
