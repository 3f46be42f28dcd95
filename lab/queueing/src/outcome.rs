//! The figures of a run.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::memory::MemoryState;
use crate::station::StationCounts;
use crate::time::Time;
use crate::times::ResponseTimes;

/// The stations of the model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Component {
    /// The network processor.
    NetworkProcessor,
    /// Its memory.
    NetworkProcessorMemory,
    /// The bus, both directions.
    Bus,
    /// The host's processor.
    HostProcessor,
    /// The host's memory.
    HostMemory,
    /// The disk.
    Disk,
}

impl Component {
    /// All, in order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::NetworkProcessor,
        Self::NetworkProcessorMemory,
        Self::Bus,
        Self::HostProcessor,
        Self::HostMemory,
        Self::Disk,
    ];

    /// The component's name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::NetworkProcessor => "network processor",
            Self::NetworkProcessorMemory => "network processor memory",
            Self::Bus => "bus",
            Self::HostProcessor => "host processor",
            Self::HostMemory => "host memory",
            Self::Disk => "disk",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The figures of a run, without its warm-up.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests answered from the network processor's memory.
    pub hits: u64,
    /// Share of requests answered from the network processor's memory, 0 to 1.
    pub hit_ratio: f64,
    /// Time from a request's coming to the end of its response. This is what the paper calls
    /// throughput.
    pub response: ResponseTimes,
    /// Mean bytes of the responses that clients got.
    pub response_bytes_mean: f64,
    /// From the first request to the end of the last work, in s.
    pub duration_s: f64,
    /// Requests per second of that.
    pub throughput_per_s: f64,
    /// What crossed the bus, by class.
    pub bus_bytes: BusBytes,
    /// What crossed it from the network processor to the host.
    pub bus_to_host_bytes: u64,
    /// What crossed it from the host to the network processor.
    pub bus_to_card_bytes: u64,
    /// Where a request's time goes, in ns in the mean.
    pub path: PathTimes,
    /// The stations.
    pub stations: Vec<StationOutcome>,
    /// The busiest of the stations at which jobs can wait.
    pub bottleneck: Component,
    /// The station in which a request is served longest in the mean.
    pub longest_stage: Component,
    /// The network processor's memory at the end, with what it did from the very beginning.
    pub network_processor_memory: MemoryState,
    /// The host's memory likewise; without a disk it holds everything, and this is empty.
    pub host_memory: MemoryState,
}

/// Bytes that crossed the bus, by class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct BusBytes {
    /// Requests, to the host.
    pub requests: u64,
    /// Whole responses, to the network processor.
    pub responses: u64,
    /// Headers of responses whose data is in the network processor's memory, to it.
    pub headers: u64,
    /// Where that data is, to the network processor.
    pub locations: u64,
}

impl BusBytes {
    /// Bytes from the network processor to the host.
    pub fn to_host(&self) -> u64 {
        self.requests
    }

    /// Bytes from the host to the network processor.
    pub fn to_card(&self) -> u64 {
        self.responses + self.headers + self.locations
    }

    /// Both directions, as the paper counts.
    pub fn total(&self) -> u64 {
        self.to_host() + self.to_card()
    }
}

/// The parts of the mean response time, in ns. They add up to it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct PathTimes {
    /// The network processor's processing.
    pub network_processor_ns: f64,
    /// Reading its memory. Writing is in no response's way.
    pub network_processor_memory_ns: f64,
    /// Transfers; of header and location, which go at once, the longer.
    pub bus_ns: f64,
    /// The host's processing.
    pub host_processor_ns: f64,
    /// Reading its memory.
    pub host_memory_ns: f64,
    /// Reading the disk.
    pub disk_ns: f64,
    /// Everything else.
    pub waiting_ns: f64,
}

/// The figures of a station.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StationOutcome {
    /// Which station it is.
    pub component: Component,
    /// Whether jobs can wait there.
    pub queues: bool,
    /// Jobs that left.
    pub completions: u64,
    /// Share of the time in which at least one job was served.
    pub utilisation: f64,
    /// Jobs there, waiting or served, in the mean over time.
    pub jobs_mean: f64,
    /// Jobs waiting there, in the mean over time.
    pub queue_mean: f64,
    /// Most jobs waiting at a time.
    pub queue_max: usize,
    /// Mean time that a job waits, in ns.
    pub wait_mean_ns: f64,
    /// Mean time that a job is served, in ns.
    pub service_mean_ns: f64,
}

impl StationOutcome {
    /// The figures of what a station counted in `span`.
    pub fn new(component: Component, queues: bool, counts: &StationCounts, span: Time) -> Self {
        let per_span = |sum: u128| ratio(sum as f64, span.0 as f64);
        let per_job_ns = |sum: u128| ratio(sum as f64, counts.begun as f64) / 1e3;
        Self {
            component,
            queues,
            completions: counts.completions,
            utilisation: per_span(counts.busy_ps),
            jobs_mean: per_span(counts.jobs_ps),
            queue_mean: per_span(counts.waiting_ps),
            queue_max: counts.waiting_max,
            wait_mean_ns: per_job_ns(counts.wait_ps),
            service_mean_ns: per_job_ns(counts.service_ps),
        }
    }
}

/// A share; 0 of nothing.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
