//! What a client's first bytes say, and what a back end is told in front of them.
//!
//! | file | what it reads or writes | read first |
//! |---|---|---|
//! | [`name`] | names of hosts | RFC 9110 section 7.2 |
//! | [`hello`] | the server's name in a TLS ClientHello | RFC 8446, RFC 6066 section 3 |
//! | [`request`] | the host of an HTTP/1 request | RFC 9112 section 3.2 |
//! | [`proxy`] | the PROXY protocol | its specification |
//!
//! Deliberately absent: HTTP/2 without TLS.

pub mod hello;
pub mod name;
pub mod proxy;
pub mod request;

use std::fmt;

/// By what a back end is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The name in a TLS ClientHello.
    Sni,
    /// The host of an HTTP/1 request, the first one of the connection.
    Host,
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sni => "sni",
            Self::Host => "host",
        })
    }
}

impl By {
    /// What the first bytes of a connection say.
    pub fn look(self, bytes: &[u8]) -> name::Look {
        match self {
            Self::Sni => hello::look(bytes),
            Self::Host => request::look(bytes),
        }
    }
}
