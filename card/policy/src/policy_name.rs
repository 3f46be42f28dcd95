//! Every policy by name: one meaning for each, in commands, configuration files, studies and
//! tables.

use std::str::FromStr;

use crate::{
    Arc, Clock, Fifo, Gdsf, Lfu, Lirs, Lrfu, Lru, Mru, Parameters, Policy, Popularity, Random,
    S3Fifo, Sieve, TwoQ, WTinyLfu,
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
    /// Least frequently used, with dynamic ageing.
    LfuDa,
    /// Second chance.
    Clock,
    /// Any object.
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
    /// A queue with a hand that evicts what was not used again.
    Sieve,
    /// Bos et al. 2009.
    Popularity,
    /// Belady's policy knows the future; a bound only where all objects have one size.
    Belady,
    /// An upper bound on the hit rate of every policy, whatever the sizes.
    PfooL,
}

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Fifo,
        Self::Lru,
        Self::Mru,
        Self::Lfu,
        Self::LfuDa,
        Self::Clock,
        Self::Random,
        Self::TwoQ,
        Self::Lrfu,
        Self::Arc,
        Self::Lirs,
        Self::Gdsf,
        Self::WTinyLfu,
        Self::S3Fifo,
        Self::Sieve,
        Self::Popularity,
        Self::Belady,
        Self::PfooL,
    ];

    /// Whether it knows the future. No card can have it then.
    pub fn knows_the_future(self) -> bool {
        matches!(self, Self::Belady | Self::PfooL)
    }

    /// Bytes that the policy itself takes for each object in memory, and for what it remembers of
    /// others, at most and with default settings; `None` for what no card can have. The object's
    /// own entry comes on top.
    pub fn bytes_per_object(self) -> Option<u32> {
        match self {
            Self::Fifo | Self::Lru | Self::Mru | Self::Clock | Self::Sieve => Some(48),
            Self::Random => Some(52),
            Self::Lfu | Self::LfuDa | Self::Lrfu | Self::Gdsf => Some(72),
            Self::TwoQ => Some(72),
            Self::S3Fifo => Some(92),
            Self::Arc => Some(112),
            Self::WTinyLfu => Some(72),
            Self::Lirs => Some(192),
            // Keys that it follows: as many again as there are objects, and at most 262,144 more.
            Self::Popularity => Some(72),
            Self::Belady | Self::PfooL => None,
        }
    }

    /// The policy's name in commands, tables and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Lru => "lru",
            Self::Mru => "mru",
            Self::Lfu => "lfu",
            Self::LfuDa => "lfu-da",
            Self::Clock => "clock",
            Self::Random => "random",
            Self::TwoQ => "2q",
            Self::Lrfu => "lrfu",
            Self::Arc => "arc",
            Self::Lirs => "lirs",
            Self::Gdsf => "gdsf",
            Self::WTinyLfu => "w-tinylfu",
            Self::S3Fifo => "s3-fifo",
            Self::Sieve => "sieve",
            Self::Popularity => "popularity",
            Self::Belady => "belady",
            Self::PfooL => "pfoo-l",
        }
    }

    /// The policy's name as people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Fifo => "FIFO",
            Self::Lru => "LRU",
            Self::Mru => "MRU",
            Self::Lfu => "LFU",
            Self::LfuDa => "LFU-DA",
            Self::Clock => "CLOCK",
            Self::Random => "Random",
            Self::TwoQ => "2Q",
            Self::Lrfu => "LRFU",
            Self::Arc => "ARC",
            Self::Lirs => "LIRS",
            Self::Gdsf => "GDSF",
            Self::WTinyLfu => "W-TinyLFU",
            Self::S3Fifo => "S3-FIFO",
            Self::Sieve => "SIEVE",
            Self::Popularity => "Popularity",
            Self::Belady => "Belady",
            Self::PfooL => "PFOO-L",
        }
    }

    /// What it does, in the words of a command's help.
    pub fn description(self) -> &'static str {
        match self {
            Self::Fifo => "First in, first out",
            Self::Lru => "Least recently used",
            Self::Mru => "Most recently used",
            Self::Lfu => "Least frequently used; counts never age",
            Self::LfuDa => "Least frequently used; counts age",
            Self::Clock => "First in, first out, with a second chance for what was used",
            Self::Random => "An object at random",
            Self::TwoQ => "Two queues: a new object must be used again to stay",
            Self::Lrfu => "Recency and frequency, weighed together",
            Self::Arc => "Recency and frequency, balanced by what was missed (ARC)",
            Self::Lirs => "Longest time between two uses",
            Self::Gdsf => "Large and seldom used objects first (greedy dual)",
            Self::WTinyLfu => "A window for new objects, then the less frequent of two (W-TinyLFU)",
            Self::S3Fifo => "Three queues: new objects, used ones, and names of evicted ones",
            Self::Sieve => "A queue with a hand that evicts what was not used again",
            Self::Popularity => "Least requested over the past periods of 30 s (Bos et al. 2009)",
            Self::Belady => "Knows the future; a bound where all objects have one size",
            Self::PfooL => "A bound that no policy can surpass, whatever the sizes",
        }
    }

    /// The policy with its default settings, for a memory of so many bytes that holds so many
    /// objects at most. `seed` is for the random one. `None` for what no card can have.
    pub fn build(self, bytes: u64, objects: u32, seed: u64) -> Option<Box<dyn Policy>> {
        self.build_with(&Parameters::default(), bytes, objects, seed)
    }

    /// [`PolicyName::build`] with settings of its own.
    pub(crate) fn build_with(
        self,
        settings: &Parameters,
        bytes: u64,
        objects: u32,
        seed: u64,
    ) -> Option<Box<dyn Policy>> {
        Some(match self {
            Self::Lru => Box::new(Lru::new(bytes, objects)),
            Self::Mru => Box::new(Mru::new(bytes, objects)),
            Self::Fifo => Box::new(Fifo::new(bytes, objects)),
            Self::Lfu => Box::new(Lfu::without_ageing(bytes, objects)),
            Self::LfuDa => Box::new(Lfu::new(bytes, objects)),
            Self::Clock => Box::new(Clock::new(bytes, objects)),
            Self::Random => Box::new(Random::new(bytes, objects, settings.seed(seed))),
            Self::TwoQ => Box::new(TwoQ::with_config(&settings.two_q(bytes, objects))),
            Self::Lrfu => Box::new(Lrfu::with_config(&settings.lrfu(bytes, objects))),
            Self::Arc => Box::new(Arc::new(bytes, objects)),
            Self::Lirs => Box::new(Lirs::with_config(&settings.lirs(bytes, objects))),
            Self::Gdsf => Box::new(Gdsf::with_config(&settings.gdsf(bytes, objects))),
            Self::WTinyLfu => Box::new(WTinyLfu::with_config(&settings.w_tiny_lfu(bytes, objects))),
            Self::S3Fifo => Box::new(S3Fifo::with_config(&settings.s3_fifo(bytes, objects))),
            Self::Sieve => Box::new(Sieve::new(bytes, objects)),
            Self::Popularity => Box::new(Popularity::new(&settings.popularity(bytes, objects))),
            Self::Belady | Self::PfooL => return None,
        })
    }
}

/// A name that is not a policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no policy \"{0}\"; there are {names}", names = PolicyName::ALL.map(PolicyName::name).join(", "))]
pub struct UnknownPolicy(pub String);

/// By its name, or as people write it; capitals do not matter.
impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let text = text.trim();
        let is_named = |policy: &Self| {
            [policy.name(), policy.title()].iter().any(|name| name.eq_ignore_ascii_case(text))
        };
        Self::ALL.into_iter().find(is_named).ok_or_else(|| UnknownPolicy(text.to_owned()))
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
            assert_eq!(policy.map_or_else(|| name.name(), |policy| policy.name()), name.name());
        }
    }
}
