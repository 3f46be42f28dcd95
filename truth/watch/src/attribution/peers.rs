//! Whom the server talked to while it worked on a request: programs of its own group, watched
//! databases, or others.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use nicache_coherence::RefusalReason;

use crate::attribution::listeners::{
    Found, Listeners, Owner, Place, STRANGER_NS, Shared, at, listeners, network_of, parent_sockets,
    sockets_that_listen,
};
use crate::databases::kinds;
use crate::databases::processes::{DatabaseProcesses, first_process};
use crate::processes::{processes, sockets_of};
use crate::statements::client::Client;
use crate::statements::journal::Server;
use crate::witnesses::event::{LookupEvent, Peer, Sent};
use crate::witnesses::members::{Members, Outsiders};

/// Programs that keep data which nobody sees change, by any name that they have, beside the
/// databases that are followed ([`kinds`]). Programs of the server's group that are none of these
/// are taken for parts of the application, whose own memory is bounded by the age of dynamic
/// entries.
const STORES: [&str; 33] = [
    "aerospike",
    "arangod",
    "beam.smp",
    "beanstalkd",
    "clickhouse",
    "clickhouse-server",
    "cockroach",
    "consul",
    "couchdb",
    "dragonfly",
    "etcd",
    "garnet",
    "influxd",
    "keydb-server",
    "kvrocks",
    "meilisearch",
    "memcached",
    "mongod",
    "mongos",
    "nats-server",
    "qdrant",
    // Debian's redis-server is a link to one of the others.
    "redis-check-aof",
    "redis-check-rdb",
    "redis-sentinel",
    "redis-server",
    "rqlited",
    "scylla",
    "searchd",
    "slapd",
    "tarantool",
    "valkey-check-rdb",
    "valkey-sentinel",
    "valkey-server",
];

/// Remembers what is known of processes; for one batch of questions, because process numbers are
/// used again.
#[derive(Debug)]
pub(crate) struct Peers<'a> {
    listeners: &'a mut Listeners,
    server_netns: u32,
    databases: Option<DatabaseProcesses>,
    /// Addresses of databases on other machines that relays tell of.
    remotes: Vec<SocketAddrV4>,
    processes: HashMap<u32, Kind>,
    networks: HashMap<u32, u64>,
    /// Who listens at ports of loopback interfaces.
    ports: HashMap<Place, Option<Known>>,
    members: Option<(Members, &'a mut Outsiders)>,
    /// Programs that do what nobody sees, and their families.
    hiding: HashSet<u32>,
    now_ns: u64,
}

/// What a peer of the server is, if what comes from it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Part of the application.
    Application,
    /// A database server on this machine; if it was asked through a network, by its first process;
    /// 0: one of several.
    Database(Server),
    /// A database on another machine.
    Remote(SocketAddrV4),
}

fn refuse(event: &LookupEvent, peer: Peer) -> RefusalReason {
    tracing::debug!(?peer, process = event.tgid, "talked to");
    RefusalReason::UnwatchedPeer
}

/// The database server that these processes are of, by its first process; 0: they are of several.
fn server_of(processes: &[u32]) -> Server {
    let servers: HashSet<Server> =
        processes.iter().map(|&process| first_process(process).unwrap_or(0)).collect();
    let mut servers = servers.into_iter();
    match (servers.next(), servers.next()) {
        (Some(server), None) => server,
        _ => 0,
    }
}

/// What a program is called: by its file, by itself, and by whoever has started it.
fn names_of(process: u32, exe: &Path) -> Option<[String; 3]> {
    let file = exe.file_name()?.to_string_lossy().into_owned();
    let own = std::fs::read_to_string(format!("/proc/{process}/comm")).ok()?.trim_end().to_owned();
    let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
    let called = line.split(|byte| matches!(byte, 0 | b' ')).next().unwrap_or_default();
    let called = called.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    Some([file, own, String::from_utf8_lossy(called).trim_end_matches(':').to_owned()])
}

/// What a process is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    /// Part of the application.
    Application,
    /// A database server whose statements are seen.
    Database,
    /// Ended, or out of sight.
    Unknown,
    /// A program elsewhere, or one that keeps data.
    Other,
}

