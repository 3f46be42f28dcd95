//! What the structure of a database adds to a statement: views, triggers, foreign keys, routines,
//! engines, keys.
//!
//! A catalogue is made of rows that the caller fetches with [`query`], once as the watch begins and
//! again whenever [`crate::Event::SchemaChanged`] was seen. It has no I/O, and no notion of being
//! out of date: the caller takes it away from the sessions until the new one is there.
//!
//! Each row is one column of fields between tabs. Names are in hexadecimal, so no name can
//! forge a row.

mod changes;
mod expansion;

use std::collections::HashMap;

pub use self::changes::ChangedTables;
pub use self::expansion::expand;
use crate::dialects::Dialect;
use crate::footprint::Context;
use crate::key::ColumnKind;
use crate::parse::parse;
use crate::reason::Reason;
use crate::routine_body::may_write;
use crate::statement::{Class, Statement};
use crate::target::fold;

/// The rows are not those of the query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {row} of the catalogue is not understood")]
pub struct CatalogueError {
    /// The number of the row, from 1.
    pub row: usize,
}

/// The server's settings that sessions begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Each statement is a transaction of its own.
    pub autocommit: bool,
    /// Quotes and escapes mean what they usually do.
    pub usual_lexing: bool,
    /// Sessions read what others have not committed.
    pub read_uncommitted: bool,
    /// The language is the server's usual one, and COMMIT does not begin a transaction.
    pub usual_language: bool,
}

/// The structure of a database (PostgreSQL) or of all databases of a server (MySQL).
#[derive(Clone, Debug)]
pub struct Catalogue {
    dialect: Dialect,
    /// PostgreSQL: the database that this is of.
    database: Option<Box<str>>,
    tables: Vec<Table>,
    by_name: HashMap<Box<str>, Vec<usize>>,
    /// Tables that are not there but have been, or are to be, and what a foreign key takes along
    /// with their rows.
    orphans: Vec<(TableId, TableId)>,
    routines: HashMap<Box<str>, Routine>,
    /// One of them can be called by a SELECT and may change something, or a view does so.
    routine_may_write: bool,
    defaults: Defaults,
    hidden_writers: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// Changes are visible when the transaction ends.
    Transactional,
    /// Changes are visible at once.
    AtOnce,
    /// The contents come from elsewhere.
    Elsewhere,
    Sequence,
}

/// Schema and name, as they are compared.
type TableId = (Box<str>, Box<str>);

#[derive(Clone, Debug)]
struct Table {
    /// Schema and name as the server has them.
    exact: (Vec<u8>, Vec<u8>),
    schema: Box<str>,
    name: Box<str>,
    storage: Storage,
    /// The query of a view.
    view: Option<Vec<Statement>>,
    /// What each trigger does.
    triggers: Vec<Vec<Statement>>,
    /// Tables whose rows change with rows of this one.
    cascades: Vec<TableId>,
    /// Partitions and children.
    parts: Vec<TableId>,
    columns: HashMap<Box<str>, ColumnKind>,
    /// The columns of each unique key; none for an expression.
    unique: Vec<(Box<str>, Vec<Option<KeyColumn>>)>,
    /// Rules or row security: nothing can be said.
    opaque: bool,
}

impl Table {
    /// One of which nothing else is known.
    fn new(schema: Box<str>, name: Box<str>, storage: Storage) -> Self {
        Self {
            exact: (Vec::new(), Vec::new()),
            schema,
            name,
            storage,
            view: None,
            triggers: Vec::new(),
            cascades: Vec::new(),
            parts: Vec::new(),
            columns: HashMap::new(),
            unique: Vec::new(),
            opaque: false,
        }
    }
}

#[derive(Clone, Debug)]
struct KeyColumn {
    name: Box<str>,
    /// Its values are given out by the server and will not run out.
    automatic: bool,
}

/// What a function that somebody has defined may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Routine {
    Computes,
    Reads,
    Anything,
}

/// The query that fetches the rows of a catalogue, to be run with the server's own client so
/// it prints nothing but the rows: `mariadb --batch --raw --skip-column-names`, or `psql -At` in
/// each database.
pub fn query(dialect: Dialect) -> &'static str {
    dialect.server().catalogue_query()
}

impl Catalogue {
    /// Makes a catalogue of what [`query`] has printed.
    pub fn parse(dialect: Dialect, text: &str) -> Result<Self, CatalogueError> {
        let mut catalogue = Self {
            dialect,
            database: None,
            tables: Vec::new(),
            by_name: HashMap::new(),
            orphans: Vec::new(),
            routines: HashMap::new(),
            routine_may_write: false,
            defaults: Defaults {
                autocommit: true,
                usual_lexing: true,
                read_uncommitted: false,
                usual_language: true,
            },
            hidden_writers: false,
        };
        let mut complete = false;
        // Tables come first, whatever the order of the rows.
        for pass in [true, false] {
            for (at, line) in text.lines().enumerate() {
                let fields: Vec<&str> = line.split('\t').collect();
                if fields == ["end"] {
                    complete = true;
                } else if (fields[0] == "table") == pass {
                    catalogue.row(&fields).ok_or(CatalogueError { row: at + 1 })?;
                }
            }
        }
        // Half of a catalogue is none.
        if complete { Ok(catalogue) } else { Err(CatalogueError { row: text.lines().count() + 1 }) }
    }

