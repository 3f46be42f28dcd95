//! I5: clients of all kinds get with the card what they get without it: the same heads but for
//! `Date`, the same bodies.
//!
//! "Without" is the same server with `nicache bypass on`. Each request is then made three times
//! with the card: the first one is a miss, the others are hits where the request may be one.
#![allow(unsafe_code)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{
    EVENTUALLY, Nicache, Site, bypass, end_wrk, holds_within, output, private_network, status,
};

const SIZES: [usize; 9] = [0, 1, 100, 1448, 1460, 16_384, 65_537, 1 << 20, 5 << 20];
/// Files that nginx sends without saying how long they are: in chunks, or until it closes.
const INCLUDED: [usize; 3] = [1, 3000, 300_000];
const ROUNDS: usize = 3;
/// Rounds at most until there was a hit, where one is due.
const ROUNDS_MAX: usize = 30;

struct Setup {
    site: Site,
    nicache: Nicache,
    names: Vec<String>,
}

impl Setup {
    fn new(handshake: &str) -> Self {
        private_network();
        let site = Site::with(
            "types { text/html html; text/plain txt; application/octet-stream bin; } gzip on; gzip_types text/plain;",
            "root @ROOT@/site; location /old/ { expires 1h; }
             location /included/ { ssi on; ssi_types *; ssi_last_modified on; }",
        );
        let root = site.folder.path().join("site");
        let mut names: Vec<String> = SIZES.iter().map(|size| format!("{size}.bin")).collect();
        for (name, &size) in names.iter().zip(&SIZES) {
            std::fs::write(root.join(name), bytes(size)).unwrap();
        }
        std::fs::write(root.join("text.txt"), "many words \n".repeat(2000)).unwrap();
        std::fs::create_dir(root.join("old")).unwrap();
        std::fs::write(root.join("old/page.html"), "<p>old\n").unwrap();
        std::fs::create_dir(root.join("included")).unwrap();
        for size in INCLUDED {
            names.push(format!("included/{size}.bin"));
            // Without what could begin a directive.
            let content = bytes(size)
                .iter()
                .map(|&byte| if byte == b'<' { b'>' } else { byte })
                .collect::<Vec<u8>>();
            std::fs::write(root.join(format!("included/{size}.bin")), content).unwrap();
        }
        names.extend(["text.txt".to_owned(), "old/page.html".to_owned()]);
        let nicache = Nicache::start(&["--handshake", handshake], &site.command());
        Self { site, nicache, names }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.nicache.server())
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::from((self.nicache.server(), 80))
    }

    fn bypass(&self, on: bool) {
        bypass(self.nicache.name(), on);
    }

    fn hits(&self) -> u64 {
        status(self.nicache.name())["counters"]["hits"].as_u64().unwrap()
    }

    fn sha256(&self, name: &str) -> String {
        let path = self.site.folder.path().join("site").join(name);
        output("sha256sum", &[path.to_str().unwrap()])[..64].to_owned()
    }

    /// Time for the last replies to be judged, so the next requests are hits.
    fn settle(&self) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Bytes without pattern.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = count as u32 | 1;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// Is the program there? If not, says so; tools/setup installs all of them.
fn is_there(program: &str) -> bool {
    let there = std::env::var("PATH")
        .unwrap()
        .split(':')
        .any(|folder| Path::new(folder).join(program).exists());
    if !there {
        println!("skipped: {program} is not installed (tools/setup test)");
    }
    there
}

/// Sends requests in one write, and reads until the server closes.
fn converse(address: SocketAddr, requests: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(requests.as_bytes()).unwrap();
    let mut replies = Vec::new();
    stream.read_to_end(&mut replies).unwrap();
    replies
}

/// The value of the first field of this name.
fn field(reply: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(&reply[..reply.len().min(2000)]).into_owned();
    text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")).map(str::to_owned))
}

/// The replies with the values of all `Date` and `Expires` fields blanked.
fn without_dates(replies: &[u8]) -> Vec<u8> {
    let mut rest = replies.to_vec();
    for name in [&b"\r\nDate: "[..], b"\r\nExpires: "] {
        let mut at = 0;
        while let Some(found) = memchr::memmem::find(&rest[at..], name) {
            at += found + name.len();
            rest[at..at + 29].fill(b'-');
        }
    }
    rest
}

/// The replies with all chunks of a body in one: a server may cut where it likes.
fn without_chunk_sizes(replies: Vec<u8>, mut is_head: bool) -> Vec<u8> {
    let mut rest = &replies[..];
    let mut joined = Vec::new();
    while let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") {
        let (head, body) = rest.split_at(end + 4);
        joined.extend(head);
        let text = String::from_utf8_lossy(head).into_owned();
        let length = field(head, "Content-Length").and_then(|length| length.parse().ok());
        let has_body = !std::mem::take(&mut is_head) && !text.starts_with("HTTP/1.1 304");
        rest = body;
        if has_body && text.contains("\r\nTransfer-Encoding: chunked\r\n") {
            loop {
                let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
                let size =
                    usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
                joined.extend(&rest[line + 2..][..size]);
                rest = &rest[line + 2 + size..];
                assert!(rest.starts_with(b"\r\n"), "a chunk is longer than it says");
                rest = &rest[2..];
                if size == 0 {
                    break;
                }
            }
        } else if has_body {
            let (body, after) = rest.split_at(length.unwrap_or(rest.len()).min(rest.len()));
            joined.extend(body);
            rest = after;
        }
    }
    joined.extend(rest);
    joined
}

