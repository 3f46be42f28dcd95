//! The requests that every server gets.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::stage::{Counters, Stage, get};
use super::table::{self, Outcome};
use super::wire::Reply;

/// Rounds in which a hit may still come, if a reply was refused or purged.
const ROUNDS_MAX: usize = 30;
/// How long a hit is waited for that docs/servers.md promises: on a busy machine a reply may be
/// judged late, and nothing shows meanwhile that it may be a hit.
const PATIENCE: Duration = Duration::from_secs(60);
/// Rounds that each request is compared in.
const ROUNDS: usize = 4;
/// Between later rounds: servers look a file up again after one second or two.
const PAUSE: Duration = Duration::from_millis(400);
/// What has grown if a reply that may be a hit was none: it was not kept, or was purged by what
/// other processes do.
const MAY_HIT_LATER: [&str; 2] = ["fill_refused_", "purges_by_source"];
/// Rounds without any of that after which no hit is to come. One is too few: what was refused over
/// and over is not asked about for a moment.
const UNDISTURBED: usize = 5;
/// Counters that say why a reply was the server's.
pub(crate) const REASONS: [&str; 5] =
    ["bypass_", "fill_refused_", "fill_not_shared_", "fill_aborted_", "misses_"];

/// A request; in `fields`, `@TAG@` and `@DATE@` stand for the validators of the resource.
pub(crate) struct Case {
    /// Its row in docs/servers.md.
    pub name: &'static str,
    method: &'static str,
    path: &'static str,
    version: &'static str,
    fields: &'static str,
    content: &'static str,
}

const fn case(name: &'static str, path: &'static str, fields: &'static str) -> Case {
    Case { name, method: "GET", path, version: "1.1", fields, content: "" }
}

pub(crate) const CASES: [Case; 38] = [
    case("small file", "/small.txt", ""),
    case("large file", "/large.bin", ""),
    case("empty file", "/empty.txt", ""),
    case("index of a folder", "/dir/", ""),
    case("folder without its slash", "/dir", ""),
    case("folder without an index", "/bare/", ""),
    case("no such file", "/no-such", ""),
    case("name with `%20`", "/a%20b.txt", ""),
    case("UTF-8 name, percent-encoded", "/gr%C3%BC%C3%9Fe.txt", ""),
    case("UTF-8 name, as bytes", "/gr\u{fc}\u{df}e.txt", ""),
    case("query string", "/small.txt?version=2", ""),
    case("link to a file", "/link.txt", ""),
    case("link to a folder", "/linked/index.html", ""),
    Case { method: "HEAD", ..case("HEAD", "/small.txt", "") },
    case("If-None-Match, equal", "/small.txt", "If-None-Match: @TAG@\r\n"),
    case("If-None-Match, other", "/small.txt", "If-None-Match: \"other\"\r\n"),
    case("If-Modified-Since, equal", "/small.txt", "If-Modified-Since: @DATE@\r\n"),
    case(
        "If-Modified-Since, before",
        "/small.txt",
        "If-Modified-Since: Thu, 01 Jan 2015 00:00:00 GMT\r\n",
    ),
    case("Range, one", "/small.txt", "Range: bytes=10-19\r\n"),
    case("Range, the last bytes", "/small.txt", "Range: bytes=-5\r\n"),
    case("Range, several", "/small.txt", "Range: bytes=0-9,100-109\r\n"),
    case("Range beyond the end", "/small.txt", "Range: bytes=100000-\r\n"),
    case("If-Range, equal", "/small.txt", "Range: bytes=10-19\r\nIf-Range: @TAG@\r\n"),
    case("If-Range, other", "/small.txt", "Range: bytes=10-19\r\nIf-Range: \"other\"\r\n"),
    case("Accept-Encoding: gzip", "/words.txt", "Accept-Encoding: gzip\r\n"),
    case(
        "Accept-Encoding: gzip, deflate, br",
        "/words.txt",
        "Accept-Encoding: gzip, deflate, br\r\n",
    ),
    case("Accept-Encoding: identity", "/words.txt", "Accept-Encoding: identity\r\n"),
    case("Accept-Language", "/small.txt", "Accept-Language: de, en;q=0.5\r\n"),
    case("Cache-Control: no-cache", "/small.txt", "Cache-Control: no-cache\r\n"),
    case("Cookie", "/small.txt", "Cookie: a=b\r\n"),
    case("Authorization", "/small.txt", "Authorization: Basic YTpi\r\n"),
    Case { version: "1.0", ..case("HTTP/1.0", "/small.txt", "") },
    Case {
        version: "1.0",
        ..case("HTTP/1.0, keep-alive", "/small.txt", "Connection: keep-alive\r\n")
    },
    case("Connection: close", "/small.txt", "Connection: close\r\n"),
    Case { method: "POST", content: "a=b", ..case("POST", "/small.txt", "") },
    Case { method: "PUT", content: "new", ..case("PUT", "/small.txt", "") },
    Case { method: "OPTIONS", ..case("OPTIONS", "/small.txt", "") },
    Case { method: "DELETE", ..case("DELETE", "/small.txt", "") },
];

