//! Kinds of clients that servers tell apart, whether or not they say so in `Vary`: by where a
//! request comes from (hotlink protection), by language, by the kind of program, by what it
//! accepts.
//!
//! A client has one class in each of a few *traits*. What a trait does not look at (the path in
//! `Referer`, version numbers in `User-Agent`, weights in `Accept-Language`) it takes for the same.

use httparse::Header;

use crate::coding;
use crate::head::is_name;
use crate::intermediary::{Added, added};
use crate::key::{Key, KeyConfig};
use crate::own_value::faceless;
use crate::siphash::SipHash;

/// What clients are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Trait {
    /// Where the link was: scheme and host of `Referer`, and whether there is one.
    Origin,
    /// What the browser fetches and for whom: `Sec-Fetch-*` and the like.
    Fetch,
    /// Languages and character sets, in order, without weights.
    Language,
    /// Kind of program and device: `User-Agent` and client hints without numbers.
    Agent,
    /// Kinds of content: the whole value of `Accept`.
    Accept,
    /// Codings of content: `Accept-Encoding`, canonical where it is a plain list.
    Coding,
    /// The proxy that sends the request, and which fields it adds ([`Signs`](crate::Signs)).
    Proxy,
}

impl Trait {
    /// All traits.
    pub const ALL: [Self; 7] = [
        Self::Origin,
        Self::Fetch,
        Self::Language,
        Self::Agent,
        Self::Accept,
        Self::Coding,
        Self::Proxy,
    ];

    /// The trait's name for an operator.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Origin => "Referer (host)",
            Self::Fetch => "Sec-Fetch-*",
            Self::Language => "Accept-Language",
            Self::Agent => "User-Agent (kind)",
            Self::Accept => "Accept",
            Self::Coding => "Accept-Encoding",
            Self::Proxy => "the proxy in front",
        }
    }

    /// The trait that a header field belongs to, but for some of [`Trait::Proxy`].
    #[inline]
    fn of_header(name: &[u8]) -> Option<Self> {
        Some(match name.len() {
            3 if is_name(name, b"dnt") => Self::Agent,
            6 if is_name(name, b"accept") => Self::Accept,
            6 if is_name(name, b"pragma") => Self::Fetch,
            7 if is_name(name, b"referer") => Self::Origin,
            8 if is_name(name, b"priority") => Self::Fetch,
            10 if is_name(name, b"user-agent") => Self::Agent,
            10 if is_name(name, b"keep-alive") => Self::Fetch,
            13 if is_name(name, b"cache-control") => Self::Fetch,
            14 if is_name(name, b"accept-charset") => Self::Language,
            15 if is_name(name, b"accept-language") => Self::Language,
            15 if is_name(name, b"accept-encoding") => Self::Coding,
            25 if is_name(name, b"upgrade-insecure-requests") => Self::Fetch,
            _ if begins(name, b"sec-fetch-") || begins(name, b"sec-purpose") => Self::Fetch,
            _ if begins(name, b"sec-") => Self::Agent,
            _ if is_of_few(name) => return Self::among_added(name),
            _ => return None,
        })
    }

    /// The trait of a field that few clients or only proxies send.
    fn among_added(name: &[u8]) -> Option<Self> {
        match added(name)? {
            Added::Agent => Some(Self::Agent),
            Added::Fetch => Some(Self::Fetch),
            Added::Address | Added::Mark | Added::Baggage => Some(Self::Proxy),
            Added::Exact | Added::Route | Added::Forwarded => None,
        }
    }
}

/// May it be a field of [`Added::Agent`] or [`Added::Fetch`]? By the first letter, which hardly any
/// other field has.
#[inline]
fn is_of_few(name: &[u8]) -> bool {
    name.first().is_some_and(|first| matches!(first | 0x20, b'd' | b'f' | b'p' | b'x'))
}

fn begins(name: &[u8], lower: &[u8]) -> bool {
    name.len() >= lower.len() && name[..lower.len()].eq_ignore_ascii_case(lower)
}

/// The class of a client in each trait, by a keyed hash; 0 where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientClass(pub [u32; Trait::ALL.len()]);

impl ClientClass {
    /// The class in one trait.
    #[inline]
    pub fn of(&self, of: Trait) -> u32 {
        self.0[of as usize]
    }
}

/// The key of a variant of a page that the server keeps for clients of some class, in the traits
/// that `counts` says.
pub fn class_key(
    base: Key,
    class: ClientClass,
    counts: impl Fn(Trait) -> bool,
    keys: &KeyConfig,
) -> Key {
    const TAG_CLASS_KEY: u64 = 6;
    let mut hash = keys.keyed();
    hash.word(TAG_CLASS_KEY);
    hash.padded(&base.0);
    for of in Trait::ALL.into_iter().filter(|of| counts(*of)) {
        hash.word(of as u64 | u64::from(class.of(of)) << 8);
    }
    Key(hash.finish())
}