#[derive(Clone, Copy)]
struct Kind {
    method: &'static str,
    version: &'static str,
    fields: &'static str,
    /// May it be a hit?
    cached: bool,
}

const KINDS: [Kind; 12] = [
    Kind { method: "GET", version: "1.1", fields: "", cached: true },
    Kind { method: "HEAD", version: "1.1", fields: "", cached: true },
    Kind {
        method: "GET",
        version: "1.1",
        fields: "Accept-Encoding: gzip, deflate\r\n",
        cached: true,
    },
    Kind { method: "GET", version: "1.1", fields: "Connection: keep-alive\r\n", cached: true },
    Kind { method: "GET", version: "1.0", fields: "", cached: true },
    Kind { method: "GET", version: "1.0", fields: "Connection: keep-alive\r\n", cached: true },
    Kind { method: "HEAD", version: "1.0", fields: "", cached: false },
    Kind { method: "GET", version: "1.1", fields: "If-None-Match: @ETAG@\r\n", cached: true },
    Kind { method: "GET", version: "1.1", fields: "If-None-Match: \"other\"\r\n", cached: true },
    Kind { method: "GET", version: "1.1", fields: "If-Modified-Since: @DATE@\r\n", cached: true },
    Kind { method: "GET", version: "1.1", fields: "Range: bytes=0-0\r\n", cached: false },
    Kind { method: "DELETE", version: "1.1", fields: "", cached: false },
];

fn every_kind_of_request(handshake: &str) {
    let setup = Setup::new(handshake);
    for name in &setup.names {
        let plain =
            |end: &str| format!("GET /{name} HTTP/1.1\r\nHost: x\r\nConnection: {end}\r\n\r\n");
        setup.bypass(true);
        let first = converse(setup.address(), &plain("close"));
        let (etag, modified) =
            (field(&first, "ETag").unwrap(), field(&first, "Last-Modified").unwrap());
        for kind in KINDS {
            let fields = kind.fields.replace("@ETAG@", &etag).replace("@DATE@", &modified);
            let Kind { method, version, .. } = kind;
            let mut requests =
                format!("{method} /{name} HTTP/{version}\r\nHost: x\r\n{fields}\r\n");
            // The next request ends the connection, if this one does not.
            if version == "1.1" || fields.contains("keep-alive") {
                requests += &plain("close");
            }
            setup.bypass(true);
            let direct = without_dates(&converse(setup.address(), &requests));
            let direct = without_chunk_sizes(direct, method == "HEAD");
            setup.bypass(false);
            let has_body = !name.starts_with("0.");
            let is_packed = name.ends_with(".txt") && fields.contains("gzip");
            // A HEAD is answered by an entry of known length only.
            let is_unknown = name.starts_with("included/") && method == "HEAD";
            let cached = kind.cached && has_body && !is_packed && !is_unknown;
            let mut hits = 0;
            for round in 0..ROUNDS_MAX {
                if round >= ROUNDS {
                    if !cached || hits > 0 {
                        break;
                    }
                    // Other processes may purge what was just stored, and a conditional request
                    // stores nothing.
                    converse(
                        setup.address(),
                        &format!("GET /{name} HTTP/{version}\r\nHost: x\r\n\r\n{}", plain("close")),
                    );
                    setup.settle();
                }
                let before = setup.hits();
                let through = without_dates(&converse(setup.address(), &requests));
                let through = without_chunk_sizes(through, method == "HEAD");
                assert!(
                    through == direct,
                    "{requests}round {round}: {} bytes instead of {}\n{}\n--\n{}",
                    through.len(),
                    direct.len(),
                    String::from_utf8_lossy(&through[..through.len().min(600)]),
                    String::from_utf8_lossy(&direct[..direct.len().min(600)]),
                );
                setup.settle();
                hits += setup.hits() - before;
            }
            if cached {
                assert!(hits > 0, "no hit: {requests}{}", status(setup.nicache.name()));
            }
        }
    }
}

#[test]
fn every_kind_of_request_with_the_server_s_handshake() {
    every_kind_of_request("pass-through");
}

#[test]
fn every_kind_of_request_with_the_card_s_handshake() {
    every_kind_of_request("card");
}

