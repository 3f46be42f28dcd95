//! What the structure of a database adds to a statement: views, triggers, foreign keys, routines,
//! engines, keys.
//!
//! A catalogue is made of rows that the caller fetches with [`query`], once as the watch begins and
//! again whenever [`crate::Event::SchemaChanged`] was seen. It has no I/O, and no notion of being
//! out of date: the caller takes it away from the sessions until the new one is there.
//!
//! Each row is one column of fields between tabs. Names are in hexadecimal, so no name can
//! forge a row.

use std::collections::{HashMap, HashSet};

use crate::dialects::Dialect;
use crate::footprint::{Context, Footprint};
use crate::functions::{Kind, is_harmless_if_built_in, kind};
use crate::key::{Access, ColumnKind, Constant, Literal, Restriction};
use crate::parse::parse;
use crate::reason::Reason;
use crate::routine_body::may_write;
use crate::statement::{Class, Statement, TableUse, Upsert};
use crate::target::{Target, fold};

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
    routines: HashMap<Box<str>, Routine>,
    /// One of them can be called by a SELECT and may change something, or a view does so.
    routine_may_write: bool,
    defaults: Defaults,
    hidden_writers: bool,
}

/// Views of PostgreSQL that show what the server is doing, and files and settings that change
/// without a statement.
const STATUS: [&str; 12] = [
    "pg_stat",
    "pg_locks",
    "pg_replication",
    "pg_prepared",
    "pg_cursors",
    "pg_settings",
    "pg_file_settings",
    "pg_hba_file_rules",
    "pg_ident_file_mappings",
    "pg_backend_memory_contexts",
    "pg_shmem_allocations",
    "pg_timezone",
];

/// Of PostgreSQL: does it show what the server is doing?
fn is_status(name: &str) -> bool {
    // What ANALYZE has found is a table like any other.
    !name.starts_with("pg_statistic") && STATUS.iter().any(|begin| name.starts_with(begin))
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
    cascades: Vec<(Box<str>, Box<str>)>,
    /// Partitions and children.
    parts: Vec<(Box<str>, Box<str>)>,
    columns: HashMap<Box<str>, ColumnKind>,
    /// The columns of each unique key; none for an expression.
    unique: Vec<(Box<str>, Vec<Option<KeyColumn>>)>,
    /// Rules or row security: nothing can be said.
    opaque: bool,
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
                self.tables.push(Table {
                    exact,
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
                });
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
                self.table_mut(schema, name)?.cascades.push(child);
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

/// What a statement reads and writes. Without a catalogue, everything in reach if it touches
/// anything.
pub fn expand(
    statement: &Statement,
    dialect: Dialect,
    context: &Context,
    parameters: &[Literal],
    catalogue: Option<&Catalogue>,
) -> Footprint {
    let catalogue =
        catalogue.filter(|catalogue| catalogue.dialect == dialect && catalogue.is_of(context));
    let mut expansion = Expansion {
        dialect,
        context,
        catalogue,
        found: Footprint {
            volatile: statement.volatile,
            foreign: statement.foreign,
            session: statement.session,
            locking: statement.locking,
            at_once: statement.at_once,
            ..Footprint::default()
        },
        whole_reads: HashSet::new(),
        whole_writes: HashSet::new(),
    };
    match statement.class {
        Class::Everything(reason) => expansion.everything(reason),
        _ if statement.everything.is_some() => {
            expansion.everything(statement.everything.unwrap_or(Reason::Unparsable));
        }
        Class::Definition => expansion.everything(Reason::Definition),
        _ => expansion.statement(statement, parameters),
    }
    expansion.found
}

struct Expansion<'a> {
    dialect: Dialect,
    context: &'a Context<'a>,
    catalogue: Option<&'a Catalogue>,
    found: Footprint,
    /// Tables that are read, and written, as a whole already.
    whole_reads: HashSet<usize>,
    whole_writes: HashSet<usize>,
}

