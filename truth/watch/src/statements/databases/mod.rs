//! What is read from databases, and what is changed in them: the statements of all clients, as
//! their servers receive them.
//!
//! Read first: the head of `nicache_sql` (its events, and what a caller owes it), `ebpf/sql.h`
//! (when the kernel stamps [`SourceSlot::of_database`](nicache_coherence::SourceSlot::of_database)).
//!
//! A change is in doubt from the moment that the server receives it until it is certain to be done:
//! the server has sent a short reply that is whole
//! ([`Database::is_whole_reply`](crate::databases::database::Database::is_whole_reply)), or asks the
//! connection for more. A reply that was made from what it touches is not kept if the change
//! was in doubt at any time since the request was forwarded; an entry goes if it was since the
//! entry's stamp. The kernel has made every entry that depends on this server suspect at both
//! moments, so nothing is served before this has been looked at.

mod elsewhere;
mod received;
mod servers;
mod structure;
#[cfg(test)]
mod tests;
mod used;

use std::collections::{HashMap, HashSet};

use nicache_coherence::{RefusalReason, Stamp};

use crate::databases::sql::Texts;
use crate::statements::catalogues::Catalogues;
use crate::statements::client::Client;
use crate::statements::connections::{Closed, Connections};
use crate::statements::databases::elsewhere::Elsewhere;
use crate::statements::journal::{DatabaseRead, Journal, Server};
use crate::statements::known_processes::KnownProcesses;
use crate::witnesses::event::{LookupEvent, SqlEvent, SqlStep};
use crate::witnesses::members::Members;

/// What is read from databases, and what is changed in them: the statements of all clients, as
/// their servers receive them.
#[derive(Debug)]
pub(crate) struct Databases {
    /// The databases are those of another machine, which this says.
    elsewhere: Option<Elsewhere>,
    connections: Connections,
    /// What was last heard of a connection is how one begins.
    is_beginning: bool,
    /// Something was changed by what the kernel took for a mere question.
    unseen_change: bool,
    /// Inode number of the server's network namespace.
    server_netns: u32,
    members: Option<Members>,
    /// Database servers that the server uses: only these are asked for their structure.
    used: HashSet<Server>,
    /// Connections by which the structure is asked for, and by which client: what it says last
    /// may be received when it has ended.
    askers: HashMap<u64, u32>,
    known: KnownProcesses,
    texts: Texts,
    catalogues: Catalogues,
    journal: Journal,
    /// Time of the last event.
    now_ns: u64,
}

impl Databases {
    /// Nothing read or changed yet. `begun_before`: connections (by the inode of the server's
    /// socket) that exist already.
    pub(crate) fn new(begun_before: HashSet<u64>, server_netns: u32) -> Self {
        Self {
            elsewhere: None,
            is_beginning: false,
            unseen_change: false,
            server_netns,
            members: None,
            used: HashSet::new(),
            connections: Connections::new(begun_before),
            askers: HashMap::new(),
            known: KnownProcesses::default(),
            texts: Texts::default(),
            catalogues: Catalogues::new(),
            journal: Journal::default(),
            now_ns: 0,
        }
    }

    /// What was read and changed before is not known any longer; what is in doubt goes on to be.
    pub(crate) fn begin_memory(&mut self, now_ns: u64, clock: Stamp) {
        self.journal.begin(now_ns, clock);
    }

    /// Is something in doubt that was asked on the connection?
    pub(crate) fn is_in_doubt(&self, name: u64) -> bool {
        self.connections.get(name).is_some_and(|connection| !connection.in_doubt.is_empty())
    }

