//! MySQL and MariaDB.

mod packet;
mod protocol;
mod replies;
mod turns;

use crate::coarse::is_read;
use crate::dialects::server::{Connection, Exchange, Server};

/// Commands that change nothing: QUIT, INIT_DB, STATISTICS, PING, STMT_PREPARE, STMT_CLOSE,
/// STMT_RESET.
const HARMLESS: [u8; 7] = [0x01, 0x02, 0x09, 0x0e, 0x16, 0x19, 0x1a];
const QUERY: u8 = 0x03;

/// Servers of MySQL and MariaDB.
pub(super) struct MySql;

impl Server for MySql {
    fn products(&self) -> &'static str {
        "MariaDB, MySQL"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["mysql", "mariadb"]
    }

    fn connection(&self) -> Box<dyn Connection> {
        Box::new(protocol::Connection::new())
    }

    fn connection_in_the_middle(&self) -> Box<dyn Connection> {
        Box::new(protocol::Connection::in_the_middle())
    }

    fn exchange(&self) -> Box<dyn Exchange> {
        Box::new(turns::Turns::new())
    }

    fn is_certain_read(&self, bytes: &[u8]) -> bool {
        if bytes.len() < 5 {
            return false;
        }
        let length = bytes[0] as usize | (bytes[1] as usize) << 8 | (bytes[2] as usize) << 16;
        // One packet, the first of its command.
        if length != bytes.len() - 4 || bytes[3] != 0 {
            return false;
        }
        HARMLESS.contains(&bytes[4]) || (bytes[4] == QUERY && is_read(bytes, 5))
    }

    fn is_reply(&self, bytes: &[u8]) -> bool {
        replies::is_reply(bytes)
    }

    fn catalogue_query(&self) -> &'static str {
        include_str!("catalogue.sql")
    }

    fn unfinished_query(&self, seconds: u64) -> String {
        format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND COMMAND NOT IN \
             ('Sleep', 'Daemon', 'Binlog Dump') AND USER NOT IN ('system user', 'event_scheduler') AND COALESCE(TIME, {seconds}) >= {seconds}"
        )
    }

    fn first_database(&self) -> Option<&'static str> {
        None
    }

    fn client(&self, host: &str, port: &str) -> Vec<String> {
        ["mariadb", "--no-defaults", "--user=root", "--host", host, "--port", port]
            .map(str::to_owned)
            .into()
    }

    /// One question is about all databases.
    fn client_arguments(&self, _database: Option<&str>, query: &str) -> Vec<String> {
        ["--batch", "--raw", "--skip-column-names", "--execute", query].map(str::to_owned).into()
    }
}
