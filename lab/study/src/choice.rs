//! Which policy, by name, with which admission.

use std::fmt;
use std::str::FromStr;

use nicache_policy::{
    Arc, Belady, Clock, Fifo, Gdsf, Lfu, Lirs, Lrfu, Lru, Mru, Policy, PolicyName, Popularity,
    Random, S3Fifo, SecondHit, Sieve, SizeLimit, TwoQ, WTinyLfu,
};
use serde::{Serialize, Serializer};

use crate::{Bound, Counts, ParameterError, Parameters, Size, UnknownPolicy, Workload, simulate};

/// A policy, its settings, and what it admits. Written `lru`, `lirs:hir=5%`, `s3-fifo+second-hit`,
/// `gdsf+size:1M`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// Who goes.
    pub policy: PolicyName,
    /// How it is set.
    pub parameters: Parameters,
    /// Larger objects do not come in.
    pub object_max: Option<Size>,
    /// Objects come in at their second miss.
    pub second_hit: bool,
}

impl From<PolicyName> for Choice {
    fn from(policy: PolicyName) -> Self {
        Self { policy, parameters: Parameters::default(), object_max: None, second_hit: false }
    }
}

/// Seed of the random policy.
const SEED: u64 = 1;
/// Keys that the second hit is looked for among, for each object that fits.
const SECOND_HIT_KEYS: u32 = 4;

impl Choice {
    /// The choice as people write it: "S3-FIFO, second hit".
    pub fn title(&self) -> String {
        let mut title = self.policy.title().to_owned()
            + &self.parameters.show(self.policy).replacen(':', " ", 1);
        if self.second_hit {
            title += ", second hit";
        }
        if let Some(size) = self.object_max {
            title += &format!(", up to {size}");
        }
        title
    }

    /// Plays a workload back against a memory, of whose objects so many fit at once at most.
    /// `progress` hears of every few thousand accesses.
    pub fn simulate(
        &self,
        workload: &Workload,
        memory: u64,
        objects_max: u32,
        progress: impl FnMut(u64),
    ) -> Counts {
        let settings = self.parameters;
        let play = Play { choice: *self, workload, memory, objects_max, progress };
        match self.policy {
            PolicyName::Fifo => play.with(Fifo::new(memory, objects_max)),
            PolicyName::Lru => play.with(Lru::new(memory, objects_max)),
            PolicyName::Mru => play.with(Mru::new(memory, objects_max)),
            PolicyName::Lfu => play.with(Lfu::without_ageing(memory, objects_max)),
            PolicyName::LfuDa => play.with(Lfu::new(memory, objects_max)),
            PolicyName::Clock => play.with(Clock::new(memory, objects_max)),
            PolicyName::Random => play.with(Random::new(memory, objects_max, settings.seed(SEED))),
            PolicyName::TwoQ => play.with(TwoQ::with_config(&settings.two_q(memory, objects_max))),
            PolicyName::Lrfu => play.with(Lrfu::with_config(&settings.lrfu(memory, objects_max))),
            PolicyName::Arc => play.with(Arc::new(memory, objects_max)),
            PolicyName::Lirs => play.with(Lirs::with_config(&settings.lirs(memory, objects_max))),
            PolicyName::Gdsf => play.with(Gdsf::with_config(&settings.gdsf(memory, objects_max))),
            PolicyName::WTinyLfu => {
                play.with(WTinyLfu::with_config(&settings.w_tiny_lfu(memory, objects_max)))
            }
            PolicyName::S3Fifo => {
                play.with(S3Fifo::with_config(&settings.s3_fifo(memory, objects_max)))
            }
            PolicyName::Sieve => play.with(Sieve::new(memory, objects_max)),
            PolicyName::Popularity => {
                play.with(Popularity::new(&settings.popularity(memory, objects_max)))
            }
            PolicyName::Belady => {
                let future = workload.accesses.iter().map(|access| Workload::key(access.object()));
                play.with(Belady::new(memory, objects_max, future))
            }
            PolicyName::PfooL => Bound::new(workload).at(memory),
        }
    }
}

struct Play<'a, F> {
    choice: Choice,
    workload: &'a Workload,
    memory: u64,
    objects_max: u32,
    progress: F,
}

impl<F: FnMut(u64)> Play<'_, F> {
    /// A policy that admits everything is compiled with the loop that drives it; filters cost a
    /// call through a table.
    fn with<P: Policy + 'static>(self, policy: P) -> Counts {
        let Play { choice, workload, memory, objects_max, progress } = self;
        let Choice { object_max, second_hit, .. } = choice;
        if object_max.is_none() && !second_hit {
            return simulate(policy, workload, memory, progress);
        }
        let mut policy: Box<dyn Policy> = Box::new(policy);
        if second_hit {
            let keys =
                objects_max.saturating_mul(SECOND_HIT_KEYS).clamp(64, workload.objects.max(64));
            policy = Box::new(SecondHit::new(policy, keys));
        }
        if let Some(Size(bytes)) = object_max {
            policy = Box::new(SizeLimit::new(policy, bytes));
        }
        simulate(policy, workload, memory, progress)
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.policy.name(), self.parameters.show(self.policy))?;
        if self.second_hit {
            f.write_str("+second-hit")?;
        }
        match self.object_max {
            Some(size) => write!(f, "+size:{size}"),
            None => Ok(()),
        }
    }
}

