//! What was found out about processes that have to do with databases, so `/proc` is not read
//! for each connection.

use std::collections::{HashMap, HashSet};

use crate::databases::processes::first_process;
use crate::processes::is_in_namespace;

/// Processes remembered of each kind; then they are looked at anew.
const PROCESSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Server {
    first: Option<u32>,
    is_inside: bool,
}

/// What was found out about processes that have to do with databases, so `/proc` is not read for
/// each connection.
#[derive(Debug, Default)]
pub(crate) struct KnownProcesses {
    /// Processes of database servers, whose end is told.
    servers: HashMap<u32, Server>,
    /// Clients in the server's network namespace. Another process by the same number would at most
    /// make a database one that is used.
    clients_inside: HashSet<u32>,
    /// Clients that nobody has started to ask for the structure. Another by the same number would
    /// at most be taken for one that changes something.
    ordinary_clients: HashSet<u32>,
}

impl KnownProcesses {
    fn server(&mut self, process: u32, netns: u32) -> Server {
        if self.servers.len() >= PROCESSES_MAX {
            self.servers.clear();
        }
        let look =
            || Server { first: first_process(process), is_inside: is_in_namespace(process, netns) };
        *self.servers.entry(process).or_insert_with(look)
    }

    /// The first process of the database server that a process belongs to.
    pub(crate) fn first_process(&mut self, process: u32, netns: u32) -> Option<u32> {
        self.server(process, netns).first
    }

    /// Does the process of a database server run in this network namespace?
    pub(crate) fn is_server_inside(&mut self, process: u32, netns: u32) -> bool {
        self.server(process, netns).is_inside
    }

    /// Does a client run in this network namespace?
    pub(crate) fn is_client_inside(&mut self, process: u32, netns: u32) -> bool {
        if self.clients_inside.contains(&process) {
            return true;
        }
        let is_inside = is_in_namespace(process, netns);
        remember(&mut self.clients_inside, process, is_inside);
        is_inside
    }

    /// Has somebody else started the client to ask for the structure? `look` finds out.
    pub(crate) fn is_asker(&mut self, process: u32, look: impl FnOnce() -> bool) -> bool {
        if self.ordinary_clients.contains(&process) {
            return false;
        }
        let is_asker = look();
        remember(&mut self.ordinary_clients, process, !is_asker);
        is_asker
    }

    /// A database server's process has ended.
    pub(crate) fn forget_server(&mut self, process: u32) {
        // One that was started by it, and stays, is its own first process from now on.
        self.servers.retain(|&known, server| known != process && server.first != Some(process));
    }

    /// Ends may have gone unseen.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

fn remember(processes: &mut HashSet<u32>, process: u32, is_one: bool) {
    if processes.len() >= PROCESSES_MAX {
        processes.clear();
    }
    if is_one {
        processes.insert(process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_not_looked_at_again() {
        let mut known = KnownProcesses::default();
        assert!(known.is_asker(7, || true) && known.is_asker(7, || true));
        assert!(!known.is_asker(8, || false) && !known.is_asker(8, || panic!("known")));
        for process in 100..100 + 2 * PROCESSES_MAX as u32 {
            assert!(!known.is_asker(process, || false));
        }
        assert!(known.ordinary_clients.len() <= PROCESSES_MAX);
        known.clear();
        assert!(known.is_asker(8, || true));
    }

    #[test]
    fn this_process_is_in_its_namespace() {
        let link = std::fs::read_link("/proc/self/ns/net").unwrap();
        let number = link
            .to_str()
            .unwrap()
            .trim_start_matches("net:[")
            .trim_end_matches(']')
            .parse()
            .unwrap();
        let mut known = KnownProcesses::default();
        let own = std::process::id();
        assert!(known.is_client_inside(own, number) && !known.is_client_inside(own + 1, 1));
        assert!(known.is_server_inside(own, number) && known.first_process(own, number).is_some());
        known.forget_server(own);
        assert!(!known.is_server_inside(own, 1));
    }
}