impl<'a> Peers<'a> {
    /// Nothing known yet of the processes in the network namespace with this inode number. What is
    /// asked about was before `now_ns` (CLOCK_MONOTONIC).
    pub(crate) fn new(
        server_netns: u32,
        databases: Option<DatabaseProcesses>,
        remotes: Vec<SocketAddrV4>,
        listeners: &'a mut Listeners,
        now_ns: u64,
    ) -> Self {
        let (processes, networks, ports) = Default::default();
        Peers {
            listeners,
            server_netns,
            databases,
            remotes,
            processes,
            networks,
            ports,
            members: None,
            hiding: HashSet::new(),
            now_ns,
        }
    }

    /// Takes these for parts of the application, wherever they are.
    pub(crate) fn with_members(
        mut self,
        members: Option<Members>,
        outsiders: &'a mut Outsiders,
    ) -> Self {
        self.members = members.map(|members| (members, outsiders));
        self
    }

    /// Takes these for strangers, wherever they are.
    pub(crate) fn without(mut self, hiding: HashSet<u32>) -> Self {
        self.hiding = hiding;
        self
    }

    /// Whom did this sending go to, so it is certain that nothing unseen came in from outside?
    ///
    /// # Errors
    /// [`RefusalReason::UnwatchedPeer`].
    pub(crate) fn check(
        &mut self,
        event: &LookupEvent,
        sent: Sent,
    ) -> Result<Known, RefusalReason> {
        let peer = sent.to;
        let is_fine = match peer {
            // To itself: a signal between threads.
            Peer::Local(process) if process == event.tgid || process == event.worker() => true,
            Peer::Local(0) => false,
            Peer::Local(process) => match self.kind(process) {
                Kind::Application => true,
                Kind::Database => return Ok(Known::Database(0)),
                Kind::Unknown => false,
                Kind::Other => {
                    self.observe_outsider(process);
                    false
                }
            },
            Peer::Ipv4(address, port)
                if self.remotes.contains(&SocketAddrV4::new(address, port)) =>
            {
                return Ok(Known::Remote(SocketAddrV4::new(address, port)));
            }
            Peer::Ipv4(address, port) if address.is_loopback() => {
                let network = self.network(event.worker());
                let own = Place { network, address: None, port: sent.port };
                if self.listeners.is_known(own) && self.is_reply(event, sent) {
                    return Ok(Known::Application);
                }
                if let Some(known) = self.known_at(event, Some(address), port) {
                    return Ok(known);
                }
                self.is_reply(event, sent)
            }
            Peer::Ipv4(..) | Peer::Other(_) => self.is_reply(event, sent),
        };
        if is_fine {
            return Ok(Known::Application);
        }
        Err(refuse(event, peer))
    }

    /// Did this sending go to somebody who has asked the application, at a port where it listens?
    /// Then what comes from there is a question, not an answer: a client of another service, or of
    /// HTTPS.
    pub(crate) fn is_reply(&mut self, event: &LookupEvent, sent: Sent) -> bool {
        sent.port != 0 && self.known_at(event, None, sent.port) == Some(Known::Application)
    }

    /// Who listens at this address and port of the process's loopback interface, if it is certain
    /// who. Whoever may listen there has to be the same.
    fn known_at(
        &mut self,
        event: &LookupEvent,
        address: Option<Ipv4Addr>,
        port: u16,
    ) -> Option<Known> {
        let worker = event.worker();
        let place = Place { network: self.network(worker), address, port };
        if let Some(&known) = self.ports.get(&place) {
            return known;
        }
        let known = self.find_known(worker, place);
        self.ports.insert(place, known);
        known
    }

    fn find_known(&mut self, worker: u32, place: Place) -> Option<Known> {
        let now_ns = self.now_ns;
        // Of a process that is gone nothing is known.
        if place.network == 0 {
            return None;
        }
        let Found { owners, others } = self.listeners.holders(worker, place, now_ns)?;
        let kinds: HashSet<Kind> = owners.iter().map(|&process| self.kind(process)).collect();
        let mut kind = kinds.iter().next().copied().filter(|_| kinds.len() == 1);
        // One that has ended meanwhile takes nothing.
        let is_other = |peers: &mut Self, process| {
            Some(peers.kind(process)) != kind && network_of(process).is_some()
        };
        if kind.is_some() && others.into_iter().any(|process| is_other(self, process)) {
            kind = None;
        }
        match kind {
            Some(Kind::Application) => return Some(Known::Application),
            Some(Kind::Database) => return Some(Known::Database(server_of(&owners))),
            _ => {}
        }
        if !owners.is_empty() {
            self.listeners.take_for_strangers(place, now_ns);
        }
        if let Some(server) = self.database_at(worker, place) {
            return Some(Known::Database(server));
        }
        self.is_shared(worker, place, now_ns).then_some(Known::Application)
    }

