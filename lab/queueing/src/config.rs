//! The parameters of a run.
//!
//! Names are the paper's (koch2002, section 2), with the unit last. Defaults, bounds and what each
//! rests on stand in `configurations/Default.toml`, which is what [`Config::default`] reads.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// All parameters of a simulation.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The Ethernet: requests that come.
    pub requests: Requests,
    /// What is sent back.
    pub responses: Responses,
    /// The network processor and its memory.
    pub network_processor: NetworkProcessor,
    /// The bus between network processor and host.
    pub bus: Bus,
    /// The host's processor and memory.
    pub host: Host,
    /// The host's disk.
    pub disk: Disk,
    /// The run itself.
    pub simulation: Simulation,
    /// Which components are dumped how often.
    pub debug: Debug,
}

/// What requests come, and how often.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// How many; 1 to [`COUNT_MAX`].
    pub count: u64,
    /// Different identifiers; 1 to [`DIFFERENT_MAX`].
    pub different: u32,
    /// Requests per second.
    pub frequency_per_s: f64,
    /// Times between them.
    pub arrivals: Arrivals,
    /// Which identifiers they have.
    pub identifiers: Identifiers,
    /// For [`Identifiers::Zipf`]: the exponent, 0 to 10.
    pub zipf_exponent: f64,
    /// Bytes of one.
    pub size_bytes: u32,
}

/// How requests follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// One interval.
    Fixed,
    /// Exponentially distributed intervals.
    Poisson,
}

/// How identifiers are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identifiers {
    /// All alike.
    Uniform,
    /// The n-th with a weight of n^-exponent.
    Zipf,
}

/// How large responses are.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Responses {
    /// Least bytes.
    pub min_bytes: u32,
    /// Most bytes, less than 2^32.
    pub max_bytes: u32,
    /// When a size is drawn.
    pub drawn: Drawn,
    /// Bytes of the header that the host sends if the network processor's memory has the data.
    pub in_np_memory_bytes: u32,
    /// Bytes that tell where in the network processor's memory the data is, sent at the same time.
    pub location_bytes: u32,
}

/// When the size of a response is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Drawn {
    /// Once for each identifier.
    PerIdentifier,
    /// Anew for each response of the host.
    PerResponse,
}

/// The network processor.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkProcessor {
    /// Million cycles per second.
    pub clock_mhz: f64,
    /// Cycles that each request takes.
    pub processing_cycles: f64,
    /// Whether always the same.
    pub processing: Processing,
    /// Bytes of its memory; 0 for none.
    pub memory_bytes: u64,
    /// Bytes read or written in one latency, times [`Simulation::scale`].
    pub memory_line_bytes: u32,
    /// Cycles for each line.
    pub memory_latency_cycles: f64,
    /// What goes when there is no room.
    pub memory_policy: MemoryPolicy,
}

/// How a processing time is distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Processing {
    /// Always the same.
    Constant,
    /// Exponentially.
    Exponential,
}

/// The replacement of a memory, by `nicache-policy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPolicy {
    /// Least recently used.
    Lru,
    /// First in, first out.
    Fifo,
    /// Least frequently used, with ageing.
    Lfu,
    /// Popularity by periods (bos2009, section 2.2).
    Popularity,
}

/// The bus between the network processor and the host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// Bytes per cycle, times [`Simulation::scale`]. A transfer takes whole cycles.
    pub width_bytes: u32,
    /// Million cycles per second.
    pub clock_mhz: f64,
    /// Whether there is one transfer at a time.
    pub contention: bool,
}

/// The host's processor and how long it works for a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Million cycles per second.
    pub clock_mhz: f64,
    /// Cycles that each request takes.
    pub processing_cycles: f64,
    /// Whether always the same.
    pub processing: Processing,
    /// Cycles that a request takes besides if its data is in the network processor's memory.
    pub hit_processing_cycles: f64,
    /// Bytes of its memory, if there is a disk.
    pub memory_bytes: u64,
    /// Bytes read or written in one latency, times [`Simulation::scale`].
    pub memory_line_bytes: u32,
    /// Cycles for each line.
    pub memory_latency_cycles: f64,
    /// What goes when there is no room, if there is a disk.
    pub memory_policy: MemoryPolicy,
}

/// The host's disk.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// Whether there is one.
    pub present: bool,
    /// Bytes read in one latency, times [`Simulation::scale`].
    pub line_bytes: u32,
    /// Cycles of the host's processor for each line.
    pub latency_cycles: f64,
}

/// How a run is made: its scale, its warm-up, and requests at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Simulation {
    /// Factor of bus width and line sizes.
    pub scale: u32,
    /// First requests that are left out of the figures.
    pub warm_up_requests: u64,
    /// Requests before this time are left out, too.
    pub warm_up_s: f64,
    /// Requests under way at most; 1 to [`OUTSTANDING_MAX`].
    pub outstanding_max: u32,
}

