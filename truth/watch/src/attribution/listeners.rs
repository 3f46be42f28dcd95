//! Who listens at the ports of loopback interfaces.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use nicache_coherence::RevisionTable;
use nicache_netlink::{listening, listening_of};

use crate::processes::{processes, sockets_of};

/// Ports of which it is remembered who listens there.
const LISTENERS_MAX: usize = 1024;
/// For how long one is not looked for again who was not found.
pub(super) const STRANGER_NS: u64 = 1_000_000_000;

/// Where connections may be taken in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Inode number of the network's namespace; 0: of a process that is gone.
    pub(super) network: u64,
    /// Of the loopback interface; `None`: at any address.
    pub(super) address: Option<Ipv4Addr>,
    pub(super) port: u16,
}

/// A socket that listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listener {
    /// `None`: at all addresses of IPv4, or at one of IPv6.
    address: Option<Ipv4Addr>,
    port: u16,
    inode: u64,
}

impl From<nicache_netlink::Listening> for Listener {
    fn from(socket: nicache_netlink::Listening) -> Self {
        let address = match socket.address {
            IpAddr::V4(address) => Some(address).filter(|address| !address.is_unspecified()),
            IpAddr::V6(_) => None,
        };
        Self { address, port: socket.port, inode: socket.inode }
    }
}

impl Listener {
    /// May it be the one that takes a connection there? Several may: at one number, programs can
    /// listen at different addresses, and at one address by `SO_REUSEPORT`.
    fn may_take(&self, address: Option<Ipv4Addr>, port: u16) -> bool {
        let is_elsewhere = matches!((self.address, address), (Some(own), Some(to)) if own != to);
        self.port == port && !is_elsewhere
    }
}

/// The sockets of a network that listened at a time.
#[derive(Debug)]
struct Listening {
    sockets: Vec<Listener>,
    /// Before the kernel's tables were read.
    read_ns: u64,
    /// [`RevisionTable::gaps`] then; `None`: there was one.
    gaps: Option<u64>,
}

impl Listening {
    /// Are these all that listen at this time? Some may have stopped.
    fn is_all(&self, now_ns: u64, table: &RevisionTable) -> bool {
        let has_begun =
            || table.listened_ns().is_none_or(|listened_ns| listened_ns >= self.read_ns);
        now_ns <= self.read_ns
            || (self.gaps == gaps_of(table) && self.gaps.is_some() && !has_begun())
    }
}

/// How often sockets may have begun to listen unseen; `None`: they may now.
fn gaps_of(table: &RevisionTable) -> Option<u64> {
    (!table.has_gap()).then(|| table.gaps())
}

/// Who listens at the ports of loopback interfaces, as it was found last. Whoever still has the
/// socket still listens. Times are those of CLOCK_MONOTONIC, and are not before anything that is
/// asked about.
#[derive(Debug)]
pub(crate) struct Listeners {
    /// Tells when somebody begins to listen.
    table: Arc<RevisionTable>,
    holders: HashMap<Place, Holders>,
    /// Places where it is not known who listens, and when to look again. To look through all
    /// processes takes a while.
    strangers: HashMap<Place, u64>,
    /// Ports of the server's network that are passed on to the same port of this process's
    /// (`--share`).
    shared: HashMap<Place, Shared>,
    /// By the inode number of a network's namespace. Every connection inside has a port of its own
    /// at which nobody listens, and the kernel's tables take milliseconds to read on a machine with
    /// much memory: they are not read for each of them.
    listening: HashMap<u64, Listening>,
    /// How often the kernel's tables were read for that.
    #[cfg(test)]
    pub(super) reads: u32,
}

/// Processes that may take the connections of a place.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// They have all of its sockets between them.
    pub(super) owners: Vec<u32>,
    /// Others that have one, too. Only when they have just been looked for.
    pub(super) others: Vec<u32>,
}

/// Who may take the connections of a place, as it was found last.
#[derive(Debug)]
struct Holders {
    /// All sockets that may.
    sockets: Vec<u64>,
    /// Processes that have them between them, the oldest ones: workers come and go. All others that
    /// had one when they were looked for were of the same kind.
    owners: Vec<Owner>,
}

impl Holders {
    /// Are these the sockets, and does each process still have its own?
    fn are_there(&self, sockets: &[u64]) -> bool {
        self.sockets == sockets
            && self.owners.iter().all(|owner| sockets_of(owner.process).contains(&owner.socket))
    }

    fn processes(&self) -> Vec<u32> {
        self.owners.iter().map(|owner| owner.process).collect()
    }
}

/// Who listens behind a shared port, as it was found last.
#[derive(Clone, Debug)]
pub(super) enum Shared {
    /// A program of the server alone; the sockets that listen inside, and those on the machine.
    Own { owner: Owner, inside: Vec<u64>, outside: Vec<u64> },
    /// Others, or nobody; and when to look again.
    Others(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) process: u32,
    pub(super) socket: u64,
}

impl Listeners {
    /// Nothing is known yet.
    pub(crate) fn new(table: Arc<RevisionTable>) -> Self {
        let (holders, strangers, shared, listening) = Default::default();
        Self {
            table,
            holders,
            strangers,
            shared,
            listening,
            #[cfg(test)]
            reads: 0,
        }
    }

    /// The sockets that may take the connections of this place, in the network that `insider` is
    /// in, too: all that do, and perhaps some that no longer do.
    pub(super) fn sockets_at(&mut self, insider: u32, place: Place, now_ns: u64) -> Vec<u64> {
        let known = self.listening.get(&place.network);
        if known.is_none_or(|listening| !listening.is_all(now_ns, &self.table)) {
            self.read_tables(insider, place.network, now_ns);
        }
        at(&self.listening[&place.network].sockets, place.address, place.port)
    }