/// The header lines of a request's head that belong to a trait: as sent, but nobody's where they
/// would say whose request it is.
pub fn trait_lines(head: &[u8], of: Trait) -> Vec<u8> {
    let mut out = Vec::new();
    for line in head.split_inclusive(|byte| *byte == b'\n').skip(1) {
        let name_len = line.iter().position(|byte| *byte == b':').unwrap_or(0);
        let name = &line[..name_len];
        if Trait::of_header(name).or_else(|| Trait::among_added(name)) != Some(of) {
            continue;
        }
        if of != Trait::Proxy {
            out.extend_from_slice(line);
        } else if let Some(value) = faceless(name, line[name_len + 1..].trim_ascii()) {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
    }
    out
}

/// The class of the client that sent these fields to `host`, but for [`Trait::Proxy`]
/// ([`Signs::class`](crate::Signs::class)).
pub fn client_class(headers: &[Header<'_>], host: &[u8], keys: &KeyConfig) -> ClientClass {
    let mut class = ClientClass([0; Trait::ALL.len()]);
    for header in headers {
        let name = header.name.as_bytes();
        let Some(of) = Trait::of_header(name) else { continue };
        let mut words = Words::new(keys.keyed(), name);
        match of {
            Trait::Origin => origin(header.value, host, &mut words),
            Trait::Language => language(header.value, &mut words),
            Trait::Agent => without_numbers(without_own_mark(header.value), &mut words),
            Trait::Fetch | Trait::Accept => words.all(header.value),
            Trait::Coding => words.all(coding::canonical(header.value, &mut [0; _])),
            Trait::Proxy => continue,
        }
        // In any order.
        class.0[of as usize] = class.0[of as usize].wrapping_add(words.finish());
    }
    class
}

/// Bytes that are hashed as they come.
struct Words {
    hash: SipHash,
    word: u64,
    filled: u32,
    len: u64,
}

impl Words {
    fn new(mut hash: SipHash, name: &[u8]) -> Self {
        const TAG_CLASS: u64 = 5;
        hash.word(TAG_CLASS | (name.len() as u64) << 8);
        hash.padded_lower(name);
        Self { hash, word: 0, filled: 0, len: 0 }
    }

    #[inline]
    fn byte(&mut self, byte: u8) {
        self.word |= u64::from(byte) << (8 * self.filled);
        self.filled += 1;
        self.len += 1;
        if self.filled == 8 {
            self.hash.word(self.word);
            (self.word, self.filled) = (0, 0);
        }
    }

    fn all(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.byte(byte.to_ascii_lowercase()));
    }

    fn finish(mut self) -> u32 {
        self.hash.word(self.word);
        self.hash.word(self.len);
        let hash = self.hash.finish();
        u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

/// Scheme and host; one word for the site's own pages; a value of another form as it is.
fn origin(value: &[u8], host: &[u8], words: &mut Words) {
    let after_scheme = value.windows(3).position(|three| three == b"://").map(|at| at + 3);
    let Some(from) = after_scheme.filter(|from| *from <= 8) else {
        words.byte(b'?');
        return words.all(value);
    };
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = value[from..].iter().position(is_end).map_or(value.len(), |at| from + at);
    if value[from..end].eq_ignore_ascii_case(host) {
        words.byte(b'=');
        words.all(&value[..from]);
    } else {
        words.byte(b'/');
        words.all(&value[..end]);
    }
}

/// The list without its weights.
fn language(value: &[u8], words: &mut Words) {
    for item in value.split(|byte| *byte == b',') {
        let tag = item.split(|byte| *byte == b';').next().unwrap_or_default();
        words.all(tag.trim_ascii());
        words.byte(b',');
    }
}

/// What the card adds to `User-Agent` in its own requests, after a blank if the client has named
/// itself.
pub(crate) const OWN_MARK: &str = concat!("nicache/", env!("CARGO_PKG_VERSION"));

pub(crate) fn without_own_mark(value: &[u8]) -> &[u8] {
    match value.strip_suffix(OWN_MARK.as_bytes()) {
        Some(b"") => b"",
        Some(before) => before.strip_suffix(b" ").unwrap_or(value),
        None => value,
    }
}

/// Each number, with its dots and underscores, counts as one that is not there.
fn without_numbers(value: &[u8], words: &mut Words) {
    let mut in_number = false;
    for byte in value {
        in_number = byte.is_ascii_digit() || in_number && matches!(byte, b'.' | b'_');
        if !in_number {
            words.byte(byte.to_ascii_lowercase());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn class(fields: &[(&str, &str)]) -> ClientClass {
        let headers: Vec<Header<'_>> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        client_class(&headers, b"shop.example", &KeyConfig::new([7; 16]))
    }

    /// In which traits the two differ.
    fn differ(one: &[(&str, &str)], other: &[(&str, &str)]) -> Vec<Trait> {
        let (one, other) = (class(one), class(other));
        Trait::ALL.into_iter().filter(|of| one.0[*of as usize] != other.0[*of as usize]).collect()
    }

    #[test]
    fn what_is_told_apart_and_what_is_not() {
        const CHROME: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36";
        const NEWER: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36";
        const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Mobile/15E148 Safari/604.1";
        let apart: [(&str, &str, &str, Trait); 15] = [
            ("Referer", "http://shop.example/a", "http://evil.example/a", Trait::Origin),
            ("Referer", "http://shop.example/a", "https://shop.example/a", Trait::Origin),
            ("Referer", "http://shop.example/a", "", Trait::Origin),
            ("Referer", "blocked", "evil", Trait::Origin),
            ("Sec-Fetch-Site", "none", "cross-site", Trait::Fetch),
            ("Sec-Fetch-Dest", "image", "document", Trait::Fetch),
            ("Accept-Language", "de,en;q=0.5", "en,de;q=0.5", Trait::Language),
            ("Accept-Language", "pt-BR", "pt-PT", Trait::Language),
            ("User-Agent", CHROME, PHONE, Trait::Agent),
            ("User-Agent", CHROME, "curl/7.88.1", Trait::Agent),
            ("User-Agent", "wget", "", Trait::Agent),
            ("Sec-CH-UA-Platform", "\"Linux\"", "\"Android\"", Trait::Agent),
            ("Accept", "text/html", "text/html, image/webp", Trait::Accept),
            ("Accept-Encoding", "gzip, br", "br, gzip", Trait::Coding),
            ("Accept-Encoding", "gzip;q=1", "gzip; q=1", Trait::Coding),
        ];
        for (name, one, other, of) in apart {
            assert_eq!(differ(&[(name, one)], &[(name, other)]), [of], "{name}: {one}, {other}");
            assert_eq!(differ(&[(name, one)], &[]), [of], "{name}: {one}");
        }
        for (name, one, other) in [
            ("Referer", "http://shop.example/a", "http://SHOP.example/b?c=d"),
            ("Referer", "http://evil.example/a", "http://evil.example"),
            ("Accept-Language", "de, en;q=0.5", "de,en;q=0.9"),
            ("User-Agent", CHROME, NEWER),
            ("User-Agent", "curl/7.88.1", "curl/8.5.0"),
            ("Accept-Encoding", "gzip, br", "GZIP,br"),
            ("Origin", "a", "b"),
        ] {
            assert_eq!(differ(&[(name, one)], &[(name, other)]), [], "{name}: {one}, {other}");
        }
        assert_eq!(
            differ(&[("User-Agent", &format!("{CHROME} {OWN_MARK}"))], &[("User-Agent", CHROME)]),
            []
        );
        assert_eq!(differ(&[("User-Agent", OWN_MARK)], &[("User-Agent", "")]), []);
        assert_eq!(
            differ(
                &[("User-Agent", "a"), ("Sec-GPC", "x")],
                &[("Sec-GPC", "x"), ("User-Agent", "a")]
            ),
            []
        );
    }

    #[test]
    fn a_variant_counts_what_it_is_said_to() {
        let keys = KeyConfig::new([7; 16]);
        let base = Key([3; 16]);
        let (one, other) = (ClientClass([1, 2, 3, 4, 6, 7, 5]), ClientClass([1, 2, 3, 5, 6, 7, 5]));
        let key =
            |class, counted: &[Trait]| class_key(base, class, |of| counted.contains(&of), &keys);
        assert_eq!(key(one, &[Trait::Origin]), key(other, &[Trait::Origin]));
        assert_ne!(key(one, &[Trait::Agent]), key(other, &[Trait::Agent]));
        assert_ne!(key(one, &[Trait::Origin]), key(one, &[Trait::Fetch]));
    }

    #[test]
    fn lines_of_a_trait() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nDNT: 1\r\nReferer: b\r\nuser-agent: c\r\n\r\n";
        assert_eq!(trait_lines(head, Trait::Agent), b"DNT: 1\r\nuser-agent: c\r\n");
        assert_eq!(trait_lines(head, Trait::Origin), b"Referer: b\r\n");
        assert_eq!(trait_lines(head, Trait::Language), b"");
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 b\r\nX-Real-IP: 10.1.2.3\r\nX-Request-ID: a1b2c3d4\r\n\r\n";
        let lines = String::from_utf8(trait_lines(head, Trait::Proxy)).unwrap();
        assert!(
            lines.starts_with("X-Real-IP: ")
                && lines.contains("\r\nX-Request-ID: ")
                && lines.lines().count() == 2
        );
        for (name, kind) in crate::intermediary::all() {
            assert!(
                !matches!(kind, Added::Agent | Added::Fetch) || is_of_few(name),
                "{}",
                name.escape_ascii()
            );
        }
        assert!(!lines.contains("10.1.2.3") && !lines.contains("a1b2c3d4"), "{lines}");
    }

    proptest! {
        #[test]
        fn any_value_has_a_class(
            name in prop::sample::select(vec!["Referer", "User-Agent", "Accept-Language",
                "Sec-Fetch-Site", "Accept", "Accept-Encoding"]),
            value in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let headers = [Header { name, value: &value }];
            client_class(&headers, b"a", &KeyConfig::new([7; 16]));
        }
    }
}
