//! Behind proxies that end TLS: pages become hits, and nobody gets what is another one's.

use std::process::Command;
use std::time::Duration;

use nicache_coherence::Rule;

use crate::check::{Cases, eventually};
use crate::common::{self, ip, within};
use crate::fronts::{ELSEWHERE, Front, Fronts, NGINX, PROXY_PORT};
use crate::stage::{Setup, Stage};

/// Header lines of real browsers and bots.
const CLIENTS: [&[&str]; 6] = [
    &[
        "User-Agent: Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
        "Accept-Encoding: gzip, deflate, br, zstd",
        "Accept-Language: en-US,en;q=0.9",
        "Sec-Ch-Ua: \"Google Chrome\";v=\"131\"",
        "Sec-Ch-Ua-Mobile: ?0",
        "Sec-Fetch-Site: none",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
        "Upgrade-Insecure-Requests: 1",
        "Priority: u=0, i",
        "Save-Data: on",
        "Cookie: _ga=GA1.1.1234.5678; _ga_ABC=GS1.1.2; _fbp=fb.1.2.3; _pk_id.1.1fff=a1.b2",
    ],
    &[
        "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
        "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        "Accept-Encoding: gzip, deflate, br",
        "Accept-Language: de,en-US;q=0.7,en;q=0.3",
        "DNT: 1",
        "Sec-GPC: 1",
        "TE: trailers",
        "Purpose: prefetch",
        "Cookie: _gid=GA1.2.3; __utma=1.2.3",
    ],
    &[
        "User-Agent: Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "Accept: text/html,application/xhtml+xml,application/signed-exchange;v=b3,application/xml;q=0.9,*/*;q=0.8",
        "Accept-Encoding: gzip, deflate, br",
        "From: googlebot(at)googlebot.com",
    ],
    &[
        "User-Agent: Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.1 Mobile/15E148 Safari/604.1",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate, br",
        "X-Requested-With: XMLHttpRequest",
        "traceparent: 00-@TRACE@-00f067aa0ba902b7-01",
        "tracestate: es=s:1",
        "CF-Connecting-IP: @CLIENT@",
        "CF-Ray: @RAY@-FRA",
        "CF-Visitor: {\"scheme\":\"https\"}",
        "CF-IPCountry: DE",
        "CDN-Loop: cloudflare; loops=1",
        "Cookie: _clck=1; _hjSession_1=x",
    ],
    &["User-Agent: curl/8.5.0", "Accept: */*"],
    &[
        "User-Agent: Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "Accept: */*",
        "Accept-Encoding: gzip, deflate, br",
        "From: bingbot(at)microsoft.com",
    ],
];

/// One visit.
struct Visit {
    /// The client's address.
    from: String,
    body: String,
    is_hit: bool,
}

/// Numbers that each visit has another of.
struct Visitors {
    number: u32,
}

impl Visitors {
    /// So many visits by TLS, one after the other, each by another client at another address; of
    /// those in `kinds` in turn.
    fn come(
        &mut self,
        front: Front,
        host: &str,
        path: &str,
        kinds: &[usize],
        more: &[&str],
        count: usize,
    ) -> Vec<Visit> {
        let mut curl = Command::new("curl");
        let own: Vec<Vec<String>> = (0..count)
            .map(|at| self.arguments(front, host, path, kinds[at % kinds.len()], more))
            .collect();
        for (at, arguments) in own.iter().enumerate() {
            curl.args((at > 0).then_some("--next")).args(arguments);
        }
        let output = curl.output().unwrap();
        assert!(
            output.status.success(),
            "{front:?} {path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let first = self.number + 1 - count as u32;
        let visits: Vec<Visit> = (first..)
            .zip(text.split_terminator('\x1e'))
            .map(|(number, visit)| {
                let (body, status) = visit.split_once('\x1d').unwrap();
                Visit {
                    from: address(number),
                    body: body.to_owned(),
                    is_hit: status.contains("nicache; "),
                }
            })
            .collect();
        assert_eq!(visits.len(), count);
        visits
    }

    fn arguments(
        &mut self,
        front: Front,
        host: &str,
        path: &str,
        kind: usize,
        more: &[&str],
    ) -> Vec<String> {
        self.number += 1;
        let number = self.number;
        let address = address(number);
        let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let (trace, ray) =
            (format!("{mixed:016x}{:016x}", mixed.rotate_left(32)), format!("{:016x}", mixed / 3));
        let mut arguments: Vec<String> =
            ["-sSk", "-m", "20", "-w", "\x1d%header{cache-status}\x1e", "--interface"]
                .map(str::to_owned)
                .into();
        arguments.push(address.clone());
        arguments.extend(["-H".to_owned(), format!("Host: {host}")]);
        for field in CLIENTS[kind].iter().chain(more) {
            let field = field
                .replace("@TRACE@", &trace)
                .replace("@RAY@", &ray)
                .replace("@CLIENT@", &address);
            arguments.extend(["-H".to_owned(), field]);
        }
        if !CLIENTS[kind].iter().any(|field| field.starts_with("Accept:")) {
            arguments.extend(["-H".to_owned(), "Accept:".to_owned()]);
        }
        arguments.push(format!("https://127.0.0.1:{}{path}", front as u16));
        arguments
    }

    /// The address of the client who came last.
    fn last(&self) -> String {
        address(self.number)
    }
}

fn address(number: u32) -> String {
    format!("198.18.{}.{}", number / 250, number % 250 + 1)
}

fn start() -> (Stage, Fronts) {
    const OPTIONS: &[&str] = &[
        "--http-port",
        "80",
        "--http-port",
        "8082",
        "--cache-status",
        "--ignore-cookie",
        "@analytics",
        "--access-log",
        "@FOLDER@/log/card.log",
    ];
    let stage = Stage::start(&Setup { nginx: NGINX, options: OPTIONS, ..Setup::default() }, |_| {});
    write_pages(&stage);
    let fronts = Fronts::start(&stage);
    (stage, fronts)
}

fn write_pages(stage: &Stage) {
    stage.script("all.php", "<?php echo 'for all';");
    stage.script("links.php", "<?php echo ($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? 'http'), '://', ($_SERVER['HTTP_X_FORWARDED_HOST'] ?? $_SERVER['HTTP_HOST']);");
    stage.script(
        "mine.php",
        "<?php echo $_SERVER['HTTP_X_FORWARDED_FOR'] ?? $_SERVER['REMOTE_ADDR'];",
    );
    stage.script(
        "number.php",
        "<?php echo $_SERVER['HTTP_X_REQUEST_ID'] ?? '', ' ', substr($_SERVER['HTTP_TRACEPARENT'] ?? '', 3, 32);",
    );
    stage.script("trusts.php", &format!("<?php echo $_SERVER['REMOTE_ADDR'] == '{ELSEWHERE}' ? ($_SERVER['HTTP_X_FORWARDED_PROTO'] ?? 'none') : 'http';"));
}

/// Visits until most are hits; every body is `expected`.
fn become_hits(visitors: &mut Visitors, front: Front, path: &str, expected: &str) {
    let host = format!("{front:?}.example").to_lowercase();
    let kinds: Vec<usize> = (0..CLIENTS.len()).collect();
    let mut seen = Vec::new();
    let is_kept = within(Duration::from_secs(30), || {
        let visits = visitors.come(front, &host, path, &kinds, &[], 2 * CLIENTS.len());
        assert!(
            visits.iter().all(|visit| visit.body == expected),
            "{front:?}: {:?}",
            visits[0].body
        );
        seen = visits.iter().map(|visit| visit.is_hit).collect();
        let hits = visits.iter().filter(|visit| visit.is_hit).count();
        (hits >= 2 * CLIENTS.len() - 2).then_some(())
    });
    assert!(is_kept.is_some(), "{front:?} {path}: not all are kept: {seen:?}");
}

#[test]
fn behind_proxies() {
    let (mut stage, fronts) = start();
    let mut visitors = Visitors { number: 0 };
    let mut cases = Cases::default();
    for front in Front::ALL {
        cases.run(&format!("hits through {front:?}"), || {
            let bypasses = ["unknown_header", "cookie", "connection_option"]
                .map(|reason| format!("bypass_{reason}"));
            let before = bypasses.clone().map(|name| stage.counter(&name));
            become_hits(&mut visitors, front, "/all.php", "for all");
            assert_eq!(bypasses.map(|name| stage.counter(&name)), before);
        });
    }
    cases.run("links by the scheme", || {
        for front in [Front::Caddy, Front::Haproxy, Front::Nginx] {
            let host = format!("{front:?}.example").to_lowercase();
            become_hits(&mut visitors, front, "/links.php", &format!("https://{host}"));
            // Directly, without a proxy.
            let plain = stage.client().naming(&host).get("/links.php").unwrap().text();
            assert_eq!(plain, format!("http://{host}"));
        }
        // A client who makes the field up changes nothing for others.
        let forged = visitors.come(
            Front::HitchV2,
            "nginx.example",
            "/links.php",
            &[4],
            &["X-Forwarded-Proto: gopher"],
            6,
        );
        assert!(forged.iter().all(|visit| visit.body.starts_with("gopher:")));
        become_hits(&mut visitors, Front::Nginx, "/links.php", "https://nginx.example");
    });
    cases.run("what is a client's own", || {
        for front in Front::ALL {
            let host = format!("{front:?}.example").to_lowercase();
            for visit in visitors.come(front, &host, "/mine.php", &[0, 1, 2, 3, 4, 5], &[], 12) {
                assert_eq!((visit.body, visit.is_hit), (visit.from, false), "{front:?}");
            }
        }
    });
    cases.run("what is a request's own", || {
        for (front, kind) in [
            (Front::Haproxy, 0),
            (Front::Nginx, 0),
            (Front::Caddy, 3),
            (Front::HaproxyV2, 3),
            (Front::Nginx, 3),
        ] {
            let visits = visitors.come(front, "own.example", "/number.php", &[kind], &[], 12);
            let mut bodies: Vec<&str> = visits.iter().map(|visit| &*visit.body).collect();
            bodies.sort_unstable();
            bodies.dedup();
            assert_eq!(bodies.len(), 12, "{front:?}: {bodies:?}");
        }
    });
    cases.run("a server that believes its proxy alone", || {
        // The one who makes it up comes first.
        let forge = || {
            let fields = [
                ("X-Forwarded-For", "203.0.113.1"),
                ("X-Forwarded-Proto", "https"),
                ("X-Request-ID", "5a5a5a5a-0000-4000-8000-00000000abcd"),
                ("Accept", "*/*"),
                ("User-Agent", "curl/8.5.0"),
            ];
            let mut client = stage.client().naming("haproxy.example");
            assert_eq!(client.request("GET", "/trusts.php", &fields, b"").unwrap().text(), "http");
        };
        (0..4).for_each(|_| forge());
        become_hits(&mut visitors, Front::Haproxy, "/trusts.php", "https");
        (0..4).for_each(|_| forge());
        become_hits(&mut visitors, Front::Nginx, "/trusts.php", "http");
    });
    cases.run("edits show at once", || {
        for (number, front) in Front::ALL.into_iter().enumerate() {
            let host = format!("{front:?}.example").to_lowercase();
            stage.script("all.php", &format!("<?php echo 'edition {number}';"));
            let visits = visitors.come(front, &host, "/all.php", &[0, 2, 4], &[], 6);
            assert!(
                visits.iter().all(|visit| visit.body == format!("edition {number}")),
                "{front:?}"
            );
        }
    });
    cases.run("a connection without the header, and one with it where none is understood", || {
        let plain = "GET /all.php HTTP/1.1\r\nHost: hitchv2.example\r\nConnection: close\r\n\r\n";
        let refused = common::ask_once((stage.nicache.server(), PROXY_PORT).into(), plain);
        assert!(!refused.contains("200 OK"), "{refused}");
        let header = "PROXY TCP4 198.18.0.1 198.18.0.2 4711 80\r\n";
        for _ in 0..3 {
            let refused = common::ask_once(stage.address(), &format!("{header}{plain}"));
            assert!(refused.contains("400 Bad Request"), "{refused}");
        }
        let twice = format!("{header}{header}{plain}");
        let refused = common::ask_once((stage.nicache.server(), PROXY_PORT).into(), &twice);
        assert!(refused.contains("400 Bad Request"), "{refused}");
        // Checks of a proxy's own: nothing, or the header alone.
        for check in ["PROXY UNKNOWN\r\n", "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", ""] {
            use std::io::Write;
            let mut connection =
                std::net::TcpStream::connect((stage.nicache.server(), PROXY_PORT)).unwrap();
            connection.write_all(check.as_bytes()).unwrap();
        }
        let last = format!("edition {}", Front::ALL.len() - 1);
        become_hits(&mut visitors, Front::HitchV2, "/all.php", &last);
    });
    cases.run("the access log has the client", || {
        let comes = || {
            let visits = visitors.come(
                Front::HaproxyV1,
                "haproxyv1.example",
                "/all.php",
                &[4],
                &["Referer: http://a.example/last"],
                4,
            );
            visits.iter().any(|visit| visit.is_hit).then_some(())
        };
        assert!(within(Duration::from_secs(10), comes).is_some());
        let last = visitors.last();
        let is_there = || {
            let log = std::fs::read_to_string(stage.path("log/card.log")).unwrap_or_default();
            log.lines().any(|line| line.starts_with(&format!("{last} "))).then_some(())
        };
        assert!(within(Duration::from_secs(10), is_there).is_some());
    });
    cases.run("names of what is not known", || {
        let odd = visitors.come(
            Front::Nginx,
            "nginx.example",
            "/all.php",
            &[4],
            &["X-Odd: secret-value", "Cookie: sid=secret-value"],
            2,
        );
        assert!(odd.iter().all(|visit| !visit.is_hit));
        let said = common::output(common::NICACHE, &["status", "--name", stage.nicache.name()]);
        assert!(
            said.contains("header x-odd in 2 requests")
                && said.contains("cookie sid in 2 requests"),
            "{said}"
        );
        let why = common::output(
            common::NICACHE,
            &["why", "--name", stage.nicache.name(), "http://nginx.example/all.php"],
        );
        assert!(why.contains("--ignore-cookie sid") || why.contains("--vary x-odd"), "{why}");
        let status = common::status(stage.nicache.name());
        assert!(status["counters"]["unknown_names"].as_array().unwrap().len() >= 2, "{status:#}");
        let log = stage.nicache.log_text();
        assert_eq!(log.matches("because of the header x-odd").count(), 1, "{log}");
        assert!(!log.contains("secret-value") && !said.contains("secret-value"));
    });
    drop(fronts);
    cases.end(&mut stage);
}

