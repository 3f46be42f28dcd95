//! MariaDB and MySQL.

use std::io;
use std::process::Command;

use nicache_sql::{Catalogue, CatalogueError, Defaults, Dialect, catalogue_query, is_whole_reply};

use crate::databases::database::{Database, Place};
use crate::databases::socket::listening_socket;
use crate::databases::sql::{self, Session};

/// Length and number of a packet, in front of it.
const HEADER_BYTES: usize = 4;
/// A statement as text.
pub(crate) const COM_QUERY: u8 = 3;

/// What the watcher must know of MariaDB and MySQL.
#[derive(Debug)]
pub(crate) struct MySql;

impl Database for MySql {
    fn number(&self) -> u32 {
        1
    }

    fn process_names(&self) -> &'static [&'static str] {
        &["mariadbd", "mysqld"]
    }

    fn place(&'static self, server: u32, _beginning: &[u8]) -> Option<Place> {
        self.only_place(server)
    }

    /// Statements name the database where it matters.
    fn only_place(&'static self, server: u32) -> Option<Place> {
        Some(Place { server, kind: self, database: None })
    }

    /// The server speaks first: a packet of number 0, with version 10 of the protocol.
    fn is_greeting(&self, bytes: &[u8]) -> bool {
        bytes.len() > 5 && bytes[3] == 0 && bytes[4] == 10
    }

    fn is_startup(&self, _bytes: &[u8]) -> bool {
        false
    }

    fn session(&self, defaults: Option<Defaults>) -> Box<dyn Session> {
        sql::session(Dialect::MySql, defaults)
    }

    fn session_in_the_middle(&self) -> Box<dyn Session> {
        sql::session_in_the_middle(Dialect::MySql)
    }

    fn is_whole_reply(&self, bytes: &[u8], len: usize) -> bool {
        is_whole_reply(Dialect::MySql, bytes, len)
    }

    fn structure_query(&self) -> &'static str {
        catalogue_query(Dialect::MySql)
    }

    /// `mariadb` may leave out the line break at the end.
    fn is_structure_question(&self, request: &[u8]) -> bool {
        let text = request.get(HEADER_BYTES..).and_then(|rest| rest.strip_prefix(&[COM_QUERY]));
        text.map(<[u8]>::trim_ascii_end) == Some(self.structure_query().trim_ascii_end().as_bytes())
    }

    fn structure_client(&self, place: &Place) -> io::Result<Command> {
        let socket = listening_socket(place.server)?;
        let mut command = Command::new("mariadb");
        // Encrypted, it would not be understood by another nicache, which would take it for a
        // change.
        command.args([
            "--no-defaults",
            "--batch",
            "--raw",
            "--skip-column-names",
            "--user=root",
            "--skip-ssl",
        ]);
        command.arg("--socket").arg(socket).arg("--execute").arg(self.structure_query());
        Ok(command)
    }

    fn read_structure(&self, answer: &str) -> Result<Catalogue, CatalogueError> {
        Catalogue::parse(Dialect::MySql, answer)
    }
}
