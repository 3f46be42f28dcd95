//! Whom the server talked to while it worked on a request: programs of its own group, watched databases, or others.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use nicache_coherence::RefusalReason;

use crate::event::{LookupEvent, Peer};
use crate::processes::{DatabaseProcesses, sockets_of};

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
    /// Addresses of databases on other machines that relays tell of.
    remotes: Vec<SocketAddrV4>,
    processes: HashMap<u32, Kind>,
    /// Ports of the loopback interface.
    ports: HashMap<u16, bool>,
}

/// What a peer of the server is, if what comes from it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Part of the application.
    Application,
    /// A database server on this machine.
    Database,
    /// A database on another machine.
    Remote(SocketAddrV4),
}

fn refuse(event: &LookupEvent, peer: Peer) -> RefusalReason {
    tracing::debug!(?peer, process = event.tgid, "talked to");
    RefusalReason::UnwatchedPeer
}

/// Inode numbers of the sockets that listen at a port, by the kernel's tables below `net`.
fn listeners(net: &str, port: u16) -> Vec<u64> {
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("{net}/{name}")).unwrap_or_default());
    let inode = |line: &str| -> Option<u64> {
        // sl local rem st tx:rx tr:tm retrnsmt uid timeout inode; state 0A is LISTEN.
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let listens = *fields.get(3)? == "0A" && u16::from_str_radix(local_port, 16) == Ok(port);
        if listens { fields.get(9)?.parse().ok() } else { None }
    };
    tables.iter().flat_map(|table| table.lines().skip(1).filter_map(inode)).collect()
}

fn parent_sockets() -> Vec<u64> {
    rustix::process::getppid().map_or_else(Vec::new, |parent| sockets_of(parent.as_raw_nonzero().get() as u32))
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
    pub fn new(server_netns: u32, databases: Option<DatabaseProcesses>, remotes: Vec<SocketAddrV4>) -> Peers {
        Peers { server_netns, databases, remotes, processes: HashMap::new(), ports: HashMap::new() }
    }

    /// Whom did this sending go to, so that it is certain that nothing unseen came in from outside?
    ///
    /// # Errors
    /// [`RefusalReason::UnwatchedPeer`].
    pub fn check(&mut self, event: &LookupEvent, peer: Peer) -> Result<Known, RefusalReason> {
        let is_fine = match peer {
            // To itself: a signal between threads.
            Peer::Local(process) if process == event.tgid => true,
            Peer::Local(0) | Peer::Other(_) => false,
            Peer::Local(process) => match self.kind(process) {
                Kind::Application => true,
                Kind::Database => return Ok(Known::Database),
                Kind::Unknown | Kind::Other => false,
            },
            Peer::Ipv4(address, port) if self.remotes.contains(&SocketAddrV4::new(address, port)) => {
                return Ok(Known::Remote(SocketAddrV4::new(address, port)));
            }
            Peer::Ipv4(address, port) if !address.is_loopback() || STORE_PORTS.contains(&port) => {
                return if address.is_loopback() && self.is_database_at(event.tgid, port) {
                    Ok(Known::Database)
                } else {
                    Err(refuse(event, peer))
                };
            }
            Peer::Ipv4(..) => true,
        };
        if is_fine {
            return Ok(Known::Application);
        }
        Err(refuse(event, peer))
    }

    /// Does a database server whose statements are seen listen at this port of the process's loopback interface, or of this machine's, to
    /// which a port may be shared?
    fn is_database_at(&mut self, process: u32, port: u16) -> bool {
        let Some(databases) = self.databases.clone() else { return false };
        *self.ports.entry(port).or_insert_with(|| {
            let sockets = databases.sockets();
            let listens = |net: String| listeners(&net, port).iter().any(|inode| sockets.contains(inode));
            let inside = listeners(&format!("/proc/{process}/net"), port);
            if inside.iter().any(|inode| sockets.contains(inode)) {
                return true;
            }
            // Shared: what listens inside belongs to the process that started this one, which passes everything on.
            let own = parent_sockets();
            !inside.is_empty() && inside.iter().all(|inode| own.contains(inode)) && listens("/proc/self/net".into())
        })
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

    #[test]
    fn only_the_group_itself_is_watched() {
        let netns = std::fs::read_link("/proc/self/ns/net").unwrap();
        let netns: u32 = netns.to_str().unwrap()["net:[".len()..].trim_end_matches(']').parse().unwrap();
        let remote = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 1), 3306);
        let mut peers = Peers::new(netns, None, vec![remote]);
        let event = LookupEvent::blank(0);
        let me = std::process::id();
        assert!(peers.check(&event, Peer::Local(me)).is_ok());
        assert!(Peers::new(netns + 1, None, Vec::new()).check(&event, Peer::Local(me)).is_err());
        assert!(peers.check(&event, Peer::Local(0)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 9000)).is_ok());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 6379)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::new(10, 0, 0, 1), 9000)).is_err());
        assert_eq!(peers.check(&event, Peer::Ipv4(*remote.ip(), 3306)), Ok(Known::Remote(remote)));
        assert!(peers.check(&event, Peer::Ipv4(*remote.ip(), 3307)).is_err());
        assert!(peers.check(&event, Peer::Other(10)).is_err());
    }
}
