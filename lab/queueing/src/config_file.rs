//! Configurations from TOML: `extends` names another, and only what differs is stated.
//!
//! `Default.toml` is the schema, too: a key that is not in it is an error that names the nearest
//! one that is.

use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::{Table, Value};

use crate::config::{Config, OutOfBounds};
use crate::configurations;

/// Configurations that extend each other at most.
const EXTENDS_MAX: usize = 16;
/// The largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A configuration that cannot be used.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// It is not TOML.
    #[error("{origin}: {message}")]
    Syntax {
        /// Which file or name.
        origin: String,
        /// Where and what.
        message: String,
    },
    /// There is no such parameter.
    #[error("{origin}: there is no parameter {key}{hint}")]
    UnknownKey {
        /// Which file or name.
        origin: String,
        /// Which key, with its sections.
        key: String,
        /// What may have been meant.
        hint: String,
    },
    /// A value is not of the parameter's kind.
    #[error("{origin}: {message}")]
    Value {
        /// Which file or name.
        origin: String,
        /// Which and why.
        message: String,
    },
    /// A value is out of its bounds.
    #[error("{origin}: {reason}")]
    OutOfBounds {
        /// Which file or name.
        origin: String,
        /// Which and why.
        reason: OutOfBounds,
    },
    /// There is no configuration of that name.
    #[error(
        "there is no configuration named {name:?}{hint}; give one of those that `Config::names` lists, or the path of a file ending in .toml"
    )]
    UnknownName {
        /// The name.
        name: String,
        /// What may have been meant.
        hint: String,
    },
    /// A text, not a file, names a file.
    #[error(
        "{origin}: extends = {name:?} names a file, which only a configuration that is itself a file can do"
    )]
    NoFolder {
        /// Which file or name.
        origin: String,
        /// What it extends.
        name: String,
    },
    /// Configurations extend each other in a circle or too deeply.
    #[error("{origin}: more than {EXTENDS_MAX} configurations extend each other; is it a circle?")]
    TooDeep {
        /// Which file or name.
        origin: String,
    },
    /// The file cannot be read.
    #[error("{path}: {reason}")]
    File {
        /// Which file cannot be read.
        path: PathBuf,
        /// Why the file cannot be read.
        reason: std::io::Error,
    },
}

impl Config {
    /// From a text. `extends` may name a configuration that comes with the program; without it, it
    /// is the default that is extended.
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        resolve("configuration", text, None)
    }

    /// From a file of at most 1 MiB. `extends` may also be the path of another, relative to this
    /// one's folder.
    pub fn from_file(path: &Path) -> Result<Self, ConfigError> {
        let text = read(path)?;
        resolve(&path.display().to_string(), &text, path.parent())
    }

    /// One that comes with the program: `Default` or a row of Table 1 such as `Short8MB`.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        let text = configurations::text(name).ok_or_else(|| unknown_name(name))?;
        resolve(name, text, None)
    }

    /// The names of those that come with the program.
    pub fn names() -> impl Iterator<Item = &'static str> {
        configurations::CONFIGURATIONS.iter().map(|(name, _)| *name)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::named("Default").expect("the default configuration is a test's subject")
    }
}

fn resolve(origin: &str, text: &str, folder: Option<&Path>) -> Result<Config, ConfigError> {
    let mut merged = schema();
    overlay(&mut merged, origin, text, folder, 0)?;
    let config: Config = Value::Table(merged).try_into().map_err(|reason: toml::de::Error| {
        ConfigError::Value { origin: origin.into(), message: message(&reason) }
    })?;
    config
        .validate()
        .map_err(|reason| ConfigError::OutOfBounds { origin: origin.into(), reason })?;
    Ok(config)
}

/// Puts what `text` extends, and then what it says itself, over `merged`.
fn overlay(
    merged: &mut Table,
    origin: &str,
    text: &str,
    folder: Option<&Path>,
    depth: usize,
) -> Result<(), ConfigError> {
    if depth > EXTENDS_MAX {
        return Err(ConfigError::TooDeep { origin: origin.into() });
    }
    let mut own: Table = text.parse().map_err(|reason: toml::de::Error| ConfigError::Syntax {
        origin: origin.into(),
        message: reason.to_string(),
    })?;
    match own.remove("extends") {
        None => {}
        Some(Value::String(name)) if name.ends_with(".toml") => {
            let Some(folder) = folder else {
                return Err(ConfigError::NoFolder { origin: origin.into(), name });
            };
            let path = folder.join(name);
            let text = read(&path)?;
            overlay(merged, &path.display().to_string(), &text, path.parent(), depth + 1)?;
        }
        Some(Value::String(name)) => {
            let text = configurations::text(&name).ok_or_else(|| unknown_name(&name))?;
            overlay(merged, &name, text, None, depth + 1)?;
        }
        Some(other) => {
            let message = format!("extends is {other}, but must be a name or a path in quotes");
            return Err(ConfigError::Value { origin: origin.into(), message });
        }
    }
    merge(merged, own, origin, "")
}

fn merge(under: &mut Table, over: Table, origin: &str, section: &str) -> Result<(), ConfigError> {
    for (name, value) in over {
        let key = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        let Some(old) = under.get_mut(&name) else {
            return Err(ConfigError::UnknownKey {
                origin: origin.into(),
                hint: hint_key(&key),
                key,
            });
        };
        match (old, value) {
            (Value::Table(old), Value::Table(new)) => merge(old, new, origin, &key)?,
            (Value::Table(_), other) => {
                let message = format!("{key} is {other}, but is a section: write [{key}]");
                return Err(ConfigError::Value { origin: origin.into(), message });
            }
            (Value::Float(old), Value::Integer(new)) => *old = new as f64,
            (old, new) if old.same_type(&new) => *old = new,
            (old, new) => {
                let message = format!(
                    "{key} is {new}, a {}, but must be a {}",
                    new.type_str(),
                    old.type_str()
                );
                return Err(ConfigError::Value { origin: origin.into(), message });
            }
        }
    }
    Ok(())
}

