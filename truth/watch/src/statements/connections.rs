//! Connections to database servers: how far each of them is, and which have ended unseen.

use std::collections::{HashMap, HashSet, VecDeque};

use nicache_coherence::SourceSlot;

use crate::databases::database::Place;
use crate::databases::sql::Session;
use crate::processes::try_sockets_of;
use crate::statements::client::Client;
use crate::statements::journal::Server;

/// Connections followed at most; the statements of a further one touch everything.
pub(super) const CONNECTIONS_MAX: usize = 16_384;
/// Statements of a connection whose time is remembered, for replies that are as of an earlier one.
const TIMES_MAX: usize = 256;
/// A connection on which something is in doubt and that is silent for so long may be closed.
pub(super) const QUIET_NS: u64 = 10_000_000;
/// Longest time between two looks at that.
const LOOK_NS_MAX: u64 = 320_000_000;

/// What of a server's structure a connection is changing.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StructureInDoubt {
    /// Anything.
    pub(super) all: bool,
    /// That of the connection's database.
    pub(super) database: bool,
    /// Tables, which the catalogues know by name.
    pub(super) tables: bool,
}

/// A client's connection to a database server.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) session: Box<dyn Session>,
    pub(super) client: Client,
    /// The process that serves it.
    pub(super) server: u32,
    /// The first process of its database server, if that is known.
    pub(super) of: Option<Server>,
    /// What a change on it stamps.
    pub(super) slot: SourceSlot,
    /// Where its tables are.
    pub(super) place: Option<Place>,
    /// Its client has spoken.
    pub(super) is_heard: bool,
    pub(super) last_ns: u64,
    /// Numbers of its changes that are in doubt.
    pub(super) in_doubt: Vec<u64>,
    /// What of the structure may be another once they are done.
    pub(super) structure_in_doubt: StructureInDoubt,
    /// The changes in doubt come from what the kernel took for a question, so nobody tells when
    /// they are done.
    pub(super) ends_with_reply: bool,
    times_ns: VecDeque<u64>,
    /// Requests since the server's last reply, and whether one of them may do something that nobody
    /// knows, or later.
    pub(super) requests: u32,
    pub(super) is_odd: bool,
}

impl Connection {
    /// One on which nothing has happened yet.
    pub(super) fn new(
        session: Box<dyn Session>,
        client: Client,
        server: u32,
        of: Option<Server>,
        slot: SourceSlot,
        place: Option<Place>,
    ) -> Self {
        Self {
            session,
            client,
            server,
            of,
            slot,
            place,
            is_heard: false,
            last_ns: 0,
            in_doubt: Vec::new(),
            structure_in_doubt: StructureInDoubt::default(),
            ends_with_reply: false,
            times_ns: VecDeque::new(),
            requests: 0,
            is_odd: false,
        }
    }

    /// A statement at that time, whose reply is as of the statement `age` before it. When that
    /// was; 0: it is not known.
    pub(super) fn note_statement(&mut self, time_ns: u64, age: usize) -> u64 {
        let as_of_ns = match age {
            0 => time_ns,
            _ => {
                let at = self.times_ns.len().checked_sub(age);
                at.and_then(|at| self.times_ns.get(at)).copied().unwrap_or(0)
            }
        };
        self.times_ns.push_back(time_ns);
        if self.times_ns.len() > TIMES_MAX {
            self.times_ns.pop_front();
        }
        as_of_ns
    }

    fn is_settled(&self) -> bool {
        self.in_doubt.is_empty()
    }
}

/// A connection that is closed, by the inode of the server's socket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    name: u64,
    /// Time of its last event.
    last_ns: u64,
    /// What the end of what was in doubt on it stamps.
    pub(crate) slot: SourceSlot,
}

/// The connections of all clients to database servers, by the inode of the server's socket.
#[derive(Debug)]
pub(super) struct Connections {
    connections: HashMap<u64, Connection>,
    /// Connections were forgotten to make room: one that is not known may be an old one, unless it
    /// is just beginning.
    has_forgotten: bool,
    /// Connections whose beginning nobody saw.
    begun_before: HashSet<u64>,
    /// When connections are next looked for that are closed, and how long after that at the latest.
    look_at_ns: u64,
    look_ns: u64,
}

impl Connections {
    /// None is followed yet. `begun_before`: those that exist already.
    pub(super) fn new(begun_before: HashSet<u64>) -> Self {
        Self {
            connections: HashMap::new(),
            has_forgotten: false,
            begun_before,
            look_at_ns: 0,
            look_ns: QUIET_NS,
        }
    }

    pub(super) fn get(&self, name: u64) -> Option<&Connection> {
        self.connections.get(&name)
    }