#[test]
fn curl() {
    let setup = Setup::new("pass-through");
    for options in [&["--http1.1"][..], &["--http1.0"], &["--http1.1", "--compressed"]] {
        let fetch = |name: &str| {
            let folder = tempfile::tempdir().unwrap();
            let (body, head) = (folder.path().join("body"), folder.path().join("head"));
            let url = setup.url(name);
            let arguments = [
                "-sS",
                "-m",
                "20",
                "-o",
                body.to_str().unwrap(),
                "-D",
                head.to_str().unwrap(),
                &url,
            ];
            output("curl", &[&arguments[..], options].concat());
            // An empty body makes no file.
            (without_dates(&std::fs::read(head).unwrap()), std::fs::read(body).unwrap_or_default())
        };
        for name in &setup.names {
            setup.bypass(true);
            let direct = fetch(name);
            assert_eq!(
                direct.1,
                std::fs::read(setup.site.folder.path().join("site").join(name)).unwrap(),
                "{name}"
            );
            setup.bypass(false);
            for round in 0..ROUNDS {
                assert!(fetch(name) == direct, "{name} {options:?} round {round}");
                setup.settle();
            }
        }
    }
    assert!(setup.hits() >= 2 * (SIZES.len() as u64 - 1), "{}", setup.hits());
}

#[test]
fn wrk() {
    if !is_there("wrk") {
        return;
    }
    for handshake in ["pass-through", "card"] {
        let setup = Setup::new(handshake);
        let are_enough = holds_within(EVENTUALLY, || {
            for name in ["100.bin", "65537.bin", "5242880.bin"] {
                let mut load = common::wrk(&["-t1", "-c8", "-d2s", &setup.url(name)]);
                end_wrk(load.spawn().unwrap());
            }
            setup.hits() > 1000
        });
        assert!(are_enough, "{}", setup.hits());
    }
}

const PYTHON: &str = r#"
import hashlib, http.client, sys, urllib.error, urllib.request
address, names = sys.argv[1], sys.argv[2:]
connection = http.client.HTTPConnection(address, timeout=20)
for name in names * 3:
    connection.request("GET", "/" + name)
    reply = connection.getresponse()
    body = reply.read()
    assert reply.status == 200 and len(body) == int(reply.getheader("Content-Length", len(body))), name
    print(name, hashlib.sha256(body).hexdigest())
    connection.request("GET", "/" + name, headers={"If-None-Match": reply.getheader("ETag")})
    again = connection.getresponse()
    assert (again.status, again.read()) == (304, b""), name
    with urllib.request.urlopen("http://%s/%s" % (address, name), timeout=20) as reply:
        print(name, hashlib.sha256(reply.read()).hexdigest())
try:
    urllib.request.urlopen("http://%s/missing" % address, timeout=20)
except urllib.error.HTTPError as error:
    assert error.code == 404
"#;

#[test]
fn python() {
    if !is_there("python3") {
        return;
    }
    let setup = Setup::new("pass-through");
    let address = setup.nicache.server().to_string();
    let arguments =
        ["-c", PYTHON, &address].into_iter().chain(setup.names.iter().map(String::as_str));
    let sums = output("python3", &arguments.collect::<Vec<_>>());
    assert_eq!(sums.lines().count(), setup.names.len() * ROUNDS * 2);
    for line in sums.lines() {
        let (name, sum) = line.split_once(' ').unwrap();
        assert_eq!(sum, setup.sha256(name), "{name}");
    }
    assert!(setup.hits() > 10, "{}", setup.hits());
}

const PAGE: &str = r#"<!doctype html><title>sums</title><pre id=sums></pre><script type=module>
const lines = [];
for (let round = 0; round < @ROUNDS@; round++)
  for (const name of [@NAMES@]) {
    const reply = await fetch('/' + name, {cache: 'no-store'});
    const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', await reply.arrayBuffer()));
    lines.push('sum ' + name + ' ' + Array.from(sum, byte => byte.toString(16).padStart(2, '0')).join(''));
  }
document.getElementById('sums').textContent = lines.join('\n') + '\nsum end\n';
</script>"#;

#[test]
fn chromium() {
    if !is_there("chromium") {
        return;
    }
    let setup = Setup::new("pass-through");
    let names: Vec<String> = setup.names.iter().map(|name| format!("'{name}'")).collect();
    let page = setup.site.folder.path().join("site/sums.html");
    std::fs::write(page, PAGE.replace("@NAMES@", &names.join(",")).replace("@ROUNDS@", "5"))
        .unwrap();
    let profile = tempfile::tempdir().unwrap();
    let result = Command::new("timeout")
        .args([
            "-k",
            "1",
            "90",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        // Digests are for secure origins only.
        .arg(format!(
            "--unsafely-treat-insecure-origin-as-secure=http://{}",
            setup.nicache.server()
        ))
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(["--virtual-time-budget=60000", "--dump-dom", &setup.url("sums.html")])
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&result.stdout);
    assert!(dom.contains("sum end"), "{dom}\n{}", String::from_utf8_lossy(&result.stderr));
    let sums: Vec<&str> = dom.split("sum ").filter(|line| line.contains(' ')).collect();
    let mut compared = 0;
    for line in sums {
        let mut words = line.split_ascii_whitespace();
        let (Some(name), Some(sum)) = (words.next(), words.next()) else { continue };
        if setup.names.iter().any(|known| known == name) {
            assert_eq!(sum, setup.sha256(name), "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, setup.names.len() * 5, "{dom}");
    assert!(setup.hits() > 10, "{}", status(setup.nicache.name()));
}
