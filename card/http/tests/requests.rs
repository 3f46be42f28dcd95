//! Requests, ordinary and nasty: what is a candidate for a hit, what bypasses with a known end,
//! what makes the rest of the connection opaque.

mod exercise;

use BypassReason as R;
use exercise::{Seen, config, see_request};
use nicache_http::*;

const WRK: &str = "GET /index.html HTTP/1.1\r\nHost: example.com\r\n\r\n";

fn complete(text: &str) -> Key {
    exercise::request(text.as_bytes());
    match see_request(text.as_bytes()) {
        Seen::Complete { key, .. } => key,
        other => panic!("{}: {other:?}", text.escape_debug()),
    }
}

/// A request with these lines behind its Host.
fn with(lines: &str) -> String {
    format!("GET /index.html HTTP/1.1\r\nHost: example.com\r\n{lines}\r\n")
}

#[test]
fn a_plain_request_in_all_its_parts() {
    let text = "HEAD /a?b=c HTTP/1.1\r\nHost: Example.com:8080\r\nConnection: close\r\nIf-None-Match: \"x\"\r\n\
                If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\nGET /next";
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(text.as_bytes(), &mut scratch, &config())
    else {
        panic!("not complete");
    };
    assert_eq!(request.head_len, text.len() - "GET /next".len());
    assert_eq!(request.method, Method::Head);
    assert_eq!(request.version, Version::Http11);
    assert_eq!(request.target, b"/a?b=c");
    assert_eq!(request.host, b"Example.com:8080");
    assert_eq!(request.connection, ConnectionClass::Http11Close);
    assert!(!request.keep_alive);
    assert_eq!(request.conditional.if_none_match, Some(&b"\"x\""[..]));
    assert_eq!(request.conditional.if_modified_since, Some(&b"Sun, 06 Nov 1994 08:49:37 GMT"[..]));
    assert_eq!(request.headers.len(), 4);
}

#[test]
fn one_scratch_serves_pipelined_requests() {
    let text = WRK.repeat(3);
    let mut rest = text.as_bytes();
    let mut count = 0;
    let mut scratch = HeaderScratch::new();
    while let RequestOutcome::Complete(request) = parse_request(rest, &mut scratch, &config()) {
        let head_len = request.head_len;
        rest = &rest[head_len..];
        count += 1;
    }
    assert_eq!((count, rest.len()), (3, 0));
}

#[test]
fn requests_of_real_clients_are_candidates() {
    for text in [
        WRK.to_owned(),
        "GET / HTTP/1.0\r\n\r\n".to_owned(),
        "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: 127.0.0.1\r\nUser-Agent: ApacheBench/2.3\r\nAccept: */*\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: [::1]:80\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n".to_owned(),
        "GET /x HTTP/1.1\r\nUser-Agent: Wget/1.21.3\r\nAccept: */*\r\nAccept-Encoding: identity\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\nHost: a.org\r\nConnection: keep-alive\r\nCache-Control: max-age=0\r\nsec-ch-ua: \"Chromium\";v=\"142\"\r\n\
         sec-ch-ua-mobile: ?0\r\nUpgrade-Insecure-Requests: 1\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html,*/*;q=0.8\r\n\
         Sec-Fetch-Site: none\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\nDNT: 1\r\nPriority: u=0, i\r\n\r\n".to_owned(),
        with("Cookie: _ga=1; _ga_X=2\r\n"),
        with("X-Harmless: yes\r\n"),
        with("user-agent:no space\r\nReferer:\r\nPragma: \r\n"),
        with("User-Agent: tab\tinside and \u{e9}\r\n"),
    ] {
        complete(&text);
    }
}

