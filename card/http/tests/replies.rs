//! Replies: where they end, which may be shared, and what a template makes of them.

mod exercise;

use MalformedReply as M;
use NotShared as N;
use nicache_http::*;

/// What nginx 1.22 sends for a file.
const NGINX: &str = "HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\n\
    Content-Type: text/html\r\nContent-Length: 615\r\nLast-Modified: Wed, 20 Nov 2024 18:51:06 GMT\r\n\
    Connection: keep-alive\r\nETag: \"673e2f1a-267\"\r\nAccept-Ranges: bytes\r\n\r\n";

const NGINX_304: &str = "HTTP/1.1 304 Not Modified\r\nServer: nginx/1.22.1\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\n\
    Last-Modified: Wed, 20 Nov 2024 18:51:06 GMT\r\nConnection: keep-alive\r\nETag: \"673e2f1a-267\"\r\n\r\n";

/// What Apache 2.4 sends for a file to a client that says keep-alive.
const APACHE: &str = "HTTP/1.1 200 OK\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\nServer: Apache/2.4.62 (Debian)\r\n\
    Last-Modified: Wed, 20 Nov 2024 18:51:06 GMT\r\nETag: \"267-6275c0f5d1e80\"\r\nAccept-Ranges: bytes\r\n\
    Content-Length: 615\r\nVary: Accept-Encoding\r\nKeep-Alive: timeout=5, max=100\r\nConnection: Keep-Alive\r\n\
    Content-Type: text/html\r\n\r\n";

/// NGINX with these lines at its end.
fn with(lines: &str) -> String {
    format!("{}{lines}\r\n", NGINX.strip_suffix("\r\n").unwrap())
}

fn without(field: &str) -> String {
    let lines: Vec<&str> =
        NGINX.split_inclusive("\r\n").filter(|line| !line.starts_with(field)).collect();
    assert_eq!(lines.len() + 1, NGINX.split_inclusive("\r\n").count());
    lines.concat()
}

fn head(text: &str, method: Method) -> ReplyHead<'_> {
    exercise::reply(text.as_bytes());
    match parse_reply(text.as_bytes(), method) {
        ReplyOutcome::Complete(head) => head,
        other => panic!("{}: {other:?}", text.escape_debug()),
    }
}

#[test]
fn a_plain_reply_in_all_its_parts() {
    let text = format!("{NGINX}<html>");
    let head = head(&text, Method::Get);
    assert_eq!((head.status, head.version, head.head_len), (200, Version::Http11, NGINX.len()));
    assert_eq!(head.framing, Framing::Length(615));
    assert_eq!(head.shareable, Ok(()));
    assert_eq!(head.last_modified, Some(&b"Wed, 20 Nov 2024 18:51:06 GMT"[..]));
    assert_eq!(head.etag, Some(&b"\"673e2f1a-267\""[..]));
    assert_eq!(head.date, Some(&b"Thu, 20 Nov 2025 23:59:03 GMT"[..]));
    assert_eq!(head.vary, Vary::Names(VaryNames::default()));
    assert!(head.keep_alive && !head.interim && !head.learnable_304);
}

