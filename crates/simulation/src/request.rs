//! Requests of clients: what is asked, and in which of the many ways of asking.

use std::rc::Rc;

use crate::files::{Files, UNIX_START_S};
use crate::random::Random;
use crate::server_reply::http_date;

/// What a right answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A file.
    File(usize),
    /// A file in one of two languages: the file of this client's.
    Vary(usize),
    /// Something for this client alone.
    Private,
    /// Whatever the server says.
    Anything,
}

/// A request and when it was sent.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Its number, which it also carries.
    pub number: u64,
    /// Its bytes.
    pub bytes: Rc<[u8]>,
    /// No body is expected.
    pub head: bool,
    /// What is expected.
    pub expect: Expect,
    /// `If-None-Match`.
    pub tag: Option<String>,
    /// `If-Modified-Since`.
    pub since: Option<String>,
    /// HTTP/1.0.
    pub http10: bool,
    /// The connection ends behind the reply, by what the request says.
    pub last: bool,
    /// Nothing that a server would take for a request.
    pub garbage: bool,
    /// When its last byte was given to TCP.
    pub sent_ns: u64,
    /// When its first byte was given to TCP.
    pub begun_ns: u64,
    /// In how many portions it was given to TCP.
    pub portions: u32,
    /// Other requests of the connection were unanswered when it was sent.
    pub behind: usize,
}

/// How a client asks in a run.
#[derive(Clone, Copy, Debug)]
pub struct RequestPlan {
    /// Files that are asked for most.
    pub popular: u64,
    /// Percent of requests that are neither GET nor HEAD of a file without conditions.
    pub odd_percent: u64,
}

/// Draws the next request.
pub fn draw(number: u64, plan: &RequestPlan, files: &Files, last: bool, random: &mut Random) -> Asked {
    let count = files.len() as u64;
    let file = if random.percent(80) { random.below(plan.popular.min(count)) } else { random.below(count) } as usize;
    let mut asked = Asked {
        number,
        bytes: Rc::from([]),
        head: random.percent(8),
        expect: Expect::File(file),
        tag: None,
        since: None,
        http10: random.percent(10),
        last: false,
        garbage: false,
        sent_ns: 0,
        begun_ns: 0,
        portions: 0,
        behind: 0,
    };
    let mut path = format!("/f/{file}");
    let mut fields = String::new();
    let mut method = if asked.head { "HEAD" } else { "GET" };
    let mut body = String::new();
    if random.percent(10) {
        fields.push_str("Accept-Encoding: gzip\r\n");
    }
    if random.percent(plan.odd_percent) {
        match random.below(18) {
            0..4 => condition(&mut asked, files, file, &mut fields, random),
            4 | 5 => {
                // Few of them, so that they are asked for again.
                let file = file % 2;
                asked.expect = Expect::File(file);
                path = format!("/{}/{file}", if random.percent(50) { "chunked" } else { "close" });
            }
            6 => path = format!("/early/{file}"),
            7 | 16 | 17 => {
                asked.expect = Expect::Private;
                path = "/private/0".into();
            }
            8..10 => {
                let german = random.percent(50);
                fields.push_str(if german { "Accept-Language: de\r\n" } else { "Accept-Language: en\r\n" });
                let base = file & !1;
                asked.expect = Expect::Vary((base ^ usize::from(german)).min(files.len() - 1));
                path = format!("/vary/{base}");
            }
            10 => fields.push_str("Cookie: session=1\r\n"),
            11 => {
                method = "POST";
                asked.head = false;
                asked.expect = Expect::Anything;
                body = "x".repeat(random.range(0, 3000) as usize);
                fields.push_str(&format!("Content-Length: {}\r\n", body.len()));
            }
            12 if !asked.http10 => {
                method = "POST";
                asked.head = false;
                asked.expect = Expect::Anything;
                fields.push_str("Transfer-Encoding: chunked\r\n");
                body = "5\r\nhello\r\n0\r\n\r\n".into();
            }
            13 => fields.push_str("X-Unknown: 1\r\n"),
            14 => {
                path = "/nowhere".into();
                asked.expect = Expect::Anything;
            }
            15 if random.percent(40) => asked.garbage = true,
            _ => {}
        }
    }
    let keep = match (asked.http10, last, random.below(8)) {
        (false, false, 0) => "Connection: keep-alive\r\n",
        (false, true, 0..6) => "Connection: close\r\n",
        (true, false, _) => "Connection: keep-alive\r\n",
        _ => "",
    };
    asked.last =
        asked.garbage || keep.contains("close") || (asked.http10 && keep.is_empty()) || path.starts_with("/close");
    asked.last |= asked.http10 && path.starts_with("/chunked");
    let version = if asked.http10 { "HTTP/1.0" } else { "HTTP/1.1" };
    let text = if asked.garbage {
        asked.expect = Expect::Anything;
        asked.head = false;
        String::from("\u{1}this is no request\r\n\r\n")
    } else {
        format!("{method} {path} {version}\r\nHost: sim.test\r\nUser-Agent: r{number}\r\n{keep}{fields}\r\n{body}")
    };
    asked.bytes = text.into_bytes().into();
    asked
}

fn condition(asked: &mut Asked, files: &Files, file: usize, fields: &mut String, random: &mut Random) {
    let versions = &files.get(file).versions;
    let version = if random.percent(80) { versions.last() } else { versions.first() };
    let Some(version) = version else { return };
    let with_tag = random.percent(70);
    if with_tag {
        let tag = if random.percent(10) { "*".into() } else { version.etag.clone() };
        fields.push_str(&format!("If-None-Match: {tag}\r\n"));
        asked.tag = Some(tag);
    }
    if !with_tag || random.percent(50) {
        let since = match random.below(10) {
            0 => http_date(UNIX_START_S - 100_000),
            1 => http_date(UNIX_START_S + 100_000),
            _ => http_date(version.modified_s),
        };
        fields.push_str(&format!("If-Modified-Since: {since}\r\n"));
        asked.since = Some(since);
    }
}