#[test]
fn the_key_is_what_may_change_the_reply() {
    let base = complete(WRK);
    assert_eq!(base, complete(&WRK.replace("GET", "HEAD")));
    assert_eq!(base, complete(&WRK.replace("Host", "hOST")));
    for same in [
        "User-Agent: x\r\n",
        "If-None-Match: \"a\"\r\n",
        "Cookie: _ga=7\r\n",
        "Cache-Control: no-cache\r\n",
        // Traits of the client.
        "Accept: gzip\r\n",
        "Accept-Encoding: gzip\r\n",
    ] {
        assert_eq!(base, complete(&with(same)), "{same}");
    }
    let mut others = vec![
        base,
        complete(&WRK.replace("index.html", "index.htm")),
        complete(&WRK.replace("index.html", "%69ndex.html")),
        complete(&WRK.replace("/index.html", "/./index.html")),
        complete(&WRK.replace("/index.html", "//index.html")),
        complete(&WRK.replace("/index.html", "/index.html?")),
        complete(&WRK.replace("example.com", "EXAMPLE.COM")),
        complete(&WRK.replace("example.com", "example.com:80")),
        complete(&WRK.replace("example.com", "example.com.")),
        complete(&WRK.replace("HTTP/1.1", "HTTP/1.0")),
    ];
    for lines in
        ["Connection: close\r\n", "Connection: keep-alive\r\n", "Origin: gzip\r\n", "Origin:\r\n"]
    {
        others.push(complete(&with(lines)));
    }
    let count = others.len();
    others.sort();
    others.dedup();
    assert_eq!(others.len(), count);
}

