//! Database servers that begin, end and crash.

use nicache_coherence::Stamp;
use nicache_sql::Access;

use super::Databases;
use crate::databases::database::Database;
use crate::statements::journal::Server;
use crate::witnesses::event::LookupEvent;

impl Databases {
    /// A process of this database server has crashed, and the server may begin anew: what it had in
    /// memory alone is gone. The others run on.
    pub(crate) fn handle_crash(&mut self, server: u32, clock: Stamp) {
        let running = self.used.iter().copied().filter(|&running| running != server);
        self.journal.forget_contents(running, clock);
    }

    /// A process of a database server has ended: whatever its connections were about to do is done,
    /// or never will be.
    pub(crate) fn handle_gone(&mut self, event: &LookupEvent) {
        let server = event.ret as u32;
        for name in self.connections.served_by(server) {
            self.forget(name, event.clock);
        }
        self.catalogues.forget(server);
        self.known.forget_server(server);
        if self.used.remove(&server) && self.journal.has_run_on(server) {
            // One that has begun meanwhile may have waited for its files.
            self.journal.forget_contents(self.used.iter().copied(), event.clock);
        }
    }

    /// A database server has been started, at this clock. What those had that have ended may be
    /// others' now; those that are running have their files for themselves.
    pub(crate) fn handle_started(
        &mut self,
        server: u32,
        kind: &'static dyn Database,
        now_ns: u64,
        clock: Stamp,
    ) {
        self.journal
            .forget_contents(self.used.iter().copied().filter(|&running| running != server), clock);
        // One of PostgreSQL has no connection yet that would name a database.
        self.known.forget_server(server);
        if let Some(place) = kind.only_place(server)
            && self.known.is_server_inside(server, self.server_netns)
        {
            self.used.insert(server);
            self.catalogues.get(&place, now_ns);
        }
    }

    /// Events have been lost: the end of a process may be among them, or a change of the structure.
    /// What statements were among them the kernel makes known by itself, see `ebpf/sql.h`.
    pub(crate) fn handle_lost(&mut self, now_ns: u64) {
        self.known.clear();
        for &server in &self.used {
            self.catalogues.handle_change(server, true, true, now_ns);
            self.journal.doubt_also(server, &[Access::EVERYTHING]);
        }
    }

    /// The server of a connection, or all that are used if it is not known.
    pub(super) fn servers_of(&self, name: u64) -> Vec<Server> {
        match self.connections.get(name).and_then(|connection| connection.of) {
            Some(server) => vec![server],
            None => self.used.iter().copied().collect(),
        }
    }

    pub(super) fn server_of(&self, name: u64) -> Server {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.server;
        }
        self.connections.get(name).and_then(|connection| connection.of).unwrap_or(0)
    }
}