    /// The network that a process is in; 0: it is gone.
    fn network(&mut self, process: u32) -> u64 {
        *self.networks.entry(process).or_insert_with(|| network_of(process).unwrap_or(0))
    }

    /// The database server whose statements are seen, if nobody else listens at this place of the
    /// process's network. 0: one of several, or one at the same port of this machine's, to which a
    /// port may be shared.
    fn database_at(&self, process: u32, place: Place) -> Option<Server> {
        let sockets = self.databases.as_ref()?.sockets();
        let databases = |listeners: &[u64]| -> Option<Server> {
            let owners: Option<Vec<u32>> =
                listeners.iter().map(|inode| sockets.get(inode).copied()).collect();
            owners.filter(|owners| !owners.is_empty()).map(|owners| server_of(&owners))
        };
        let there = |process, address| at(&sockets_that_listen(process), address, place.port);
        let inside = there(Some(process), place.address);
        let found = databases(&inside);
        if found.is_some() {
            return found;
        }
        // Shared: what listens inside belongs to the process that started this one, which passes
        // everything on.
        let own = parent_sockets();
        let is_shared = !inside.is_empty() && inside.iter().all(|inode| own.contains(inode));
        let outside = || there(None, Some(Ipv4Addr::LOCALHOST));
        // Who is asked there is another client.
        is_shared.then(outside).and_then(|outside| databases(&outside)).map(|_| 0)
    }

    /// Is it a port that is shared (`--share`), behind which nobody but programs of the server
    /// listens on this machine? PHP-FPM may become one of them (`Outsiders`).
    fn is_shared(&mut self, worker: u32, place: Place, now_ns: u64) -> bool {
        if let Some(known) = self.listeners.known_shared(worker, place, now_ns) {
            return known.is_some_and(|process| self.kind(process) == Kind::Application);
        }
        let inside = sockets_that_listen(Some(worker));
        let inside = at(&inside, place.address, place.port);
        let parent = parent_sockets();
        if inside.is_empty() || !inside.iter().all(|socket| parent.contains(socket)) {
            return false;
        }
        // Whoever has the socket may answer, wherever it is.
        let outside = listeners(place.port);
        let held = |process: u32| -> Vec<u64> {
            sockets_of(process).into_iter().filter(|socket| outside.contains(socket)).collect()
        };
        let holders: Vec<(u32, Vec<u64>)> = processes()
            .map(|process| (process, held(process)))
            .filter(|(_, held)| !held.is_empty())
            .collect();
        let mut is_own =
            outside.iter().all(|socket| holders.iter().any(|(_, held)| held.contains(socket)));
        for &(process, _) in &holders {
            is_own &= self.kind(process) == Kind::Application;
            self.observe_outsider(process);
        }
        let found = match holders.first().filter(|_| is_own) {
            Some((process, held)) => Shared::Own {
                owner: Owner { process: *process, socket: held[0] },
                inside,
                outside: outside.clone(),
            },
            None => Shared::Others(now_ns + STRANGER_NS),
        };
        let is_own = matches!(found, Shared::Own { .. });
        self.listeners.note_shared(place, found);
        is_own
    }

    /// The server has asked a process.
    fn observe_outsider(&mut self, process: u32) {
        if self.kind(process) == Kind::Other
            && let Some((members, outsiders)) = &mut self.members
        {
            outsiders.observe(process, members);
        }
    }

    /// May a client of a database be the server? It may have ended since.
    pub(crate) fn may_be_server(&mut self, client: Client) -> bool {
        client.process == 0
            || match self.kind(client.process) {
                Kind::Application => true,
                Kind::Unknown => !client.was_outside,
                _ => false,
            }
    }

    fn kind(&mut self, process: u32) -> Kind {
        if let Some(&kind) = self.processes.get(&process) {
            return kind;
        }
        let kind = self.find_kind(process);
        self.processes.insert(process, kind);
        kind
    }

