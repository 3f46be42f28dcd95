//! PostgreSQL.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nicache_sql::{Catalogue, CatalogueError, Defaults, Dialect, catalogue_query, is_whole_reply};

use crate::databases::database::{Database, Place};
use crate::databases::socket::listening_socket;
use crate::databases::sql::{self, Session};

/// The database that is there before any other.
const FIRST_DATABASE: &str = "postgres";

/// Of a message's length, behind its letter.
const LENGTH_BYTES: usize = 4;

/// What the watcher must know of PostgreSQL.
#[derive(Debug)]
pub(crate) struct Postgres;

impl Database for Postgres {
    fn number(&self) -> u32 {
        2
    }

    fn process_names(&self) -> &'static [&'static str] {
        &["postgres"]
    }

    /// The first message names the database, or else the user, as key and value.
    fn place(&'static self, server: u32, beginning: &[u8]) -> Option<Place> {
        let mut words = beginning.get(8..)?.split(|&byte| byte == 0);
        let (mut user, mut database) = (None, None);
        while let (Some(key), Some(value)) = (words.next(), words.next()) {
            match key {
                b"user" => user = Some(value),
                b"database" => database = Some(value),
                _ => {}
            }
        }
        let name = std::str::from_utf8(database.or(user)?).ok()?;
        Some(Place { server, kind: self, database: Some(name.into()) })
    }

    fn only_place(&'static self, _server: u32) -> Option<Place> {
        None
    }

    fn is_greeting(&self, _bytes: &[u8]) -> bool {
        false
    }

    /// The client's first message has no type, and a length of fewer than 2^16.
    fn is_startup(&self, bytes: &[u8]) -> bool {
        bytes.len() >= 8 && bytes[..2] == [0, 0]
    }

    fn session(&self, defaults: Option<Defaults>) -> Box<dyn Session> {
        sql::session(Dialect::Postgres, defaults)
    }

    fn session_in_the_middle(&self) -> Box<dyn Session> {
        sql::session_in_the_middle(Dialect::Postgres)
    }

    fn is_whole_reply(&self, bytes: &[u8], len: usize) -> bool {
        is_whole_reply(Dialect::Postgres, bytes, len)
    }

    fn structure_query(&self) -> &'static str {
        catalogue_query(Dialect::Postgres)
    }

    fn is_structure_question(&self, request: &[u8]) -> bool {
        let text = request.strip_prefix(b"Q").and_then(|rest| rest.get(LENGTH_BYTES..));
        text.and_then(|text| text.strip_suffix(b"\0")) == Some(self.structure_query().as_bytes())
    }

    /// `psql` as the user that the server runs as, whom it lets in without a password (peer
    /// authentication).
    fn structure_client(&self, place: &Place) -> io::Result<Command> {
        let socket = listening_socket(place.server)?;
        let (folder, name) = (socket.parent(), socket.file_name().and_then(|name| name.to_str()));
        let port = name.and_then(|name| name.strip_prefix(".s.PGSQL."));
        let (Some(folder), Some(port)) = (folder, port) else {
            return Err(io::Error::other(format!(
                "{} is not a socket of PostgreSQL",
                socket.display()
            )));
        };
        let owner = std::fs::metadata(format!("/proc/{}", place.server))?;
        let database = place.database.as_deref().unwrap_or(FIRST_DATABASE);
        let mut command = Command::new("psql");
        command.args([
            "--no-psqlrc",
            "--no-align",
            "--tuples-only",
            "--field-separator=\t",
            "--no-password",
        ]);
        command.arg("--host").arg(folder).args(["--port", port, "--dbname", database]);
        command.args(["--command", self.structure_query()]);
        command
            .uid(owner.uid())
            .gid(owner.gid())
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        Ok(command)
    }

    fn read_structure(&self, answer: &str) -> Result<Catalogue, CatalogueError> {
        Catalogue::parse(Dialect::Postgres, answer)
    }
}
