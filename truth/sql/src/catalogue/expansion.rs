//! What a statement reads and writes by way of views, triggers, foreign keys and routines.

use std::collections::HashSet;

use super::{Catalogue, KeyColumn, Routine, Storage, Table};
use crate::dialects::Dialect;
use crate::footprint::{Context, Footprint};
use crate::functions::{Kind, is_harmless_if_built_in, kind};
use crate::key::{Access, Constant, Literal, Restriction};
use crate::reason::Reason;
use crate::statement::{Class, Statement, TableUse, Upsert};
use crate::target::{STRUCTURE, Target, fold};

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
        Class::Definition | Class::DefinitionHere | Class::Tables(_) => {
            expansion.everything(Reason::Definition);
        }
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
        if statement.structure && self.dialect == Dialect::MySql {
            let said = Target { name: Some(STRUCTURE.into()), ..Target::EVERYTHING };
            self.push(Access::whole(said), false);
        }
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