#[test]
fn replies_of_servers_of_files_are_shareable() {
    for text in [
        NGINX.to_owned(),
        APACHE.to_owned(),
        without("ETag"),
        without("Last-Modified"),
        with("Vary: Accept-Encoding, Origin\r\n"),
        with("Vary: User-Agent\r\n"),
        with("Cache-Control: public, max-age=60\r\n"),
        with("Cache-Control: no-cache\r\nExpires: Thu, 01 Jan 1970 00:00:01 GMT\r\n"),
        with("Expires: Thu, 31 Dec 2037 23:55:55 GMT\r\nCache-Control: max-age=315360000\r\n"),
        with("Content-Encoding: gzip\r\nAccess-Control-Allow-Origin: *\r\n"),
        with(
            "Content-Security-Policy: default-src 'self'\r\nStrict-Transport-Security: max-age=1\r\n",
        ),
        with("Cache-Control: max-age=60\r\nCache-Control: public, max-age=60\r\n"),
        with("Cache-Control: post-check=0, pre-check=0\r\nPragma: no-cache\r\n"),
        with("Cache-Control: , must-understand,\r\nVary:\r\nVary: Accept-Encoding,\r\n"),
        with("Link: </a>; rel=preload\r\nLink: </b>; rel=preload\r\n"),
        // A server and its application set the same.
        with("X-Frame-Options: DENY\r\nX-Frame-Options: SAMEORIGIN\r\nServer: two\r\n"),
        with("Link:  x\r\nX-Robots-Tag: x \r\nAlt-Svc:\tx\r\nPragma:x\r\n"),
        NGINX.replace("Date: ", "Date:  "),
        // Conditions against an ETag that is not one are the server's business.
        NGINX.replace("\"673e2f1a-267\"", "673e2f1a-267"),
        NGINX.replace("\"673e2f1a-267\"", "\"a,b\""),
        NGINX.replace("keep-alive", "close"),
        NGINX.replace("200 OK", "200 "),
        NGINX.replace("200 OK", "200 Gut\u{fc}"),
    ] {
        assert_eq!(head(&text, Method::Get).shareable, Ok(()), "{}", text.escape_debug());
    }
}

#[test]
fn unusual_replies_are_not_shared() {
    let cases: Vec<(String, NotShared)> = vec![
        (with("Set-Cookie: a=b\r\n"), N::SetCookie),
        (with("set-cookie2: a=b\r\n"), N::SetCookie),
        (with("Cache-Control: private\r\n"), N::Private),
        (with("Cache-Control: max-age=1\r\nCache-Control: PRIVATE\r\n"), N::Private),
        (with("Cache-Control: no-store\r\n"), N::NoStore),
        (with("CDN-Cache-Control: private\r\n"), N::Private),
        (with("Surrogate-Control: max-age=60, no-store\r\n"), N::NoStore),
        (with("Cache-Control: no store\r\n"), N::CacheControlOdd),
        (with("Cache-Control: nostore\r\n"), N::CacheControlOdd),
        (with("Cache-Control: max-age=1\r\nCache-Control: max-age=2\r\n"), N::CacheControlOdd),
        (with("Vary: *\r\n"), N::VaryStar),
        (with("Vary: a, b, c\r\nVary: d, e\r\n"), N::VaryTooLarge),
        (with("Vary: a b\r\n"), N::VaryOdd),
        (with("Content-Range: bytes 0-1/2\r\n"), N::ContentRange),
        (with("WWW-Authenticate: Basic\r\n"), N::Authentication),
        (with("Authentication-Info: x\r\n"), N::Authentication),
        (with("Trailer: x\r\n"), N::Trailer),
        (with("Content-Security-Policy: script-src 'Nonce-abc'\r\n"), N::Nonce),
        (with("X-Request-Idea: 1\r\n"), N::UnusualHeader),
        (with("Age: 1\r\n"), N::UnusualHeader),
        (with("Upgrade: h2\r\n"), N::UnusualHeader),
        (with("Content-Encoding: br\r\nContent-Encoding: gzip\r\n"), N::DuplicateHeader),
        (with("Date: Thu, 20 Nov 2025 23:59:03 GMT\r\n"), N::DuplicateHeader),
        (with("ETag: \"x\"\r\n"), N::DuplicateHeader),
        (with("Connection: keep-alive\r\n"), N::ConnectionOdd),
        (NGINX.replace("keep-alive", "keep-alive, Upgrade"), N::ConnectionOdd),
        (
            without("Date").replace(
                "Content-Length",
                "Expires: Fri, 21 Nov 2025 00:00:00 GMT\r\nContent-Length",
            ),
            N::Date,
        ),
        (NGINX.replace("Thu, 20 Nov 2025", "Fri, 20 Nov 2025"), N::Date),
        (NGINX.replace("Wed, 20 Nov 2024 18:51:06 GMT", "yesterday"), N::LastModifiedOdd),
        (
            NGINX.replace("HTTP/1.1 200 OK", "HTTP/1.0 200 OK\r\nConnection: keep-alive"),
            N::HttpVersion,
        ),
        (NGINX.replace("200 OK", "200"), N::StatusLine),
        (NGINX.replace("200 OK", "206 Partial Content"), N::Status),
        (NGINX.replace("200 OK", "404 Not Found"), N::Status),
        (NGINX.replace("200 OK", "203 x"), N::Status),
        (NGINX_304.to_owned(), N::Status),
        (with(&format!("Link: {}\r\n", "x".repeat(TEMPLATE_BYTES_MAX))), N::HeadTooLong),
    ];
    for (text, reason) in cases {
        assert_eq!(head(&text, Method::Get).shareable, Err(reason), "{}", text.escape_debug());
    }
    assert_eq!(head(NGINX, Method::Head).shareable, Err(N::RequestMethod));
    assert_eq!(head(NGINX, Method::Other).shareable, Err(N::RequestMethod));
}

