//! The hit path and the following of replies do not allocate. A program without the test harness,
//! because the count is global, and the harness has a thread of its own that allocates.

use nicache_http::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: Example.com\r\nCookie: _ga=1\r\nX-Mine: 1\r\nAccept: */*\r\n\
    If-None-Match: \"a\"\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\nUser-Agent: x\r\n\r\n";
/// Behind a proxy.
const PASSED_ON: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 198.51.100.1, 2001:db8::1\r\nX-Forwarded-Proto: https\r\n\
    Forwarded: for=\"[2001:db8::1]\";proto=https\r\nVia: 1.1 a\r\nX-Request-Id: 4bf92f35-77b3\r\nFrom: bot(at)a\r\n\r\n";
const REPLY: &[u8] =
    b"HTTP/1.1 200 OK\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\nContent-Length: 5\r\nVary: User-Agent\r\n\
    Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\nCache-Control: max-age=3600\r\n\r\nhello";

fn main() {
    let config = KeyConfig::new([1; 16]).allow_cookie("_ga*").allow_header("X-Mine");
    let template = HeadTemplate::new(&REPLY[..REPLY.len() - 5]).unwrap();
    let mut dates = DateCache::default();
    let mut out = [0; TEMPLATE_BYTES_MAX];
    let ReplyOutcome::Complete(ReplyHead { vary: Vary::Names(names), .. }) =
        parse_reply(REPLY, Method::Get)
    else {
        panic!("a plain reply");
    };

    let region = Region::new(ALLOCATOR);
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(REQUEST, &mut scratch, &config) else {
        panic!("a plain request");
    };
    let key = vary_key(request.key, &names, request.headers, &config);
    let verdict =
        evaluate(&request.conditional, Some(b"\"b\""), Some(b"Sun, 06 Nov 1994 08:49:37 GMT"));
    let rendered = template.render(dates.at(1_763_683_200), &mut out);
    let reply = parse_reply(REPLY, Method::Get);
    let mut follower = Follower::new(Framing::Chunked);
    let followed = follower.follow(b"5;x\r\nhello\r\n0\r\nA: b\r\n\r\n", |_| {});
    let mut scratch = HeaderScratch::new();
    let bypass = parse_request(b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", &mut scratch, &config);
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(passed_on) = parse_request(PASSED_ON, &mut scratch, &config)
    else {
        panic!("a plain request");
    };
    let class = client_class(passed_on.headers, passed_on.host, &config);
    let sender = passed_on.signs.class(
        core::net::Ipv4Addr::LOCALHOST.into(),
        Some((ProxyVersion::V1, true)),
        &config,
    );
    let tokens = Tokens::of(passed_on.headers, &config);
    let preface = parse_preface(b"PROXY TCP6 2001:db8::1 ::1 1 80\r\n");
    let change = region.change();

    assert!(sender != 0 && tokens.has_address() && class != ClientClass::default());
    assert!(matches!(preface, Preface::Header(_)));

    assert_eq!((change.allocations, change.reallocations), (0, 0));
    assert_eq!((verdict, rendered, key == request.key), (Verdict::Full, template.len(), false));
    assert!(matches!(reply, ReplyOutcome::Complete(head) if head.shareable.is_ok()));
    assert!(followed.finished_at.is_some());
    assert!(matches!(
        bypass,
        RequestOutcome::Bypass { reason: BypassReason::SpaceBeforeColon, .. }
    ));
}
