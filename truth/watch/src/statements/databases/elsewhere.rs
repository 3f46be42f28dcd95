//! A database on another machine.

use std::collections::HashSet;

use nicache_coherence::Stamp;
use nicache_sql::Access;

use super::Databases;
use crate::databases::database::Database;
use crate::statements::catalogues::{Catalogues, Source};
use crate::statements::client::Client;
use crate::statements::connections::CONNECTIONS_MAX;
use crate::statements::journal::Server;
use crate::witnesses::event::{LookupEvent, SqlEvent};

/// A database on another machine.
#[derive(Debug)]
pub(super) struct Elsewhere {
    pub(super) server: Server,
    pub(super) kind: &'static dyn Database,
    /// Connections whose beginning was seen.
    pub(super) opened: HashSet<u64>,
}

impl Databases {
    /// A database on another machine, of which nothing is known yet. `server` is the number of no
    /// process.
    pub(crate) fn elsewhere(server: Server, kind: &'static dyn Database, source: Source) -> Self {
        let mut databases = Self::new(HashSet::new(), 0);
        databases.catalogues = Catalogues::elsewhere(source);
        databases.elsewhere = Some(Elsewhere { server, kind, opened: HashSet::new() });
        databases.used.insert(server);
        databases
    }

    /// A database on another machine: nothing is known of its connections, and its structure may be
    /// another.
    pub(crate) fn begin_anew(&mut self, now_ns: u64, clock: Stamp) {
        let Some(elsewhere) = &mut self.elsewhere else { return };
        elsewhere.opened.clear();
        let (server, kind) = (elsewhere.server, elsewhere.kind);
        self.connections.clear();
        self.journal.clear_changes();
        self.unseen_change = false;
        self.catalogues.handle_change(server, true, true, now_ns);
        if let Some(place) = kind.only_place(server) {
            self.catalogues.get(&place, now_ns);
        }
        self.begin_memory(now_ns, clock);
    }

    /// A connection begins.
    pub(crate) fn handle_opened(&mut self, name: u64) {
        if let Some(elsewhere) = &mut self.elsewhere
            && elsewhere.opened.len() < CONNECTIONS_MAX
        {
            elsewhere.opened.insert(name);
        }
    }

    /// On a connection whose beginning was not seen something is under way.
    pub(crate) fn hold(&mut self, event: &LookupEvent, sql: SqlEvent) {
        if self.connection(event, sql, 0).is_some() {
            self.note_change(event, sql.connection, Client::default(), [Access::EVERYTHING].into());
        } else {
            // Never over.
            self.journal.doubt_everything();
        }
    }
}
