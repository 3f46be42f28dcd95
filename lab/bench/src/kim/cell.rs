//! One measurement: a trace, a number of cards, their memory, and a bus.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use nicache_netns::Namespace;
use nicache_replay::replayer::{
    Demand, Plan, ReplayerConfig, ReplayerReport, ServerAddress, Watch, run_part,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::wire::cpu::bind_to;
use crate::wire::namespace::{self, cubic_route};
use crate::wire::process::{CpuTime, Enclosure, Process};
use crate::wire::subject::{ready, run_nicache};
use crate::wire::{CLIENT_CPU, SERVER_CPU};

/// The paper's bus, as `--bus` has it.
const MODEL: &str = "pci-64-33";
/// Host memory for pages: more than any trace's footprint, as the paper's server had.
const PAGE_CACHE: &str = "768M";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Setup {
    /// Cards.
    pub cards: u32,
    /// Bytes of each card's memory.
    pub memory_bytes: u64,
    /// The bus is the paper's.
    pub is_modelled: bool,
}

impl Setup {
    /// What is measured, in words for progress and messages.
    pub(super) fn label(&self) -> String {
        let bus = if self.is_modelled { MODEL } else { "no model" };
        format!("{} cards of {} MB, {bus}", self.cards, self.memory_bytes >> 20)
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Name of the trace.
    pub trace: String,
    /// Cards.
    pub cards: u32,
    /// Bytes of each card's memory.
    pub memory_bytes: u64,
    /// The bus is the paper's.
    pub is_modelled: bool,
    /// Replies per second.
    pub requests_per_s: f64,
    /// Bodies, in 10^6 bits per second.
    pub mbit_per_s: f64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Bytes over the bus.
    pub content: u64,
    /// Bytes over the bus that are headers of Ethernet, IP and TCP.
    pub network_headers: u64,
    /// Bytes over the bus that are heads of requests and replies.
    pub application_headers: u64,
    /// Descriptors, completions, and what the modelled bus lost for each burst (in bytes' time).
    pub overhead: u64,
    /// Bytes over the bus that came from clients, and that are none of the rest.
    pub other: u64,
    /// Share of the time for which the modelled bus was taken.
    pub utilisation: Option<f64>,
    /// CPU time of card, host and supervisor per reply, in microseconds.
    pub server_cpu_us: f64,
}

/// Starts `nicache serve`, replays the trace once, and reads what has crossed.
///
/// # Errors
/// Something does not start, or a reply was wrong.
pub(super) fn measure(
    nicache: &Path,
    site: &Path,
    trace: &str,
    plan: &Plan,
    setup: Setup,
    clients: usize,
) -> Result<Sample> {
    let client = namespace::create()?;
    client.run(|| {
        let _ = std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535");
    });
    let name = format!("kim-{}", std::process::id());
    let (cards, memory) = (setup.cards.to_string(), setup.memory_bytes.to_string());
    let program = nicache.to_str().context("the path of this program is not valid UTF-8")?;
    let mut argv =
        vec![program, "serve", "--json", "--name", &name, "--cards", &cards, "--memory", &memory];
    argv.extend(["--page-cache", PAGE_CACHE]);
    if setup.is_modelled {
        // The paper's cards do not cut packets.
        argv.extend(["--bus", MODEL, "--segmentation", "host"]);
    }
    argv.push(site.to_str().context("the folder's path is not valid UTF-8")?);
    let argv: Vec<String> = argv.into_iter().map(str::to_owned).collect();
    let log = site.with_file_name("nicache.log");
    let mut process = Process::start(&client, SERVER_CPU, Enclosure::None, &argv, &log)?;
    let status = ready(&mut process)?;
    if let Some(reason) = status["not_keeping"].as_str() {
        bail!("nothing is kept on this machine: {reason}");
    }
    let mut targets = Vec::new();
    for card in 0..setup.cards as usize {
        let url = status["urls"][card].as_str().context("no URL in the status")?;
        let host = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let interface =
            status["interfaces"][card].as_str().context("no interface in the status")?;
        let network = host.rsplit_once('.').context("an odd address")?.0;
        client.command(&cubic_route(interface, network, 1))?;
        let address: SocketAddr = format!("{host}:80").parse()?;
        targets.push(ServerAddress { host, address });
    }
    let before = counts(nicache, &name)?;
    let cpu = CpuTime::now(process.pid())?;
    let report = replay(&client, plan, targets, clients)?;
    let cpu = CpuTime::now(process.pid())?.since(&cpu);
    let after = counts(nicache, &name)?;
    ensure!(report.is_clean(), "replies were wrong: {:?}", report.problems);
    let since = |key: &str| {
        after.get(key).copied().unwrap_or(0).saturating_sub(before.get(key).copied().unwrap_or(0))
    };
    Ok(Sample {
        trace: trace.to_owned(),
        cards: setup.cards,
        memory_bytes: setup.memory_bytes,
        is_modelled: setup.is_modelled,
        requests_per_s: report.requests_per_second,
        mbit_per_s: report.content_mbit_per_second,
        body_bytes: report.body_bytes,
        content: since("content"),
        network_headers: since("network_headers"),
        application_headers: since("application_headers"),
        overhead: since("overhead") + since("bus_overhead_bytes"),
        other: since("other"),
        utilisation: setup.is_modelled.then(|| since("bus_busy_ns") as f64 / 1e9 / report.seconds),
        server_cpu_us: cpu.processes_us / report.replies.max(1) as f64,
    })
}

/// On the client's CPU, in its namespace.
fn replay(
    client: &Namespace,
    plan: &Plan,
    targets: Vec<ServerAddress>,
    clients: usize,
) -> Result<ReplayerReport> {
    let config = ReplayerConfig {
        targets,
        sources: Vec::new(),
        clients,
        replayers: 1,
        demand: Demand::Infinite,
        duration: None,
        seed: 1,
    };
    client.lend(|| {
        bind_to(CLIENT_CPU)?;
        Ok(run_part(plan, &config, 0, &Arc::new(Watch::default()), &mut |_| {})?)
    })?
}

/// What has crossed all cards, with the modelled bus's clock.
fn counts(nicache: &Path, name: &str) -> Result<std::collections::BTreeMap<String, u64>> {
    let text = run_nicache(nicache, &["status", "--json", "--name", name])?;
    let status: Value = serde_json::from_str(&text)?;
    let mut counts = std::collections::BTreeMap::new();
    for card in status["report"]["cards"].as_array().context("no cards in the status")? {
        for (class, bytes) in card["bus"].as_object().context("no bus in the status")? {
            *counts.entry(class.clone()).or_insert(0) += bytes.as_u64().unwrap_or(0);
        }
    }
    for key in ["bus_busy_ns", "bus_overhead_bytes"] {
        counts.insert(key.to_owned(), status[key].as_u64().unwrap_or(0));
    }
    ensure!(status["restarts"].as_u64() == Some(0), "card or host ended and was started again");
    Ok(counts)
}
