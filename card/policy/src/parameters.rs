//! Settings of policies, as a command line has them: `lirs:hir=5%`, `s3-fifo:small=5%:ghost=2`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use crate::{
    GdsfConfig, GdsfCost, LirsConfig, LrfuConfig, PolicyName, PopularityConfig, S3FifoConfig,
    TwoQConfig, WTinyLfuConfig,
};

/// Most settings of a policy.
const SETTINGS_MAX: usize = 4;

/// What a setting takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// A share of the memory, in percent or from 0 on.
    Share(f64),
    /// A number between these.
    Number(f64, f64),
    /// One of these words, by its place.
    Word(&'static [&'static str]),
}

/// A setting of a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    name: &'static str,
    kind: Kind,
    /// What it is, with its default.
    what: &'static str,
}

const fn known(name: &'static str, kind: Kind, what: &'static str) -> Known {
    Known { name, kind, what }
}

const LIRS: &[Known] = &[
    known(
        "hir",
        Kind::Share(1.0),
        "memory of objects that were used once, 1%, or 20% where sizes differ",
    ),
    known("stack", Kind::Number(1.0, 4.0), "objects remembered, in memories, 2"),
];
const LRFU: &[Known] =
    &[known("lambda", Kind::Number(0.0, 1.0), "halvings of a use's weight per request, 0.001")];
const TWO_Q: &[Known] = &[
    known("in", Kind::Share(1.0), "memory of the first queue, 25%"),
    known("out", Kind::Share(1.0), "keys remembered, 50%"),
];
const GDSF: &[Known] = &[known(
    "cost",
    Kind::Word(&["request", "packets"]),
    "what a miss costs: request, or packets for bytes",
)];
const W_TINY_LFU: &[Known] = &[
    known("window", Kind::Share(1.0), "memory of the window, 1%"),
    known("protected", Kind::Share(1.0), "protected share of the rest, 80%"),
    known("sample", Kind::Number(1.0, 1e6), "requests per object until counts are halved, 10"),
];
const S3_FIFO: &[Known] = &[
    known("small", Kind::Share(1.0), "memory of the small queue, 10%"),
    known("ghost", Kind::Share(1.0), "keys remembered, 90%"),
    known("uses", Kind::Number(0.0, 3.0), "uses that lead to the main queue, 2"),
];
const POPULARITY: &[Known] = &[
    known("alpha", Kind::Number(0.1, 1.0), "weight of the last period, 0.75"),
    known("period", Kind::Number(0.001, 1e9), "its length in seconds, 30"),
];
const RANDOM: &[Known] = &[known("seed", Kind::Number(0.0, 9e15), "seed, 1")];

fn known_of(policy: PolicyName) -> &'static [Known] {
    match policy {
        PolicyName::Lirs => LIRS,
        PolicyName::Lrfu => LRFU,
        PolicyName::TwoQ => TWO_Q,
        PolicyName::Gdsf => GDSF,
        PolicyName::WTinyLfu => W_TINY_LFU,
        PolicyName::S3Fifo => S3_FIFO,
        PolicyName::Popularity => POPULARITY,
        PolicyName::Random => RANDOM,
        _ => &[],
    }
}

/// Settings that differ from a policy's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parameters {
    values: [Option<f64>; SETTINGS_MAX],
}

// No value is a NaN, and zeros have one sign.
impl Eq for Parameters {}

impl Hash for Parameters {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.values.map(|value| value.map(f64::to_bits)).hash(state);
    }
}

/// A text that is not a setting of a policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The policy has none of this name.
    #[error("{policy} has no setting \"{name}\"; {there_are}", there_are = there_are(policy))]
    Unknown {
        /// The policy.
        policy: &'static str,
        /// What was written.
        name: String,
    },
    /// The value is none.
    #[error("\"{text}\" is not a value of {policy}'s {name}: write {expected}")]
    Value {
        /// The policy.
        policy: &'static str,
        /// The setting.
        name: &'static str,
        /// What was written.
        text: String,
        /// What can be.
        expected: String,
    },
}

fn there_are(policy: &str) -> String {
    let known =
        PolicyName::ALL.into_iter().find(|one| one.name() == policy).map_or(&[][..], known_of);
    if known.is_empty() {
        return "it has none".to_owned();
    }
    let told: Vec<String> =
        known.iter().map(|known| format!("{} ({})", known.name, known.what)).collect();
    format!("it has {}", told.join(", "))
}

impl Parameters {
    /// No setting differs.
    pub(crate) const DEFAULT: Self = Self { values: [None; SETTINGS_MAX] };

