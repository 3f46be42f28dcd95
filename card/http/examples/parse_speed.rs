//! Times the operations of the hit path, in nanoseconds per call: `cargo run --release -p
//! nicache-http --example parse_speed`.

use std::hint::black_box;
use std::time::Instant;

use nicache_http::{
    DateCache, Follower, Framing, HeadTemplate, HeaderScratch, HttpDate, KeyConfig, Method,
    RequestOutcome, client_class, evaluate, parse_framing, parse_reply, parse_request,
};

const WRK: &[u8] = b"GET /1k.html HTTP/1.1\r\nHost: 10.7.0.2\r\n\r\n";

const WRK_50: &[u8] = b"GET /file-1024.bin HTTP/1.1\r\nHost: 10.70.0.2:80\r\n\r\n";

const CHROMIUM: &[u8] = b"GET /static/js/app.js HTTP/1.1\r\nHost: www.example.com\r\nConnection: keep-alive\r\n\
    sec-ch-ua-platform: \"Linux\"\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) \
    Chrome/142.0.0.0 Safari/537.36\r\nsec-ch-ua: \"Chromium\";v=\"142\", \"Not_A Brand\";v=\"99\"\r\nsec-ch-ua-mobile: ?0\r\n\
    Accept: */*\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n\
    Referer: http://www.example.com/index.html\r\nAccept-Encoding: gzip, deflate\r\nAccept-Language: en-US,en;q=0.9\r\n\
    If-None-Match: \"673e2f1a-1f4\"\r\nIf-Modified-Since: Wed, 20 Nov 2024 18:51:06 GMT\r\n\r\n";

/// What Caddy, as a reverse proxy, passes on of a browser's request.
const CADDY: &[u8] = b"GET /static/js/app.js HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64) \
    AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate, br\r\n\
    Accept-Language: en-US,en;q=0.9\r\nReferer: https://www.example.com/index.html\r\nSec-Fetch-Dest: script\r\nSec-Fetch-Mode: no-cors\r\n\
    Sec-Fetch-Site: same-origin\r\nX-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Host: www.example.com\r\nX-Forwarded-Proto: https\r\n\r\n";

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Thu, 20 Nov 2025 23:59:03 GMT\r\n\
    Content-Type: application/javascript\r\nContent-Length: 500\r\nLast-Modified: Wed, 20 Nov 2024 18:51:06 GMT\r\n\
    Connection: keep-alive\r\nETag: \"673e2f1a-1f4\"\r\nExpires: Fri, 21 Nov 2025 00:59:03 GMT\r\n\
    Cache-Control: max-age=3600\r\nAccept-Ranges: bytes\r\n\r\n";

/// The best of many short rounds: the least disturbed one, even on a busy machine.
fn time(name: &str, mut call: impl FnMut()) {
    const CALLS: u32 = 2_000;
    let best = (0..400)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| call());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<44} {best:>8.1} ns");
}

fn main() {
    let config = KeyConfig::new([9; 16]);
    for (name, bytes) in [("wrk", WRK), ("wrk", WRK_50), ("Chromium", CHROMIUM), ("Caddy", CADDY)] {
        time(&format!("request and key, {name}, {} bytes", bytes.len()), || {
            let mut scratch = HeaderScratch::new();
            let outcome = parse_request(black_box(bytes), &mut scratch, &config);
            assert!(matches!(black_box(&outcome), RequestOutcome::Complete(_)));
        });
        let mut scratch = HeaderScratch::new();
        let RequestOutcome::Complete(request) = parse_request(bytes, &mut scratch, &config) else {
            unreachable!("a plain request");
        };
        time(&format!("class, {name}"), || {
            black_box(client_class(black_box(request.headers), request.host, &config));
        });
    }
    let mut scratch = HeaderScratch::new();
    let RequestOutcome::Complete(request) = parse_request(CHROMIUM, &mut scratch, &config) else {
        unreachable!("a plain request");
    };
    time("evaluate both conditions", || {
        let verdict = evaluate(
            black_box(&request.conditional),
            Some(b"\"673e2f1a-1f4\""),
            Some(b"Wed, 20 Nov 2024 18:51:06 GMT"),
        );
        black_box(verdict);
    });
    time(&format!("reply head, {} bytes", REPLY.len()), || {
        black_box(parse_reply(black_box(REPLY), Method::Get));
    });
    time("the same, framing only", || {
        let _ = black_box(parse_framing(black_box(REPLY), Method::Get));
    });
    let without_expires =
        String::from_utf8_lossy(REPLY).replace("Expires: Fri, 21 Nov 2025 00:59:03 GMT\r\n", "");
    let plain = HeadTemplate::new(without_expires.as_bytes()).expect("a plain head");
    let expiring = HeadTemplate::new(REPLY).expect("a plain head");
    let mut out = [0; 1024];
    let date = HttpDate::from_unix_s(1_763_683_200);
    time("render, Date only", || {
        black_box(plain.render(black_box(&date), black_box(&mut out)));
    });
    time("render, Date and Expires", || {
        black_box(expiring.render(black_box(&date), black_box(&mut out)));
    });
    let mut unix_s = 1_763_683_200;
    time("date of a new second", || {
        unix_s += 1;
        black_box(DateCache::default().at(black_box(unix_s)));
    });
    let mut chunked = Vec::new();
    for _ in 0..16 {
        chunked.extend_from_slice(b"1000\r\n");
        chunked.extend_from_slice(&[b'x'; 4096]);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    time("follow a chunked body, 16 chunks of 4 KiB", || {
        let mut follower = Follower::new(Framing::Chunked);
        black_box(follower.follow(black_box(&chunked), |bytes| {
            black_box(bytes);
        }));
    });
}