fn schema() -> Table {
    let text = configurations::text("Default").unwrap_or_default();
    text.parse().unwrap_or_default()
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let file = |reason| ConfigError::File { path: path.into(), reason };
    if std::fs::metadata(path).map_err(file)?.len() > FILE_BYTES_MAX {
        return Err(file(std::io::Error::other("larger than 1 MiB; is it a configuration?")));
    }
    std::fs::read_to_string(path).map_err(file)
}

fn message(reason: &toml::de::Error) -> String {
    reason.to_string().trim_end().replace('\n', " ")
}

fn unknown_name(name: &str) -> ConfigError {
    ConfigError::UnknownName {
        name: name.into(),
        hint: hint(name, Config::names().map(str::to_owned)),
    }
}

fn hint_key(key: &str) -> String {
    let mut keys = Vec::new();
    for (section, value) in schema() {
        if let Value::Table(table) = value {
            keys.extend(table.keys().map(|name| format!("{section}.{name}")));
        }
        keys.push(section);
    }
    hint(key, keys.into_iter())
}

fn hint(given: &str, known: impl Iterator<Item = String>) -> String {
    let similar = |name: &String| strsim::jaro_winkler(&given.to_lowercase(), &name.to_lowercase());
    let best = known.max_by(|left, right| similar(left).total_cmp(&similar(right)));
    best.filter(|best| similar(best) > 0.7)
        .map(|best| format!("; did you mean {best}?"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Arrivals, MemoryPolicy};

    fn error(text: &str) -> String {
        Config::from_toml(text).unwrap_err().to_string()
    }

    #[test]
    fn every_configuration_that_comes_with_the_program_is_valid() {
        for name in Config::names() {
            Config::named(name).unwrap_or_else(|reason| panic!("{name}: {reason}"));
        }
        assert_eq!(Config::default(), Config::from_toml("").unwrap());
    }

    #[test]
    fn the_defaults_are_the_papers() {
        let config = Config::default();
        assert_eq!(
            (config.requests.count, config.requests.different, config.requests.size_bytes),
            (50_000, 1000, 1024)
        );
        assert_eq!((config.responses.min_bytes, config.responses.max_bytes), (1024, 20_480));
        assert_eq!(config.responses.in_np_memory_bytes, 1024);
        assert_eq!((config.bus.width_bytes, config.bus.contention), (8, false));
        assert_eq!(
            (config.network_processor.clock_mhz, config.network_processor.memory_bytes),
            (200.0, 0)
        );
        assert!(!config.disk.present);
    }

    #[test]
    fn what_is_stated_lies_over_what_is_extended() {
        let config = Config::from_toml(
            "extends = 'Short8MB'\n[requests]\narrivals = 'poisson'\nfrequency_per_s = 5\n[host]\nmemory_policy = 'fifo'",
        )
        .unwrap();
        assert_eq!(config.network_processor.memory_bytes, 8 << 20);
        assert_eq!(
            (config.requests.arrivals, config.requests.frequency_per_s),
            (Arrivals::Poisson, 5.0)
        );
        assert_eq!(config.host.memory_policy, MemoryPolicy::Fifo);
    }

    #[test]
    fn files_extend_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("sub")).unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("base.toml", "extends = 'Short1MB'\n[requests]\ncount = 7");
        write("sub/own.toml", "extends = '../base.toml'\n[requests]\ndifferent = 3");
        let config = Config::from_file(&folder.path().join("sub/own.toml")).unwrap();
        assert_eq!((config.requests.count, config.requests.different), (7, 3));
        assert_eq!(config.network_processor.memory_bytes, 1 << 20);
        write("base.toml", "extends = 'sub/own.toml'");
        let reason = Config::from_file(&folder.path().join("base.toml")).unwrap_err().to_string();
        assert!(reason.contains("is it a circle?"), "{reason}");
        let reason = Config::from_file(&folder.path().join("none.toml")).unwrap_err().to_string();
        assert!(reason.contains("none.toml"), "{reason}");
        assert!(error("extends = 'base.toml'").contains("names a file"));
    }

    #[test]
    fn mistakes_are_named_with_a_hint() {
        assert!(
            error("[request]\ncount = 1").contains("no parameter request; did you mean requests?")
        );
        assert!(
            error("[requests]\ncuont = 1").contains("requests.cuont; did you mean requests.count?")
        );
        assert!(error("extends = 'Short8Mb'").contains("did you mean Short8MB?"));
        assert!(error("extends = 8").contains("extends is 8"));
        assert!(
            error("[requests]\ncount = 'many'").contains("requests.count is \"many\", a string")
        );
        assert!(error("requests = 5").contains("write [requests]"));
        assert!(error("[requests]\ncount = -5").contains("invalid value"));
        assert!(error("[requests]\narrivals = 'sometimes'").contains("fixed"));
        assert!(
            error("[requests]\ncount = 0")
                .contains("requests.count is 0, but must be 1 to 1000000000")
        );
        assert!(
            error("[requests]\nfrequency_per_s = nan").contains("requests.frequency_per_s is NaN")
        );
        assert!(
            error("[responses]\nmin_bytes = 30_000")
                .contains("responses.max_bytes is 20480, but must be 30000")
        );
        assert!(error("[requests\n").contains("line 1"));
    }
}
