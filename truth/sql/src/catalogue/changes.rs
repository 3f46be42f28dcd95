//! What a catalogue still says after tables were made, changed or dropped, until a new one is
//! there.

use super::{Catalogue, Storage, Table, TableId};
use crate::footprint::Context;
use crate::key::Access;
use crate::statement::{Class, Statement, TableChange};
use crate::target::{STRUCTURE, Target, fold};

/// Tables that a statement makes, changes or drops as a whole, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedTables {
    /// What becomes of them.
    pub change: TableChange,
    /// Each with its schema and name.
    pub tables: Vec<Target>,
}

impl ChangedTables {
    /// Of a statement; `None`: it may change anything.
    pub(crate) fn of(
        statement: &Statement,
        context: &Context,
        catalogue: Option<&Catalogue>,
    ) -> Option<Self> {
        let Class::Tables(change) = statement.class else { return None };
        let named = |name: &crate::target::TableName| {
            let schema = name.schema.as_deref().or(context.schema)?;
            Some(Target { catalog: None, schema: Some(fold(schema)), name: name.name.clone() })
        };
        let tables: Option<Vec<Target>> =
            statement.writes.iter().map(|write| named(&write.table)).collect();
        let tables = tables?;
        // To empty a table whose rows are another's empties that one.
        let has_rows = |target: &Target| catalogue.is_some_and(|known| known.has_rows(target));
        let is_certain = match change {
            TableChange::Emptied => tables.iter().all(has_rows),
            TableChange::Dropped | TableChange::Altered | TableChange::Made => true,
        };
        is_certain.then_some(Self { change, tables })
    }

    /// What it writes: the tables, and what is said of the structure of their schemas.
    pub(crate) fn writes(&self) -> Vec<Access> {
        let mut writes: Vec<Access> = self.tables.iter().cloned().map(Access::whole).collect();
        if self.change != TableChange::Emptied {
            for table in &self.tables {
                let said = Target { name: Some(STRUCTURE.into()), ..table.clone() };
                let said = Access::whole(said);
                if !writes.contains(&said) {
                    writes.push(said);
                }
            }
        }
        writes
    }
}

impl Catalogue {
    /// Tables have been changed since it was fetched, or are being changed. What it says of them is
    /// what holds before and after: rows are not told apart by columns, and a table that was
    /// dropped may be there.
    pub fn change(&mut self, changed: &ChangedTables) {
        for target in &changed.tables {
            let Some(name) = target.name.as_deref() else { continue };
            let known: Vec<usize> = self.find(target.schema.as_deref(), name).collect();
            match changed.change {
                TableChange::Emptied | TableChange::Dropped => {}
                TableChange::Made if known.is_empty() => self.make(target),
                TableChange::Made | TableChange::Altered => {
                    for at in known {
                        let table = &mut self.tables[at];
                        table.columns.clear();
                        if table.storage == Storage::Transactional {
                            table.storage = Storage::AtOnce;
                        }
                    }
                }
            }
        }
    }

    /// Do all tables of this name have rows of their own, which nobody else has?
    fn has_rows(&self, target: &Target) -> bool {
        let Some(name) = target.name.as_deref() else { return false };
        let mut known = self.find(target.schema.as_deref(), name).peekable();
        known.peek().is_some()
            && known.all(|at| {
                let table = &self.tables[at];
                let is_own = matches!(table.storage, Storage::Transactional | Storage::AtOnce);
                is_own && table.view.is_none() && table.parts.is_empty() && !table.opaque
            })
    }

    /// A table that was made a moment ago has no triggers; foreign keys may have waited for it.
    fn make(&mut self, target: &Target) {
        let (Some(schema), Some(name)) = (target.schema.clone(), target.name.clone()) else {
            return;
        };
        let waits = |(parent, _): &&(TableId, TableId)| (&parent.0, &parent.1) == (&schema, &name);
        let cascades = self.orphans.iter().filter(waits).map(|(_, child)| child.clone()).collect();
        self.by_name.entry(name.clone()).or_default().push(self.tables.len());
        self.tables.push(Table { cascades, ..Table::new(schema, name, Storage::AtOnce) });
    }
}