    /// The settings that sessions begin with.
    pub fn defaults(&self) -> Defaults {
        self.defaults
    }

    /// Are there functions or views by which a SELECT may change something although it names no
    /// sequence's function?
    pub fn functions_may_write(&self) -> bool {
        self.routine_may_write
    }

    /// Are there functions or sequences, by which a SELECT may change something? Then
    /// [`crate::is_certain_read`] is not to be believed.
    pub fn select_may_write(&self) -> bool {
        self.routine_may_write || self.tables.iter().any(|table| table.storage == Storage::Sequence)
    }

    /// Does something inside the server change tables without a statement of a connection (events,
    /// replication)? Then no reply that reads the database can be kept beyond the time limit for
    /// what cannot be seen.
    pub fn has_hidden_writers(&self) -> bool {
        self.hidden_writers
    }

    fn row(&mut self, fields: &[&str]) -> Option<()> {
        match *fields {
            ["table", schema, name, storage] => {
                let storage = match storage.to_ascii_lowercase().as_str() {
                    "innodb" | "heap" | "view" | "xtradb" | "rocksdb" => Storage::Transactional,
                    "myisam" | "aria" | "memory" => Storage::AtOnce,
                    "sequence" => Storage::Sequence,
                    _ => Storage::Elsewhere,
                };
                let exact = (unhex(schema)?, unhex(name)?);
                let (schema, name) = (unhex_name(schema)?, unhex_name(name)?);
                self.by_name.entry(name.clone()).or_default().push(self.tables.len());
                self.tables.push(Table { exact, ..Table::new(schema, name, storage) });
            }
            ["view", schema, name, body] => {
                let body = unhex(body)?;
                self.routine_may_write |= names_sequence_function(&body);
                let body = parse(self.dialect, &body);
                self.table_mut(schema, name)?.view = Some(body);
            }
            ["trigger", schema, name, body] => {
                let body = trigger_body(self.dialect, &unhex(body)?);
                self.table_mut(schema, name)?.triggers.push(body);
            }
            ["opaque", schema, name] => self.table_mut(schema, name)?.opaque = true,
            ["cascade", schema, name, child_schema, child] => {
                let child = (unhex_name(child_schema)?, unhex_name(child)?);
                let (schema, name) = (unhex_name(schema)?, unhex_name(name)?);
                let parents: Vec<usize> = self.find(Some(&schema), &name).collect();
                for at in &parents {
                    self.tables[*at].cascades.push(child.clone());
                }
                if parents.is_empty() {
                    self.orphans.push(((schema, name), child));
                }
            }
            ["part", schema, name, child_schema, child] => {
                let child = (unhex_name(child_schema)?, unhex_name(child)?);
                self.table_mut(schema, name)?.parts.push(child);
            }
            ["column", schema, name, column, kind, length] => {
                let column = self.column_name(column)?;
                let kind = column_kind(kind, length)?;
                self.table_mut(schema, name)?.columns.insert(column, kind);
            }
            ["unique", schema, name, key, column, automatic] => {
                let key = unhex_name(key)?;
                let column = unhex_name(column)?;
                let column = (!column.is_empty())
                    .then_some(KeyColumn { name: column, automatic: automatic == "1" });
                let unique = &mut self.table_mut(schema, name)?.unique;
                match unique.iter_mut().find(|(name, _)| *name == key) {
                    Some((_, columns)) => columns.push(column),
                    None => unique.push((key, vec![column])),
                }
            }
            ["routine", name, kind] => {
                let routine = match kind {
                    "computes" => Routine::Computes,
                    "reads" => Routine::Reads,
                    _ => Routine::Anything,
                };
                // A procedure is called by a statement of its own, or by a function that is not
                // harmless.
                self.routine_may_write |= routine == Routine::Anything && kind != "procedure";
                self.add_routine(name, routine)?;
            }
            ["function", name, body] => {
                self.routine_may_write |= may_write(&unhex(body)?);
                self.add_routine(name, Routine::Anything)?;
            }
            // Databases whose names differ in case alone are different ones.
            ["setting", "database", name] => {
                self.database = Some(String::from_utf8(unhex(name)?).ok()?.into());
            }
            ["setting", name, value] => self.setting(name, &unhex_name(value)?),
            _ => return None,
        }
        Some(())
    }

    /// Of several with one name, the one that may do most counts.
    fn add_routine(&mut self, name: &str, routine: Routine) -> Option<()> {
        let known = self.routines.entry(unhex_name(name)?).or_insert(routine);
        *known = (*known).max(routine);
        Some(())
    }