    /// Takes note of what happened on a connection.
    pub(crate) fn observe(&mut self, event: &LookupEvent, sql: SqlEvent) {
        self.now_ns = event.time_ns;
        if let SqlStep::Received { client, .. } = sql.what
            && self.is_asker(event, sql, client)
        {
            // It only asks; and what it asks is not plain enough to be understood.
            return self.forget(sql.connection, event.clock);
        }
        match sql.what {
            SqlStep::Received { client, certain, ahead, .. } => {
                if !ahead {
                    self.end_doubt(sql.connection, event.clock);
                }
                if !certain {
                    tracing::trace!(bytes = %event.path.escape_ascii(), "received");
                }
                self.receive(event, sql, client, certain);
            }
            SqlStep::Sent => {
                let is_here = self.elsewhere.is_none();
                self.is_beginning = sql.kind.is_greeting(&event.path);
                if self.is_beginning {
                    self.forget(sql.connection, event.clock);
                }
                if let Some(connection) = self.connection(event, sql, 0) {
                    connection.session.handle_server(&event.path);
                    let requests = std::mem::take(&mut connection.requests);
                    let is_odd = std::mem::take(&mut connection.is_odd);
                    let len = usize::try_from(event.ret).unwrap_or(usize::MAX);
                    let is_done =
                        requests == 1 && !is_odd && sql.kind.is_whole_reply(&event.path, len);
                    // A relay tells when it is done.
                    if (std::mem::take(&mut connection.ends_with_reply) || is_done) && is_here {
                        self.end_doubt(sql.connection, event.clock);
                    }
                }
            }
            SqlStep::Idle => self.end_doubt(sql.connection, event.clock),
            SqlStep::Closed => {
                if let Some(connection) = self.connections.get(sql.connection) {
                    let (client, server) = (connection.client, connection.of.unwrap_or(0));
                    let by_network = (client.process == 0).then_some(0);
                    let client = Client { server, by_network, ..client };
                    self.journal.note_heard(event.time_ns, client);
                }
                self.askers.remove(&sql.connection);
                self.forget(sql.connection, event.clock);
                if let Some(elsewhere) = &mut self.elsewhere {
                    elsewhere.opened.remove(&sql.connection);
                }
            }
        }
    }

    /// Connections that are gone although something is in doubt on them. A server may
    /// close one without asking it for more, and the kernel's witness does not see that: the last
    /// message on TLS, which may have been anything. To be told to [`Databases::end_closed`] when
    /// all events up to now have been observed.
    pub(crate) fn find_closed(&mut self, now_ns: u64) -> Vec<Closed> {
        if self.elsewhere.is_some() {
            return Vec::new();
        }
        self.connections.find_closed(now_ns)
    }

    /// Forgets these connections, unless there was something on them that had not been observed
    /// when they were found.
    pub(crate) fn end_closed(&mut self, closed: &[Closed], clock: Stamp) {
        for name in self.connections.still_closed(closed) {
            self.forget(name, clock);
        }
    }

    fn end_doubt(&mut self, name: u64, clock: Stamp) {
        let Some(connection) = self.connections.get_mut(name) else { return };
        for number in std::mem::take(&mut connection.in_doubt) {
            self.journal.settle(number, clock);
        }
        self.end_structure_doubt(name, self.now_ns);
    }

    fn forget(&mut self, name: u64, clock: Stamp) {
        self.end_doubt(name, clock);
        self.connections.remove(name);
    }

    /// Was anything received between the two moments that can be remembered?
    pub(crate) fn has_received(&self, from_ns: u64, to_ns: u64) -> bool {
        self.journal.has_received(from_ns, to_ns)
    }

    /// Was anything received between the two moments, or the end of a connection seen, of a client
    /// that may have done it for the request? Be it no statement: to log in, or to ask whether the
    /// server is there.
    pub(crate) fn was_heard(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        self.journal.was_heard(from_ns, to_ns, is_of_request)
    }

    /// What was read between the two moments, by clients that may have done it for the request, at
    /// those times.
    ///
    /// # Errors
    /// It cannot be told, or is not what is committed.
    pub(crate) fn reads(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> Result<Vec<DatabaseRead>, RefusalReason> {
        self.journal
            .reads(from_ns, to_ns, is_of_request, |server| self.may_have_hidden_writers(server))
    }

    /// Did a client that may have done it for the request ask for anything between the two moments?
    pub(crate) fn was_asked(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        self.journal.was_asked(from_ns, to_ns, is_of_request)
    }

    /// Did a client that may have done it for the request change anything between the two moments?
    pub(crate) fn has_written(
        &self,
        from_ns: u64,
        to_ns: u64,
        is_of_request: impl FnMut(Client, u64) -> bool,
    ) -> bool {
        self.journal.has_written(from_ns, to_ns, is_of_request)
    }

    /// May anything of it have changed since the clock was `since`?
    pub(crate) fn has_changed(&self, reads: &[DatabaseRead], since: Stamp) -> bool {
        // What was read of others is asked of them.
        let is_here = |server: Server| server == 0 || self.used.contains(&server);
        reads.iter().any(|read| is_here(read.server) && self.may_have_hidden_writers(read.server))
            || self.journal.has_changed(reads, since)
    }
}
