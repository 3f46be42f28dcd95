//! Every policy by name: one meaning for each, in commands, configuration files, studies and tables.

use crate::{
    Arc, Clock, Fifo, Gdsf, Lfu, Lirs, Lrfu, Lru, Mru, Policy, Popularity, PopularityConfig, Random, S3Fifo, Sieve,
    TwoQ, WTinyLfu,
};

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PolicyName {
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Most recently used.
    Mru,
    /// Least frequently used.
    Lfu,
    /// The same with dynamic ageing.
    LfuDa,
    /// Second chance.
    Clock,
    /// Any.
    Random,
    /// 2Q.
    TwoQ,
    /// Recency and frequency combined.
    Lrfu,
    /// Adaptive replacement.
    Arc,
    /// Low inter-reference recency set.
    Lirs,
    /// Greedy dual by size and frequency.
    Gdsf,
    /// A window in front of a segmented LRU, with a sketch of frequencies.
    WTinyLfu,
    /// Three queues.
    S3Fifo,
    /// A hand that moves over a queue.
    Sieve,
    /// Bos et al. 2009.
    Popularity,
    /// It knows the future; a bound only where all objects have one size.
    Belady,
    /// The bound whatever the sizes: no policy at all, but what none can surpass.
    PfooL,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [PolicyName; 18] = [
        PolicyName::Fifo,
        PolicyName::Lru,
        PolicyName::Mru,
        PolicyName::Lfu,
        PolicyName::LfuDa,
        PolicyName::Clock,
        PolicyName::Random,
        PolicyName::TwoQ,
        PolicyName::Lrfu,
        PolicyName::Arc,
        PolicyName::Lirs,
        PolicyName::Gdsf,
        PolicyName::WTinyLfu,
        PolicyName::S3Fifo,
        PolicyName::Sieve,
        PolicyName::Popularity,
        PolicyName::Belady,
        PolicyName::PfooL,
    ];

    /// Whether it knows the future. No card can have it then.
    pub fn knows_the_future(self) -> bool {
        matches!(self, PolicyName::Belady | PolicyName::PfooL)
    }

    /// Bytes that the policy itself takes for each object in memory, and for what it remembers of others, at most and with default
    /// settings; `None` for what no card can have. The object's own entry comes on top.
    pub fn bytes_per_object(self) -> Option<u32> {
        match self {
            PolicyName::Fifo | PolicyName::Lru | PolicyName::Mru | PolicyName::Clock | PolicyName::Sieve => Some(48),
            PolicyName::Random => Some(52),
            PolicyName::Lfu | PolicyName::LfuDa | PolicyName::Lrfu | PolicyName::Gdsf => Some(72),
            PolicyName::TwoQ => Some(72),
            PolicyName::S3Fifo => Some(92),
            PolicyName::Arc => Some(112),
            PolicyName::WTinyLfu => Some(72),
            PolicyName::Lirs => Some(192),
            // Keys that it follows: as many again as there are objects, and at most 262,144 more.
            PolicyName::Popularity => Some(72),
            PolicyName::Belady | PolicyName::PfooL => None,
        }
    }

    /// Its name in commands, tables and files.
    pub fn name(self) -> &'static str {
        match self {
            PolicyName::Fifo => "fifo",
            PolicyName::Lru => "lru",
            PolicyName::Mru => "mru",
            PolicyName::Lfu => "lfu",
            PolicyName::LfuDa => "lfu-da",
            PolicyName::Clock => "clock",
            PolicyName::Random => "random",
            PolicyName::TwoQ => "2q",
            PolicyName::Lrfu => "lrfu",
            PolicyName::Arc => "arc",
            PolicyName::Lirs => "lirs",
            PolicyName::Gdsf => "gdsf",
            PolicyName::WTinyLfu => "w-tinylfu",
            PolicyName::S3Fifo => "s3-fifo",
            PolicyName::Sieve => "sieve",
            PolicyName::Popularity => "popularity",
            PolicyName::Belady => "belady",
            PolicyName::PfooL => "pfoo-l",
        }
    }

    /// Its name as people write it.
    pub fn title(self) -> &'static str {
        match self {
            PolicyName::Fifo => "FIFO",
            PolicyName::Lru => "LRU",
            PolicyName::Mru => "MRU",
            PolicyName::Lfu => "LFU",
            PolicyName::LfuDa => "LFU-DA",
            PolicyName::Clock => "CLOCK",
            PolicyName::Random => "Random",
            PolicyName::TwoQ => "2Q",
            PolicyName::Lrfu => "LRFU",
            PolicyName::Arc => "ARC",
            PolicyName::Lirs => "LIRS",
            PolicyName::Gdsf => "GDSF",
            PolicyName::WTinyLfu => "W-TinyLFU",
            PolicyName::S3Fifo => "S3-FIFO",
            PolicyName::Sieve => "SIEVE",
            PolicyName::Popularity => "Popularity",
            PolicyName::Belady => "Belady",
            PolicyName::PfooL => "PFOO-L",
        }
    }

    /// What it does, in the words of a command's help.
    pub fn description(self) -> &'static str {
        match self {
            PolicyName::Fifo => "First in, first out",
            PolicyName::Lru => "Least recently used",
            PolicyName::Mru => "Most recently used",
            PolicyName::Lfu => "Least frequently used; counts never age",
            PolicyName::LfuDa => "Least frequently used; counts age",
            PolicyName::Clock => "Second chance",
            PolicyName::Random => "Any",
            PolicyName::TwoQ => "2Q",
            PolicyName::Lrfu => "Recency and frequency combined",
            PolicyName::Arc => "Adaptive replacement",
            PolicyName::Lirs => "Least inter-reference recency",
            PolicyName::Gdsf => "Greedy dual: large and seldom used ones first",
            PolicyName::WTinyLfu => "A window, then what a sketch of frequencies prefers",
            PolicyName::S3Fifo => "Three queues",
            PolicyName::Sieve => "A hand that moves over a queue",
            PolicyName::Popularity => "Least requested over the past periods of 30 s (Bos et al. 2009)",
            PolicyName::Belady => "It knows the future; a bound where all objects have one size",
            PolicyName::PfooL => "A bound that no policy can surpass, whatever the sizes",
        }
    }

    /// The policy with its default settings, for a memory of so many bytes that holds so many objects at most. `seed` is for the random one.
    /// `None` for what no card can have.
    pub fn build(self, bytes: u64, objects: u32, seed: u64) -> Option<Box<dyn Policy>> {
        Some(match self {
            PolicyName::Lru => Box::new(Lru::new(bytes, objects)),
            PolicyName::Mru => Box::new(Mru::new(bytes, objects)),
            PolicyName::Fifo => Box::new(Fifo::new(bytes, objects)),
            PolicyName::Lfu => Box::new(Lfu::without_ageing(bytes, objects)),
            PolicyName::LfuDa => Box::new(Lfu::new(bytes, objects)),
            PolicyName::Clock => Box::new(Clock::new(bytes, objects)),
            PolicyName::Random => Box::new(Random::new(bytes, objects, seed)),
            PolicyName::TwoQ => Box::new(TwoQ::new(bytes, objects)),
            PolicyName::Lrfu => Box::new(Lrfu::new(bytes, objects)),
            PolicyName::Arc => Box::new(Arc::new(bytes, objects)),
            PolicyName::Lirs => Box::new(Lirs::new(bytes, objects)),
            PolicyName::Gdsf => Box::new(Gdsf::new(bytes, objects)),
            PolicyName::WTinyLfu => Box::new(WTinyLfu::new(bytes, objects)),
            PolicyName::S3Fifo => Box::new(S3Fifo::new(bytes, objects)),
            PolicyName::Sieve => Box::new(Sieve::new(bytes, objects)),
            PolicyName::Popularity => Box::new(Popularity::new(&PopularityConfig::new(bytes, objects))),
            PolicyName::Belady | PolicyName::PfooL => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_knows_its_name() {
        for name in PolicyName::ALL {
            let policy = name.build(1 << 20, 100, 1);
            assert_eq!(policy.is_none(), name.knows_the_future());
            assert_eq!(policy.map_or(name.name(), |policy| policy.name()), name.name());
        }
    }
}
