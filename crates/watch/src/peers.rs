//! Whom the server talked to while it worked on a request: programs of its own group, watched databases, or others.

use std::collections::HashMap;

use nicache_coherence::RefusalReason;

use crate::event::{LookupEvent, Peer};
use crate::processes::DatabaseProcesses;

/// Programs that keep data which nobody sees change, by the name of their executable file. Programs of the server's group that are none
/// of these are taken for parts of the application, whose own memory is bounded by the age of dynamic entries.
const STORES: [&str; 11] = [
    "mysqld",
    "mariadbd",
    "postgres",
    "redis-server",
    "valkey-server",
    "keydb-server",
    "memcached",
    "mongod",
    "slapd",
    "etcd",
    "influxd",
];
/// The same by the port on the server's loopback interface.
const STORE_PORTS: [u16; 9] = [389, 3306, 5432, 6379, 9200, 11211, 27017, 5984, 8086];

/// Remembers what is known of processes; for one batch of questions, since process numbers are used again.
#[derive(Debug)]
pub struct Peers {
    server_netns: u32,
    databases: Option<DatabaseProcesses>,
    processes: HashMap<u32, Kind>,
}

/// What a process is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

impl Peers {
    /// Nothing known yet of the processes in the network namespace with this inode number.
    pub fn new(server_netns: u32, databases: Option<DatabaseProcesses>) -> Peers {
        Peers { server_netns, databases, processes: HashMap::new() }
    }

    /// Is it certain that nothing unseen came in from outside by this sending? True if it went to a database.
    ///
    /// # Errors
    /// [`RefusalReason::UnwatchedPeer`].
    pub fn check(&mut self, event: &LookupEvent, peer: Peer) -> Result<bool, RefusalReason> {
        let is_fine = match peer {
            // To itself: a signal between threads.
            Peer::Local(process) if process == event.tgid => true,
            Peer::Local(0) | Peer::Other(_) => false,
            Peer::Local(process) => match self.kind(process) {
                Kind::Application => true,
                Kind::Database => return Ok(true),
                Kind::Unknown | Kind::Other => false,
            },
            Peer::Ipv4(address, port) => address.is_loopback() && !STORE_PORTS.contains(&port),
        };
        if is_fine {
            return Ok(false);
        }
        tracing::debug!(?peer, process = event.tgid, "talked to");
        Err(RefusalReason::UnwatchedPeer)
    }

    /// May a client of a database be the server? It may have ended since.
    pub fn may_be_server(&mut self, client: u32) -> bool {
        client == 0 || matches!(self.kind(client), Kind::Application | Kind::Unknown)
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
        let is_inside = netns.as_os_str() == &*format!("net:[{}]", self.server_netns);
        let is_store = exe.file_name().is_none_or(|name| STORES.iter().any(|store| name == *store));
        if is_inside && !is_store { Kind::Application } else { Kind::Other }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::event::EventKind;

    #[test]
    fn only_the_group_itself_is_watched() {
        let netns = std::fs::read_link("/proc/self/ns/net").unwrap();
        let netns: u32 = netns.to_str().unwrap()["net:[".len()..].trim_end_matches(']').parse().unwrap();
        let mut peers = Peers::new(netns, None);
        let event = LookupEvent {
            time_ns: 0,
            clock: nicache_coherence::Stamp(0),
            ret: 1,
            kind: EventKind::Sent(Peer::Local(1)),
            tgid: 1,
            tid: 1,
            nr: 1,
            dirfd: 3,
            inode: None,
            mode: 0,
            size: 0,
            changed_ns: 0,
            open_flags: 0,
            directory: None,
            incomplete: false,
            nofollow: false,
            own_root: false,
            path: Box::default(),
        };
        let me = std::process::id();
        assert!(peers.check(&event, Peer::Local(me)).is_ok());
        assert!(Peers::new(netns + 1, None).check(&event, Peer::Local(me)).is_err());
        assert!(peers.check(&event, Peer::Local(0)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 9000)).is_ok());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 6379)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::new(10, 0, 0, 1), 9000)).is_err());
        assert!(peers.check(&event, Peer::Other(10)).is_err());
    }
}