/// What a plain client gets who connects from that address.
fn fetch(stage: &Stage, from: &str, path: &str, fields: &[&str]) -> String {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-m", "10", "--interface", from, "-H", "Accept:"]);
    curl.args(fields.iter().flat_map(|field| ["-H", field]));
    let output = curl.arg(format!("http://{}{path}", stage.address())).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn start_without_fronts(without: Option<Rule>) -> Stage {
    let stage = Stage::start(&Setup { nginx: NGINX, without, ..Setup::default() }, |_| {});
    write_pages(&stage);
    ip("route add local 198.18.0.0/16 dev lo");
    stage
}

/// How many of those get another one's page who come when others have made something up: an
/// identifier of a request, and fields of a proxy. The pages are those of this number.
fn wronged(stage: &Stage, number: usize) -> [usize; 2] {
    let [numbered, trusts] = ["number", "trusts"].map(|name| format!("/{name}.php?n={number}"));
    let (mut wrong, id) = ([0, 0], "X-Request-ID: 4bf92f35-77b3-4da6");
    for round in 0..6 {
        // Several clients with one identifier.
        fetch(stage, &address(round), &numbered, &[id]);
    }
    for round in 0..4 {
        let own = format!("4c{round}92f35-77b3{round}-9da{round}7");
        let said = fetch(stage, &address(100), &numbered, &[&format!("X-Request-ID: {own}")]);
        wrong[0] += usize::from(said.trim() != own);
    }
    let proxied = |number: u32| format!("X-Forwarded-For: 203.0.113.{number}");
    for round in 1..7 {
        // One client who is several, and sends what the proxy does.
        let forged =
            fetch(stage, &address(7), &trusts, &[&proxied(round), "X-Forwarded-Proto: https"]);
        wrong[1] += usize::from(forged != "http");
    }
    for round in 1..5 {
        let said =
            fetch(stage, ELSEWHERE, &trusts, &[&proxied(round + 100), "X-Forwarded-Proto: https"]);
        wrong[1] += usize::from(said != "https");
    }
    wrong
}

#[test]
fn what_is_made_up_gains_nothing() {
    assert_eq!(wronged(&start_without_fronts(None), 0), [0, 0]);
}

/// With the rule turned off, somebody is wronged in this way at last: pages that are new may be
/// void again before anybody gets them.
fn somebody_is_wronged(without: Rule, way: usize) {
    let stage = start_without_fronts(Some(without));
    let mut number = 0;
    let is_wrong = || {
        number += 1;
        wronged(&stage, number)[way] > 0
    };
    assert!(eventually(is_wrong), "nobody notices that the rule is off");
}

#[test]
fn identifiers_of_requests_are_compared() {
    somebody_is_wronged(Rule::Marks, 0);
}

#[test]
fn whoever_sends_the_fields_of_a_proxy_is_a_class() {
    somebody_is_wronged(Rule::Proxies, 1);
}