/// PHP's `date('r')` says so, and so does gitweb.
const ODD: &str = "Wed, 20 Nov 2024 18:51:06 +0000";

#[test]
fn a_last_modified_in_another_form_takes_two_executions() {
    let odd = |text: String| text.replace("Wed, 20 Nov 2024 18:51:06 GMT", ODD);
    let text = odd(NGINX.to_owned());
    let parsed = head(&text, Method::Get);
    assert_eq!((parsed.shareable, parsed.shareable_if_agreed()), (Err(N::LastModifiedOdd), Ok(())));
    // Whether it is later than another the server knows.
    assert_eq!(parsed.last_modified, None);
    assert!(!head(&odd(NGINX_304.to_owned()), Method::Get).learnable_304);
    for (text, reason) in [
        (with("Set-Cookie: a=b\r\n"), N::SetCookie),
        (with("Content-Range: bytes 0-1/2\r\n"), N::ContentRange),
        (with("ETag: \"x\"\r\n"), N::DuplicateHeader),
        (with("Last-Modified: x\r\n"), N::DuplicateHeader),
        (with("Cache-Control: private\r\n"), N::Private),
        (with("X-Other: 1\r\nCache-Control: no-store\r\n"), N::NoStore),
        (with("X-Other: 1\r\nVercel-CDN-Cache-Control: no-store\r\n"), N::NoStore),
        (with(&format!("Link: {}\r\n", "x".repeat(TEMPLATE_BYTES_MAX))), N::HeadTooLong),
        (NGINX.replace("Thu, 20 Nov 2025", "Fri, 20 Nov 2025"), N::Date),
    ] {
        let text = odd(text);
        assert_eq!(head(&text, Method::Get).shareable_if_agreed(), Err(reason), "{text}");
    }
}

#[test]
fn the_operator_may_declare_headers_usual() {
    let text = with("X-Served-By: web1\r\n");
    let config = ReplyConfig::new().allow_header("x-served-by");
    let ReplyOutcome::Complete(head) = parse_reply_with(text.as_bytes(), Method::Get, &config)
    else {
        panic!("not complete");
    };
    assert_eq!(head.shareable, Ok(()));
    let mut out = [0; TEMPLATE_BYTES_MAX];
    let template = HeadTemplate::new(text.as_bytes()).unwrap();
    assert_eq!(template.render(&HttpDate::from_unix_s(0), &mut out), text.len());
}

