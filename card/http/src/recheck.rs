//! The request by which the card itself asks the server for a page again: the same page, as another
//! client would ask for it.
//!
//! What chose the reply stays (the request line, the fields of the key, those that `Vary` names);
//! everything else that the first client said about itself, cookies first of all, goes. What the
//! card says instead is what clients of some class have said ([`ClientClass`](crate::ClientClass)),
//! so the server treats it as it would treat them. Only `User-Agent` ends with the card's
//! name.

use std::borrow::Cow;

use crate::client_class::{OWN_MARK, without_own_mark};
use crate::key::KeyConfig;
use crate::own_value::{own_address, own_value};
use crate::protocol::Method;
use crate::request::{HeaderScratch, RequestOutcome, parse_request};
use crate::signs::keyed_value;
use crate::vary::VaryNames;

/// The head of the card's own request for what `head` asks for, which says nothing about who asks.
/// `None` if `head` is not a GET that may be answered from card memory.
pub fn recheck_head(head: &[u8], vary: Option<&VaryNames>, keys: &KeyConfig) -> Option<Box<[u8]>> {
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(head, &mut scratch, keys) else {
        return None;
    };
    if request.method != Method::Get
        || request.conditional.is_conditional()
        || request.range.is_some()
    {
        return None;
    }
    let line_end = head.windows(2).position(|two| two == b"\r\n")? + 2;
    let mut out = head[..line_end].to_vec();
    let own_address = own_address(request.key.low_u64()).to_string();
    for header in request.headers {
        const IN_KEY: [&[u8]; 3] = [b"host", b"origin", b"connection"];
        let (name, value) = (header.name.as_bytes(), header.value);
        let chooses = IN_KEY.iter().any(|known| known.eq_ignore_ascii_case(name))
            || keys.separating().has(name)
            || vary.is_some_and(|names| names.has(name));
        let value = match chooses {
            true => Some(Cow::Borrowed(value)),
            false if keys.is_harmless_header(name) => None,
            false => keyed_value(name, value, &own_address),
        };
        let Some(value) = value else { continue };
        out.extend_from_slice(name);
        out.extend_from_slice(b": ");
        out.extend_from_slice(&value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    Some(out.into())
}

/// A request of the card's own with header lines of a client, but for fields that it has already.
/// `lines`: each ends with CR LF. `seed`: what the card says of its own comes of it; another one
/// for each request.
pub fn with_class_headers(bare: &[u8], lines: &[u8], seed: u64) -> Box<[u8]> {
    let name_of = |line: &'_ [u8]| {
        line.iter().position(|byte| *byte == b':').map(|end| line[..end].to_ascii_lowercase())
    };
    let fields = bare.strip_suffix(b"\r\n").unwrap_or(bare);
    let has = |name: &[u8]| {
        fields
            .split_inclusive(|byte| *byte == b'\n')
            .skip(1)
            .any(|line| name_of(line).as_deref() == Some(name))
    };
    let mut out = fields.to_vec();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        let Some(name) = name_of(line).filter(|name| !has(name)) else { continue };
        let Some(line) = line.strip_suffix(b"\r\n") else { continue };
        let value = line[(name.len() + 1).min(line.len())..].trim_ascii();
        if name == b"user-agent" {
            out.extend_from_slice(&line[..name.len()]);
            out.extend_from_slice(b": ");
            // Once is enough: with a second mark it would be another class. And a client may name
            // no program.
            let agent = without_own_mark(value);
            out.extend_from_slice(agent);
            if !agent.is_empty() {
                out.push(b' ');
            }
            out.extend_from_slice(OWN_MARK.as_bytes());
        } else if let Some(own) = own_value(&name, value, seed) {
            out.extend_from_slice(&line[..name.len()]);
            out.extend_from_slice(b": ");
            out.extend_from_slice(&own);
        } else {
            out.extend_from_slice(line);
        }
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
    out.into()
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
        let bare = recheck_head(head, None, &keys).unwrap();
        assert_eq!(key(&bare, &keys), key(head, &keys));
        let text = String::from_utf8(bare.to_vec()).unwrap();
        for gone in ["Gadget", "fr", "Cookie", "Referer"] {
            assert!(!text.contains(gone), "{text}");
        }
        let own = with_class_headers(&bare, b"User-Agent: Thing 2\r\nAccept-Language: de\r\n", 1);
        assert_eq!(key(&own, &keys), key(head, &keys));
        let text = String::from_utf8(own.to_vec()).unwrap();
        assert!(
            text.contains(&format!("User-Agent: Thing 2 {OWN_MARK}\r\n"))
                && text.ends_with("Accept-Language: de\r\n\r\n"),
            "{text}"
        );
        let marked = format!("User-Agent: Thing 2 {OWN_MARK}\r\nAccept-Language: de\r\n");
        assert_eq!(
            with_class_headers(&bare, marked.as_bytes(), 1),
            own,
            "the card's name is there once"
        );
    }

    #[test]
    fn what_selects_the_variant_stays() {
        let keys = KeyConfig::new([7; 16]);
        let names = VaryNames::from_list(&["user-agent", "accept-language", "referer"]).unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nUser-Agent: Phone\r\nAccept-Language: de\r\n\r\n";
        let bare = recheck_head(head, Some(&names), &keys).unwrap();
        assert_eq!(&*bare, head);
        assert_eq!(
            &*with_class_headers(&bare, b"user-agent: Other\r\nACCEPT-LANGUAGE: fr\r\n", 1),
            head
        );
    }

    #[test]
    fn behind_a_proxy_it_says_another_client() {
        let keys = KeyConfig::new([7; 16]).separate_by("X-Country").unwrap();
        let head = b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nX-Forwarded-For: 198.18.0.1\r\nX-Country: DE\r\n\
            Forwarded: for=198.18.0.1;proto=https\r\nX-Request-Id: 4bf92f3577b34da6\r\nX-B3-Sampled: 1\r\nVia: 1.1 b\r\n\r\n";
        let bare = recheck_head(head, None, &keys).unwrap();
        let own = with_class_headers(&bare, &crate::trait_lines(head, crate::Trait::Proxy), 5);
        let text = String::from_utf8(own.to_vec()).unwrap();
        for kept in [
            "X-Forwarded-Proto: https",
            "X-Country: DE",
            ";proto=https",
            "X-B3-Sampled: 1",
            "Via: 1.1 b",
        ] {
            assert!(text.contains(kept), "{text}");
        }
        assert!(!text.contains("198.18.0.1") && !text.contains("4bf92f3577b34da6"), "{text}");
        assert_eq!(key(&own, &keys), key(head, &keys));
        let parsed = |head: &[u8]| {
            let mut scratch = HeaderScratch::new();
            let RequestOutcome::Complete(request) = parse_request(head, &mut scratch, &keys) else {
                panic!()
            };
            crate::Tokens::of(request.headers, &keys)
        };
        assert!(parsed(head).are_apart(&parsed(&own)) && parsed(&own).has_address());
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
            assert_eq!(recheck_head(head, None, &keys), None);
        }
    }
}
