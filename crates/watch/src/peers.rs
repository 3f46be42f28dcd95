//! Whom the server talked to while it worked on a request: programs of its own group, watched databases, or others.

use std::collections::HashMap;

use nicache_coherence::RefusalReason;

use crate::event::{LookupEvent, Peer};

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
    processes: HashMap<u32, bool>,
}

impl Peers {
    /// Nothing known yet of the processes in the network namespace with this inode number.
    pub fn new(server_netns: u32) -> Peers {
        Peers { server_netns, processes: HashMap::new() }
    }

    /// Is it certain that nothing came in from outside by this sending?
    ///
    /// # Errors
    /// [`RefusalReason::UnwatchedPeer`].
    pub fn check(&mut self, event: &LookupEvent, peer: Peer) -> Result<(), RefusalReason> {
        let is_fine = match peer {
            // To itself: a signal between threads.
            Peer::Local(process) if process == event.tgid => true,
            Peer::Local(0) | Peer::Other(_) => false,
            Peer::Local(process) => self.is_application(process),
            Peer::Ipv4(address, port) => address.is_loopback() && !STORE_PORTS.contains(&port),
        };
        if is_fine {
            return Ok(());
        }
        tracing::debug!(?peer, process = event.tgid, "talked to");
        Err(RefusalReason::UnwatchedPeer)
    }

    fn is_application(&mut self, process: u32) -> bool {
        let server_netns = self.server_netns;
        *self.processes.entry(process).or_insert_with(|| {
            let link = |name: &str| std::fs::read_link(format!("/proc/{process}/{name}"));
            let is_inside = link("ns/net").is_ok_and(|netns| netns.as_os_str() == &*format!("net:[{server_netns}]"));
            let is_store = link("exe")
                .map_or(true, |exe| exe.file_name().is_none_or(|name| STORES.iter().any(|store| name == *store)));
            is_inside && !is_store
        })
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
        let mut peers = Peers::new(netns);
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
            open_flags: 0,
            directory: None,
            incomplete: false,
            nofollow: false,
            own_root: false,
            path: Box::default(),
        };
        let me = std::process::id();
        assert!(peers.check(&event, Peer::Local(me)).is_ok());
        assert!(Peers::new(netns + 1).check(&event, Peer::Local(me)).is_err());
        assert!(peers.check(&event, Peer::Local(0)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 9000)).is_ok());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::LOCALHOST, 6379)).is_err());
        assert!(peers.check(&event, Peer::Ipv4(Ipv4Addr::new(10, 0, 0, 1), 9000)).is_err());
        assert!(peers.check(&event, Peer::Other(10)).is_err());
    }
}
