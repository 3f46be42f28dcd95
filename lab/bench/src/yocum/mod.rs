//! The study of Yocum and Chase 2001: what payload caching is worth to a forwarder of their time
//! (Table 2, Figures 5 to 7).
//!
//! A model with six constants ([`machine`]) stands for their machine; the constants are fitted to
//! the paper's tables, and everything else follows from them. Figure 5 comes from a queue in which
//! the shipped payload cache module decides what is kept ([`queue`]), Figure 7 from streams of TCP
//! through the shipped card and host code ([`streams`]). Nothing here has a clock: a run is a
//! function of its seed.
//!
//! Spill and adaptive, which the paper only has as ideas, are in Figure 7: the CPU is charged for
//! what the card counts on its bus.
//!
//! Deliberately absent: the behavior of UDP beyond saturation.

mod endpoint;
mod figure;
mod machine;
mod queue;
mod report;
mod streams;

use nicache_forward::modes::Mode;
use serde::{Deserialize, Serialize};

pub use figure::draw;
pub use machine::{How, LINK_BYTES_PER_S, Machine};
pub use queue::{QueueConfig, QueueOutcome, simulate};
pub use report::read_report;
pub use streams::{StreamsConfig, StreamsOutcome, simulate as simulate_streams};

/// What to compute.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Packets of each cell of Figure 5.
    pub packets: u64,
    /// Of the arrivals.
    pub seed: u64,
    /// Virtual milliseconds of each cell of Figure 7; a third more passes before they count.
    pub milliseconds: u64,
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
    /// Microseconds of CPU that the forwarder takes for each packet, beside what forwarding costs
    /// anyway.
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

/// A cell of Figure 7: sixteen streams of TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Streamed {
    /// Bytes of payload in a segment.
    pub segment_bytes: u64,
    /// How it is forwarded: the paper's three ways, and its two ideas for later (section 4.2),
    /// spill and adaptive.
    pub mode: String,
    /// Bytes of the card's cache, beside what is posted for receives.
    pub cache_bytes: u64,
    /// What came of it.
    pub outcome: StreamsOutcome,
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
    /// Figure 7.
    pub streams: Vec<Streamed>,
    /// Packets of each cell of Figure 5.
    pub packets: u64,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// Table 2 of the paper: bytes, then microseconds from end to end, and by a forwarder without a
/// cache, with PCACHE, and with DIRECT.
pub const TABLE_2: [(u64, [f64; 4]); 3] = [
    (1500, [82.31, 153.86, 140.15, 131.5]),
    (4096, [108.36, 224.68, 191.68, 173.71]),
    (8192, [159.2, 326.88, 285.94, 260.74]),
];
/// What section 5.4 of the paper says of Figure 6: bytes, then megabytes per second at the peak, by
/// the same three.
pub const FIGURE_6: [(u64, [Option<f64>; 3]); 3] = [
    (1500, [Some(29.0), Some(40.0), Some(60.0)]),
    (8192, [Some(48.0), Some(84.0), None]),
    (57_344, [Some(60.0), Some(110.0), Some(125.0)]),
];
/// What section 5.5 of the paper says of Figure 7: bytes of a segment, megabytes per second without
/// a cache, and with PCACHE at the largest one.
pub const FIGURE_7: [(u64, [f64; 2]); 2] = [(1460, [30.0, 47.0]), (8192, [55.0, 88.0])];
/// Caches of Figure 7, up to 1.4 MB.
const CACHES: [u64; 6] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 1400 << 10];
/// Entries of Figure 5: up to 1.4 MB of 4 KB.
const ENTRIES: [u32; 5] = [16, 64, 128, 256, 350];
/// Demands of Figure 5, up to beyond saturation.
const DEMANDS_US: [f64; 8] = [0.0, 25.0, 50.0, 60.0, 70.0, 80.0, 100.0, 130.0];

/// Computes everything.
///
/// # Errors
/// There is no memory for card and host.
pub fn run(plan: &Plan) -> std::io::Result<Report> {
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
            let config = QueueConfig {
                entries,
                demand_us,
                packets: plan.packets,
                seed: plan.seed,
                ..QueueConfig::default()
            };
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
    let streams = figure_7(&machine, plan.milliseconds)?;
    Ok(Report { latencies, queues, peaks, streams, packets: plan.packets, seed: plan.seed })
}

fn figure_7(machine: &Machine, milliseconds: u64) -> std::io::Result<Vec<Streamed>> {
    let mut streams = Vec::new();
    for (segment_bytes, _) in FIGURE_7 {
        // Without a cache it is the same whatever its size.
        let of_card = [Mode::Pcache, Mode::Direct, Mode::Spill, Mode::Adaptive];
        let cells = of_card.into_iter().flat_map(|mode| CACHES.map(|cache| (mode, cache)));
        for (mode, cache_bytes) in std::iter::once((Mode::Copy, 0)).chain(cells) {
            let milliseconds = (milliseconds / 3, milliseconds);
            let config = StreamsConfig { mode, cache_bytes, segment_bytes, milliseconds };
            let outcome = simulate_streams(machine, &config)?;
            streams.push(Streamed { segment_bytes, mode: mode.to_string(), cache_bytes, outcome });
        }
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_tables() {
        let report = run(&Plan { packets: 20_000, seed: 1, milliseconds: 300 }).unwrap();
        for Latency { bytes, how, paper_us, model_us } in report.latencies {
            assert!(
                (model_us / paper_us - 1.0).abs() < 0.05,
                "{bytes} {how:?}: {model_us} beside {paper_us}"
            );
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
        for (segment_bytes, papers) in FIGURE_7 {
            let of = |mode: Mode| {
                let cells = report.streams.iter().filter(|cell| {
                    (cell.segment_bytes, &*cell.mode) == (segment_bytes, &*mode.to_string())
                });
                cells.map(|cell| cell.outcome).collect::<Vec<_>>()
            };
            let (base, pcache, direct) = (of(Mode::Copy)[0], of(Mode::Pcache), of(Mode::Direct));
            println!("{segment_bytes}: {base:?}, paper {papers:?}\n{pcache:#?}\n{direct:#?}");
            let (least, most) = (pcache[0], pcache[pcache.len() - 1]);
            assert!(base.hit_rate == 0.0 && most.hit_rate > 0.99 && least.hit_rate < most.hit_rate);
            assert!(
                most.mb_per_s > least.mb_per_s && direct[direct.len() - 1].mb_per_s > most.mb_per_s
            );
        }
        // Neither drops anything for lack of cache, whatever its size.
        for mode in ["pcache", "spill", "adaptive"] {
            let cells = report.streams.iter().filter(|cell| cell.mode == mode);
            assert!(cells.clone().count() == 2 * CACHES.len());
            assert!(cells.clone().all(|cell| cell.outcome.lost == 0), "{mode}");
        }
        // The law of hits, in every cell.
        for Queued { entries, demand_us, outcome } in &report.queues {
            let off = (outcome.hit_rate - outcome.law).abs();
            assert!(off < 0.02, "{entries} entries, {demand_us} us: {outcome:?}");
        }
        let cell = |entries, demand_us| {
            let is_it =
                |queued: &&Queued| queued.entries == entries && queued.demand_us == demand_us;
            report.queues.iter().find(is_it).unwrap().outcome
        };
        // Section 5.3: near 100 % at low demand; few at saturation; and queues grow more slowly
        // with a larger cache.
        assert!(cell(16, 0.0).hit_rate > 0.99 && cell(16, 130.0).hit_rate < 0.1);
        assert!(cell(16, 80.0).queue_mean > cell(350, 80.0).queue_mean);
    }
}