#[test]
fn unusual_requests_bypass_and_their_end_is_known() {
    let get = |keep_alive| (Method::Get, 0, keep_alive);
    let cases: Vec<(String, BypassReason, (Method, u64, bool))> = vec![
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello".into(),
            R::Method,
            (Method::Other, 5, true),
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::Method, (Method::Other, 0, true)),
        (
            "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx".into(),
            R::Method,
            (Method::Other, 1, false),
        ),
        (
            "DELETE /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".into(),
            R::Method,
            (Method::Other, 0, false),
        ),
        ("get / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::Method, (Method::Other, 0, true)),
        ("GETX / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::Method, (Method::Other, 0, true)),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::Method, (Method::Other, 0, true)),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetAsterisk, get(true)),
        ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetAbsolute, get(true)),
        ("GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetAbsolute, get(true)),
        ("GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetAuthority, get(true)),
        ("GET index.html HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetAuthority, get(true)),
        ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetFragment, get(true)),
        ("GET /a\"b HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetByte, get(true)),
        ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::TargetByte, get(true)),
        (with("Content-Length: 0\r\n"), R::Body, get(true)),
        (with("Content-Length: 7\r\n"), R::Body, (Method::Get, 7, true)),
        (with("Connection: TE\r\n"), R::ConnectionOption, get(true)),
        (with("Connection: keep-alive, close\r\n"), R::ConnectionOption, get(false)),
        (with("Connection: close\r\nConnection: close\r\n"), R::ConnectionOption, get(false)),
        (with("Range: bytes=0-1\r\nRange: bytes=0-1\r\n"), R::DuplicateHeader, get(true)),
        (with("If-Range: \"a\"\r\nIf-Range: \"a\"\r\n"), R::DuplicateHeader, get(true)),
        (with("Authorization: Basic x\r\n"), R::Authorization, get(true)),
        (with("Proxy-Authorization: x\r\n"), R::Authorization, get(true)),
        (with("Cookie: sid=1\r\n"), R::Cookie, get(true)),
        (with("Cookie: _ga=1; sid=1\r\n"), R::Cookie, get(true)),
        (with("Cookie: _ga=1\r\nCookie: sid=1\r\n"), R::Cookie, get(true)),
        (with("If-Match: *\r\nIf-Match: *\r\n"), R::DuplicateHeader, get(true)),
        (
            with("If-Unmodified-Since: x\r\nIf-Unmodified-Since: x\r\n"),
            R::DuplicateHeader,
            get(true),
        ),
        (with("Expect: 100-continue\r\n"), R::Expect, get(true)),
        (with("Accept: a\r\nAccept: b\r\n"), R::DuplicateHeader, get(true)),
        (with("If-None-Match: \"a\"\r\nIf-None-Match: \"b\"\r\n"), R::DuplicateHeader, get(true)),
        (with("X-Forwarded-User: joe\r\n"), R::UnknownHeader, get(true)),
        (with("X-Forwarded-Client-Cert: Hash=1\r\n"), R::UnknownHeader, get(true)),
        (with("X-Original-URL: /admin\r\n"), R::UnknownHeader, get(true)),
        (with("X-HTTP-Method-Override: POST\r\n"), R::UnknownHeader, get(true)),
        (with("X-Odd: 1\r\n"), R::UnknownHeader, get(true)),
        (with("User-Agent:  two spaces\r\n"), R::OddWhitespace, get(true)),
        (with("User-Agent:\ttab\r\n"), R::OddWhitespace, get(true)),
        (with("User-Agent: trailing \r\n"), R::OddWhitespace, get(true)),
        (with("User-Agent: trailing\t\r\n"), R::OddWhitespace, get(true)),
        (with("Accept:    \r\n"), R::OddWhitespace, get(true)),
        ("GET / HTTP/1.1\r\nHost:\ta\r\n\r\n".into(), R::OddWhitespace, get(true)),
    ];
    for (text, reason, (method, body, keep_alive)) in cases {
        exercise::request(text.as_bytes());
        let len = text.find("\r\n\r\n").unwrap() + 4;
        let expects_continue = text.contains("Expect");
        let expected =
            Seen::Bypass(reason, Extent::Head { len, body, method, keep_alive, expects_continue });
        assert_eq!(see_request(text.as_bytes()), expected, "{}", text.escape_debug());
    }
}

#[test]
fn doubtful_requests_make_the_connection_opaque() {
    let cases: Vec<(Vec<u8>, BypassReason)> = vec![
        // RFC 9112 section 6.3: CL.CL
        (with("Content-Length: 5\r\nContent-Length: 6\r\n").into(), R::ContentLength),
        (with("Content-Length: 5\r\nContent-Length: 5\r\n").into(), R::ContentLength),
        (with("Content-Length: 5, 5\r\n").into(), R::ContentLength),
        (with("Content-Length: +5\r\n").into(), R::ContentLength),
        (with("Content-Length: -1\r\n").into(), R::ContentLength),
        (with("Content-Length: 0x10\r\n").into(), R::ContentLength),
        (with("Content-Length: 010\r\n").into(), R::ContentLength),
        (with("Content-Length: 1 0\r\n").into(), R::ContentLength),
        (with("Content-Length:\r\n").into(), R::ContentLength),
        (with("Content-Length:\t5\r\n").into(), R::ContentLength),
        (with("Content-Length: 5 \r\n").into(), R::ContentLength),
        (with("Content-Length: 18446744073709551621\r\n").into(), R::ContentLength),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5;\r\n\r\n".into(), R::ContentLength),
        // RFC 9112 section 6.1: CL.TE, TE.CL, TE.TE and disguises
        (with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").into(), R::TransferEncoding),
        (with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n").into(), R::TransferEncoding),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            R::TransferEncoding,
        ),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(),
            R::TransferEncoding,
        ),
        (with("Transfer-Encoding: identity\r\n").into(), R::TransferEncoding),
        (with("Transfer-Encoding: xchunked\r\n").into(), R::TransferEncoding),
        (with("Transfer-Encoding: chunked, identity\r\n").into(), R::TransferEncoding),
        (
            with("Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n").into(),
            R::TransferEncoding,
        ),
        (with("Transfer-Encoding:\tchunked\r\n").into(), R::TransferEncoding),
        (with("Transfer-Encoding:\u{b}chunked\r\n").into(), R::ControlByte),
        (with("transfer-ENCODING: \"chunked\"\r\n").into(), R::TransferEncoding),
        (with("Transfer-Encoding : chunked\r\n").into(), R::SpaceBeforeColon),
        (with("Transfer-Encoding\t: chunked\r\n").into(), R::SpaceBeforeColon),
        (with(" Transfer-Encoding: chunked\r\n").into(), R::ObsFold),
        (with("Transfer-Encoding\r\n : chunked\r\n").into(), R::ObsFold),
        (with("X: y\nTransfer-Encoding: chunked\r\n").into(), R::BareLineBreak),
        (with("X: y\rTransfer-Encoding: chunked\r\n").into(), R::BareLineBreak),
        (with("Content-Length : 5\r\n").into(), R::SpaceBeforeColon),
        // RFC 9112 section 2.2: line ends
        ("GET / HTTP/1.1\nHost: a\n\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\nHost: a\r\n\r\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\r\nHost: a\n\r\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\r\nHost: a\r\n\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\r\nHost: a\r\nAccept: \n\r\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\r\nHost: a \n\r\n".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\r\nHost: a\r\n\rX".into(), R::BareLineBreak),
        ("GET / HTTP/1.1\rX".into(), R::BareLineBreak),
        ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::LeadingEmptyLine),
        ("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::LeadingEmptyLine),
        ("\r".into(), R::LeadingEmptyLine),
        // RFC 9112 section 5.2: folding
        (with("User-Agent: a\r\n b\r\n").into(), R::ObsFold),
        (with("User-Agent: a\r\n\tb\r\n").into(), R::ObsFold),
        ("GET / HTTP/1.1\r\n Host: a\r\n\r\n".into(), R::ObsFold),
        // RFC 9112 section 3: request line
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::RequestLine),
        ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::RequestLine),
        ("GET /\tHTTP/1.1\r\nHost: a\r\n\r\n".into(), R::RequestLine),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::RequestLine),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n".into(), R::BareLineBreak),
        ("GET /\r\n".into(), R::RequestLine),
        ("GET / x HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        (b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), R::RequestLine),
        ("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n".into(), R::RequestLine),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), R::RequestLine),
        // RFC 9112 section 2.3: versions
        ("GET / HTTP/1.2\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        ("GET / HTTP/0.9\r\n\r\n".into(), R::HttpVersion),
        ("GET / http/1.1\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        ("GET / HTTP/01.1\r\nHost: a\r\n\r\n".into(), R::HttpVersion),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), R::HttpVersion),
        // RFC 9110 section 5: names and values
        (with("User-Agent: a\0b\r\n").into(), R::ControlByte),
        (with("User-Agent: a\u{7f}b\r\n").into(), R::ControlByte),
        (with("User-Agent: a\u{1}b\r\n").into(), R::ControlByte),
        (with("User\0Agent: a\r\n").into(), R::ControlByte),
        (with("no colon\r\n").into(), R::HeaderName),
        (with(": empty name\r\n").into(), R::HeaderName),
        (with("User(Agent): a\r\n").into(), R::HeaderName),
        (with("Ho\u{e9}st: a\r\n").into(), R::HeaderName),
        // RFC 9112 section 3.2: Host
        ("GET / HTTP/1.1\r\n\r\n".into(), R::HostMissing),
        (with("Host: example.com\r\n").into(), R::HostDuplicate),
        (with("Host: evil\r\n").into(), R::HostDuplicate),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost: a:http\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.0\r\nHost: a b\r\n\r\n".into(), R::HostMalformed),
        ("GET / HTTP/1.1\r\nHost : a\r\n\r\n".into(), R::SpaceBeforeColon),
        // Other protocols
        ("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n".into(), R::Connect),
        (with("Connection: Upgrade\r\nUpgrade: websocket\r\n").into(), R::Upgrade),
        (with("Upgrade: h2c\r\n").into(), R::Upgrade),
        (with("Expect: 100-continue\r\nExpect: 100-continue\r\n").into(), R::Expect),
        (with("Expect: 200-ok\r\n").into(), R::Expect),
        (with("Expect:  100-continue\r\n").into(), R::Expect),
        ("PUT / HTTP/1.0\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n".into(), R::Expect),
    ];
    for (bytes, reason) in cases {
        exercise::request(&bytes);
        assert_eq!(
            see_request(&bytes),
            Seen::Bypass(reason, Extent::Unknown),
            "{}",
            bytes.escape_ascii()
        );
    }
}

#[test]
fn limits() {
    let fields = |count: usize| with(&"DNT: 1\r\n".repeat(count - 1));
    complete(&fields(HEADERS_MAX));
    assert_eq!(
        see_request(fields(HEADERS_MAX + 1).as_bytes()),
        Seen::Bypass(R::TooManyHeaders, Extent::Unknown)
    );

    let long = |len: usize| {
        let mut text = with("Referer: ");
        text.truncate(text.len() - 2);
        let referer = "x".repeat(len - text.len() - 4);
        text + &referer + "\r\n\r\n"
    };
    assert_eq!(long(HEAD_BYTES_MAX).len(), HEAD_BYTES_MAX);
    complete(&long(SHARED_HEAD_BYTES_MAX));
    for len in [SHARED_HEAD_BYTES_MAX + 1, HEAD_BYTES_MAX] {
        let seen = see_request(long(len).as_bytes());
        assert!(
            matches!(seen,
                Seen::Bypass(R::HeadTooLong, Extent::Head { len: end, .. }) if end == len),
            "{seen:?}"
        );
    }
    let too_long = long(HEAD_BYTES_MAX + 1);
    assert_eq!(see_request(too_long.as_bytes()), Seen::Bypass(R::HeadTooLong, Extent::Unknown));
    assert_eq!(see_request(&too_long.as_bytes()[..HEAD_BYTES_MAX - 1]), Seen::Partial);
    assert_eq!(
        see_request(&too_long.as_bytes()[..HEAD_BYTES_MAX]),
        Seen::Bypass(R::HeadTooLong, Extent::Unknown)
    );
    // A short head with much behind it is a short head.
    let mut pipelined = WRK.as_bytes().to_vec();
    pipelined.resize(3 * HEAD_BYTES_MAX, b'x');
    assert!(matches!(see_request(&pipelined), Seen::Complete { .. }));
}

#[test]
fn parsing_again_only_when_a_line_ended() {
    let bytes = WRK.as_bytes();
    let mut parsed = 0;
    let mut parses = 0;
    for at in 1..=bytes.len() {
        if is_worth_parsing(&bytes[..at], parsed) {
            parses += 1;
            if see_request(&bytes[..at]) != Seen::Partial {
                assert_eq!(at, bytes.len());
                break;
            }
        }
        parsed = at;
    }
    assert_eq!(parses, 4, "the first byte and three line ends");
    assert!(is_worth_parsing(&[b'x'; HEAD_BYTES_MAX], HEAD_BYTES_MAX - 1));
}

#[test]
fn what_changes_something_says_what() {
    let changes = |text: &str| {
        let mut scratch = HeaderScratch::new();
        match parse_request(text.as_bytes(), &mut scratch, &config()) {
            RequestOutcome::Bypass { changes, .. } => {
                changes.map(|resource| (resource.host.to_vec(), resource.path.to_vec()))
            }
            other => panic!("{other:?}"),
        }
    };
    let some = |host: &str, path: &str| Some((host.as_bytes().to_vec(), path.as_bytes().to_vec()));
    for method in ["POST", "PUT", "DELETE", "PATCH", "get", "PURGE"] {
        assert_eq!(
            changes(&format!("{method} /x?y HTTP/1.1\r\nHost: a\r\n\r\n")),
            some("a", "/x?y"),
            "{method}"
        );
    }
    assert_eq!(changes("POST http://b/x HTTP/1.1\r\nHost: a\r\n\r\n"), some("b", "/x"));
    for safe in ["OPTIONS * HTTP/1.1", "TRACE /x HTTP/1.1", "GET * HTTP/1.1"] {
        assert_eq!(changes(&format!("{safe}\r\nHost: a\r\n\r\n")), None, "{safe}");
    }
    assert_eq!(
        changes("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"),
        some("a", "/x")
    );
    for odd in
        ["Transfer-Encoding: xchunked\r\n", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"]
    {
        assert_eq!(changes(&format!("POST /x HTTP/1.1\r\nHost: a\r\n{odd}\r\n")), None, "{odd}");
    }
    assert_eq!(changes("POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), None);
}

#[test]
fn ranges_and_preconditions_are_told() {
    let text = with(
        "Range: bytes=0-1\r\nIf-Range: \"a\"\r\nIf-Match: \"b\"\r\nIf-Unmodified-Since: x\r\nCache-Control: max-age=0, NO-CACHE\r\n",
    );
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(text.as_bytes(), &mut scratch, &config())
    else {
        panic!("not complete");
    };
    assert_eq!((request.range, request.if_range), (Some(&b"bytes=0-1"[..]), Some(&b"\"a\""[..])));
    let conditional = request.conditional;
    assert_eq!(
        (conditional.if_match, conditional.if_unmodified_since),
        (Some(&b"\"b\""[..]), Some(&b"x"[..]))
    );
    assert!(conditional.no_cache && conditional.is_conditional());
}