/// Ticks (cycles of the host's clock) between dumps of a component; 0: none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Debug {
    /// Requests come, answered and under way.
    pub requests_ticks: u64,
    /// The network processor.
    pub network_processor_ticks: u64,
    /// Its memory.
    pub network_processor_memory_ticks: u64,
    /// The bus.
    pub bus_ticks: u64,
    /// The host's processor.
    pub host_processor_ticks: u64,
    /// The host's memory.
    pub host_memory_ticks: u64,
    /// The disk.
    pub disk_ticks: u64,
}

/// Most requests of a run.
pub const COUNT_MAX: u64 = 1_000_000_000;
/// Most identifiers: 4 to 8 bytes each for their sizes, 12 for Zipf's distribution, about 80 in
/// each memory.
pub const DIFFERENT_MAX: u32 = 1 << 24;
/// Most requests under way: about 100 bytes each.
pub const OUTSTANDING_MAX: u32 = 1 << 24;
/// Most cycles of a processing time or latency, and most seconds of a warm-up.
pub const CYCLES_MAX: f64 = 1e12;
/// Most million cycles per second; the least is its inverse.
pub const CLOCK_MHZ_MAX: f64 = 1e6;
/// Most requests per second; the least is one in a million seconds.
pub const FREQUENCY_PER_S_MAX: f64 = 1e12;

/// A parameter out of its bounds.
#[derive(Clone, PartialEq, Debug, Error)]
#[error("{key} is {value}, but must be {bounds}")]
pub struct OutOfBounds {
    /// Which parameter it is.
    pub key: &'static str,
    /// What it is.
    pub value: String,
    /// What it may be.
    pub bounds: String,
}

impl Config {
    /// Whether a run can begin with these parameters.
    pub fn validate(&self) -> Result<(), OutOfBounds> {
        let Self {
            requests,
            responses,
            network_processor: card,
            bus,
            host,
            disk,
            simulation,
            debug: _,
        } = self;
        whole("requests.count", requests.count, 1, COUNT_MAX)?;
        whole("requests.different", requests.different.into(), 1, DIFFERENT_MAX.into())?;
        real("requests.frequency_per_s", requests.frequency_per_s, 1e-6, FREQUENCY_PER_S_MAX)?;
        real("requests.zipf_exponent", requests.zipf_exponent, 0.0, 10.0)?;
        let (min_bytes, max_bytes) = (responses.min_bytes.into(), u32::MAX.into());
        whole("responses.max_bytes", responses.max_bytes.into(), min_bytes, max_bytes)?;
        real("network_processor.clock_mhz", card.clock_mhz, 1.0 / CLOCK_MHZ_MAX, CLOCK_MHZ_MAX)?;
        real("network_processor.processing_cycles", card.processing_cycles, 0.0, CYCLES_MAX)?;
        whole("network_processor.memory_line_bytes", card.memory_line_bytes.into(), 1, max_bytes)?;
        real(
            "network_processor.memory_latency_cycles",
            card.memory_latency_cycles,
            0.0,
            CYCLES_MAX,
        )?;
        whole("bus.width_bytes", bus.width_bytes.into(), 1, max_bytes)?;
        real("bus.clock_mhz", bus.clock_mhz, 1.0 / CLOCK_MHZ_MAX, CLOCK_MHZ_MAX)?;
        real("host.clock_mhz", host.clock_mhz, 1.0 / CLOCK_MHZ_MAX, CLOCK_MHZ_MAX)?;
        real("host.processing_cycles", host.processing_cycles, 0.0, CYCLES_MAX)?;
        real("host.hit_processing_cycles", host.hit_processing_cycles, 0.0, CYCLES_MAX)?;
        whole("host.memory_line_bytes", host.memory_line_bytes.into(), 1, max_bytes)?;
        real("host.memory_latency_cycles", host.memory_latency_cycles, 0.0, CYCLES_MAX)?;
        whole("disk.line_bytes", disk.line_bytes.into(), 1, max_bytes)?;
        real("disk.latency_cycles", disk.latency_cycles, 0.0, CYCLES_MAX)?;
        whole("simulation.scale", simulation.scale.into(), 1, 1 << 20)?;
        whole("simulation.warm_up_requests", simulation.warm_up_requests, 0, requests.count - 1)?;
        real("simulation.warm_up_s", simulation.warm_up_s, 0.0, CYCLES_MAX)?;
        whole(
            "simulation.outstanding_max",
            simulation.outstanding_max.into(),
            1,
            OUTSTANDING_MAX.into(),
        )
    }
}

fn whole(key: &'static str, value: u64, least: u64, most: u64) -> Result<(), OutOfBounds> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(OutOfBounds { key, value: value.to_string(), bounds: format!("{least} to {most}") })
}

fn real(key: &'static str, value: f64, least: f64, most: f64) -> Result<(), OutOfBounds> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(OutOfBounds { key, value: value.to_string(), bounds: format!("{least} to {most}") })
}
