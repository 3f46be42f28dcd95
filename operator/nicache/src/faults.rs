//! Every fault of a configuration file at once, each with its line and its key.
//!
//! Whoever starts nicache hears of the first one only ([`RunOptions::resolve`]). Here each setting
//! is read by itself; then those that do not go together are left out one after the other until the
//! rest is right.

use std::collections::BTreeMap;

use toml::{Table, Value};

use crate::options::{PathOptions, RunOptions, RunPlan};

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fault {
    /// Line in the file, from 1; `None`: of the file as a whole.
    pub line: Option<usize>,
    /// The setting; empty: the file as a whole.
    pub key: String,
    /// What is wrong, and what is right.
    pub what: String,
}

/// What the file says.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// In order of their lines.
    pub faults: Vec<Fault>,
    /// What would be done, if there are no faults.
    pub plan: Option<RunPlan>,
    /// The file is for `nicache attach`: the interface toward the server.
    pub host: Option<String>,
}

/// Rounds of leaving settings out; more faults than that are not told.
const ROUNDS_MAX: usize = 32;

/// Reads a file.
pub(crate) fn read(text: &str) -> Reading {
    let mut reading = Reading::default();
    let table: Table = match toml::from_str(text) {
        Ok(table) => table,
        Err(error) => {
            let line = error.span().map(|span| line_at(text, span.start));
            let what = format!("this is not TOML: {}", error.message());
            reading.faults.push(Fault { line, key: String::new(), what });
            return reading;
        }
    };
    let lines = Lines::of(text);
    let mut good = Table::new();
    let mut paths = Vec::new();
    for (key, value) in &table {
        match (key.as_str(), value) {
            ("path", Value::Array(tables)) => {
                paths = good_paths(tables, &lines, &mut reading.faults);
            }
            _ => match one_setting(key, value) {
                Ok(()) => drop(good.insert(key.clone(), value.clone())),
                Err(what) => {
                    reading.faults.push(Fault { line: lines.of_key(key), key: key.clone(), what });
                }
            },
        }
    }
    let is_whole = reading.faults.is_empty();
    for _ in 0..ROUNDS_MAX {
        if !paths.is_empty() {
            let tables = paths.iter().map(|(_, table)| Value::Table(table.clone()));
            good.insert("path".into(), Value::Array(tables.collect()));
        }
        let options: RunOptions = match good.clone().try_into() {
            Ok(options) => options,
            Err(error) => {
                let what = error.message().to_owned();
                reading.faults.push(Fault { line: None, key: String::new(), what });
                break;
            }
        };
        reading.host = options.host.clone();
        let planned = match options.host {
            Some(_) => options.resolve_attach().map(|plan| plan.run),
            None => options.resolve(),
        };
        match planned {
            Ok(plan) => {
                reading.plan = (is_whole && reading.faults.is_empty()).then_some(plan);
                break;
            }
            Err(error) => {
                let message = format!("{error:#}");
                let keys = keys_of(&message, &good);
                let what = message
                    .split_once(": ")
                    .filter(|_| !keys.is_empty())
                    .map_or(&*message, |(_, what)| what);
                let line = keys.iter().filter_map(|key| lines.of_key(key)).min();
                let pattern = message.split('`').nth(1).filter(|_| keys == ["path"]);
                let of_pattern =
                    |table: &Table| table.get("pattern").and_then(Value::as_str) == pattern;
                if let Some(at) =
                    paths.iter().position(|(_, table)| pattern.is_some() && of_pattern(table))
                {
                    let (number, _) = paths.remove(at);
                    good.remove("path");
                    let line = lines.of_path(number);
                    reading.faults.push(Fault { line, key: "path".into(), what: what.to_owned() });
                    continue;
                }
                paths.retain(|_| keys != ["path"]);
                reading.faults.push(Fault { line, key: keys.join(", "), what: what.to_owned() });
                let before = good.len();
                good.retain(|key, _| !keys.iter().any(|known| known == key));
                if good.len() == before {
                    break;
                }
            }
        }
    }
    reading.faults.sort();
    reading
}

/// Is the value one that this setting can have?
fn one_setting(key: &str, value: &Value) -> Result<(), String> {
    let known = settings();
    if !known.contains(&key.to_owned()) {
        return Err(unknown(key, &known));
    }
    let alone: Table = [(key.to_owned(), value.clone())].into_iter().collect();
    alone.try_into::<RunOptions>().map(|_| ()).map_err(|error| error.message().to_owned())
}

