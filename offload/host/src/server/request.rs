//! What a request asks for (RFC 9112). Framing is decided by `nicache_http`, which refuses whatever
//! two parsers could read in two ways.

use nicache_http::{
    BypassReason, Conditional, Extent, HeaderScratch, KeyConfig, Method, RequestOutcome,
    parse_request,
};

/// Longest content of a request that is skipped; a longer one ends the connection.
const SKIPPED_BYTES_MAX: u64 = 64 << 10;
/// Header fields that are looked at.
const HEADERS_MAX: usize = 64;

/// A request for a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked<'a> {
    /// No body is wanted.
    pub is_head: bool,
    /// The path, decoded, without dots and double slashes; begins with a slash.
    pub path: Vec<u8>,
    /// The query with its question mark, as spelled.
    pub query: &'a [u8],
    /// Its preconditions.
    pub conditional: Conditional<'a>,
    /// The value of Range.
    pub range: Option<&'a [u8]>,
    /// The value of If-Range.
    pub if_range: Option<&'a [u8]>,
}

/// What the bytes at the start of a request are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// The head is not complete yet.
    Partial,
    /// A request.
    Request {
        /// Bytes of its head.
        len: usize,
        /// Bytes of content behind the head, which nobody wants.
        body: u64,
        /// Whether another request may follow.
        keep_alive: bool,
        /// The client wants `Connection: keep-alive` to be told: HTTP/1.0.
        is_old: bool,
        /// No reply to it has a body, whatever its status.
        is_head: bool,
        /// What for, or the status that refuses it.
        asked: Result<Asked<'a>, u16>,
    },
    /// Nobody can say where it ends.
    Lost {
        /// The status that says so.
        status: u16,
    },
}

/// Parses the request that begins at `bytes[0]`.
pub fn parse<'b>(bytes: &'b [u8], keys: &KeyConfig) -> Parsed<'b> {
    let mut scratch = HeaderScratch::new();
    let (len, body, method, keep_alive) = match parse_request(bytes, &mut scratch, keys) {
        RequestOutcome::Partial => return Parsed::Partial,
        RequestOutcome::Complete(request) => {
            (request.head_len, 0, request.method, request.keep_alive)
        }
        RequestOutcome::Bypass {
            extent: Extent::Head { len, body, method, keep_alive, expects_continue },
            ..
        } => {
            // A client refused before it sends the content need not send it (RFC 9110 section
            // 10.1.1): nobody knows what follows.
            (len, body, method, keep_alive && !(expects_continue && body > 0))
        }
        RequestOutcome::Bypass { reason, extent: Extent::Unknown, .. } => {
            return Parsed::Lost { status: status_of(reason) };
        }
    };
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut tokens = httparse::Request::new(&mut headers);
    if !matches!(tokens.parse(&bytes[..len]), Ok(httparse::Status::Complete(_))) {
        return Parsed::Lost { status: 400 };
    }
    let is_old = tokens.version == Some(0);
    let keep_alive = keep_alive && body <= SKIPPED_BYTES_MAX;
    let is_head = method == Method::Head;
    let asked = match method {
        Method::Get | Method::Head => ask(&tokens, is_head),
        _ => Err(405),
    };
    Parsed::Request { len, body, keep_alive, is_old, is_head, asked }
}

fn status_of(reason: BypassReason) -> u16 {
    match reason {
        BypassReason::HeadTooLong => 431,
        _ => 400,
    }
}

fn ask<'b>(tokens: &httparse::Request<'_, 'b>, is_head: bool) -> Result<Asked<'b>, u16> {
    let target = tokens.path.unwrap_or_default().as_bytes();
    let (path, query) = match target.iter().position(|&byte| byte == b'?') {
        Some(at) => target.split_at(at),
        None => (target, &b""[..]),
    };
    let mut asked = Asked { is_head, path: decode(path).ok_or(400u16)?, query, ..Asked::default() };
    for header in tokens.headers.iter() {
        let place = match header.name {
            name if name.eq_ignore_ascii_case("if-none-match") => {
                &mut asked.conditional.if_none_match
            }
            name if name.eq_ignore_ascii_case("if-modified-since") => {
                &mut asked.conditional.if_modified_since
            }
            name if name.eq_ignore_ascii_case("if-match") => &mut asked.conditional.if_match,
            name if name.eq_ignore_ascii_case("if-unmodified-since") => {
                &mut asked.conditional.if_unmodified_since
            }
            name if name.eq_ignore_ascii_case("range") => &mut asked.range,
            name if name.eq_ignore_ascii_case("if-range") => &mut asked.if_range,
            _ => continue,
        };
        // Lists in several lines would have to be joined; clients do not send them.
        if place.replace(header.value).is_some() {
            return Err(400);
        }
    }
    Ok(asked)
}