/// Replies of a real nginx 1.22, kept among the seeds of the fuzz target.
#[test]
fn captured_replies_of_nginx() {
    let cases: &[(&str, Method, Result<(), NotShared>)] = &[
        ("200", Method::Get, Ok(())),
        ("close", Method::Get, Ok(())),
        ("http10", Method::Get, Ok(())),
        ("expires", Method::Get, Ok(())),
        ("expires_max", Method::Get, Ok(())),
        ("expires_at", Method::Get, Err(N::ExpiresPinned)),
        ("304", Method::Get, Err(N::Status)),
        ("206", Method::Get, Err(N::Status)),
        ("404", Method::Get, Err(N::Status)),
        ("400", Method::Get, Err(N::Status)),
        ("head", Method::Head, Err(N::RequestMethod)),
    ];
    for (name, method, shareable) in cases {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/reply");
        let bytes = std::fs::read(format!("{folder}/captured_nginx_{name}")).unwrap();
        let ReplyOutcome::Complete(head) = parse_reply(&bytes, *method) else {
            panic!("{name}: no head");
        };
        assert_eq!(head.shareable, *shareable, "{name}");
        assert_eq!(head.learnable_304, *name == "304");
        let body_bytes = match head.framing {
            Framing::Length(length) => length as usize,
            other => {
                assert_eq!(other, Framing::None);
                0
            }
        };
        assert_eq!(head.head_len + body_bytes, bytes.len(), "{name}");
    }
}

#[test]
fn framing() {
    let chunked = NGINX.replace("Content-Length: 615", "Transfer-Encoding: Chunked");
    let close = without("Content-Length");
    let with_status = |status: &str| NGINX.replace("200 OK", status);
    let status_only = |status: &str| format!("HTTP/1.1 {status}\r\n\r\n");
    let cases: Vec<(String, Method, Framing, bool, bool)> = vec![
        (NGINX.into(), Method::Get, Framing::Length(615), true, false),
        (NGINX.into(), Method::Head, Framing::None, true, false),
        (NGINX.into(), Method::Other, Framing::Length(615), true, false),
        (chunked.clone(), Method::Get, Framing::Chunked, true, false),
        (chunked, Method::Head, Framing::None, true, false),
        (close.clone(), Method::Get, Framing::Close, false, false),
        (close, Method::Head, Framing::None, true, false),
        (NGINX_304.into(), Method::Get, Framing::None, true, false),
        (with_status("304 Not Modified"), Method::Get, Framing::None, true, false),
        (status_only("204 No Content"), Method::Other, Framing::None, true, false),
        (status_only("100 Continue"), Method::Other, Framing::None, true, true),
        (status_only("103 Early Hints"), Method::Get, Framing::None, true, true),
        (status_only("200 OK"), Method::Get, Framing::Close, false, false),
        (NGINX.replace("keep-alive", "close"), Method::Get, Framing::Length(615), false, false),
        (NGINX.replace("HTTP/1.1", "HTTP/1.0"), Method::Get, Framing::Length(615), true, false),
        (
            "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n".into(),
            Method::Get,
            Framing::Length(0),
            false,
            false,
        ),
    ];
    for (text, method, framing, keep_alive, interim) in cases {
        let head = head(&text, method);
        assert_eq!(
            (head.framing, head.keep_alive, head.interim),
            (framing, keep_alive, interim),
            "{text}"
        );
    }
}

