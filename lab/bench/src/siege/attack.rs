//! Which attacks there are, and how hard they are.

use serde::{Deserialize, Serialize};

use super::crowd::{Behaviour, Crowd};
use super::flood::Flood;
use super::generator::Attack;
use super::mutants::Mutants;

/// What attackers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackKind {
    /// SYNs from random sources that never answer.
    SynFlood,
    /// Connections that ask for 1 MB and hardly read.
    SlowReaders,
    /// Requests that come byte by byte and never end.
    SlowSenders,
    /// Connections without traffic.
    Idle,
    /// Random frames, and frames of conversations changed on their way.
    Mutants,
}

impl AttackKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::SynFlood, Self::SlowReaders, Self::SlowSenders, Self::Idle, Self::Mutants];

    /// The attack's name in tables and figures.
    pub fn label(self) -> &'static str {
        match self {
            Self::SynFlood => "SYN flood",
            Self::SlowReaders => "slow readers",
            Self::SlowSenders => "slow senders",
            Self::Idle => "idle connections",
            Self::Mutants => "random and mutated frames",
        }
    }

    /// Prepares it.
    pub(super) fn begin(self, strength: &Strength, seed: u64) -> Box<dyn Attack> {
        let crowd =
            |behaviour, count| Box::new(Crowd::new(behaviour, count, strength.opened_per_s, seed));
        match self {
            Self::SynFlood => Box::new(Flood::new(strength.syns_per_s, seed)),
            Self::SlowReaders => crowd(Behaviour::SlowReaders, strength.slow),
            Self::SlowSenders => crowd(Behaviour::SlowSenders, strength.slow),
            Self::Idle => crowd(Behaviour::Idle, strength.idle),
            Self::Mutants => Box::new(Mutants::new(strength.frames_per_s, seed)),
        }
    }
}

/// How hard the attacks are: each has a bound of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strength {
    /// SYNs a second.
    pub syns_per_s: u32,
    /// Slow readers, and slow senders.
    pub slow: u32,
    /// Idle connections.
    pub idle: u32,
    /// Connections of the last three that are opened in a second.
    pub opened_per_s: u32,
    /// Looks at conversations a second, each of which may send a frame that is changed, and half as
    /// many random frames.
    pub frames_per_s: u32,
}

impl Default for Strength {
    fn default() -> Self {
        Self {
            syns_per_s: 20_000,
            slow: 2_000,
            idle: 100_000,
            opened_per_s: 10_000,
            frames_per_s: 5_000,
        }
    }
}
