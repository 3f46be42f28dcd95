//! The request by which the card itself asks the server for a page again: the same page, as another client would ask for it.
//!
//! What chose the reply stays (the request line, the fields of the key, those that `Vary` names); everything else that the first client said
//! about itself, cookies first of all, goes, and the card says something else instead, each time another thing, so that a reply that depends on it comes out different.

use crate::key::KeyConfig;
use crate::protocol::Method;
use crate::request::{HeaderScratch, RequestOutcome, parse_request};
use crate::vary::VaryNames;

macro_rules! agent {
    ($system:literal) => {
        concat!("Mozilla/5.0 (", $system, ") nicache/", env!("CARGO_PKG_VERSION"))
    };
}

/// What the card says about itself: a device, and a language.
const CLOTHES: [(&str, Option<&str>); 4] = [
    (agent!("iPhone; Mobile"), Some("de")),
    (agent!("X11; Linux x86_64"), Some("ja,en;q=0.5")),
    (concat!("nicache/", env!("CARGO_PKG_VERSION")), None),
    (agent!("Windows NT 10.0; Win64; x64"), Some("en-US,en;q=0.9")),
];

/// The head of the card's own request for what `head` asks for, in clothes that change with `turn`; with 0, another kind of device
/// than the client's. `None` if `head` is no GET that may be answered from card memory.
pub fn recheck_head(head: &[u8], vary: Option<&VaryNames>, keys: &KeyConfig, turn: u32) -> Option<Box<[u8]>> {
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(head, &mut scratch, keys) else { return None };
    if request.method != Method::Get || request.conditional.is_conditional() || request.range.is_some() {
        return None;
    }
    let line_end = head.windows(2).position(|two| two == b"\r\n")? + 2;
    let mut out = head[..line_end].to_vec();
    let chooses = |name: &[u8]| {
        const IN_KEY: [&[u8]; 5] = [b"host", b"accept", b"accept-encoding", b"origin", b"connection"];
        let named = |names: &VaryNames| names.iter().any(|wanted| wanted.eq_ignore_ascii_case(name));
        IN_KEY.iter().any(|known| known.eq_ignore_ascii_case(name))
            || named(keys.separating())
            || vary.is_some_and(named)
    };
    let is_mobile = |value: &[u8]| value.windows(4).any(|four| four == b"Mobi");
    let from_mobile =
        request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("user-agent") && is_mobile(header.value));
    let index = match turn {
        0 => usize::from(from_mobile),
        turn => turn as usize % CLOTHES.len(),
    };
    let (agent, language) = CLOTHES[index];
    let mut said = [false; 2];
    for header in request.headers.iter().filter(|header| chooses(header.name.as_bytes())) {
        said[0] |= header.name.eq_ignore_ascii_case("user-agent");
        said[1] |= header.name.eq_ignore_ascii_case("accept-language");
        out.extend_from_slice(header.name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(header.value);
        out.extend_from_slice(b"\r\n");
    }
    if !said[0] && !chooses(b"user-agent") {
        out.extend_from_slice(format!("User-Agent: {agent}\r\n").as_bytes());
    }
    if let Some(language) = language
        && !said[1]
        && !chooses(b"accept-language")
    {
        out.extend_from_slice(format!("Accept-Language: {language}\r\n").as_bytes());
    }
    let from_elsewhere = request.headers.iter().any(|header| header.name.eq_ignore_ascii_case("referer"));
    if !from_elsewhere && !chooses(b"referer") {
        out.extend_from_slice(b"Referer: http://nicache.invalid/\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Some(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    fn key(head: &[u8], keys: &KeyConfig) -> Key {
        match parse_request(head, &mut HeaderScratch::new(), keys) {
            RequestOutcome::Complete(request) => request.key,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_asks_for_the_same_as_somebody_else() {
        let keys = KeyConfig::new([7; 16]).allow_cookie("_ga*");
        let head = b"GET /p?a=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: Gadget\r\nAccept-Language: fr\r\nAccept: text/html\r\n\
            Accept-Encoding: gzip\r\nCookie: _ga=1\r\nReferer: http://b.example/\r\n\r\n";
        let mut seen = std::collections::HashSet::new();
        for turn in 0..CLOTHES.len() as u32 {
            let own = recheck_head(head, None, &keys, turn).unwrap();
            assert_eq!(key(&own, &keys), key(head, &keys));
            let text = String::from_utf8(own.into()).unwrap();
            for gone in ["Gadget", "fr", "Cookie", "Referer"] {
                assert!(!text.contains(gone), "{text}");
            }
            assert!(text.contains("nicache/"));
            seen.insert(text);
        }
        assert_eq!(seen.len(), CLOTHES.len());
    }

    #[test]
    fn what_selects_the_variant_stays() {
        let keys = KeyConfig::new([7; 16]);
        let names = VaryNames::from_list(&["user-agent", "accept-language", "referer"]).unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: Phone\r\nAccept-Language: de\r\n\r\n";
        let own = recheck_head(head, Some(&names), &keys, 1).unwrap();
        assert_eq!(&*own, head);
    }

    #[test]
    fn only_a_plain_get_is_asked_again() {
        let keys = KeyConfig::new([7; 16]);
        for head in [
            &b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: \"x\"\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n",
        ] {
            assert_eq!(recheck_head(head, None, &keys, 0), None);
        }
    }
}
