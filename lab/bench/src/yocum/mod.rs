//! The study of Yocum and Chase 2001: what payload caching is worth to a forwarder of their time (Table 2, Figures 5 and 6).
//!
//! A model with six constants ([`machine`]) stands for their machine; the constants are fitted to the paper's tables, and everything else follows from them. Figure 5 comes
//! from a queue in which the shipped payload cache module decides what is kept ([`queue`]). Nothing here has a clock: a run is a function of its seed.
//!
//! Deliberately absent: TCP (Figure 7), and the behavior of UDP beyond saturation.

mod machine;
mod queue;
mod report;

use serde::{Deserialize, Serialize};

pub use machine::{How, LINK_BYTES_PER_S, Machine};
pub use queue::{QueueConfig, QueueOutcome, simulate};

/// What to compute.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Packets of each cell of Figure 5.
    pub packets: u64,
    /// Of the arrivals.
    pub seed: u64,
}

/// A cell of Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Bytes of a packet.
    pub bytes: u64,
    /// How it is forwarded.
    pub how: How,
    /// The paper's microseconds.
    pub paper_us: f64,
    /// The model's.
    pub model_us: f64,
}

/// A cell of Figure 5.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Queued {
    /// Entries of the cache that are not reserved for receives.
    pub entries: u32,
    /// Microseconds of CPU that the forwarder takes for each packet, beside what forwarding costs anyway.
    pub demand_us: f64,
    /// What came of it.
    pub outcome: QueueOutcome,
}

/// A cell of Figure 6: the most that is forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Peak {
    /// Bytes of a packet.
    pub bytes: u64,
    /// How it is forwarded.
    pub how: How,
    /// The paper's megabytes per second, where it says so.
    pub paper_mb_per_s: Option<f64>,
    /// The model's.
    pub model_mb_per_s: f64,
    /// Share of the CPU that is busy or stalled at that rate, 0 to 1.
    pub cpu: f64,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Table 2.
    pub latencies: Vec<Latency>,
    /// Figure 5.
    pub queues: Vec<Queued>,
    /// Figure 6.
    pub peaks: Vec<Peak>,
    /// Packets of each cell of Figure 5.
    pub packets: u64,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// Table 2 of the paper: bytes, then microseconds from end to end, and by a forwarder without a cache, with PCACHE, and with DIRECT.
pub const TABLE_2: [(u64, [f64; 4]); 3] = [
    (1500, [82.31, 153.86, 140.15, 131.5]),
    (4096, [108.36, 224.68, 191.68, 173.71]),
    (8192, [159.2, 326.88, 285.94, 260.74]),
];
/// What section 5.4 of the paper says of Figure 6: bytes, then megabytes per second at the peak, by the same three.
pub const FIGURE_6: [(u64, [Option<f64>; 3]); 3] = [
    (1500, [Some(29.0), Some(40.0), Some(60.0)]),
    (8192, [Some(48.0), Some(84.0), None]),
    (57_344, [Some(60.0), Some(110.0), Some(125.0)]),
];
/// Entries of Figure 5: up to 1.4 MB of 4 KB.
const ENTRIES: [u32; 5] = [16, 64, 128, 256, 350];
/// Demands of Figure 5, up to beyond saturation.
const DEMANDS_US: [f64; 8] = [0.0, 25.0, 50.0, 60.0, 70.0, 80.0, 100.0, 130.0];

/// Computes everything.
pub fn run(plan: &Plan) -> Report {
    let machine = Machine::default();
    let mut latencies = Vec::new();
    for (bytes, [direct, rest @ ..]) in TABLE_2 {
        for (how, paper_us) in How::ALL.into_iter().zip(rest) {
            let model_us = machine.latency_us(direct, bytes, how);
            latencies.push(Latency { bytes, how, paper_us, model_us });
        }
    }
    let mut queues = Vec::new();
    for entries in ENTRIES {
        for demand_us in DEMANDS_US {
            let config =
                QueueConfig { entries, demand_us, packets: plan.packets, seed: plan.seed, ..QueueConfig::default() };
            queues.push(Queued { entries, demand_us, outcome: simulate(&machine, &config) });
        }
    }
    let mut peaks = Vec::new();
    for (bytes, papers) in FIGURE_6 {
        for (how, paper_mb_per_s) in How::ALL.into_iter().zip(papers) {
            let (model, cpu) = machine.peak(bytes, how);
            peaks.push(Peak { bytes, how, paper_mb_per_s, model_mb_per_s: model / 1e6, cpu });
        }
    }
    Report { latencies, queues, peaks, packets: plan.packets, seed: plan.seed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tables() {
        let report = run(&Plan { packets: 20_000, seed: 1 });
        for Latency { bytes, how, paper_us, model_us } in report.latencies {
            assert!((model_us / paper_us - 1.0).abs() < 0.05, "{bytes} {how:?}: {model_us} beside {paper_us}");
        }
        for Peak { bytes, how, paper_mb_per_s, model_mb_per_s, cpu } in report.peaks {
            if let Some(paper) = paper_mb_per_s {
                assert!(
                    (model_mb_per_s / paper - 1.0).abs() < 0.08,
                    "{bytes} {how:?}: {model_mb_per_s} beside {paper}"
                );
            }
            if (bytes, how) == (57_344, How::Direct) {
                assert!(cpu <= 0.25 && model_mb_per_s == LINK_BYTES_PER_S / 1e6, "{cpu}");
            }
        }
        // The law of hits, in every cell.
        for Queued { entries, demand_us, outcome } in &report.queues {
            let off = (outcome.hit_rate - outcome.law).abs();
            assert!(off < 0.02, "{entries} entries, {demand_us} us: {outcome:?}");
        }
        let cell = |entries, demand_us| {
            let is_it = |queued: &&Queued| queued.entries == entries && queued.demand_us == demand_us;
            report.queues.iter().find(is_it).unwrap().outcome
        };
        // Section 5.3: near 100 % at low demand; few at saturation; and queues grow more slowly with a larger cache.
        assert!(cell(16, 0.0).hit_rate > 0.99 && cell(16, 130.0).hit_rate < 0.1);
        assert!(cell(16, 80.0).queue_mean > cell(350, 80.0).queue_mean);
    }
}
