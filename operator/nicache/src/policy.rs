//! Replacement policies as values of flags and settings, for cards of either kind.

use clap::ValueEnum;
use clap::builder::PossibleValue;
use nicache_policy::{Policy, PolicyName};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Which entry (or block) goes when a card's memory is full: one of the policies that a card can
/// have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PolicyKind(PolicyName);

impl PolicyKind {
    /// Least recently used.
    pub(crate) const LRU: Self = Self(PolicyName::Lru);
    /// All policies that a card can have. Policies that know the future are left out.
    const ALL: [Self; PolicyName::ALL.len() - 2] = {
        let mut kinds = [Self::LRU; PolicyName::ALL.len() - 2];
        let (mut from, mut to) = (0, 0);
        while from < PolicyName::ALL.len() {
            let name = PolicyName::ALL[from];
            if !matches!(name, PolicyName::Belady | PolicyName::PfooL) {
                kinds[to] = Self(name);
                to += 1;
            }
            from += 1;
        }
        assert!(to == kinds.len());
        kinds
    };

    /// Which one it is.
    pub(crate) fn name(self) -> PolicyName {
        self.0
    }
}

impl ValueEnum for PolicyKind {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name()).help(self.0.description()))
    }
}

impl Serialize for PolicyKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for PolicyKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::ALL.into_iter().find(|kind| kind.0.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(|kind| kind.0.name()).join(", ");
            de::Error::custom(format!("unknown policy `{name}`; there are {names}"))
        })
    }
}

/// The policy for a memory of so many bytes that holds so many objects at most. `seed` is for the
/// random one.
pub(crate) fn new_policy(kind: PolicyKind, bytes: u64, objects: u32, seed: u64) -> Box<dyn Policy> {
    kind.0.build(bytes, objects, seed).expect("a policy of a card")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a study calls them, so its advice can be followed.
    #[test]
    fn advice_can_be_followed() {
        for name in PolicyName::ALL.into_iter().filter(|name| !name.knows_the_future()) {
            let kind = PolicyKind::from_str(name.name(), false).unwrap();
            assert_eq!(new_policy(kind, 1 << 20, 100, 1).name(), name.name());
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<PolicyKind>(&text).unwrap(), kind);
        }
        let error = serde_json::from_str::<PolicyKind>("\"belady\"").unwrap_err().to_string();
        assert!(error.contains("unknown policy `belady`; there are fifo, lru"), "{error}");
    }
}
