//! The list of the kinds.

pub(crate) mod mysql;
pub(crate) mod postgres;

use nicache_sql::Dialect;

use crate::databases::database::Database;
use crate::databases::kinds::mysql::MySql;
use crate::databases::kinds::postgres::Postgres;

/// All kinds of database servers that are followed.
pub(crate) const ALL: [&dyn Database; 2] = [&MySql, &Postgres];

/// The kind by its number in the kernel.
pub(crate) fn by_number(number: u32) -> Option<&'static dyn Database> {
    ALL.into_iter().find(|kind| kind.number() == number)
}

/// The kind whose server has processes of this name; a line feed behind it does not matter.
pub(crate) fn by_process_name(name: &str) -> Option<&'static dyn Database> {
    ALL.into_iter().find(|kind| kind.process_names().contains(&name.trim_end()))
}

/// The kind of a database on another machine, whose relay tells what dialect it speaks.
pub(crate) fn by_dialect(dialect: Dialect) -> &'static dyn Database {
    match dialect {
        Dialect::MySql => &MySql,
        Dialect::Postgres => &Postgres,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn kinds_differ() {
        for (at, kind) in ALL.into_iter().enumerate() {
            assert_eq!(by_number(kind.number()), Some(kind));
            for name in kind.process_names() {
                assert_eq!(by_process_name(&format!("{name}\n")), Some(kind));
            }
            assert!(ALL[..at].iter().all(|other| *other != kind));
        }
        assert!(by_number(0).is_none() && by_process_name("nginx").is_none());
    }

    /// What `processes.h` of each folder says to the witnesses, which are written in C.
    #[test]
    fn the_witnesses_know_the_same_processes() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/databases/kinds");
        let entries = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let mut seen: Vec<(u32, Vec<String>)> = entries
            .filter(|path| path.is_dir())
            .map(|path| {
                let text = std::fs::read_to_string(path.join("processes.h")).unwrap();
                let (_, number) = text.split_once("_NUMBER ").unwrap();
                let (_, names) = text.split_once("_NAMES(NAME) ").unwrap();
                let names = names.lines().next().unwrap().split('"').skip(1).step_by(2);
                let number = number.lines().next().unwrap().parse().unwrap();
                (number, names.map(str::to_owned).collect())
            })
            .collect();
        seen.sort();
        let names = |kind: &dyn Database| {
            kind.process_names().iter().map(|name| (*name).to_owned()).collect()
        };
        let mut known = ALL.map(|kind| (kind.number(), names(kind)));
        known.sort();
        assert_eq!(seen, known);
    }
}