impl Expansion<'_> {
    fn reach(&self) -> Access {
        Access::whole(Target { catalog: self.context.catalog.map(fold), ..Target::EVERYTHING })
    }

    fn everything(&mut self, reason: Reason) {
        self.found.everything = self.found.everything.or(Some(reason));
        self.found.at_once = true;
        self.reads_everything();
        self.found.writes = vec![self.reach()];
    }

    fn reads_everything(&mut self) {
        self.found.reads = vec![self.reach()];
    }

    fn statement(&mut self, statement: &Statement, parameters: &[Literal]) {
        for function in &statement.functions {
            self.function(function);
        }
        for read in &statement.reads {
            self.table(read, parameters, false);
        }
        for write in &statement.writes {
            self.table(write, parameters, true);
        }
    }

    fn function(&mut self, name: &str) {
        let plain = name.rsplit('.').next().unwrap_or(name).trim_matches(['`', '"']);
        let known = self.catalogue.and_then(|catalogue| catalogue.routines.get(plain).copied());
        match (known, self.catalogue) {
            (Some(Routine::Computes), _) => {}
            (Some(Routine::Reads), _) => self.reads_everything(),
            (Some(Routine::Anything), _) => self.everything(Reason::Function),
            (None, _) if kind(self.dialect, name) != Kind::Unknown => {}
            (None, Some(_)) if name == plain && is_harmless_if_built_in(self.dialect, name) => {}
            _ => self.everything(Reason::Function),
        }
    }

    fn table(&mut self, used: &TableUse, parameters: &[Literal], write: bool) {
        let schema = used.table.schema.as_deref();
        let schema = match self.dialect {
            Dialect::MySql => schema.or(self.context.schema),
            Dialect::Postgres => schema,
        };
        let Some(name) = used.table.name.as_deref() else {
            // It may be any table, also one of this very name in another spelling.
            return self.everything(Reason::UnknownTable);
        };
        let target = Target {
            catalog: self.context.catalog.map(fold),
            schema: schema.map(fold),
            name: Some(fold(name)),
        };
        // A table that only the connection sees; one of the same name behind it counts, too, if
        // there is one.
        let temporary = self.context.temporary.iter().any(|temporary| **temporary == *name);
        if temporary {
            self.found.session = true;
            self.push(Access::whole(target.clone()), write);
        }
        let Some(catalogue) = self.catalogue else {
            self.found.at_once |= write;
            // Whether its contents come from elsewhere is not known.
            self.found.foreign |= !write;
            let reach = self.reach();
            return self.push(reach, write);
        };
        let folded = schema.map(fold);
        let tables: Vec<usize> = catalogue.find(folded.as_deref(), name).collect();
        if tables.is_empty() {
            if temporary {
                return;
            }
            let system = match self.dialect {
                Dialect::MySql => {
                    matches!(folded.as_deref(), Some("information_schema" | "performance_schema"))
                }
                Dialect::Postgres => {
                    matches!(folded.as_deref(), Some("information_schema" | "pg_catalog"))
                        || name.starts_with("pg_")
                }
            };
            if system && !write {
                self.found.volatile = true;
                self.found.foreign |= self.dialect == Dialect::MySql || is_status(name);
                return self.push(Access::whole(target), false);
            }
            return self.everything(Reason::UnknownTable);
        }
        for at in tables {
            if write {
                self.write(at, Some((used, parameters)));
            } else {
                self.read(at, Some((used, parameters)));
            }
        }
    }

    fn push(&mut self, access: Access, write: bool) {
        let list = if write { &mut self.found.writes } else { &mut self.found.reads };
        if !list.contains(&access) {
            list.push(access);
        }
    }

    fn access(&self, table: &Table, used: Option<(&TableUse, &[Literal])>) -> Access {
        let target = Target {
            catalog: self.context.catalog.map(fold),
            schema: Some(table.schema.clone()),
            name: Some(table.name.clone()),
        };
        let rows = match used {
            Some((used, parameters)) => used
                .rows
                .iter()
                .filter(|row| keeps_to(table, &used.upsert, &row.column))
                .filter_map(|row| normalise(table, row, parameters))
                .collect(),
            None => Vec::new(),
        };
        Access { target, rows }
    }

    fn read(&mut self, at: usize, used: Option<(&TableUse, &[Literal])>) {
        let Some(catalogue) = self.catalogue else { return };
        let table = &catalogue.tables[at];
        let access = self.access(table, used);
        let used = used.filter(|_| !access.rows.is_empty());
        if used.is_none() && !self.whole_reads.insert(at) {
            return;
        }
        self.push(access, false);
        if table.opaque || table.storage == Storage::Elsewhere {
            self.found.volatile = true;
            self.found.foreign |= table.storage == Storage::Elsewhere;
            // A policy's functions may do anything; contents that come from elsewhere change
            // unseen.
            self.everything(Reason::UnknownTable);
            return;
        }
        if table.storage == Storage::Sequence {
            self.found.volatile = true;
        }
        if let Some(view) = &table.view {
            for statement in view {
                self.found.volatile |= statement.volatile;
                self.found.session |= statement.session;
                self.found.foreign |= statement.foreign;
                if let Some(reason) = whole(statement) {
                    self.everything(reason);
                    return;
                }
                for function in &statement.functions {
                    self.function(function);
                }
                for read in &statement.reads {
                    self.inner(read, &table.schema, false);
                }
            }
        }
        for (schema, name) in &table.parts {
            let mut parts = catalogue.find(Some(schema), name).peekable();
            if parts.peek().is_none() {
                self.everything(Reason::UnknownTable);
            }
            parts.for_each(|part| self.read(part, used));
        }
    }

    /// A table inside a view or trigger: in the schema of that, if it is MySQL's.
    fn inner(&mut self, used: &TableUse, schema: &str, write: bool) {
        let Some(catalogue) = self.catalogue else { return };
        let Some(name) = used.table.name.as_deref() else {
            return self.everything(Reason::UnknownTable);
        };
        let schema = match self.dialect {
            Dialect::MySql => Some(used.table.schema.as_deref().unwrap_or(schema)),
            Dialect::Postgres => used.table.schema.as_deref(),
        };
        let tables: Vec<usize> = catalogue.find(schema, name).collect();
        if tables.is_empty() {
            return self.everything(Reason::UnknownTable);
        }
        for at in tables {
            if write { self.write(at, None) } else { self.read(at, None) }
        }
    }

    fn write(&mut self, at: usize, used: Option<(&TableUse, &[Literal])>) {
        let Some(catalogue) = self.catalogue else { return };
        let table = &catalogue.tables[at];
        // A trigger may give the new row other values.
        let used = used.filter(|_| table.triggers.is_empty());
        let access = self.access(table, used);
        let used = used.filter(|_| !access.rows.is_empty());
        if used.is_none() && !self.whole_writes.insert(at) {
            return;
        }
        self.push(access, true);
        if table.opaque || table.storage == Storage::Elsewhere {
            return self.everything(Reason::UnknownTable);
        }
        self.found.at_once |= table.storage != Storage::Transactional;
        for statement in table.view.iter().flatten().chain(table.triggers.iter().flatten()) {
            self.found.at_once |= statement.at_once;
            if let Some(reason) = whole(statement) {
                return self.everything(reason);
            }
            for function in &statement.functions {
                self.function(function);
            }
            let is_view = table.view.is_some();
            for read in &statement.reads {
                // A view is written through.
                self.inner(read, &table.schema, is_view);
                self.inner(read, &table.schema, false);
            }
            for write in &statement.writes {
                self.inner(write, &table.schema, true);
            }
        }
        for (schema, name) in &table.cascades {
            let mut children = catalogue.find(Some(schema), name).peekable();
            if children.peek().is_none() {
                self.everything(Reason::UnknownTable);
            }
            children.for_each(|child| self.write(child, None));
        }
        for (schema, name) in &table.parts {
            let mut parts = catalogue.find(Some(schema), name).peekable();
            if parts.peek().is_none() {
                self.everything(Reason::UnknownTable);
            }
            parts.for_each(|part| self.write(part, used));
        }
    }
}