    fn find_kind(&self, process: u32) -> Kind {
        if self.databases.as_ref().is_some_and(|databases| databases.contains(process)) {
            return Kind::Database;
        }
        let link = |name: &str| std::fs::read_link(format!("/proc/{process}/{name}"));
        let (Ok(netns), Ok(exe)) = (link("ns/net"), link("exe")) else { return Kind::Unknown };
        let is_inside = netns.as_os_str() == &*format!("net:[{}]", self.server_netns)
            || self.members.as_ref().is_some_and(|(members, _)| members.contains(process));
        let keeps_data =
            |name: &str| STORES.contains(&name) || kinds::by_process_name(name).is_some();
        let is_store =
            names_of(process, &exe).is_none_or(|names| names.iter().any(|name| keeps_data(name)));
        if is_inside && !is_store && !self.hiding.contains(&process) {
            Kind::Application
        } else {
            Kind::Other
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;
    use std::process::{Child, Command, Stdio};
    use std::sync::Arc;

    use nicache_coherence::RevisionTable;
    use nicache_namespaces::Namespace;

    use super::*;

    fn to(to: Peer) -> Sent {
        Sent { to, connection: 1, port: 0, ends_request: false }
    }

    /// A program of this name that listens at port 80 of an address, with one worker that has the
    /// socket, too. By each line that it reads, first the worker ends, then it closes the socket.
    struct Program(Child);

    impl Program {
        fn start(network: &Namespace, name: &str, address: &str) -> Self {
            const LISTEN: &str = "use IO::Socket::INET; $| = 1; my ($name, $address) = @ARGV;
                my $socket = IO::Socket::INET->new(
                    Listen => 1, LocalAddr => qq($address:80), ReusePort => 1) or die;
                $0 = $name;
                pipe(my $ended, my $alive);
                my $worker = fork;
                if (!$worker) { close $alive; <$ended>; exit }
                print qq(listens\\n); <STDIN>; close $alive; waitpid $worker, 0;
                print qq(is alone\\n); <STDIN>; close $socket; print qq(closed\\n); <STDIN>;";
            let mut perl = Command::new("perl");
            perl.args(["-e", LISTEN, name, address]);
            perl.stdin(Stdio::piped()).stdout(Stdio::piped());
            let child = network.run(move || perl.spawn().unwrap());
            let mut program = Self(child);
            program.says("listens\n");
            program
        }

        fn says(&mut self, line: &str) {
            let mut said = vec![0; line.len()];
            self.0.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
            assert_eq!(said, line.as_bytes());
        }

        fn end_worker(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.says("is alone\n");
        }

        fn stop_listening(&mut self) {
            self.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.says("closed\n");
        }
    }

    impl Drop for Program {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn network() -> Option<Namespace> {
        let network = Namespace::new()?;
        network.ip("link set lo up");
        Some(network)
    }

    /// The port's number alone does not say who is asked.
    #[test]
    fn programs_that_listen_at_one_number() {
        let Some(network) = network() else { return };
        let mut application = Program::start(&network, "worker", "127.0.0.1");
        let event = LookupEvent { tgid: application.0.id(), ..LookupEvent::blank(0) };
        let ask = |listeners: &mut Listeners, now_ns, last| {
            let mut peers = Peers::new(network.inode(), None, Vec::new(), listeners, now_ns);
            let peer = Peer::Ipv4(Ipv4Addr::new(127, 0, 0, last), 80);
            let reply = Sent { port: 80, ..to(Peer::Other(10)) };
            (peers.check(&event, to(peer)).is_ok(), peers.is_reply(&event, reply))
        };
        let table = RevisionTable::on_heap();
        table.record_listening(0);
        let mut listeners = Listeners::new(Arc::clone(&table));
        assert_eq!(ask(&mut listeners, 0, 1), (true, true));
        assert_eq!(ask(&mut listeners, 0, 2), (false, true));
        // Workers come and go.
        application.end_worker();
        assert_eq!(ask(&mut listeners, 0, 1), (true, true));
        let store = Program::start(&network, "redis-server", "127.0.0.2");
        let mut now_ns = 0;
        let mut ask = |last| {
            // Whoever is a stranger is looked for again.
            now_ns += 2 * STRANGER_NS;
            table.record_listening(now_ns);
            ask(&mut listeners, now_ns, last)
        };
        assert_eq!(ask(1), (true, false));
        assert_eq!(ask(2), (false, false));
        drop(store);
        assert_eq!(ask(1), (true, true));
        // Each of the two may take a connection.
        let store = Program::start(&network, "redis-server", "127.0.0.1");
        assert_eq!(ask(1), (false, false));
        drop(store);
        let store = Program::start(&network, "redis-server", "127.0.0.2");
        let other = Program::start(&network, "worker", "127.0.0.2");
        assert_eq!(ask(2), (false, false));
        drop((store, other));
        let _everywhere = Program::start(&network, "redis-server", "0.0.0.0");
        assert_eq!((ask(1), ask(2)), ((false, false), (false, false)));
    }

    #[test]
    fn only_the_group_itself_is_watched() {
        let Some(network) = network() else { return };
        let mut program = Program::start(&network, "worker", "127.0.0.1");
        let (me, port) = (program.0.id(), 80);
        let netns = network.inode();
        let remote = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 3306);
        let table = RevisionTable::on_heap();
        table.record_listening(10);
        let mut listeners = Listeners::new(Arc::clone(&table));
        let mut peers = Peers::new(netns, None, vec![remote], &mut listeners, 20);
        let event = LookupEvent { tgid: me, ..LookupEvent::blank(0) };
        assert!(peers.check(&event, to(Peer::Local(me))).is_ok());
        let (elsewhere, mut none) = (LookupEvent::blank(0), Listeners::new(Arc::clone(&table)));
        assert!(
            Peers::new(netns + 1, None, Vec::new(), &mut none, 20)
                .check(&elsewhere, to(Peer::Local(me)))
                .is_err()
        );
        assert!(peers.check(&event, to(Peer::Local(0))).is_err());
        for _ in 0..2 {
            assert_eq!(
                peers.check(&event, to(Peer::Ipv4(Ipv4Addr::LOCALHOST, port))),
                Ok(Known::Application)
            );
        }
        let reply = Sent { port, ..to(Peer::Ipv4(Ipv4Addr::LOCALHOST, 1)) };
        assert_eq!(peers.check(&event, reply), Ok(Known::Application));
        assert!(peers.check(&event, Sent { port: 1, ..reply }).is_err());
        for client in [Peer::Ipv4(Ipv4Addr::new(10, 0, 0, 9), 40_000), Peer::Other(10)] {
            let reply = Sent { to: client, ..reply };
            assert!(peers.is_reply(&event, reply) && peers.check(&event, reply).is_ok());
            assert!(peers.check(&event, Sent { port: 1, ..reply }).is_err());
            assert!(peers.check(&event, Sent { port: 0, ..reply }).is_err());
        }
        // Ports of connections, at which nobody listens, cost no look at the kernel's tables each.
        let reads = peers.listeners.reads;
        for port in (1..1000).filter(|other| *other != port) {
            assert!(!peers.is_reply(&event, Sent { port, ..reply }));
        }
        assert_eq!(peers.listeners.reads, reads);
        // They do once somebody may have begun to listen, for all requests until then.
        let mut ask_at = |now_ns| {
            let mut peers = Peers::new(netns, None, Vec::new(), &mut listeners, now_ns);
            for port in 1001..1010 {
                assert!(!peers.is_reply(&event, Sent { port, ..reply }));
            }
            peers.listeners.reads - reads
        };
        assert_eq!(ask_at(30), 0);
        table.record_listening(40);
        assert_eq!((ask_at(50), ask_at(60)), (1, 1));
        table.begin_gap();
        assert_eq!((ask_at(70), ask_at(80)), (2, 3));
        table.end_gap();
        assert_eq!((ask_at(90), ask_at(100)), (4, 4));
        // Nobody is there any longer.
        program.end_worker();
        program.stop_listening();
        let mut peers = Peers::new(netns, None, vec![remote], &mut listeners, 110);
        assert!(peers.check(&event, to(Peer::Ipv4(Ipv4Addr::LOCALHOST, port))).is_err());
        assert!(peers.check(&event, to(Peer::Ipv4(Ipv4Addr::new(10, 0, 0, 1), 9000))).is_err());
        assert_eq!(
            peers.check(&event, to(Peer::Ipv4(*remote.ip(), 3306))),
            Ok(Known::Remote(remote))
        );
        assert!(peers.check(&event, to(Peer::Ipv4(*remote.ip(), 3307))).is_err());
        assert!(peers.check(&event, to(Peer::Other(10))).is_err());
    }
}