/// Decodes a path in origin or absolute form (RFC 3986 sections 2.1, 5.2.4). `None`: it is none, or
/// leads above the root.
fn decode(target: &[u8]) -> Option<Vec<u8>> {
    let path = match target {
        [b'/', ..] => target,
        _ => {
            let rest = ["http://", "https://"].iter().find_map(|scheme| {
                target
                    .get(..scheme.len())
                    .filter(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))?;
                target.get(scheme.len()..)
            })?;
            match rest.iter().position(|&byte| byte == b'/') {
                Some(at) => &rest[at..],
                None => b"/",
            }
        }
    };
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [byte, after @ ..] = rest {
        let (byte, after) = match (byte, after) {
            (b'%', [high, low, after @ ..]) => (hex(*high)? << 4 | hex(*low)?, after),
            (b'%', _) => return None,
            (byte, after) => (*byte, after),
        };
        if byte == 0 {
            return None;
        }
        decoded.push(byte);
        rest = after;
    }
    let mut names: Vec<&[u8]> = Vec::new();
    let mut is_folder = false;
    for name in decoded.split(|&byte| byte == b'/').skip(1) {
        is_folder = true;
        match name {
            b"" | b"." => {}
            b".." => {
                names.pop()?;
            }
            name => {
                names.push(name);
                is_folder = false;
            }
        }
    }
    let mut clean = Vec::with_capacity(decoded.len());
    for name in &names {
        clean.push(b'/');
        clean.extend_from_slice(name);
    }
    if is_folder || names.is_empty() {
        clean.push(b'/');
    }
    Some(clean)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> KeyConfig {
        KeyConfig::new([0; 16])
    }

    fn asked(text: &str) -> Result<Vec<u8>, u16> {
        match parse(text.as_bytes(), &keys()) {
            Parsed::Request { asked, .. } => asked.map(|asked| asked.path),
            Parsed::Lost { status } => Err(status),
            Parsed::Partial => panic!("{text:?} is partial"),
        }
    }

    fn get(target: &str) -> Result<Vec<u8>, u16> {
        asked(&format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n"))
    }

    #[test]
    fn paths_stay_below_the_root() {
        for (target, path) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("//a//b", "/a/b"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/..", "/"),
            ("/a%2fb", "/a/b"),
            ("/%61%20%2e%2e", "/a .."),
            ("/a?b=/../..", "/a"),
            ("http://x/a", "/a"),
            ("http://x", "/"),
        ] {
            assert_eq!(get(target), Ok(path.into()), "{target}");
        }
        for target in
            ["/..", "/a/../..", "/%2e%2e/x", "/..%2fx", "/a%00", "/a%0", "/a%zz", "x", "ftp://x/a"]
        {
            assert_eq!(get(target), Err(400), "{target}");
        }
    }

    #[test]
    fn what_nobody_can_frame_is_lost() {
        assert_eq!(asked("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"), Err(400));
        assert_eq!(asked("GET / HTTP/1.1\r\n\r\n"), Err(400));
        let both =
            "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(asked(both), Err(400));
        let long = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(70_000));
        assert_eq!(asked(&long), Err(431));
        assert_eq!(asked("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"), Err(405));
        assert_eq!(asked("GET / HTTP/1.1\r\nHost: x\r\nExpect: tea\r\n\r\n"), Err(400));
        assert_eq!(
            asked("GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\nRange: bytes=0-2\r\n\r\n"),
            Err(400)
        );
    }

    #[test]
    fn fields_are_found() {
        let text = "HEAD /a HTTP/1.1\r\nhost: x\r\nRANGE: bytes=1-2\r\nIf-Range: \"x\"\r\nConnection: close\r\n\r\n";
        let Parsed::Request { keep_alive, asked: Ok(asked), .. } = parse(text.as_bytes(), &keys())
        else {
            panic!()
        };
        assert!(!keep_alive && asked.is_head);
        assert_eq!((asked.range, asked.if_range), (Some(&b"bytes=1-2"[..]), Some(&b"\"x\""[..])));
    }

    #[test]
    fn a_reply_to_head_never_has_a_body() {
        for (text, wanted) in
            [("HEAD /a", true), ("HEAD /..", true), ("GET /..", false), ("POST /a", false)]
        {
            let text = format!("{text} HTTP/1.1\r\nHost: x\r\n\r\n");
            let Parsed::Request { is_head, .. } = parse(text.as_bytes(), &keys()) else {
                panic!("{text}")
            };
            assert_eq!(is_head, wanted, "{text}");
        }
    }

    /// Pieces that mean something in a target.
    const PIECES: [&str; 20] = [
        "/", "/", "a", "..", ".", "%2e", "%2E%2e", "%2f", "%5c", "\\", "%00", "%", "%2", "%252e",
        "?", "#", ";", "//", "http://x", "%ff",
    ];
    /// Lines of a head that are right, or nearly.
    const FIELDS: [&str; 18] = [
        "Host: y",
        "Host : x",
        "Content-Length: 3",
        "Content-Length: +3",
        "Content-Length: 3, 3",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: x",
        " folded",
        "Range: bytes=0-1",
        "Connection: close",
        "Connection: keep-alive, x",
        "X: \u{e9}",
        "X:\ty",
        "X: a\rb",
        ": y",
        "X",
    ];

    fn targets() -> impl Strategy<Value = String> {
        let pieces = proptest::collection::vec(proptest::sample::select(&PIECES), 0..12);
        (0u8..8, pieces).prop_map(|(first, pieces)| {
            if first > 0 { "/" } else { "" }.to_owned() + &pieces.concat()
        })
    }

    fn heads() -> impl Strategy<Value = String> {
        let one_of = |values: &'static [&'static str]| proptest::sample::select(values);
        let end = || prop_oneof![12 => Just("\r\n"), 1 => one_of(&["\n", "\r", "\r\n\r\n"])];
        let version = prop_oneof![6 => Just("HTTP/1.1"),
            1 => one_of(&["HTTP/1.0", "HTTP/2.0", "http/1.1", ""])];
        let start = (one_of(&["GET", "HEAD", "POST", "get", "CONNECT", "G@T"]), targets(), version);
        let host = prop_oneof![8 => Just("Host: x"), 1 => Just("X: y")];
        let lines = proptest::collection::vec((one_of(&FIELDS), end()), 0..4);
        let rest = one_of(&["\r\n", "\r\nGET / HTTP/1.1\r\n", "\n", ""]);
        (start, end(), host, end(), lines, rest).prop_map(
            |(start, first, host, second, lines, rest)| {
                let lines: String =
                    lines.into_iter().map(|(field, end)| format!("{field}{end}")).collect();
                format!("{} {} {}{first}{host}{second}{lines}{rest}", start.0, start.1, start.2)
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

        #[test]
        fn any_target(target: Vec<u8>, likely in targets()) {
            for target in [&target[..], likely.as_bytes()] {
                let Some(path) = decode(target) else { continue };
                prop_assert!(path.starts_with(b"/") && !path.contains(&0));
                let names: Vec<&[u8]> = path[1..].split(|&byte| byte == b'/').collect();
                let is_name = |name: &&[u8]| !name.is_empty() && *name != b"." && *name != b"..";
                prop_assert!(names[..names.len() - 1].iter().all(is_name), "{:?}", path);
                prop_assert!(!matches!(names.last(), Some(&(b"." | b".."))), "{:?}", path);
            }
        }

        /// What is a request here is one for httparse, of the same length and method; and it is the
        /// same one however much of what follows is there.
        #[test]
        fn requests_are_what_others_take_them_for(text in heads(), cut: proptest::sample::Index) {
            let bytes = text.as_bytes();
            let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
            let mut other = httparse::Request::new(&mut fields);
            let others = other.parse(bytes);
            match parse(bytes, &keys()) {
                Parsed::Request { len, body, is_head, ref asked, .. } => {
                    prop_assert_eq!(others, Ok(httparse::Status::Complete(len)));
                    let method = other.method.unwrap_or_default();
                    prop_assert_eq!(is_head, method == "HEAD");
                    prop_assert_eq!(
                        asked.as_ref().err() == Some(&405),
                        method != "GET" && method != "HEAD"
                    );
                    let is_length = |field: &&httparse::Header<'_>| {
                        field.name.eq_ignore_ascii_case("content-length")
                    };
                    let number =
                        |value: &[u8]| std::str::from_utf8(value).unwrap().parse::<u64>().unwrap();
                    let lengths = other.headers.iter().filter(is_length);
                    let lengths: Vec<u64> = lengths.map(|field| number(field.value)).collect();
                    prop_assert!(
                        lengths.iter().all(|length| *length == body)
                            && (body == 0 || !lengths.is_empty())
                    );
                    prop_assert_eq!(parse(&bytes[..len], &keys()), parse(bytes, &keys()));
                    prop_assert_eq!(parse(&bytes[..cut.index(len)], &keys()), Parsed::Partial);
                }
                Parsed::Partial => prop_assert_eq!(others, Ok(httparse::Status::Partial)),
                Parsed::Lost { .. } => {}
            }
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            parse(&bytes, &keys());
        }
    }
}
