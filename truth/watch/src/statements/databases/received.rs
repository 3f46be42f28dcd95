//! What a received request reads and changes.

use std::sync::Arc;

use nicache_sql::{Access, Event, Execution, Reason, Target};

use super::Databases;
use crate::statements::client::Client;
use crate::statements::journal::Read;
use crate::witnesses::event::{LookupEvent, SqlEvent, SqlStep};

/// Stands for what no table of a server has: its settings, rights and comments. No schema is called
/// that.
const SERVER: &str = "\0";

impl Databases {
    pub(super) fn receive(
        &mut self,
        event: &LookupEvent,
        sql: SqlEvent,
        client: u32,
        certain: bool,
    ) {
        self.is_beginning = sql.kind.is_startup(&event.path);
        if self.is_beginning {
            self.forget(sql.connection, event.clock);
        }
        self.note_use(event, sql, client);
        // Of a client of another nicache that had ended before it was looked at.
        let is_structure_question = sql.kind.is_structure_question(&event.path);
        let certain = certain || is_structure_question;
        let mut happened = Vec::new();
        let mut texts = std::mem::take(&mut self.texts);
        let catalogue = self.catalogue_of(event, sql);
        let process = client;
        let by_network = match sql.what {
            SqlStep::Received { by_network, .. } => by_network,
            _ => None,
        };
        let mut client = Client { process, by_network, ..Client::default() };
        let connection = self.connection(event, sql, process);
        if let Some(connection) = &connection {
            client.was_outside = connection.client.was_outside;
        }
        client.server = self.server_of(sql.connection);
        self.journal.note_heard(event.time_ns, client);
        let connection = self.connections.get_mut(sql.connection);
        match connection {
            Some(connection) if event.incomplete => {
                connection.session.handle_gap(&mut |event| happened.push(event));
            }
            Some(connection) => {
                connection.session.handle_client(
                    &event.path,
                    &mut texts,
                    catalogue.as_deref(),
                    &mut |event| happened.push(event),
                );
            }
            None => happened.push(Event::Everything { reason: Reason::Gap }),
        }
        self.texts = texts;
        let (mut reason, mut requests, mut is_odd) = (None, 0, event.incomplete);
        for happened in happened {
            if let Event::Everything { reason: new } = happened {
                reason = Some(new);
                is_odd = true;
            }
            match happened {
                Event::Statement(execution) => {
                    self.note_read(event, sql, client, &execution);
                }
                Event::InProgress { writes } | Event::BecomesVisible { writes } => {
                    self.note_change(event, sql.connection, client, writes.into());
                    self.note_unseen(certain, sql.connection);
                }
                Event::Everything { reason } => {
                    tracing::debug!(
                        ?reason,
                        connection = sql.connection,
                        "a statement may touch everything"
                    );
                    let everything: Arc<[Access]> = [Access::EVERYTHING].into();
                    self.journal.push_read(Read {
                        time_ns: event.time_ns,
                        server: self.server_of(sql.connection),
                        slot: self.slot_of(event, sql),
                        client,
                        as_of_ns: event.time_ns,
                        dirty: false,
                        foreign: false,
                        reads: everything.clone(),
                    });
                    // What the kernel has seen to be a question changes nothing because of a
                    // session that is not understood; and its end is told by nobody, so it
                    // would stay in doubt as long as its connection is idle.
                    if !certain || !matches!(reason, Reason::Gap | Reason::Lexing) {
                        self.note_change(event, sql.connection, client, everything);
                        self.note_unseen(certain, sql.connection);
                    }
                }
                Event::SchemaChanged if is_structure_question => {}
                Event::SchemaChanged => self.handle_schema_change(event, sql.connection, reason),
                Event::DatabaseChanged => {
                    self.handle_database_change(sql.connection, event.time_ns);
                }
                Event::TablesChanged(changed) => {
                    self.handle_tables_change(sql.connection, changed, event.time_ns);
                }
                Event::SchemaDoubted => self.handle_schema_doubt(sql.connection, event.time_ns),
                Event::RequestEnd => requests += 1,
            }
        }
        if let Some(connection) = self.connections.get_mut(sql.connection) {
            connection.requests = connection.requests.saturating_add(requests);
            connection.is_odd |= is_odd;
        }
    }

    fn note_read(
        &mut self,
        event: &LookupEvent,
        sql: SqlEvent,
        client: Client,
        execution: &Execution,
    ) {
        let age = execution.snapshot_age as usize;
        let as_of_ns = match self.connections.get_mut(sql.connection) {
            Some(connection) => connection.note_statement(event.time_ns, age),
            None => event.time_ns,
        };
        let mut reads = execution.footprint.reads.clone();
        if reads.is_empty() {
            // Settings, rights: what changes them changes everything.
            reads.push(Access::whole(Target::schema(SERVER)));
        }
        self.journal.push_read(Read {
            time_ns: event.time_ns,
            server: self.server_of(sql.connection),
            slot: self.slot_of(event, sql),
            client,
            as_of_ns,
            dirty: execution.reads_uncommitted,
            foreign: execution.footprint.foreign,
            reads: reads.into(),
        });
    }

    pub(super) fn note_change(
        &mut self,
        event: &LookupEvent,
        name: u64,
        client: Client,
        writes: Arc<[Access]>,
    ) {
        let number = self.journal.push_change(
            event.time_ns,
            event.clock,
            self.server_of(name),
            client,
            writes,
        );
        if let Some(connection) = self.connections.get_mut(name) {
            connection.in_doubt.push(number);
        }
    }

    /// A SELECT that calls a function which writes, and the like: the kernel has told nobody.
    fn note_unseen(&mut self, certain: bool, name: u64) {
        if certain && let Some(connection) = self.connections.get_mut(name) {
            connection.ends_with_reply = true;
            self.unseen_change |= connection.of.is_none_or(|server| self.used.contains(&server));
        }
    }

    /// Has something changed since the last call that the kernel took for a mere question? Then
    /// cards are to be told.
    pub(crate) fn take_unseen_change(&mut self) -> bool {
        std::mem::take(&mut self.unseen_change)
    }
}