    fn read_tables(&mut self, insider: u32, network: u64, now_ns: u64) {
        #[cfg(test)]
        {
            self.reads += 1;
        }
        if self.listening.len() >= LISTENERS_MAX {
            self.listening = HashMap::new();
        }
        let gaps = gaps_of(&self.table);
        let sockets = sockets_that_listen(Some(insider));
        self.listening.insert(network, Listening { sockets, read_ns: now_ns, gaps });
    }

    /// Processes of the network that may take the connections of this place; no owners: it is not
    /// certain who does. `None`: nobody listens there.
    pub(super) fn holders(&mut self, insider: u32, place: Place, now_ns: u64) -> Option<Found> {
        let sockets = self.sockets_at(insider, place, now_ns);
        if let Some(holders) = self.holders.get(&place)
            && holders.are_there(&sockets)
        {
            return Some(Found { owners: holders.processes(), others: Vec::new() });
        }
        if sockets.is_empty() {
            return None;
        }
        if self.strangers.get(&place).is_some_and(|until_ns| now_ns < *until_ns) {
            return Some(Found::default());
        }
        let mut found = Self::find(place.network, sockets);
        if found.is_none() {
            // One of the sockets may be closed: a worker that has ended had it for itself.
            self.read_tables(insider, place.network, now_ns);
            let sockets = self.sockets_at(insider, place, now_ns);
            found = (!sockets.is_empty()).then(|| Self::find(place.network, sockets)).flatten();
        }
        if self.holders.len() + self.strangers.len() >= LISTENERS_MAX {
            (self.holders, self.strangers) = (HashMap::new(), HashMap::new());
        }
        let Some((holders, others)) = found else {
            self.take_for_strangers(place, now_ns);
            return Some(Found::default());
        };
        let owners = holders.processes();
        self.holders.insert(place, holders);
        Some(Found { owners, others })
    }

    /// It is not certain who listens there.
    pub(super) fn take_for_strangers(&mut self, place: Place, now_ns: u64) {
        self.holders.remove(&place);
        self.strangers.insert(place, now_ns + STRANGER_NS);
    }

    /// Who listens behind a shared port, by what was found last.
    pub(super) fn known_shared(
        &mut self,
        insider: u32,
        place: Place,
        now_ns: u64,
    ) -> Option<Option<u32>> {
        let inside_now = self.sockets_at(insider, place, now_ns);
        match self.shared.get(&place)? {
            Shared::Own { owner, inside, outside } => {
                let parent = parent_sockets();
                // Another program may listen there by now, too (SO_REUSEPORT).
                let is_so = *inside == inside_now
                    && inside.iter().all(|socket| parent.contains(socket))
                    && sockets_of(owner.process).contains(&owner.socket)
                    && listeners(place.port) == *outside;
                is_so.then_some(Some(owner.process))
            }
            Shared::Others(until_ns) => (now_ns < *until_ns).then_some(None),
        }
    }

    pub(super) fn note_shared(&mut self, place: Place, found: Shared) {
        if self.shared.len() >= LISTENERS_MAX {
            self.shared = HashMap::new();
        }
        self.shared.insert(place, found);
    }

    /// Is it known already who does?
    pub(super) fn is_known(&self, place: Place) -> bool {
        self.holders.contains_key(&place)
    }

    /// Who has these sockets, and who else does. `None`: nobody of the network has one of them, so
    /// somebody elsewhere has it.
    fn find(network: u64, sockets: Vec<u64>) -> Option<(Holders, Vec<u32>)> {
        let (mut owners, mut others, mut missing) = (Vec::new(), Vec::new(), sockets.clone());
        for process in processes().filter(|&process| network_of(process) == Some(network)) {
            let held = sockets_of(process);
            if !sockets.iter().any(|socket| held.contains(socket)) {
                continue;
            }
            let own = missing.iter().find(|socket| held.contains(socket));
            match own {
                Some(&socket) => owners.push(Owner { process, socket }),
                None => others.push(process),
            }
            missing.retain(|socket| !held.contains(socket));
        }
        missing.is_empty().then_some((Holders { sockets, owners }, others))
    }
}

/// Inode number of the network namespace that a process is in.
pub(super) fn network_of(process: u32) -> Option<u64> {
    Some(std::fs::metadata(format!("/proc/{process}/ns/net")).ok()?.ino())
}

/// Inode numbers of those of the sockets that may take connections at an address and a port.
pub(super) fn at(sockets: &[Listener], address: Option<Ipv4Addr>, port: u16) -> Vec<u64> {
    let sockets = sockets.iter().filter(|socket| socket.may_take(address, port));
    sockets.map(|socket| socket.inode).collect()
}

/// Inode numbers of the sockets that listen at a port of this process's network.
pub(super) fn listeners(port: u16) -> Vec<u64> {
    at(&sockets_that_listen(None), None, port)
}

/// The sockets that listen in the network of a process; without one: in that of this process. The
/// watcher may not enter another network, and reads its tables.
pub(super) fn sockets_that_listen(process: Option<u32>) -> Vec<Listener> {
    let sockets = process.map_or_else(listening, listening_of);
    sockets.into_iter().map(Listener::from).collect()
}

pub(super) fn parent_sockets() -> Vec<u64> {
    rustix::process::getppid()
        .map_or_else(Vec::new, |parent| sockets_of(parent.as_raw_nonzero().get() as u32))
}