impl Serialize for Choice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A name that is not a policy's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChoiceError {
    /// There is no such policy.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// There is no such filter.
    #[error("there is no admission filter \"{0}\"; write second-hit, or size:1M")]
    Filter(String),
    /// The bound admits everything that it can use.
    #[error("pfoo-l is a bound for every policy and takes no admission filter")]
    Bound,
    /// A setting is not understood.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let mut parts = text.split('+').map(|part| part.trim().to_ascii_lowercase());
        let first = parts.next().unwrap_or_default();
        let mut settings = first.split(':');
        let mut choice = Self::from(settings.next().unwrap_or_default().parse::<PolicyName>()?);
        choice.parameters = Parameters::of(choice.policy, settings)?;
        for filter in parts {
            if choice.policy == PolicyName::PfooL {
                return Err(ChoiceError::Bound);
            }
            match filter.strip_prefix("size:").map(str::parse) {
                Some(Ok(size)) => choice.object_max = Some(size),
                None if filter == "second-hit" => choice.second_hit = true,
                _ => return Err(ChoiceError::Filter(filter)),
            }
        }
        Ok(choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in PolicyName::ALL {
            for (object_max, second_hit) in [(None, false), (Some(Size(5000)), true)] {
                let choice = Choice { object_max, second_hit, ..Choice::from(policy) };
                let expected = if policy == PolicyName::PfooL && second_hit {
                    Err(ChoiceError::Bound)
                } else {
                    Ok(choice)
                };
                assert_eq!(choice.to_string().parse(), expected);
            }
        }
        for text in [
            "lirs:hir=5%:stack=3",
            "lrfu:lambda=0.00001",
            "2q:in=10%:out=75%",
            "gdsf:cost=packets",
            "w-tinylfu:window=0.5%:protected=90%:sample=20+second-hit",
            "s3-fifo:small=5%:ghost=20%:uses=1+size:1M",
            "popularity:alpha=0.6:period=60",
            "random:seed=7",
        ] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!(
                (choice.to_string(), choice.to_string().parse()),
                (text.to_owned(), Ok(choice))
            );
        }
        assert_eq!("LIRS:hir=0.05".parse::<Choice>().unwrap().title(), "LIRS hir=5%");
        let error = |text: &str| text.parse::<Choice>().unwrap_err().to_string();
        assert!(
            error("lirs:hair=5%").contains("it has hir (memory of objects"),
            "{}",
            error("lirs:hair=5%")
        );
        assert!(error("lru:hir=5%").contains("it has none"));
        assert!(
            error("lirs:hir=500%").contains("from 0% to 100%")
                && error("lirs:hir").contains("from 0%")
        );
        assert!(
            error("lirs:stack=5").contains("from 1 to 4")
                && error("lirs:stack=NaN").contains("from 1 to 4")
        );
        assert!(error("gdsf:cost=x").contains("request or packets"));
        assert_eq!("S3-FIFO + size:1M".parse::<Choice>().unwrap().to_string(), "s3-fifo+size:1M");
        // A setting that is the default changes nothing; another does.
        let accesses = (0..4000u64).map(|at| {
            crate::Access::new((at * at % 97 + at % 7) as u32, 1 + at * at % 97).ending(true)
        });
        let workload = Workload::of(accesses.collect(), crate::Room::Bytes);
        let hits =
            |text: &str| text.parse::<Choice>().unwrap().simulate(&workload, 600, 60, |_| {}).hits;
        for (plain, same, other) in [
            ("lirs", "lirs:hir=20%:stack=2", "lirs:hir=50%"),
            ("lrfu", "lrfu:lambda=0.001", "lrfu:lambda=1"),
            ("2q", "2q:in=25%:out=50%", "2q:in=80%"),
            ("gdsf", "gdsf:cost=request", "gdsf:cost=packets"),
            ("w-tinylfu", "w-tinylfu:window=1%:protected=80%:sample=10", "w-tinylfu:window=70%"),
            ("s3-fifo", "s3-fifo:small=10%:ghost=90%:uses=2", "s3-fifo:small=60%"),
            ("random", "random:seed=1", "random:seed=2"),
        ] {
            assert_eq!(hits(plain), hits(same), "{plain}");
            assert_ne!(hits(plain), hits(other), "{plain}");
        }
        assert!("lfru".parse::<Choice>().unwrap_err().to_string().contains("lrfu, arc"));
        assert!(
            "lru+third-hit".parse::<Choice>().is_err() && "lru+size:x".parse::<Choice>().is_err()
        );
    }
}
