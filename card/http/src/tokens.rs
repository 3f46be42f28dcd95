//! What in a request is of one client or of one request alone: addresses that proxies say, and
//! identifiers of requests.
//!
//! Two executions of the server show that a page depends on none of these only if none is the same
//! in both.

use core::net::IpAddr;

use httparse::Header;

use crate::forwarded::elements;
use crate::identity::{addresses, identifiers, parse_address};
use crate::intermediary::{Added, added, meaning};
use crate::key::KeyConfig;
use crate::siphash::SipHash;

/// Tokens kept of one request.
const TOKENS_MAX: usize = 20;

/// The tokens of one request, each as a keyed hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    hashes: [u32; TOKENS_MAX],
    count: u8,
    has_address: bool,
    /// There are more than were kept.
    is_cut: bool,
}

impl Tokens {
    /// The tokens in these fields.
    pub fn of(headers: &[Header<'_>], keys: &KeyConfig) -> Self {
        let mut tokens = Self::default();
        for header in headers {
            let name = header.name.as_bytes();
            let Some(added) = added(name).filter(|_| !keys.is_harmless_header(name)) else {
                continue;
            };
            match meaning(added, header.value) {
                Added::Address => {
                    addresses(header.value).for_each(|address| tokens.add_text(address, keys));
                }
                Added::Mark => {
                    identifiers(header.value)
                        .for_each(|identifier| tokens.add(TAG_MARK, identifier, keys));
                }
                Added::Forwarded => match elements(header.value) {
                    Some(elements) => {
                        let said_for =
                            elements.filter(|(name, _)| name.eq_ignore_ascii_case(b"for"));
                        said_for.for_each(|(_, address)| tokens.add_text(address, keys));
                    }
                    None => {
                        identifiers(header.value).for_each(|part| tokens.add(TAG_MARK, part, keys));
                    }
                },
                Added::Exact | Added::Route | Added::Baggage | Added::Agent | Added::Fetch => {}
            }
        }
        tokens
    }

    /// An address that is known to be one.
    pub fn add_address(&mut self, address: IpAddr, keys: &KeyConfig) {
        self.has_address = true;
        match address.to_canonical() {
            IpAddr::V4(address) => self.add(TAG_ADDRESS, &address.octets(), keys),
            // A client has a network.
            IpAddr::V6(address) => self.add(TAG_ADDRESS, &address.octets()[..8], keys),
        }
    }

    /// An address as a proxy has written it.
    fn add_text(&mut self, text: &[u8], keys: &KeyConfig) {
        match parse_address(text) {
            Some(address) => self.add_address(address, keys),
            None => {
                self.has_address = true;
                self.add(TAG_TEXT, text, keys);
            }
        }
    }

    fn add(&mut self, tag: u64, bytes: &[u8], keys: &KeyConfig) {
        let mut hash: SipHash = keys.keyed();
        hash.word(tag | (bytes.len() as u64) << 8);
        hash.padded_lower(bytes);
        let hash = hash.finish();
        let hash = u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]);
        if self.hashes[..usize::from(self.count)].contains(&hash) {
            return;
        }
        match self.hashes.get_mut(usize::from(self.count)) {
            Some(slot) => {
                *slot = hash;
                self.count += 1;
            }
            None => self.is_cut = true,
        }
    }

    /// Does the request say an address of its client?
    pub fn has_address(&self) -> bool {
        self.has_address
    }

    /// Is none of these one of `others`, as far as that can be said?
    pub fn are_apart(&self, others: &Self) -> bool {
        let others_hashes = &others.hashes[..usize::from(others.count)];
        let is_shared = |hash: &u32| others_hashes.contains(hash);
        !self.is_cut
            && !others.is_cut
            && !self.hashes[..usize::from(self.count)].iter().any(is_shared)
    }
}

const TAG_ADDRESS: u64 = 7;
const TAG_TEXT: u64 = 8;
const TAG_MARK: u64 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> KeyConfig {
        KeyConfig::new([7; 16])
    }

    fn tokens(fields: &[(&str, &str)]) -> Tokens {
        let headers: Vec<Header<'_>> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        Tokens::of(&headers, &keys())
    }

    #[test]
    fn one_address_in_many_spellings() {
        let plain = tokens(&[("X-Forwarded-For", "198.51.100.7")]);
        assert!(plain.has_address());
        for (name, value) in [
            ("x-real-ip", "198.51.100.7"),
            ("X-Forwarded-For", "203.0.113.1 ,198.51.100.7:4711"),
            ("Forwarded", "for=203.0.113.1;proto=https, For=\"198.51.100.7:99\""),
            ("X-Azure-SocketIP", "::ffff:198.51.100.7"),
            ("True-Client-IP", "[::ffff:198.51.100.7]:80"),
        ] {
            assert!(!plain.are_apart(&tokens(&[(name, value)])), "{name}: {value}");
        }
        for (name, value) in [
            ("X-Forwarded-For", "198.51.100.8"),
            ("Forwarded", "by=198.51.100.7"),
            ("Via", "198.51.100.7"),
        ] {
            assert!(plain.are_apart(&tokens(&[(name, value)])), "{name}: {value}");
        }
        let six = tokens(&[("X-Forwarded-For", "2001:db8::1")]);
        assert!(
            !six.are_apart(&tokens(&[("X-Real-IP", "[2001:DB8::2]:80")])),
            "one network is one client"
        );
        assert!(six.are_apart(&tokens(&[("X-Real-IP", "2001:db8:0:1::1")])));
        assert!(
            !tokens(&[("X-Real-IP", "unknown")])
                .are_apart(&tokens(&[("X-Forwarded-For", "Unknown")]))
        );
    }

    #[test]
    fn a_part_of_an_identifier_is_enough() {
        let trace =
            tokens(&[("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")]);
        assert!(!trace.has_address());
        assert!(!trace.are_apart(&tokens(&[(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01"
        )])));
        assert!(
            !trace.are_apart(&tokens(&[("sentry-trace", "4BF92F3577B34DA6A3CE929D0E0E4736-1-1")]))
        );
        assert!(trace.are_apart(&tokens(&[(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        )])));
    }

    #[test]
    fn more_than_can_be_kept_is_apart_from_nobody() {
        let many: Vec<String> = (0..30).map(|number| format!("198.51.100.{number}")).collect();
        let many = tokens(&[("X-Forwarded-For", &many.join(","))]);
        assert!(!many.are_apart(&Tokens::default()) && !Tokens::default().are_apart(&many));
        assert!(Tokens::default().are_apart(&Tokens::default()));
    }

    #[test]
    fn what_the_operator_ignores_is_no_token() {
        let ignoring = keys().allow_header("x-request-*");
        let headers = [Header { name: "X-Request-Id", value: b"12345678" }];
        assert_eq!(Tokens::of(&headers, &ignoring), Tokens::default());
        assert_ne!(Tokens::of(&headers, &keys()), Tokens::default());
    }
}
