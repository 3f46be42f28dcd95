//! A policy that a running cache can have, with its settings: `lru`, `lirs:hir=5%`.

use std::fmt;
use std::str::FromStr;

use crate::{ParameterError, Parameters, Policy, PolicyName, UnknownPolicy};

/// A policy and how it is set. It does not know the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenPolicy {
    name: PolicyName,
    parameters: Parameters,
}

/// A text that is not a policy that a running cache can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChosenPolicyError {
    /// There is no such policy.
    #[error("there is no policy \"{0}\"; there are {names}", names = names())]
    Unknown(String),
    /// Only a simulation can have it.
    #[error("{0} knows the future, so only a simulation can have it")]
    Future(&'static str),
    /// A setting is not understood.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
}

fn names() -> String {
    let all = PolicyName::ALL.into_iter().filter(|name| !name.knows_the_future());
    all.map(PolicyName::name).collect::<Vec<_>>().join(", ")
}

impl ChosenPolicy {
    /// Least recently used.
    pub const LRU: Self = Self { name: PolicyName::Lru, parameters: Parameters::DEFAULT };

    /// The policy with its default settings; `None` if it knows the future.
    pub fn new(name: PolicyName) -> Option<Self> {
        (!name.knows_the_future()).then_some(Self { name, parameters: Parameters::DEFAULT })
    }

    /// Which one it is.
    pub fn name(&self) -> PolicyName {
        self.name
    }

    /// The policy for a memory of so many bytes that holds so many objects at most. `seed` is for
    /// the random one, if no other is set.
    pub fn build(&self, bytes: u64, objects: u32, seed: u64) -> Box<dyn Policy> {
        self.name
            .build_with(&self.parameters, bytes, objects, seed)
            .expect("a policy that does not know the future")
    }
}

impl fmt::Display for ChosenPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.name.name(), self.parameters.show(self.name))
    }
}

impl FromStr for ChosenPolicy {
    type Err = ChosenPolicyError;

    fn from_str(text: &str) -> Result<Self, ChosenPolicyError> {
        let text = text.to_ascii_lowercase();
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default().parse();
        let name: PolicyName =
            name.map_err(|UnknownPolicy(name)| ChosenPolicyError::Unknown(name))?;
        if name.knows_the_future() {
            return Err(ChosenPolicyError::Future(name.name()));
        }
        Ok(Self { name, parameters: Parameters::of(name, parts)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_as_it_is_written() {
        for name in PolicyName::ALL {
            let Some(chosen) = ChosenPolicy::new(name) else {
                let error = name.name().parse::<ChosenPolicy>().unwrap_err();
                assert_eq!(error, ChosenPolicyError::Future(name.name()));
                continue;
            };
            assert_eq!(chosen.to_string().parse(), Ok(chosen));
            assert_eq!(name.title().parse(), Ok(chosen));
            assert_eq!(chosen.build(1 << 20, 100, 1).name(), name.name());
        }
        let chosen: ChosenPolicy = "S3-FIFO:small=5%:uses=1".parse().unwrap();
        assert_eq!(chosen.to_string(), "s3-fifo:small=5%:uses=1");
        assert_ne!(Ok(chosen), "s3-fifo".parse());
    }

    #[test]
    fn what_is_not_a_policy_is_refused_with_what_there_is() {
        let long = "x".repeat(100_000);
        let texts = ["", ":", "lru,arc", "lru\0", "../lru", "%s", "lrü", &long];
        for text in texts {
            let error = text.parse::<ChosenPolicy>().unwrap_err().to_string();
            assert!(error.contains("there are fifo, lru, mru"), "{text:.20}: {error:.100}");
            assert!(!error.contains("belady"), "{text:.20}");
        }
        for (text, told) in [
            ("lru:", "lru has no setting \"\"; it has none"),
            ("lru:hir=5%", "it has none"),
            ("lirs:hir=500%", "from 0% to 100%"),
            ("lirs:hir=NaN", "from 0% to 100%"),
            ("s3-fifo:small", "write a share"),
            ("random:seed=-1", "a number from 0 to"),
            ("popularity:period=0", "a number from 0.001"),
        ] {
            let error = text.parse::<ChosenPolicy>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }

    #[test]
    fn a_setting_reaches_its_policy() {
        let victim = |text: &str| {
            let mut policy = text.parse::<ChosenPolicy>().unwrap().build(10, 10, 1);
            for key in 0..10 {
                let key = crate::Key(key);
                policy.handle_miss(key, Some(1));
                policy.handle_insert(key, 1).unwrap();
                policy.handle_hit(key);
            }
            (policy.period(), policy.poll_victim(None))
        };
        assert_ne!(victim("popularity:period=7").0, victim("popularity").0);
        let seeds: Vec<_> = (0..20).map(|seed| victim(&format!("random:seed={seed}")).1).collect();
        assert!(seeds.iter().any(|key| *key != seeds[0]), "{seeds:?}");
    }
}
