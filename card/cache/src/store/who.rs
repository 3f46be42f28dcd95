//! For whom the server has worked, and whether two of them are certainly two: only then does their
//! agreement say that the page is nobody's own.
//!
//! Clients are told apart by the address that they connect from; behind a proxy, where all connect
//! from its address, by those that it says. A client who makes addresses up is several clients, as
//! one who has several addresses is. What such a client has the server say is an answer for those
//! who send the same fields from the same address ([`Signs::class`](nicache_http::Signs::class)),
//! and nobody else.

use nicache_coherence::Rule;
use nicache_http::Tokens;
use nicache_tcp::address::Address;

/// For whom the server worked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// A client, by its IPv4 address or the network of its IPv6 address.
    Client(Address),
    /// Any client that sent cookies, if only such as the operator calls harmless. That two of these
    /// agree says nothing of the others.
    Bearer(Address),
    /// The card, which wants to know whether a page is still the same.
    Card,
}

/// The proxy that a client comes through, as far as its request shows one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proxy {
    /// There is none.
    #[default]
    Absent,
    /// The proxy connects from an address that the card can ask from, too.
    Here,
    /// The proxy connects from another address: the card cannot ask as the client does.
    Beyond,
}

/// For whom the server worked, with everything in the request that belongs to this client alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// Who it is.
    pub by: Executor,
    /// Addresses that a proxy has said, and identifiers of the request.
    pub tokens: Tokens,
    /// What the client comes through.
    pub proxy: Proxy,
}

impl Who {
    /// Is this certainly somebody else?
    pub fn is_other(&self, other: &Self) -> bool {
        use Executor::{Bearer, Card, Client};
        let is_apart = self.tokens.are_apart(&other.tokens) || !Rule::Marks.holds();
        let are_named = self.tokens.has_address() && other.tokens.has_address();
        is_apart
            && match (self.by, other.by) {
                (Card, Card) | (Bearer(_), Bearer(_)) => false,
                (Card, _) | (_, Card) => true,
                (Client(one) | Bearer(one), Client(two) | Bearer(two)) => one != two || are_named,
            }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use nicache_http::{Header, KeyConfig};

    use super::*;

    fn who(by: fn(Address) -> Executor, address: u8, fields: &[(&str, &str)]) -> Who {
        let headers: Vec<Header<'_>> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let by = by(Ipv4Addr::new(10, 0, 0, address).into());
        Who { by, tokens: Tokens::of(&headers, &KeyConfig::new([7; 16])), proxy: Proxy::Absent }
    }

    #[test]
    fn who_is_somebody_else() {
        use Executor::{Bearer, Client};
        let card: fn(Address) -> Executor = |_| Executor::Card;
        let plain = who(Client, 1, &[]);
        assert!(plain.is_other(&who(Client, 2, &[])) && plain.is_other(&who(card, 1, &[])));
        assert!(!plain.is_other(&who(Client, 1, &[])) && !plain.is_other(&who(Bearer, 1, &[])));
        assert!(
            plain.is_other(&who(Bearer, 2, &[]))
                && !who(Bearer, 1, &[]).is_other(&who(Bearer, 2, &[]))
        );
        assert!(!who(card, 1, &[]).is_other(&who(card, 1, &[])));
        // Behind a proxy.
        let first = who(Client, 1, &[("X-Forwarded-For", "198.51.100.1")]);
        assert!(first.is_other(&who(Client, 1, &[("X-Forwarded-For", "198.51.100.2")])));
        assert!(!first.is_other(&who(Client, 1, &[("X-Forwarded-For", "198.51.100.1")])));
        assert!(
            !first.is_other(&who(Client, 2, &[("X-Real-IP", "198.51.100.1")])),
            "by whatever way the client comes"
        );
        assert!(!first.is_other(&plain), "the other one may be the same");
        assert!(
            !first.is_other(&who(card, 1, &[("X-Forwarded-For", "198.51.100.1")])),
            "the client has guessed the card's"
        );
        // What a page may repeat.
        let marked = who(Client, 1, &[("X-Request-Id", "4bf92f35")]);
        assert!(!marked.is_other(&who(Client, 2, &[("X-Request-Id", "4bf92f35")])));
        assert!(marked.is_other(&who(Client, 2, &[("X-Request-Id", "00f067aa")])));
        assert!(!marked.is_other(&who(card, 1, &[("X-Request-Id", "4bf92f35")])));
    }
}
