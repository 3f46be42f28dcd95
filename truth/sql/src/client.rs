//! A server's own command-line client: how it is called, and what it is asked.

use crate::dialects::Dialect;

impl Dialect {
    /// What the products are called that speak it.
    pub fn products(self) -> &'static str {
        self.server().products()
    }

    /// Schemes of URLs that lead to a server of this dialect, the usual one first.
    pub fn schemes(self) -> &'static [&'static str] {
        self.server().schemes()
    }

    /// Asks for the number of requests that the server received more than so many seconds ago, and
    /// has not done yet.
    pub fn unfinished_query(self, seconds: u64) -> String {
        self.server().unfinished_query(seconds)
    }

    /// A database that is there before any other, for what is asked of none in particular; `None`:
    /// a client need not name one.
    pub fn first_database(self) -> Option<&'static str> {
        self.server().first_database()
    }

    /// The client program and its arguments, for the first user without a password.
    pub fn client(self, host: &str, port: &str) -> Vec<String> {
        self.server().client(host, port)
    }

    /// The last arguments of that client: it prints nothing but the rows of a query.
    pub fn client_arguments(self, database: Option<&str>, query: &str) -> Vec<String> {
        self.server().client_arguments(database, query)
    }
}
