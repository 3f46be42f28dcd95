//! Several runs of one configuration that differ in their seed.

use serde::Serialize;

use crate::config::Config;
use crate::interval::Interval;
use crate::model::{RunError, run};
use crate::outcome::{Component, Outcome};
use crate::parallel;

/// The figures of several runs, each with its interval.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Mean response time, in ns.
    pub response_mean_ns: Interval,
    /// Mean response time, in cycles of the host's clock.
    pub response_mean_ticks: Interval,
    /// Median of the response times, in ns.
    pub response_p50_ns: Interval,
    /// 99th percentile, in ns.
    pub response_p99_ns: Interval,
    /// Share of requests answered from the network processor's memory.
    pub hit_ratio: Interval,
    /// Requests per second.
    pub throughput_per_s: Interval,
    /// Bytes over the bus to the host.
    pub bus_to_host_bytes: Interval,
    /// Bytes over the bus to the network processor.
    pub bus_to_card_bytes: Interval,
    /// Of the stations.
    pub stations: Vec<StationSummary>,
    /// The busiest station at which jobs can wait, in most of the runs.
    pub bottleneck: Component,
    /// The runs, in order of the seeds.
    pub outcomes: Vec<Outcome>,
}

/// The figures of a station in several runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct StationSummary {
    /// Which station it is.
    pub component: Component,
    /// Share of the time in which it serves.
    pub utilisation: Interval,
    /// Jobs waiting in the mean over time.
    pub queue_mean: Interval,
    /// Mean time that a job waits, in ns.
    pub wait_mean_ns: Interval,
}

/// Runs a configuration once for each seed, on so many threads. `progress` hears, from any thread,
/// how many runs are done of how many.
pub fn run_seeds(
    config: &Config,
    seeds: &[u64],
    threads: usize,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Summary, RunError> {
    let outcomes = parallel::map(seeds.len(), threads, progress, |at| run(config, seeds[at]))?;
    Ok(Summary::of(outcomes))
}

impl Summary {
    /// The figures of these runs.
    pub fn of(outcomes: Vec<Outcome>) -> Self {
        let interval = |figure: &dyn Fn(&Outcome) -> f64| {
            Interval::of(&outcomes.iter().map(figure).collect::<Vec<_>>())
        };
        let station = |component: Component| StationSummary {
            component,
            utilisation: interval(&|outcome| outcome.stations[component as usize].utilisation),
            queue_mean: interval(&|outcome| outcome.stations[component as usize].queue_mean),
            wait_mean_ns: interval(&|outcome| outcome.stations[component as usize].wait_mean_ns),
        };
        let runs = |component: &Component| {
            outcomes.iter().filter(|outcome| outcome.bottleneck == *component).count()
        };
        Self {
            response_mean_ns: interval(&|outcome| outcome.response.mean_ns),
            response_mean_ticks: interval(&|outcome| outcome.response.mean_ticks),
            response_p50_ns: interval(&|outcome| outcome.response.p50_ns),
            response_p99_ns: interval(&|outcome| outcome.response.p99_ns),
            hit_ratio: interval(&|outcome| outcome.hit_ratio),
            throughput_per_s: interval(&|outcome| outcome.throughput_per_s),
            bus_to_host_bytes: interval(&|outcome| outcome.bus_to_host_bytes as f64),
            bus_to_card_bytes: interval(&|outcome| outcome.bus_to_card_bytes as f64),
            stations: Component::ALL.map(station).into(),
            bottleneck: Component::ALL
                .into_iter()
                .max_by_key(runs)
                .unwrap_or(Component::HostProcessor),
            outcomes,
        }
    }
}
