//! What a kind of database server is asked, and where the tables of a connection are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::process::Command;

use nicache_sql::{Catalogue, CatalogueError, Defaults};

use crate::databases::sql::Session;

/// A kind of database server. Equal numbers are equal kinds.
pub trait Database: fmt::Debug + Sync {
    /// Its number in the kernel, as in its `processes.h`.
    fn number(&self) -> u32;

    /// Names of its server's processes, as there.
    fn process_names(&self) -> &'static [&'static str];

    /// Where the tables of a connection are whose client began with these bytes; `None`: unknown.
    fn place(&'static self, server: u32, beginning: &[u8]) -> Option<Place>;

    /// Where its tables are, whatever the connection; `None`: that depends on the connection.
    fn only_place(&'static self, server: u32) -> Option<Place>;

    /// Do these bytes of the server begin a connection?
    fn is_greeting(&self, bytes: &[u8]) -> bool;

    /// Do these bytes of the client begin a connection?
    fn is_startup(&self, bytes: &[u8]) -> bool;

    /// A connection from its first byte. `defaults`: the settings that it begins with, if they are
    /// known.
    fn session(&self, defaults: Option<Defaults>) -> Box<dyn Session>;

    /// A connection whose beginning nobody saw.
    fn session_in_the_middle(&self) -> Box<dyn Session>;

    /// Is this the whole reply to one request, after which its changes are visible? `bytes` are the
    /// first ones of what the server sent at once, `len` is how many that were.
    fn is_whole_reply(&self, bytes: &[u8], len: usize) -> bool;

    /// What is asked to learn the structure.
    fn structure_query(&self) -> &'static str;

    /// Is this request of a client nothing but that question?
    fn is_structure_question(&self, request: &[u8]) -> bool;

    /// The server's own client, which asks for the structure at a place on this machine and writes
    /// the answer to its output.
    ///
    /// # Errors
    /// It is not known how to reach the server.
    fn structure_client(&self, place: &Place) -> io::Result<Command>;

    /// The structure, from the answer.
    ///
    /// # Errors
    /// It is not what the question asks for.
    fn read_structure(&self, answer: &str) -> Result<Catalogue, CatalogueError>;
}

impl PartialEq for dyn Database {
    fn eq(&self, other: &dyn Database) -> bool {
        self.number() == other.number()
    }
}

impl Eq for dyn Database {}

impl Hash for dyn Database {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number().hash(state);
    }
}

/// A database (PostgreSQL), or all databases of a server (MySQL).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The server's first process.
    pub server: u32,
    /// Of what kind it is.
    pub kind: &'static dyn Database,
    /// Name of the database; PostgreSQL only.
    pub database: Option<Box<str>>,
}
