//! What is read from databases, and what is changed in them: the statements of all clients, as
//! their servers receive them.
//!
//! Read first: the head of `nicache_sql` (its events, and what a caller owes it), `ebpf/sql.h`
//! (when the kernel stamps [`SourceSlot::DATABASES`](nicache_coherence::SourceSlot::DATABASES)).
//!
//! A change is in doubt from the moment that the server receives it until it is certain to be done:
//! the server has sent a short reply that is whole ([`Database::is_whole_reply`]), or asks the
//! connection for more. A reply that was made from what it touches is not kept if the change
//! was in doubt at any time since the request was forwarded; an entry goes if it was since the
//! entry's stamp. The kernel has made every entry that depends on databases suspect at both
//! moments, so nothing is served before this has been looked at.

use std::collections::HashSet;
use std::sync::Arc;

use nicache_coherence::{RefusalReason, Stamp};
use nicache_sql::{Access, Catalogue, Event, Execution, Reason, Target};

use crate::databases::database::Database;
use crate::databases::sql::Texts;
use crate::processes::is_outside_namespace;
use crate::statements::asked::Asked;
use crate::statements::catalogues::{Catalogues, Source};
use crate::statements::client::Client;
use crate::statements::connections::{CONNECTIONS_MAX, Closed, Connection, Connections};
use crate::statements::journal::{Journal, Read, Server};
use crate::statements::known_processes::KnownProcesses;
use crate::witnesses::event::{LookupEvent, SqlEvent, SqlStep};
use crate::witnesses::members::Members;

/// Stands for what no table of a server has: its settings, rights and comments. No schema is called
/// that.
const SERVER: &str = "\0";

/// May the statement make an event, or change one?
fn names_event(text: &[u8]) -> bool {
    text.windows(EVENT.len()).any(|word| word.eq_ignore_ascii_case(EVENT))
}

const EVENT: &[u8] = b"event";

