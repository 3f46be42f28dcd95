//! Replacement policies by name, for cards of either kind.

use clap::ValueEnum;
use nicache_policy::{
    Arc, Clock, Fifo, Gdsf, Lfu, Lirs, Lrfu, Lru, Policy, Popularity, PopularityConfig, Random, S3Fifo, Sieve, TwoQ,
    WTinyLfu,
};
use serde::{Deserialize, Serialize};

/// Which entry (or block) goes when a card's memory is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Least recently used
    Lru,
    /// First in, first out
    Fifo,
    /// Least frequently used; counts age
    Lfu,
    /// Second chance
    Clock,
    /// Any
    Random,
    /// 2Q
    #[serde(rename = "2q")]
    #[value(name = "2q")]
    TwoQ,
    /// Recency and frequency combined
    Lrfu,
    /// Adaptive replacement
    Arc,
    /// Least inter-reference recency
    Lirs,
    /// Greedy dual: large and seldom used ones first
    Gdsf,
    /// A window, then what a sketch of frequencies prefers
    #[serde(rename = "w-tinylfu")]
    #[value(name = "w-tinylfu")]
    WTinyLfu,
    /// Three queues
    S3Fifo,
    /// A hand that moves over a queue
    Sieve,
    /// Least requested over the past periods of 30 s (Bos et al. 2009)
    Popularity,
}

/// The policy for a memory of so many bytes that holds so many objects at most. `seed` is for the random one.
pub fn new_policy(kind: PolicyKind, bytes: u64, objects: u32, seed: u64) -> Box<dyn Policy> {
    match kind {
        PolicyKind::Lru => Box::new(Lru::new(bytes, objects)),
        PolicyKind::Fifo => Box::new(Fifo::new(bytes, objects)),
        PolicyKind::Lfu => Box::new(Lfu::new(bytes, objects)),
        PolicyKind::Clock => Box::new(Clock::new(bytes, objects)),
        PolicyKind::Random => Box::new(Random::new(bytes, objects, seed)),
        PolicyKind::TwoQ => Box::new(TwoQ::new(bytes, objects)),
        PolicyKind::Lrfu => Box::new(Lrfu::new(bytes, objects)),
        PolicyKind::Arc => Box::new(Arc::new(bytes, objects)),
        PolicyKind::Lirs => Box::new(Lirs::new(bytes, objects)),
        PolicyKind::Gdsf => Box::new(Gdsf::new(bytes, objects)),
        PolicyKind::WTinyLfu => Box::new(WTinyLfu::new(bytes, objects)),
        PolicyKind::S3Fifo => Box::new(S3Fifo::new(bytes, objects)),
        PolicyKind::Sieve => Box::new(Sieve::new(bytes, objects)),
        PolicyKind::Popularity => Box::new(Popularity::new(&PopularityConfig::new(bytes, objects))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a study calls them, so that its advice can be followed.
    #[test]
    fn advice_can_be_followed() {
        for kind in PolicyKind::value_variants() {
            let value = kind.to_possible_value().unwrap();
            let choice: nicache_study::Choice = value.get_name().parse().unwrap();
            let expected = if *kind == PolicyKind::Lfu { "lfu-da" } else { choice.policy.name() };
            assert_eq!(new_policy(*kind, 1 << 20, 100, 1).name(), expected);
            let text = serde_json::to_string(kind).unwrap();
            assert_eq!(text.trim_matches('"'), value.get_name());
        }
    }
}