#[test]
fn doubtful_replies_are_malformed() {
    let line = |line: &str| format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n").into_bytes();
    let status = |status: &str, line: &str| format!("HTTP/1.1 {status}\r\n{line}\r\n").into_bytes();
    let cases: Vec<(Vec<u8>, MalformedReply)> = vec![
        (line("Content-Length: 5\r\nContent-Length: 5"), M::ContentLength),
        (line("Content-Length: 5\r\nContent-Length: 6"), M::ContentLength),
        (line("Content-Length: 5, 5"), M::ContentLength),
        (line("Content-Length: +5"), M::ContentLength),
        (line("Content-Length:  5"), M::ContentLength),
        (line("Content-Length: 5\t"), M::ContentLength),
        (line("Content-Length: "), M::ContentLength),
        (line("Content-Length: 9999999999999999999999"), M::ContentLength),
        (line("Content-Length: 5\r\nTransfer-Encoding: chunked"), M::LengthAndEncoding),
        (line("Transfer-Encoding: chunked\r\nContent-Length: 5"), M::LengthAndEncoding),
        (line("Transfer-Encoding: gzip, chunked"), M::TransferEncoding),
        (line("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), M::TransferEncoding),
        (line("Transfer-Encoding: identity"), M::TransferEncoding),
        (line("Transfer-Encoding: chunked "), M::TransferEncoding),
        (line("Transfer-Encoding:\tchunked"), M::TransferEncoding),
        (line("Transfer-Encoding: \"chunked\""), M::TransferEncoding),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), M::TransferEncoding),
        (status("204 x", "Content-Length: 0\r\n"), M::ContentLength),
        (status("204 x", "Transfer-Encoding: chunked\r\n"), M::TransferEncoding),
        (status("100 x", "Content-Length: 5\r\n"), M::ContentLength),
        (status("101 x", "Upgrade: h2c\r\n"), M::SwitchingProtocols),
        (status("099 x", ""), M::Status),
        (status("600 x", ""), M::Status),
        (status("999 x", ""), M::Status),
        (status("20 x", ""), M::Syntax),
        (status("2000 x", ""), M::Syntax),
        (status(" 200 OK", ""), M::Syntax),
        (b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n".to_vec(), M::BareLineBreak),
        (b"HTTP/1.1 200\nContent-Length: 5\r\n\r\n".to_vec(), M::BareLineBreak),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\n\r\n".to_vec(), M::BareLineBreak),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\n".to_vec(), M::BareLineBreak),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\rx".to_vec(), M::BareLineBreak),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n".to_vec(), M::LeadingEmptyLine),
        (b"HTTP/2.0 200 OK\r\n\r\n".to_vec(), M::Syntax),
        (b"HTTP/1.1 200 O\0K\r\n\r\n".to_vec(), M::Syntax),
        (b"220 ftp ready\r\n".to_vec(), M::Syntax),
        (b"\x16\x03\x03".to_vec(), M::Syntax),
        (line("Content-Length : 5"), M::Syntax),
        (line(" Content-Length: 5"), M::Syntax),
        (line("Server: a\r\n b"), M::Syntax),
        (line("Server: a\0"), M::Syntax),
        (line("Server: a\rContent-Length: 5"), M::Syntax),
        (line("nonsense"), M::Syntax),
        (line(&"A: b\r\n".repeat(HEADERS_MAX + 1)), M::HeadTooLong),
        (line(&format!("A: {}", "x".repeat(HEAD_BYTES_MAX))), M::HeadTooLong),
    ];
    for (bytes, reason) in cases {
        exercise::reply(&bytes);
        for method in [Method::Get, Method::Head, Method::Other] {
            match parse_reply(&bytes, method) {
                ReplyOutcome::Malformed(found) => {
                    assert_eq!(found, reason, "{}", bytes.escape_ascii());
                }
                other => panic!("{}: {other:?}", bytes.escape_ascii()),
            }
        }
    }
}

#[test]
fn a_template_repeats_the_head_but_for_the_moment() {
    let later = HttpDate::from_unix_s(1_763_683_200);
    let without_date = without("Date");
    for text in [NGINX, APACHE, NGINX_304, &without_date] {
        let template = HeadTemplate::new(text.as_bytes()).unwrap();
        let mut out = [0xaa; TEMPLATE_BYTES_MAX];
        assert_eq!(template.render(&later, &mut out), text.len());
        assert_eq!((template.len(), template.original()), (text.len(), text.as_bytes()));
        let expected =
            text.replace("Thu, 20 Nov 2025 23:59:03 GMT", "Fri, 21 Nov 2025 00:00:00 GMT");
        assert_eq!(
            out[..text.len()].escape_ascii().to_string(),
            expected.as_bytes().escape_ascii().to_string()
        );
        assert!(out[text.len()..].iter().all(|byte| *byte == 0xaa));
        assert_eq!(template.render(&later, &mut out[..text.len() - 1]), 0);
    }
}

