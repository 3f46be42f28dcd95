//! Which database servers a request's programs have asked through a network.

use std::collections::HashSet;

use crate::statements::client::Client;
use crate::statements::journal::Server;

/// The database servers that a request's programs may have asked through a network. The kernel
/// names no process for a client of TCP, so a statement of one belongs to the request if its server
/// is among them.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    anybody: bool,
    servers: HashSet<Server>,
}

impl Asked {
    /// Something was sent to this server; 0: to one of several.
    pub(crate) fn note(&mut self, server: Server) {
        match server {
            0 => self.anybody = true,
            server => drop(self.servers.insert(server)),
        }
    }

    /// Something was sent to somebody who may have asked any server.
    pub(crate) fn note_anybody(&mut self) {
        self.anybody = true;
    }

    /// May the client have asked for the request?
    pub(crate) fn may_be(&self, client: Client) -> bool {
        let is_asked = client.server == 0 || self.servers.contains(&client.server);
        !client.by_network || self.anybody || (is_asked && !self.servers.is_empty())
    }

    /// All servers that were asked, or may have been: of these, if it may be any.
    pub(crate) fn servers(&self, all: impl Iterator<Item = Server>) -> HashSet<Server> {
        let others = all.filter(|server| self.anybody && *server != 0);
        self.servers.iter().copied().chain(others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_belongs_to_who_asked_its_server() {
        let client = |server| Client { server, by_network: true, ..Client::default() };
        let mut asked = Asked::default();
        assert!(!asked.may_be(client(0)) && !asked.may_be(client(7)));
        assert!(asked.may_be(Client { by_network: false, ..client(7) }));
        asked.note(7);
        assert!(asked.may_be(client(7)) && !asked.may_be(client(8)));
        // Which one it is of is not known.
        assert!(asked.may_be(client(0)));
        assert_eq!(asked.servers([8, 9].into_iter()), HashSet::from([7]));
        asked.note(0);
        assert!(asked.may_be(client(8)));
        assert_eq!(asked.servers([0, 8, 9].into_iter()), HashSet::from([7, 8, 9]));
        let mut asked = Asked::default();
        asked.note_anybody();
        assert!(asked.may_be(client(7)) && asked.may_be(client(0)));
    }
}
