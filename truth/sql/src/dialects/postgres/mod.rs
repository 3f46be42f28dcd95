//! PostgreSQL.

mod protocol;
mod replies;
mod turns;

use crate::coarse::is_read;
use crate::dialects::server::{Connection, Exchange, Server};

/// Servers of PostgreSQL.
pub(super) struct Postgres;

impl Server for Postgres {
    fn products(&self) -> &'static str {
        "PostgreSQL"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    fn connection(&self) -> Box<dyn Connection> {
        Box::new(protocol::Connection::new())
    }

    fn connection_in_the_middle(&self) -> Box<dyn Connection> {
        let mut connection = self.connection();
        connection.lose();
        connection
    }

    fn exchange(&self) -> Box<dyn Exchange> {
        Box::new(turns::Turns::new())
    }

    fn is_certain_read(&self, bytes: &[u8]) -> bool {
        if bytes.len() < 5 {
            return false;
        }
        let length = u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
        // One message.
        if length != bytes.len() - 1 {
            return false;
        }
        match bytes[0] {
            b'Q' => is_read(bytes, 5),
            // Terminate, Parse, Describe and Flush run nothing.
            b'X' | b'P' | b'D' | b'H' => true,
            _ => false,
        }
    }

    fn is_reply(&self, bytes: &[u8]) -> bool {
        replies::is_reply(bytes)
    }

    fn catalogue_query(&self) -> &'static str {
        include_str!("catalogue.sql")
    }

    fn unfinished_query(&self, seconds: u64) -> String {
        format!(
            "SELECT COUNT(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND COALESCE(backend_type, 'client backend') = \
             'client backend' AND state IS DISTINCT FROM 'idle' AND COALESCE(query_start, '-infinity') <= now() - interval '{seconds} seconds'"
        )
    }

    fn first_database(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn client(&self, host: &str, port: &str) -> Vec<String> {
        ["psql", "--username=postgres", "--host", host, "--port", port].map(str::to_owned).into()
    }

    fn client_arguments(&self, database: Option<&str>, query: &str) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["--no-psqlrc", "--no-align", "--tuples-only", "--field-separator=\t", "--no-password"]
                .map(str::to_owned)
                .into();
        if let Some(database) = database {
            // A name with a sign of equality would be taken for options.
            let database = database.replace('\\', "\\\\").replace('\'', "\\'");
            arguments.push(format!("--dbname=dbname='{database}'"));
        }
        arguments.extend(["--command".to_owned(), query.to_owned()]);
        arguments
    }
}
