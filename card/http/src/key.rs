//! Cache keys: a keyed 128-bit hash of what a request asks for.
//!
//! Input of [`Key`]: Host and target as spelled, because a page may repeat either, the
//! [`ConnectionClass`], and the raw value of Origin, with "absent" apart from "empty". What a
//! client accepts and who it is counts where the server was seen to look at it (`client_class.rs`).
//! The method is not part of it (HEAD is answered from a GET's entry). The hash is keyed by a
//! secret of the process, so two requests that share a key cannot be constructed, and equal keys
//! are taken for equal requests.
//!
//! ```text
//! word 0   tag 8 | class 8 | host length 16 | target length 16 | 0
//! word 1   Origin length + 1, or 0  16 | 0
//! then     host, target, Origin, each padded with zeros to whole words
//! ```
//!
//! Where proxies have added fields that count ([`ProxyFields`](crate::signs::ProxyFields)), this is
//! hashed once more together with them.

use crate::connection::ConnectionClass;
use crate::cookie::{self, CookiePattern, is_harmless};
use crate::path::{self, PATTERNS_MAX, PathMatch, PathPattern, PatternError};
use crate::reason::NotShared;
use crate::siphash::SipHash;
use crate::vary::VaryNames;
use httparse::Header;

/// Identifies the variant of a resource that a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 16]);

impl Key {
    /// 64 of the bits, uniformly spread: good as a hash for a table of keys.
    #[inline]
    pub fn low_u64(&self) -> u64 {
        u128::from_le_bytes(self.0) as u64
    }
}

/// How requests become keys, and which unusual requests may be served.
#[derive(Clone, Debug)]
pub struct KeyConfig {
    keyed: SipHash,
    resources: SipHash,
    harmless_cookies: Vec<CookiePattern>,
    harmless_headers: Vec<HeaderPattern>,
    separating: VaryNames,
    paths: Vec<PathCookies>,
}

/// A header's name, or the beginning of names.
#[derive(Clone, Debug)]
struct HeaderPattern {
    name: Box<[u8]>,
    is_beginning: bool,
}

impl HeaderPattern {
    fn matches(&self, name: &[u8]) -> bool {
        let compared = if self.is_beginning { name.get(..self.name.len()) } else { Some(name) };
        compared.is_some_and(|compared| compared.eq_ignore_ascii_case(&self.name))
    }
}

/// Paths, and the cookies that are harmless there.
#[derive(Clone, Debug)]
struct PathCookies {
    pattern: PathPattern,
    cookies: Vec<CookiePattern>,
}

impl KeyConfig {
    /// `secret`: 16 random bytes, drawn once per process and told to nobody. No cookie is harmless,
    /// and only the built-in headers are.
    pub fn new(secret: [u8; 16]) -> Self {
        Self {
            keyed: SipHash::new(&secret),
            resources: SipHash::new(&secret),
            harmless_cookies: Vec::new(),
            harmless_headers: Vec::new(),
            separating: VaryNames::default(),
            paths: Vec::new(),
        }
    }

    /// Has hosts and resources ([`Self::uri_of`]) depend on this secret, and on no other: 16 random
    /// bytes that all cards in front of a server have, so one of them can say to the others what a
    /// request has changed.
    pub fn with_resources(mut self, secret: [u8; 16]) -> Self {
        self.resources = SipHash::new(&secret);
        self
    }

    /// Declares a cookie harmless: by its exact name, by the beginning of its name with a final
    /// `*`, or [`ANALYTICS`](crate::ANALYTICS) for a list. Danger: if the server does look at it,
    /// one client's reply is served to another.
    pub fn allow_cookie(mut self, pattern: &str) -> Self {
        self.harmless_cookies.extend(CookiePattern::list(pattern));
        self
    }

    /// Declares a request header harmless that is not on the built-in list, or that proxies add: by
    /// its name, or by the beginning of names with a final `*`. Framing, Host and the other headers
    /// that have a meaning of their own cannot be declared harmless. Danger: as with
    /// [`Self::allow_cookie`].
    pub fn allow_header(mut self, pattern: &str) -> Self {
        let beginning = pattern.strip_suffix('*');
        let name = beginning.unwrap_or(pattern).as_bytes().into();
        self.harmless_headers.push(HeaderPattern { name, is_beginning: beginning.is_some() });
        self
    }

