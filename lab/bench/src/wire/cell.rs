//! One measurement: a subject, an object, and a way to ask for it.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::load::Client;
use super::process::CpuTime;
use super::site::Object;
use super::subject::{Running, Subject};

/// Seconds of warm-up before each measurement.
const WARM_UP_SECONDS: u32 = 1;

/// How the client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Many connections that stay open.
    KeepAlive,
    /// One connection that stays open: latency.
    One,
    /// As many connections as with [`Mode::KeepAlive`], each for one request.
    Close,
    /// Many connections that stay open, and both sides run on the same two CPUs.
    Shared,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::KeepAlive, Self::One, Self::Close, Self::Shared];

    /// The name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::KeepAlive => "connections kept open",
            Self::One => "one connection",
            Self::Close => "a connection for each request",
            Self::Shared => "both CPUs for both sides",
        }
    }

    /// Do both sides run on the same CPUs?
    pub fn is_shared(self) -> bool {
        self == Self::Shared
    }

    /// Connections at a time.
    pub fn connections(self, object: &Object) -> u32 {
        match self {
            Self::KeepAlive | Self::Close | Self::Shared => object.connections,
            Self::One => 1,
        }
    }
}

/// What one measurement gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Who answered.
    pub subject: Subject,
    /// What was asked for.
    pub object: Object,
    /// How the client asked.
    pub mode: Mode,
    /// Replies.
    pub requests: u64,
    /// Replies per second.
    pub requests_per_s: f64,
    /// Reply bytes, heads included, in gigabits per second.
    pub gbit_per_s: f64,
    /// Median latency.
    pub p50_us: f64,
    /// 99th percentile of the latency.
    pub p99_us: f64,
    /// CPU time of the serving side's processes per request. Interrupts that happen to run
    /// meanwhile are in it.
    pub server_cpu_us: f64,
    /// CPU time of the whole machine per request: client, server, kernel, and whoever else runs.
    pub machine_cpu_us: f64,
}

/// Warms up, measures and checks.
///
/// # Errors
/// Requests failed, or were answered by the wrong one.
pub(super) fn measure(
    running: &Running,
    subject: Subject,
    object: &Object,
    mode: Mode,
    client: &Client,
    seconds: u32,
) -> Result<Sample> {
    let url = running.url(object);
    let run = |seconds| {
        let connections = mode.connections(object);
        client.run(running.client(), &url, object.bytes, connections, mode == Mode::Close, seconds)
    };
    run(WARM_UP_SECONDS)?;
    let measured = || {
        let before = cpu_time(running)?;
        let totals = run(seconds)?;
        Ok((totals, cpu_time(running)?.since(&before)))
    };
    let (totals, cpu) = running.checked(measured, |(totals, _)| totals.requests)?;
    let (requests, us) = (totals.requests as f64, totals.microseconds.max(1) as f64);
    Ok(Sample {
        subject,
        object: *object,
        mode,
        requests: totals.requests,
        requests_per_s: requests * 1e6 / us,
        gbit_per_s: totals.bytes as f64 * 8.0 / us / 1e3,
        p50_us: totals.p50_us as f64,
        p99_us: totals.p99_us as f64,
        server_cpu_us: cpu.processes_us / requests,
        machine_cpu_us: cpu.machine_us / requests,
    })
}

fn cpu_time(running: &Running) -> Result<CpuTime> {
    let mut sum = CpuTime::default();
    for root in running.roots() {
        let part = CpuTime::now(root)?;
        sum.processes_us += part.processes_us;
        sum.machine_us = part.machine_us;
    }
    Ok(sum)
}
