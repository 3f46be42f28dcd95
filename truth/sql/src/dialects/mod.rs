//! The dialects: a folder each, and their list.
//!
//! A folder says what is peculiar to a server: its protocol, its replies, its own client. What its
//! statements mean differently is said where statements are read (`parse.rs`, `steer.rs`,
//! `walk.rs`, `functions.rs`, `transaction.rs`, `session.rs`, `catalogue.rs`).

mod limits;
mod mysql;
mod postgres;
pub(crate) mod server;

use crate::dialects::server::Server;

/// The families of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// MySQL and MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::MySql, Self::Postgres];

    pub(crate) fn server(self) -> &'static dyn Server {
        match self {
            Self::MySql => &mysql::MySql,
            Self::Postgres => &postgres::Postgres,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_leads_to_one_dialect() {
        for (at, dialect) in Dialect::ALL.into_iter().enumerate() {
            let schemes = dialect.server().schemes();
            assert!(!schemes.is_empty());
            for other in &Dialect::ALL[..at] {
                assert!(schemes.iter().all(|scheme| !other.server().schemes().contains(scheme)));
            }
        }
    }
}