    /// Keeps replies apart by the value of a request header, as if every reply named it in `Vary`:
    /// for servers that look at it and do not say so.
    ///
    /// # Errors
    /// The name is not a token or too long, or there are too many names.
    pub fn separate_by(mut self, name: &str) -> Result<Self, NotShared> {
        self.separating.add(name.as_bytes())?;
        Ok(self)
    }

    /// Adds a pattern of paths behind those that are there, with cookies that are harmless on these
    /// paths (as [`Self::allow_cookie`] says).
    ///
    /// # Errors
    /// [`PatternError::TooMany`].
    pub fn add_path<T: AsRef<str>>(
        mut self,
        pattern: PathPattern,
        cookies: &[T],
    ) -> Result<Self, PatternError> {
        if self.paths.len() == PATTERNS_MAX {
            return Err(PatternError::TooMany);
        }
        let cookies = cookies.iter().flat_map(|name| CookiePattern::list(name.as_ref())).collect();
        self.paths.push(PathCookies { pattern, cookies });
        Ok(self)
    }

    /// Which pattern of those that were added a request falls under. Takes a walk through the
    /// target for each pattern.
    pub fn path_of(&self, host: &[u8], target: &[u8]) -> PathMatch {
        path::find(self.paths.iter().map(|path| &path.pattern), host, target)
    }

    /// Do no replies at this path depend on the cookies in `value`?
    #[cold]
    pub(crate) fn are_cookies_harmless(&self, value: &[u8], host: &[u8], target: &[u8]) -> bool {
        match self.cookies_of(host, target) {
            Some(more) => is_harmless(value, &self.harmless_cookies, more),
            None => false,
        }
    }

    /// The cookies that are harmless at this path, beside those that are everywhere; `None`: none
    /// is.
    fn cookies_of(&self, host: &[u8], target: &[u8]) -> Option<&[CookiePattern]> {
        match self.path_of(host, target) {
            PathMatch::Pattern(number) => Some(&self.paths[number].cookies),
            PathMatch::None => Some(&[]),
            PathMatch::Odd => None,
        }
    }

    /// Names of the cookies in `value` that are not harmless at this path.
    pub(crate) fn strange_cookies<'v>(
        &self,
        value: &'v [u8],
        host: &[u8],
        target: &[u8],
    ) -> impl Iterator<Item = &'v [u8]> {
        let more = self.cookies_of(host, target).unwrap_or_default();
        let is_known = move |name: &[u8]| {
            self.harmless_cookies.iter().chain(more).any(|known| known.matches(name))
        };
        cookie::names(value).flatten().filter(move |name| !is_known(name))
    }

    /// A hash that has taken the secret and nothing else.
    pub(crate) fn keyed(&self) -> SipHash {
        self.keyed
    }

    /// The same, for resources and their hosts.
    pub(crate) fn keyed_for_resources(&self) -> SipHash {
        self.resources
    }

    pub(crate) fn separating(&self) -> &VaryNames {
        &self.separating
    }

    pub(crate) fn is_harmless_header(&self, name: &[u8]) -> bool {
        self.harmless_headers.iter().any(|pattern| pattern.matches(name))
    }
}

/// What a key is made of.
pub(crate) struct KeyParts<'a> {
    pub(crate) host: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) class: ConnectionClass,
    pub(crate) origin: Option<&'a [u8]>,
}

const TAG_REQUEST: u64 = 1;
const TAG_VARY: u64 = 2;

#[inline]
pub(crate) fn key(config: &KeyConfig, parts: &KeyParts<'_>) -> Key {
    let mut hash = config.keyed;
    hash.word(
        TAG_REQUEST
            | (parts.class as u64) << 8
            | (parts.host.len() as u64) << 16
            | (parts.target.len() as u64) << 32,
    );
    hash.word(parts.origin.map_or(0, |value| value.len() as u64 + 1));
    hash.padded(parts.host);
    hash.padded(parts.target);
    if let Some(origin) = parts.origin {
        hash.padded(origin);
    }
    Key(hash.finish())
}