/// Why a statement of a view or trigger touches everything, if it does.
fn whole(statement: &Statement) -> Option<Reason> {
    match statement.class {
        Class::Everything(reason) => Some(reason),
        _ => statement.everything,
    }
}

/// Does an INSERT that may change rows that are there keep to those with the new row's value in
/// this column? Only if every unique key by which such a row may be found includes the column.
fn keeps_to(table: &Table, upsert: &Upsert, column: &str) -> bool {
    let Upsert::AnyKey(given) = upsert else { return true };
    table.unique.iter().all(|(_, columns)| {
        let named = |column: &KeyColumn| given.contains(&column.name);
        // A number that the server gives out is new.
        let new = matches!(columns.as_slice(), [Some(only)] if only.automatic && !named(only));
        new || columns.iter().flatten().any(|key| *key.name == *column)
    })
}

fn normalise(
    table: &Table,
    row: &Restriction<Constant>,
    parameters: &[Literal],
) -> Option<Restriction<crate::key::Value>> {
    let kind = *table.columns.get(&row.column)?;
    let values: Option<Vec<_>> =
        row.values.iter().map(|value| value.normalise(kind, parameters)).collect();
    let mut values = values?;
    values.sort_unstable();
    values.dedup();
    Some(Restriction { column: row.column.clone(), values })
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