    /// The settings of a policy in the order of the texts, `name=value` each.
    ///
    /// # Errors
    /// [`ParameterError`]
    pub fn of<'a>(
        policy: PolicyName,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        for text in texts {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            let (name, value) = (name.trim(), value.trim());
            let at = known_of(policy).iter().position(|known| known.name == name);
            let at = at.ok_or_else(|| ParameterError::Unknown {
                policy: policy.name(),
                name: name.to_owned(),
            })?;
            let known = known_of(policy)[at];
            let parsed = known.kind.parse(value).map(|value| value + 0.0);
            parameters.values[at] = Some(parsed.ok_or_else(|| ParameterError::Value {
                policy: policy.name(),
                name: known.name,
                text: value.to_owned(),
                expected: known.kind.to_string(),
            })?);
        }
        Ok(parameters)
    }

    /// Whether all settings are the defaults.
    pub fn is_default(&self) -> bool {
        self.values == [None; SETTINGS_MAX]
    }

    /// The settings that are not the defaults, as [`Parameters::of`] takes them, each after a
    /// colon.
    pub fn show(&self, policy: PolicyName) -> String {
        let shown = known_of(policy).iter().zip(self.values).filter_map(|(known, value)| {
            let value = value?;
            Some(match known.kind {
                Kind::Share(_) => format!(":{}={}%", known.name, trimmed(100.0 * value)),
                Kind::Number(..) => format!(":{}={}", known.name, trimmed(value)),
                Kind::Word(words) => format!(":{}={}", known.name, words[value as usize]),
            })
        });
        shown.collect()
    }

    fn set(&self, at: usize, setting: &mut f64) {
        *setting = self.values[at].unwrap_or(*setting);
    }

    /// LIRS with these settings, for a memory of so many bytes and objects.
    pub fn lirs(&self, memory: u64, objects_max: u32) -> LirsConfig {
        let mut config = LirsConfig::new(memory, objects_max);
        self.set(0, &mut config.hir_share);
        self.set(0, &mut config.sized_hir_share);
        self.set(1, &mut config.stack_share);
        config
    }

    /// LRFU with these settings, for a memory of so many bytes and objects.
    pub fn lrfu(&self, memory: u64, objects_max: u32) -> LrfuConfig {
        let mut config = LrfuConfig::new(memory, objects_max);
        self.set(0, &mut config.lambda);
        config
    }

    /// 2Q with these settings, for a memory of so many bytes and objects.
    pub fn two_q(&self, memory: u64, objects_max: u32) -> TwoQConfig {
        let mut config = TwoQConfig::new(memory, objects_max);
        self.set(0, &mut config.in_share);
        self.set(1, &mut config.out_share);
        config
    }

    /// GDSF with these settings, for a memory of so many bytes and objects.
    pub fn gdsf(&self, memory: u64, objects_max: u32) -> GdsfConfig {
        let cost = if self.values[0] == Some(1.0) { GdsfCost::Packets } else { GdsfCost::Request };
        GdsfConfig { cost, ..GdsfConfig::new(memory, objects_max) }
    }

    /// W-TinyLFU with these settings, for a memory of so many bytes and objects.
    pub fn w_tiny_lfu(&self, memory: u64, objects_max: u32) -> WTinyLfuConfig {
        let mut config = WTinyLfuConfig::new(memory, objects_max);
        self.set(0, &mut config.window_share);
        self.set(1, &mut config.protected_share);
        config.sample_per_object =
            self.values[2].map_or(config.sample_per_object, |value| value as u32);
        config
    }

    /// S3-FIFO with these settings, for a memory of so many bytes and objects.
    pub fn s3_fifo(&self, memory: u64, objects_max: u32) -> S3FifoConfig {
        let mut config = S3FifoConfig::new(memory, objects_max);
        self.set(0, &mut config.small_share);
        self.set(1, &mut config.ghost_share);
        config.uses_to_main = self.values[2].map_or(config.uses_to_main, |value| value as u8);
        config
    }

    /// popularity with these settings, for a memory of so many bytes and objects.
    pub fn popularity(&self, memory: u64, objects_max: u32) -> PopularityConfig {
        let mut config = PopularityConfig::new(memory, objects_max);
        config.alpha = self.values[0].map_or(config.alpha, |value| value as f32);
        config.period = self.values[1].map_or(config.period, Duration::from_secs_f64);
        config
    }

    /// The seed of the random policy; `default` if none is set.
    pub fn seed(&self, default: u64) -> u64 {
        self.values[0].map_or(default, |value| value as u64)
    }
}

impl Kind {
    fn parse(self, text: &str) -> Option<f64> {
        let (text, scale) = text.strip_suffix('%').map_or((text, 1.0), |text| (text, 100.0));
        let number = || text.trim().parse::<f64>().ok().map(|number| number / scale);
        match self {
            Self::Share(most) => number().filter(|share| (0.0..=most).contains(share)),
            Self::Number(least, most) => {
                number().filter(|number| scale == 1.0 && (least..=most).contains(number))
            }
            Self::Word(words) => words.iter().position(|word| *word == text).map(|at| at as f64),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Share(most) => write!(f, "a share from 0% to {}%", 100.0 * most),
            Self::Number(least, most) => write!(f, "a number from {least} to {most}"),
            Self::Word(words) => f.write_str(&words.join(" or ")),
        }
    }
}

/// A number without the digits that binary fractions add.
fn trimmed(number: f64) -> f64 {
    format!("{number:.9}").parse().unwrap_or(number)
}
