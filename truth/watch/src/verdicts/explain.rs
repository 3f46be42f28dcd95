//! What the watcher tells an operator: on what an entry depends, and which entries depend on
//! something.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nicache_coherence::{Class, RecordNumber, SourceSlot};
use nicache_sql::{Access, Target, Value, conflicts};

use crate::statements::journal::DatabaseRead;
use crate::verdicts::registrar::Registrar;
use crate::witnesses::event::{EventKind, Identity, LookupEvent};

/// Sources that one explanation names at most.
pub const EXPLAINED_MAX: usize = 2000;
/// Values of a column that are shown.
const VALUES_SHOWN: usize = 8;

/// How the server came to depend on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The path was opened or looked at.
    Read,
    /// The path was looked up and is not there.
    Missing,
    /// The directory was listed.
    Listed,
}

impl Use {
    /// The name for people and programs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Missing => "missing",
            Self::Listed => "listed",
        }
    }
}

/// A path that an entry depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedPath {
    /// The path as the server spelled it.
    pub path: String,
    /// How it was used.
    pub used: Use,
    /// Revision of the inode; `None` if the path is not there.
    pub revision: Option<u64>,
}

/// On what an entry depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What kind of reply it is.
    pub class: Class,
    /// Paths, in order; at most [`EXPLAINED_MAX`].
    pub paths: Vec<ExplainedPath>,
    /// All paths, shown or not.
    pub paths_count: usize,
    /// Tables and rows.
    pub tables: Vec<String>,
    /// Files that the server's programs have read since their start and may still hold: of a
    /// dynamic reply, each of them counts, too.
    pub retained: usize,
}

/// Which entries depend on a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependents {
    /// What they were judged by. Numbers of entries that are gone may be among them.
    pub records: Vec<RecordNumber>,
    /// The server may hold the file in its memory: every dynamic entry depends on it.
    pub every_dynamic: bool,
}

impl Registrar {
    /// What an entry was judged by, for all kinds of clients that it answers, unless that was
    /// forgotten.
    pub fn explain(&mut self, number: RecordNumber) -> Option<Explanation> {
        self.handle_events();
        let last = self.records.get(number)?;
        let class = last.class;
        let records = std::iter::once(number).chain(last.also.iter().copied());
        let mut paths: BTreeMap<(String, Use), Option<SourceSlot>> = BTreeMap::new();
        let mut tables: Vec<String> = Vec::new();
        for record in records.filter_map(|number| self.records.get(number)) {
            for event in &record.looked.events {
                let (used, slot) = use_of(event);
                paths.insert((name_of(event), used), slot);
            }
            for DatabaseRead { access, .. } in &record.reads {
                let name = name_of_access(access);
                if tables.len() < EXPLAINED_MAX && !tables.contains(&name) {
                    tables.push(name);
                }
            }
        }
        let paths_count = paths.len();
        let revision = |slot: SourceSlot| self.table.stamp_of(slot).0;
        let paths = paths.into_iter().take(EXPLAINED_MAX);
        Some(Explanation {
            class,
            paths: paths
                .map(|((path, used), slot)| ExplainedPath {
                    path,
                    used,
                    revision: slot.map(revision),
                })
                .collect(),
            paths_count,
            tables,
            retained: if class == Class::Dynamic { self.retained.len() } else { 0 },
        })
    }

    /// Which entries a change of this file or directory would purge; it need not exist.
    pub fn dependents_of_path(&mut self, path: &Path) -> Dependents {
        self.handle_events();
        let identity = std::fs::symlink_metadata(path).ok().map(|metadata| identity_of(&metadata));
        let behind = std::fs::metadata(path).ok().map(|metadata| identity_of(&metadata));
        let slots: Vec<SourceSlot> =
            [identity, behind].into_iter().flatten().map(Identity::slot).collect();
        let name = path.as_os_str().as_encoded_bytes();
        let records = self.records.iter().filter(|(_, record)| {
            record.looked.fixed.iter().any(|slot| slots.contains(slot))
                || record.looked.events.iter().any(|event| is_at(event, name))
        });
        let records = self.with_later(records.map(|(number, _)| number).collect());
        let every_dynamic =
            [identity, behind].into_iter().flatten().any(|identity| self.retained.has(identity));
        Dependents { records, every_dynamic }
    }

    /// Which entries a change of this table would purge: `TABLE`, `SCHEMA.TABLE` or
    /// `DATABASE:SCHEMA.TABLE`.
    pub fn dependents_of_table(&mut self, name: &str) -> Dependents {
        self.handle_events();
        let change = [Access::whole(parse_target(name))];
        let records = self.records.iter().filter(|(_, record)| {
            record.reads.iter().any(|read| conflicts(std::slice::from_ref(&read.access), &change))
        });
        let records = self.with_later(records.map(|(number, _)| number).collect());
        Dependents { records, every_dynamic: false }
    }