    pub(super) fn get_mut(&mut self, name: u64) -> Option<&mut Connection> {
        self.connections.get_mut(&name)
    }

    pub(super) fn contains(&self, name: u64) -> bool {
        self.connections.contains_key(&name)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.connections.clear();
    }

    pub(super) fn remove(&mut self, name: u64) {
        self.connections.remove(&name);
        self.begun_before.remove(&name);
    }

    /// Those that this process serves.
    pub(super) fn served_by(&self, server: u32) -> Vec<u64> {
        let own = self.connections.iter().filter(|(_, connection)| connection.server == server);
        own.map(|(&name, _)| name).collect()
    }

    /// What the connections to this server use there.
    pub(super) fn places_of(&self, server: Server) -> HashSet<Place> {
        let places = self.connections.values().filter_map(|connection| connection.place.clone());
        places.filter(|place| place.server == server).collect()
    }

    /// Does one of them use this?
    pub(super) fn use_place(&self, place: &Place) -> bool {
        self.connections.values().any(|connection| connection.place.as_ref() == Some(place))
    }

    /// Is there room for one more?
    pub(super) fn has_room(&self) -> bool {
        self.connections.len() < CONNECTIONS_MAX
    }

    /// Makes room: of the connections on which nothing is in doubt, forgets the half that was
    /// silent for longest. What one of them was in the middle of is not known any longer. False:
    /// there are none.
    pub(super) fn forget_old_ones(&mut self) -> bool {
        let done = self.connections.values().filter(|connection| connection.is_settled());
        let mut times_ns: Vec<u64> = done.map(|connection| connection.last_ns).collect();
        let middle = times_ns.len() / 2;
        if times_ns.is_empty() {
            return false;
        }
        let (_, &mut until_ns, _) = times_ns.select_nth_unstable(middle);
        self.connections
            .retain(|_, connection| !connection.is_settled() || connection.last_ns > until_ns);
        self.has_forgotten = true;
        true
    }

    /// May something be under way on a connection that is not followed yet? `is_beginning`: what is
    /// heard of it is how one begins.
    pub(super) fn has_begun_before(&mut self, name: u64, is_beginning: bool) -> bool {
        self.begun_before.remove(&name) || self.has_forgotten && !is_beginning
    }

    /// The connection, which is this one if it was not followed before.
    pub(super) fn get_or_insert(
        &mut self,
        name: u64,
        new: impl FnOnce() -> Connection,
    ) -> &mut Connection {
        self.connections.entry(name).or_insert_with(new)
    }

    /// Connections that are gone although something is in doubt on them. A server may
    /// close one without asking it for more, and the kernel's witness does not see that: the last
    /// message on TLS, which may have been anything.
    pub(super) fn find_closed(&mut self, now_ns: u64) -> Vec<Closed> {
        if now_ns < self.look_at_ns {
            return Vec::new();
        }
        let is_quiet = |connection: &Connection| {
            !connection.is_settled() && now_ns > connection.last_ns.saturating_add(QUIET_NS)
        };
        let quiet: Vec<(Closed, u32)> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_quiet(connection))
            .map(|(&name, connection)| {
                let (last_ns, slot) = (connection.last_ns, connection.slot);
                (Closed { name, last_ns, slot }, connection.server)
            })
            .collect();
        let servers: HashSet<u32> = quiet.iter().map(|&(_, server)| server).collect();
        let open =
            servers.iter().filter_map(|&server| Some((server, try_sockets_of(server).ok()?)));
        let open: HashMap<u32, HashSet<u64>> =
            open.map(|(server, names)| (server, names.into_iter().collect())).collect();
        let is_closed = |(one, server): &(Closed, u32)| {
            open.get(server).is_some_and(|open| !open.contains(&one.name))
        };
        let closed: Vec<Closed> = quiet.into_iter().filter(is_closed).map(|(one, _)| one).collect();
        // A statement may take long, and then there is no hurry.
        let found_none = closed.is_empty() && !servers.is_empty();
        self.look_ns = if found_none { (2 * self.look_ns).min(LOOK_NS_MAX) } else { QUIET_NS };
        self.look_at_ns = now_ns + self.look_ns;
        closed
    }

    /// Which of these are closed still: there was nothing more on them than when they were found.
    pub(super) fn still_closed(&self, closed: &[Closed]) -> Vec<u64> {
        let is_as_found = |one: &&Closed| {
            self.get(one.name).is_some_and(|connection| connection.last_ns == one.last_ns)
        };
        closed.iter().filter(is_as_found).map(|one| one.name).collect()
    }
}
