//! Whose connections are followed, and which of the servers the server uses.

use nicache_coherence::SourceSlot;

use super::Databases;
use crate::processes::is_outside_namespace;
use crate::statements::asked::Asked;
use crate::statements::catalogues::Catalogues;
use crate::statements::client::Client;
use crate::statements::connections::{CONNECTIONS_MAX, Connection};
use crate::statements::journal::Server;
use crate::witnesses::event::{LookupEvent, SqlEvent, SqlStep};
use crate::witnesses::members::Members;

impl Databases {
    /// Takes what these ask for what the server asks.
    pub(crate) fn follow_members(&mut self, members: &Members) {
        self.members = Some(members.clone());
    }

    pub(super) fn connection(
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
        let slot = self.slot_of(event, sql);
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
            Connection::new(session, client, event.tgid, of, slot, place)
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
    pub(super) fn note_use(&mut self, event: &LookupEvent, sql: SqlEvent, client: u32) {
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

    /// Is the connection one by which this or another nicache asks for the structure? Of the
    /// clients of others, only one that is new is looked at.
    pub(super) fn is_asker(&mut self, event: &LookupEvent, sql: SqlEvent, client: u32) -> bool {
        if client == 0 {
            return false;
        }
        if self.askers.get(&sql.connection) == Some(&client) {
            return true;
        }
        let is_new =
            self.connections.get(sql.connection).is_none_or(|known| known.client.process != client);
        let look = || Catalogues::is_others_client(client, sql.kind);
        let is_asker = self.catalogues.is_own_client(client, event.time_ns)
            || is_new && self.known.is_asker(client, look);
        if is_asker {
            if self.askers.len() >= CONNECTIONS_MAX {
                self.askers.clear();
            }
            self.askers.insert(sql.connection, client);
        } else {
            // Another connection by the same number.
            self.askers.remove(&sql.connection);
        }
        is_asker
    }

    /// What the kernel, or the relay's follower, stamps with each change of the server's tables.
    pub(super) fn slot_of(&self, event: &LookupEvent, sql: SqlEvent) -> SourceSlot {
        match &self.elsewhere {
            Some(elsewhere) => SourceSlot::of_database(elsewhere.server),
            None => SourceSlot::of_database(process_of(event, sql)),
        }
    }
}

/// A process that stands for the server, and is there for longer than one connection.
fn process_of(event: &LookupEvent, sql: SqlEvent) -> u32 {
    if sql.first == 0 { event.tgid } else { sql.first }
}