    /// These records, and those of entries that depend on them, too.
    fn with_later(&self, mut records: Vec<RecordNumber>) -> Vec<RecordNumber> {
        // They are in order of age.
        let is_there = |number: &RecordNumber| {
            records.binary_search_by_key(&number.0, |record| record.0).is_ok()
        };
        let later = self
            .records
            .iter()
            .filter(|(number, record)| !is_there(number) && record.also.iter().any(is_there));
        let later: Vec<RecordNumber> = later.map(|(number, _)| number).collect();
        records.extend(later);
        records
    }
}

fn identity_of(metadata: &std::fs::Metadata) -> Identity {
    let dev = metadata.dev();
    Identity { dev: rustix::fs::major(dev) << 20 | rustix::fs::minor(dev), ino: metadata.ino() }
}

fn use_of(event: &LookupEvent) -> (Use, Option<SourceSlot>) {
    let slot = event.inode.map(Identity::slot);
    match event.kind {
        EventKind::Readdir => (Use::Listed, slot),
        _ if event.ret < 0 => (Use::Missing, None),
        _ => {
            let behind = || {
                std::fs::metadata(path_of(event)).ok().map(|metadata| identity_of(&metadata).slot())
            };
            (Use::Read, slot.or_else(behind))
        }
    }
}

fn path_of(event: &LookupEvent) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(&event.path))
}

fn name_of(event: &LookupEvent) -> String {
    match (event.kind, &*event.path) {
        (EventKind::Readdir, b"") => "(an open directory)".to_owned(),
        (_, path) if event.is_relative() || path.is_empty() => {
            format!("./{}", String::from_utf8_lossy(path))
        }
        (_, path) => String::from_utf8_lossy(path).into_owned(),
    }
}

/// Is it the path itself, or a look-up of something below it when it is not a directory?
fn is_at(event: &LookupEvent, name: &[u8]) -> bool {
    event
        .path
        .strip_prefix(name)
        .is_some_and(|rest| rest.is_empty() || event.ret < 0 && rest.starts_with(b"/"))
}

fn parse_target(name: &str) -> Target {
    let (catalog, rest) = match name.split_once(':') {
        Some((catalog, rest)) => (Some(catalog), rest),
        None => (None, name),
    };
    let (schema, table) = match rest.split_once('.') {
        Some((schema, table)) => (Some(schema), table),
        None => (None, rest),
    };
    let part = |text: &str| (text != "*").then(|| Box::from(text.to_ascii_lowercase()));
    Target { catalog: catalog.and_then(part), schema: schema.and_then(part), name: part(table) }
}

fn name_of_access(access: &Access) -> String {
    let mut text = access.target.to_string();
    for (at, restriction) in access.rows.iter().enumerate() {
        // A text stands for every text that some collation holds equal to it.
        let folded = restriction.values.iter().any(|value| matches!(value, Value::Text(_)));
        let (word, sign) = (if at == 0 { "where" } else { "and" }, if folded { '~' } else { '=' });
        let _ = write!(text, " {word} {} {sign} ", restriction.column);
        for (at, value) in restriction.values.iter().take(VALUES_SHOWN).enumerate() {
            let _ = match value {
                Value::Integer(number) => {
                    write!(text, "{}{number}", if at > 0 { " or " } else { "" })
                }
                Value::Text(value) => write!(text, "{}'{value}'", if at > 0 { " or " } else { "" }),
            };
        }
        if restriction.values.len() > VALUES_SHOWN {
            let _ = write!(text, " or {} more", restriction.values.len() - VALUES_SHOWN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use nicache_sql::Restriction;

    use super::*;

    #[test]
    fn tables_are_named_as_people_write_them() {
        assert_eq!(parse_target("wp.Posts"), Target::table("wp", "posts"));
        assert!(parse_target("posts").overlaps(&Target::table("wp", "posts")));
        assert!(parse_target("wp.*").overlaps(&Target::table("wp", "posts")));
        assert!(!parse_target("other.*").overlaps(&Target::table("wp", "posts")));
        assert_eq!(parse_target("db:public.items").catalog.as_deref(), Some("db"));
        let values = vec![Value::Integer(1), Value::Text("a".into())];
        let rows = vec![Restriction { column: "id".into(), values }];
        assert_eq!(
            name_of_access(&Access { target: Target::table("a", "b"), rows }),
            "a.b where id ~ 1 or 'a'"
        );
        let values: Vec<Value> = (0..20).map(Value::Integer).collect();
        let rows = vec![Restriction { column: "id".into(), values }];
        assert!(
            name_of_access(&Access { target: Target::table("a", "b"), rows })
                .ends_with(" or 12 more")
        );
    }

    #[test]
    fn a_path_is_met_by_itself_and_by_failed_look_ups_below() {
        let event =
            |path: &[u8], ret| LookupEvent { path: path.into(), ret, ..LookupEvent::blank(1) };
        assert!(is_at(&event(b"/a/b", 3), b"/a/b"));
        assert!(!is_at(&event(b"/a/bc", 3), b"/a/b"));
        assert!(!is_at(&event(b"/a/b/c", 3), b"/a/b"));
        assert!(is_at(&event(b"/a/b/c", -2), b"/a/b"));
    }
}