/// The key of one variant of a resource whose replies carry `Vary: names` (RFC 9110 section
/// 12.5.5), from the request's own key and header fields. A field that comes several times counts
/// with all values in order.
pub fn vary_key(base: Key, names: &VaryNames, headers: &[Header<'_>], config: &KeyConfig) -> Key {
    let mut hash = config.keyed;
    hash.word(TAG_VARY);
    hash.padded(&base.0);
    for name in names.iter() {
        hash.word(name.len() as u64);
        hash.padded(name);
        for header in
            headers.iter().filter(|header| header.name.as_bytes().eq_ignore_ascii_case(name))
        {
            hash.word(header.value.len() as u64 + 1);
            hash.padded(header.value);
        }
        hash.word(0);
    }
    Key(hash.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const BASE: KeyParts<'static> = KeyParts {
        host: b"example.com",
        target: b"/index.html",
        class: ConnectionClass::Http11,
        origin: None,
    };

    #[test]
    fn a_separating_header_makes_another_key() {
        let plain = KeyConfig::new([7; 16]);
        let apart = KeyConfig::new([7; 16]).separate_by("User-Agent").expect("a name");
        let of = |config: &KeyConfig, agent: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n");
            let mut scratch = crate::HeaderScratch::new();
            match crate::parse_request(head.as_bytes(), &mut scratch, config) {
                crate::RequestOutcome::Complete(request) => request.key,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(&plain, "x"), of(&plain, "y"));
        assert_ne!(of(&apart, "x"), of(&apart, "y"));
        assert_eq!(of(&apart, "x"), of(&apart, "x"));
        assert!(KeyConfig::new([7; 16]).separate_by("no token").is_err());
    }

    #[test]
    fn every_part_counts() {
        let config = KeyConfig::new([7; 16]);
        let variants = [
            BASE,
            KeyParts { host: b"example.co", target: b"m/index.html", ..BASE },
            KeyParts { host: b"example.org", ..BASE },
            KeyParts { host: b"", ..BASE },
            KeyParts { target: b"/Index.html", ..BASE },
            KeyParts { target: b"/index.html\0", ..BASE },
            KeyParts { class: ConnectionClass::Http11Close, ..BASE },
            KeyParts { origin: Some(b""), ..BASE },
            KeyParts { origin: Some(b"gzip"), ..BASE },
        ];
        let keys: HashSet<Key> = variants.iter().map(|parts| key(&config, parts)).collect();
        assert_eq!(keys.len(), variants.len());
    }

    #[test]
    fn host_counts_as_spelled_and_the_secret_counts() {
        let config = KeyConfig::new([7; 16]);
        assert_ne!(key(&config, &BASE), key(&config, &KeyParts { host: b"EXAMPLE.Com", ..BASE }));
        assert_ne!(key(&config, &BASE), key(&KeyConfig::new([8; 16]), &BASE));
        assert_ne!(key(&config, &BASE).low_u64(), 0);
    }

    #[test]
    fn vary_counts_values_order_and_absence() {
        let config = KeyConfig::new([7; 16]);
        let names = VaryNames::from_list(&["user-agent", "cookie"]).unwrap();
        let header = |name, value| Header { name, value };
        let lists: &[&[Header<'_>]] = &[
            &[],
            &[header("User-Agent", b"a")],
            &[header("User-Agent", b"")],
            &[header("Cookie", b"a")],
            &[header("User-Agent", b"a"), header("User-Agent", b"b")],
            &[header("User-Agent", b"b"), header("User-Agent", b"a")],
            &[header("User-Agent", b"a"), header("Cookie", b"b")],
        ];
        let base = key(&config, &BASE);
        let keys: HashSet<Key> =
            lists.iter().map(|headers| vary_key(base, &names, headers, &config)).collect();
        assert_eq!(keys.len(), lists.len());
        assert!(!keys.contains(&base));
        let shuffled =
            [header("COOKIE", &b"b"[..]), header("Referer", b"x"), header("user-agent", b"a")];
        assert_eq!(
            vary_key(base, &names, &shuffled, &config),
            vary_key(base, &names, lists[6], &config)
        );
    }
}