/// Counters of these kinds that are higher than before.
pub(crate) fn grown(now: &Counters, before: &Counters, kinds: &[&str]) -> Vec<String> {
    let tells = |name: &&String| kinds.iter().any(|kind| name.starts_with(kind));
    now.keys()
        .filter(tells)
        .filter(|name| now[*name] > before.get(*name).copied().unwrap_or(0))
        .cloned()
        .collect()
}

/// The counters of the last rounds.
pub(crate) struct Disturbances(VecDeque<Counters>);

impl Disturbances {
    pub(crate) fn new(counters: Counters) -> Self {
        Self([counters].into())
    }

    /// With the counters of one more round: may a reply of the last ones be a hit later?
    pub(crate) fn may_hit_later(&mut self, counters: Counters) -> bool {
        let may_hit = !grown(&counters, &self.0[0], &MAY_HIT_LATER).is_empty();
        self.0.push_back(counters);
        if self.0.len() > UNDISTURBED {
            self.0.pop_front();
        }
        may_hit
    }
}

impl Case {
    fn request(&self, validators: &Reply) -> Vec<u8> {
        let Self { method, path, version, content, .. } = self;
        // A server without tags is asked with one that it cannot know.
        let fields = self.fields.replace("@TAG@", validators.field("etag").unwrap_or("\"none\""));
        let mut fields = fields.replace("@DATE@", validators.field("last-modified").unwrap_or("-"));
        if !content.is_empty() {
            fields += &format!("Content-Length: {}\r\n", content.len());
        }
        format!("{method} {path} HTTP/{version}\r\nHost: files\r\n{fields}\r\n{content}")
            .into_bytes()
    }

    /// The GET without conditions that makes the entry which may answer this request.
    fn whole(&self) -> Vec<u8> {
        let chooses =
            |line: &&str| ["Accept", "Connection"].iter().any(|name| line.starts_with(name));
        let fields: String = self.fields.split_inclusive("\r\n").filter(chooses).collect();
        format!("GET {} HTTP/{}\r\nHost: files\r\n{fields}\r\n", self.path, self.version)
            .into_bytes()
    }

    /// Asks through the card, until there was a hit; every reply must be the server's own.
    fn check(&self, stage: &Stage) -> Outcome {
        let validators = stage.ask_beside(&get(self.path, ""));
        let request = self.request(&validators);
        let direct = stage.ask_beside(&request);
        let (first, begun) = (stage.counters(), Instant::now());
        let mut disturbances = Disturbances::new(first.clone());
        let is_due = table::says_hit(stage.name, self.name);
        // Other processes may purge what was just stored, and a server may remember for a moment
        // what it has looked up.
        let mut may_hit = |round: usize| {
            if is_due {
                return round < ROUNDS_MAX || begun.elapsed() < PATIENCE;
            }
            round < ROUNDS_MAX && disturbances.may_hit_later(stage.counters())
        };
        let mut hit = false;
        for round in 0.. {
            if round >= ROUNDS {
                if hit || !may_hit(round) {
                    break;
                }
                std::thread::sleep(PAUSE);
            }
            let is_whole = request == self.whole();
            if !is_whole {
                stage.ask(&self.whole());
                stage.settle();
                // The 304 to a HEAD is learned from that of a GET, and ranges from the first.
                stage.ask(&self.whole());
                stage.settle();
            }
            let before = stage.hits();
            let through = stage.ask(&request);
            assert_eq!(through, direct, "{}: {}, round {round}", stage.name, self.name);
            hit |= stage.hits() > before;
            stage.settle();
        }
        let reasons = grown(&stage.counters(), &first, &REASONS);
        Outcome { server: stage.name, case: self.name, hit, status: direct.status(), reasons }
    }
}

/// All requests, each as its own, then several on a connection.
pub(crate) fn check(stage: &Stage) {
    let seen: Vec<Outcome> = CASES.iter().map(|case| case.check(stage)).collect();
    on_one_connection(stage);
    table::compare(&seen);
}

/// Requests one after the other on a connection, and all in one write.
fn on_one_connection(stage: &Stage) {
    let paths = ["/small.txt", "/dir/", "/no-such", "/large.bin", "/words.txt", "/small.txt"];
    let both = paths.map(|path| (get(path, ""), stage.ask_beside(&get(path, ""))));
    // Some servers end the connection after a file that is missing, or after each.
    let goes_on = |reply: &Reply| {
        reply.head.starts_with("HTTP/1.1") && reply.field("connection") != Some("close")
    };
    let (requests, direct): (Vec<_>, Vec<_>) =
        both.into_iter().filter(|(_, reply)| goes_on(reply)).unzip();
    for _ in 0..3 {
        let mut connection = stage.through();
        for (request, direct) in requests.iter().zip(&direct) {
            connection.send(request);
            assert_eq!(connection.reply(false).plain(), *direct, "{}: keep-alive", stage.name);
        }
    }
    for _ in 0..3 {
        let mut connection = stage.through();
        connection.send(&requests.concat());
        for direct in &direct {
            assert_eq!(connection.reply(false).plain(), *direct, "{}: pipelined", stage.name);
        }
    }
}
