//! What the structure of the databases means to statements, and when it is to be asked for again.

use std::sync::Arc;

use nicache_sql::{Access, Catalogue, ChangedTables, Reason, Target};

use super::Databases;
use crate::statements::journal::Server;
use crate::witnesses::event::{LookupEvent, SqlEvent};

/// What changes tables by itself, as statements call it.
const WRITERS: [&[u8]; 2] = [b"event", b"subscription"];

impl Databases {
    /// Keeps the knowledge of the databases' structure up to date. To be called now and then.
    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        let connections = &self.connections;
        self.catalogues.forget_changing(|name| connections.contains(name), now_ns);
        self.catalogues.handle_time(now_ns, |place| connections.use_place(place));
        // What was kept before is to be looked at again.
        self.unseen_change |= self.catalogues.take_hidden_writers();
    }

    pub(super) fn catalogue_of(
        &mut self,
        event: &LookupEvent,
        sql: SqlEvent,
    ) -> Option<Arc<Catalogue>> {
        let place = self.connections.get(sql.connection)?.place.clone()?;
        if self.used.contains(&place.server) {
            self.catalogues.get(&place, event.time_ns)
        } else {
            None
        }
    }

    /// `reason`: why a statement was not understood, if it was not.
    pub(super) fn handle_schema_change(
        &mut self,
        event: &LookupEvent,
        name: u64,
        reason: Option<Reason>,
    ) {
        let now_ns = event.time_ns;
        let is_plain = matches!(reason, None | Some(Reason::Definition));
        let writers = !is_plain || event.incomplete || names_writer(&event.path);
        if let Some(connection) = self.connections.get_mut(name) {
            connection.structure_in_doubt.all = true;
        }
        let is_definition = matches!(
            reason,
            None | Some(Reason::Definition | Reason::Indirect | Reason::Function | Reason::Delayed)
        );
        for server in self.servers_of(name) {
            self.catalogues.handle_change(server, !is_definition, writers, now_ns);
            self.journal.doubt_also(server, &[Access::EVERYTHING]);
        }
    }

    /// The structure of the connection's database is about to change.
    pub(super) fn handle_database_change(&mut self, name: u64, now_ns: u64) {
        if let Some(connection) = self.connections.get_mut(name) {
            connection.structure_in_doubt.database = true;
        }
        self.ask_for_database(name, now_ns);
    }

    /// The structure that is known of the connection's database is not that of now.
    fn ask_for_database(&mut self, name: u64, now_ns: u64) {
        match self.connections.get(name).and_then(|connection| connection.place.as_ref()) {
            Some(place) => {
                self.catalogues.handle_change_at(place, now_ns);
                let reach = place.database.as_deref().map_or(Target::EVERYTHING, Target::catalog);
                self.journal.doubt_also(place.server, &[Access::whole(reach)]);
            }
            None => {
                for server in self.servers_of(name) {
                    self.catalogues.handle_change(server, false, false, now_ns);
                    self.journal.doubt_also(server, &[Access::EVERYTHING]);
                }
            }
        }
    }

    /// What the connection was changing of the structure is changed. What was asked meanwhile may
    /// have been answered before.
    pub(super) fn end_structure_doubt(&mut self, name: u64, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(name) else { return };
        let doubt = std::mem::take(&mut connection.structure_in_doubt);
        if doubt.database {
            self.ask_for_database(name, now_ns);
        }
        if !doubt.tables && !doubt.all {
            return;
        }
        for server in self.servers_of(name) {
            if doubt.tables {
                self.catalogues.end_tables(server, name, now_ns);
            }
            if doubt.all {
                self.catalogues.handle_change(server, false, false, now_ns);
                self.journal.doubt_also(server, &[Access::EVERYTHING]);
            }
        }
    }

    pub(super) fn handle_tables_change(&mut self, name: u64, changed: ChangedTables, now_ns: u64) {
        let Some(connection) = self.connections.get_mut(name) else {
            // Nobody would tell when it is over.
            for server in self.servers_of(name) {
                self.catalogues.handle_change(server, false, false, now_ns);
                self.journal.doubt_also(server, &[Access::EVERYTHING]);
            }
            return;
        };
        connection.structure_in_doubt.tables = true;
        let tables: Vec<Access> = changed.tables.iter().cloned().map(Access::whole).collect();
        let changed = Arc::new(changed);
        let mut is_followed = true;
        for server in self.servers_of(name) {
            self.journal.doubt_also(server, &tables);
            is_followed &= self.catalogues.handle_tables(server, name, &changed, now_ns);
        }
        if !is_followed && let Some(connection) = self.connections.get_mut(name) {
            connection.structure_in_doubt.all = true;
        }
    }

    pub(super) fn handle_schema_doubt(&mut self, name: u64, now_ns: u64) {
        for server in self.servers_of(name) {
            self.catalogues.refresh(server, now_ns);
        }
    }

    /// May a SELECT on a server that is used change something although it names no sequence's
    /// function?
    pub(crate) fn functions_may_write(&self) -> bool {
        self.used.iter().any(|&server| self.catalogues.functions_may_write(server))
    }

    /// May a SELECT on a server that is used change something?
    pub(crate) fn select_may_write(&self) -> bool {
        self.used.iter().any(|&server| self.catalogues.select_may_write(server))
    }

    /// May something inside a server change its tables without a statement? 0: any that is used.
    pub(super) fn may_have_hidden_writers(&self, server: Server) -> bool {
        match server {
            0 => self.used.iter().any(|&server| self.catalogues.may_have_hidden_writers(server)),
            server => self.catalogues.may_have_hidden_writers(server),
        }
    }
}

/// May the statement make something that changes tables by itself, or change it?
fn names_writer(text: &[u8]) -> bool {
    let names =
        |writer: &[u8]| text.windows(writer.len()).any(|word| word.eq_ignore_ascii_case(writer));
    WRITERS.into_iter().any(names)
}
