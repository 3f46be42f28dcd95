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
    /// Ports from which something was sent, and who listens where it went.
    direct: HashSet<(u16, Server)>,
    /// The same of what was sent after the reply, perhaps for another request.
    late: HashSet<Server>,
}

impl Asked {
    /// Something was sent from this port to where this server listens; 0: one of several.
    pub(crate) fn note(&mut self, port: u16, server: Server) {
        self.direct.insert((port, server));
    }

    /// Something was sent to somebody who may have asked any server.
    pub(crate) fn note_anybody(&mut self) {
        self.anybody = true;
    }

    /// Something was sent to this server (0: to anybody) when the reply was there already: it may
    /// have been sent before.
    pub(crate) fn note_late(&mut self, server: Server) {
        self.late.insert(server);
    }

    /// These were heard meanwhile. What did not come to whoever listens there went elsewhere: the
    /// kernel may pass on what is sent to an address.
    pub(crate) fn compare(&mut self, heard: impl Iterator<Item = Client>) {
        let heard: HashSet<(Option<u16>, Server)> =
            heard.map(|client| (client.by_network, client.server)).collect();
        let has_come = |&(port, server): &(u16, Server)| heard.contains(&(Some(port), server));
        self.anybody |= !self.direct.iter().all(has_come);
    }

    /// May the client have asked for the request?
    pub(crate) fn may_be(&self, client: Client) -> bool {
        let mut servers = self.direct.iter().map(|(_, server)| server).chain(&self.late);
        client.by_network.is_none()
            || self.anybody
            || servers.any(|&server| server == 0 || client.server == 0 || server == client.server)
    }

    /// All servers that were asked, or may have been: of those of these clients, if it may be any.
    pub(crate) fn servers(&self, heard: impl Iterator<Item = Client>) -> HashSet<Server> {
        let others = heard.map(|client| client.server).filter(|_| self.anybody);
        let direct = self.direct.iter().map(|(_, server)| *server);
        direct.chain(others).filter(|server| *server != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORT: u16 = 40_000;

    fn client(port: u16, server: Server) -> Client {
        Client { server, by_network: Some(port), ..Client::default() }
    }

    #[test]
    fn a_statement_belongs_to_who_asked_its_server() {
        let mut asked = Asked::default();
        assert!(!asked.may_be(client(PORT, 0)) && !asked.may_be(client(PORT, 7)));
        assert!(asked.may_be(Client { by_network: None, ..client(PORT, 7) }));
        asked.note(PORT, 7);
        asked.compare([client(1, 8), client(PORT, 7)].into_iter());
        assert!(asked.may_be(client(PORT, 7)) && !asked.may_be(client(1, 8)));
        // Which one it is of is not known.
        assert!(asked.may_be(client(PORT, 0)));
        assert_eq!(asked.servers([client(1, 8), client(1, 9)].into_iter()), HashSet::from([7]));
        asked.note_anybody();
        assert!(asked.may_be(client(1, 8)));
        assert_eq!(asked.servers([client(1, 0), client(1, 8)].into_iter()), HashSet::from([7, 8]));
    }

    #[test]
    fn what_did_not_come_to_a_server_may_have_come_to_any() {
        for heard in [client(PORT, 8), client(1, 7), client(0, 7), client(PORT, 0)] {
            let mut asked = Asked::default();
            asked.note(PORT, 7);
            asked.compare([heard].into_iter());
            assert!(asked.may_be(client(PORT, 8)), "{heard:?}");
        }
        let mut asked = Asked::default();
        asked.note(PORT, 0);
        assert!(asked.may_be(client(PORT, 8)));
    }

    #[test]
    fn what_was_sent_late_is_not_used_because_of_that() {
        let mut asked = Asked::default();
        asked.note_late(7);
        assert!(asked.may_be(client(1, 7)) && !asked.may_be(client(1, 8)));
        asked.note_late(0);
        assert!(asked.may_be(client(1, 8)));
        assert!(asked.servers([client(1, 7)].into_iter()).is_empty());
    }
}