/// A database on another machine.
#[derive(Debug)]
struct Elsewhere {
    server: Server,
    kind: &'static dyn Database,
    /// Connections whose beginning was seen.
    opened: HashSet<u64>,
}

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
    /// Connections by which others ask for the structure.
    askers: HashSet<u64>,
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
            askers: HashSet::new(),
            known: KnownProcesses::default(),
            texts: Texts::default(),
            catalogues: Catalogues::new(),
            journal: Journal::default(),
            now_ns: 0,
        }
    }

    /// Takes what these ask for what the server asks.
    pub(crate) fn follow_members(&mut self, members: &Members) {
        self.members = Some(members.clone());
    }

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

    /// What was read and changed before is not known any longer; what is in doubt goes on to be.
    pub(crate) fn begin_memory(&mut self, now_ns: u64, clock: Stamp) {
        self.journal.begin(now_ns, clock);
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

    /// Is something in doubt that was asked on the connection?
    pub(crate) fn is_in_doubt(&self, name: u64) -> bool {
        self.connections.get(name).is_some_and(|connection| !connection.in_doubt.is_empty())
    }

    /// Takes note of what happened on a connection.
    pub(crate) fn observe(&mut self, event: &LookupEvent, sql: SqlEvent) {
        self.now_ns = event.time_ns;
        if let SqlStep::Received { client, .. } = sql.what
            && (self.catalogues.is_own_client(client, event.time_ns) || self.is_asker(sql, client))
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

    /// Is the connection one by which another nicache asks for the structure? Only a client that is
    /// new is looked at.
    fn is_asker(&mut self, sql: SqlEvent, client: u32) -> bool {
        if self.askers.contains(&sql.connection) {
            return true;
        }
        let is_new =
            self.connections.get(sql.connection).is_none_or(|known| known.client.process != client);
        let look = || Catalogues::is_others_client(client, sql.kind);
        let is_asker = is_new && client != 0 && self.known.is_asker(client, look);
        if is_asker {
            if self.askers.len() >= CONNECTIONS_MAX {
                self.askers.clear();
            }
            self.askers.insert(sql.connection);
        }
        is_asker
    }

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

    fn receive(&mut self, event: &LookupEvent, sql: SqlEvent, client: u32, certain: bool) {
        self.is_beginning = sql.kind.is_startup(&event.path);
        if self.is_beginning {
            self.forget(sql.connection, event.clock);
        }
        self.note_use(event, sql, client);
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
                    self.note_read(event, sql.connection, client, &execution);
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
                Event::SchemaChanged => self.handle_schema_change(event, sql.connection, reason),
                Event::SchemaDoubted => self.handle_schema_doubt(sql.connection, event.time_ns),
                Event::RequestEnd => requests += 1,
            }
        }
        if let Some(connection) = self.connections.get_mut(sql.connection) {
            connection.requests = connection.requests.saturating_add(requests);
            connection.is_odd |= is_odd;
        }
    }

    fn connection(
        &mut self,
        event: &LookupEvent,
        sql: SqlEvent,
        client: u32,
    ) -> Option<&mut Connection> {
        let is_new = !self.connections.contains(sql.connection);
        if is_new && !self.connections.has_room() {
            self.forget_old_ones();
            if !self.connections.has_room() {
                return None;
            }
        }
        let of = if is_new { self.database_of(event, sql) } else { None };
        let place = of.and_then(|server| sql.kind.place(server, &event.path));
        if let Some(server) = of
            && self.elsewhere.is_none()
            && self.known.is_server_inside(process_of(event, sql), self.server_netns)
        {
            self.used.insert(server);
        }
        let used = place.as_ref().filter(|place| self.used.contains(&place.server));
        let defaults = used.and_then(|place| self.catalogues.defaults(place, event.time_ns));
        let is_old = match &self.elsewhere {
            Some(elsewhere) => !elsewhere.opened.contains(&sql.connection),
            None => is_new && self.connections.has_begun_before(sql.connection, self.is_beginning),
        };
        let connection = self.connections.get_or_insert(sql.connection, || {
            let session =
                if is_old { sql.kind.session_in_the_middle() } else { sql.kind.session(defaults) };
            let client = Client { process: client, ..Client::default() };
            Connection::new(session, client, event.tgid, of, place)
        });
        if client != 0 {
            connection.client.process = client;
        }
        connection.last_ns = event.time_ns;
        Some(connection)
    }

    fn forget_old_ones(&mut self) {
        if self.connections.forget_old_ones()
            && let Some(elsewhere) = &mut self.elsewhere
        {
            elsewhere.opened.retain(|name| self.connections.contains(*name));
        }
    }

    /// Is it the server that speaks on the connection? Then it uses that database. Of a client
    /// that asks through a network it is not known who that is, see [`Databases::note_asked`].
    fn note_use(&mut self, event: &LookupEvent, sql: SqlEvent, client: u32) {
        let known = self.connections.get(sql.connection);
        if known.is_some_and(|connection| connection.is_heard) {
            return;
        }
        let server_netns = self.server_netns;
        let of = match known {
            Some(connection) => connection.of,
            None => self.database_of(event, sql),
        };
        if let Some(server) = of
            && self.elsewhere.is_none()
            && (client == 0 && !matches!(sql.what, SqlStep::Received { by_network: Some(_), .. })
                || self.known.is_client_inside(client, server_netns)
                || self.members.as_ref().is_some_and(|members| members.contains(client)))
        {
            self.used.insert(server);
        }
        let was_outside = self.elsewhere.is_none()
            && client != 0
            && server_netns != 0
            && is_outside_namespace(client, server_netns)
            && !self.members.as_ref().is_some_and(|members| members.contains(client));
        if let Some(connection) = self.connection(event, sql, client) {
            connection.is_heard = true;
            connection.client.was_outside = was_outside;
        }
    }

    /// A request's programs have asked these through a network between the two moments: the server
    /// uses them. The structure of what their connections use is asked for.
    pub(crate) fn note_asked(&mut self, asked: &Asked, from_ns: u64, to_ns: u64) {
        if self.elsewhere.is_some() {
            return;
        }
        for server in asked.servers(self.heard_by_network(from_ns, to_ns)) {
            if self.used.insert(server) {
                for place in self.connections.places_of(server) {
                    self.catalogues.get(&place, to_ns);
                }
            }
        }
    }

    /// Clients of whom something was received through a network between the two moments.
    pub(crate) fn heard_by_network(
        &self,
        from_ns: u64,
        to_ns: u64,
    ) -> impl Iterator<Item = Client> + '_ {
        self.journal.heard_by_network(from_ns, to_ns)
    }

    /// Whose connection it is, whether or not it is known which of its databases it uses.
    fn database_of(&mut self, event: &LookupEvent, sql: SqlEvent) -> Option<Server> {
        match &self.elsewhere {
            Some(elsewhere) => Some(elsewhere.server),
            None => self.known.first_process(process_of(event, sql), self.server_netns),
        }
    }

    fn catalogue_of(&mut self, event: &LookupEvent, sql: SqlEvent) -> Option<Arc<Catalogue>> {
        let place = self.connections.get(sql.connection)?.place.clone()?;
        if self.used.contains(&place.server) {
            self.catalogues.get(&place, event.time_ns)
        } else {
            None
        }
    }

    /// `reason`: why a statement was not understood, if it was not.
    fn handle_schema_change(&mut self, event: &LookupEvent, name: u64, reason: Option<Reason>) {
        let now_ns = event.time_ns;
        let is_plain = matches!(reason, None | Some(Reason::Definition));
        let writers = !is_plain || event.incomplete || names_event(&event.path);
        if let Some(connection) = self.connections.get_mut(name) {
            connection.structure_in_doubt = true;
        }
        let is_definition = matches!(
            reason,
            None | Some(Reason::Definition | Reason::Indirect | Reason::Function | Reason::Delayed)
        );
        for server in self.servers_of(name) {
            self.catalogues.handle_change(server, !is_definition, writers, now_ns);
        }
    }

    fn handle_schema_doubt(&mut self, name: u64, now_ns: u64) {
        for server in self.servers_of(name) {
            self.catalogues.refresh(server, now_ns);
        }
    }

    /// The server of a connection, or all that are used if it is not known.
    fn servers_of(&self, name: u64) -> Vec<Server> {
        match self.connections.get(name).and_then(|connection| connection.of) {
            Some(server) => vec![server],
            None => self.used.iter().copied().collect(),
        }
    }

    /// Events have been lost: the end of a process may be among them, or a change of the structure.
    /// What statements were among them the kernel makes known by itself, see `ebpf/sql.h`.
    pub(crate) fn handle_lost(&mut self, now_ns: u64) {
        self.known.clear();
        for &server in &self.used {
            self.catalogues.handle_change(server, true, true, now_ns);
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
    fn may_have_hidden_writers(&self, server: Server) -> bool {
        match server {
            0 => self.used.iter().any(|&server| self.catalogues.may_have_hidden_writers(server)),
            server => self.catalogues.may_have_hidden_writers(server),
        }
    }

    /// Keeps the knowledge of the databases' structure up to date. To be called now and then.
    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        let connections = &self.connections;
        self.catalogues.handle_time(now_ns, |place| connections.use_place(place));
        // What was kept before is to be looked at again.
        self.unseen_change |= self.catalogues.take_hidden_writers();
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

    fn note_read(&mut self, event: &LookupEvent, name: u64, client: Client, execution: &Execution) {
        let age = execution.snapshot_age as usize;
        let as_of_ns = match self.connections.get_mut(name) {
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
            server: self.server_of(name),
            client,
            as_of_ns,
            dirty: execution.reads_uncommitted,
            foreign: execution.footprint.foreign,
            reads: reads.into(),
        });
    }

    fn note_change(
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

    fn server_of(&self, name: u64) -> Server {
        if let Some(elsewhere) = &self.elsewhere {
            return elsewhere.server;
        }
        self.connections.get(name).and_then(|connection| connection.of).unwrap_or(0)
    }

    fn end_doubt(&mut self, name: u64, clock: Stamp) {
        let Some(connection) = self.connections.get_mut(name) else { return };
        for number in std::mem::take(&mut connection.in_doubt) {
            self.journal.settle(number, clock);
        }
        // What was asked meanwhile may have been answered before.
        if let Some(connection) = self.connections.get_mut(name)
            && std::mem::take(&mut connection.structure_in_doubt)
        {
            for server in self.servers_of(name) {
                self.catalogues.handle_change(server, false, false, self.now_ns);
            }
        }
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
    ) -> Result<Vec<(Server, Access)>, RefusalReason> {
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
    pub(crate) fn has_changed(&self, reads: &[(Server, Access)], since: Stamp) -> bool {
        // What was read of others is asked of them.
        let is_here = |server: Server| server == 0 || self.used.contains(&server);
        reads.iter().any(|(server, _)| is_here(*server) && self.may_have_hidden_writers(*server))
            || self.journal.has_changed(reads, since)
    }
}

/// A process that stands for the server, and is there for longer than one connection.
fn process_of(event: &LookupEvent, sql: SqlEvent) -> u32 {
    if sql.first == 0 { event.tgid } else { sql.first }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    use super::*;
    use crate::databases::mysql::MySql;
    use crate::databases::postgres::Postgres;
    use crate::statements::connections::QUIET_NS;

    const GREETING: &[u8] = b"\x4a\0\0\0\x0a10.11\0";
    const LOGIN: &[u8] = b"\x20\0\0\x01";

    /// A connection of another database that was there before the watcher: which of its databases
    /// it uses nobody knows, and a statement of it may be anything there, but nothing here.
    #[test]
    fn a_connection_in_the_middle_of_another_database_voids_nothing_here() {
        let mut databases = Databases::new(HashSet::new(), 1);
        databases.used.insert(7);
        let event = |tgid: u32| LookupEvent { tgid, incomplete: true, ..LookupEvent::blank(5) };
        let what =
            SqlStep::Received { client: u32::MAX, by_network: None, certain: false, ahead: false };
        let sql = |connection| SqlEvent { connection, kind: &Postgres, what, first: 0 };
        let own = std::process::id();
        databases.observe(&event(own), sql(1));
        let of = databases.known.first_process(own, 1).unwrap();
        assert_eq!((databases.servers_of(1), databases.server_of(1)), (vec![of], of));
        assert!(!databases.journal.has_changed(&[(7, Access::EVERYTHING)], Stamp(1)));
        // Of whom nothing is known, it may be ours.
        databases.observe(&event(u32::MAX), sql(2));
        assert_eq!((databases.servers_of(2), databases.server_of(2)), (vec![7], 0));
        assert!(databases.journal.has_changed(&[(7, Access::EVERYTHING)], Stamp(0)));
    }

    /// `mysql -e` of a timer, or a dump, has ended when a reply is judged.
    /// Of strangers' servers neither the structure is asked for nor what their functions may do.
    #[test]
    fn a_server_is_used_through_a_network_once_it_has_been_asked() {
        let own = std::process::id();
        let event = LookupEvent { tgid: own, incomplete: true, ..LookupEvent::blank(5) };
        let what =
            SqlStep::Received { client: 0, by_network: Some(4000), certain: false, ahead: false };
        let sql = SqlEvent { connection: 1, kind: &MySql, what, first: 0 };
        let mut databases = Databases::new(HashSet::new(), 1);
        databases.observe(&event, sql);
        let server = databases.known.first_process(own, 1).unwrap();
        assert!(databases.used.is_empty() && !databases.functions_may_write());
        let mut others = Asked::default();
        others.note(4000, server + 1);
        databases.note_asked(&others, 0, 9);
        assert!(!databases.used.contains(&server));
        let mut asked = Asked::default();
        asked.note_anybody();
        databases.note_asked(&asked, 6, 9);
        assert!(!databases.used.contains(&server), "it was asked before");
        databases.note_asked(&asked, 0, 9);
        assert!(databases.used.contains(&server) && databases.functions_may_write());
    }

    #[test]
    fn a_client_that_was_none_of_the_servers_is_known_as_such_when_it_has_ended() {
        let own = std::process::id();
        let netns = std::fs::metadata("/proc/self/ns/net").unwrap().ino() as u32;
        // In the server's network, in another one, and one that had ended before it was looked at.
        for (server_netns, has_ended, was_outside) in
            [(netns, false, false), (1, false, true), (1, true, false), (0, false, false)]
        {
            let mut databases = Databases::new(HashSet::new(), server_netns);
            let mut client = Command::new("sleep").arg("60").spawn().unwrap();
            if has_ended {
                client.kill().unwrap();
                client.wait().unwrap();
            }
            let process = client.id();
            let received = |databases: &mut Databases| {
                let event = LookupEvent { tgid: own, incomplete: true, ..LookupEvent::blank(5) };
                let what = SqlStep::Received {
                    client: process,
                    by_network: None,
                    certain: false,
                    ahead: false,
                };
                let sql = SqlEvent { connection: 1, kind: &MySql, what, first: 0 };
                databases.observe(&event, sql);
            };
            received(&mut databases);
            let is_expected =
                |client: Client, _| (client.process, client.was_outside) == (process, was_outside);
            assert!(databases.has_written(0, 9, is_expected));
            assert!(databases.was_asked(0, 9, is_expected));
            let _ = client.kill();
            let _ = client.wait();
            // One more statement of it, which was under way.
            received(&mut databases);
            assert!(databases.was_asked(0, 9, is_expected));
        }
    }

    /// Another site's database starts on the machine.
    #[test]
    fn a_server_that_begins_voids_what_others_had_that_have_ended() {
        let started = |databases: &mut Databases, server, clock| {
            databases.handle_started(server, &MySql, 1, Stamp(clock));
        };
        let has_changed = |databases: &Databases, server, since| {
            databases.journal.has_changed(&[(server, Access::EVERYTHING)], Stamp(since))
        };
        let gone = |databases: &mut Databases, server: u32, clock| {
            databases.used.insert(server);
            let event =
                LookupEvent { ret: server.into(), clock: Stamp(clock), ..LookupEvent::blank(1) };
            databases.handle_gone(&event);
        };
        let no_process = u32::MAX;
        let mut databases = Databases::new(HashSet::new(), 1);
        databases.used.extend([7, 8]);
        gone(&mut databases, 8, 9);
        assert!(!has_changed(&databases, 8, 5), "it has ended, and its files are as they were");
        started(&mut databases, no_process, 10);
        assert!(
            !has_changed(&databases, 7, 5)
                && has_changed(&databases, 8, 10)
                && has_changed(&databases, 0, 10)
        );
        assert!(!has_changed(&databases, 8, 11));
        // The same number begins anew.
        started(&mut databases, 7, 20);
        assert!(has_changed(&databases, 7, 20) && !has_changed(&databases, 7, 21));
        // One that waits for the files of one that is about to end.
        started(&mut databases, no_process, 30);
        assert!(!has_changed(&databases, 7, 25));
        gone(&mut databases, 7, 40);
        assert!(has_changed(&databases, 7, 40) && !has_changed(&databases, 7, 41));
        databases.used.extend([9, 10]);
        databases.handle_crash(9, Stamp(50));
        assert!(has_changed(&databases, 9, 50) && has_changed(&databases, 0, 50));
        assert!(!has_changed(&databases, 10, 45), "it runs on");
        databases.handle_crash(no_process, Stamp(60));
        assert!(!has_changed(&databases, 9, 55) && !has_changed(&databases, 10, 45));
    }

    fn observe(
        databases: &mut Databases,
        connection: u64,
        what: SqlStep,
        bytes: &[u8],
        time_ns: u64,
    ) {
        // Without bytes, there were some that nobody saw.
        let event = LookupEvent {
            path: bytes.into(),
            incomplete: bytes.is_empty(),
            ..LookupEvent::blank(time_ns)
        };
        databases.observe(&event, SqlEvent { connection, kind: &MySql, what, first: 0 });
    }

    fn received(certain: bool) -> SqlStep {
        SqlStep::Received { client: 0, by_network: None, certain, ahead: false }
    }

    /// The connection is none of the sockets of the process that is said to be the server.
    #[test]
    fn what_is_closed_is_over_unless_there_was_more_on_it() {
        for more in [false, true] {
            let mut databases = Databases::new(HashSet::new(), 0);
            let server = std::process::id();
            let observe = |databases: &mut Databases, what, bytes: &[u8], time_ns| {
                let incomplete = bytes.is_empty();
                let event = LookupEvent {
                    tgid: server,
                    path: bytes.into(),
                    incomplete,
                    ..LookupEvent::blank(time_ns)
                };
                databases.observe(&event, SqlEvent { connection: 1, kind: &MySql, what, first: 0 });
            };
            observe(&mut databases, SqlStep::Sent, GREETING, 1);
            observe(&mut databases, received(false), b"", 2);
            assert!(databases.is_in_doubt(1));
            assert!(databases.find_closed(2 + QUIET_NS).is_empty(), "it is not silent for long");
            let closed = databases.find_closed(3 + 3 * QUIET_NS);
            assert_eq!(closed.len(), 1);
            if more {
                observe(&mut databases, received(false), b"", 3);
            }
            databases.end_closed(&closed, Stamp(9));
            assert_eq!(databases.is_in_doubt(1), more);
            assert_eq!(databases.connections.contains(1), more);
        }
    }

    /// Connections that nobody tells the end of.
    #[test]
    fn there_is_always_room_for_a_new_connection() {
        let mut databases = Databases::new(HashSet::new(), 0);
        let many = 3 * CONNECTIONS_MAX as u64;
        for connection in 1..=many {
            observe(&mut databases, connection, SqlStep::Sent, GREETING, connection);
            let is_first = connection == 1;
            observe(
                &mut databases,
                connection,
                received(!is_first),
                if is_first { b"" } else { LOGIN },
                connection,
            );
            assert!(
                databases.connections.contains(connection)
                    && databases.connections.len() <= CONNECTIONS_MAX
            );
        }
        assert!(databases.is_in_doubt(1) && !databases.connections.contains(2));
        // One that was forgotten is not taken for a new one, whose first packet says who the client
        // is.
        let before = databases.journal.changes.len();
        let update = b"UPDATE a SET b = 1";
        let packet = [&[update.len() as u8 + 1, 0, 0, 0, 3][..], update].concat();
        observe(&mut databases, 2, received(false), &packet, many);
        let changes = databases.journal.changes.iter().skip(before);
        assert!(
            changes
                .flat_map(|change| change.writes.iter())
                .any(|access| *access == Access::EVERYTHING)
        );
    }
}
