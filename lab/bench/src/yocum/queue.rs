//! Figure 5: packets wait for the CPU, and those that wait fill the cache.
//!
//! Packets come at random (Poisson). The input queue has 400 places, as the paper's kernel has.
//! Each packet that comes gets an entry from the shipped payload cache module; if its payload is
//! still there when it is forwarded, it does not cross the bus again, and the CPU is done sooner.
//!
//! The law: with the entry that came last going first, a packet is forwarded from the cache with
//! the chance min(1, K/N), for K entries and N packets that wait when it comes, itself among them;
//! so hits are E[min(1, K/N)]. The paper's own estimate, K over the mean of N, fails near
//! saturation, where misses make the queue jump between short and long.

use std::collections::VecDeque;

use nicache_forward::pcache::{BufferId, Order, Pcache};
use serde::{Deserialize, Serialize};

use super::machine::Machine;

/// A run with packets that come at random and wait for the CPU.
#[derive(Debug, Clone, Copy)]
pub struct QueueConfig {
    /// Entries of the cache.
    pub entries: u32,
    /// Which entry goes first.
    pub order: Order,
    /// CPU time that each packet takes besides, in microseconds.
    pub demand_us: f64,
    /// Bytes of a packet.
    pub bytes: u64,
    /// Bytes that come per second.
    pub bytes_per_s: f64,
    /// Places of the input queue.
    pub places: usize,
    /// Packets that come.
    pub packets: u64,
    /// Of the arrivals.
    pub seed: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            entries: 350,
            order: Order::Mru,
            demand_us: 0.0,
            bytes: 4096,
            bytes_per_s: 25e6,
            places: 400,
            packets: 200_000,
            seed: 1,
        }
    }
}

/// What came of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueOutcome {
    /// Packets that wait or are forwarded, on average over time.
    pub queue_mean: f64,
    /// Share of forwarded packets whose payload was on the card, 0 to 1.
    pub hit_rate: f64,
    /// What the law says, from the same run's queue.
    pub law: f64,
    /// What the paper's estimate says: entries over the mean queue, at most 1.
    pub estimate: f64,
    /// Share of packets that found no place.
    pub dropped: f64,
    /// Share of time for which the CPU was busy or stalled.
    pub busy: f64,
}

/// Runs the queue as `config` says, on this machine.
pub fn simulate(machine: &Machine, config: &QueueConfig) -> QueueOutcome {
    let mut random = fastrand::Rng::with_seed(config.seed);
    let buffers = config.places as u32 + 1;
    let mut pcache = Pcache::new(config.entries, buffers, config.order);
    let mut free: Vec<BufferId> = (0..buffers).map(BufferId).collect();
    let mut waiting: VecDeque<BufferId> = VecDeque::new();
    let mean_us = config.bytes as f64 / config.bytes_per_s * 1e6;
    let (mut now, mut done_at) = (0.0, f64::INFINITY);
    let mut next_at = 0.0;
    let (mut came, mut dropped, mut forwarded, mut hits) = (0u64, 0u64, 0u64, 0u64);
    let (mut area, mut busy, mut law) = (0.0, 0.0, 0.0);
    while came < config.packets || !waiting.is_empty() {
        let at = if came < config.packets { done_at.min(next_at) } else { done_at };
        area += waiting.len() as f64 * (at - now);
        now = at;
        if done_at <= now {
            // The one in front has left; its buffer, and what the cache has of it, may be used for
            // another.
            let buffer = waiting.pop_front().expect("it was under way");
            let _ = pcache.pc_send_complete(buffer);
            free.push(buffer);
            done_at = f64::INFINITY;
        } else {
            came += 1;
            next_at = now - mean_us * (1.0 - random.f64()).ln();
            if waiting.len() >= config.places {
                dropped += 1;
                continue;
            }
            let buffer = free.pop().expect("there are more buffers than places");
            if let Ok(Some(_)) = pcache.pc_receive_bind(buffer) {
                let _ = pcache.pc_receive_complete(buffer, true);
            }
            waiting.push_back(buffer);
            law += (f64::from(config.entries) / waiting.len() as f64).min(1.0);
        }
        if done_at.is_infinite()
            && let Some(&buffer) = waiting.front()
        {
            let is_hit = pcache.cached(buffer).is_some();
            if is_hit {
                let _ = pcache.pc_send_bind(buffer);
            }
            forwarded += 1;
            hits += u64::from(is_hit);
            let service =
                config.demand_us + machine.cpu_us(config.bytes, if is_hit { 1 } else { 2 });
            busy += service;
            done_at = now + service;
        }
    }
    let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let queue_mean = area / now.max(1.0);
    QueueOutcome {
        queue_mean,
        hit_rate: share(hits, forwarded),
        law: law / forwarded.max(1) as f64,
        estimate: (f64::from(config.entries) / queue_mean.max(1e-9)).min(1.0),
        dropped: share(dropped, came),
        busy: (busy / now.max(1.0)).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without misses it is a queue with one server and constant service: Pollaczek and Khinchine.
    #[test]
    fn a_queue_as_in_the_books() {
        let machine = Machine::default();
        let demand_us = 60.0;
        let config =
            QueueConfig { entries: 400, demand_us, packets: 400_000, ..QueueConfig::default() };
        let outcome = simulate(&machine, &config);
        let load = (demand_us + machine.cpu_us(4096, 1)) / (4096.0 / 25.0);
        let expected = load + load * load / (2.0 * (1.0 - load));
        assert!(
            (outcome.queue_mean / expected - 1.0).abs() < 0.03,
            "{} beside {expected}",
            outcome.queue_mean
        );
        assert!((outcome.busy - load).abs() < 0.01);
        assert_eq!((outcome.hit_rate, outcome.dropped), (1.0, 0.0));
    }

    /// Section 3: the entry that came last going first is the best order here.
    #[test]
    fn the_best_order() {
        let rate = |order| {
            let config = QueueConfig {
                entries: 16,
                order,
                demand_us: 75.0,
                packets: 50_000,
                ..QueueConfig::default()
            };
            simulate(&Machine::default(), &config).hit_rate
        };
        let best = rate(Order::Mru);
        for order in [Order::Lru, Order::Fifo, Order::Random] {
            assert!(rate(order) < best, "{order:?}");
        }
    }
}
