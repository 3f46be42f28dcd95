//! Which entries a request names that changes something (RFC 9111 section 4.4): keys of origins and
//! of resources.
//!
//! Coarser than [`crate::Key`]: all variants of a resource have one, its host counts without case
//! and port, and its path with percent-encoding undone, so a change by one spelling is a
//! change for the others. Where that joins what a server keeps apart, an entry goes that could have
//! stayed.

use crate::key::KeyConfig;
use crate::siphash::SipHash;

/// Identifies a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OriginKey(u64);

/// Identifies a resource of a host: a path and a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UriKey(u64);

impl UriKey {
    /// 64 uniformly spread bits.
    pub fn hash(self) -> u64 {
        self.0
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource<'a> {
    /// The value of Host, or the authority of a target in absolute form.
    pub host: &'a [u8],
    /// Path and query as spelled.
    pub path: &'a [u8],
}

impl<'a> Resource<'a> {
    /// Of a request with this Host and target (RFC 9112 section 3.3).
    pub(crate) fn of(host: &'a [u8], target: &'a [u8]) -> Self {
        match authority(target) {
            Some((host, path)) if !target.starts_with(b"/") => Resource { host, path },
            _ => Resource { host, path: target },
        }
    }
}

const TAG_ORIGIN: u64 = 3;
const TAG_URI: u64 = 4;

impl KeyConfig {
    /// The key of a host.
    pub fn origin_of(&self, host: &[u8]) -> OriginKey {
        let name = match host.iter().rposition(|byte| *byte == b':') {
            Some(at) if host[at + 1..].iter().all(u8::is_ascii_digit) => &host[..at],
            _ => host,
        };
        let mut hash = self.keyed_for_resources();
        hash.word(TAG_ORIGIN | (name.len() as u64) << 8);
        hash.padded_lower(name);
        OriginKey(low(hash))
    }

    /// The key of a path with its query, as spelled, of a host.
    pub fn uri_of(&self, origin: OriginKey, path: &[u8]) -> UriKey {
        let path = path.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut hash = self.keyed_for_resources();
        hash.word(TAG_URI);
        hash.word(origin.0);
        let (mut word, mut filled, mut rest) = (0u64, 0, path);
        while let Some((byte, after)) = next_byte(rest) {
            rest = after;
            word |= u64::from(byte) << (8 * filled);
            filled += 1;
            if filled == 8 {
                hash.word(word);
                (word, filled) = (0, 0);
            }
        }
        // The number of bytes in the last word, so zero bytes count.
        hash.word(word);
        hash.word(filled);
        UriKey(low(hash))
    }

    /// The key of the resource that Location or Content-Location refers to, if it is one of the
    /// same host. A reference that is relative to the request's path is not followed (RFC 9111
    /// section 4.4 leaves both fields to the cache).
    pub fn reference_of(&self, origin: OriginKey, reference: &[u8]) -> Option<UriKey> {
        match authority(reference) {
            Some((host, path)) => {
                (self.origin_of(host) == origin).then(|| self.uri_of(origin, path))
            }
            None => reference.starts_with(b"/").then(|| self.uri_of(origin, reference)),
        }
    }
}

/// Authority and path of `http://authority/path` or `//authority/path` (RFC 3986 section 4.2).
fn authority(reference: &[u8]) -> Option<(&[u8], &[u8])> {
    let begins = |scheme: &[u8]| {
        reference.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    let at = [&b"http://"[..], b"https://", b"//"].into_iter().find(|scheme| begins(scheme))?.len();
    let rest = &reference[at..];
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    let path = if rest.get(end) == Some(&b'/') { &rest[end..] } else { b"/" };
    Some((&rest[..end], path))
}

/// The next byte of a path with its percent-encoding undone.
fn next_byte(path: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    match path {
        [b'%', high, low, rest @ ..] if digit(*high).is_some() && digit(*low).is_some() => {
            Some((digit(*high)? << 4 | digit(*low)?, rest))
        }
        [byte, rest @ ..] => Some((*byte, rest)),
        [] => None,
    }
}

fn low(hash: SipHash) -> u64 {
    u128::from_le_bytes(hash.finish()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn uri(config: &KeyConfig, host: &str, path: &str) -> UriKey {
        config.uri_of(config.origin_of(host.as_bytes()), path.as_bytes())
    }

    #[test]
    fn spellings_of_one_resource_are_one() {
        let config = KeyConfig::new([7; 16]);
        let page = uri(&config, "a.example", "/a b?c");
        for (host, path) in [
            ("A.EXAMPLE", "/a%20b?c"),
            ("a.example:8080", "/%61%20b?%63"),
            ("a.example", "/a b?c#fragment"),
        ] {
            assert_eq!(uri(&config, host, path), page, "{host} {path}");
        }
        for (host, path) in [
            ("b.example", "/a b?c"),
            ("a.example", "/a b"),
            ("a.example", "/a b?c\0"),
            ("", "/a b?c"),
        ] {
            assert_ne!(uri(&config, host, path), page, "{host} {path}");
        }
        let other = KeyConfig::new([8; 16]);
        assert_ne!(uri(&other, "a.example", "/a b?c"), page);
        assert_eq!(uri(&other.with_resources([7; 16]), "a.example", "/a b?c"), page);
        assert_eq!(uri(&config, "[::1]:80", "/"), uri(&config, "[::1]", "/"));
        assert_ne!(uri(&config, "[::1]", "/"), uri(&config, "[::2]", "/"));
    }

    #[test]
    fn references_of_the_same_host_are_followed() {
        let config = KeyConfig::new([7; 16]);
        let origin = config.origin_of(b"a.example:80");
        let of = |text: &str| config.reference_of(origin, text.as_bytes());
        let page = Some(uri(&config, "a.example", "/x"));
        for same in
            ["/x", "http://A.example/x", "//a.example/x", "https://a.example:443/x#y", "/%78"]
        {
            assert_eq!(of(same), page, "{same}");
        }
        assert_eq!(of("http://a.example"), Some(uri(&config, "a.example", "/")));
        for other in ["x", "http://b.example/x", "", "?x", "mailto:a@a.example", "../x"] {
            assert_eq!(of(other), None, "{other}");
        }
        assert_eq!(Resource::of(b"a", b"http://b/c"), Resource { host: b"b", path: b"/c" });
        for path in [&b"/c"[..], b"//b/c"] {
            assert_eq!(Resource::of(b"a", path), Resource { host: b"a", path });
        }
    }

    proptest! {
        #[test]
        fn other_paths_are_other_resources(one in "/[a%02 b]{0,20}", other in "/[a%02 b]{0,20}") {
            let config = KeyConfig::new([7; 16]);
            let decoded = |path: &str| {
                let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
                while let Some((byte, after)) = next_byte(rest) {
                    bytes.push(byte);
                    rest = after;
                }
                bytes
            };
            prop_assert_eq!(
                uri(&config, "a", &one) == uri(&config, "a", &other),
                decoded(&one) == decoded(&other)
            );
        }
    }
}