/// The `[[path]]` tables that can be read, with their numbers; the others are told in `faults`.
fn good_paths(tables: &[Value], lines: &Lines, faults: &mut Vec<Fault>) -> Vec<(usize, Table)> {
    let mut right = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let Value::Table(settings) = table else {
            faults.push(Fault {
                line: lines.of_key("path"),
                key: "path".into(),
                what: "write [[path]] tables".into(),
            });
            continue;
        };
        let Err(error) = settings.clone().try_into::<PathOptions>() else {
            right.push((number, settings.clone()));
            continue;
        };
        // Which setting is it? The one without which it can be read, or which cannot be read beside
        // a pattern.
        let mut found = false;
        for (key, value) in settings {
            let mut alone = Table::new();
            alone.insert(
                "pattern".into(),
                settings.get("pattern").cloned().unwrap_or_else(|| Value::String("/".into())),
            );
            alone.insert(key.clone(), value.clone());
            if let Err(error) = alone.try_into::<PathOptions>() {
                found = true;
                let line = lines.of_path_key(number, key).or_else(|| lines.of_path(number));
                faults.push(Fault {
                    line,
                    key: format!("path.{key}"),
                    what: error.message().to_owned(),
                });
                if key == "pattern" {
                    break;
                }
            }
        }
        if !found {
            faults.push(Fault {
                line: lines.of_path(number),
                key: "path".into(),
                what: error.message().to_owned(),
            });
        }
    }
    right
}

/// Names of all settings.
fn settings() -> Vec<String> {
    let command = crate::cli::command();
    let run = command.find_subcommand("run").into_iter().flat_map(clap::Command::get_arguments);
    let mut names: Vec<String> =
        run.filter_map(|argument| argument.get_long()).map(str::to_owned).collect();
    names.retain(|name| name != "config" && name != "help");
    names.push("server".into());
    names
}

fn unknown(key: &str, known: &[String]) -> String {
    let near = known.iter().map(|name| (distance(key, name), name)).min();
    match near {
        Some((away, name)) if away <= 3.min(name.len() / 2) => {
            format!("there is no such setting; is it `{name}`?")
        }
        _ => "there is no such setting; nicache.example.toml has all".to_owned(),
    }
}

/// Changes of single letters from one word to the other (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, own) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *own);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[other.len()]
}

/// The settings that a message begins with: "recheck, recheck-max: ...", "path `/a`: ...".
fn keys_of(message: &str, settings: &Table) -> Vec<String> {
    let start = message.split(':').next().unwrap_or_default();
    let words = start.split(',').map(|word| word.split_whitespace().next().unwrap_or_default());
    words.filter(|word| settings.contains_key(*word)).map(str::to_owned).collect()
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// In which lines the settings are.
struct Lines {
    top: BTreeMap<String, usize>,
    paths: Vec<(usize, BTreeMap<String, usize>)>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let mut lines = Self { top: BTreeMap::new(), paths: Vec::new() };
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.starts_with("[[path]]") {
                lines.paths.push((number, BTreeMap::new()));
            } else if let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) {
                let key = key.trim().trim_matches(['"', '\'']).to_owned();
                let keys = lines.paths.last_mut().map_or(&mut lines.top, |(_, keys)| keys);
                keys.entry(key).or_insert(number);
            }
        }
        lines
    }

    fn of_key(&self, key: &str) -> Option<usize> {
        self.top.get(key).copied().or_else(|| (key == "path").then(|| self.of_path(0)).flatten())
    }

    fn of_path(&self, number: usize) -> Option<usize> {
        self.paths.get(number).map(|(line, _)| *line)
    }

    fn of_path_key(&self, number: usize, key: &str) -> Option<usize> {
        self.paths.get(number).and_then(|(_, keys)| keys.get(key).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_named() {
        let text = "memroy = '1G'\nqueues = 2\nmemory = 'many'\n\n# a comment = no setting\npublish = ['0.0.0.0:80', '0.0.0.0:80']\n\
            recheck = '10s'\nrecheck-max = '1s'\n[[path]]\npattern = '/a'\ncach = false\n[[path]]\npattern = '/b'\nrecheck = 'soon'\n\
            [[path]]\npattern = '/c'\ncache = false\nmasks = ['a*b']\n";
        let reading = read(text);
        assert!(reading.plan.is_none());
        let told: Vec<(Option<usize>, &str)> =
            reading.faults.iter().map(|fault| (fault.line, fault.key.as_str())).collect();
        let lines = [1, 3, 6, 8, 11, 14, 15].map(Some);
        let keys =
            ["memroy", "memory", "publish", "recheck-max", "path.cach", "path.recheck", "path"];
        assert_eq!(told, lines.into_iter().zip(keys).collect::<Vec<_>>(), "{:#?}", reading.faults);
        assert!(reading.faults[0].what.contains("is it `memory`?"), "{:?}", reading.faults[0]);
    }

    #[test]
    fn what_is_right_is_planned() {
        let reading = read("memory = '1G'\nserver = ['nginx']\n");
        assert_eq!((reading.faults, reading.plan.unwrap().memory_bytes), (Vec::new(), 1 << 30));
        let attach = read("wire = 'eth0'\nhost = 'veth0'\n");
        assert_eq!((attach.faults, attach.host.as_deref()), (Vec::new(), Some("veth0")));
        let broken = read("memory = \n");
        assert_eq!(broken.faults[0].line, Some(1), "{:?}", broken.faults);
        assert!(read("").plan.is_some());
    }
}
