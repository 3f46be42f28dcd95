//! What the card says in its own requests where a proxy would say whose they are: an address that
//! nobody has (RFC 5737, RFC 3849), and identifiers in the form of the client's.

use core::net::IpAddr;

use nicache_random::SplitMix64;

use crate::identity::{addresses, is_identifier, is_private, parse_address};
use crate::intermediary::{Added, added, meaning};

/// Random numbers, from a seed that nobody else knows.
pub(crate) struct Draw(SplitMix64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }
}

/// An IPv4 address for documentation.
pub fn own_address(seed: u64) -> core::net::Ipv4Addr {
    let mut draw = Draw::new(seed);
    let [a, b, c] = [[192, 0, 2], [198, 51, 100], [203, 0, 113]][draw.below(3) as usize];
    core::net::Ipv4Addr::new(a, b, c, 1 + draw.below(254) as u8)
}

/// The value of the field in a request of the card's own, by that in a client's; `None`: the
/// client's.
pub(crate) fn own_value(name: &[u8], value: &[u8], seed: u64) -> Option<Vec<u8>> {
    match meaning(added(name)?, value) {
        Added::Address => Some(own_addresses(value, seed)),
        Added::Mark => Some(own_mark(value, seed)),
        _ => None,
    }
}

/// A list of as many addresses, each of the same kind.
fn own_addresses(list: &[u8], seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let mut out = Vec::new();
    for address in addresses(list) {
        if !out.is_empty() {
            out.extend_from_slice(b", ");
        }
        let parsed = parse_address(address).map(|address| address.to_canonical());
        let is_private = parsed.is_some_and(is_private);
        let mut group = |bound| draw.below(bound);
        let own = match (parsed, is_private) {
            (None, _) => "unknown".to_owned(),
            (Some(IpAddr::V4(_)), true) => {
                format!("10.{}.{}.{}", group(256), group(256), 1 + group(254))
            }
            (Some(IpAddr::V4(_)), false) => own_address(group(u64::MAX)).to_string(),
            (Some(IpAddr::V6(_)), true) => {
                format!("fd00:{:x}:{:x}:{:x}::1", group(65_536), group(65_536), group(65_536))
            }
            (Some(IpAddr::V6(_)), false) => {
                format!("2001:db8:{:x}:{:x}::1", group(65_536), group(65_536))
            }
        };
        out.extend_from_slice(own.as_bytes());
    }
    out
}

/// The value of a field that names a request, with each digit of each identifier replaced by
/// another one, and letters of hexadecimal numbers by others.
fn own_mark(value: &[u8], seed: u64) -> Vec<u8> {
    let mut draw = Draw::new(seed);
    let mut out = value.to_vec();
    for run in out.split_mut(|byte| !byte.is_ascii_alphanumeric()).filter(|run| is_identifier(run))
    {
        let is_hexadecimal = run.iter().all(u8::is_ascii_hexdigit);
        for byte in run {
            *byte = match *byte {
                digit @ b'0'..=b'9' => b'0' + (digit - b'0' + 1 + draw.below(9) as u8) % 10,
                b'a'..=b'f' if is_hexadecimal => b'a' + draw.below(6) as u8,
                b'A'..=b'F' if is_hexadecimal => b'A' + draw.below(6) as u8,
                other => other,
            };
        }
    }
    out
}

/// The value with nothing in it of the client's own, in the same form.
pub(crate) fn faceless(name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
    own_value(name, value, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_keep_their_form_and_share_nothing() {
        let trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let own = own_value(b"traceparent", trace, 5).unwrap();
        assert_eq!(own.len(), trace.len());
        assert!(own.starts_with(b"00-") && own.ends_with(b"-01"));
        assert_ne!(own, own_value(b"traceparent", trace, 6).unwrap());
        let root =
            own_value(b"X-Amzn-Trace-Id", b"Root=1-67891233-abcdef012345678912345678", 5).unwrap();
        assert!(root.starts_with(b"Root=1-") && root.len() == 40);
        assert_eq!(own_value(b"X-B3-Sampled", b"1", 5), None);
        assert_eq!(own_value(b"X-Forwarded-Proto", b"https", 5), None);
    }

    #[test]
    fn addresses_are_nobody_s() {
        for seed in 0..200 {
            let text = String::from_utf8(
                own_value(b"X-Forwarded-For", b"198.18.0.1,10.0.0.2", seed).unwrap(),
            )
            .unwrap();
            let (first, second) = text.split_once(", ").unwrap();
            assert!(first.parse::<core::net::Ipv4Addr>().unwrap().is_documentation(), "{text}");
            assert!(second.parse::<core::net::Ipv4Addr>().unwrap().is_private(), "{text}");
            let text =
                String::from_utf8(own_value(b"CF-Connecting-IPv6", b"2a00::1", seed).unwrap())
                    .unwrap();
            assert!(
                text.starts_with("2001:db8:") && text.parse::<core::net::Ipv6Addr>().is_ok(),
                "{text}"
            );
        }
    }
}