#[test]
fn expires_moves_with_date_unless_max_age_or_the_past_says_otherwise() {
    let later = HttpDate::from_unix_s(1_763_683_200);
    let cases = [
        (
            "Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\nCache-Control: max-age=3600\r\n",
            "Fri, 21 Nov 2025 01:00:00 GMT",
        ),
        (
            "Expires: Thu, 20 Nov 2025 23:59:03 GMT\r\nCache-Control: max-age=0\r\n",
            "Fri, 21 Nov 2025 00:00:00 GMT",
        ),
        (
            "Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\nCache-Control: max-age=60\r\n",
            "Fri, 21 Nov 2025 00:59:03 GMT",
        ),
        ("Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\n", "Fri, 21 Nov 2025 01:00:00 GMT"),
        ("Expires: Thu, 20 Nov 2025 23:59:03 GMT\r\n", "Fri, 21 Nov 2025 00:00:00 GMT"),
        ("Expires: Thu, 20 Nov 2025 23:59:02 GMT\r\n", "Thu, 20 Nov 2025 23:59:02 GMT"),
        ("Expires: 0\r\nCache-Control: max-age=60\r\n", "0"),
    ];
    for (lines, expires) in cases {
        let text = with(lines);
        assert_eq!(head(&text, Method::Get).shareable, Ok(()), "{lines}");
        let mut out = [0; TEMPLATE_BYTES_MAX];
        let len = HeadTemplate::new(text.as_bytes()).unwrap().render(&later, &mut out);
        let rendered = String::from_utf8(out[..len].to_vec()).unwrap();
        assert!(rendered.contains(&format!("\r\nExpires: {expires}\r\n")), "{rendered}");
        assert!(rendered.contains("\r\nDate: Fri, 21 Nov 2025 00:00:00 GMT\r\n"));
        // One that was seen to stand still.
        let pinned = HeadTemplate::new(text.as_bytes()).unwrap().pinned();
        assert!(!pinned.moves_expires());
        pinned.render(&later, &mut out);
        let rendered = String::from_utf8(out[..len].to_vec()).unwrap();
        assert_eq!(
            rendered,
            text.replace(
                "Date: Thu, 20 Nov 2025 23:59:03 GMT",
                "Date: Fri, 21 Nov 2025 00:00:00 GMT"
            )
        );
    }
}

#[test]
fn expires_that_may_hang_on_something_else_than_date() {
    for lines in [
        // "expires @15h": a time of day.
        "Expires: Fri, 21 Nov 2025 15:00:00 GMT\r\nCache-Control: max-age=54057\r\n",
        // "expires modified +1y": Last-Modified, 18:51:06, and whole minutes.
        "Expires: Thu, 20 Nov 2025 23:59:06 GMT\r\nCache-Control: max-age=3\r\n",
    ] {
        assert_eq!(head(&with(lines), Method::Get).shareable, Err(N::ExpiresPinned), "{lines}");
        assert_eq!(HeadTemplate::new(with(lines).as_bytes()), Err(N::ExpiresPinned));
    }
}

#[test]
fn only_a_plain_304_teaches() {
    assert!(head(NGINX_304, Method::Get).learnable_304);
    assert!(!head(NGINX_304, Method::Head).learnable_304);
    assert!(!head(&NGINX_304.replace("Server:", "Set-Cookie:"), Method::Get).learnable_304);
    assert!(!head(&NGINX_304.replace("HTTP/1.1", "HTTP/1.0"), Method::Get).learnable_304);
    assert!(!head(NGINX, Method::Get).learnable_304);
}

#[test]
fn what_is_no_template() {
    assert_eq!(HeadTemplate::new(b""), Err(N::StatusLine));
    assert_eq!(HeadTemplate::new(b"HTTP/1.1 200 OK\r\n"), Err(N::StatusLine));
    let odd_date = NGINX.replace("Thu, 20 Nov 2025", "Fri, 20 Nov 2025");
    assert_eq!(HeadTemplate::new(odd_date.as_bytes()), Err(N::Date));
    assert_eq!(HeadTemplate::new(format!("{NGINX}x").as_bytes()), Err(N::HeadTooLong));
    let long = with(&format!("Link: {}\r\n", "x".repeat(TEMPLATE_BYTES_MAX)));
    assert_eq!(HeadTemplate::new(long.as_bytes()), Err(N::HeadTooLong));
}