    fn setting(&mut self, name: &str, value: &str) {
        match name {
            "autocommit" => self.defaults.autocommit = value == "1",
            "isolation" => self.defaults.read_uncommitted |= value.contains("uncommitted"),
            "completion_type" => self.defaults.usual_language &= matches!(value, "no_chain" | "0"),
            "init_connect" => self.defaults.usual_language &= value.is_empty(),
            "sql_mode" => {
                let odd = ["oracle", "mssql", "postgresql", "db2", "maxdb"];
                self.defaults.usual_language &= !value.split(',').any(|mode| odd.contains(&mode));
                self.defaults.usual_lexing &=
                    !value.contains("ansi") && !value.contains("backslash");
            }
            "standard_conforming_strings" => self.defaults.usual_lexing &= value == "on",
            "hidden_writers" => self.hidden_writers |= value != "0",
            _ => {}
        }
    }

    /// The table with exactly this name; others may be the same when they are compared.
    fn table_mut(&mut self, schema: &str, name: &str) -> Option<&mut Table> {
        let exact = (unhex(schema)?, unhex(name)?);
        let all = self.by_name.get(&unhex_name(name)?)?;
        let at = all.iter().copied().find(|at| self.tables[*at].exact == exact)?;
        Some(&mut self.tables[at])
    }

    fn column_name(&self, name: &str) -> Option<Box<str>> {
        match self.dialect {
            Dialect::MySql => unhex_name(name),
            Dialect::Postgres => String::from_utf8(unhex(name)?).ok().map(Into::into),
        }
    }

    fn find<'a>(&'a self, schema: Option<&'a str>, name: &str) -> impl Iterator<Item = usize> + 'a {
        let all = self.by_name.get(name).map_or(&[][..], |all| all.as_slice());
        all.iter()
            .copied()
            .filter(move |at| schema.is_none_or(|schema| *self.tables[*at].schema == *schema))
    }

    /// Is this the catalogue of the database that a connection is in?
    fn is_of(&self, context: &Context) -> bool {
        match self.dialect {
            Dialect::MySql => true,
            Dialect::Postgres => {
                self.database.is_some() && self.database.as_deref() == context.catalog
            }
        }
    }
}

/// `nextval`, `setval`, `NEXT VALUE FOR`. In a question itself the kernel looks for them
/// (`ebpf/sql.h`).
fn names_sequence_function(text: &[u8]) -> bool {
    let begins = |text: &[u8], word: &[u8]| {
        text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    (0..text.len()).map(|at| &text[at..]).any(|rest| {
        begins(rest, b"tval")
            || begins(rest, b"next") && begins(rest[4..].trim_ascii_start(), b"value")
    })
}

fn column_kind(kind: &str, length: &str) -> Option<ColumnKind> {
    let bits = |bits: u32, unsigned: bool| {
        if unsigned {
            ColumnKind::Integer(0, (1i128 << bits) - 1)
        } else {
            ColumnKind::Integer(-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        }
    };
    let unsigned = kind.ends_with("unsigned");
    Some(match kind.split(' ').next()? {
        "tinyint" => bits(8, unsigned),
        "smallint" | "int2" => bits(16, unsigned),
        "mediumint" => bits(24, unsigned),
        "int" | "int4" => bits(32, unsigned),
        "bigint" | "int8" => bits(64, unsigned),
        "string" => ColumnKind::Text(length.parse().ok()?),
        _ => return None,
    })
}

/// What a trigger does: one statement, or several between BEGIN and END. Assignments to the new row
/// change no table.
fn trigger_body(dialect: Dialect, body: &[u8]) -> Vec<Statement> {
    let unknown = || vec![Statement::everything(Reason::Indirect)];
    let Ok(text) = core::str::from_utf8(body) else { return unknown() };
    let mut text = text.trim();
    if text == "NONE" {
        return Vec::new();
    }
    let starts = |text: &str, word: &str| {
        text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && text[word.len()..].starts_with(|c: char| c.is_ascii_whitespace())
    };
    if starts(text, "begin") {
        text = text[5..].trim().trim_end_matches(';').trim_end();
        match text.len().checked_sub(3).and_then(|at| text.get(at..)) {
            Some(end) if end.eq_ignore_ascii_case("end") => text = &text[..text.len() - 3],
            _ => return unknown(),
        }
    }
    let statements = parse(dialect, text.as_bytes());
    let understood = statements.iter().all(|statement| {
        matches!(statement.class, Class::Write | Class::Read | Class::Nothing)
            || matches!(&statement.class,
                Class::Set(settings) if settings.iter().all(|s| *s == crate::Setting::Other))
    });
    if understood { statements } else { unknown() }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn unhex_name(text: &str) -> Option<Box<str>> {
    String::from_utf8(unhex(text)?).ok().map(|name| fold(&name))
}
